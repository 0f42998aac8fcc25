//! Rows of activations in 8 bits, each with a scale and a zero of its own.
//!
//! A row's numbers, and zero, are spread over 0 to 255: `x ≈ scale · (byte - zero)`. What is all of one sign, or
//! nearly, as after GELU, so has twice the steps that bytes around a fixed middle would give it. How a number is
//! rounded depends on its row only, and is the same on every instruction set: there is a product, a sum, and no
//! fused multiplication.

use crate::cpu::simd::{Kernel, Simd};

/// What is smaller than this counts as nothing: the inverse of a scale must be a number.
pub(super) const TINY: f32 = 1e-30;

/// The greatest byte.
const STEPS: f32 = 255.0;

/// What brings the bytes of a row back: `scale · (byte - zero)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Step {
    /// The size of a step; not a number where the row has something that is not finite.
    pub(super) scale: f32,
    /// The byte that stands for zero.
    pub(super) zero: i32,
}

/// How many bytes a row of `depth` numbers takes: whole vectors, so that rows are aligned alike.
pub(super) fn stride(depth: usize) -> usize {
    depth.next_multiple_of(64)
}

/// Rounds rows of `depth` numbers, which lie end to end, to bytes that lie a [`stride`] apart.
pub(super) struct RoundRows<'a> {
    pub(super) depth: usize,
    pub(super) rows: &'a [f32],
    pub(super) bytes: &'a mut [u8],
    pub(super) steps: &'a mut [Step],
}

impl Kernel for RoundRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if self.depth == 0 {
            return self.steps.fill(Step::default());
        }
        let rows = self.rows.chunks_exact(self.depth);
        let bytes = self.bytes.chunks_exact_mut(stride(self.depth));
        for ((row, bytes), step) in rows.zip(bytes).zip(self.steps) {
            let (inverse, of_row) = step_of(simd, row);
            let (factor, zero) = (simd.splat(inverse), simd.splat(of_row.zero as f32));
            for (x, bytes) in row.chunks(S::LANES).zip(bytes.chunks_mut(S::LANES)) {
                let value = simd.add(simd.mul(simd.load(x), factor), zero);
                // The slice is whole but for the row's end, which is past the weights, too.
                simd.store_bytes(value, bytes);
            }
            *step = of_row;
        }
    }
}

/// How a row is rounded: what its numbers are multiplied by, and what brings them back.
#[inline(always)]
fn step_of<S: Simd>(simd: S, row: &[f32]) -> (f32, Step) {
    let zero = simd.splat(0.0);
    // Side by side: one alone would wait for itself.
    let (mut most, mut least, mut odd) = ([zero; 2], [zero; 2], [zero; 2]);
    for x in row.chunks(2 * S::LANES) {
        for (chain, x) in x.chunks(S::LANES).enumerate() {
            let x = simd.load(x);
            most[chain] = simd.max(most[chain], x);
            least[chain] = simd.min(least[chain], x);
            // Zero, but for what is not finite.
            odd[chain] = simd.fma(x, zero, odd[chain]);
        }
    }
    let most = simd.greatest(simd.max(most[0], most[1]));
    let least = simd.greatest(simd.sub(zero, simd.min(least[0], least[1])));
    let range = most + least;
    if simd.sum(simd.add(odd[0], odd[1])) != 0.0 || !range.is_finite() {
        return (0.0, Step { scale: f32::NAN, zero: 0 });
    }
    if range < TINY {
        return (0.0, Step::default());
    }
    let inverse = STEPS / range;
    let step = Step { scale: range / STEPS, zero: (least * inverse).round_ties_even() as i32 };
    (inverse, step)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cpu::simd::Set;

    fn rounded(set: Set, row: &[f32]) -> (Vec<u8>, Step) {
        let (mut bytes, mut steps) = (vec![7; stride(row.len())], [Step::default()]);
        set.run(RoundRows { depth: row.len(), rows: row, bytes: &mut bytes, steps: &mut steps });
        bytes.truncate(row.len());
        (bytes, steps[0])
    }

    /// Checks that bytes come back within half a step, in every set alike.
    fn check(row: &[f32]) {
        let expected = rounded(Set::all()[0], row);
        let Step { scale, zero } = expected.1;
        for (&x, &byte) in row.iter().zip(&expected.0) {
            let back = scale * (i32::from(byte) - zero) as f32;
            let bound = 0.501 * scale + 1e-6 * x.abs() + TINY;
            assert!((back - x).abs() <= bound, "{x} came back as {back}, scale {scale}");
        }
        for set in Set::all() {
            assert_eq!(rounded(set, row), expected, "{set:?}");
        }
    }

    #[test]
    fn awkward_rows() {
        check(&[]);
        check(&[0.0; 40]);
        check(&[-0.0, 0.0]);
        check(&[1e-38, -1e-40]);
        check(&[3.0; 33]);
        check(&[-3.0; 17]);
        check(&[1e30, -1e30, 1.0]);
        check(&[127.5, -127.5]);
        check(&(0..256).map(|x| x as f32).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_not_finite_is_not_hidden() {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in [0, 15, 16, 40, 69] {
                let mut row = vec![1.0; 70];
                row[place] = odd;
                for set in Set::all() {
                    assert!(rounded(set, &row).1.scale.is_nan(), "{set:?} {odd} {place}");
                }
            }
        }
        // Their difference is not finite, though they are.
        assert!(rounded(Set::best(), &[f32::MAX, -f32::MAX]).1.scale.is_nan());
    }

    proptest! {
        #[test]
        fn any_row(row in prop::collection::vec(-1e6_f32..1e6, 0..200), by in -30..20) {
            check(&row.iter().map(|x| x * 2.0_f32.powi(by)).collect::<Vec<_>>());
        }
    }
}
