//! Dropout by itself: some values become zero, the others grow so that the mean stays.

use rayon::prelude::*;

use crate::cuda::{KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::random::Dropout;
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

const KERNELS: KernelSource =
    KernelSource { module: "dropout", text: include_str!("dropout.cu"), define: "" };

/// Drops each value with probability `rate`, in training; does nothing otherwise.
///
/// The mask is not kept: on the way back it is looked up again.
pub fn dropout(tape: &mut Tape<'_>, input: &Var, rate: f32) -> Result<Var, Error> {
    let Some(mask) = tape.next_dropout(rate) else { return Ok(input.clone()) };
    let tensor = input.tensor();
    let mut out = Tensor::scratch(&tensor.device(), tensor.rows(), tensor.columns(), tensor.element())?;
    match tensor.device() {
        Device::Cpu(_) => {
            out.values_mut().copy_from_slice(tensor.values());
            drop_values(out.values_mut(), tensor.columns(), mask);
        }
        Device::Cuda(_) => drop_on_gpu(tensor, &out, mask)?,
    }
    let op = tape
        .wants(&[input], &[])
        .then(|| -> Box<dyn Backward> { Box::new(Masked { link: input.link(), mask }) });
    Ok(tape.push(out, op))
}

fn drop_values(values: &mut [f32], columns: usize, mask: Dropout) {
    values.par_chunks_mut(columns.max(1)).enumerate().for_each(|(row, values)| {
        for (column, value) in values.iter_mut().enumerate() {
            *value *= mask.factor(row as u32, column as u32);
        }
    });
}

fn drop_on_gpu(from: &Tensor, to: &Tensor, mask: Dropout) -> Result<(), Error> {
    let Device::Cuda(cuda) = from.device() else { unreachable!("the device was just looked at") };
    let name = match from.element() {
        Element::F32 => "dropout_f32",
        Element::Bf16 => "dropout_bf16",
    };
    let length = from.rows() * from.columns();
    Launch::new(&cuda, &KERNELS, name)
        .shape(length.div_ceil(8 * 256), 1, 256)
        .address(from.address())
        .address(to.address())
        .long(length)
        .int(from.columns())
        .dropout(Some(mask))
        .run()
}

struct Masked {
    link: Link,
    mask: Dropout,
}

impl Backward for Masked {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        let mut gradient = gradient.into_unshared()?;
        match gradient.device() {
            Device::Cpu(_) => {
                let columns = gradient.columns();
                drop_values(gradient.values_mut(), columns, self.mask);
            }
            Device::Cuda(_) => drop_on_gpu(&gradient, &gradient, self.mask)?,
        }
        flow.give(self.link, gradient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing::{Case, Matrix};
    use crate::parameters::ParametersBuilder;
    use crate::random::Key;

    fn case(rows: usize, columns: usize) -> Case {
        Case::new("dropout").input(Matrix::random(rows, columns, 1))
    }

    #[test]
    fn gradients_match_finite_differences() {
        case(4, 5).check_gradients(|tape, inputs, _| {
            let once = dropout(tape, &inputs[0], 0.3)?;
            dropout(tape, &once, 0.2)
        });
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        for (rows, columns) in [(1, 64), (77, 384), (300, 768), (5, 13), (1, 3)] {
            for element in [Element::F32, Element::Bf16] {
                case(rows, columns)
                    .element(element)
                    .compare_devices(|tape, inputs, _| dropout(tape, &inputs[0], 0.1));
            }
        }
    }

    #[test]
    fn nothing_is_dropped_outside_of_training_or_at_rate_zero() {
        let parameters = ParametersBuilder::default().build(&Device::cpu()).unwrap();
        let input = Var::constant(Tensor::new(&Device::cpu(), (1, 2), &[1.0, 2.0], Element::F32).unwrap());
        let mut inference = Tape::inference(&parameters);
        assert_eq!(dropout(&mut inference, &input, 0.9).unwrap().tensor().values(), [1.0, 2.0]);
        let mut training = Tape::training(&parameters, Key::new(1));
        assert_eq!(dropout(&mut training, &input, 0.0).unwrap().tensor().values(), [1.0, 2.0]);
    }
}
