//! What can be wrong with a model folder, each with its remedy.

use std::path::PathBuf;

use super::manifest::FORMAT_VERSION;
use crate::data::{DataError, SpaceError};
use crate::storage::StorageError;

/// A fault in a model folder.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The bytes could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The label table is not in order.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The encoder could not be written.
    #[error(transparent)]
    Encoder(Box<polytag_nn::Error>),
    /// The folder is not a model.
    #[error("{}: not a model folder: it holds no manifest.json; `polytag fit` makes one", dir.display())]
    NotAModel {
        /// The folder.
        dir: PathBuf,
    },
    /// The model is of a later time.
    #[error(
        "{}: written in format version {found}, and this program reads up to {FORMAT_VERSION}; update polytag",
        path.display()
    )]
    Newer {
        /// The manifest.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// A file is not what the manifest says it is.
    #[error("{}: damaged: {problem}; restore it from a copy or fit the model again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The model was made by a method this program does not know.
    #[error("{}: made by the method {method:?}, which this program does not know; update polytag", path.display())]
    UnknownMethod {
        /// The manifest.
        path: PathBuf,
        /// The method.
        method: String,
    },
    /// A logged change does not fit the labels.
    #[error("{}: change {change} does not fit the model: {source}", path.display())]
    Replay {
        /// The log.
        path: PathBuf,
        /// The change, from one.
        change: usize,
        /// Why it does not fit.
        source: SpaceError,
    },
    /// The model folder was replaced while its labels were being changed.
    #[error("{}: the model was replaced by another meanwhile; make the change again", path.display())]
    Replaced {
        /// The log.
        path: PathBuf,
    },
    /// Labels are kept elsewhere.
    #[error("{}: its labels are kept in a database; change them there", path.display())]
    Elsewhere {
        /// The model folder.
        path: PathBuf,
    },
    /// Someone else is changing the labels.
    #[error("{}: another program is changing this model; try again when it is done, or if that is a server, change labels there (POST /v1/models/NAME/labels)", path.display())]
    Locked {
        /// The model folder.
        path: PathBuf,
    },
}
