//! Encoders on hand.
//!
//! A name or a path enters; the folder of an encoder leaves: configuration, tokenizer and weights as
//! Hugging Face lays them out, or words and their vectors, checked. An encoder is known by name
//! ([`catalogue`]), lies in a folder of the user, or comes from the model hub by its name there.
//! [`pull()`] puts those of the first and last kind into an [`EncoderCache`], which all runs share. A
//! [`TextEncoder`] is a folder of either kind, loaded.
//!
//! Weights are read from safetensors only. The older format is a pickle, and reading a pickle runs
//! whatever code it holds.

mod error; // why there is no encoder
mod word_vectors; // the mean of the vectors of words
mod text_encoder; // a network or word vectors, loaded
pub mod catalogue; // the encoders known by name
mod folder; // what an encoder's folder must hold
mod source; // where a folder came from, and whether it is still the same
mod cache; // the folders that were pulled
mod pull; // from the network into the cache

#[cfg(test)]
mod testing; // small encoders, a pip and a hub, all made up

pub use cache::{EncoderCache, ListedEncoder};
pub use error::EncoderError;
pub use pull::{HubConfig, PullConfig, Pulled, pull};
pub use source::{FileRecord, Origin, Source};
pub use text_encoder::TextEncoder;
pub use word_vectors::WordVectors;
