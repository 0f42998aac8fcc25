//! The model folder.
//!
//! A fitted method enters through a [`ModelWriter`] and is on disk whole or not at all. What leaves
//! through a [`ModelFolder`] has been checked byte by byte against the manifest. Labels that are
//! added, removed or renamed later go to a [`LabelLog`] beside it.
//!
//! ```text
//! manifest.json         format version, method, configuration, seed, sources, a checksum a file
//! labels.jsonl          the labels, with how many training documents carry each
//! weights.safetensors   what the method learned
//! labels.log            changes to the labels since, one checksummed line each
//! evaluation.json       how good it was found to be, if that was kept
//! feedback.jsonl        documents and the labels that people accepted for them while it was served
//! labels.snapshot       what many such lines came down to; the log goes on from there
//! ```

mod error; // what can be wrong with a folder
mod manifest; // what it holds
mod array; // arrays that stay in their file
mod tensors; // arrays of numbers in it
mod label_table; // the labels in it
mod folder; // how it is read
mod label_log; // what changed since
mod writer; // how it is written

pub use array::{MappedTensors, Number};
pub use error::ArtifactError;
pub use folder::ModelFolder;
pub use label_log::{LabelLog, NAME as LABEL_LOG, SNAPSHOT as LABEL_SNAPSHOT};
pub use manifest::{FORMAT_VERSION, IndexReport, MANIFEST, Manifest, StoredFile};
pub use tensors::{Tensors, TensorsBuilder};
pub use writer::{EVALUATION, FEEDBACK, ModelWriter, Provenance};
