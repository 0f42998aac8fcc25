//! Reading a model folder.
//!
//! A file that is read is opened once: what is checked is what is used, though a fit may put another model in the folder's
//! place meanwhile. The files of a folder within it are checked, and read by whoever asked where they are.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::array::MappedTensors;
use super::error::ArtifactError;
use super::label_table;
use super::manifest::{MANIFEST, Manifest, StoredFile};
use super::tensors::Tensors;
use super::writer::size_and_checksum;
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
        let mut opened = self.opened(name)?;
        let mut bytes = Vec::with_capacity(opened.stored.bytes as usize);
        opened.file.read_to_end(&mut bytes).map_err(StorageError::io(&opened.path, "read"))?;
        opened.check(&sha256_hex(&bytes))?;
        Ok(bytes)
    }

    /// The arrays of the file `name`, once it has been checked; they stay in the file.
    pub fn mapped(&self, name: &str) -> Result<MappedTensors, ArtifactError> {
        self.opened(name)?.mapped()
    }

    /// The file `name`, if it is as long as the manifest says.
    fn opened(&self, name: &str) -> Result<Opened<'_>, ArtifactError> {
        let stored = self.manifest.files.iter().find(|file| file.name == name);
        let stored = stored.ok_or_else(|| self.damaged(MANIFEST, format!("it does not list {name}")))?;
        let path = self.dir.join(name);
        let file = File::open(&path).map_err(StorageError::io(&path, "open"))?;
        let size = file.metadata().map_err(StorageError::io(&path, "open"))?.len();
        match size == stored.bytes {
            true => Ok(Opened { file, path, stored }),
            false => Err(self.damaged(name, format!("{size} bytes long instead of {}", stored.bytes))),
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
            self.opened(&file.name)?.checked()?;
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

/// A file of the folder, open.
struct Opened<'a> {
    file: File,
    path: PathBuf,
    /// What the manifest says of it.
    stored: &'a StoredFile,
}

impl Opened<'_> {
    /// The file, once its content has been found right. Read as a stream, so that what is looked at later is all that takes
    /// memory.
    fn checked(self) -> Result<Self, ArtifactError> {
        let (_, sha256) = size_and_checksum(&self.file, &self.path)?;
        self.check(&sha256)?;
        Ok(self)
    }

    /// The arrays in it, once they have been checked.
    fn mapped(self) -> Result<MappedTensors, ArtifactError> {
        let Opened { file, path, .. } = self.checked()?;
        MappedTensors::new(Mapped::of(&file, &path)?, path)
    }

    fn check(&self, sha256: &str) -> Result<(), ArtifactError> {
        match sha256 == self.stored.sha256 {
            true => Ok(()),
            false => Err(ArtifactError::Damaged {
                path: self.path.clone(),
                problem: "its checksum does not fit".to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tensors::TensorsBuilder;
    use super::super::writer::{ModelWriter, Provenance};
    use super::*;

    const NAME: &str = "w.safetensors";

    fn write(dir: &Path, numbers: &[u32]) {
        let provenance = Provenance { config: serde_json::json!({}), seed: 0, sources: Vec::new() };
        let mut writer = ModelWriter::create(dir, "lexical", &provenance, &[]).unwrap();
        writer.tensors(NAME, &TensorsBuilder::default().numbers("n", numbers)).unwrap();
        writer.finish().unwrap();
    }

    #[test]
    fn what_is_checked_is_what_is_used_though_another_file_takes_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, other) = (dir.path().join("ours"), dir.path().join("other"));
        write(&ours, &[1, 2, 3]);
        write(&other, &[7, 8, 9]);
        let folder = ModelFolder::open(&ours).unwrap();
        let opened = folder.opened(NAME).unwrap();
        std::fs::rename(other.join(NAME), ours.join(NAME)).unwrap();
        assert_eq!(*opened.mapped().unwrap().array::<u32>("n").unwrap(), [1, 2, 3]);
        let complaint = folder.mapped(NAME).unwrap_err().to_string();
        assert!(complaint.contains("w.safetensors: damaged: its checksum does not fit"), "{complaint}");
        assert!(folder.read(NAME).is_err());
    }
}
