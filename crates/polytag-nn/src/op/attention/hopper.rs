//! Long sequences on GPUs of compute capability 9.0, whose tensor cores read shared memory by themselves.

use super::{Saved, Shape};
use crate::cuda::{Cuda, KernelSource, Launch};
use crate::error::Error;
use crate::tensor::Tensor;

const TEXT: &str = concat!(
    include_str!("instructions.cu"),
    include_str!("tiles.cu"),
    include_str!("hopper_instructions.cu"),
    include_str!("hopper.cu")
);

/// The kernels, plain and with dropout.
static KERNELS: [KernelSource; 2] =
    [kernels("HEAD_DIM=64 BIAS=0 DROPOUT=0"), kernels("HEAD_DIM=64 BIAS=0 DROPOUT=1")];

/// How many blocks of queries the longest sequence has; `hopper.cu` has the same. So many bytes of shared memory either
/// kernel takes: what lies before its barriers, and these.
const PARTS: usize = 3;
const FORWARD_SHARED: usize = 167_936 + 8 * 17;
const BACKWARD_SHARED: usize = 231_424 + 8 * 8;

const fn kernels(define: &'static str) -> KernelSource {
    KernelSource { module: "attention_hopper", text: TEXT, define }
}

/// Whether these kernels take a batch's long sequences.
pub(super) fn takes(cuda: &Cuda, shape: &Shape, bias: Option<&Tensor>) -> bool {
    cuda.is_hopper() && shape.head_dim == 64 && bias.is_none()
}

/// Writes the output and the logarithms of the sums of long sequences.
pub(super) fn forward(
    cuda: &Cuda,
    shape: &Shape,
    qkv: &Tensor,
    (out, log_sums): (&Tensor, &Tensor),
) -> Result<(), Error> {
    let sequences = shape.batch.tiles().long_sequences;
    // A block takes one part after the other, with the whole shared memory of its multiprocessor.
    let blocks = (sequences.count * shape.heads * PARTS).min(cuda.multiprocessors());
    let launch = launch(cuda, shape, "attention_forward_long")
        .shape(blocks, 1, 512)
        .shared(FORWARD_SHARED)
        .address(qkv.address())
        .address(shape.batch.offsets_address())
        .address(sequences.address)
        .int(sequences.count)
        .address(out.address())
        .address(log_sums.address());
    shape.settings(launch).run()
}

/// Writes the gradient of queries, keys and values of long sequences.
pub(super) fn backward(
    cuda: &Cuda,
    shape: &Shape,
    (saved, d_out): (&Saved, &Tensor),
    d_qkv: &Tensor,
) -> Result<(), Error> {
    let sequences = shape.batch.tiles().long_sequences;
    let launch = launch(cuda, shape, "attention_backward_whole")
        .shape(shape.heads, sequences.count, 384)
        .shared(BACKWARD_SHARED)
        .address(saved.qkv.address())
        .address(saved.out.address())
        .address(d_out.address())
        .address(shape.batch.offsets_address())
        .address(sequences.address)
        .address(saved.log_sums.address())
        .address(d_qkv.address());
    shape.settings(launch).run()
}

fn launch<'a>(cuda: &'a Cuda, shape: &Shape, name: &'static str) -> Launch<'a> {
    Launch::new(cuda, &KERNELS[usize::from(shape.dropout.is_some())], name)
}
