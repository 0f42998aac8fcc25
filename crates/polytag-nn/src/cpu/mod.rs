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
}
pub fn multiply(left: View<'_>, right: &Packed, out: &mut [f32], then: Then<'_>) {
    multiply_once_with(left, View::new(&right.data, right.k, right.n), out, then);
}
pub fn multiply_once(left: View<'_>, right: View<'_>, out: &mut [f32], accumulate: bool) {
    multiply_once_with(left, right, out, if accumulate { Then::Add } else { Then::Store });
}
fn multiply_once_with(left: View<'_>, right: View<'_>, out: &mut [f32], then: Then<'_>) {
    let n = right.columns;
    for r in 0..left.rows {
        for c in 0..n {
            let s: f32 = (0..left.columns).map(|k| left.at(r, k) * right.at(k, c)).sum();
            let o = &mut out[r * n + c];
            *o = match then {
                Then::Store => s,
                Then::Add => *o + s,
                Then::Bias(b) => s + b[c],
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
