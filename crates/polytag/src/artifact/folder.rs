//! Reading a model folder.

use std::fs;
use std::path::{Path, PathBuf};

use super::array::MappedTensors;
use super::error::ArtifactError;
use super::label_table;
use super::manifest::{MANIFEST, Manifest, StoredFile};
use super::tensors::Tensors;
use super::writer::describe;
use crate::data::LabelSpace;
use crate::storage::{Mapped, StorageError, read_bounded, require_folder, sha256_hex};

/// No manifest is larger than this.
const MAX_MANIFEST: u64 = 16 << 20;

/// A model folder whose manifest is in order. Files are checked as they are read.
#[derive(Debug)]
pub struct ModelFolder {
    dir: PathBuf,
    manifest: Manifest,
}

impl ModelFolder {
    /// Opens the model folder `dir`.
    pub fn open(dir: &Path) -> Result<ModelFolder, ArtifactError> {
        let path = dir.join(MANIFEST);
        require_folder(dir, "open the model folder")?;
        if !path.is_file() {
            return Err(ArtifactError::NotAModel { dir: dir.to_owned() });
        }
        let manifest = Manifest::from_file(&path, &read_bounded(&path, MAX_MANIFEST)?)?;
        Ok(ModelFolder { dir: dir.to_owned(), manifest })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What it holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// An error that says what is wrong with the file `name`.
    pub fn damaged(&self, name: &str, problem: impl ToString) -> ArtifactError {
        ArtifactError::Damaged { path: self.dir.join(name), problem: problem.to_string() }
    }

    /// The content of the file `name`, once it has been checked. Memory: the file.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, ArtifactError> {
        let (path, stored) = self.stored(name)?;
        let bytes = fs::read(&path).map_err(StorageError::io(&path, "read"))?;
        self.checked(stored, &bytes)?;
        Ok(bytes)
    }

    /// The arrays of the file `name`, once it has been checked; they stay in the file.
    pub fn mapped(&self, name: &str) -> Result<MappedTensors, ArtifactError> {
        let (path, stored) = self.stored(name)?;
        // Read as a stream, so that what is looked at later is all that takes memory.
        if describe(&path)?.sha256 != stored.sha256 {
            return Err(self.damaged(name, "its checksum does not fit"));
        }
        MappedTensors::new(Mapped::open(&path)?, path)
    }

    /// Where the file `name` is, and what the manifest says of it.
    fn stored(&self, name: &str) -> Result<(PathBuf, &StoredFile), ArtifactError> {
        let stored = self.manifest.files.iter().find(|file| file.name == name);
        let stored = stored.ok_or_else(|| self.damaged(MANIFEST, format!("it does not list {name}")))?;
        let path = self.dir.join(name);
        let size = fs::metadata(&path).map_err(StorageError::io(&path, "open"))?.len();
        match size == stored.bytes {
            true => Ok((path, stored)),
            false => Err(self.damaged(name, format!("{size} bytes long instead of {}", stored.bytes))),
        }
    }

    fn checked(&self, stored: &StoredFile, bytes: &[u8]) -> Result<(), ArtifactError> {
        match sha256_hex(bytes) == stored.sha256 {
            true => Ok(()),
            false => Err(self.damaged(&stored.name, "its checksum does not fit")),
        }
    }

    /// Where the folder `name` within this one is, once all its files have been checked.
    pub fn folder(&self, name: &str) -> Result<PathBuf, ArtifactError> {
        let within =
            |file: &&StoredFile| file.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        let mut listed = self.manifest.files.iter().filter(within).peekable();
        if listed.peek().is_none() {
            return Err(self.damaged(MANIFEST, format!("it lists nothing in {name}")));
        }
        for file in listed {
            let (path, stored) = self.stored(&file.name)?;
            self.checked(stored, &Mapped::open(&path)?)?;
        }
        Ok(self.dir.join(name))
    }

    /// The content of the file `name` as text.
    pub fn read_text(&self, name: &str) -> Result<String, ArtifactError> {
        String::from_utf8(self.read(name)?).map_err(|error| self.damaged(name, error))
    }

    /// The tensors of the file `name`.
    pub fn tensors(&self, name: &str) -> Result<Tensors, ArtifactError> {
        Tensors::from_bytes(self.read(name)?, self.dir.join(name))
    }

    /// The label table as it was when the model was fitted.
    pub fn labels(&self) -> Result<LabelSpace, ArtifactError> {
        let text = self.read_text(label_table::NAME)?;
        label_table::from_text(&self.dir.join(label_table::NAME), &text, self.manifest.train_documents)
    }
}
