//! Decoupled softmax: each positive stands against the negatives, and not against other positives.

use crate::error::Error;
use crate::tape::{Tape, Var};

use super::over_labels::{Kind, OverLabels, Reduction};
use super::positives::Positives;
use super::scores::Scores;

/// `−ln(e^s / (e^s + Σ e^s'))`, the sum over a document's negatives, averaged over its positives and then
/// over the documents that have any.
///
/// In a softmax over all labels the positives of a document push each other down; here they do not.
pub fn decoupled_softmax(tape: &mut Tape<'_>, scores: Scores, positives: &Positives) -> Result<Var, Error> {
    let (kind, reduction, positives) = (Kind::Decoupled, Reduction::Mean, positives.clone());
    OverLabels { name: "decoupled softmax", kind, reduction, scores, positives }.record(tape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::testing::*;
    use crate::op::testing::{Case, Matrix};

    #[test]
    fn the_value_is_the_formulas() {
        for labels in [13, 600] {
            let matrices = scores_matrices(labels, 6, labels);
            let scores = exact_scores(&matrices);
            let exact = scores.iter().zip(some_positives(labels)).map(|(row, own)| {
                let negatives = row.iter().enumerate().filter(|&(label, _)| !own.contains(&(label as u32)));
                let rest: f64 = negatives.map(|(_, score)| score.exp()).sum();
                let losses = own.iter().map(|&label| (1.0 + rest / row[label as usize].exp()).ln());
                losses.sum::<f64>() / own.len().max(1) as f64
            });
            let [documents, rest @ ..] = &matrices;
            let found = evaluate(&[documents], &rest.each_ref(), |tape, inputs, weights| {
                let positives = positives_on(tape.parameters().device(), labels);
                decoupled_softmax(tape, learned_scores(&inputs[0], weights).chunk_memory(1), &positives)
            });
            assert_close(found, exact.sum::<f64>() / 6.0);
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        for bias in [1, 13] {
            scores_case("decoupled softmax", 13, 4, bias).check_gradients(|tape, inputs, weights| {
                let positives = positives_on(tape.parameters().device(), 13);
                decoupled_softmax(tape, learned_scores(&inputs[0], weights), &positives)
            });
        }
    }

    #[test]
    fn a_document_without_negatives_has_no_loss_and_no_gradient() {
        let case = Case::new("no negatives").input(Matrix::random(1, 3, 1)).input(Matrix::random(2, 3, 2));
        case.check_gradients(|tape, inputs, _| {
            let device = tape.parameters().device().clone();
            let positives = Positives::new(&device, 2, [&[0, 1][..]])?;
            let loss = decoupled_softmax(tape, Scores::with_value(&inputs[0], &inputs[1]), &positives)?;
            assert_eq!(loss.tensor().to_vec()?, [0.0]);
            Ok(loss)
        });
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        // The gradient of a bias that all labels share is zero: no number to compare.
        for (labels, dimensions, bias) in [(13, 8, 13), (9000, 64, 9000)] {
            let case = scores_case("decoupled softmax", labels, dimensions, bias);
            case.compare_devices(|tape, inputs, weights| {
                let positives = positives_on(tape.parameters().device(), labels);
                let scores = learned_scores(&inputs[0], weights).chunk_memory(7 * 4 * 4096);
                decoupled_softmax(tape, scores, &positives)
            });
        }
    }
}
