//! A weight's rows added to the first rows of a matrix, each left out now and then.
//!
//! Rows that are left out teach the matrix to do without them: labels whose own vectors are dropped are
//! scored as labels that have none.

use rayon::prelude::*;

use crate::cpu;
use crate::cuda::{KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::parameters::ParameterId;
use crate::random::Dropout;
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

const KERNELS: KernelSource =
    KernelSource { module: "add_rows", text: include_str!("add_rows.cu"), define: "" };

/// The matrix, f32, with the rows of a weight of the same width added to its first ones. In training each row
/// is left out with probability `rate`; what is kept stays as it is.
///
/// # Panics
/// If the weight has more rows than the matrix.
pub fn add_rows(tape: &mut Tape<'_>, input: &Var, weight: ParameterId, rate: f32) -> Result<Var, Error> {
    let mask = tape.next_dropout(rate);
    let tensor = input.tensor();
    let parameters = tape.parameters();
    let info = parameters.info(weight);
    assert_eq!(tensor.element(), Element::F32, "rows are added to embeddings");
    assert!(info.columns == tensor.columns() && info.rows <= tensor.rows(), "{} fits", info.name);
    let (columns, length) = (tensor.columns(), tensor.rows() * tensor.columns());
    let mut out = Tensor::scratch(&tensor.device(), tensor.rows(), columns, Element::F32)?;
    match tensor.device() {
        Device::Cpu(_) => {
            out.values_mut().copy_from_slice(tensor.values());
            let rows =
                out.values_mut().par_chunks_mut(columns).zip(parameters.values(weight).par_chunks(columns));
            rows.enumerate()
                .filter(|&(row, _)| is_kept(mask, row))
                .for_each(|(_, (sum, row))| cpu::axpy(1.0, row, sum));
        }
        Device::Cuda(cuda) => Launch::new(&cuda, &KERNELS, "add_rows")
            .shape(length.div_ceil(256), 1, 256)
            .address(tensor.address())
            .address(parameters.master_address(weight))
            .address(out.address())
            .long(length)
            .long(info.len())
            .int(columns)
            .dropout(mask)
            .run()?,
    }
    let link = input.link();
    let op = tape
        .wants(&[input], &[weight])
        .then(|| -> Box<dyn Backward> { Box::new(AddRows { link, weight, mask }) });
    Ok(tape.push(out, op))
}

fn is_kept(mask: Option<Dropout>, row: usize) -> bool {
    mask.is_none_or(|mask| mask.factor(row as u32, 0) > 0.0)
}

struct AddRows {
    link: Link,
    weight: ParameterId,
    mask: Option<Dropout>,
}

impl Backward for AddRows {
    fn name(&self) -> &'static str {
        "add rows"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        if flow.trains(self.weight) {
            let columns = gradient.columns();
            match gradient.device() {
                Device::Cpu(_) => {
                    let place = flow.parameters().cleared_gradient(self.weight);
                    let rows = place.par_chunks_mut(columns).zip(gradient.values().par_chunks(columns));
                    rows.enumerate()
                        .filter(|&(row, _)| is_kept(self.mask, row))
                        .for_each(|(_, (sum, row))| cpu::axpy(1.0, row, sum));
                }
                Device::Cuda(cuda) => {
                    let place = flow.parameters().cleared_gradient_operand(self.weight)?;
                    let length = flow.parameters().info(self.weight).len();
                    Launch::new(&cuda, &KERNELS, "add_rows_gradient")
                        .shape(length.div_ceil(256), 1, 256)
                        .address(gradient.address())
                        .address(place.address)
                        .long(length)
                        .int(columns)
                        .dropout(self.mask)
                        .run()?;
                }
            }
        }
        flow.give(self.link, gradient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing::{Case, Matrix};

    fn case(rows: usize, own: usize, columns: usize) -> Case {
        let case = Case::new("add rows").element(Element::F32).input(Matrix::random(rows, columns, 1));
        case.weight(Matrix::random(own, columns, 2))
    }

    #[test]
    fn gradients_match_finite_differences() {
        for rate in [0.0, 0.5] {
            case(7, 5, 3)
                .check_gradients(|tape, inputs, weights| add_rows(tape, &inputs[0], weights[0], rate));
        }
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        for (rows, own, rate) in [(7, 7, 0.0), (300, 211, 0.5), (1, 1, 0.9)] {
            case(rows, own, 24)
                .compare_devices(|tape, inputs, weights| add_rows(tape, &inputs[0], weights[0], rate));
        }
    }
}
