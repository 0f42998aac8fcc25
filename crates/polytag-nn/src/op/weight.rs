//! A weight as a value, for ops that take values only.

use super::rows::{add_numbers, copy_numbers};
use crate::cpu;
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::parameters::ParameterId;
use crate::tape::{Backward, Flow, Tape, Var};
use crate::tensor::Tensor;

/// A copy of a weight, in f32; its gradient is the weight's.
pub fn weight(tape: &mut Tape<'_>, id: ParameterId) -> Result<Var, Error> {
    let parameters = tape.parameters();
    let (device, info) = (parameters.device(), parameters.info(id));
    let mut out = Tensor::scratch(device, info.rows, info.columns, Element::F32)?;
    match device {
        Device::Cpu(_) => out.values_mut().copy_from_slice(parameters.values(id)),
        Device::Cuda(cuda) => {
            copy_numbers(cuda, parameters.master_address(id), out.address(), info.len())?;
        }
    }
    let op = tape.wants(&[], &[id]).then(|| -> Box<dyn Backward> { Box::new(Weight(id)) });
    Ok(tape.push(out, op))
}

struct Weight(ParameterId);

impl Backward for Weight {
    fn name(&self) -> &'static str {
        "weight"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        match gradient.device() {
            Device::Cpu(_) => {
                let place = flow.parameters().cleared_gradient(self.0);
                cpu::axpy(1.0, gradient.values(), place);
                Ok(())
            }
            Device::Cuda(cuda) => {
                let place = flow.parameters().cleared_gradient_operand(self.0)?;
                let length = gradient.rows() * gradient.columns();
                add_numbers(&cuda, gradient.address(), place.address, length)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing::{Case, Matrix};

    #[test]
    fn gradients_match_finite_differences() {
        let case = Case::new("weight").weight(Matrix::random(3, 4, 1));
        case.check_gradients(|tape, _, weights| weight(tape, weights[0]));
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        let case = Case::new("weight").element(Element::F32).weight(Matrix::random(37, 24, 1));
        case.compare_devices(|tape, _, weights| weight(tape, weights[0]));
    }
}
