//! Functions of numbers one by one, and sums over all of them.
//!
//! Long slices are cut into chunks of a fixed length that threads take; sums over chunks are added up in
//! the order of the chunks.

use rayon::prelude::*;

use super::functions::{self, gelu_slope};
use super::simd::{Kernel, Set, Simd};

/// How many numbers a thread takes at a time: what a few of such slices hold fits its nearest caches.
pub(super) const CHUNK: usize = 4096;

/// `y = GELU(x)`, the exact one (with erf), within 1e-6.
///
/// # Panics
/// If the lengths differ.
pub fn gelu(x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "one output a number");
    let set = Set::best();
    y.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).for_each(|(y, x)| set.run(Gelu { x, y }));
}

struct Gelu<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for Gelu<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (y, x) in self.y.chunks_mut(S::LANES).zip(self.x.chunks(S::LANES)) {
            simd.store(functions::gelu(simd, simd.load(x)), y);
        }
    }
}

/// `dx = dy · GELU'(before)`
///
/// # Panics
/// If the lengths differ.
pub fn gelu_backward(before: &[f32], dy: &[f32], dx: &mut [f32]) {
    assert!(before.len() == dx.len() && dy.len() == dx.len(), "one output a number");
    let set = Set::best();
    dx.par_chunks_mut(CHUNK)
        .zip(before.par_chunks(CHUNK).zip(dy.par_chunks(CHUNK)))
        .for_each(|(dx, (before, dy))| set.run(GeluBackward { before, dy, dx }));
}

struct GeluBackward<'a> {
    before: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl Kernel for GeluBackward<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let inputs = self.before.chunks(S::LANES).zip(self.dy.chunks(S::LANES));
        for (dx, (before, dy)) in self.dx.chunks_mut(S::LANES).zip(inputs) {
            let slope = gelu_slope(simd, simd.load(before));
            simd.store(simd.mul(simd.load(dy), slope), dx);
        }
    }
}

/// `y = e^x`; zero below -88.03, and as at 88 above that.
///
/// # Panics
/// If the lengths differ.
pub fn exp(x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "one output a number");
    let set = Set::best();
    y.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).for_each(|(y, x)| set.run(Exp { x, y }));
}

struct Exp<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for Exp<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (y, x) in self.y.chunks_mut(S::LANES).zip(self.x.chunks(S::LANES)) {
            simd.store(functions::exp(simd, simd.load(x)), y);
        }
    }
}

/// `y += a · x`, by the calling thread.
///
/// # Panics
/// If the lengths differ.
pub fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "one output a number");
    Set::best().run(Axpy { a, x, y });
}

struct Axpy<'a> {
    a: f32,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for Axpy<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let a = simd.splat(self.a);
        for (y, x) in self.y.chunks_mut(S::LANES).zip(self.x.chunks(S::LANES)) {
            simd.store(simd.fma(a, simd.load(x), simd.load(y)), y);
        }
    }
}

/// The scalar product of two vectors, by the calling thread.
///
/// # Panics
/// If the lengths differ.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "vectors of one length");
    Set::best().run(Dot { a, b })
}

struct Dot<'a> {
    a: &'a [f32],
    b: &'a [f32],
}

impl Kernel for Dot<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        // Four sums side by side: one alone would wait for itself.
        let mut sums = [simd.splat(0.0); 4];
        for (a, b) in self.a.chunks(4 * S::LANES).zip(self.b.chunks(4 * S::LANES)) {
            let parts = a.chunks(S::LANES).zip(b.chunks(S::LANES));
            for (sum, (a, b)) in sums.iter_mut().zip(parts) {
                *sum = simd.fma(simd.load(a), simd.load(b), *sum);
            }
        }
        simd.sum(simd.add(simd.add(sums[0], sums[1]), simd.add(sums[2], sums[3])))
    }
}

/// The sum of the squares, in `f64`.
pub fn sum_of_squares(x: &[f32]) -> f64 {
    let set = Set::best();
    let sums: Vec<f64> = x.par_chunks(16 * CHUNK).map(|x| set.run(SumOfSquares(x))).collect();
    sums.into_iter().sum()
}

struct SumOfSquares<'a>(&'a [f32]);

impl Kernel for SumOfSquares<'_> {
    type Output = f64;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> f64 {
        // Sixteen plain sums: the compiler makes vectors of them.
        let mut sums = [0.0_f64; 16];
        for x in self.0.chunks(16) {
            for (sum, &x) in sums.iter_mut().zip(x) {
                *sum += f64::from(x) * f64::from(x);
            }
        }
        sums.into_iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{random, same_with_any_threads};

    #[test]
    fn sums_agree_with_plain_ones_at_every_length() {
        for len in [0, 1, 7, 16, 63, 64, 65, 1000] {
            let (a, b) = (random(len, 1), random(len, 2));
            let plain: f64 = a.iter().zip(&b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            for set in Set::all() {
                assert!((f64::from(set.run(Dot { a: &a, b: &b })) - plain).abs() < 1e-5, "{set:?} {len}");
                let mut y = b.clone();
                set.run(Axpy { a: 0.5, x: &a, y: &mut y });
                let close = |((y, a), b): ((&f32, &f32), &f32)| (y - (0.5 * a + b)).abs() < 1e-6;
                assert!(y.iter().zip(&a).zip(&b).all(close));
            }
            let plain: f64 = a.iter().map(|&a| f64::from(a).powi(2)).sum();
            assert!((sum_of_squares(&a) - plain).abs() < 1e-9);
        }
        let long = random(200_000, 3);
        same_with_any_threads(|| sum_of_squares(&long).to_bits());
    }

    #[test]
    fn gelu_backward_is_the_slope_of_gelu() {
        let x = random(9000, 1).iter().map(|x| x * 6.0).collect::<Vec<_>>();
        let dy = random(9000, 2);
        let mut dx = vec![0.0; x.len()];
        gelu_backward(&x, &dy, &mut dx);
        let step = 1.0 / 64.0;
        let shifted = |by: f32| {
            let mut y = vec![0.0; x.len()];
            gelu(&x.iter().map(|x| x + by).collect::<Vec<_>>(), &mut y);
            y
        };
        for (i, (above, below)) in shifted(step).into_iter().zip(shifted(-step)).enumerate() {
            let slope = (above - below) / (2.0 * step) * dy[i];
            assert!((dx[i] - slope).abs() < 2e-4, "{} {} {slope}", x[i], dx[i]);
        }
    }
}
