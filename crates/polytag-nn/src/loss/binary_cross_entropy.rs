//! Binary cross-entropy: every label is a question of its own.

use crate::error::Error;
use crate::tape::{Tape, Var};

use super::over_labels::{Kind, OverLabels, Reduction};
use super::positives::Positives;
use super::scores::Scores;

/// `−Σ ln σ(s)` over a document's positives `−Σ ln σ(−s)` over its negatives: summed up over labels, as in
/// paper 002 (eq. 3), and averaged over documents, those without a positive included.
pub fn binary_cross_entropy(
    tape: &mut Tape<'_>,
    scores: Scores,
    positives: &Positives,
) -> Result<Var, Error> {
    let (kind, reduction, positives) = (Kind::Sigmoid, Reduction::Mean, positives.clone());
    OverLabels { name: "binary cross-entropy", kind, reduction, scores, positives }.record(tape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::testing::*;

    #[test]
    fn the_value_is_the_formulas() {
        for (labels, bias) in [(13, 1), (600, 600)] {
            let matrices = scores_matrices(labels, 6, bias);
            let positives = some_positives(labels);
            let exact: f64 = exact_scores(&matrices)
                .iter()
                .zip(&positives)
                .flat_map(|(row, own)| {
                    row.iter().enumerate().map(move |(label, score)| {
                        let sign = if own.contains(&(label as u32)) { -1.0 } else { 1.0 };
                        (sign * score).exp().ln_1p()
                    })
                })
                .sum();
            let [documents, rest @ ..] = &matrices;
            let found = evaluate(&[documents], &rest.each_ref(), |tape, inputs, weights| {
                let positives = positives_on(tape.parameters().device(), labels);
                binary_cross_entropy(tape, learned_scores(&inputs[0], weights), &positives)
            });
            assert_close(found, exact / 7.0);
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        for bias in [1, 13] {
            scores_case("binary cross-entropy", 13, 4, bias).check_gradients(|tape, inputs, weights| {
                let positives = positives_on(tape.parameters().device(), 13);
                binary_cross_entropy(tape, learned_scores(&inputs[0], weights), &positives)
            });
        }
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        for (labels, dimensions, bias) in [(13, 8, 1), (9000, 64, 9000)] {
            let case = scores_case("binary cross-entropy", labels, dimensions, bias);
            case.compare_devices(|tape, inputs, weights| {
                let positives = positives_on(tape.parameters().device(), labels);
                let scores = learned_scores(&inputs[0], weights).chunk_memory(7 * 4 * 4096);
                binary_cross_entropy(tape, scores, &positives)
            });
        }
    }
}
