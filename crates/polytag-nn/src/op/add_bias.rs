//! A weight of one row added to every row of a matrix, such as what a label's scores begin with.

use super::check_width;
use super::column_sums::column_sums;
use crate::cpu;
use crate::cuda::{KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::parameters::ParameterId;
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

const KERNELS: KernelSource =
    KernelSource { module: "add_bias", text: include_str!("add_bias.cu"), define: "" };

/// The matrix, f32, with a weight `[1, columns]` added to each row.
///
/// # Panics
/// If the weight is not as wide as the matrix.
pub fn add_bias(tape: &mut Tape<'_>, input: &Var, bias: ParameterId) -> Result<Var, Error> {
    let (tensor, parameters) = (input.tensor(), tape.parameters());
    let (rows, columns) = (tensor.rows(), tensor.columns());
    assert_eq!(tensor.element(), Element::F32, "a bias is added to scores");
    assert_eq!(parameters.info(bias).len(), columns, "{} fits", parameters.info(bias).name);
    let mut out = Tensor::scratch(&tensor.device(), rows, columns, Element::F32)?;
    match tensor.device() {
        Device::Cpu(_) => {
            out.values_mut().copy_from_slice(tensor.values());
            let row = parameters.values(bias);
            out.values_mut().chunks_exact_mut(columns.max(1)).for_each(|sum| {
                cpu::axpy(1.0, row, sum);
            });
        }
        Device::Cuda(cuda) => {
            // The way back sums columns eight at a time.
            check_width(columns)?;
            Launch::new(&cuda, &KERNELS, "add_bias")
                .shape((rows * columns).div_ceil(256), 1, 256)
                .address(tensor.address())
                .address(parameters.master_address(bias))
                .address(out.address())
                .long(rows * columns)
                .int(columns)
                .run()?;
        }
    }
    let link = input.link();
    let op = tape.wants(&[input], &[bias]).then(|| -> Box<dyn Backward> { Box::new(AddBias { link, bias }) });
    Ok(tape.push(out, op))
}

struct AddBias {
    link: Link,
    bias: ParameterId,
}

impl Backward for AddBias {
    fn name(&self) -> &'static str {
        "add bias"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        if flow.trains(self.bias) {
            column_sums(flow.parameters(), &gradient, self.bias)?;
        }
        flow.give(self.link, gradient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing::{Case, Matrix};

    fn case() -> Case {
        let matrix = Matrix::random(5, 16, 1);
        Case::new("add bias").element(Element::F32).input(matrix).weight(Matrix::random(1, 16, 2))
    }

    #[test]
    fn gradients_match_finite_differences() {
        case().check_gradients(|tape, inputs, weights| add_bias(tape, &inputs[0], weights[0]));
        case().check_frozen(|tape, inputs, weights| add_bias(tape, &inputs[0], weights[0]));
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        case().compare_devices(|tape, inputs, weights| add_bias(tape, &inputs[0], weights[0]));
    }
}
