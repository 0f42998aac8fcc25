//! `y = x · wᵀ + b`, the weight stored `[out, in]` as Hugging Face does.

use super::column_sums::column_sums;
use crate::cpu::{self, Then, View};
use crate::cuda::{Operand, Product};
use crate::device::Device;
use crate::error::Error;
use crate::parameters::{Layout, ParameterId, Parameters};
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

/// Multiplies by a weight and adds a bias, if there is one.
///
/// On a GPU the bias is added by the product itself.
pub fn linear(
    tape: &mut Tape<'_>,
    input: &Var,
    weight: ParameterId,
    bias: Option<ParameterId>,
) -> Result<Var, Error> {
    let out = forward(tape, input.tensor(), weight, bias)?;
    let weights: Vec<ParameterId> = [Some(weight), bias].into_iter().flatten().collect();
    let op = tape.wants(&[input], &weights).then(|| -> Box<dyn Backward> {
        Box::new(Linear { input: input.tensor().clone(), link: input.link(), weight, bias })
    });
    Ok(tape.push(out, op))
}

/// The product alone, for ops that contain one.
pub(super) fn forward(
    tape: &Tape<'_>,
    input: &Tensor,
    weight: ParameterId,
    bias: Option<ParameterId>,
) -> Result<Tensor, Error> {
    let parameters = tape.parameters();
    let info = parameters.info(weight);
    assert_eq!(input.columns(), info.columns, "{} fits its input", info.name);
    let device = parameters.device();
    let mut out = Tensor::scratch(device, input.rows(), info.rows, input.element())?;
    match device {
        Device::Cpu(_) => {
            let packed = parameters.packed(weight, Layout::Transposed);
            let then = bias.map_or(Then::Store, |bias| Then::Bias(parameters.values(bias)));
            let input = View::new(input.values(), input.rows(), input.columns());
            cpu::multiply(input, &packed, out.values_mut(), then);
        }
        Device::Cuda(cuda) => {
            let right = Operand { transposed: true, ..parameters.operand(weight, input.element()) };
            cuda.product(&Product {
                rows: input.rows(),
                columns: info.rows,
                depth: info.columns,
                left: input.operand(),
                right,
                out: out.operand(),
                accumulate: false,
                bias: bias.map_or(0, |bias| parameters.operand(bias, input.element()).address),
            })?;
        }
    }
    Ok(out)
}

/// The gradients of a product: of its weight, if that is trained, and of its input, if `to` says where.
pub(super) fn backward(
    flow: &mut Flow<'_>,
    gradient: &Tensor,
    input: &Tensor,
    weight: ParameterId,
    to: Link,
) -> Result<(), Error> {
    if flow.trains(weight) {
        weight_gradient(flow, gradient, input, weight)?;
    }
    let Some(to) = to else { return Ok(()) };
    let (mut place, accumulate) = flow.slot(to, input)?;
    input_gradient(flow.parameters(), gradient, weight, (&mut place, accumulate))?;
    flow.put(to, place)
}

/// The gradient of a product's input, put in its place or added to what is there.
pub(super) fn input_gradient(
    parameters: &Parameters,
    gradient: &Tensor,
    weight: ParameterId,
    (place, accumulate): (&mut Tensor, bool),
) -> Result<(), Error> {
    match parameters.device() {
        Device::Cpu(_) => {
            let packed = parameters.packed(weight, Layout::Plain);
            let view = View::new(gradient.values(), gradient.rows(), gradient.columns());
            let then = if accumulate { Then::Add } else { Then::Store };
            cpu::multiply(view, &packed, place.values_mut(), then);
            Ok(())
        }
        Device::Cuda(cuda) => cuda.product(&Product {
            rows: gradient.rows(),
            columns: place.columns(),
            depth: gradient.columns(),
            left: gradient.operand(),
            right: parameters.operand(weight, gradient.element()),
            out: place.operand(),
            accumulate,
            bias: 0,
        }),
    }
}

/// Adds the gradient of a product's weight to what there is of it.
pub(super) fn weight_gradient(
    flow: &mut Flow<'_>,
    gradient: &Tensor,
    input: &Tensor,
    weight: ParameterId,
) -> Result<(), Error> {
    let parameters = flow.parameters();
    match parameters.device().clone() {
        Device::Cpu(_) => {
            let left = View::new(gradient.values(), gradient.rows(), gradient.columns()).transposed();
            let right = View::new(input.values(), input.rows(), input.columns());
            let (place, accumulate) = parameters.gradient(weight);
            cpu::multiply_once(left, right, place, accumulate);
            Ok(())
        }
        Device::Cuda(cuda) => {
            let (out, accumulate) = parameters.gradient_operand(weight);
            cuda.product(&Product {
                rows: gradient.columns(),
                columns: input.columns(),
                depth: input.rows(),
                left: Operand { transposed: true, ..gradient.operand() },
                right: input.operand(),
                out,
                accumulate,
                bias: 0,
            })
        }
    }
}

struct Linear {
    input: Tensor,
    link: Link,
    weight: ParameterId,
    bias: Option<ParameterId>,
}

impl Backward for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        if let Some(bias) = self.bias.filter(|&bias| flow.trains(bias)) {
            column_sums(flow.parameters(), &gradient, bias)?;
        }
        backward(flow, &gradient, &self.input, self.weight, self.link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing::{Case, Matrix};

    fn case(rows: usize, input: usize, output: usize) -> Case {
        Case::new("linear")
            .input(Matrix::random(rows, input, 1))
            .weight(Matrix::random(output, input, 2))
            .weight(Matrix::random(1, output, 3))
    }

    #[test]
    fn gradients_match_finite_differences() {
        case(5, 4, 3)
            .check_gradients(|tape, inputs, weights| linear(tape, &inputs[0], weights[0], Some(weights[1])));
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        for (rows, input, output) in [(1, 64, 64), (77, 128, 192), (300, 384, 64)] {
            case(rows, input, output).compare_devices(|tape, inputs, weights| {
                linear(tape, &inputs[0], weights[0], Some(weights[1]))
            });
        }
    }
}
