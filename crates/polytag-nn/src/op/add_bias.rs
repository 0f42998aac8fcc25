//! A weight of one row added to every row of a matrix, such as what a label's scores begin with; or some of its numbers,
//! where the matrix has columns for some labels only.

use super::check_width;
use super::column_sums::column_sums;
use super::gather::RowIds;
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

/// The matrix, f32, with the chosen numbers of a weight added to each row, one a column.
///
/// # Panics
/// If there is not a number for each column.
pub fn add_chosen_bias(
    tape: &mut Tape<'_>,
    input: &Var,
    bias: ParameterId,
    chosen: &RowIds,
) -> Result<Var, Error> {
    let (tensor, parameters) = (input.tensor(), tape.parameters());
    let (rows, columns) = (tensor.rows(), tensor.columns());
    let most = chosen.ids().iter().max().map_or(0, |&id| id as usize + 1);
    assert_eq!(tensor.element(), Element::F32, "a bias is added to scores");
    assert!(
        chosen.ids().len() == columns && most <= parameters.info(bias).len(),
        "there is a number a column"
    );
    let mut out = Tensor::scratch(&tensor.device(), rows, columns, Element::F32)?;
    match tensor.device() {
        Device::Cpu(_) => {
            let values = parameters.values(bias);
            let row: Vec<f32> = chosen.ids().iter().map(|&id| values[id as usize]).collect();
            out.values_mut().copy_from_slice(tensor.values());
            out.values_mut().chunks_exact_mut(columns.max(1)).for_each(|sum| {
                cpu::axpy(1.0, &row, sum);
            });
        }
        Device::Cuda(cuda) => Launch::new(&cuda, &KERNELS, "add_chosen_bias")
            .shape((rows * columns).div_ceil(256), 1, 256)
            .address(tensor.address())
            .address(parameters.master_address(bias))
            .buffer(chosen.buffer())
            .address(out.address())
            .long(rows * columns)
            .int(columns)
            .run()?,
    }
    let link = input.link();
    let op = tape
        .wants(&[input], &[bias])
        .then(|| -> Box<dyn Backward> { Box::new(AddChosenBias { link, bias, chosen: chosen.clone() }) });
    Ok(tape.push(out, op))
}

struct AddChosenBias {
    link: Link,
    bias: ParameterId,
    chosen: RowIds,
}

impl Backward for AddChosenBias {
    fn name(&self) -> &'static str {
        "add chosen bias"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        if flow.trains(self.bias) {
            let (rows, columns) = (gradient.rows(), gradient.columns());
            match gradient.device() {
                Device::Cpu(_) => {
                    let place = flow.parameters().cleared_gradient(self.bias);
                    for row in gradient.values().chunks_exact(columns.max(1)) {
                        let numbers = self.chosen.ids().iter().zip(row);
                        numbers.for_each(|(&id, value)| place[id as usize] += value);
                    }
                }
                Device::Cuda(cuda) => {
                    let place = flow.parameters().cleared_gradient_operand(self.bias)?;
                    Launch::new(&cuda, &KERNELS, "add_chosen_bias_gradient")
                        .shape(columns.div_ceil(256), 1, 256)
                        .address(gradient.address())
                        .buffer(self.chosen.buffer())
                        .address(place.address)
                        .int(rows)
                        .int(columns)
                        .run()?;
                }
            }
        }
        flow.give(self.link, gradient)
    }
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

    /// Every third of the weight's numbers, backwards.
    fn chosen(tape: &mut Tape<'_>, input: &Var, bias: ParameterId) -> Result<Var, Error> {
        let ids: Vec<u32> = (0..16).rev().map(|id| 3 * id).collect();
        let rows = RowIds::new(tape.parameters().device(), &ids)?;
        add_chosen_bias(tape, input, bias, &rows)
    }

    fn wide() -> Case {
        let matrix = Matrix::random(5, 16, 1);
        Case::new("add chosen bias").element(Element::F32).input(matrix).weight(Matrix::random(1, 48, 2))
    }

    #[test]
    fn gradients_of_chosen_numbers_match_finite_differences() {
        wide().check_gradients(|tape, inputs, weights| chosen(tape, &inputs[0], weights[0]));
        wide().check_frozen(|tape, inputs, weights| chosen(tape, &inputs[0], weights[0]));
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        wide().compare_devices(|tape, inputs, weights| chosen(tape, &inputs[0], weights[0]));
        case().compare_devices(|tape, inputs, weights| add_bias(tape, &inputs[0], weights[0]));
    }
}
