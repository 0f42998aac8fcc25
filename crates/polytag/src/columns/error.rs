//! What can be wrong with a column or a file of them, each with its remedy.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use arrow_schema::{ArrowError, DataType};
use parquet::errors::ParquetError;

use crate::Fault;
use crate::storage::StorageError;

/// A column that is not as it should be. Every variant is about the user's table or settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// No column has the name.
    #[error("no column is called {column:?}; there are {}; name one of them", listed(there))]
    Missing {
        /// The name.
        column: String,
        /// The names there are.
        there: Vec<String>,
    },
    /// Two columns have the name.
    #[error("two columns are called {column:?}; rename one of them, or name another column")]
    Twice {
        /// The name.
        column: String,
    },
    /// The column has a type that cannot be read for what it is.
    #[error("the column {column:?} is of type {found}, where {expected} is expected; {remedy}")]
    Kind {
        /// The name.
        column: String,
        /// Its type.
        found: Box<DataType>,
        /// Which types there may be.
        expected: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A column is to be carried through under a name that the answer uses itself.
    #[error("the answer would have two columns called {column:?}; rename it in the input, or do not keep it")]
    Clash {
        /// The name.
        column: String,
    },
    /// The labels of a batch are more than Arrow's offsets can count.
    #[error("the labels of one batch take 2 GiB or more; ask for fewer labels, or give smaller batches")]
    TooLarge,
}

impl ColumnError {
    /// The column in question, where it is about one.
    pub fn column(&self) -> Option<&str> {
        match self {
            ColumnError::Missing { column, .. }
            | ColumnError::Twice { column }
            | ColumnError::Kind { column, .. }
            | ColumnError::Clash { column } => Some(column),
            ColumnError::TooLarge => None,
        }
    }
}

/// Names for a person: all of a few, the first of many.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut words: Vec<String> = names.iter().take(SHOWN).map(|name| format!("{name:?}")).collect();
    if names.len() > SHOWN {
        words.push(format!("{} more", names.len() - SHOWN));
    }
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// A file of columns that cannot be read or written. Every variant is about the user's files or disk.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The bytes could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The file is something else.
    #[error("{}: is not {expected} ({found}); {remedy}", path.display())]
    NotATable {
        /// The file.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
        /// What it looks like.
        found: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// Part of the file does not decode.
    #[error("{}, {part}: cannot be read ({detail}); fetch or write the file again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which part: "row group 3".
        part: String,
        /// The decoder's word for it.
        detail: String,
    },
    /// A column of the file is not as it should be.
    #[error("{}: {error}", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: ColumnError,
    },
    /// The writer of a format refused; that is a fault of the program.
    #[error("{}: could not be written as {format}: {detail}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// The writer's word for it.
        detail: String,
    },
}

impl TableError {
    /// A [`TableError::Column`], ready for `map_err`.
    pub fn column(path: &Path) -> impl FnOnce(ColumnError) -> TableError {
        let path = path.to_owned();
        move |error| TableError::Column { path, error }
    }

    /// Whose move it is.
    pub fn fault(&self) -> Fault {
        match self {
            TableError::Unwritable { .. } => Fault::Ours,
            _ => Fault::User,
        }
    }
}

/// What a format's own library complains of.
pub(super) enum Complaint {
    /// The disk.
    Disk(io::Error),
    /// The content.
    Content(String),
}

impl From<ParquetError> for Complaint {
    fn from(error: ParquetError) -> Complaint {
        match error {
            ParquetError::External(cause) => match cause.downcast::<io::Error>() {
                Ok(cause) => Complaint::from(*cause),
                Err(cause) => Complaint::Content(cause.to_string()),
            },
            ParquetError::General(detail) => Complaint::Content(detail),
            error => Complaint::Content(error.to_string()),
        }
    }
}

impl From<ArrowError> for Complaint {
    fn from(error: ArrowError) -> Complaint {
        match error {
            ArrowError::IoError(_, cause) => Complaint::from(cause),
            ArrowError::ExternalError(cause) => match cause.downcast::<ParquetError>() {
                Ok(cause) => Complaint::from(*cause),
                Err(cause) => Complaint::Content(cause.to_string()),
            },
            ArrowError::ParquetError(detail)
            | ArrowError::IpcError(detail)
            | ArrowError::ParseError(detail) => Complaint::Content(detail),
            error => Complaint::Content(error.to_string()),
        }
    }
}

impl From<io::Error> for Complaint {
    fn from(error: io::Error) -> Complaint {
        // An end that comes too early is what the file says, not what the disk does.
        match error.raw_os_error() {
            Some(_) => Complaint::Disk(error),
            None if error.kind() == io::ErrorKind::WriteZero => Complaint::Disk(error),
            None => Complaint::Content(error.to_string()),
        }
    }
}

impl Complaint {
    /// What it means for the reader of `part` of the file at `path`.
    pub(super) fn reading(self, path: &Path, part: impl FnOnce() -> String) -> TableError {
        match self {
            Complaint::Disk(error) => StorageError::io(path, "read")(error).into(),
            Complaint::Content(detail) => TableError::Damaged { path: path.to_owned(), part: part(), detail },
        }
    }

    /// What it means for the writer of the file at `path`.
    pub(super) fn writing(self, path: &Path, format: &'static str) -> TableError {
        match self {
            Complaint::Disk(error) => StorageError::io(path, "write")(error).into(),
            Complaint::Content(detail) => TableError::Unwritable { path: path.to_owned(), format, detail },
        }
    }
}

/// Runs a decoder over bytes that nobody vouches for. The libraries mean to give errors; where one panics instead, that is
/// a complaint of the content, too.
pub(super) fn guarded<T, E>(decode: impl FnOnce() -> Result<T, E>) -> Result<T, Complaint>
where
    Complaint: From<E>,
{
    match panic::catch_unwind(AssertUnwindSafe(decode)) {
        Ok(decoded) => decoded.map_err(Complaint::from),
        Err(_) => Err(Complaint::Content("its decoder gave up".to_owned())),
    }
}
