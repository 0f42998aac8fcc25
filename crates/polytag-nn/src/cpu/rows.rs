//! Row-wise softmax, and sums over the rows of a matrix.

use rayon::prelude::*;

use super::functions::exp;
use super::simd::{Kernel, Set, Simd};
use super::view::View;

/// How many rows are summed up before sums of rows are added: a constant, so that threads change no byte.
pub(super) const SUMMED_ROWS: usize = 128;

/// The logarithm of the sum of the exponentials of a row; minus infinity for an empty one.
pub fn log_sum_exp(row: &[f32]) -> f32 {
    Set::best().run(LogSumExp(row))
}

struct LogSumExp<'a>(&'a [f32]);

impl Kernel for LogSumExp<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let greatest = greatest(simd, self.0);
        if greatest == f32::NEG_INFINITY {
            return greatest;
        }
        let mut sum = simd.splat(0.0);
        for x in self.0.chunks(S::LANES) {
            let x = simd.sub(simd.load_or(x, f32::NEG_INFINITY), simd.splat(greatest));
            sum = simd.add(sum, exp(simd, x));
        }
        greatest + simd.sum(sum).ln()
    }
}

/// Replaces each row of `columns` numbers by its softmax, rows in parallel.
///
/// # Panics
/// If `x` is not whole rows.
pub fn softmax_rows(x: &mut [f32], columns: usize) {
    if x.is_empty() {
        return;
    }
    assert!(columns > 0 && x.len().is_multiple_of(columns), "whole rows");
    let set = Set::best();
    x.par_chunks_mut(columns).for_each(|row| set.run(Softmax { row, scale: 1.0 }));
}

/// Replaces a row by the softmax of `scale` times it, by the calling thread. The scale is not negative.
pub fn scaled_softmax(row: &mut [f32], scale: f32) {
    Set::best().run(Softmax { row, scale });
}

struct Softmax<'a> {
    row: &'a mut [f32],
    scale: f32,
}

impl Kernel for Softmax<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let greatest = simd.splat(greatest(simd, self.row));
        let scale = simd.splat(self.scale);
        let mut sum = simd.splat(0.0);
        for x in self.row.chunks_mut(S::LANES) {
            let beyond = simd.sub(simd.load_or(x, f32::NEG_INFINITY), greatest);
            let value = exp(simd, simd.mul(beyond, scale));
            sum = simd.add(sum, value);
            simd.store(value, x);
        }
        let share = simd.splat(1.0 / simd.sum(sum));
        for x in self.row.chunks_mut(S::LANES) {
            simd.store(simd.mul(simd.load(x), share), x);
        }
    }
}

/// The greatest number of a row, minus infinity for an empty one.
#[inline(always)]
pub(super) fn greatest<S: Simd>(simd: S, row: &[f32]) -> f32 {
    let mut greatest = simd.splat(f32::NEG_INFINITY);
    for x in row.chunks(S::LANES) {
        greatest = simd.max(greatest, simd.load_or(x, f32::NEG_INFINITY));
    }
    simd.greatest(greatest)
}

/// Where the greatest number of a row stands first, and the number; minus infinity for an empty row.
pub(crate) fn first_greatest(row: &[f32]) -> (usize, f32) {
    Set::best().run(FirstGreatest(row))
}

struct FirstGreatest<'a>(&'a [f32]);

impl Kernel for FirstGreatest<'_> {
    type Output = (usize, f32);
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> (usize, f32) {
        let greatest = greatest(simd, self.0);
        // Block by block without a way out, which the compiler makes vectors of; then within the block.
        let block = 4 * S::LANES;
        let here = |numbers: &[f32]| numbers.iter().fold(false, |found, &x| found | (x == greatest));
        let first = self.0.chunks(block).position(here).unwrap_or(0) * block;
        let place = self.0[first..].iter().position(|&x| x == greatest).unwrap_or(0);
        (first + place, greatest)
    }
}

/// `out[column] = Σ x[row, column]` over the rows; adds to `out` if told to `accumulate`.
///
/// # Panics
/// If the rows do not lie number by number, or `out` has another length than a row.
pub fn column_sums(x: View<'_>, out: &mut [f32], accumulate: bool) {
    assert_eq!(x.columns(), out.len(), "a sum a column");
    assert_eq!(x.column_stride(), 1, "rows lie number by number");
    let set = Set::best();
    if !accumulate {
        out.fill(0.0);
    }
    let rows: Vec<usize> = (0..x.rows()).step_by(SUMMED_ROWS).collect();
    let partial = rows.into_par_iter().map(|first| {
        let mut sums = vec![0.0; x.columns()];
        for row in first..(first + SUMMED_ROWS).min(x.rows()) {
            set.run(AddTo { x: &x.from(row, 0)[..x.columns()], sums: &mut sums });
        }
        sums
    });
    for sums in partial.collect::<Vec<_>>() {
        set.run(AddTo { x: &sums, sums: out });
    }
}

/// `sums += x`
pub(super) struct AddTo<'a> {
    pub(super) x: &'a [f32],
    pub(super) sums: &'a mut [f32],
}

impl Kernel for AddTo<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (sum, x) in self.sums.chunks_mut(S::LANES).zip(self.x.chunks(S::LANES)) {
            simd.store(simd.add(simd.load(sum), simd.load(x)), sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{bits, random, same_with_any_threads};

    #[test]
    fn softmax_and_log_sum_exp_agree_with_plain_ones() {
        for columns in [1, 5, 16, 31, 100] {
            let x: Vec<f32> = random(3 * columns, 4).iter().map(|x| x * 30.0).collect();
            for set in Set::all() {
                let mut y: Vec<f32> = x.iter().map(|x| 4.0 * x).collect();
                y.chunks_mut(columns).for_each(|row| set.run(Softmax { row, scale: 0.25 }));
                for (x, y) in x.chunks(columns).zip(y.chunks(columns)) {
                    let sum: f64 = x.iter().map(|&x| f64::from(x).exp()).sum();
                    assert!((f64::from(set.run(LogSumExp(x))) - sum.ln()).abs() < 1e-5);
                    for (&x, &y) in x.iter().zip(y) {
                        assert!((f64::from(y) - f64::from(x).exp() / sum).abs() < 1e-6);
                    }
                }
            }
        }
        assert_eq!(log_sum_exp(&[]), f32::NEG_INFINITY);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY]), f32::NEG_INFINITY);
        assert!(log_sum_exp(&[1.0, f32::NAN]).is_nan());
    }

    #[test]
    fn the_greatest_number_is_found_where_it_stands_first() {
        for set in Set::all() {
            for len in [1, 7, 64, 65, 300] {
                for (first, second) in [(0, 0), (0, len - 1), (len / 2, len - 1), (len - 1, len - 1)] {
                    let mut row = random(len, 6);
                    (row[first], row[second]) = (2.0, 2.0);
                    assert_eq!(set.run(FirstGreatest(&row)), (first, 2.0), "{set:?} {len}");
                }
            }
            assert_eq!(set.run(FirstGreatest(&[])), (0, f32::NEG_INFINITY));
            assert_eq!(set.run(FirstGreatest(&[f32::NEG_INFINITY; 3])), (0, f32::NEG_INFINITY));
        }
    }

    #[test]
    fn column_sums_are_the_same_with_any_threads() {
        let x = random(1000 * 37, 5);
        let view = View::new(&x, 1000, 37);
        let sums = || {
            let mut sums = vec![1.0; 37];
            column_sums(view, &mut sums, true);
            bits(&sums)
        };
        same_with_any_threads(sums);
        let mut sums = vec![7.0; 37];
        column_sums(view, &mut sums, false);
        for (column, &sum) in sums.iter().enumerate() {
            let plain: f64 = (0..1000).map(|row| f64::from(view.at(row, column))).sum();
            assert!((f64::from(sum) - plain).abs() < 1e-4);
        }
        column_sums(View::new(&[], 0, 2), &mut sums[..2], false);
        assert_eq!(sums[..2], [0.0, 0.0]);
    }
}
