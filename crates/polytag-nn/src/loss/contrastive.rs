//! Rows against rows: the contrastive losses of paper 001.
//!
//! Each is a softmax over rows instead of labels, and is computed as one: the products of all rows with all
//! are made a chunk at a time as well. As in the paper they are sums over anchors.

use crate::device::Device;
use crate::error::Error;
use crate::tape::{Tape, Var};

use super::over_labels::{Kind, OverLabels, Reduction};
use super::positives::Positives;
use super::scores::{Number, Scores};

/// InfoNCE with the other rows' positives as negatives (paper 001, eq. 2): the sum over anchors of
/// `−ln(exp(aᵢ·pᵢ/t) / Σⱼ exp(aᵢ·pⱼ/t))`.
///
/// Anchors and positives are `[N, D]`; the paper's own temperature is 1.
pub fn info_nce(tape: &mut Tape<'_>, anchors: &Var, positives: &Var, temperature: f32) -> Result<Var, Error> {
    let own = Positives::diagonal(tape.parameters().device(), anchors.tensor().rows())?;
    supervised_contrastive(tape, anchors, positives, &own, temperature)
}

/// Supervised contrastive loss (paper 001, eq. 3): for each anchor the mean over its positives of
/// `−ln(exp(a·p/t) / Σⱼ exp(a·rⱼ/t))`, summed up over anchors; one without a positive has no part.
///
/// Anchors are `[N, D]`, the rows they are held against `[M, D]`; `positives` says which rows are an anchor's
/// own. Anchors and rows may be the same value: then `positives` leaves each anchor's own row out.
pub fn supervised_contrastive(
    tape: &mut Tape<'_>,
    anchors: &Var,
    rows: &Var,
    positives: &Positives,
    temperature: f32,
) -> Result<Var, Error> {
    let scores = Scores::with_value(anchors, rows).scale(inverse(temperature)?);
    let (kind, reduction, positives) = (Kind::Softmax, Reduction::Sum, positives.clone());
    OverLabels { name: "supervised contrastive", kind, reduction, scores, positives }.record(tape)
}

/// Each anchor's one positive against negatives that all share (paper 001, eq. 4): the sum over anchors of
/// `−ln(exp(aᵢ·pᵢ/t) / (exp(aᵢ·pᵢ/t) + Σⱼ exp(aᵢ·nⱼ/t)))`.
///
/// Anchors and positives are `[N, D]`, negatives `[M, D]`. Other anchors' positives have no part.
pub fn contrast_with_negatives(
    tape: &mut Tape<'_>,
    anchors: &Var,
    positives: &Var,
    negatives: &Var,
    temperature: f32,
) -> Result<Var, Error> {
    let (count, more) = (anchors.tensor().rows(), negatives.tensor().rows());
    let own = own_row_only(tape.parameters().device(), count, more)?;
    let scores = Scores::with_value(anchors, positives).and_value(negatives).scale(inverse(temperature)?);
    let (kind, reduction) = (Kind::Softmax, Reduction::Sum);
    OverLabels { name: "contrast with negatives", kind, reduction, scores, positives: own }.record(tape)
}

/// Of the first `count` rows each anchor has its own, and leaves the others out.
fn own_row_only(device: &Device, count: usize, more: usize) -> Result<Positives, Error> {
    let rows: Vec<u32> = (0..count as u32).collect();
    let others: Vec<Vec<u32>> =
        rows.iter().map(|own| rows.iter().copied().filter(|row| row != own).collect()).collect();
    let documents = rows.chunks(1).zip(others.iter().map(Vec::as_slice));
    Positives::leaving_out(device, count + more, documents)
}

fn inverse(temperature: f32) -> Result<Number, Error> {
    if temperature > 0.0 && (1.0 / temperature).is_finite() {
        return Ok(Number::Constant(1.0 / temperature));
    }
    Err(Error::Unfit(format!("a temperature of {temperature} is not possible; it is greater than zero")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Element;
    use crate::loss::testing::*;
    use crate::op::testing::{Case, Matrix};

    fn products(a: &Matrix, b: &Matrix, temperature: f64) -> Vec<Vec<f64>> {
        let one = |value: f32| Matrix { rows: 1, columns: 1, values: vec![value] };
        let rows = exact_scores(&[a.clone(), b.clone(), one(1.0), one(0.0)]);
        rows.into_iter().map(|row| row.into_iter().map(|product| product / temperature).collect()).collect()
    }

    fn same_cluster(device: &Device, rows: usize) -> Positives {
        let members = |cluster: usize| (0..rows as u32).filter(|row| *row as usize % 3 == cluster).collect();
        let clusters: Vec<Vec<u32>> = (0..3).map(members).collect();
        let own: Vec<u32> = (0..rows as u32).collect();
        let documents = (0..rows).map(|row| (clusters[row % 3].as_slice(), &own[row..=row]));
        Positives::leaving_out(device, rows, documents).unwrap()
    }

    #[test]
    fn info_nce_is_the_formula() {
        let (anchors, positives) = (Matrix::random(9, 5, 1), Matrix::random(9, 5, 2));
        let exact: f64 = products(&anchors, &positives, 0.5)
            .iter()
            .enumerate()
            .map(|(i, row)| log_sum(row.iter().copied()) - row[i])
            .sum();
        let found = evaluate(&[&anchors, &positives], &[], |tape, inputs, _| {
            info_nce(tape, &inputs[0], &inputs[1], 0.5)
        });
        assert_close(found, exact);
    }

    #[test]
    fn rows_of_one_value_leave_themselves_out() {
        let rows = Matrix::random(8, 5, 1);
        let exact: f64 = products(&rows, &rows, 2.0)
            .iter()
            .enumerate()
            .map(|(i, row)| {
                let others = row.iter().enumerate().filter(|&(j, _)| j != i);
                let all = log_sum(others.clone().map(|(_, &score)| score));
                let own: Vec<f64> = others.filter(|&(j, _)| j % 3 == i % 3).map(|(_, s)| all - s).collect();
                own.iter().sum::<f64>() / own.len() as f64
            })
            .sum();
        let found = evaluate(&[&rows], &[], |tape, inputs, _| {
            let positives = same_cluster(tape.parameters().device(), 8);
            supervised_contrastive(tape, &inputs[0], &inputs[0], &positives, 2.0)
        });
        assert_close(found, exact);
    }

    #[test]
    fn negatives_that_all_share_are_the_formula() {
        let [anchors, positives, negatives] =
            [(6, 1), (6, 2), (11, 3)].map(|(n, seed)| Matrix::random(n, 4, seed));
        let own = products(&anchors, &positives, 1.0);
        let others = products(&anchors, &negatives, 1.0);
        let exact: f64 =
            (0..6).map(|i| log_sum(others[i].iter().copied().chain([own[i][i]])) - own[i][i]).sum();
        let found = evaluate(&[&anchors, &positives, &negatives], &[], |tape, inputs, _| {
            contrast_with_negatives(tape, &inputs[0], &inputs[1], &inputs[2], 1.0)
        });
        assert_close(found, exact);
    }

    fn pairs(rows: usize, columns: usize) -> Case {
        Case::new("contrastive")
            .element(Element::F32)
            .input(Matrix::random(rows, columns, 1).scaled(0.5, 0.0))
            .input(Matrix::random(rows, columns, 2).scaled(0.5, 0.0))
    }

    #[test]
    fn gradients_match_finite_differences() {
        pairs(7, 4).check_gradients(|tape, inputs, _| info_nce(tape, &inputs[0], &inputs[1], 0.7));
        pairs(7, 4).input(Matrix::random(5, 4, 3)).check_gradients(|tape, inputs, _| {
            contrast_with_negatives(tape, &inputs[0], &inputs[1], &inputs[2], 1.0)
        });
        // The gradient of a value on both sides is the sum of both.
        Case::new("contrastive, one value").input(Matrix::random(7, 4, 1)).check_gradients(
            |tape, inputs, _| {
                let positives = same_cluster(tape.parameters().device(), 7);
                supervised_contrastive(tape, &inputs[0], &inputs[0], &positives, 1.5)
            },
        );
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        pairs(100, 64).compare_devices(|tape, inputs, _| info_nce(tape, &inputs[0], &inputs[1], 0.7));
        pairs(33, 32).input(Matrix::random(70, 32, 3)).compare_devices(|tape, inputs, _| {
            contrast_with_negatives(tape, &inputs[0], &inputs[1], &inputs[2], 1.0)
        });
        let one = Case::new("contrastive, one value").element(Element::F32).input(Matrix::random(50, 16, 1));
        one.compare_devices(|tape, inputs, _| {
            let positives = same_cluster(tape.parameters().device(), 50);
            supervised_contrastive(tape, &inputs[0], &inputs[0], &positives, 1.5)
        });
    }

    #[test]
    fn a_temperature_of_zero_is_refused() {
        assert!(inverse(0.0).is_err() && inverse(-1.0).is_err() && inverse(f32::NAN).is_err());
    }
}
