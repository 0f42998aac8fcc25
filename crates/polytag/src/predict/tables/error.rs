//! What can stand between files of rows and their labels, each with its remedy.

use std::path::PathBuf;

use crate::Fault;
use crate::columns::TableError;
use crate::data::DataError;
use crate::predict::PredictError;
use crate::storage::StorageError;

/// Files of rows that could not be tagged.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// The bytes could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A table could not be read or written.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A line could not be read.
    #[error(transparent)]
    Data(DataError),
    /// The model gave no answer.
    #[error("{}, behind row {row}: {source}", path.display())]
    Predict {
        /// The file.
        path: PathBuf,
        /// How many rows, or lines, of the file lie before the batch.
        row: u64,
        /// Why.
        source: PredictError,
    },
    /// Reading broke down: our fault. What was read so far is not all.
    #[error("{}: reading it failed in the program itself; please report this", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
    },
    /// Columns were named for a file that has none.
    #[error(
        "{}: holds lines, whose fields are id, title and text; name columns for Parquet and Arrow files only",
        path.display()
    )]
    LinesHaveFields {
        /// The file.
        path: PathBuf,
    },
    /// A file in the folder is of no known kind.
    #[error(
        "{}: neither a table (.parquet, .arrow, .feather) nor lines of JSON (.jsonl, .jsonl.gz, .jsonl.zst); take it out \
         of the folder, or begin its name with a dot",
        path.display()
    )]
    UnknownInput {
        /// The file.
        path: PathBuf,
    },
    /// The name of an answer promises a format that there is not.
    #[error(
        "{}: its ending names no format; end the name in .parquet, .arrow, .feather, .jsonl, .ndjson or .json (lines also \
         with .gz, .zst or .lz4 behind that), or say --format parquet, arrow or jsonl",
        path.display()
    )]
    UnknownOutput {
        /// The file.
        path: PathBuf,
    },
    /// The folder holds no file.
    #[error("{}: holds no file to tag; name a folder of Parquet, Arrow or JSON lines files", path.display())]
    NoInput {
        /// The folder.
        path: PathBuf,
    },
    /// Two files would have the same answer file.
    #[error("{} and {} would both be answered in {output}; rename one", first.display(), second.display())]
    SameOutput {
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
        /// The answer file.
        output: String,
    },
    /// The place of an answer is that of another file's, which an earlier run put there.
    #[error(
        "{}: would be answered in {output}, which is the answer to {earlier}; rename the file, or write to another folder",
        path.display()
    )]
    OutputTaken {
        /// The file.
        path: PathBuf,
        /// The file that was answered there, by its name below the folder.
        earlier: String,
        /// The answer file.
        output: String,
    },
    /// A file is not what it was when it was tagged.
    #[error(
        "{}: has changed since it was tagged ({what}); put the old file back, or write to another folder",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// How it shows.
        what: &'static str,
    },
    /// The folder was begun in another way.
    #[error("{}: was begun with another {what}; run the command as it was, write to another folder, or remove this one to tag all files anew", path.display())]
    OtherSettings {
        /// The folder.
        path: PathBuf,
        /// What is another now, with what it was and is.
        what: String,
    },
    /// The journal is not what was written.
    #[error(
        "{}, line {line}: the record of what is done is damaged ({problem}); write to another folder",
        path.display()
    )]
    DamagedJournal {
        /// The journal.
        path: PathBuf,
        /// The line, from one.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// Another run writes to the folder.
    #[error("{}: another run is writing here; wait for it, or write to another folder", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The work was asked to stop.
    #[error("stopped; {done} rows are on the disk, and the same command goes on from there")]
    Stopped {
        /// Rows that will not be done again.
        done: u64,
    },
}

impl From<DataError> for TablesError {
    fn from(error: DataError) -> TablesError {
        match error {
            DataError::Storage(error) => TablesError::Storage(error),
            DataError::Table(error) => TablesError::Table(error),
            error => TablesError::Data(error),
        }
    }
}

impl TablesError {
    /// Whose move it is.
    pub fn fault(&self) -> Fault {
        match self {
            TablesError::Table(error) => error.fault(),
            TablesError::Predict { source, .. } => source.fault(),
            TablesError::Broken { .. } => Fault::Ours,
            _ => Fault::User,
        }
    }

    /// Whether it is about one file that is read, so that others can still be tagged: not about the disk that is written to,
    /// nor about the model.
    pub fn is_of_one_file(&self) -> bool {
        match self {
            TablesError::Table(TableError::Storage(error)) | TablesError::Storage(error) => match error {
                StorageError::Io { action, .. } => matches!(*action, "read" | "open"),
                StorageError::Exists { .. } | StorageError::SameAsInput { .. } => false,
                _ => true,
            },
            TablesError::Table(error) => !matches!(error, TableError::Unwritable { .. }),
            TablesError::Data(_) | TablesError::Broken { .. } => true,
            TablesError::LinesHaveFields { .. } | TablesError::Changed { .. } => true,
            _ => false,
        }
    }
}
