//! Losses over scores that somebody else made.

use crate::element::Element;
use crate::error::Error;
use crate::loss::testing::*;
use crate::loss::{Number, Positives, Scores, binary_cross_entropy, decoupled_softmax, softmax};
use crate::op::testing::{Case, Matrix, sum};
use crate::parameters::ParameterId;
use crate::tape::{Tape, Var};

type Loss = fn(&mut Tape<'_>, Scores, &Positives) -> Result<Var, Error>;

const LOSSES: [(&str, Loss); 3] = [
    ("given binary cross-entropy", binary_cross_entropy),
    ("given softmax", softmax),
    ("given decoupled softmax", decoupled_softmax),
];

/// Scores of seven documents, a scale and a bias.
fn case(name: &'static str, labels: usize, bias: usize) -> Case {
    let [_, _, scale, bias] = scores_matrices(labels, 1, bias);
    Case::new(name).element(Element::F32).input(Matrix::random(7, labels, 1)).weight(scale).weight(bias)
}

fn learned(values: &Var, weights: &[ParameterId]) -> Scores {
    Scores::given(values).scale(Number::Learned(weights[0])).bias(Number::Learned(weights[1]))
}

#[test]
fn given_scores_are_products_with_unit_vectors() {
    for labels in [13, 600] {
        let values = Matrix::random(7, labels, 1);
        let mut units = Matrix { rows: labels, columns: labels, values: vec![0.0; labels * labels] };
        units.values.iter_mut().step_by(labels + 1).for_each(|value| *value = 1.0);
        for (_, loss) in LOSSES {
            let settled = |scores: Scores| {
                scores.scale(Number::Constant(0.75)).bias(Number::Constant(-0.5)).chunk_memory(1)
            };
            let made = evaluate(&[&values, &units], &[], |tape, inputs, _| {
                let positives = positives_on(tape.parameters().device(), labels);
                loss(tape, settled(Scores::with_value(&inputs[0], &inputs[1])), &positives)
            });
            let given = evaluate(&[&values], &[], |tape, inputs, _| {
                let positives = positives_on(tape.parameters().device(), labels);
                loss(tape, settled(Scores::given(&inputs[0])), &positives)
            });
            assert_close(given, made);
        }
    }
}

#[test]
fn gradients_match_finite_differences() {
    for (name, loss) in LOSSES {
        for (labels, bias) in [(13, 1), (13, 13), (300, 1)] {
            case(name, labels, bias).check_gradients(|tape, inputs, weights| {
                let positives = positives_on(tape.parameters().device(), labels);
                loss(tape, learned(&inputs[0], weights).chunk_memory(1), &positives)
            });
        }
    }
}

#[test]
fn the_gpu_agrees_with_the_cpu() {
    for (name, loss) in LOSSES {
        for labels in [13, 9000] {
            // Twice, so that the second is added to what the first has written.
            case(name, labels, labels).compare_devices(|tape, inputs, weights| {
                let positives = positives_on(tape.parameters().device(), labels);
                let scores = learned(&inputs[0], weights);
                let once = loss(tape, scores.clone().chunk_memory(7 * 4 * 4096), &positives)?;
                let again = loss(tape, scores, &positives)?;
                sum(tape, &once, &again)
            });
        }
    }
    case("given scores with one bias", 300, 1).compare_devices(|tape, inputs, weights| {
        let positives = positives_on(tape.parameters().device(), 300);
        binary_cross_entropy(tape, learned(&inputs[0], weights), &positives)
    });
}

#[test]
fn frozen_numbers_have_no_gradient() {
    case("given scores, frozen", 13, 13).check_frozen(|tape, inputs, weights| {
        let positives = positives_on(tape.parameters().device(), 13);
        softmax(tape, learned(&inputs[0], weights), &positives)
    });
}

#[test]
fn no_labels_are_appended_to_given_scores() {
    let matrix = Matrix::random(7, 7, 1);
    evaluate(&[&matrix], &[], |tape, inputs, _| {
        let device = tape.parameters().device().clone();
        let (values, positives) = (&inputs[0], positives_on(&device, 14));
        let refused = softmax(tape, Scores::given(values).and_value(values), &positives);
        assert!(refused.unwrap_err().to_string().contains("appended"));
        softmax(tape, Scores::given(values), &Positives::diagonal(&device, 7)?)
    });
}
