//! The arithmetic of the CPU: slices of `f32` enter and leave.
//!
//! Everything an encoder computes, forward and backward, without a notion of tensors, tapes or devices.
//! Kernels are written once and compiled for AVX-512, AVX2 and the plain machine; which one runs is found
//! out at run time. Work is shared out over the threads of the rayon pool that the caller runs in. The
//! number of threads changes the time and never the bytes: sums are cut where the shapes say, not where the
//! threads do.

mod memory; // aligned buffers, scratch, and slices that threads write side by side
mod simd; // vectors of numbers in the machine's instructions
mod view; // a matrix as numbers and strides
mod functions; // exponential and GELU of a vector
mod product; // matrix products, with bias and GELU on the way out
mod eight_bit; // matrix products in 8-bit integers
mod elementwise; // functions of numbers one by one
mod rows; // softmax of rows, sums of columns
mod norm; // bias, dropout, residual and layer norm
mod attention; // attention over packed sequences
mod peak; // the most that the machine can do
#[cfg(test)]
pub(crate) mod testing;

pub use attention::{Attention, AttentionGradients, AttentionSaved, SPAN, attention, attention_backward};
pub use eight_bit::{EightBitThen, EightBitWeights, MAX_DEPTH, feed_forward_eight_bit, multiply_eight_bit};
pub use elementwise::{axpy, dot, exp, gelu, gelu_backward, sum_of_squares};
pub use memory::Aligned;
pub(crate) use memory::Scratch;
pub use norm::{AddNorm, NormGradients, NormKept, NormSaved, add_norm, add_norm_backward};
pub(crate) use peak::peak;
pub use product::{Packed, Then, multiply, multiply_alone, multiply_once};
pub(crate) use rows::first_greatest;
pub use rows::{column_sums, log_sum_exp, scaled_softmax, softmax_rows};
pub use view::View;

/// The widest instructions that this machine has, by name.
pub fn instructions() -> &'static str {
    simd::Set::best().name()
}

/// The best instructions for products of bytes that this machine has, by name.
pub fn integer_instructions() -> &'static str {
    eight_bit::instructions()
}
