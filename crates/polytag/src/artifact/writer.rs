//! Writing a model folder.

use std::borrow::Cow;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::ArtifactError;
use super::folder::ModelFolder;
use super::label_log::{self, LabelLog};
use super::label_table;
use super::manifest::{IndexReport, MANIFEST, Manifest, StoredFile};
use super::tensors::TensorsBuilder;
use crate::data::LabelSpace;
use crate::storage::{Compression, Existing, StagedFolder, StorageError, hex};

/// Where a model comes from.
#[derive(Clone, Debug)]
pub struct Provenance {
    /// The method's configuration.
    pub config: serde_json::Value,
    /// The seed.
    pub seed: u64,
    /// The files of the task.
    pub sources: Vec<PathBuf>,
}

/// A model folder being written. Nothing is visible before [`finish`](ModelWriter::finish).
pub struct ModelWriter {
    folder: StagedFolder,
    manifest: Manifest,
}

impl ModelWriter {
    /// Starts a model folder at `target`. A model that is there already is replaced at the end;
    /// anything else that is there is refused. `inputs` are refused as targets.
    pub fn create(
        target: &Path,
        method: &str,
        provenance: &Provenance,
        inputs: &[&Path],
    ) -> Result<ModelWriter, ArtifactError> {
        let folder = StagedFolder::create(target, Existing::ReplaceUnless(objection), inputs)?;
        let mut manifest = Manifest::new(method, provenance.config.clone(), provenance.seed);
        for source in &provenance.sources {
            manifest.sources.push(describe(source)?);
        }
        Ok(ModelWriter { folder, manifest })
    }

    /// Where the model folder will stand.
    pub(crate) fn target(&self) -> &Path {
        self.folder.target()
    }

    /// Writes the file `name`, as it is.
    ///
    /// # Panics
    /// When the name ends as those of compressed files do.
    pub fn file(&mut self, name: &str, bytes: &[u8]) -> Result<(), ArtifactError> {
        self.parts(name, &[bytes.into()])
    }

    /// Writes the file `name` from its parts, one after the other.
    fn parts(&mut self, name: &str, parts: &[Cow<'_, [u8]>]) -> Result<(), ArtifactError> {
        assert_eq!(
            Compression::from_name(name.as_ref()),
            Compression::Plain,
            "files of a model are kept plain"
        );
        let mut sink = self.folder.file(name)?;
        let (mut hasher, mut bytes) = (Sha256::new(), 0);
        for part in parts {
            sink.write(part)?;
            hasher.update(part);
            bytes += part.len() as u64;
        }
        sink.finish()?;
        self.manifest.files.push(StoredFile {
            name: name.to_owned(),
            bytes,
            sha256: hex(&hasher.finalize()),
        });
        Ok(())
    }

    /// Writes the folder `name`, which may lie in others: `write` makes it at the path it is given, where nothing is yet.
    pub fn folder<E: From<ArtifactError>>(
        &mut self,
        name: &str,
        write: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let path = self.folder.staged(name);
        if let Some(above) = path.parent() {
            let made = std::fs::create_dir_all(above).map_err(StorageError::io(above, "create"));
            made.map_err(ArtifactError::from)?;
        }
        write(&path)?;
        let mut files = Vec::new();
        list_files(&path, name, &mut files).map_err(ArtifactError::from)?;
        files.sort();
        for (name, path) in files {
            self.manifest.files.push(StoredFile { name, ..describe(&path)? });
        }
        Ok(())
    }

    /// Writes the label table.
    pub fn labels(&mut self, space: &LabelSpace) -> Result<(), ArtifactError> {
        self.manifest.labels = space.len() as u64;
        self.manifest.train_documents = space.train_documents();
        self.file(label_table::NAME, &label_table::to_bytes(space))
    }

    /// Writes the file `name` in the safetensors format.
    pub fn tensors(&mut self, name: &str, tensors: &TensorsBuilder<'_>) -> Result<(), ArtifactError> {
        let parts = tensors.parts().map_err(|error| ArtifactError::Damaged {
            path: self.folder.target().join(name),
            problem: error.to_string(),
        })?;
        self.parts(name, &parts)
    }

    /// Notes how label vectors are searched.
    pub fn index(&mut self, report: IndexReport) {
        self.manifest.index = Some(report);
    }

    /// Writes the manifest and puts the folder in its place.
    pub fn finish(self) -> Result<Manifest, ArtifactError> {
        let text = self.manifest.to_file().map_err(|error| ArtifactError::Damaged {
            path: self.folder.target().join(MANIFEST),
            problem: error.to_string(),
        })?;
        let mut sink = self.folder.file(MANIFEST)?;
        sink.write(text.as_bytes())?;
        sink.finish()?;
        // No one changes the labels of the old model while it is replaced, nor did so meanwhile.
        let old = self.folder.target();
        let lock = if old.join(MANIFEST).is_file() { Some(LabelLog::lock(old)?) } else { None };
        if lock.as_ref().is_some_and(|log| !log.changes().is_empty()) {
            return Err(StorageError::Exists { path: old.to_owned(), why: CHANGED.to_owned() }.into());
        }
        if old.join(FEEDBACK).exists() {
            return Err(StorageError::Exists { path: old.to_owned(), why: JUDGED.to_owned() }.into());
        }
        self.folder.commit()?;
        Ok(self.manifest)
    }
}

const CHANGED: &str = "its labels were changed since it was fitted, which a new fit would lose: put the changes \
                       into the task's labels.jsonl and remove labels.log and labels.snapshot";

/// The file of how good the model was found to be, if that was kept.
pub const EVALUATION: &str = "evaluation.json";

/// The file of what people said of labels while the model was served.
pub const FEEDBACK: &str = "feedback.jsonl";

const JUDGED: &str = "holds feedback.jsonl, what people said of its labels, which a new fit would lose: put its lines behind \
                      those of the task's train.jsonl and remove it";

/// Why the folder that is there must not be replaced by a new model, if it must not.
fn objection(dir: &Path) -> Option<String> {
    let Ok(old) = ModelFolder::open(dir) else {
        return Some("is not an intact model, so it is not ours to replace".to_owned());
    };
    if LabelLog::read(dir).map_or(true, |changes| !changes.is_empty()) {
        return Some(CHANGED.to_owned());
    }
    if dir.join(FEEDBACK).exists() {
        return Some(JUDGED.to_owned());
    }
    let ours = |name: &str| {
        name == MANIFEST
            || [label_log::NAME, label_log::SNAPSHOT, EVALUATION].contains(&name)
            || old.manifest().files.iter().any(|file| file.name == name)
    };
    let mut files = Vec::new();
    if let Err(error) = list_files(dir, "", &mut files) {
        return Some(format!("cannot be looked through: {error}"));
    }
    let foreign = files.into_iter().map(|(name, _)| name).find(|name| !ours(name))?;
    Some(format!("holds {foreign}, which is no part of the model"))
}

/// The files under a folder, by their names from `prefix` on and where they lie.
fn list_files(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> Result<(), StorageError> {
    for entry in std::fs::read_dir(folder).map_err(StorageError::io(folder, "read"))? {
        let entry = entry.map_err(StorageError::io(folder, "read"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list_files(&entry.path(), &name, files)?;
        } else {
            files.push((name, entry.path()));
        }
    }
    Ok(())
}

/// Name, size and checksum of a file.
fn describe(path: &Path) -> Result<StoredFile, ArtifactError> {
    let file = File::open(path).map_err(StorageError::io(path, "open"))?;
    let (bytes, sha256) = size_and_checksum(&file, path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(StoredFile { name, bytes, sha256 })
}

/// Size and checksum of what is left of an open file, read as a stream; `path` is what errors call it.
pub(super) fn size_and_checksum(mut file: &File, path: &Path) -> Result<(u64, String), StorageError> {
    let (mut hasher, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((bytes, hex(&hasher.finalize()))),
            Ok(n) => {
                hasher.update(&buffer[..n]);
                bytes += n as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(StorageError::io(path, "read")(error)),
        }
    }
}
