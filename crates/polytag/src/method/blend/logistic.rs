//! Logistic regression with few features and many examples, by Newton's method.

use rayon::prelude::*;

use crate::algebra::Triangle;

/// Steps at most; a handful is enough.
const STEPS: usize = 50;

/// Examples whose share of a step is worked out at once.
const CHUNK: usize = 4096;

/// The log-odds that an example is right: a weight for each feature, of which the first is always one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Logistic(pub(super) Vec<f64>);

impl Logistic {
    /// The weights that make `right` the likeliest, with `ridge` times half their squares against them; the constant is
    /// free. `features` lie end to end, as many an example as `width` says. Nothing is quite certain: among few examples
    /// the right ones count as a little wrong, and the other way around (Platt, 1999), so that no chance is zero or one.
    pub(super) fn fit(features: &[f32], right: &[bool], width: usize, ridge: f64) -> Logistic {
        let mut weights = vec![0.0; width];
        let positive = right.iter().filter(|right| **right).count() as f64;
        let negative = right.len() as f64 - positive;
        let (of_right, of_wrong) = ((positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0));
        let targets: Vec<f64> = right.iter().map(|&right| if right { of_right } else { of_wrong }).collect();
        let share = (positive + 1.0) / (positive + negative + 2.0);
        weights[0] = (share / (1.0 - share)).ln();
        let mut current = Slope::at(&weights, features, &targets, ridge);
        for _ in 0..STEPS {
            let Some(step) = solved(&current.curve, &current.slope, width) else { break };
            // Newton's step is halved until it helps; near the end it always does.
            let mut size = 1.0;
            let next = loop {
                let tried: Vec<f64> =
                    weights.iter().zip(&step).map(|(weight, step)| weight - size * step).collect();
                let slope = Slope::at(&tried, features, &targets, ridge);
                if slope.loss <= current.loss || size < 1e-4 {
                    break (tried, slope);
                }
                size /= 2.0;
            };
            let gain = current.loss - next.1.loss;
            if gain <= 0.0 {
                break;
            }
            (weights, current) = next;
            if gain < 1e-9 * right.len() as f64 {
                break;
            }
        }
        Logistic(weights)
    }

    /// The log-odds of an example.
    pub(super) fn log_odds(&self, features: &[f32]) -> f64 {
        self.0.iter().zip(features).map(|(weight, &feature)| weight * f64::from(feature)).sum()
    }
}

/// The probability whose log-odds these are.
pub(super) fn probability(log_odds: f64) -> f64 {
    1.0 / (1.0 + (-log_odds).exp())
}

/// The loss of weights, and its first and second derivatives.
struct Slope {
    loss: f64,
    slope: Vec<f64>,
    /// Row by row.
    curve: Vec<f64>,
}

impl Slope {
    fn at(weights: &[f64], features: &[f32], targets: &[f64], ridge: f64) -> Slope {
        let width = weights.len();
        let model = Logistic(weights.to_vec());
        let part = |(features, targets): (&[f32], &[f64])| {
            let mut part = Slope::none(width);
            for (example, &target) in features.chunks_exact(width).zip(targets) {
                let odds = model.log_odds(example);
                let chance = probability(odds);
                // ln(1 + exp(±odds)), whichever does not overflow.
                part.loss += odds.max(0.0) + (-odds.abs()).exp().ln_1p() - target * odds;
                let (off, bend) = (chance - target, chance * (1.0 - chance));
                for (row, &value) in example.iter().enumerate() {
                    let value = f64::from(value);
                    part.slope[row] += off * value;
                    let curve = &mut part.curve[row * width..=row * width + row];
                    for (curve, &other) in curve.iter_mut().zip(example) {
                        *curve += bend * value * f64::from(other);
                    }
                }
            }
            part
        };
        let chunks = features.par_chunks(CHUNK * width).zip(targets.par_chunks(CHUNK));
        // Added up in the order of chunks, so that the number of threads changes nothing.
        let parts: Vec<Slope> = chunks.map(part).collect();
        let mut total = parts.into_iter().fold(Slope::none(width), Slope::with);
        for (row, weight) in weights.iter().enumerate() {
            for column in 0..row {
                total.curve[column * width + row] = total.curve[row * width + column];
            }
            if row > 0 {
                total.loss += 0.5 * ridge * weight * weight;
                total.slope[row] += ridge * weight;
                total.curve[row * width + row] += ridge;
            }
        }
        total.curve[0] += 1e-9;
        total
    }

    fn none(width: usize) -> Slope {
        Slope { loss: 0.0, slope: vec![0.0; width], curve: vec![0.0; width * width] }
    }

    fn with(mut self, other: Slope) -> Slope {
        self.loss += other.loss;
        self.slope.iter_mut().zip(other.slope).for_each(|(sum, part)| *sum += part);
        self.curve.iter_mut().zip(other.curve).for_each(|(sum, part)| *sum += part);
        self
    }
}

/// The solution of a system of equations with a symmetric matrix; none, if it is not positive.
fn solved(matrix: &[f64], right: &[f64], width: usize) -> Option<Vec<f64>> {
    let triangle = Triangle::of(matrix, width)?;
    let mut solution = right.to_vec();
    triangle.undo(&mut solution);
    triangle.undo_transposed(&mut solution);
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples whose log-odds are `1 − 2x + y`, right as often as that says.
    fn examples() -> (Vec<f32>, Vec<bool>) {
        let (mut features, mut right) = (Vec::new(), Vec::new());
        for x in -10..=10 {
            for y in -10..=10 {
                let (x, y) = (x as f32 / 5.0, y as f32 / 5.0);
                let chance = 1.0 / (1.0 + f64::from(-(1.0 - 2.0 * x + y)).exp());
                for example in 0..100 {
                    features.extend([1.0, x, y]);
                    right.push(f64::from(example) + 0.5 < chance * 100.0);
                }
            }
        }
        (features, right)
    }

    #[test]
    fn the_weights_that_made_examples_are_found() {
        let (features, right) = examples();
        let found = Logistic::fit(&features, &right, 3, 1e-6);
        for (found, true_one) in found.0.iter().zip([1.0, -2.0, 1.0]) {
            assert!((found - true_one).abs() < 0.02, "{found} for {true_one}");
        }
        assert!((found.log_odds(&[1.0, 1.0, 1.0]) - 0.0).abs() < 0.05);
    }

    #[test]
    fn one_kind_of_example_and_equal_features_end_somewhere() {
        for right in [vec![true; 50], vec![false; 50]] {
            let found = Logistic::fit(&[1.0f32, 0.5, 0.5].repeat(50), &right, 3, 1.0);
            assert!(found.0.iter().all(|weight| weight.is_finite()));
            let odds = found.log_odds(&[1.0, 0.5, 0.5]);
            assert!((odds > 0.0) == right[0] && odds.abs() < 4.5, "fifty of a kind are no certainty: {odds}");
        }
        assert!(Logistic::fit(&[], &[], 2, 1.0).0.iter().all(|weight| weight.is_finite()));
    }
}
