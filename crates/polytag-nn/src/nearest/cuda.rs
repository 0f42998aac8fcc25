//! A GPU's part: the vectors stay there; queries go there, and the best positions come back.

use super::{MOST, Near, Numbers};
use crate::cuda::{Buffer, Cuda, KernelSource, Launch, Operand, Product};
use crate::element::Element;
use crate::error::{Bytes, Error};

const KERNELS: KernelSource =
    KernelSource { module: "nearest", text: include_str!("nearest.cu"), define: "" };

/// How many threads a block of every kernel here has. The kernels know it, too.
const THREADS: usize = 256;

/// How many queries meet a chunk at once, and how many vectors a chunk has. Their products are 32 MiB, which stay in the
/// second cache until they are read. Chunks are multiples of 64 vectors: so they begin at multiples of 256 bytes, which
/// cuBLASLt takes for granted, whatever the dimension.
pub(super) const BLOCK: (usize, usize) = (256, 32_768);

/// Vectors on a GPU.
pub(super) struct CudaVectors {
    cuda: Cuda,
    dimension: usize,
    count: usize,
    numbers: Buffer,
    is_narrow: bool,
    offsets: Buffer,
    /// How many queries and vectors meet at once; tests choose it.
    block: (usize, usize),
}

impl CudaVectors {
    pub(super) fn new(
        cuda: &Cuda,
        vectors: Numbers<'_>,
        dimension: usize,
        offsets: &[f32],
    ) -> Result<CudaVectors, Error> {
        let free = cuda.free_memory()?;
        if vectors.bytes() as u64 > free.0 / 2 {
            let bytes = Bytes(vectors.bytes() as u64);
            return Err(Error::Unfit(format!(
                "vectors of {bytes} are more than half of the {free} free on it"
            )));
        }
        let (numbers, is_narrow) = match vectors {
            Numbers::F32(numbers) => (Buffer::upload(cuda, numbers)?, false),
            Numbers::F16(numbers) => (Buffer::upload(cuda, numbers)?, true),
        };
        let offsets_there = Buffer::upload(cuda, offsets)?;
        let count = offsets.len();
        let cuda = cuda.clone();
        Ok(CudaVectors { cuda, dimension, count, numbers, is_narrow, offsets: offsets_there, block: BLOCK })
    }

    /// The same, in other blocks.
    #[cfg(test)]
    pub(super) fn in_blocks(self, block: (usize, usize)) -> CudaVectors {
        CudaVectors { block, ..self }
    }

    pub(super) fn hide(&mut self, position: usize) -> Result<(), Error> {
        self.offsets.write(4 * position, &[f32::NEG_INFINITY])
    }

    pub(super) fn best(
        &self,
        queries: &[f32],
        most: usize,
        offsets: Option<&[f32]>,
    ) -> Result<Vec<Vec<Near>>, Error> {
        let others = offsets.map(|offsets| Buffer::upload(&self.cuda, offsets)).transpose()?;
        let offsets = others.as_ref().unwrap_or(&self.offsets);
        let columns = self.block.1.min(self.count);
        let rows = self.block.0.min(queries.len() / self.dimension);
        let room = Room {
            products: Buffer::take(&self.cuda, 4 * rows * stride(columns))?,
            wide: match self.is_narrow {
                true => Some(Buffer::take(&self.cuda, 4 * columns * self.dimension)?),
                false => None,
            },
        };
        let mut found = Vec::with_capacity(queries.len() / self.dimension);
        for queries in queries.chunks(self.block.0 * self.dimension) {
            found.extend(self.best_of_block(queries, most, offsets, &room)?);
        }
        Ok(found)
    }

    fn best_of_block(
        &self,
        queries: &[f32],
        most: usize,
        offsets: &Buffer,
        room: &Room,
    ) -> Result<Vec<Vec<Near>>, Error> {
        let rows = queries.len() / self.dimension;
        let queries = Buffer::upload(&self.cuda, queries)?;
        let mut kept = Buffer::take(&self.cuda, 8 * rows * most)?;
        kept.clear(0, 8 * rows * most)?;
        let size = keys_in_shared_memory(most);
        let stride = stride(self.block.1.min(self.count));
        for first in (0..self.count).step_by(self.block.1) {
            let columns = self.block.1.min(self.count - first);
            let vectors = matrix(self.chunk(first, columns, room)?, self.dimension);
            self.cuda.full_product(&Product {
                rows,
                columns,
                depth: self.dimension,
                left: matrix(queries.pointer(), self.dimension),
                right: Operand { transposed: true, ..vectors },
                out: matrix(room.products.pointer(), stride),
                accumulate: false,
                bias: 0,
            })?;
            Launch::new(&self.cuda, &KERNELS, "keep_best")
                .shape(rows, 1, THREADS)
                .shared(8 * size)
                .buffer(&room.products)
                .int(columns)
                .int(stride)
                .address(offsets.pointer() + 4 * first as u64)
                .int(first)
                .buffer(&kept)
                .int(most)
                .int(size)
                .run()?;
        }
        let mut keys = vec![0u64; rows * most];
        kept.read(0, &mut keys)?;
        Ok(keys.chunks_exact(most).map(|keys| keys.iter().map_while(|&key| near(key)).collect()).collect())
    }

    /// Where the vectors of a chunk lie in 32 bits.
    fn chunk(&self, first: usize, columns: usize, room: &Room) -> Result<u64, Error> {
        let start = (first * self.dimension) as u64;
        let Some(wide) = &room.wide else { return Ok(self.numbers.pointer() + 4 * start) };
        let count = columns * self.dimension;
        Launch::new(&self.cuda, &KERNELS, "widen_halves")
            .shape(count.div_ceil(2 * THREADS), 1, THREADS)
            .address(self.numbers.pointer() + 2 * start)
            .buffer(wide)
            .long(count)
            .run()?;
        Ok(wide.pointer())
    }
}

/// What a search works in.
struct Room {
    products: Buffer,
    /// A chunk of vectors in 32 bits, where they are kept in 16.
    wide: Option<Buffer>,
}

/// How far apart the products of two queries lie.
fn stride(columns: usize) -> usize {
    columns.next_multiple_of(64)
}

/// How many keys a block of threads sorts: a power of two with room for at least as many as are kept, and for one of each
/// thread.
pub(super) fn keys_in_shared_memory(most: usize) -> usize {
    const {
        assert!(
            (2 * MOST).next_power_of_two() * 8 + 4 <= 48 << 10,
            "fits the shared memory that every kernel has"
        )
    };
    (2 * most).max(2 * THREADS).next_power_of_two()
}

/// What the kernel made one number of, if it is not an empty place.
pub(super) fn near(key: u64) -> Option<Near> {
    let ordered = (key >> 32) as u32;
    let bits = if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered };
    (key != 0).then(|| Near { position: !(key as u32), score: f32::from_bits(bits) })
}

/// A matrix in f32.
fn matrix(address: u64, stride: usize) -> Operand {
    Operand { address, element: Element::F32, stride, transposed: false }
}
