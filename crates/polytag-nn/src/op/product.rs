//! Rows against rows: `y = a · bᵀ` of two values.

use super::gather::{RowIds, gather};
use crate::cpu::{self, View};
use crate::cuda::{Operand, Product as Job};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::parameters::ParameterId;
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

/// Rows up to which a product is too small for copies of what it is with.
const FEW: usize = 4;

/// The inner products of the rows of `left` `[m, d]` with those of `right` `[n, d]`, all stored in f32: `[m, n]`. A GPU
/// multiplies them in TF32, as everywhere.
///
/// # Panics
/// If their rows are not of one length.
pub fn product(tape: &mut Tape<'_>, left: &Var, right: &Var) -> Result<Var, Error> {
    let (a, b) = (left.tensor(), right.tensor());
    assert_eq!(a.columns(), b.columns(), "rows of one length are multiplied");
    assert!(a.element() == Element::F32 && b.element() == Element::F32, "products are of embeddings");
    let mut out = Tensor::scratch(&a.device(), a.rows(), b.rows(), Element::F32)?;
    multiply((a, false), (b, true), (&mut out, false))?;
    let op = tape.wants(&[left, right], &[]).then(|| -> Box<dyn Backward> {
        let [left_link, right_link] = [left, right].map(Var::link);
        Box::new(Product { left: a.clone(), right: b.clone(), left_link, right_link })
    });
    Ok(tape.push(out, op))
}

/// The inner products of the rows of `left` `[m, d]` with some rows of a weight: `[m, rows]`. A few rows on a CPU that nothing
/// is learned from are multiplied where the weight lies; else the rows of it are taken out first.
///
/// # Panics
/// If the weight has no such row.
pub fn product_with_rows(
    tape: &mut Tape<'_>,
    left: &Var,
    weight: ParameterId,
    rows: &RowIds,
) -> Result<Var, Error> {
    let tensor = left.tensor();
    let (width, device) = (tensor.columns(), tensor.device());
    let is_small = matches!(device, Device::Cpu(_)) && tensor.rows() <= FEW;
    if !is_small || tape.wants(&[left], &[weight]) {
        let some = gather(tape, weight, rows, width)?;
        return product(tape, left, &some);
    }
    let mut out = Tensor::scratch(&device, tensor.rows(), rows.ids().len(), Element::F32)?;
    let parameters = tape.parameters();
    let values = parameters.values(weight);
    let columns = rows.ids().len();
    for (row, out) in
        tensor.values().chunks_exact(width).zip(out.values_mut().chunks_exact_mut(columns.max(1)))
    {
        for (out, &id) in out.iter_mut().zip(rows.ids()) {
            *out = cpu::dot(row, &values[id as usize * width..][..width]);
        }
    }
    Ok(tape.push(out, None))
}

/// `out = left · right`, either of which may be stored with rows and columns exchanged; or adds it to what is there.
fn multiply(
    (left, left_transposed): (&Tensor, bool),
    (right, right_transposed): (&Tensor, bool),
    (out, accumulate): (&mut Tensor, bool),
) -> Result<(), Error> {
    let (rows, columns) = (out.rows(), out.columns());
    let depth = if left_transposed { left.rows() } else { left.columns() };
    match out.device() {
        Device::Cpu(_) => {
            let view = |tensor, transposed| {
                let view = View::new(Tensor::values(tensor), tensor.rows(), tensor.columns());
                if transposed { view.transposed() } else { view }
            };
            let (left, right) = (view(left, left_transposed), view(right, right_transposed));
            cpu::multiply_once(left, right, out.values_mut(), accumulate);
            Ok(())
        }
        Device::Cuda(cuda) => cuda.product(&Job {
            rows,
            columns,
            depth,
            left: Operand { transposed: left_transposed, ..left.operand() },
            right: Operand { transposed: right_transposed, ..right.operand() },
            out: out.operand(),
            accumulate,
            bias: 0,
        }),
    }
}

struct Product {
    left: Tensor,
    right: Tensor,
    left_link: Link,
    right_link: Link,
}

impl Backward for Product {
    fn name(&self) -> &'static str {
        "product"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        if let Some(to) = self.left_link {
            let (mut place, accumulate) = flow.slot(to, &self.left)?;
            multiply((&gradient, false), (&self.right, false), (&mut place, accumulate))?;
            flow.put(to, place)?;
        }
        if let Some(to) = self.right_link {
            let (mut place, accumulate) = flow.slot(to, &self.right)?;
            multiply((&gradient, true), (&self.left, false), (&mut place, accumulate))?;
            flow.put(to, place)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing::{self, Case, Matrix};

    /// Two matrices, and the first with itself.
    fn build(tape: &mut Tape<'_>, inputs: &[Var]) -> Result<Var, Error> {
        let other = product(tape, &inputs[0], &inputs[1])?;
        let own = product(tape, &inputs[0], &inputs[0])?;
        let again = product(tape, &own, &inputs[2])?;
        testing::sum(tape, &other, &again)
    }

    fn case() -> Case {
        let case = Case::new("product").element(Element::F32).input(Matrix::random(8, 16, 1));
        case.input(Matrix::random(24, 16, 2)).input(Matrix::random(24, 8, 3))
    }

    #[test]
    fn gradients_match_finite_differences() {
        case().check_gradients(|tape, inputs, _| build(tape, inputs));
    }

    #[test]
    fn rows_of_a_weight_are_multiplied_where_they_lie() {
        use crate::parameters::ParametersBuilder;
        let device = Device::cpu();
        let mut builder = ParametersBuilder::default();
        let weight = builder.add("w", (40, 16), &Matrix::random(40, 16, 4).values);
        let parameters = builder.build(&device).unwrap();
        let rows = RowIds::new(&device, &[39, 0, 7]).unwrap();
        for count in [1, FEW, FEW + 1] {
            let left = Matrix::random(count, 16, 5);
            let left = Tensor::new(&device, (count, 16), &left.values, Element::F32).unwrap();
            let mut tape = Tape::inference(&parameters);
            let left = tape.push(left, None);
            let found = product_with_rows(&mut tape, &left, weight, &rows).unwrap();
            let some = gather(&mut tape, weight, &rows, 16).unwrap();
            let expected = product(&mut tape, &left, &some).unwrap();
            assert_eq!((found.tensor().rows(), found.tensor().columns()), (count, 3));
            for (found, expected) in found.tensor().values().iter().zip(expected.tensor().values()) {
                assert!((found - expected).abs() < 1e-5, "{found} {expected}");
            }
        }
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        case().compare_devices(|tape, inputs, _| build(tape, inputs));
    }
}
