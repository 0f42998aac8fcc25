//! How far unseen labels have been pressed together.
//!
//! When a label encoder is trained on seen labels, it may move all others into one small corner where it can
//! no longer tell them apart: paper 003, section 4.1, figures 4 and 7, shows it in the plane. These are the
//! numbers for that picture, taken in all dimensions.

use polytag_nn::cpu::{View, multiply_once};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::PictureError;
use super::vectors::{CHUNK, Vectors};

/// Most pairs of an unseen and a seen label that are compared: 20,000 by 20,000.
const PAIRS: usize = 400_000_000;
/// Unseen labels that are compared at once.
const BLOCK: usize = 1024;

/// Where unseen labels lie, beside seen ones. All distances are cosine distances: 0 for the same direction,
/// 1 for perpendicular ones, 2 for opposite ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collapse {
    /// Seen labels that were measured.
    pub seen: usize,
    /// Unseen labels that were measured.
    pub unseen: usize,
    /// From an unseen label to the nearest seen one, on average. Small: unseen labels lie amid seen ones, as
    /// they do in an encoder that was not trained. Large: they lie apart.
    pub to_seen: f64,
    /// Unseen labels that [`to_seen`](Collapse::to_seen) is the average over: all of them, or every so many'th
    /// where comparing all would take more than 400 million pairs. Seen labels are never left out, since a
    /// nearest one among fewer is farther away.
    pub compared: usize,
    /// Between any two unseen labels, on average. Near zero: they have collapsed to one spot.
    pub among_unseen: f64,
    /// Between any two seen labels, on average: how far labels lie apart that training had a say on.
    pub among_seen: f64,
    /// Between an unseen and a seen label, on average. Far above the other two: there are two camps.
    pub between: f64,
    /// `among_unseen / among_seen`. 1: unseen labels are spread as seen ones are; near 0: they have collapsed.
    /// `None` where seen labels all point the same way.
    pub ratio: Option<f64>,
}

impl Collapse {
    /// Measures label vectors of `dimension` numbers, end to end; `seen` says for each whether training
    /// documents carry it. `None` where fewer than two labels are seen, or fewer than two unseen.
    ///
    /// Vectors need not be of unit length. One that is zero has no direction and is left out.
    ///
    /// Averages over pairs come from sums of vectors and cost one pass; the nearest seen labels cost up to
    /// 400 million products of vectors.
    ///
    /// # Errors
    /// When `rows` are no whole vectors, there is not one mark a vector, or a number is not finite.
    pub fn of(rows: &[f32], dimension: usize, seen: &[bool]) -> Result<Option<Collapse>, PictureError> {
        Collapse::within(PAIRS, Vectors::new(rows, dimension)?, seen)
    }

    fn within(pairs: usize, vectors: Vectors<'_>, seen: &[bool]) -> Result<Option<Collapse>, PictureError> {
        if seen.len() != vectors.len() {
            return Err(PictureError::Seen { found: seen.len(), vectors: vectors.len() });
        }
        let directions = Directions::of(vectors);
        let pointing = (0..seen.len()).filter(|&row| directions.scales[row] > 0.0);
        let (seen, unseen): (Vec<usize>, Vec<usize>) = pointing.partition(|&row| seen[row]);
        if seen.len() < 2 || unseen.len() < 2 {
            return Ok(None);
        }
        let (sum_of_seen, sum_of_unseen) = (directions.sum(&seen), directions.sum(&unseen));
        let step = unseen.len().div_ceil((pairs / seen.len()).max(1));
        let sample: Vec<usize> = unseen.iter().copied().step_by(step).collect();
        let nearest = directions.nearest(&sample, &seen);
        let (among_seen, among_unseen) =
            (among(&sum_of_seen, seen.len()), among(&sum_of_unseen, unseen.len()));
        Ok(Some(Collapse {
            seen: seen.len(),
            unseen: unseen.len(),
            to_seen: nearest.iter().map(|&cosine| distance(f64::from(cosine))).sum::<f64>()
                / sample.len() as f64,
            compared: sample.len(),
            among_unseen,
            among_seen,
            between: distance(dot(&sum_of_seen, &sum_of_unseen) / (seen.len() as f64 * unseen.len() as f64)),
            // Below this, seen labels differ by rounding.
            ratio: (among_seen > 1e-9).then(|| among_unseen / among_seen),
        }))
    }
}

fn distance(cosine: f64) -> f64 {
    (1.0 - cosine).clamp(0.0, 2.0)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The mean distance of any two of `n` unit vectors with this sum: its square holds the product of each pair
/// twice, and of each vector with itself once.
fn among(sum: &[f64], n: usize) -> f64 {
    let n = n as f64;
    distance((dot(sum, sum) - n) / (n * (n - 1.0)))
}

/// Vectors that are looked at as directions.
struct Directions<'a> {
    vectors: Vectors<'a>,
    /// What makes each of unit length; zero where nothing does.
    scales: Vec<f64>,
}

impl<'a> Directions<'a> {
    fn of(vectors: Vectors<'a>) -> Directions<'a> {
        let scale = |row: usize| {
            let squares: f64 = vectors.row(row).iter().map(|&value| f64::from(value).powi(2)).sum();
            if squares > 0.0 { squares.sqrt().recip() } else { 0.0 }
        };
        Directions { vectors, scales: (0..vectors.len()).into_par_iter().map(scale).collect() }
    }

    fn row(&self, at: usize) -> impl Iterator<Item = f64> {
        let scale = self.scales[at];
        self.vectors.row(at).iter().map(move |&value| f64::from(value) * scale)
    }

    fn sum(&self, rows: &[usize]) -> Vec<f64> {
        self.vectors.sum(rows, |row, sum| {
            sum.iter_mut().zip(self.row(row)).for_each(|(sum, value)| *sum += value);
        })
    }

    /// Some of the directions, end to end.
    fn gather(&self, rows: &[usize]) -> Vec<f32> {
        let dimension = self.vectors.dimension();
        let mut numbers = vec![0.0; rows.len() * dimension];
        numbers.par_chunks_mut(dimension).zip(rows).for_each(|(numbers, &row)| {
            numbers.iter_mut().zip(self.row(row)).for_each(|(to, value)| *to = value as f32);
        });
        numbers
    }

    /// For each of `from` the cosine with the one of `to` that is nearest, block by block, so that memory
    /// does not grow with the pairs.
    fn nearest(&self, from: &[usize], to: &[usize]) -> Vec<f32> {
        let dimension = self.vectors.dimension();
        let mut best = vec![-1.0f32; from.len()];
        for (from, best) in from.chunks(BLOCK).zip(best.chunks_mut(BLOCK)) {
            let left = self.gather(from);
            let left = View::new(&left, from.len(), dimension);
            let mut cosines = vec![0.0f32; from.len() * CHUNK.min(to.len())];
            for to in to.chunks(CHUNK) {
                let right = self.gather(to);
                let right = View::new(&right, to.len(), dimension).transposed();
                let cosines = &mut cosines[..from.len() * to.len()];
                multiply_once(left, right, cosines, false);
                best.par_iter_mut().zip(cosines.par_chunks(to.len())).for_each(|(best, cosines)| {
                    *best =
                        cosines.iter().fold(*best, |best, &cosine| if cosine > best { cosine } else { best });
                });
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use polytag_nn::random::Key;

    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn by_hand() {
        // Seen: east and north; unseen: (0.6, 0.8) and, three times as long, (0.8, 0.6); a zero in between.
        let rows = [1.0, 0.0, 0.6, 0.8, 0.0, 0.0, 0.0, 1.0, 2.4, 1.8];
        let found = Collapse::of(&rows, 2, &[true, false, false, true, false]).unwrap().unwrap();
        assert_eq!((found.seen, found.unseen, found.compared), (2, 2, 2));
        assert!(close(found.to_seen, 0.2), "{found:?}");
        assert!(close(found.among_seen, 1.0), "{found:?}");
        assert!(close(found.among_unseen, 0.04), "{found:?}");
        assert!(close(found.between, 0.3), "{found:?}");
        assert!(close(found.ratio.unwrap(), 0.04), "{found:?}");
    }

    #[test]
    fn too_few_labels_say_nothing() {
        let rows = [1.0, 0.0, 0.6, 0.8, 0.0, 1.0];
        for seen in [[true; 3], [false; 3], [true, false, false], [true, true, false]] {
            assert_eq!(Collapse::of(&rows, 2, &seen), Ok(None), "{seen:?}");
        }
        assert_eq!(Collapse::of(&[], 2, &[]), Ok(None));
        assert_eq!(
            Collapse::of(&rows, 2, &[true]),
            Err(PictureError::Seen { found: 1, vectors: 3 }),
            "a mark for each"
        );
    }

    #[test]
    fn collapsed_labels_have_a_ratio_near_zero() {
        let rows = [1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.6, 0.8, 0.6, 0.8, 0.6001, 0.8];
        let seen = [true, true, true, false, false, false];
        let found = Collapse::of(&rows, 2, &seen).unwrap().unwrap();
        assert!(found.ratio.unwrap() < 1e-6, "{found:?}");
        let swapped = seen.map(|seen| !seen);
        assert!(Collapse::of(&rows[..10], 2, &swapped[..5]).unwrap().unwrap().ratio.is_none());
    }

    /// Random vectors of which every third is unseen; more than one block and one chunk of each.
    fn many() -> (Vec<f32>, Vec<bool>) {
        let key = Key::new(11);
        let n = 4500;
        let rows = (0..n * 5).map(|at| key.uniform(at / 5, at % 5) - 0.3).collect();
        (rows, (0..n).map(|row| row % 3 != 0).collect())
    }

    #[test]
    fn sums_are_the_averages_over_pairs() {
        let (rows, seen) = many();
        let cosine = |a: &[f32], b: &[f32]| {
            let dot =
                |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            let (ab, aa, bb): (f64, f64, f64) = (dot(a, b), dot(a, a), dot(b, b));
            1.0 - ab / (aa * bb).sqrt()
        };
        let part = |wanted: bool| -> Vec<&[f32]> {
            rows.chunks(5).zip(&seen).filter(|(_, seen)| **seen == wanted).map(|(row, _)| row).collect()
        };
        let (known, unknown) = (part(true), part(false));
        let (mut nearest, mut between, mut among) = (0.0, 0.0, 0.0);
        for a in &unknown {
            let distances = || known.iter().map(|b| cosine(a, b));
            nearest += distances().fold(2.0, f64::min) / unknown.len() as f64;
            between += distances().sum::<f64>() / (known.len() * unknown.len()) as f64;
            among += unknown.iter().map(|b| cosine(a, b)).sum::<f64>();
        }
        among /= (unknown.len() * (unknown.len() - 1)) as f64;
        let found = Collapse::of(&rows, 5, &seen).unwrap().unwrap();
        assert!(close(found.to_seen, nearest) && close(found.between, between), "{found:?}");
        assert!(close(found.among_unseen, among), "{among} {found:?}");
    }

    #[test]
    fn above_the_limit_unseen_labels_are_sampled() {
        let (rows, seen) = many();
        let vectors = Vectors::new(&rows, 5).unwrap();
        let all = Collapse::of(&rows, 5, &seen).unwrap().unwrap();
        let some = Collapse::within(3000 * 400, vectors, &seen).unwrap().unwrap();
        assert_eq!((all.compared, some.compared), (1500, 375));
        assert!((all.to_seen - some.to_seen).abs() < 0.2 * all.to_seen, "{all:?} {some:?}");
        assert_eq!(
            Collapse { to_seen: 0.0, compared: 0, ..all },
            Collapse { to_seen: 0.0, compared: 0, ..some }
        );
        assert_eq!(Collapse::within(1, vectors, &seen).unwrap().unwrap().compared, 1);
    }

    #[test]
    fn threads_change_no_byte() {
        let (rows, seen) = many();
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Collapse::of(&rows, 5, &seen)).unwrap()
        };
        assert_eq!(with(1), with(3));
    }
}
