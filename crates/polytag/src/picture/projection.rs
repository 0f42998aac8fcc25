//! Vectors laid flat: their first two principal components.

use polytag_nn::cpu::{View, multiply_once};
use rayon::prelude::*;

use super::PictureError;
use super::eigen::leading;
use super::vectors::{CHUNK, Vectors};

/// An axis with less than this share of the variance is rounding: products are summed in 32 bits within a
/// chunk.
const ROUNDING: f64 = 1e-7;

/// Vectors in the plane in which they vary most.
#[derive(Clone, Debug, PartialEq)]
pub struct Plane {
    /// Where each vector lies, in their order; the mean is at the origin.
    pub points: Vec<[f64; 2]>,
    /// The share of all variance along each axis, from 0 to 1, the larger one first.
    pub shares: [f64; 2],
}

impl Plane {
    /// Projects vectors of `dimension` numbers, end to end, onto their first two principal components.
    ///
    /// The sign of an axis is such that its largest component is positive. Where vectors do not vary (there
    /// are none, one, or all are equal) everything is zero, as is the second axis where they vary along one
    /// direction only.
    ///
    /// Costs `n · dimension²` multiply-adds and, besides the points, memory for `2048 · dimension` and
    /// `dimension²` numbers.
    ///
    /// # Errors
    /// When `rows` are no whole vectors, or hold a number that is not finite.
    pub fn of(rows: &[f32], dimension: usize) -> Result<Plane, PictureError> {
        let vectors = Vectors::new(rows, dimension)?;
        let flat = Plane { points: vec![[0.0; 2]; vectors.len()], shares: [0.0; 2] };
        let Some(centred) = Centred::of(vectors) else { return Ok(flat) };
        let covariance = centred.covariance();
        let total: f64 = covariance.iter().step_by(dimension + 1).sum();
        let leading = leading(&covariance, dimension);
        let shares = leading.values.map(|value| if value > total * ROUNDING { value / total } else { 0.0 });
        let along = |row: usize| {
            let mut point = [0.0; 2];
            for (place, value) in centred.row(row).enumerate() {
                point[0] += value * leading.vectors[0][place];
                point[1] += value * leading.vectors[1][place];
            }
            [0, 1].map(|axis| if shares[axis] > 0.0 { point[axis] * centred.spread } else { 0.0 })
        };
        Ok(Plane { points: (0..vectors.len()).into_par_iter().map(along).collect(), shares })
    }
}

/// Vectors less their mean, as shares of the largest number that leaves. The mean is that of the differences
/// from the first vector, so that equal vectors are zero exactly, and nothing finite overflows.
struct Centred<'a> {
    vectors: Vectors<'a>,
    first: &'a [f32],
    offset: Vec<f64>,
    spread: f64,
}

impl<'a> Centred<'a> {
    /// `None` where vectors do not vary.
    fn of(vectors: Vectors<'a>) -> Option<Centred<'a>> {
        if vectors.len() < 2 {
            return None;
        }
        let first = vectors.row(0);
        let all: Vec<usize> = (0..vectors.len()).collect();
        let mut offset = vectors.sum(&all, |row, sum| {
            for ((sum, &value), &first) in sum.iter_mut().zip(vectors.row(row)).zip(first) {
                *sum += f64::from(value) - f64::from(first);
            }
        });
        offset.iter_mut().for_each(|sum| *sum /= vectors.len() as f64);
        let mut centred = Centred { vectors, first, offset, spread: 1.0 };
        let largest = |row: &usize| centred.row(*row).fold(0.0, |most: f64, value| most.max(value.abs()));
        centred.spread = all.par_iter().map(largest).reduce(|| 0.0, f64::max);
        (centred.spread > 0.0).then_some(centred)
    }

    fn row(&self, at: usize) -> impl Iterator<Item = f64> {
        let shifted = self.vectors.row(at).iter().zip(self.first).zip(&self.offset);
        shifted.map(|((&value, &first), offset)| (f64::from(value) - f64::from(first) - offset) / self.spread)
    }

    /// The sums of products of any two dimensions: 32 bits within a chunk, 64 across.
    fn covariance(&self) -> Vec<f64> {
        let dimension = self.vectors.dimension();
        let chunk = CHUNK.min(self.vectors.len());
        let mut numbers = vec![0.0f32; chunk * dimension];
        let mut products = vec![0.0f32; dimension * dimension];
        let mut total = vec![0.0f64; dimension * dimension];
        for start in (0..self.vectors.len()).step_by(chunk) {
            let rows = chunk.min(self.vectors.len() - start);
            let numbers = &mut numbers[..rows * dimension];
            numbers.par_chunks_mut(dimension).enumerate().for_each(|(row, numbers)| {
                numbers.iter_mut().zip(self.row(start + row)).for_each(|(to, value)| *to = value as f32);
            });
            let view = View::new(numbers, rows, dimension);
            multiply_once(view.transposed(), view, &mut products, false);
            total.par_iter_mut().zip(&products).for_each(|(total, &sum)| *total += f64::from(sum));
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use polytag_nn::random::Key;

    use super::*;

    fn close(a: f64, b: f64, by: f64) -> bool {
        (a - b).abs() <= by
    }

    #[test]
    fn a_cross_by_hand() {
        // Four points around (10, 20): 3 to either side along (0.6, 0.8), 1 across it.
        let rows = [11.8, 22.4, 8.2, 17.6, 9.2, 20.6, 10.8, 19.4];
        let plane = Plane::of(&rows, 2).unwrap();
        assert!(close(plane.shares[0], 0.9, 1e-6) && close(plane.shares[1], 0.1, 1e-6), "{plane:?}");
        let expected = [[3.0, 0.0], [-3.0, 0.0], [0.0, -1.0], [0.0, 1.0]];
        for (point, expected) in plane.points.iter().flatten().zip(expected.iter().flatten()) {
            assert!(close(*point, *expected, 1e-5), "{plane:?}");
        }
    }

    #[test]
    fn what_does_not_vary_lies_at_the_origin() {
        let flat = |n| Plane { points: vec![[0.0; 2]; n], shares: [0.0; 2] };
        assert_eq!(Plane::of(&[], 3), Ok(flat(0)));
        assert_eq!(Plane::of(&[], 0), Ok(flat(0)));
        assert_eq!(Plane::of(&[1.0, 2.0, 3.0], 3), Ok(flat(1)));
        // 0.1 is no whole number of bits: its mean over five would not be 0.1.
        assert_eq!(Plane::of(&[0.1; 15], 3), Ok(flat(5)));
    }

    #[test]
    fn one_direction_leaves_the_second_axis_empty() {
        let one = Plane::of(&[1.0, 2.0, 6.0], 1).unwrap();
        assert_eq!((&one.points[..], one.shares), (&[[-2.0, 0.0], [-1.0, 0.0], [3.0, 0.0]][..], [1.0, 0.0]));
        let line: Vec<f32> = (0..300).flat_map(|at| [0.1, 0.7, -0.3].map(|d| d * at as f32)).collect();
        let line = Plane::of(&line, 3).unwrap();
        assert!(line.points.iter().all(|point| point[1] == 0.0) && line.shares[1] == 0.0);
    }

    #[test]
    fn large_numbers_stay_finite() {
        let rows = [f32::MAX, f32::MIN, f32::MIN, f32::MAX, 0.0, f32::MAX];
        let plane = Plane::of(&rows, 2).unwrap();
        assert!(plane.points.iter().flatten().chain(&plane.shares).all(|value| value.is_finite()));
        assert!(plane.shares[0] > 0.5);
    }

    #[test]
    fn threads_change_no_byte() {
        let key = Key::new(3);
        let (n, dimension) = (5000, 20);
        let number = |at: usize| key.uniform((at / dimension) as u32, (at % dimension) as u32);
        let rows: Vec<f32> = (0..n * dimension).map(number).collect();
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Plane::of(&rows, dimension)).unwrap()
        };
        assert_eq!(with(1), with(3));
    }

    #[test]
    fn variance_along_the_axes_is_their_share() {
        let key = Key::new(4);
        let (n, dimension) = (3000, 30);
        let number = |at: usize| {
            key.uniform((at / dimension) as u32, (at % dimension) as u32)
                * 0.9f32.powi((at % dimension) as i32)
        };
        let rows: Vec<f32> = (0..n * dimension).map(number).collect();
        let plane = Plane::of(&rows, dimension).unwrap();
        let mut variance = 0.0;
        for place in 0..dimension {
            let column = || rows.iter().skip(place).step_by(dimension).map(|&value| f64::from(value));
            let mean = column().sum::<f64>() / n as f64;
            variance += column().map(|value| (value - mean).powi(2)).sum::<f64>();
        }
        for axis in 0..2 {
            let along: f64 = plane.points.iter().map(|point| point[axis].powi(2)).sum();
            assert!(close(along / variance, plane.shares[axis], 1e-6));
        }
        let across: f64 = plane.points.iter().map(|point| point[0] * point[1]).sum();
        assert!(across.abs() / variance < 1e-6, "the axes are uncorrelated");
    }
}
