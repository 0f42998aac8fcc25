//! What kind of file columns lie in, by its name and by its first bytes.

use std::path::Path;

use super::arrow;
use super::error::TableError;
use crate::storage::StorageError;

/// How a Parquet file begins, and ends.
pub(super) const PARQUET_MAGIC: &[u8] = b"PAR1";

/// What kind of file columns lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Parquet, `.parquet`.
    Parquet,
    /// Arrow's own format for files, `.arrow` or `.feather`.
    Arrow,
}

impl Form {
    /// What the name of a file promises.
    pub fn from_name(path: &Path) -> Option<Form> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "parquet" | "pq" => Some(Form::Parquet),
            "arrow" | "feather" | "ipc" => Some(Form::Arrow),
            _ => None,
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Form::Parquet => "Parquet",
            Form::Arrow => "Arrow",
        }
    }
}

/// What a file is that is neither Parquet nor Arrow.
pub(super) fn not_a_table(path: &Path, head: &[u8]) -> TableError {
    let expected = Form::from_name(path).map_or("Parquet or Arrow", Form::name);
    let (found, remedy) = if head.is_empty() {
        ("it is empty", "write it again")
    } else if PARQUET_MAGIC.starts_with(head) || arrow::MAGIC.starts_with(head) {
        return StorageError::Truncated { path: path.to_owned(), format: expected }.into();
    } else if head.starts_with(b"PARE") {
        ("it is Parquet with an encrypted footer", "decrypt it first")
    } else if head.starts_with(&[0xff; 4]) {
        ("it looks like an Arrow stream", "write it in Arrow's format for files, or as Parquet")
    } else if head.starts_with(&[0x1f, 0x8b]) || head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        ("it is compressed as a whole", "unpack it; such files are packed column by column")
    } else {
        ("it does not start like one", "check what it is, and name it so")
    };
    TableError::NotATable { path: path.to_owned(), expected, found, remedy }
}
