//! What a training keeps in its folder while it runs, to go on from.

use std::fs;
use std::path::{Path, PathBuf};

use polytag_nn::train::{CHECKPOINT, CURVE};

use super::maclr::STAGES;
use crate::storage::StorageError;

/// The folder that a training keeps while it runs: beside the model, so that the same fit goes on where it was broken off.
#[derive(Debug)]
pub struct TrainingFolder {
    path: PathBuf,
    is_under_way: bool,
}

impl TrainingFolder {
    /// The folder of a training whose model is to be `out`; it is made, if it is not there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn beside(out: &Path) -> Result<TrainingFolder, StorageError> {
        let mut name = out.file_name().unwrap_or_default().to_owned();
        name.push(".training");
        let path = out.with_file_name(name);
        let is_under_way = is_under_way(&path);
        fs::create_dir_all(&path).map_err(StorageError::io(&path, "create"))?;
        Ok(TrainingFolder { path, is_under_way })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it held something to go on from.
    pub fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Ends the fit. Once the model is written, what was kept meanwhile is in it, and goes; otherwise what there is to go on
    /// from stays.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn end(self, written: bool) -> Result<(), StorageError> {
        if written {
            return clear(&self.path);
        }
        // Where it was refused before it began, there is nothing in it.
        fs::remove_dir(&self.path).ok();
        Ok(())
    }
}

fn is_under_way(folder: &Path) -> bool {
    folder.join(CHECKPOINT).is_file() || folder.join(STAGES).is_dir()
}

/// Removes what a training kept in its folder, and the folder, if nothing of the user's is in it.
fn clear(folder: &Path) -> Result<(), StorageError> {
    for path in [CHECKPOINT, CURVE].map(|name| folder.join(name)) {
        if path.exists() {
            fs::remove_file(&path).map_err(StorageError::io(&path, "remove"))?;
        }
    }
    let stages = folder.join(STAGES);
    if stages.is_dir() {
        fs::remove_dir_all(&stages).map_err(StorageError::io(&stages, "remove"))?;
    }
    fs::remove_dir(folder).ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_trainings_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (out, folder) = (dir.path().join("m"), dir.path().join("m.training"));
        let training = TrainingFolder::beside(&out).unwrap();
        assert!(training.path() == folder && folder.is_dir() && !training.is_under_way());
        // Broken off before it began, it leaves nothing.
        training.end(false).unwrap();
        assert!(!folder.exists());
        fs::create_dir_all(folder.join(STAGES).join("one")).unwrap();
        fs::write(folder.join(CURVE), "").unwrap();
        fs::write(folder.join("notes.txt"), "mine").unwrap();
        let training = TrainingFolder::beside(&out).unwrap();
        assert!(training.is_under_way());
        training.end(false).unwrap();
        assert!(folder.join(STAGES).is_dir());
        TrainingFolder::beside(&out).unwrap().end(true).unwrap();
        assert!(!is_under_way(&folder) && folder.join("notes.txt").is_file());
        fs::remove_file(folder.join("notes.txt")).unwrap();
        TrainingFolder::beside(&out).unwrap().end(true).unwrap();
        assert!(!folder.exists());
    }
}
