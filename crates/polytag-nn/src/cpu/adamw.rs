//! The step of the optimizer.

use rayon::prelude::*;

use super::elementwise::CHUNK;
use super::simd::{Kernel, Set, Simd};

/// AdamW as decoupled weight decay has it, for one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// How far a step goes.
    pub learning_rate: f32,
    /// What the first moment keeps of itself.
    pub beta1: f32,
    /// What the second moment keeps of itself.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// What share of a weight a step of length one takes away.
    pub decay: f32,
    /// The number of this step, from one on: corrects the moments, which begin at zero.
    pub step: u64,
    /// What gradients are multiplied by first: clipping, accumulation.
    pub gradient_scale: f32,
}

/// What a step changes, and the gradients that say how.
#[derive(Debug)]
pub struct Moments<'a> {
    /// The weights.
    pub weights: &'a mut [f32],
    /// Their gradients.
    pub gradients: &'a [f32],
    /// The running means of the gradients.
    pub first: &'a mut [f32],
    /// The running means of their squares.
    pub second: &'a mut [f32],
}

/// Makes one step.
///
/// # Panics
/// If the lengths differ.
pub fn adamw(step: &AdamW, moments: Moments<'_>) {
    let Moments { weights, gradients, first, second } = moments;
    let len = weights.len();
    assert!(gradients.len() == len && first.len() == len && second.len() == len, "one of each a weight");
    let set = Set::best();
    weights
        .par_chunks_mut(CHUNK)
        .zip(gradients.par_chunks(CHUNK))
        .zip(first.par_chunks_mut(CHUNK).zip(second.par_chunks_mut(CHUNK)))
        .for_each(|((weights, gradients), (first, second))| {
            set.run(Step(step, Moments { weights, gradients, first, second }));
        });
}

struct Step<'a>(&'a AdamW, Moments<'a>);

impl Kernel for Step<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Step(step, Moments { weights, gradients, first, second }) = self;
        let count = step.step as f64;
        let correction1 = 1.0 - f64::from(step.beta1).powf(count);
        let correction2 = 1.0 - f64::from(step.beta2).powf(count);
        let kept = simd.splat(1.0 - step.learning_rate * step.decay);
        let rate = simd.splat((-f64::from(step.learning_rate) / correction1) as f32);
        let second_scale = simd.splat((1.0 / correction2.sqrt()) as f32);
        let (beta1, beta2) = (simd.splat(step.beta1), simd.splat(step.beta2));
        let (rest1, rest2) = (simd.splat(1.0 - step.beta1), simd.splat(1.0 - step.beta2));
        let (scale, epsilon) = (simd.splat(step.gradient_scale), simd.splat(step.epsilon));
        let moments = first.chunks_mut(S::LANES).zip(second.chunks_mut(S::LANES));
        let weights = weights.chunks_mut(S::LANES).zip(gradients.chunks(S::LANES));
        for ((weight, gradient), (first, second)) in weights.zip(moments) {
            let gradient = simd.mul(simd.load(gradient), scale);
            let mean = simd.fma(beta1, simd.load(first), simd.mul(rest1, gradient));
            let square = simd.fma(beta2, simd.load(second), simd.mul(rest2, simd.mul(gradient, gradient)));
            let root = simd.fma(simd.sqrt(square), second_scale, epsilon);
            let moved = simd.mul(simd.div(mean, root), rate);
            simd.store(mean, first);
            simd.store(square, second);
            simd.store(simd.fma(simd.load(weight), kept, moved), weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::random;

    #[test]
    fn steps_agree_with_the_formula() {
        let len = 5000;
        let (mut weights, gradients) = (random(len, 1), random(len, 2));
        let (mut first, mut second) = (vec![0.0; len], vec![0.0; len]);
        let mut step = AdamW {
            learning_rate: 1e-2,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            decay: 0.1,
            step: 0,
            gradient_scale: 0.5,
        };
        let mut plain: Vec<[f64; 3]> = weights.iter().map(|&w| [f64::from(w), 0.0, 0.0]).collect();
        for count in 1..=3 {
            step.step = count;
            let (weights, first, second) = (&mut weights[..], &mut first[..], &mut second[..]);
            adamw(&step, Moments { weights, gradients: &gradients, first, second });
            for ([weight, m, v], &gradient) in plain.iter_mut().zip(&gradients) {
                let gradient = f64::from(gradient) * 0.5;
                *m = 0.9 * *m + 0.1 * gradient;
                *v = 0.999 * *v + 0.001 * gradient * gradient;
                let m = *m / (1.0 - 0.9_f64.powi(count as i32));
                let v = *v / (1.0 - 0.999_f64.powi(count as i32));
                *weight -= 1e-2 * (0.1 * *weight + m / (v.sqrt() + 1e-8));
            }
        }
        for (weight, [plain, ..]) in weights.iter().zip(&plain) {
            assert!((f64::from(*weight) - plain).abs() < 1e-5, "{weight} {plain}");
        }
    }
}
