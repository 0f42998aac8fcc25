//! The sums of columns: what a bias that was added to every row has as its gradient.
//!
//! On a GPU in two steps, so that the order of the sum is fixed: blocks of rows, then the blocks.

use crate::cpu::{self, View};
use crate::cuda::{Buffer, Cuda, KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::parameters::{ParameterId, Parameters};
use crate::tensor::Tensor;

const KERNELS: KernelSource =
    KernelSource { module: "column_sums", text: include_str!("column_sums.cu"), define: "" };

/// How many columns a block of threads sums: a warp, eight columns a thread.
const COLUMNS: usize = 256;

/// Adds the column sums of `gradient` to the gradient of `bias`.
pub(super) fn column_sums(
    parameters: &mut Parameters,
    gradient: &Tensor,
    bias: ParameterId,
) -> Result<(), Error> {
    match parameters.device().clone() {
        Device::Cpu(_) => {
            let (place, accumulate) = parameters.gradient(bias);
            let view = View::new(gradient.values(), gradient.rows(), gradient.columns());
            cpu::column_sums(view, place, accumulate);
            Ok(())
        }
        Device::Cuda(cuda) => {
            let (rows, columns) = (gradient.rows(), gradient.columns());
            let blocks = row_blocks(&cuda, rows);
            let partial = Buffer::take(&cuda, 4 * blocks * columns)?;
            let name = match gradient.element() {
                Element::F32 => "partial_sums_f32",
                Element::Bf16 => "partial_sums_bf16",
            };
            Launch::new(&cuda, &KERNELS, name)
                .shape(columns.div_ceil(COLUMNS), blocks, 256)
                .address(gradient.address())
                .buffer(&partial)
                .int(rows)
                .int(columns)
                .run()?;
            finish(&cuda, parameters, (&partial, blocks), bias)
        }
    }
}

/// How many blocks rows are summed in before the blocks are.
pub(super) fn row_blocks(cuda: &Cuda, rows: usize) -> usize {
    rows.div_ceil(64).clamp(1, 2 * cuda.multiprocessors())
}

/// Adds the sum of `partial.1` rows of partial sums to the gradient of a weight that is a vector.
pub(super) fn finish(
    cuda: &Cuda,
    parameters: &mut Parameters,
    (partial, blocks): (&Buffer, usize),
    weight: ParameterId,
) -> Result<(), Error> {
    let columns = parameters.info(weight).len();
    let (place, accumulate) = parameters.gradient_operand(weight);
    Launch::new(cuda, &KERNELS, "finish_sums")
        .shape(columns.div_ceil(32), 1, 256)
        .buffer(partial)
        .address(place.address)
        .int(blocks)
        .int(columns)
        .int(usize::from(accumulate))
        .run()
}
