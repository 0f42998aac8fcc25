//! The ops: one file each, with forward, backward, the CPU's and the GPU's side, and a test of the
//! gradient against finite differences.
//!
//! An op takes the tape and [`Var`](crate::tape::Var)s and gives one. What it does is coarse and fused,
//! so that a training step is few passes over memory. Kernels stand beside their op as `.cu`.

mod add; // sums of gradients
mod column_sums; // gradients of biases
mod linear; // y = x · wᵀ + b
mod relative_bias; // MPNet's bias by distance
mod attention; // softmax of queries by keys, times values

pub(crate) use add::add_to;
pub use attention::{Attention, attention};
pub use linear::linear;
pub use relative_bias::{DISTANCES, relative_bias};

#[cfg(test)]
mod testing; // gradients against finite differences, and one device against the other
