//! Attention's kernels for every GPU, and which of them a batch takes.

use super::{Saved, Shape, hopper};
use crate::cuda::{Buffer, Cuda, KernelSource, Launch};
use crate::device::Device;
use crate::error::Error;
use crate::op::relative_bias::DISTANCES;
use crate::tensor::Tensor;

const TEXT: &str = concat!(
    include_str!("instructions.cu"),
    include_str!("tiles.cu"),
    include_str!("forward.cu"),
    include_str!("bias.cu"),
    include_str!("backward.cu"),
    include_str!("long.cu")
);

/// The kernels for heads of 32 or 64 columns: plain, with dropout, with a bias, with both. What holds for
/// all scores is decided when a kernel is compiled: a branch in the innermost loop costs more than its test.
static HEADS_OF_32: [KernelSource; 4] = [
    kernels("HEAD_DIM=32 BIAS=0 DROPOUT=0"),
    kernels("HEAD_DIM=32 BIAS=0 DROPOUT=1"),
    kernels("HEAD_DIM=32 BIAS=1 DROPOUT=0"),
    kernels("HEAD_DIM=32 BIAS=1 DROPOUT=1"),
];
static HEADS_OF_64: [KernelSource; 4] = [
    kernels("HEAD_DIM=64 BIAS=0 DROPOUT=0"),
    kernels("HEAD_DIM=64 BIAS=0 DROPOUT=1"),
    kernels("HEAD_DIM=64 BIAS=1 DROPOUT=0"),
    kernels("HEAD_DIM=64 BIAS=1 DROPOUT=1"),
];

const fn kernels(define: &'static str) -> KernelSource {
    KernelSource { module: "attention", text: TEXT, define }
}

/// A kernel's launch, with what the shape says of it.
struct Kernels<'a> {
    cuda: &'a Cuda,
    shape: &'a Shape,
    source: &'static KernelSource,
    with_bias: bool,
}

impl<'a> Kernels<'a> {
    fn new(cuda: &'a Cuda, shape: &'a Shape, with_bias: bool) -> Kernels<'a> {
        let variant = 2 * usize::from(with_bias) + usize::from(shape.dropout.is_some());
        let source = match shape.head_dim {
            32 => &HEADS_OF_32[variant],
            64 => &HEADS_OF_64[variant],
            other => panic!("heads of {other} columns are refused when an encoder is read"),
        };
        Kernels { cuda, shape, source, with_bias }
    }

    /// A kernel on so many blocks a head, with so many tiles of 64 rows in shared memory, and so many bytes besides.
    fn launch(
        &self,
        name: &'static str,
        (blocks, threads): (usize, usize),
        (tiles, more): (usize, usize),
    ) -> Launch<'a> {
        let distances = if self.with_bias { 4096 } else { 0 };
        Launch::new(self.cuda, self.source, name)
            .shape(blocks, self.shape.heads, threads)
            .shared(tiles * 128 * self.shape.head_dim + more + distances)
    }
}

/// Writes the output and the logarithms of the sums.
pub(super) fn forward(
    cuda: &Cuda,
    shape: &Shape,
    (qkv, bias): (&Tensor, Option<&Tensor>),
    (out, log_sums): (&Tensor, &Tensor),
) -> Result<(), Error> {
    let tiles = shape.batch.tiles();
    let (mut first, mut count) = (tiles.all, tiles.count);
    if hopper::takes(cuda, shape, bias) {
        hopper::forward(cuda, shape, qkv, (out, log_sums))?;
        first += 8 * tiles.long as u64;
        count -= tiles.long;
    }
    let launch = Kernels::new(cuda, shape, bias.is_some())
        .launch("attention_forward", (count, 128), (5, 0))
        .address(qkv.address())
        .address(shape.batch.offsets_address())
        .address(first)
        .address(bias.map_or(0, Tensor::address))
        .address(out.address())
        .address(log_sums.address());
    shape.settings(launch).run()
}

/// The gradient of queries, keys and values, and of the bias if `d_bias` is there to take it.
pub(super) fn backward(
    cuda: &Cuda,
    shape: &Shape,
    (saved, d_out): (&Saved, &Tensor),
    (bias, d_bias): (Option<&Tensor>, Option<&Tensor>),
) -> Result<Tensor, Error> {
    let (tokens, hidden) = (saved.out.rows(), saved.out.columns());
    let d_qkv = Tensor::scratch(&Device::Cuda(cuda.clone()), tokens, 3 * hidden, saved.qkv.element())?;
    let sums = match d_bias {
        Some(_) => {
            let mut sums = Buffer::take(cuda, 8 * shape.heads * DISTANCES)?;
            sums.clear(0, 8 * shape.heads * DISTANCES)?;
            Some(sums)
        }
        None => None,
    };
    let sums_address = sums.as_ref().map_or(0, Buffer::pointer);
    let bias_address = bias.map_or(0, Tensor::address);
    let tiles = shape.batch.tiles();
    let kernels = Kernels::new(cuda, shape, bias.is_some());
    let short = kernels
        .launch("attention_backward_short", (tiles.short_sequences.count, 256), (8, 35_328))
        .address(saved.qkv.address())
        .address(saved.out.address())
        .address(d_out.address())
        .address(shape.batch.offsets_address())
        .address(tiles.short_sequences.address)
        .address(bias_address)
        .address(saved.log_sums.address())
        .address(d_qkv.address())
        .address(sums_address);
    shape.settings(short).run()?;
    if hopper::takes(cuda, shape, bias) {
        hopper::backward(cuda, shape, (saved, d_out), &d_qkv)?;
        return Ok(d_qkv);
    }
    let starts = Buffer::take(cuda, 2 * 4 * shape.heads * tokens)?;
    let queries = kernels
        .launch("attention_backward_queries", (tiles.long, 128), (6, 512))
        .address(saved.qkv.address())
        .address(saved.out.address())
        .address(d_out.address())
        .address(shape.batch.offsets_address())
        .address(tiles.all)
        .address(bias_address)
        .address(saved.log_sums.address())
        .buffer(&starts)
        .address(d_qkv.address())
        .address(sums_address);
    shape.settings(queries).run()?;
    let keys = kernels
        .launch("attention_backward_keys", (tiles.long, 128), (6, 2560))
        .address(saved.qkv.address())
        .address(d_out.address())
        .address(shape.batch.offsets_address())
        .address(tiles.all)
        .address(bias_address)
        .buffer(&starts)
        .address(d_qkv.address());
    shape.settings(keys).run()?;
    if let (Some(sums), Some(d_bias)) = (&sums, d_bias) {
        Launch::new(cuda, kernels.source, "attention_bias_gradient")
            .shape((shape.heads * DISTANCES).div_ceil(256), 1, 256)
            .buffer(sums)
            .address(d_bias.address())
            .int(shape.heads * DISTANCES)
            .run()?;
    }
    Ok(d_qkv)
}

impl Shape {
    /// The last arguments of every kernel.
    pub(super) fn settings<'a>(&self, launch: Launch<'a>) -> Launch<'a> {
        launch.int(self.batch.tokens()).int(self.heads).float(self.scale()).paired_dropout(self.dropout)
    }
}
