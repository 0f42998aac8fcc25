//! The arithmetic of the CPU.
#![allow(missing_docs)]
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}
impl<'a> View<'a> {
    pub fn new(data: &'a [f32], rows: usize, columns: usize) -> View<'a> {
        View { data, rows, columns, row_stride: columns, column_stride: 1 }
    }
    pub fn transposed(self) -> View<'a> {
        View {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
    pub fn at(&self, r: usize, c: usize) -> f32 {
        self.data[r * self.row_stride + c * self.column_stride]
    }
}
pub struct Packed {
    k: usize,
    n: usize,
    data: Vec<f32>,
}
impl Packed {
    pub fn new(v: View<'_>) -> Packed {
        let mut data = vec![];
        for r in 0..v.rows {
            for c in 0..v.columns {
                data.push(v.at(r, c));
            }
        }
        Packed { k: v.rows, n: v.columns, data }
    }
}
pub enum Then<'a> {
    Store,
    Add,
    Bias(&'a [f32]),
    BiasGelu { bias: &'a [f32], before: Option<&'a mut [f32]> },
}
pub fn multiply(left: View<'_>, right: &Packed, out: &mut [f32], then: Then<'_>) {
    multiply_once_with(left, View::new(&right.data, right.k, right.n), out, then);
}
pub fn multiply_once(left: View<'_>, right: View<'_>, out: &mut [f32], accumulate: bool) {
    multiply_once_with(left, right, out, if accumulate { Then::Add } else { Then::Store });
}
fn multiply_once_with(left: View<'_>, right: View<'_>, out: &mut [f32], then: Then<'_>) {
    if let Then::BiasGelu { bias, before } = then {
        multiply_once_with(left, right, out, Then::Bias(bias));
        let taken = out.to_vec();
        gelu(&taken, out);
        if let Some(before) = before {
            before.copy_from_slice(&taken);
        }
        return;
    }
    let n = right.columns;
    for r in 0..left.rows {
        for c in 0..n {
            let s: f32 = (0..left.columns).map(|k| left.at(r, k) * right.at(k, c)).sum();
            let o = &mut out[r * n + c];
            *o = match then {
                Then::Store => s,
                Then::Add => *o + s,
                Then::Bias(b) => s + b[c],
                Then::BiasGelu { .. } => unreachable!(),
            };
        }
    }
}
pub fn column_sums(x: View<'_>, out: &mut [f32], accumulate: bool) {
    for (c, o) in out.iter_mut().enumerate() {
        let s: f32 = (0..x.rows).map(|r| x.at(r, c)).sum();
        *o = if accumulate { *o + s } else { s };
    }
}
pub fn instructions() -> &'static str {
    "portable"
}
use crate::random::Dropout;
fn share(x: f32) -> f64 {
    let z = f64::from(x.abs()) / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let p = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    let erf = 1.0 - p * (-z * z).exp();
    0.5 + 0.5 * erf.copysign(f64::from(x))
}
pub fn gelu(x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = (f64::from(x) * share(x)) as f32;
    }
}
pub fn gelu_backward(before: &[f32], dy: &[f32], dx: &mut [f32]) {
    for ((dx, &x), dy) in dx.iter_mut().zip(before).zip(dy) {
        let v = f64::from(x);
        *dx = dy * (share(x) + v * 0.3989422804 * (-0.5 * v * v).exp()) as f32;
    }
}
pub struct AddNorm<'a> {
    pub gamma: &'a [f32],
    pub beta: &'a [f32],
    pub epsilon: f32,
    pub bias: Option<&'a [f32]>,
    pub dropout: Option<Dropout>,
}
pub struct NormSaved<'a> {
    pub sum: &'a [f32],
    pub moments: &'a [f32],
}
pub struct NormKept<'a> {
    pub sum: &'a mut [f32],
    pub moments: &'a mut [f32],
}
pub struct NormGradients<'a> {
    pub sum: &'a mut [f32],
    pub x: Option<&'a mut [f32]>,
    pub gamma: &'a mut [f32],
    pub beta: &'a mut [f32],
    pub bias: Option<&'a mut [f32]>,
}
pub fn add_norm(
    op: &AddNorm<'_>,
    x: &[f32],
    residual: Option<&[f32]>,
    y: &mut [f32],
    mut kept: Option<NormKept<'_>>,
) {
    let n = op.gamma.len();
    for row in 0..x.len() / n {
        let y = &mut y[row * n..][..n];
        for c in 0..n {
            let mut v = x[row * n + c] + op.bias.map_or(0.0, |b| b[c]);
            v *= op.dropout.map_or(1.0, |d| d.factor(row as u32, c as u32));
            y[c] = v + residual.map_or(0.0, |r| r[row * n + c]);
        }
        let mean = y.iter().sum::<f32>() / n as f32;
        let inverse =
            1.0 / (y.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / n as f32 + op.epsilon).sqrt();
        if let Some(kept) = &mut kept {
            kept.sum[row * n..][..n].copy_from_slice(y);
            kept.moments[2 * row..][..2].copy_from_slice(&[mean, inverse]);
        }
        for c in 0..n {
            y[c] = (y[c] - mean) * inverse * op.gamma[c] + op.beta[c];
        }
    }
}
pub fn add_norm_backward(op: &AddNorm<'_>, saved: NormSaved<'_>, dy: &[f32], mut to: NormGradients<'_>) {
    let n = op.gamma.len();
    for row in 0..dy.len() / n {
        let (mean, inverse) = (saved.moments[2 * row], saved.moments[2 * row + 1]);
        let normal = |c: usize| (saved.sum[row * n + c] - mean) * inverse;
        let d = |c: usize| dy[row * n + c] * op.gamma[c];
        let first = (0..n).map(d).sum::<f32>() / n as f32;
        let second = (0..n).map(|c| d(c) * normal(c)).sum::<f32>() / n as f32;
        for c in 0..n {
            let v = inverse * (d(c) - first - normal(c) * second);
            to.sum[row * n + c] = v;
            let v = v * op.dropout.map_or(1.0, |d| d.factor(row as u32, c as u32));
            if let Some(x) = &mut to.x {
                x[row * n + c] = v;
            }
            to.gamma[c] += dy[row * n + c] * normal(c);
            to.beta[c] += dy[row * n + c];
            if let Some(bias) = &mut to.bias {
                bias[c] += v;
            }
        }
    }
}
