//! What can go wrong between us and the disk, each with its remedy.

use std::io;
use std::path::{Path, PathBuf};

/// A failure to read or write bytes. Every variant is about the user's files or disk.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The operating system said no.
    #[error("{}: cannot {action}: {source}; {}", path.display(), remedy(source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried: "read", "create".
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A compressed file ends in the middle.
    #[error(
        "{}: the {format} data ends too early; the file was cut short, so fetch or write it again",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// "gzip", "zstd" or "lz4".
        format: &'static str,
    },
    /// A compressed file does not decode.
    #[error("{}: not valid {format} data ({detail}); fetch or write the file again", path.display())]
    BadCompression {
        /// The file.
        path: PathBuf,
        /// "gzip", "zstd" or "lz4".
        format: &'static str,
        /// The decoder's word for it.
        detail: String,
    },
    /// A line is longer than the reader may hold.
    #[error(
        "{}, line {line}: longer than {} MiB; split the document or raise the limit with --max-line-mib",
        path.display(), limit >> 20
    )]
    LineTooLong {
        /// The file.
        path: PathBuf,
        /// The line, from one.
        line: u64,
        /// The limit in bytes.
        limit: usize,
    },
    /// A file that is read in one piece is larger than that piece may be.
    #[error("{}: larger than {} MiB, which no file of this kind should be", path.display(), limit >> 20)]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// A line is not UTF-8.
    #[error(
        "{}, line {line}: byte {byte} of the line is not UTF-8; convert the file, for example with \
         `iconv -f LATIN1 -t UTF-8`",
        path.display()
    )]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The line, from one.
        line: u64,
        /// The first bad byte of the line, from one.
        byte: usize,
    },
    /// The target is there already and may not be replaced.
    #[error("{}: already exists and {why}; choose another name or remove it first", path.display())]
    Exists {
        /// The target.
        path: PathBuf,
        /// Why it was not replaced.
        why: String,
    },
    /// The target is one of the inputs.
    #[error("{}: is both input and output; write to another place", path.display())]
    SameAsInput {
        /// The place named twice.
        path: PathBuf,
    },
}

impl StorageError {
    /// An [`StorageError::Io`], ready for `map_err`.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> StorageError {
        let path = path.to_owned();
        move |source| StorageError::Io { path, action, source }
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "check its permissions or choose another place"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::WriteZero => {
            "free some space or choose another place"
        }
        io::ErrorKind::IsADirectory => "name a file, not a folder",
        io::ErrorKind::NotADirectory => "name a folder, not a file",
        _ => "check the disk and try again",
    }
}
