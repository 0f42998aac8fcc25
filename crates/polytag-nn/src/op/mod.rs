//! The ops: one file or folder each, with forward, backward, the CPU's and the GPU's side, and a test of the
//! gradient against finite differences.
//!
//! An op takes the tape and [`Var`](crate::tape::Var)s and gives one. What it does is coarse and fused,
//! so that a training step is few passes over memory. Kernels stand beside their op as `.cu`.

mod add; // sums of gradients
mod column_sums; // gradients of biases
mod embedding; // rows of tables, a token each
mod linear; // y = x · wᵀ + b
mod relative_bias; // MPNet's bias by distance
mod attention; // softmax of queries by keys, times values
mod eight_bit; // both of these in 8-bit integers, where there is no way back
mod feed_forward; // y = gelu(x · upᵀ + b) · downᵀ
mod add_norm; // residual connections and layer norm
mod dropout; // dropout by itself
mod pool; // from a row a token to a row a sequence
mod normalise; // rows to unit length
mod rows; // some rows of a matrix
mod sum; // several matrices added up
mod weight; // a weight as a value
mod gather; // some rows of a weight as a value
mod product; // rows against rows
mod add_bias; // a row added to every row
mod add_rows; // rows of a weight added, some left out
mod label_attention; // every label reads a text for itself

pub(crate) use add::add_to;
pub use add_bias::{add_bias, add_chosen_bias};
pub use add_norm::{AddNorm, add_norm};
pub use add_rows::add_rows;
pub use attention::{Attention, attention};
pub use dropout::dropout;
pub use eight_bit::Products;
pub use embedding::{Tables, embedding};
pub use feed_forward::{FeedForward, feed_forward};
pub use gather::{RowIds, gather};
pub use label_attention::{
    ChunkMemory, Comparison, LabelAttention, label_attention, label_attention_weights,
};
pub use linear::linear;
pub use normalise::normalise;
pub use pool::{Pooling, pool};
pub use product::{product, product_with_rows};
pub use relative_bias::{DISTANCES, relative_bias};
pub use rows::rows;
pub use sum::sum;
pub use weight::weight;

use crate::error::Error;

/// Whether kernels that take eight columns at a time can take a matrix of this width.
fn check_width(columns: usize) -> Result<(), Error> {
    match columns % 8 {
        0 => Ok(()),
        _ => Err(Error::Unfit(format!(
            "the GPU takes hidden sizes that are multiples of 8, and this one is {columns}; use the CPU"
        ))),
    }
}

#[cfg(test)]
pub(crate) mod testing; // gradients against finite differences, and one device against the other
