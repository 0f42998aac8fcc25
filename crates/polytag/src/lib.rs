//! polytag tags text with the right labels out of a very large label set that keeps changing.
//!
//! The modules stand in the order data flows through them, and a module uses only those above it
//! (`tests/architecture.rs` checks that). A task folder is read and checked by [`data`], cut into
//! words by [`text`], turned into sparse vectors by [`sparse`] or encoded with an [`encoder`], searched through an [`index`],
//! kept on disk as an [`artifact`], answered by a [`predict::Predictor`], measured by [`metric`], and
//! learned by a [`method`], which measures while it trains and draws a
//! [`picture`] of its course.
//!
//! The library is synchronous and quiet: it prints nothing, reads no environment variable and sets
//! up no thread pool. It reports through [`progress::Progress`] and stops when told to.

pub mod ids; // DocId and LabelId: what is counted, and never confused
pub mod ranking; // scored labels, finite and ordered
pub mod progress; // how long work is watched and stopped
mod algebra; // symmetric matrices: what stretches, and what undoes it

pub mod storage; // bytes in and out: decompression, bounded lines, folders written whole
pub mod columns; // tables of columns: Arrow batches, whatever types their columns have
pub mod data; // task folder in: documents, labels, splits, statistics, importers
pub mod text; // words out of text
pub mod picture; // drawings and pages out of vectors and curves
pub mod sparse; // vectors out of words
pub mod encoder; // encoders on hand: known by name, from a folder or from the hub
pub mod index; // the best labels for a vector
pub mod artifact; // the model folder: checked when read, whole when written
pub mod predict; // the seam between a fitted method and everyone who asks it
pub mod metric; // how well labels were found
pub mod method; // how labels are found: one file or folder a method

mod error;

pub use error::{Error, Fault};
