//! Where a pulled folder came from, in a small file beside it, and whether it is still the same.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::catalogue::KnownEncoder;
use super::error::EncoderError;
use crate::progress::Stop;
use crate::storage::{StorageError, hex, read_bounded};

/// The name of that file.
pub(super) const SOURCE: &str = "source.json";
const MAX_SOURCE: u64 = 1 << 20;

/// Bytes that are read between two looks at the flag that asks to stop.
pub(super) const CHUNK: usize = 1 << 20;

/// Where an encoder came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The name it is asked for by.
    pub name: String,
    /// Who gave it.
    pub origin: Origin,
    /// What came, by path.
    pub files: BTreeMap<String, FileRecord>,
}

/// Who gave an encoder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum Origin {
    /// Packages of the Python package index.
    Packages {
        /// Each with its version, in order.
        packages: Vec<String>,
    },
    /// The model hub.
    Hub {
        /// Its address.
        endpoint: String,
        /// The commit that was fetched.
        revision: String,
    },
}

/// A file by its size and content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its size.
    pub bytes: u64,
    /// The SHA-256 of its content, in hexadecimal.
    pub sha256: String,
}

impl Source {
    /// What a known encoder must be, whatever lies in the cache.
    pub(super) fn of(encoder: &KnownEncoder) -> Source {
        let record = |bytes: u64, sha256: &str| FileRecord { bytes, sha256: sha256.to_owned() };
        Source {
            name: encoder.name.to_owned(),
            origin: Origin::Packages {
                packages: encoder.wheels.iter().map(|wheel| wheel.requirement()).collect(),
            },
            files: encoder
                .files
                .iter()
                .map(|file| (file.path.to_owned(), record(file.bytes, file.sha256)))
                .collect(),
        }
    }

    /// What is written in a folder; `None` where it was not pulled, or the file cannot be understood.
    pub(super) fn read(folder: &Path) -> Option<Source> {
        let source: Source =
            serde_json::from_slice(&read_bounded(&folder.join(SOURCE), MAX_SOURCE).ok()?).ok()?;
        // Only paths that a pull writes: the file may have been tampered with.
        let is_ours = |path: &str| path.split('/').all(super::folder::is_plain_name);
        source.files.keys().all(|path| is_ours(path)).then_some(source)
    }

    /// What the files take on the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.files.values().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// What is wrong with a folder at first sight: files that are missing or of another size.
    pub(super) fn problem(&self, folder: &Path) -> Option<String> {
        self.files.iter().find_map(|(path, expected)| match fs::metadata(folder.join(path)) {
            Ok(found) if found.is_file() && found.len() == expected.bytes => None,
            Ok(found) => Some(format!("{path} has {} bytes, not {}", found.len(), expected.bytes)),
            Err(_) => Some(format!("{path} is missing")),
        })
    }

    /// What is wrong with a folder at a closer look: files with other content. Reads all of it.
    pub(super) fn close_problem(&self, folder: &Path, stop: &Stop) -> Result<Option<String>, EncoderError> {
        if let Some(problem) = self.problem(folder) {
            return Ok(Some(problem));
        }
        for (path, expected) in &self.files {
            if sha256_of(&folder.join(path), stop)? != expected.sha256 {
                return Ok(Some(format!("{path} has another content")));
            }
        }
        Ok(None)
    }
}

/// The SHA-256 of a file's content.
pub(super) fn sha256_of(path: &Path, stop: &Stop) -> Result<String, EncoderError> {
    let mut file = File::open(path).map_err(StorageError::io(path, "open"))?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        if stop.is_asked() {
            return Err(EncoderError::Stopped);
        }
        match file.read(&mut buffer).map_err(StorageError::io(path, "read"))? {
            0 => return Ok(hex(&hasher.finalize())),
            read => hasher.update(&buffer[..read]),
        }
    }
}
