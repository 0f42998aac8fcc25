//! Softmax over all labels: the positives share its mass.

use crate::error::Error;
use crate::tape::{Tape, Var};

use super::over_labels::{Kind, OverLabels, Reduction};
use super::positives::Positives;
use super::scores::Scores;

/// `−ln(e^s / Σ e^s')`, the sum over all labels, averaged over a document's positives and then over the
/// documents that have any.
pub fn softmax(tape: &mut Tape<'_>, scores: Scores, positives: &Positives) -> Result<Var, Error> {
    let (kind, reduction, positives) = (Kind::Softmax, Reduction::Mean, positives.clone());
    OverLabels { name: "softmax", kind, reduction, scores, positives }.record(tape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::element::Element;
    use crate::loss::scores::Number;
    use crate::loss::testing::*;
    use crate::op::testing::{Case, Matrix};
    use crate::parameters::ParametersBuilder;
    use crate::random::Key;
    use crate::tape::BackwardOptions;
    use crate::tensor::Tensor;

    #[test]
    fn the_value_is_the_formulas() {
        for labels in [13, 600] {
            let matrices = scores_matrices(labels, 6, 1);
            let scores = exact_scores(&matrices);
            let exact = scores.iter().zip(some_positives(labels)).map(|(row, own)| {
                let all = log_sum(row.iter().copied());
                let losses = own.iter().map(|&label| all - row[label as usize]);
                losses.sum::<f64>() / own.len().max(1) as f64
            });
            let [documents, rest @ ..] = &matrices;
            let found = evaluate(&[documents], &rest.each_ref(), |tape, inputs, weights| {
                let positives = positives_on(tape.parameters().device(), labels);
                softmax(tape, learned_scores(&inputs[0], weights).chunk_memory(1), &positives)
            });
            assert_close(found, exact.sum::<f64>() / 6.0);
        }
    }

    #[test]
    fn great_scores_do_not_overflow() {
        let (documents, labels) = (Matrix::random(7, 6, 1), Matrix::random(600, 6, 2));
        let found = evaluate(&[&documents, &labels], &[], |tape, inputs, _| {
            let positives = positives_on(tape.parameters().device(), 600);
            let scores = Scores::with_value(&inputs[0], &inputs[1]).scale(Number::Constant(1e4));
            softmax(tape, scores, &positives)
        });
        assert!(found.is_finite() && found > 1e3, "{found}");
    }

    #[test]
    fn gradients_match_finite_differences() {
        for bias in [1, 13] {
            scores_case("softmax", 13, 4, bias).check_gradients(|tape, inputs, weights| {
                let positives = positives_on(tape.parameters().device(), 13);
                softmax(tape, learned_scores(&inputs[0], weights), &positives)
            });
        }
        // Labels that an encoder made, in two pieces, and more than a chunk of them.
        let case = Case::new("softmax over values")
            .input(Matrix::random(7, 3, 1))
            .input(Matrix::random(270, 3, 2))
            .input(Matrix::random(30, 3, 3));
        case.check_gradients(|tape, inputs, _| {
            let positives = positives_on(tape.parameters().device(), 300);
            let scores = Scores::with_value(&inputs[0], &inputs[1]).and_value(&inputs[2]).chunk_memory(1);
            softmax(tape, scores, &positives)
        });
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        // The gradient of a bias that all labels share is zero: no number to compare.
        for (labels, dimensions, bias) in [(13, 8, 13), (9000, 64, 9000)] {
            scores_case("softmax", labels, dimensions, bias).compare_devices(|tape, inputs, weights| {
                let positives = positives_on(tape.parameters().device(), labels);
                let scores = learned_scores(&inputs[0], weights).chunk_memory(7 * 4 * 4096);
                softmax(tape, scores, &positives)
            });
        }
    }

    /// The most memory that a step over `labels` labels takes beyond what labels and documents take.
    fn memory_beyond(documents: usize, labels: usize) -> u64 {
        let (device, dimensions) = (Device::cpu(), 2);
        let mut builder = ParametersBuilder::default();
        let weight =
            builder.add("labels", (labels, dimensions), &Matrix::random(labels, dimensions, 1).values);
        let mut parameters = builder.build(&device).unwrap();
        let own: Vec<u32> = (0..documents as u32).collect();
        let positives = Positives::new(&device, labels, own.chunks(1)).unwrap();
        let values = Matrix::random(documents, dimensions, 2).values;
        let input = Tensor::new(&device, (documents, dimensions), &values, Element::F32).unwrap();
        device.reset_peak_memory();
        let mut tape = Tape::training(&parameters, Key::new(0));
        let leaf = tape.leaf(input);
        let loss = softmax(&mut tape, Scores::with_weight(&leaf, weight), &positives).unwrap();
        let record = tape.finish();
        record.backward(&[(&loss, 1.0)], &mut parameters, BackwardOptions::default()).unwrap();
        // The labels, and their gradient.
        device.peak_memory().0 - 2 * 4 * (labels * dimensions) as u64
    }

    #[test]
    fn memory_does_not_grow_with_documents_times_labels() {
        let few = memory_beyond(64, 20_000);
        let many = memory_beyond(64, 160_000);
        // All scores at once would be 41 MB; what the cache of memory rounds sizes up by is a little.
        assert!(many < few + (1 << 20), "{few} bytes, then {many}");
        assert!(many < 4 << 20, "{many} bytes");
    }
}
