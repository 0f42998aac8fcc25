//! The compute engine of polytag: BERT-family encoders that train and run on CPU and CUDA.

pub mod random; // random numbers without a state: a function of a key and a place
pub mod cpu; // slices in, slices out: the arithmetic of the CPU, in the widest instructions it has
