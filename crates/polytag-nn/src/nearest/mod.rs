//! The nearest of many vectors: vectors enter once and stay on a device; queries enter, and the positions with the
//! greatest scores leave. A score is the product of query and vector, plus the position's offset.
//!
//! On a GPU, a block of queries meets a chunk of vectors in one matrix product, and of each query only the best
//! positions so far are kept. Products are made in f32, as those of [`cluster`](crate::cluster) are; vectors in 16 bits
//! are widened on the device, a chunk at a time, which is exact. Two products of the same numbers then differ by the
//! order of their sums alone.
//!
//! Memory on a GPU: the vectors, 4 bytes a position, and while it searches 32 MiB of products, [`MOST`] keys of 8 bytes a
//! query of a block of 256 (4 MiB), the queries of a block, other offsets where there are any, and for vectors in 16 bits a
//! chunk of 32,768 in 32 bits: nothing grows with queries times vectors.
//!
//! On a CPU it is plain loops, for tests: whoever searches on a CPU has better means.

mod cpu;
mod cuda;

use half::f16;

use crate::device::Device;
use crate::error::Error;
use cpu::CpuVectors;
use cuda::CudaVectors;

/// How many positions a query can be answered with.
pub const MOST: usize = 2048;

/// The numbers of vectors, end to end.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// In 32 bits.
    F32(&'a [f32]),
    /// In 16 bits.
    F16(&'a [f16]),
}

impl Numbers<'_> {
    fn len(&self) -> usize {
        match self {
            Numbers::F32(numbers) => numbers.len(),
            Numbers::F16(numbers) => numbers.len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Numbers::F32(numbers) => size_of_val(*numbers),
            Numbers::F16(numbers) => size_of_val(*numbers),
        }
    }
}

/// A position and its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Near {
    /// The position.
    pub position: u32,
    /// The product of its vector and the query, plus its offset.
    pub score: f32,
}

/// Vectors on a device.
///
/// ```
/// use polytag_nn::device::Device;
/// use polytag_nn::nearest::{Nearest, Numbers};
///
/// let vectors = [1.0, 0.0, 0.0, 1.0, 0.6, 0.8];
/// let nearest = Nearest::new(&Device::cpu(), Numbers::F32(&vectors), 2, &[0.0, 0.0, f32::NEG_INFINITY])?;
/// let best = nearest.best(&[0.25, 0.5], 3, None)?;
/// assert_eq!(best[0].iter().map(|near| near.position).collect::<Vec<_>>(), [1, 0]);
/// # Ok::<(), polytag_nn::Error>(())
/// ```
pub struct Nearest {
    dimension: usize,
    count: usize,
    side: Side,
}

enum Side {
    Cpu(CpuVectors),
    Cuda(CudaVectors),
}

impl Nearest {
    /// Brings vectors of `dimension` numbers to a device, with an offset each. A position whose offset is minus infinity
    /// is never answered with.
    ///
    /// # Errors
    /// If there is not one vector an offset, if the device has not enough memory, or fails. On a GPU vectors may take half
    /// of what is free and no more: what works beside them needs some, too.
    pub fn new(
        device: &Device,
        vectors: Numbers<'_>,
        dimension: usize,
        offsets: &[f32],
    ) -> Result<Nearest, Error> {
        let count = offsets.len();
        if dimension == 0 || count.checked_mul(dimension) != Some(vectors.len()) || count > i32::MAX as usize
        {
            let found = vectors.len();
            return Err(Error::Unfit(format!("{found} numbers are not {count} vectors of {dimension}")));
        }
        let side = match device {
            Device::Cpu(_) => Side::Cpu(CpuVectors::new(vectors, offsets)),
            Device::Cuda(cuda) => Side::Cuda(CudaVectors::new(cuda, vectors, dimension, offsets)?),
        };
        Ok(Nearest { dimension, count, side })
    }

    /// Never answers with a position from now on.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn hide(&mut self, position: usize) -> Result<(), Error> {
        assert!(position < self.count, "a position of {}", self.count);
        match &mut self.side {
            Side::Cpu(vectors) => {
                vectors.hide(position);
                Ok(())
            }
            Side::Cuda(vectors) => vectors.hide(position),
        }
    }

    /// The best `most` positions of each query, by score, then position; fewer where there are fewer. `offsets` are in the
    /// place of those it has, for this once. A score that is no number is passed over.
    ///
    /// # Errors
    /// If the queries are not whole ones, if `most` is above [`MOST`], if there is not one offset a position, or if the
    /// device fails.
    pub fn best(
        &self,
        queries: &[f32],
        most: usize,
        offsets: Option<&[f32]>,
    ) -> Result<Vec<Vec<Near>>, Error> {
        let problem = if !queries.len().is_multiple_of(self.dimension) {
            format!("{} numbers are no queries of {}", queries.len(), self.dimension)
        } else if most > MOST {
            format!("{most} positions were asked for, and {MOST} can be had")
        } else if offsets.is_some_and(|offsets| offsets.len() != self.count) {
            format!("offsets are one for each of {} positions", self.count)
        } else if most == 0 || self.count == 0 {
            return Ok(vec![Vec::new(); queries.len() / self.dimension]);
        } else {
            return match &self.side {
                Side::Cpu(vectors) => Ok(vectors.best((queries, self.dimension), most, offsets)),
                Side::Cuda(vectors) => vectors.best(queries, most, offsets),
            };
        };
        Err(Error::Unfit(problem))
    }
}

#[cfg(test)]
impl Nearest {
    /// The same, in other blocks of queries and vectors where it lies on a GPU.
    fn in_blocks(self, block: (usize, usize)) -> Nearest {
        let side = match self.side {
            Side::Cuda(vectors) => Side::Cuda(vectors.in_blocks(block)),
            side => side,
        };
        Nearest { side, ..self }
    }
}

impl std::fmt::Debug for Nearest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nearest").field("dimension", &self.dimension).field("count", &self.count).finish()
    }
}

#[cfg(test)]
mod tests;
