//! Some rows of a matrix, such as the anchors of a batch whose other half are their positives.

use std::ops::Range;

use crate::cpu;
use crate::cuda::{Cuda, KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::tape::{Backward, Flow, Tape, Var};
use crate::tensor::Tensor;

const KERNELS: KernelSource = KernelSource { module: "rows", text: include_str!("rows.cu"), define: "" };

/// The rows of `range` of a matrix in f32.
///
/// # Panics
/// If there are no such rows.
pub fn rows(tape: &mut Tape<'_>, input: &Var, range: Range<usize>) -> Result<Var, Error> {
    let from = input.tensor();
    assert!(range.start <= range.end && range.end <= from.rows(), "the rows are there");
    assert_eq!(from.element(), Element::F32, "rows are taken of embeddings");
    let width = from.columns();
    let mut out = Tensor::scratch(&from.device(), range.len(), width, Element::F32)?;
    match from.device() {
        Device::Cpu(_) => {
            out.values_mut().copy_from_slice(&from.values()[range.start * width..range.end * width]);
        }
        Device::Cuda(cuda) => {
            let first = from.address() + 4 * (range.start * width) as u64;
            copy_numbers(&cuda, first, out.address(), range.len() * width)?;
        }
    }
    let shape = (from.rows(), width);
    let op = input.link().map(|link| -> Box<dyn Backward> { Box::new(Rows { link, range, shape }) });
    Ok(tape.push(out, op))
}

/// Copies `count` numbers in f32.
pub(super) fn copy_numbers(cuda: &Cuda, from: u64, to: u64, count: usize) -> Result<(), Error> {
    one_a_thread(cuda, "copy_numbers", (from, to), count)
}

/// Adds `count` numbers in f32 to others.
pub(super) fn add_numbers(cuda: &Cuda, from: u64, to: u64, count: usize) -> Result<(), Error> {
    one_a_thread(cuda, "add_numbers", (from, to), count)
}

fn one_a_thread(
    cuda: &Cuda,
    kernel: &'static str,
    (from, to): (u64, u64),
    count: usize,
) -> Result<(), Error> {
    let launch = Launch::new(cuda, &KERNELS, kernel).shape(count.div_ceil(256), 1, 256);
    launch.address(from).address(to).long(count).run()
}

struct Rows {
    link: usize,
    range: Range<usize>,
    shape: (usize, usize),
}

impl Backward for Rows {
    fn name(&self) -> &'static str {
        "rows"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        let ((height, width), device) = (self.shape, gradient.device());
        let (mut place, accumulate) = flow.slot_shaped(self.link, self.shape, Element::F32)?;
        if !accumulate {
            place = Tensor::zeros(&device, height, width, Element::F32)?;
        }
        let first = self.range.start * width;
        match &device {
            Device::Cpu(_) => {
                let rows = &mut place.values_mut()[first..first + gradient.values().len()];
                cpu::axpy(1.0, gradient.values(), rows);
            }
            Device::Cuda(cuda) => {
                let to = place.address() + 4 * first as u64;
                add_numbers(cuda, gradient.address(), to, self.range.len() * width)?;
            }
        }
        flow.put(self.link, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::sum;
    use crate::op::testing::{Case, Matrix};

    /// Both halves, the second one added to the first.
    fn halves(tape: &mut Tape<'_>, input: &Var) -> Result<Var, Error> {
        let half = input.tensor().rows() / 2;
        let first = rows(tape, input, 0..half)?;
        let second = rows(tape, input, half..2 * half)?;
        sum(tape, &[first, second])
    }

    #[test]
    fn gradients_match_finite_differences() {
        Case::new("rows")
            .input(Matrix::random(5, 3, 1))
            .check_gradients(|tape, inputs, _| halves(tape, &inputs[0]));
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        let case = Case::new("rows").element(Element::F32).input(Matrix::random(33, 100, 1));
        case.compare_devices(|tape, inputs, _| halves(tape, &inputs[0]));
    }
}
