//! The compute engine of polytag: BERT-family encoders that train and run on CPU and CUDA.
//!
//! It knows tokens and numbers; it knows nothing of labels, tasks or files other than weights. The
//! modules stand in the order they rest on each other.
//!
//! A forward pass is a sequence of coarse [`op`]s over matrices ([`tensor::Tensor`]) on a
//! [`device::Device`], noted on a [`tape::Tape`] if it is to be gone back over. Batches are packed
//! ([`batch::Batch`]): tokens lie end to end, and nothing is done for padding. Everything is
//! deterministic: the same seed on the same device gives the same bytes.

pub mod error; // what can go wrong, and whose move it is
pub mod element; // what a matrix is made of
pub mod random; // random numbers without a state: a function of a key and a place
pub mod cpu; // slices in, slices out: the arithmetic of the CPU, in the widest instructions it has
pub mod host_memory; // how much memory the machine has, and how much is free
mod memory; // memory that is kept for the next one who asks
pub mod cuda; // a GPU, found when the program runs
pub mod device; // where the work is done
pub mod tensor; // matrices on a device
pub mod cluster; // vectors that lie near each other, by k-means
pub mod nearest; // the best of many vectors for a query
pub mod batch; // texts of a batch, packed
pub mod parameters; // weights and their gradients
pub mod tape; // what was done, so that it can be gone back over
pub mod op; // the ops: forward, backward, both devices
pub mod loss; // how far off: single numbers to go back from
pub mod world; // devices that train together
pub mod optimizer; // AdamW, one pass over all weights
pub mod schedule; // how the learning rate goes up and down
pub mod train; // the loop that every training shares
pub mod weights; // safetensors, read and written
pub mod encoder; // BERT-family encoders
pub mod tokenizer; // text to token ids
pub mod sentence; // texts to vectors
pub mod measure; // how long a training step takes, and what the machine could do

#[cfg(test)]
mod golden; // what Python computed

pub use error::Error;
