//! Why a method could not be fitted.

use std::path::PathBuf;

use crate::Fault;
use crate::data::DataError;
use crate::encoder::EncoderError;
use crate::index::IndexError;
use crate::picture::PictureError;
use crate::predict::{PredictError, engine_fault};
use crate::sparse::TfidfError;
use crate::storage::StorageError;
use crate::text::AnalyzerError;

/// A failure of a method.
#[derive(Debug, thiserror::Error)]
pub enum MethodError {
    /// No method has this name.
    #[error("no method is called {name:?}; there are: {}", super::METHODS.join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// A setting is not what the method takes.
    #[error("{method}: {problem}")]
    Config {
        /// The method.
        method: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The documents could not be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// What does not fit in memory could not be kept on the disk.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// How text is weighed.
    #[error(transparent)]
    Tfidf(#[from] TfidfError),
    /// How text is cut.
    #[error(transparent)]
    Analyzer(#[from] AnalyzerError),
    /// A label could not be taken in.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// The encoder is not on hand.
    #[error(transparent)]
    Encoder(#[from] EncoderError),
    /// The encoder does not work.
    #[error(transparent)]
    Engine(#[from] polytag_nn::Error),
    /// The index of label vectors.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The picture of the labels.
    #[error(transparent)]
    Picture(#[from] PictureError),
    /// There is nothing to learn from.
    #[error(
        "{method}: no training document carries a label, so there is nothing to learn from; `lexical` and \
             `frozen` need no pairs"
    )]
    NoPairs {
        /// The method.
        method: &'static str,
    },
    /// There is no train file.
    #[error(
        "{}: there is no train file here (train.jsonl, .jsonl.gz, .jsonl.zst, .parquet or .arrow) for {method} to learn from; \
             add one, or take `lexical` or `frozen`, which need none",
        dir.display()
    )]
    NoTrain {
        /// The method.
        method: &'static str,
        /// The task folder.
        dir: PathBuf,
    },
    /// There are too few documents to tell from each other.
    #[error(
        "{method}: at least two train documents with a text are needed, and the task has {documents}; `lexical` and \
             `frozen` need none"
    )]
    NoDocuments {
        /// The method.
        method: &'static str,
        /// How many there are.
        documents: usize,
    },
    /// Several devices were named for a method that works on one.
    #[error(
        "{method} works on one device, and {devices} were named; name one. Several devices train the classifiers and the \
         methods after paper 003 (of-lan, of-de, classifier and their peers) together"
    )]
    Alone {
        /// The method.
        method: &'static str,
        /// How many were named.
        devices: usize,
    },
    /// A model that this one is made of.
    #[error(transparent)]
    Part(Box<crate::Error>),
    /// The work was asked to stop.
    #[error("stopped before the end")]
    Stopped,
}

impl MethodError {
    /// Whether labelled documents are missing, or any at all.
    pub(super) fn is_for_want_of_documents(&self) -> bool {
        matches!(self, MethodError::NoPairs { .. } | MethodError::NoDocuments { .. })
    }

    /// Whose move it is.
    pub fn fault(&self) -> Fault {
        match self {
            MethodError::Predict(error) => error.fault(),
            MethodError::Encoder(error) => error.fault(),
            MethodError::Engine(error) => engine_fault(error),
            MethodError::Part(error) => error.fault(),
            MethodError::Index(_) | MethodError::Picture(_) => Fault::Ours,
            _ => Fault::User,
        }
    }
}
