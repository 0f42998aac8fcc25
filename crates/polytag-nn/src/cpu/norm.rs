//! The end of a transformer's sub-layer: `y = LayerNorm(dropout(x + bias) + residual)`, and its gradients.
//!
//! Rows are independent, so threads share them. The gradients of `gamma`, `beta` and the bias are sums over
//! the rows; those are cut into runs of a fixed length whose sums are added in order.

use rayon::prelude::*;

use super::rows::{AddTo, SUMMED_ROWS};
use super::simd::{Kernel, Set, Simd};
use crate::random::Dropout;

/// What is done to a row, other than the row itself.
#[derive(Clone, Copy, Debug)]
pub struct AddNorm<'a> {
    /// What the normalised row is multiplied by, column by column.
    pub gamma: &'a [f32],
    /// What is then added.
    pub beta: &'a [f32],
    /// Added to the variance.
    pub epsilon: f32,
    /// Added to each row before anything else.
    pub bias: Option<&'a [f32]>,
    /// Applied to that; the place of a number is its row and column.
    pub dropout: Option<Dropout>,
}

/// What the backward pass needs of the forward pass.
#[derive(Clone, Copy, Debug)]
pub struct NormSaved<'a> {
    /// What was normalised, as [`NormKept::sum`] got it.
    pub sum: &'a [f32],
    /// The means of the rows and their reciprocal deviations, alternating.
    pub moments: &'a [f32],
}

/// Where the forward pass leaves what the backward pass needs.
#[derive(Debug)]
pub struct NormKept<'a> {
    /// `dropout(x + bias) + residual`, in the shape of `x`.
    pub sum: &'a mut [f32],
    /// Mean and reciprocal deviation of each row: two numbers a row.
    pub moments: &'a mut [f32],
}

/// Where the gradients go.
#[derive(Debug)]
pub struct NormGradients<'a> {
    /// The gradient of the sum, which is that of the residual, and of `x` where nothing is dropped.
    pub sum: &'a mut [f32],
    /// The gradient of `x`, where it differs from that of the sum.
    pub x: Option<&'a mut [f32]>,
    /// Added to.
    pub gamma: &'a mut [f32],
    /// Added to.
    pub beta: &'a mut [f32],
    /// Added to.
    pub bias: Option<&'a mut [f32]>,
}

/// How many rows a thread takes at a time.
const ROWS: usize = 32;

/// `y = LayerNorm(dropout(x + bias) + residual)`, row by row of as many numbers as `gamma` has.
///
/// # Panics
/// If the shapes do not fit together.
pub fn add_norm(
    op: &AddNorm<'_>,
    x: &[f32],
    residual: Option<&[f32]>,
    y: &mut [f32],
    kept: Option<NormKept<'_>>,
) {
    add_norm_in(Set::best(), op, (x, residual), (y, kept));
}

fn add_norm_in(
    set: Set,
    op: &AddNorm<'_>,
    (x, residual): (&[f32], Option<&[f32]>),
    (y, kept): (&mut [f32], Option<NormKept<'_>>),
) {
    let columns = op.columns(x.len());
    assert_eq!(x.len(), y.len(), "the output has the input's shape");
    assert!(residual.is_none_or(|residual| residual.len() == x.len()), "the residual has the input's shape");
    let (mut sums, mut moments) = (None, None);
    if let Some(kept) = kept {
        assert_eq!(kept.sum.len(), x.len(), "the kept sum has the input's shape");
        assert_eq!(kept.moments.len() * columns, 2 * x.len(), "two moments a row");
        (sums, moments) =
            (Some(kept.sum.par_chunks_mut(ROWS * columns)), Some(kept.moments.par_chunks_mut(2 * ROWS)));
    }
    let run = |chunk: usize, y: &mut [f32], sum: Option<&mut [f32]>, moments: Option<&mut [f32]>| {
        let from = chunk * ROWS * columns;
        let part =
            |all: &'_ [f32]| -> std::ops::Range<usize> { from..(from + ROWS * columns).min(all.len()) };
        let residual = residual.map(|residual| &residual[part(residual)]);
        set.run(Forward { op, first_row: chunk * ROWS, x: &x[part(x)], residual, y, sum, moments });
    };
    let chunks = y.par_chunks_mut(ROWS * columns).enumerate();
    match (sums, moments) {
        (Some(sums), Some(moments)) => chunks
            .zip(sums.zip(moments))
            .for_each(|((chunk, y), (sum, moments))| run(chunk, y, Some(sum), Some(moments))),
        _ => chunks.for_each(|(chunk, y)| run(chunk, y, None, None)),
    }
}

impl AddNorm<'_> {
    /// How long a row is.
    fn columns(&self, len: usize) -> usize {
        let columns = self.gamma.len();
        assert!(columns > 0 && len.is_multiple_of(columns), "whole rows");
        assert_eq!(self.beta.len(), columns, "beta is as long as gamma");
        assert!(self.bias.is_none_or(|bias| bias.len() == columns), "the bias is as long as gamma");
        columns
    }
}

struct Forward<'a> {
    op: &'a AddNorm<'a>,
    first_row: usize,
    x: &'a [f32],
    residual: Option<&'a [f32]>,
    y: &'a mut [f32],
    sum: Option<&'a mut [f32]>,
    moments: Option<&'a mut [f32]>,
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let columns = self.op.gamma.len();
        for row in 0..self.x.len() / columns {
            let here = row * columns..(row + 1) * columns;
            let y = &mut self.y[here.clone()];
            let residual = self.residual.map(|residual| &residual[here.clone()]);
            let mean = self.op.add(simd, (self.first_row + row) as u32, (&self.x[here.clone()], residual), y);
            if let Some(sum) = &mut self.sum {
                sum[here].copy_from_slice(y);
            }
            let reciprocal = self.op.normalise(simd, mean, y);
            if let Some(moments) = &mut self.moments {
                moments[2 * row..2 * row + 2].copy_from_slice(&[mean, reciprocal]);
            }
        }
    }
}

impl AddNorm<'_> {
    /// `y = dropout(x + bias) + residual`; gives the mean.
    #[inline(always)]
    fn add<S: Simd>(&self, simd: S, row: u32, (x, residual): (&[f32], Option<&[f32]>), y: &mut [f32]) -> f32 {
        // Two sums side by side: one alone would wait for itself.
        let mut totals = [simd.splat(0.0); 2];
        for (index, y) in y.chunks_mut(S::LANES).enumerate() {
            let column = index * S::LANES;
            let here = column..column + y.len();
            let mut sum = simd.load(&x[here.clone()]);
            if let Some(bias) = self.bias {
                sum = simd.add(sum, simd.load(&bias[here.clone()]));
            }
            if let Some(dropout) = &self.dropout {
                sum = simd.mul(sum, simd.dropout(dropout, row, column as u32));
            }
            if let Some(residual) = residual {
                sum = simd.add(sum, simd.load(&residual[here]));
            }
            simd.store(sum, y);
            // Past the end of the row all lanes are zero.
            totals = [totals[1], simd.add(totals[0], sum)];
        }
        simd.sum(simd.add(totals[0], totals[1])) / y.len() as f32
    }

    /// Replaces the row by its norm; gives the reciprocal of its deviation.
    #[inline(always)]
    fn normalise<S: Simd>(&self, simd: S, mean: f32, y: &mut [f32]) -> f32 {
        let mut squares = [simd.splat(0.0); 2];
        for y in y.chunks(S::LANES) {
            let difference = simd.sub(simd.load_or(y, mean), simd.splat(mean));
            squares = [squares[1], simd.fma(difference, difference, squares[0])];
        }
        let variance = simd.sum(simd.add(squares[0], squares[1])) / y.len() as f32;
        let reciprocal = 1.0 / (variance + self.epsilon).sqrt();
        let scale = simd.splat(reciprocal);
        let parameters = self.gamma.chunks(S::LANES).zip(self.beta.chunks(S::LANES));
        for (y, (gamma, beta)) in y.chunks_mut(S::LANES).zip(parameters) {
            let normal = simd.mul(simd.sub(simd.load(y), simd.splat(mean)), scale);
            simd.store(simd.fma(normal, simd.load(gamma), simd.load(beta)), y);
        }
        reciprocal
    }
}

/// The gradients of [`add_norm`], given that of its output.
///
/// # Panics
/// If the shapes do not fit together.
pub fn add_norm_backward(op: &AddNorm<'_>, saved: NormSaved<'_>, dy: &[f32], gradients: NormGradients<'_>) {
    add_norm_backward_in(Set::best(), op, (saved, dy), gradients);
}

fn add_norm_backward_in(
    set: Set,
    op: &AddNorm<'_>,
    (saved, dy): (NormSaved<'_>, &[f32]),
    gradients: NormGradients<'_>,
) {
    let columns = op.columns(dy.len());
    assert_eq!(saved.sum.len(), dy.len(), "the saved sum has the output's shape");
    assert_eq!(saved.moments.len() * columns, 2 * dy.len(), "two moments a row");
    assert_eq!(gradients.sum.len(), dy.len(), "the gradient of the sum has its shape");
    assert!(gradients.x.as_ref().is_none_or(|x| x.len() == dy.len()), "the gradient of x has its shape");
    let chunk = SUMMED_ROWS * columns;
    let run = |index: usize, sum: &mut [f32], x: Option<&mut [f32]>| {
        let from = index * chunk..index * chunk + sum.len();
        let moments = &saved.moments[2 * SUMMED_ROWS * index..];
        let first_row = index * SUMMED_ROWS;
        let mut sums = vec![0.0; 3 * columns];
        let (saved, dy) = (&saved.sum[from.clone()], &dy[from]);
        set.run(Backward { op, first_row, saved, moments, dy, d_sum: sum, d_x: x, sums: &mut sums });
        sums
    };
    let parts = gradients.sum.par_chunks_mut(chunk).enumerate();
    let parts: Vec<Vec<f32>> = match gradients.x {
        Some(x) => parts.zip(x.par_chunks_mut(chunk)).map(|((i, sum), x)| run(i, sum, Some(x))).collect(),
        None => parts.map(|(i, sum)| run(i, sum, None)).collect(),
    };
    let mut totals = [Some(gradients.gamma), Some(gradients.beta), gradients.bias];
    for part in parts {
        for (total, x) in totals.iter_mut().zip(part.chunks(columns)) {
            if let Some(sums) = total {
                set.run(AddTo { x, sums });
            }
        }
    }
}

struct Backward<'a> {
    op: &'a AddNorm<'a>,
    first_row: usize,
    saved: &'a [f32],
    moments: &'a [f32],
    dy: &'a [f32],
    d_sum: &'a mut [f32],
    d_x: Option<&'a mut [f32]>,
    /// Of gamma, beta and the bias, one after the other.
    sums: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let columns = self.op.gamma.len();
        for row in 0..self.dy.len() / columns {
            self.row(simd, row, row * columns..(row + 1) * columns);
        }
    }
}

impl Backward<'_> {
    /// With `n` the normalised row and `g = dy · gamma`: `d_sum = (g - mean(g) - n · mean(g · n)) / deviation`.
    #[inline(always)]
    fn row<S: Simd>(&mut self, simd: S, row: usize, here: std::ops::Range<usize>) {
        let columns = here.len();
        let (mean, reciprocal) = (simd.splat(self.moments[2 * row]), simd.splat(self.moments[2 * row + 1]));
        let (saved, dy) = (&self.saved[here.clone()], &self.dy[here.clone()]);
        let (d_gamma, rest) = self.sums.split_at_mut(columns);
        let (d_beta, d_bias) = rest.split_at_mut(columns);
        let (mut sum, mut product) = (simd.splat(0.0), simd.splat(0.0));
        for column in (0..columns).step_by(S::LANES) {
            let here = column..(column + S::LANES).min(columns);
            let normal = simd.mul(simd.sub(simd.load(&saved[here.clone()]), mean), reciprocal);
            let dy = simd.load(&dy[here.clone()]);
            let g = simd.mul(dy, simd.load(&self.op.gamma[here.clone()]));
            sum = simd.add(sum, g);
            product = simd.fma(g, normal, product);
            let d_gamma = &mut d_gamma[here.clone()];
            simd.store(simd.fma(dy, normal, simd.load(d_gamma)), d_gamma);
            let d_beta = &mut d_beta[here];
            simd.store(simd.add(dy, simd.load(d_beta)), d_beta);
        }
        let mean_g = simd.splat(simd.sum(sum) / columns as f32);
        let mean_product = simd.splat(-simd.sum(product) / columns as f32);
        let d_sum = &mut self.d_sum[here.clone()];
        let mut d_x = self.d_x.as_deref_mut().map(|d_x| &mut d_x[here]);
        for column in (0..columns).step_by(S::LANES) {
            let here = column..(column + S::LANES).min(columns);
            let normal = simd.mul(simd.sub(simd.load(&saved[here.clone()]), mean), reciprocal);
            let g = simd.mul(simd.load(&dy[here.clone()]), simd.load(&self.op.gamma[here.clone()]));
            let inner = simd.fma(normal, mean_product, simd.sub(g, mean_g));
            let mut gradient = simd.mul(inner, reciprocal);
            simd.store(gradient, &mut d_sum[here.clone()]);
            if let Some(dropout) = &self.op.dropout {
                gradient =
                    simd.mul(gradient, simd.dropout(dropout, (self.first_row + row) as u32, column as u32));
            }
            if let Some(d_x) = &mut d_x {
                simd.store(gradient, &mut d_x[here.clone()]);
            }
            let d_bias = &mut d_bias[here];
            simd.store(simd.add(gradient, simd.load(d_bias)), d_bias);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{bits, random, same_with_any_threads};
    use crate::random::Key;

    struct Case {
        columns: usize,
        x: Vec<f32>,
        residual: Vec<f32>,
        parameters: [Vec<f32>; 3],
        dropout: Option<Dropout>,
    }

    impl Case {
        fn new(rows: usize, columns: usize, rate: f32) -> Case {
            Case {
                columns,
                x: random(rows * columns, 1),
                residual: random(rows * columns, 2),
                parameters: [random(columns, 3), random(columns, 4), random(columns, 5)],
                dropout: Dropout::new(rate, Key::new(9)),
            }
        }

        fn op(&self) -> AddNorm<'_> {
            let [gamma, beta, bias] = &self.parameters;
            AddNorm { gamma, beta, epsilon: 1e-5, bias: Some(bias), dropout: self.dropout }
        }

        fn plain(&self) -> Vec<f64> {
            let op = self.op();
            let mut y = Vec::new();
            for row in 0..self.x.len() / self.columns {
                let at = |column: usize| {
                    let factor = self.dropout.map_or(1.0, |d| d.factor(row as u32, column as u32));
                    let index = row * self.columns + column;
                    f64::from(self.x[index] + self.parameters[2][column]) * f64::from(factor)
                        + f64::from(self.residual[index])
                };
                let values: Vec<f64> = (0..self.columns).map(at).collect();
                let mean = values.iter().sum::<f64>() / self.columns as f64;
                let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / self.columns as f64;
                y.extend(values.iter().zip(op.gamma.iter().zip(op.beta)).map(|(v, (&gamma, &beta))| {
                    (v - mean) / (variance + 1e-5).sqrt() * f64::from(gamma) + f64::from(beta)
                }));
            }
            y
        }

        fn loss(&self, dy: &[f32]) -> f64 {
            self.plain().iter().zip(dy).map(|(y, &dy)| y * f64::from(dy)).sum()
        }
    }

    #[test]
    fn rows_are_normalised_in_every_set() {
        for (rows, columns, rate) in [(1, 1, 0.0), (3, 5, 0.5), (40, 33, 0.1), (70, 384, 0.0), (0, 8, 0.0)] {
            let case = Case::new(rows, columns, rate);
            for set in Set::all() {
                let mut y = vec![0.0; case.x.len()];
                let inputs = (&case.x[..], Some(&case.residual[..]));
                add_norm_in(set, &case.op(), inputs, (&mut y, None));
                for (y, plain) in y.iter().zip(case.plain()) {
                    assert!((f64::from(*y) - plain).abs() < 1e-4, "{set:?} {rows} {columns} {y} {plain}");
                }
            }
        }
    }

    #[test]
    fn gradients_agree_with_finite_differences() {
        for (set, rate) in Set::all().into_iter().flat_map(|set| [(set, 0.0), (set, 0.3)]) {
            let mut case = Case::new(3, 21, rate);
            let dy = random(63, 7);
            let (mut y, mut sum, mut moments) = (vec![0.0; 63], vec![0.0; 63], vec![0.0; 6]);
            let kept = NormKept { sum: &mut sum, moments: &mut moments };
            add_norm_in(set, &case.op(), (&case.x, Some(&case.residual)), (&mut y, Some(kept)));
            let (mut d_sum, mut d_x) = (vec![0.0; 63], vec![0.0; 63]);
            let (mut gamma, mut beta, mut bias) = (vec![0.0; 21], vec![0.0; 21], vec![0.0; 21]);
            let gradients = NormGradients {
                sum: &mut d_sum,
                x: Some(&mut d_x),
                gamma: &mut gamma,
                beta: &mut beta,
                bias: Some(&mut bias),
            };
            let saved = NormSaved { sum: &sum, moments: &moments };
            add_norm_backward_in(set, &case.op(), (saved, &dy), gradients);
            type Values = fn(&mut Case) -> &mut Vec<f32>;
            let all: [(&[f32], Values); 5] = [
                (&d_x, |case| &mut case.x),
                (&d_sum, |case| &mut case.residual),
                (&gamma, |case| &mut case.parameters[0]),
                (&beta, |case| &mut case.parameters[1]),
                (&bias, |case| &mut case.parameters[2]),
            ];
            for (which, (gradient, values)) in all.into_iter().enumerate() {
                for (index, &gradient) in gradient.iter().enumerate() {
                    let before = values(&mut case)[index];
                    values(&mut case)[index] = before + 1e-3;
                    let above = case.loss(&dy);
                    values(&mut case)[index] = before - 1e-3;
                    let slope = (above - case.loss(&dy)) / 2e-3;
                    values(&mut case)[index] = before;
                    assert!((f64::from(gradient) - slope).abs() < 2e-3, "{which} {index} {gradient} {slope}");
                }
            }
        }
    }

    #[test]
    fn threads_change_no_byte() {
        let case = Case::new(700, 24, 0.1);
        let saved = random(700 * 24, 8);
        let moments = random(1400, 9);
        same_with_any_threads(|| {
            let (mut d_sum, mut sums) = (vec![0.0; 700 * 24], [vec![0.0; 24], vec![0.0; 24], vec![0.0; 24]]);
            let [gamma, beta, bias] = &mut sums;
            let gradients = NormGradients { sum: &mut d_sum, x: None, gamma, beta, bias: Some(bias) };
            add_norm_backward(&case.op(), NormSaved { sum: &saved, moments: &moments }, &case.x, gradients);
            (bits(&d_sum), sums.map(|sums| bits(&sums)))
        });
    }
}
