//! What a training keeps in its folder while it runs, to go on from.

use std::fs;
use std::path::Path;

use polytag_nn::train::{CHECKPOINT, CURVE};

use super::maclr::STAGES;
use crate::storage::StorageError;

/// Whether the folder of a training holds something to go on from.
pub fn is_under_way(folder: &Path) -> bool {
    folder.join(CHECKPOINT).is_file() || folder.join(STAGES).is_dir()
}

/// Removes what a training kept in its folder, once it is not needed any more, and the folder, if nothing of the user's
/// is in it.
pub fn clear_training(folder: &Path) -> Result<(), StorageError> {
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
        let folder = dir.path().join("m.training");
        fs::create_dir_all(folder.join(STAGES).join("one")).unwrap();
        fs::write(folder.join(CURVE), "").unwrap();
        assert!(is_under_way(&folder));
        fs::write(folder.join("notes.txt"), "mine").unwrap();
        clear_training(&folder).unwrap();
        assert!(!is_under_way(&folder) && folder.join("notes.txt").is_file());
        fs::remove_file(folder.join("notes.txt")).unwrap();
        clear_training(&folder).unwrap();
        assert!(!folder.exists());
    }
}
