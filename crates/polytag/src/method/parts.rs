//! Models made of models: each part is a whole model folder within the folder of the one it is a part of,
//!
//! ```text
//! manifest.json          lists the files of all parts, with their checksums
//! parts/NAME/…           a model folder as it was when it became a part, with the changes to its labels till then
//! ```
//!
//! so that the whole stands alone, whatever becomes of the folders that it was made from. Parts know labels by positions of
//! their own; the whole finds its labels in a part by their ids. Changes to labels are logged in the whole alone and
//! told to its parts each time it is loaded.

use std::fs;
use std::path::{Path, PathBuf};

use polytag_nn::device::Device;

use crate::Error;
use crate::artifact::{ArtifactError, LABEL_LOG, LABEL_SNAPSHOT, MANIFEST, ModelFolder, ModelWriter};
use crate::data::{LabelChange, LabelSpace};
use crate::ids::LabelId;
use crate::predict::{Embeddings, PredictError, Predictor};
use crate::storage::StorageError;

/// The folder of all parts.
const PARTS: &str = "parts";

/// What holds the changes to a part's labels.
const CHANGES: [&str; 2] = [LABEL_LOG, LABEL_SNAPSHOT];

/// A model that is a part of another.
pub(super) struct Part<P: Predictor + ?Sized = dyn Predictor> {
    name: &'static str,
    dir: PathBuf,
    model: Box<P>,
}

/// Changes to the labels of a part, with vectors that were made for them.
pub(super) struct Prepared {
    told: Vec<LabelChange>,
    vectors: Embeddings,
}

/// Where the part called `name` lies in a model folder.
pub(super) fn part_dir(whole: &Path, name: &str) -> PathBuf {
    whole.join(PARTS).join(name)
}

impl<P: Predictor + ?Sized> Part<P> {
    /// The model folder `dir`, read by `load`, to be the part called `name`.
    pub(super) fn from_folder(
        name: &'static str,
        dir: &Path,
        load: impl FnOnce(&Path) -> Result<Box<P>, Error>,
    ) -> Result<Part<P>, Error> {
        Ok(Part { name, dir: dir.to_owned(), model: load(dir)? })
    }

    /// The part called `name` of a model, read by `load`.
    pub(super) fn of(
        whole: &ModelFolder,
        name: &'static str,
        load: impl FnOnce(&Path) -> Result<Box<P>, Error>,
    ) -> Result<Part<P>, Error> {
        Part::from_folder(name, &checked(whole, name)?, load)
    }

    /// The model.
    pub(super) fn model(&self) -> &P {
        &self.model
    }

    /// Where the labels of the whole are in the part, by their positions in the whole.
    pub(super) fn positions(&self, whole: &LabelSpace) -> Vec<Option<LabelId>> {
        let own = self.model.label_space();
        let mut positions = vec![None; whole.positions()];
        whole.iter().for_each(|(label, text)| positions[label.index()] = own.find(&text.id));
        positions
    }

    /// Tells the part of changes to the labels of the whole: of those that make sense for its own labels. A part that
    /// only knows labels from training does not learn of added ones, which are unseen to it, and perhaps not of other
    /// names. After an error nothing has changed.
    pub(super) fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        let prepared = self.prepare(changes)?;
        self.apply_prepared(&prepared)
    }

    /// What of changes to the labels of the whole the part is to be told, with what is slow about it, or may fail, done.
    pub(super) fn prepare(&self, changes: &[LabelChange]) -> Result<Prepared, PredictError> {
        let is_known = |change: &LabelChange| !matches!(change, LabelChange::Add { .. });
        let is_removal = |change: &LabelChange| matches!(change, LabelChange::Remove { .. });
        let mut told = fitting(self.model.label_space(), changes.iter().cloned());
        for is_taken in [is_known, is_removal] {
            match self.model.prepare(&told) {
                Err(PredictError::OnlyTrained | PredictError::OnlyRecorded) => {
                    told = fitting(self.model.label_space(), told.into_iter().filter(is_taken));
                }
                vectors => return Ok(Prepared { vectors: vectors?, told }),
            }
        }
        Ok(Prepared { vectors: self.model.prepare(&told)?, told })
    }

    /// Tells the part what was prepared for it, its labels being as they were then. After an error nothing has changed.
    pub(super) fn apply_prepared(&mut self, prepared: &Prepared) -> Result<(), PredictError> {
        self.model.apply_prepared(&prepared.told, &prepared.vectors)
    }

    /// Adds the labels of the whole that the part does not have.
    pub(super) fn complete(&mut self, whole: &LabelSpace) -> Result<(), PredictError> {
        let own = self.model.label_space();
        let missing = whole.iter().filter(|(_, label)| own.find(&label.id).is_none());
        let changes: Vec<LabelChange> =
            missing.map(|(_, label)| LabelChange::Add { label: label.clone() }).collect();
        if changes.is_empty() { Ok(()) } else { self.model.apply(&changes) }
    }

    /// Brings what is searched faster on a device there.
    pub(super) fn place(&mut self, device: &Device) {
        self.model.place(device);
    }

    /// Copies the part into the folder of the whole, as it was when it was loaded.
    pub(super) fn save(&self, whole: &mut ModelWriter) -> Result<(), ArtifactError> {
        let folder = ModelFolder::open(&self.dir)?;
        whole.folder(&format!("{PARTS}/{}", self.name), |to| {
            for file in &folder.manifest().files {
                copy(&folder, &file.name, to)?;
            }
            copy_as_it_is(&self.dir.join(MANIFEST), &to.join(MANIFEST))?;
            for name in CHANGES {
                let changes = self.dir.join(name);
                if changes.is_file() {
                    copy_as_it_is(&changes, &to.join(name))?;
                }
            }
            Ok(())
        })
    }
}

/// What of changes to the whole makes sense for labels of a part, in order.
fn fitting(own: &LabelSpace, changes: impl Iterator<Item = LabelChange>) -> Vec<LabelChange> {
    let mut space = own.clone();
    let mut fitting = Vec::new();
    for change in changes {
        // A label that the whole did not have, and the part had, gives way.
        if let LabelChange::Add { label } = &change
            && space.find(&label.id).is_some()
        {
            let removal = LabelChange::Remove { id: label.id.clone() };
            fitting.extend(space.apply(&removal).is_ok().then_some(removal));
        }
        fitting.extend(space.apply(&change).is_ok().then_some(change));
    }
    fitting
}

/// Where the part called `name` lies, once what its own manifest does not vouch for has been checked: the manifest, and
/// the changes to its labels. The other files are checked as they are read.
fn checked(whole: &ModelFolder, name: &str) -> Result<PathBuf, ArtifactError> {
    whole.read(&format!("{PARTS}/{name}/{MANIFEST}"))?;
    for changes in CHANGES.map(|changes| format!("{PARTS}/{name}/{changes}")) {
        if whole.manifest().files.iter().any(|file| file.name == changes) {
            whole.read(&changes)?;
        } else if whole.dir().join(&changes).exists() {
            let problem = "the labels of a part were changed, instead of those of the whole";
            return Err(whole.damaged(&changes, problem));
        }
    }
    Ok(part_dir(whole.dir(), name))
}

/// Copies a file of a model, its content checked.
fn copy(from: &ModelFolder, name: &str, to: &Path) -> Result<(), ArtifactError> {
    let bytes = from.read(name)?;
    write(&to.join(name), &bytes)
}

fn copy_as_it_is(from: &Path, to: &Path) -> Result<(), ArtifactError> {
    let bytes = fs::read(from).map_err(StorageError::io(from, "read"))?;
    write(to, &bytes)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ArtifactError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(StorageError::io(folder, "create"))?;
    }
    let write = || fs::write(path, bytes).and_then(|()| fs::File::open(path)?.sync_all());
    Ok(write().map_err(StorageError::io(path, "write"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Label;

    #[test]
    fn changes_are_cut_to_the_labels_of_a_part() {
        let mut own = LabelSpace::default();
        for id in ["a", "b", "foreign"] {
            own.add(Label::new(id, id)).unwrap();
        }
        let add = |id: &str| LabelChange::Add { label: Label::new(id, "new") };
        let remove = |id: &str| LabelChange::Remove { id: id.to_owned() };
        let rename = |id: &str| LabelChange::Rename { id: id.to_owned(), name: "other".to_owned() };
        let changes = [remove("x"), rename("x"), remove("a"), add("a"), rename("b"), add("foreign")];
        let expected = [remove("a"), add("a"), rename("b"), remove("foreign"), add("foreign")];
        assert_eq!(fitting(&own, changes.into_iter()), expected);
        assert!(own.changed(&expected).is_ok());
    }
}
