//! How far scores of the same numbers, added up in another order, can be from each other.
//!
//! With `n` numbers, unit roundoff `u = 2⁻²⁴` and `γ(n) = nu / (1 − nu)`, a product in f32 that is summed in any order, fused
//! or not, is within `γ(n) Σ|qᵢvᵢ|` of the true one (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1),
//! which is at most `γ(n) |q| |v|`; a product of two numbers that is too small for f32 adds less than `2⁻¹²⁶`. Adding a gain `g`
//! rounds once more, by `u (|q| |v| (1 + γ(n)) + |g|)` at most. So two such scores are apart by no more than
//!
//! `bound = 2 (γ(n + 1) |q| |v|max + u |g|max + n 2⁻¹²⁶)`,
//!
//! as long as nothing overflows, for which `|q| |v|max + |g|max` must be below 10³⁸.

use half::f16;
use polytag_nn::nearest::Numbers;
use rayon::prelude::*;

use super::{Exact, LabelIndex};
use crate::ids::LabelId;

/// No product is above this, so that no sum of some of its parts overflows.
const LARGEST: f64 = 1e38;

/// What scores of a device can be apart from those of the CPU; for vectors that lie there.
pub(super) struct Bounds {
    dim: usize,
    /// The length of the longest vector; infinite, if a number of one is not finite.
    longest: f64,
    /// What a label gains, or loses, at most.
    gain: f64,
}

impl Bounds {
    pub(super) fn of(numbers: Numbers<'_>, exact: &Exact) -> Bounds {
        let longest = match numbers {
            Numbers::F32(numbers) => longest(numbers, exact, |&number| number),
            Numbers::F16(numbers) => longest(numbers, exact, |number: &f16| number.to_f32()),
        };
        let gain = exact.gains().iter().map(|gain| f64::from(gain.abs())).fold(0.0, f64::max);
        Bounds { dim: exact.dim(), longest, gain }
    }

    /// The bound for a query, if nothing can overflow.
    pub(super) fn of_query(&self, query: &[f32]) -> Option<f64> {
        // A little more than it is, as lengths are rounded, too.
        let product = length(query.iter().copied()) * self.longest * (1.0 + 1e-6);
        let unit = f64::from(f32::EPSILON) / 2.0;
        let summed = (self.dim as f64 + 1.0) * unit;
        let rounding = summed / (1.0 - summed) * product + unit * self.gain;
        let bound = 2.0 * (rounding + self.dim as f64 * f64::from(f32::MIN_POSITIVE));
        (summed < 0.5 && product + self.gain < LARGEST).then_some(bound)
    }
}

fn length(numbers: impl Iterator<Item = f32>) -> f64 {
    numbers.map(|number| f64::from(number) * f64::from(number)).sum::<f64>().sqrt()
}

/// The length of the longest vector of a label.
fn longest<T: Sync>(numbers: &[T], exact: &Exact, widened: impl Fn(&T) -> f32 + Sync) -> f64 {
    let vectors = numbers.par_chunks(exact.dim()).enumerate();
    let lengths = vectors
        .filter(|(position, _)| exact.labels().contains(LabelId::from_index(*position)))
        .map(|(_, vector)| length(vector.iter().map(&widened)));
    lengths.map(|length| if length.is_finite() { length } else { f64::INFINITY }).reduce(|| 0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Precision;

    #[test]
    fn bounds_are_those_of_the_longest_vector_and_the_greatest_gain() {
        let mut exact = Exact::new(2, Precision::F32).unwrap();
        exact.set(LabelId(0), &[3.0, 4.0]).unwrap();
        exact.set(LabelId(1), &[300.0, 400.0]).unwrap();
        exact.remove(LabelId(1));
        let exact = exact.with_gains(vec![-2.0, 1.0]).unwrap();
        let bounds = Bounds::of(Numbers::F32(&[3.0, 4.0, 300.0, 400.0]), &exact);
        assert_eq!((bounds.longest, bounds.gain), (5.0, 2.0), "a label that is gone does not count");
        // 2 (3 u · 2 · 5 + u · 2), but for what is far smaller.
        let bound = bounds.of_query(&[0.0, 2.0]).unwrap() * 2f64.powi(24);
        assert!((bound - 64.0).abs() < 1e-3, "{bound}");
        assert_eq!(bounds.of_query(&[3e37, 0.0]), None, "sums may overflow");
        assert!(bounds.of_query(&[0.0, 0.0]).unwrap() > 0.0);
        let bounds = Bounds::of(Numbers::F32(&[f32::NAN, 4.0, 0.0, 0.0]), &exact);
        assert_eq!(bounds.of_query(&[0.0, 2.0]), None, "a number of a file that is none");
    }

    /// Forwards and fused, backwards, and in halves: any two are as near as they must be.
    #[test]
    fn sums_in_other_orders_are_within_the_bound() {
        let number = |seed: usize| ((seed * 7919 + seed / 11 * 104_729) % 2003) as f32 / 1001.0 - 1.0;
        for dim in [1, 2, 17, 384, 1025] {
            let numbers = |seed: usize| -> Vec<f32> { (0..dim).map(|at| number(seed * dim + at)).collect() };
            let (vector, query) = (numbers(1), numbers(2));
            let mut exact = Exact::new(dim, Precision::F32).unwrap();
            exact.set(LabelId(0), &vector).unwrap();
            let bound = Bounds::of(Numbers::F32(&vector), &exact).of_query(&query).unwrap();
            let products: Vec<f32> = vector.iter().zip(&query).map(|(a, b)| a * b).collect();
            let halves = products.split_at(dim / 2);
            let sums = [
                vector.iter().zip(&query).fold(0f32, |sum, (a, b)| a.mul_add(*b, sum)),
                products.iter().rev().sum(),
                halves.0.iter().sum::<f32>() + halves.1.iter().sum::<f32>(),
            ];
            for (one, other) in [(0, 1), (0, 2), (1, 2)] {
                assert!(f64::from((sums[one] - sums[other]).abs()) <= bound, "{dim}: {sums:?}");
            }
        }
    }
}
