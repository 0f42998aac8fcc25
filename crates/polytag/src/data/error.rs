//! What can be wrong with a task, each with its place and its remedy.

use std::fmt;
use std::path::{Path, PathBuf};

use super::space::SpaceError;
use crate::columns::{Form, TableError};
use crate::storage::StorageError;

/// A line of a file, or the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The line, or the row of a table, from one, where there is one to name.
    pub line: Option<u64>,
}

impl Place {
    /// The file as a whole.
    pub fn file(path: &Path) -> Place {
        Place { path: path.to_owned(), line: None }
    }

    /// One line of it.
    pub fn line(path: &Path, line: u64) -> Place {
        Place { path: path.to_owned(), line: Some(line) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        let what = if Form::from_name(&self.path).is_some() { "row" } else { "line" };
        self.line.map_or(Ok(()), |line| write!(f, ", {what} {line}"))
    }
}

/// A fault in a task folder or in what is being imported into one.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The bytes could not be read or written.
    #[error(transparent)]
    Storage(StorageError),
    /// A table could not be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A line is not JSON, or not of the expected shape.
    #[error("{place}: {problem}; write one JSON object a line, like {example}")]
    Json {
        /// Where.
        place: Place,
        /// What the parser found.
        problem: String,
        /// A line as it should be.
        example: &'static str,
    },
    /// A field that must be there is missing or empty.
    #[error("{place}: {problem}; {remedy}")]
    Field {
        /// Where.
        place: Place,
        /// Which field, and what is wrong with it.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// An id stands twice in one file.
    #[error("{place}: the id {id:?} was used before, on line {first}; give each its own id")]
    DuplicateId {
        /// Where it stands again.
        place: Place,
        /// The id.
        id: String,
        /// The line where it stood first.
        first: u64,
    },
    /// A document carries a label that no one described.
    #[error("{place}: no label has the id {id:?}; add it to labels.jsonl or take it off the document")]
    UnknownLabel {
        /// Where.
        place: Place,
        /// The id.
        id: String,
    },
    /// A file holds nothing.
    #[error("{}: the file is empty; it should hold {expected}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What belongs in it.
        expected: &'static str,
    },
    /// A file that the task needs is not there.
    #[error("{}: no {name} here (nor {name}.gz, {name}.zst or {}.parquet); {remedy}", dir.display(), name.trim_end_matches(".jsonl"))]
    MissingFile {
        /// The folder.
        dir: PathBuf,
        /// The file's plain name.
        name: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A file is there twice, in two forms.
    #[error("{}: holds both {first} and {second}; keep one of them", dir.display())]
    Ambiguous {
        /// The folder.
        dir: PathBuf,
        /// One name.
        first: String,
        /// The other.
        second: String,
    },
    /// A foreign format was not as its importer expects.
    #[error("{place}: {problem}; {remedy}")]
    Malformed {
        /// Where.
        place: Place,
        /// What is wrong.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// A split that the task cannot give.
    #[error("{problem}; {remedy}")]
    Split {
        /// What is wrong.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A change that the label space does not take.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The work was asked to stop.
    #[error("stopped before the end")]
    Stopped,
}

impl From<StorageError> for DataError {
    fn from(error: StorageError) -> DataError {
        // Rows that are read as lines have complaints of their own.
        match error {
            StorageError::Io { path, action, source } => match source.downcast::<TableError>() {
                Ok(table) => DataError::Table(table),
                Err(source) => DataError::Storage(StorageError::Io { path, action, source }),
            },
            error => DataError::Storage(error),
        }
    }
}

impl DataError {
    /// Whether reading can go on behind it: it concerns one line, not the file.
    pub fn is_of_one_line(&self) -> bool {
        match self {
            DataError::Storage(error) => {
                matches!(error, StorageError::LineTooLong { .. } | StorageError::NotUtf8 { .. })
            }
            DataError::Json { .. }
            | DataError::Field { .. }
            | DataError::DuplicateId { .. }
            | DataError::UnknownLabel { .. } => true,
            _ => false,
        }
    }
}
