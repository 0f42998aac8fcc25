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
    // What might not be a number comes second, so that it comes out again.
    let x = simd.min(simd.splat(88.0), simd.max(simd.splat(-88.03), x));
    let n = simd.round(simd.mul(x, simd.splat(std::f32::consts::LOG2_E)));
    // ln 2 in two parts: the first has so few bits that its product with n is exact.
    let r = simd.fma(n, simd.splat(-0.693_359_4), x);
    let r = simd.fma(n, simd.splat(2.121_944_4e-4), r);
    let tail = polynomial(simd, r, [0.499_999_93, 0.166_665_2, 0.041_668_39, 8.368_721e-3, 1.381_453_8e-3]);
    let fraction = simd.fma(simd.mul(r, r), tail, simd.add(r, simd.splat(1.0)));
    simd.mul(fraction, simd.power_of_two(n))
}

/// The magnitude of `x`, and the share of the normal distribution that lies farther out on one side.
///
/// The share is `1 / p^16` with a polynomial `p` of the magnitude, whose error, times the magnitude, is below
/// 1e-7: what is small is computed as something small, so that nothing is left of it far out.
#[inline(always)]
fn tail<S: Simd>(simd: S, x: S::V) -> (S::V, S::V) {
    // What might not be a number comes second, so that it comes out again.
    let magnitude = simd.max(simd.sub(simd.splat(0.0), x), x);
    // Farther out the power might overflow.
    let magnitude = simd.min(simd.splat(12.0), magnitude);
    let coefficients = [
        1.044_273_8,
        0.052_076_5,
        0.022_065_933,
        3.453_757_5e-3,
        6.422_466e-7,
        7.514_121e-5,
        -1.453_257_4e-6,
        7.865_699_7e-7,
    ];
    let mut power = polynomial(simd, magnitude, coefficients);
    for _ in 0..4 {
        power = simd.mul(power, power);
    }
    (magnitude, simd.div(simd.splat(1.0), power))
}

/// `x · Φ(x)`, within 1e-6 of the exact one: `x` where it is positive, less what the tail takes away.
#[inline(always)]
pub(crate) fn gelu<S: Simd>(simd: S, x: S::V) -> S::V {
    let (magnitude, share) = tail(simd, x);
    simd.sub(simd.max(simd.splat(0.0), x), simd.mul(magnitude, share))
}

/// `x · Φ(x)`, within 5e-5 of the exact one and without a division: for what is rounded to 8 bits next.
///
/// What the tail takes away is `m · (1 - m / 5.6)^8` times a polynomial of the magnitude `m`, and nothing beyond 5.6.
#[inline(always)]
pub(crate) fn rough_gelu<S: Simd>(simd: S, x: S::V) -> S::V {
    let (zero, one) = (simd.splat(0.0), simd.splat(1.0));
    // What might not be a number comes second, so that it comes out again.
    let magnitude = simd.max(simd.sub(zero, x), x);
    let mut share = simd.max(zero, simd.fma(magnitude, simd.splat(-1.0 / 5.6), one));
    for _ in 0..3 {
        share = simd.mul(share, share);
    }
    let coefficients = [0.500_180_5, 0.308_874_7, 0.032_724_664, -0.094_440_42, 0.017_946_642];
    // Far out the polynomial is great, but its share is nothing.
    let within = simd.min(simd.splat(5.6), magnitude);
    let taken = simd.mul(simd.mul(within, polynomial(simd, within, coefficients)), share);
    simd.sub(simd.max(zero, x), taken)
}

/// The derivative of GELU, `Φ(x) + x · φ(x)`, within 2e-6.
#[inline(always)]
pub(crate) fn gelu_slope<S: Simd>(simd: S, x: S::V) -> S::V {
    let (_, share) = tail(simd, x);
    // Zero has no sign, but there the inner share is zero too.
    let sign = simd.min(simd.splat(1.0), simd.max(simd.splat(-1.0), simd.mul(x, simd.splat(1e30))));
    let below = simd.fma(sign, simd.sub(simd.splat(0.5), share), simd.splat(0.5));
    let density = simd.mul(exp(simd, simd.mul(simd.mul(x, x), simd.splat(-0.5))), simd.splat(0.398_942_3));
    simd.fma(x, density, below)
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
        RoughGelu,
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
                    Function::RoughGelu => rough_gelu(simd, x),
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
    fn gelu_and_its_slope_are_within_a_millionth_or_two() {
        let x: Vec<f32> = (-12_000..12_000).map(|i| i as f32 * 0.001).chain([-1e4, -0.0]).collect();
        for set in Set::all() {
            let (y, slope) = (map(set, &x, Function::Gelu), map(set, &x, Function::Slope));
            for ((&x, y), slope) in x.iter().zip(y).zip(slope) {
                let share = exact_share(f64::from(x));
                let exact = f64::from(x) * share;
                // For great numbers, one unit in their last place is more.
                let bound = 6e-7_f64.max(1e-7 * f64::from(x));
                assert!((f64::from(y) - exact).abs() < bound, "{set:?} {x} {y} {exact}");
                let density = (-f64::from(x).powi(2) / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
                let exact = share + f64::from(x) * density;
                assert!((f64::from(slope) - exact).abs() < 2e-6, "{set:?} {x} {slope} {exact}");
            }
            assert!(map(set, &[f32::NAN], Function::Gelu)[0].is_nan());
            for (&x, y) in x.iter().zip(map(set, &x, Function::RoughGelu)) {
                let exact = f64::from(x) * exact_share(f64::from(x));
                assert!((f64::from(y) - exact).abs() < 5e-5, "{set:?} {x} {y} {exact}");
            }
            let edges = map(set, &[f32::NAN, f32::INFINITY, 1e30, -1e30], Function::RoughGelu);
            assert!(edges[0].is_nan() && edges[1..3] == [f32::INFINITY, 1e30] && edges[3] == 0.0);
        }
    }
}
