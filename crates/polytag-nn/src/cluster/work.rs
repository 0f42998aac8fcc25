//! What a device does of an iteration: the nearest centre of each row, and the mean of each group.

use rayon::prelude::*;

use super::groups::Groups;
use super::points::Points;
use crate::device::Device;
use crate::error::Error;

/// A device at work on rows that it knows.
pub(super) trait Worker {
    /// The cluster of each row: the first of those with the greatest score.
    fn assign(&mut self, compared: &Compared, nearest: &mut [u32]) -> Result<(), Error>;

    /// Moves the centre of each group to the mean of its rows; those of empty groups stay.
    ///
    /// Sums are made in f64, in the order of the rows: so the mean of duplicates is the row itself, and every
    /// device and number of threads gives the same bits.
    fn means(&mut self, groups: &Groups, centres: &mut [f32]) -> Result<(), Error>;
}

/// How many scores are computed before only the best of them are kept. On a GPU both are multiples of 64: so
/// chunks begin at multiples of 256 bytes, which cuBLASLt takes for granted, whatever the dimension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    /// How many rows are compared at a time.
    pub(super) rows: usize,
    /// With how many clusters.
    pub(super) clusters: usize,
}

impl Chunks {
    /// On a CPU, what a thread keeps in its second cache beside the rows and centres that it multiplies; on a
    /// GPU, what fills it and stays in the second cache until it is read.
    pub(super) fn of(device: &Device) -> Chunks {
        match device {
            Device::Cpu(_) => Chunks { rows: 256, clusters: 256 },
            Device::Cuda(_) => Chunks { rows: 4096, clusters: 2048 },
        }
    }
}

/// Centres as rows are compared with them: the score of a row is its product with a centre, plus the
/// centre's offset.
///
/// With `m` the mean of the rows and `d = c − m`, `x·c − |c|²/2` is `x·d − d·m − |d|²/2` and something that
/// is the same for all centres. So the score is made of what sets centres apart: for rows that lie together far
/// from the origin, `x·c` would have no digits left for that.
pub(super) struct Compared {
    /// The `d` of each centre, end to end.
    pub(super) centres: Vec<f32>,
    /// The `− d·m − |d|²/2` of each centre.
    pub(super) offsets: Vec<f32>,
}

impl Compared {
    /// What rows of `points` are to be compared with.
    pub(super) fn new(points: &Points<'_>, centres: &[f32]) -> Compared {
        let (mean, dimension) = (points.mean(), points.dimension());
        let mut centres = centres.to_vec();
        let offset = |centre: &mut [f32]| {
            let mut offset = 0.0;
            for (number, mean) in centre.iter_mut().zip(mean) {
                *number = (f64::from(*number) - mean) as f32;
                let rounded = f64::from(*number);
                offset -= rounded * (mean + rounded / 2.0);
            }
            offset as f32
        };
        let offsets = centres.par_chunks_mut(dimension).map(offset).collect();
        Compared { centres, offsets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_rank_centres_by_distance() {
        let rows = [100.0, 1.0, 102.0, -1.0, 98.0, 3.0];
        let points = Points::new(&rows, 2).unwrap();
        let centres = [99.0, 2.0, 101.0, 0.0, 0.0, 0.0];
        let compared = Compared::new(&points, &centres);
        for row in rows.chunks(2) {
            let of_centre = |(centre, moved, offset): (&[f32], &[f32], &f32)| {
                let score = row.iter().zip(moved).map(|(x, d)| x * d).sum::<f32>() + offset;
                let squared = row.iter().zip(centre).map(|(x, c)| (x - c).powi(2)).sum::<f32>();
                f64::from(score + squared / 2.0)
            };
            let centres = centres.chunks(2).zip(compared.centres.chunks(2)).zip(&compared.offsets);
            let sums: Vec<f64> = centres.map(|((c, d), o)| of_centre((c, d, o))).collect();
            // What score and half the squared distance add up to is the same for all centres.
            assert!(sums.iter().all(|sum| (sum - sums[0]).abs() < 1e-2), "{sums:?}");
        }
    }
}
