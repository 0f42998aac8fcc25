//! Exponential, logarithm and their kin of one number on the CPU.
//!
//! A loss takes one of them for every score. The library's functions are calls, a number at a time; these
//! have neither calls nor branches, so that the compiler turns the loops around them into vectors.

/// `e^x` to about two units in the last place; zero below -87.3, and as at 88 above that.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    /// Added and taken away again, it leaves the nearest whole number.
    const ROUND: f32 = 12_582_912.0;
    const LOWEST: f32 = -87.3;
    let inside = if x > 88.0 { 88.0 } else { x };
    let inside = if inside < LOWEST { LOWEST } else { inside };
    let shifted = inside * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts: the first has so few bits that its product with n is exact.
    let r = (inside - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let mut tail = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5] {
        tail = tail * r + coefficient;
    }
    let fraction = tail * r * r + r + 1.0;
    // The lowest bits of `shifted` are those of n; a power of two is its exponent, shifted to its place.
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < LOWEST { 0.0 } else { fraction * power }
}

/// `ln(1 + x)` for `x` from zero to one, to a few units in the last place however small `x` is.
#[inline(always)]
fn ln_1p(x: f32) -> f32 {
    // The series of the inverse hyperbolic tangent: z is at most a third.
    let z = x / (2.0 + x);
    let square = z * z;
    let mut sum = 1.0 / 15.0;
    for coefficient in [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0] {
        sum = sum * square + coefficient;
    }
    2.0 * z * sum
}

/// `ln(1 + e^x)`.
#[inline(always)]
pub(super) fn softplus(x: f32) -> f32 {
    // A comparison that a number which is none fails both times lets it through.
    let positive = if x < 0.0 { 0.0 } else { x };
    positive + ln_1p(exp(-x.abs()))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    let small = exp(-x.abs());
    (if x < 0.0 { small } else { 1.0 }) / (1.0 + small)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> impl Iterator<Item = f32> {
        (-8700..8700).map(|i| i as f32 * 0.01 + 0.003)
    }

    fn check(found: f32, exact: f64, what: &str, x: f32) {
        let error = (f64::from(found) - exact).abs();
        assert!(error <= 4e-7 * exact.abs() + 1e-37, "{what}({x}) is {found}, not {exact}");
    }

    #[test]
    fn they_agree_with_the_library() {
        for x in places() {
            let wide = f64::from(x);
            check(exp(x), wide.exp(), "exp", x);
            check(softplus(x), wide.max(0.0) + (-wide.abs()).exp().ln_1p(), "softplus", x);
            check(sigmoid(x), 1.0 / (1.0 + (-wide).exp()), "sigmoid", x);
        }
    }

    #[test]
    fn they_know_their_ends_and_let_what_is_no_number_through() {
        assert_eq!([exp(f32::NEG_INFINITY), exp(-1000.0), exp(0.0)], [0.0, 0.0, 1.0]);
        assert_eq!([softplus(f32::NEG_INFINITY), softplus(1000.0)], [0.0, 1000.0]);
        assert_eq!([sigmoid(f32::NEG_INFINITY), sigmoid(1000.0)], [0.0, 1.0]);
        assert!(exp(1000.0).is_finite());
        assert!([exp(f32::NAN), softplus(f32::NAN), sigmoid(f32::NAN)].iter().all(|x| x.is_nan()));
    }
}
