//! Exponential and GELU of a vector.
//!
//! The coefficients are fitted to minimise the greatest error over the range that is left after reduction.

use super::simd::Simd;

/// `c[0] + c[1] x + c[2] x² + …`
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(simd: S, x: S::V, coefficients: [f32; N]) -> S::V {
    let mut sum = simd.splat(coefficients[N - 1]);
    for &coefficient in coefficients[..N - 1].iter().rev() {
        sum = simd.fma(sum, x, simd.splat(coefficient));
    }
    sum
}

/// `e^x` to about one unit in the last place; zero below -88.03, and as at 88 above that.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::V) -> S::V {
    // The number that might not be one comes second, so that it comes out again.
    let x = simd.min(simd.splat(88.0), simd.max(simd.splat(-88.03), x));
    let n = simd.round(simd.mul(x, simd.splat(std::f32::consts::LOG2_E)));
    // ln 2 in two parts: the first has so few bits that its product with n is exact.
    let r = simd.fma(n, simd.splat(-0.693_359_4), x);
    let r = simd.fma(n, simd.splat(2.121_944_4e-4), r);
    let tail = polynomial(simd, r, [0.499_999_93, 0.166_665_2, 0.041_668_39, 8.368_721e-3, 1.381_453_8e-3]);
    let fraction = simd.fma(simd.mul(r, r), tail, simd.add(r, simd.splat(1.0)));
    simd.mul(fraction, simd.power_of_two(n))
}

/// Beyond this many deviations the normal distribution is zero or one, as far as GELU can tell.
const FAR: f32 = 5.5;

/// The share of the normal distribution below `x`, as GELU needs it: to 2e-8 / x.
#[inline(always)]
fn normal_share<S: Simd>(simd: S, x: S::V) -> S::V {
    let x = simd.min(simd.splat(FAR), simd.max(simd.splat(-FAR), x));
    let square = simd.mul(x, x);
    let above = [0.398_941_99, 0.035_124_14, 4.760_327e-3, 1.826_349_1e-4, 6.525_614e-6, 2.220_993_8e-8];
    let below = [1.0, 0.254_706_83, 0.029_387_782, 1.961_249_3e-3, 7.851_795_5e-5, 1.194_828_5e-6];
    let ratio = simd.div(polynomial(simd, square, above), polynomial(simd, square, below));
    simd.fma(x, ratio, simd.splat(0.5))
}

/// `x · Φ(x)`, within 1e-6 of the exact one.
#[inline(always)]
pub(crate) fn gelu<S: Simd>(simd: S, x: S::V) -> S::V {
    // Far below, what is left of the share is an error; it must not grow with x.
    simd.mul(simd.max(simd.splat(-FAR), x), normal_share(simd, x))
}

/// The derivative of GELU: `Φ(x) + x · φ(x)`.
#[inline(always)]
pub(crate) fn gelu_slope<S: Simd>(simd: S, x: S::V) -> S::V {
    let half_square = simd.mul(simd.mul(x, x), simd.splat(-0.5));
    let density = simd.mul(exp(simd, half_square), simd.splat(0.398_942_3));
    simd.fma(x, density, normal_share(simd, x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::{Kernel, Set};

    struct Map<'a, F>(&'a [f32], &'a mut [f32], F);
    #[derive(Clone, Copy)]
    enum Function {
        Exp,
        Gelu,
        Slope,
    }

    impl Kernel for Map<'_, Function> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            for (x, y) in self.0.chunks(S::LANES).zip(self.1.chunks_mut(S::LANES)) {
                let x = simd.load(x);
                let value = match self.2 {
                    Function::Exp => exp(simd, x),
                    Function::Gelu => gelu(simd, x),
                    Function::Slope => gelu_slope(simd, x),
                };
                simd.store(value, y);
            }
        }
    }

    fn map(set: Set, x: &[f32], function: Function) -> Vec<f32> {
        let mut y = vec![0.0; x.len()];
        set.run(Map(x, &mut y, function));
        y
    }

    /// Φ(x) by the series of erf where it converges fast, by the continued fraction of erfc elsewhere.
    pub(crate) fn exact_share(x: f64) -> f64 {
        let z = x.abs() / std::f64::consts::SQRT_2;
        let erfc = if z < 2.5 {
            let (mut term, mut sum) = (z, z);
            for n in 1..200 {
                term *= -z * z / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            1.0 - 2.0 / std::f64::consts::PI.sqrt() * sum
        } else {
            let tail = (1..=100).rev().fold(z, |tail, k| z + f64::from(k) / 2.0 / tail);
            (-z * z).exp() / std::f64::consts::PI.sqrt() / tail
        };
        if x < 0.0 { erfc / 2.0 } else { 1.0 - erfc / 2.0 }
    }

    #[test]
    fn exp_is_exact_to_an_ulp_or_two() {
        let x: Vec<f32> = (-8700..8800).map(|i| i as f32 * 0.01).collect();
        for set in Set::all() {
            for (&x, y) in x.iter().zip(map(set, &x, Function::Exp)) {
                let exact = f64::from(x).exp();
                assert!((f64::from(y) / exact - 1.0).abs() < 2e-7, "{set:?} {x} {y} {exact}");
            }
            let edges = map(set, &[f32::NEG_INFINITY, -1000.0, 0.0, 1000.0, f32::NAN], Function::Exp);
            assert_eq!(edges[..3], [0.0, 0.0, 1.0]);
            assert!(edges[3].is_finite() && edges[4].is_nan());
        }
    }

    #[test]
    fn gelu_and_its_slope_are_within_a_millionth() {
        let x: Vec<f32> = (-12_000..12_000).map(|i| i as f32 * 0.001).chain([-1e4, -0.0]).collect();
        for set in Set::all() {
            let (y, slope) = (map(set, &x, Function::Gelu), map(set, &x, Function::Slope));
            for ((&x, y), slope) in x.iter().zip(y).zip(slope) {
                let share = exact_share(f64::from(x));
                let exact = f64::from(x) * share;
                let bound = 1e-6 * f64::from(x.max(1.0));
                assert!((f64::from(y) - exact).abs() < bound, "{set:?} {x} {y} {exact}");
                let density = (-f64::from(x).powi(2) / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
                let exact = share + f64::from(x) * density;
                assert!((f64::from(slope) - exact).abs() < 1e-6, "{set:?} {x} {slope} {exact}");
            }
            assert!(map(set, &[f32::NAN], Function::Gelu)[0].is_nan());
        }
    }
}
