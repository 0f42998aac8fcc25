//! One error over all stages, for callers that only pass it on.

use crate::artifact::ArtifactError;
use crate::columns::TableError;
use crate::data::DataError;
use crate::encoder::EncoderError;
use crate::method::MethodError;
use crate::metric::MetricError;
use crate::picture::PictureError;
use crate::predict::PredictError;
use crate::predict::tables::TablesError;
use crate::storage::StorageError;

/// Whose move it is after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The user's input, settings or disk: the message says what to change.
    User,
    /// Ours: a broken promise of the program.
    Ours,
}

/// Any failure of the library.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading or writing bytes.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Reading or writing a table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Tagging files of rows.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// Reading, checking or importing a task.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Finding or fetching an encoder.
    #[error(transparent)]
    Encoder(#[from] EncoderError),
    /// Fitting a method.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// Asking a model.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// Reading or writing a model folder.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// Measuring predictions.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// Drawing what was learned.
    #[error(transparent)]
    Picture(#[from] PictureError),
}

impl Error {
    /// Whose move it is.
    pub fn fault(&self) -> Fault {
        match self {
            Error::Storage(_) | Error::Data(_) | Error::Artifact(_) | Error::Metric(_) => Fault::User,
            // Vectors come from our own encoders and are checked where they are made.
            Error::Picture(_) => Fault::Ours,
            Error::Table(error) => error.fault(),
            Error::Tables(error) => error.fault(),
            Error::Encoder(error) => error.fault(),
            Error::Method(error) => error.fault(),
            Error::Predict(error) => error.fault(),
        }
    }
}
