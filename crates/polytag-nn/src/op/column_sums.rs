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

/// How many vectors [`finish`] sums at once.
const MOST_VECTORS: usize = 3;

/// Adds the column sums of `gradient` to the gradient of `bias`: a vector, or the first row of a table.
pub(super) fn column_sums(
    parameters: &mut Parameters,
    gradient: &Tensor,
    bias: ParameterId,
) -> Result<(), Error> {
    match parameters.device().clone() {
        Device::Cpu(_) => {
            let place = &mut parameters.cleared_gradient(bias)[..gradient.columns()];
            cpu::column_sums(View::new(gradient.values(), gradient.rows(), gradient.columns()), place, true);
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
            finish(&cuda, parameters, (&partial, blocks), &[Some(bias)])
        }
    }
}

/// How many blocks rows are summed in before the blocks are.
pub(super) fn row_blocks(cuda: &Cuda, rows: usize) -> usize {
    rows.div_ceil(64).clamp(1, 2 * cuda.multiprocessors())
}

/// Adds sums of partial sums to the gradients of at most three vectors of one length. `partial` holds,
/// for each of them, as many rows as there are blocks; where there is `None`, they are passed over.
pub(super) fn finish(
    cuda: &Cuda,
    parameters: &mut Parameters,
    (partial, blocks): (&Buffer, usize),
    weights: &[Option<ParameterId>],
) -> Result<(), Error> {
    let Some(columns) = weights.iter().flatten().next().map(|&id| parameters.info(id).columns) else {
        return Ok(());
    };
    let mut places = [(0, false); MOST_VECTORS];
    for (place, weight) in places.iter_mut().zip(weights) {
        let Some(weight) = *weight else { continue };
        // A table of which only the first row is used has zeros in its others.
        *place = match parameters.info(weight).rows {
            1 => {
                let (operand, accumulate) = parameters.gradient_operand(weight);
                (operand.address, accumulate)
            }
            _ => (parameters.cleared_gradient_operand(weight)?.address, true),
        };
    }
    let mut launch = Launch::new(cuda, &KERNELS, "finish_sums")
        .shape(columns.div_ceil(32), weights.len(), 1024)
        .buffer(partial)
        .int(blocks)
        .int(columns);
    for (address, accumulate) in places {
        launch = launch.address(address).int(usize::from(accumulate));
    }
    launch.run()
}
