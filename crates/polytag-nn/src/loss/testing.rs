//! The formulas in f64, word for word, to hold the losses against.

use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::op::testing::{Case, Matrix};
use crate::parameters::{ParameterId, ParametersBuilder};
use crate::random::Key;
use crate::tape::{Tape, Var};
use crate::tensor::Tensor;

use super::{Number, Positives, Scores};

/// Some labels for each of seven documents out of `labels`; one document has none.
pub(super) fn some_positives(labels: usize) -> Vec<Vec<u32>> {
    let label = |i: usize| (i * 37 % labels) as u32;
    vec![
        vec![label(1)],
        vec![label(2), label(5), label(9)],
        vec![],
        vec![0, labels as u32 - 1],
        vec![label(4), label(8)],
        vec![label(3)],
        vec![label(6), label(7), label(11), label(12)],
    ]
}

/// The positives of [`some_positives`] on a device.
pub(super) fn positives_on(device: &Device, labels: usize) -> Positives {
    let rows = some_positives(labels);
    Positives::new(device, labels, rows.iter().map(Vec::as_slice)).unwrap()
}

/// Scores for tests: seven documents and `labels` labels as a weight, a learned scale and a learned bias.
pub(super) fn scores_case(name: &'static str, labels: usize, dimensions: usize, bias: usize) -> Case {
    let matrices = scores_matrices(labels, dimensions, bias);
    let [documents, rest @ ..] = matrices;
    rest.into_iter().fold(Case::new(name).element(Element::F32).input(documents), Case::weight)
}

/// Documents, labels, scale and bias.
pub(super) fn scores_matrices(labels: usize, dimensions: usize, bias: usize) -> [Matrix; 4] {
    [
        Matrix::random(7, dimensions, 1),
        Matrix::random(labels, dimensions, 2).scaled(0.5, 0.0),
        Matrix::random(1, 1, 3).scaled(0.1, 0.75),
        Matrix::random(1, bias, 4).scaled(0.3, -0.5),
    ]
}

/// What [`scores_case`] is about.
pub(super) fn learned_scores(documents: &Var, weights: &[ParameterId]) -> Scores {
    Scores::with_weight(documents, weights[0])
        .scale(Number::Learned(weights[1]))
        .bias(Number::Learned(weights[2]))
}

/// The scores of [`scores_matrices`], in f64.
pub(super) fn exact_scores([documents, labels, scale, bias]: &[Matrix; 4]) -> Vec<Vec<f64>> {
    let row = |m: &Matrix, i: usize| m.values[i * m.columns..(i + 1) * m.columns].to_vec();
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    (0..documents.rows)
        .map(|document| {
            (0..labels.rows)
                .map(|label| {
                    let product = dot(&row(documents, document), &row(labels, label));
                    product * f64::from(scale.values[0]) + f64::from(bias.values[label % bias.columns])
                })
                .collect()
        })
        .collect()
}

/// What a loss of these inputs and weights is on the CPU.
pub(super) fn evaluate(
    inputs: &[&Matrix],
    weights: &[&Matrix],
    loss: impl Fn(&mut Tape<'_>, &[Var], &[ParameterId]) -> Result<Var, Error>,
) -> f64 {
    let device = Device::cpu();
    let mut builder = ParametersBuilder::default();
    let ids: Vec<ParameterId> =
        weights.iter().map(|w| builder.add("weight", (w.rows, w.columns), &w.values)).collect();
    let parameters = builder.build(&device).unwrap();
    let mut tape = Tape::training(&parameters, Key::new(0));
    let leaves: Vec<Var> = inputs
        .iter()
        .map(|m| tape.leaf(Tensor::new(&device, (m.rows, m.columns), &m.values, Element::F32).unwrap()))
        .collect();
    let loss = loss(&mut tape, &leaves, &ids).unwrap();
    assert_eq!((loss.tensor().rows(), loss.tensor().columns()), (1, 1));
    f64::from(loss.tensor().values()[0])
}

/// Fails unless the two are alike to a few parts in a million.
pub(super) fn assert_close(found: f64, exact: f64) {
    assert!((found - exact).abs() <= 5e-6 * (1.0 + exact.abs()), "{found}, and the formula says {exact}");
}

/// `ln Σ exp`.
pub(super) fn log_sum(values: impl Iterator<Item = f64>) -> f64 {
    values.map(f64::exp).sum::<f64>().ln()
}
