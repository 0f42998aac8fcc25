//! A GPU's part: the rows stay there; centres go there and back at each iteration.

use super::groups::Groups;
use super::points::Points;
use super::work::{Chunks, Compared, Worker};
use crate::cuda::{Buffer, Cuda, KernelSource, Launch, Operand, Product};
use crate::element::Element;
use crate::error::Error;

const KERNELS: KernelSource =
    KernelSource { module: "k_means", text: include_str!("k_means.cu"), define: "" };

/// How many rows of scores a block of threads takes, a warp each. The kernel knows it too.
const ROWS_A_BLOCK: usize = 8;

/// How many columns of a mean a block of threads takes, one each. The kernel knows it too.
const COLUMNS_A_BLOCK: usize = 256;

/// A GPU at work.
pub(super) struct CudaWorker {
    cuda: Cuda,
    dimension: usize,
    count: usize,
    chunks: Chunks,
    rows: Buffer,
    /// The nearest centre of each row so far.
    nearest: Buffer,
}

impl CudaWorker {
    /// Brings the rows to the device.
    pub(super) fn new(cuda: &Cuda, points: &Points<'_>, chunks: Chunks) -> Result<CudaWorker, Error> {
        let count = points.count();
        Ok(CudaWorker {
            cuda: cuda.clone(),
            dimension: points.dimension(),
            count,
            chunks,
            rows: Buffer::upload(cuda, points.values())?,
            nearest: Buffer::take(cuda, 4 * count)?,
        })
    }
}

impl Worker for CudaWorker {
    fn assign(&mut self, compared: &Compared, nearest: &mut [u32]) -> Result<(), Error> {
        let clusters = compared.offsets.len();
        let centres = Buffer::upload(&self.cuda, &compared.centres)?;
        let offsets = Buffer::upload(&self.cuda, &compared.offsets)?;
        let stride = self.chunks.clusters.min(clusters);
        let height = self.chunks.rows.min(self.count);
        let scores = Buffer::take(&self.cuda, 4 * height * stride)?;
        let best = Buffer::take(&self.cuda, 4 * height)?;
        let dimension = self.dimension;
        for row in (0..self.count).step_by(height) {
            let rows = height.min(self.count - row);
            for cluster in (0..clusters).step_by(stride) {
                let columns = stride.min(clusters - cluster);
                let centres = matrix(address(&centres, cluster * dimension), dimension);
                self.cuda.full_product(&Product {
                    rows,
                    columns,
                    depth: dimension,
                    left: matrix(address(&self.rows, row * dimension), dimension),
                    right: Operand { transposed: true, ..centres },
                    out: matrix(scores.pointer(), stride),
                    accumulate: false,
                    bias: 0,
                })?;
                Launch::new(&self.cuda, &KERNELS, "nearest_centres")
                    .shape(rows.div_ceil(ROWS_A_BLOCK), 1, 32 * ROWS_A_BLOCK)
                    .buffer(&scores)
                    .int(rows)
                    .int(columns)
                    .int(stride)
                    .address(address(&offsets, cluster))
                    .int(cluster)
                    .buffer(&best)
                    .address(address(&self.nearest, row))
                    .run()?;
            }
        }
        self.nearest.read(0, nearest)
    }

    fn means(&mut self, groups: &Groups, centres: &mut [f32]) -> Result<(), Error> {
        let starts = Buffer::upload(&self.cuda, &groups.starts)?;
        let members = Buffer::upload(&self.cuda, &groups.members)?;
        let means = Buffer::upload(&self.cuda, centres)?;
        let clusters = groups.starts.len() - 1;
        Launch::new(&self.cuda, &KERNELS, "group_means")
            .shape(clusters, self.dimension.div_ceil(COLUMNS_A_BLOCK), COLUMNS_A_BLOCK)
            .buffer(&self.rows)
            .int(self.dimension)
            .buffer(&starts)
            .buffer(&members)
            .buffer(&means)
            .run()?;
        means.read(0, centres)
    }
}

/// Where the number at `index` lies; all are of 32 bits here.
fn address(buffer: &Buffer, index: usize) -> u64 {
    buffer.pointer() + 4 * index as u64
}

/// A matrix in f32.
fn matrix(address: u64, stride: usize) -> Operand {
    Operand { address, element: Element::F32, stride, transposed: false }
}
