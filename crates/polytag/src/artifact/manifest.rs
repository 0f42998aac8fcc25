//! The manifest: what a model folder holds and how to know it is intact.
//!
//! Its last field is the checksum of everything before that field, so that a change anywhere in the
//! manifest shows. It holds no date and no path: the same fit gives the same bytes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::ArtifactError;
use crate::index::Precision;
use crate::storage::sha256_hex;

/// The manifest's file name.
pub const MANIFEST: &str = "manifest.json";

/// The version of the model folder that this program writes, and the latest it reads.
pub const FORMAT_VERSION: u64 = 1;

const FORMAT: &str = "polytag-model";
const CHECKSUM_KEY: &str = ",\n  \"checksum\": \"";
const CHECKSUM_END: &str = "\"\n}\n";

/// A file, by name, size and checksum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// Its name; folders in it are set apart by `/`.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// The SHA-256 of its content, in hexadecimal.
    pub sha256: String,
}

/// How label vectors are searched, and how well that was found to go when the model was fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexReport {
    /// `exact` or `hnsw`.
    pub kind: String,
    /// Why it is that.
    pub why: String,
    /// What vectors are kept in.
    pub precision: Precision,
    /// Links of a label, where there is a graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
    /// How wide walks through it go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ef: Option<usize>,
    /// Recall at 100 against a search through all vectors in full, where it is not one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall_at_100: Option<f64>,
    /// On how many queries that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queries: Option<usize>,
}

impl IndexReport {
    /// That of a search through all vectors.
    pub fn exact(why: String, precision: Precision) -> IndexReport {
        let kind = "exact".to_owned();
        IndexReport { kind, why, precision, width: None, ef: None, recall_at_100: None, queries: None }
    }

    /// The same, with a recall at 100 that was measured.
    pub fn measured(self, recall: f64, queries: usize) -> IndexReport {
        IndexReport { recall_at_100: Some(recall), queries: Some(queries), ..self }
    }
}

/// What a model folder holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always "polytag-model".
    pub format: String,
    /// The version of the layout.
    pub version: u64,
    /// The program that wrote it.
    pub program: String,
    /// The method that was fitted.
    pub method: String,
    /// Its configuration.
    pub config: serde_json::Value,
    /// The seed it was fitted with.
    pub seed: u64,
    /// How many documents it was fitted on.
    pub train_documents: u64,
    /// How many labels it had then.
    pub labels: u64,
    /// The files of the task it was fitted on.
    pub sources: Vec<StoredFile>,
    /// How its label vectors are searched, where that had to be decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<IndexReport>,
    /// The files of the folder.
    pub files: Vec<StoredFile>,
}

impl Manifest {
    pub(super) fn new(method: &str, config: serde_json::Value, seed: u64) -> Manifest {
        Manifest {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            program: concat!("polytag ", env!("CARGO_PKG_VERSION")).to_owned(),
            method: method.to_owned(),
            config,
            seed,
            train_documents: 0,
            labels: 0,
            sources: Vec::new(),
            index: None,
            files: Vec::new(),
        }
    }

    /// The same for the same model, however it is called: a checksum of all that is said here, the checksums of its files
    /// among them.
    pub fn fingerprint(&self) -> String {
        let json = serde_json::to_string(self).expect("texts and numbers always make JSON");
        sha256_hex(json.as_bytes())
    }

    /// The manifest as its file.
    pub(super) fn to_file(&self) -> Result<String, serde_json::Error> {
        let json = serde_json::to_string_pretty(self)?;
        let body = json.strip_suffix("\n}").unwrap_or(&json);
        Ok(format!("{body}{CHECKSUM_KEY}{}{CHECKSUM_END}", sha256_hex(body.as_bytes())))
    }

    /// Reads a manifest's file and checks it.
    pub(super) fn from_file(path: &Path, bytes: &[u8]) -> Result<Manifest, ArtifactError> {
        let damaged = |problem: String| ArtifactError::Damaged { path: path.to_owned(), problem };
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not UTF-8".to_owned()))?;
        // The version comes first: a later layout may keep its checksum elsewhere.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u64,
        }
        let head: Head = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
        if head.format != FORMAT {
            return Err(damaged(format!("its format is {:?}, not {FORMAT:?}", head.format)));
        }
        if head.version > FORMAT_VERSION {
            return Err(ArtifactError::Newer { path: path.to_owned(), found: head.version });
        }
        let checked = text.rsplit_once(CHECKSUM_KEY).is_some_and(|(body, checksum)| {
            checksum.strip_suffix(CHECKSUM_END) == Some(&sha256_hex(body.as_bytes()))
        });
        if !checked {
            return Err(damaged("its checksum does not fit; it was changed after it was written".to_owned()));
        }
        let manifest: Manifest = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
        let plain = |part: &str| !part.is_empty() && !part.contains('\\') && part != ".." && part != ".";
        let plain = |name: &str| name.split('/').all(plain);
        if let Some(file) = manifest.files.iter().find(|file| !plain(&file.name)) {
            return Err(damaged(format!("it names a file outside the folder: {:?}", file.name)));
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let mut manifest = Manifest::new("lexical", serde_json::json!({"k": 1}), 7);
        manifest.files.push(StoredFile { name: "a".into(), bytes: 1, sha256: "00".into() });
        manifest
    }

    #[test]
    fn it_comes_back_as_it_was_written() {
        let file = manifest().to_file().unwrap();
        assert_eq!(Manifest::from_file(Path::new("m"), file.as_bytes()).unwrap(), manifest());
        assert!(serde_json::from_str::<serde_json::Value>(&file).unwrap()["checksum"].is_string());
    }

    #[test]
    fn no_byte_can_be_changed_unseen() {
        let file = manifest().to_file().unwrap().into_bytes();
        for at in 0..file.len() {
            for change in [1u8, 32] {
                let mut changed = file.clone();
                changed[at] ^= change;
                let read = Manifest::from_file(Path::new("m"), &changed);
                assert!(read.is_err(), "byte {at} of {}", String::from_utf8_lossy(&changed));
            }
        }
    }

    #[test]
    fn a_later_version_and_a_path_are_refused() {
        let later = Manifest { version: FORMAT_VERSION + 1, ..manifest() }.to_file().unwrap();
        let error = Manifest::from_file(Path::new("m"), later.as_bytes()).unwrap_err();
        assert!(matches!(error, ArtifactError::Newer { found, .. } if found == FORMAT_VERSION + 1));
        for name in ["../x", "", "..", "a\\b"] {
            let mut outside = manifest();
            outside.files[0].name = name.to_owned();
            assert!(Manifest::from_file(Path::new("m"), outside.to_file().unwrap().as_bytes()).is_err());
        }
    }
}
