//! The ops: one file each, with forward, backward, the CPU's and the GPU's side, and a test of the
//! gradient against finite differences.
//!
//! An op takes the tape and [`Var`](crate::tape::Var)s and gives one. What it does is coarse and fused,
//! so that a training step is few passes over memory. Kernels stand beside their op as `.cu`.

mod add; // sums of gradients
mod column_sums; // gradients of biases
mod linear; // y = x · wᵀ + b

pub(crate) use add::add_to;
pub use linear::linear;

#[cfg(test)]
pub(crate) mod testing; // gradients against finite differences, and one device against the other
