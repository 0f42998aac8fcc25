//! Writing a folder or a file so that it is there whole or not at all.
//!
//! Content is written beside its target under a hidden name, seen onto the disk, and renamed. A
//! crash at any point leaves the old content or the new, and an error removes what was begun. A link
//! stays a link: what it leads to is replaced. A pipe or a device is written to as it is.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::error::StorageError;
use super::open::{Sink, create};

/// What to do with a target folder that exists and is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Refuse to write.
    Refuse,
    /// Replace it, if it holds a file of this name: proof that it is one of ours.
    ReplaceIfHolds(&'static str),
}

/// A folder being written beside its target.
#[derive(Debug)]
pub struct StagedFolder {
    target: PathBuf,
    staging: PathBuf,
    committed: bool,
}

impl StagedFolder {
    /// Starts a folder that will stand at `target`, made from `inputs`.
    pub fn create(target: &Path, existing: Existing, inputs: &[&Path]) -> Result<StagedFolder, StorageError> {
        refuse_inputs(target, inputs)?;
        refuse_existing(target, existing)?;
        let target = &behind_links(target);
        let staging = staging_name(target);
        let parent = parent_of(target);
        fs::create_dir_all(&parent).map_err(StorageError::io(&parent, "create"))?;
        if staging.exists() {
            fs::remove_dir_all(&staging).map_err(StorageError::io(&staging, "remove"))?;
        }
        fs::create_dir(&staging).map_err(StorageError::io(target, "create"))?;
        Ok(StagedFolder { target: target.to_owned(), staging, committed: false })
    }

    /// The path under which the file `name` is written until the folder is committed.
    pub fn path(&self, name: &str) -> PathBuf {
        self.staging.join(name)
    }

    /// Starts the file `name` in the folder, compressed as its name says.
    pub fn file(&self, name: &str) -> Result<Sink, StorageError> {
        create(&self.path(name))
    }

    /// Puts the folder in its place.
    pub fn commit(mut self) -> Result<(), StorageError> {
        sync_folder(&self.staging)?;
        if self.target.exists() {
            exchange(&self.staging, &self.target).map_err(StorageError::io(&self.target, "replace"))?;
            self.committed = true;
            sync_folder(&parent_of(&self.target))?;
            // The staging name now holds the old folder.
            return fs::remove_dir_all(&self.staging).map_err(StorageError::io(&self.staging, "remove"));
        }
        fs::rename(&self.staging, &self.target).map_err(StorageError::io(&self.target, "create"))?;
        self.committed = true;
        sync_folder(&parent_of(&self.target))
    }
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        if !self.committed {
            // Nothing better can be done with a failure here; the name says what is left over.
            let _ = fs::remove_dir_all(&self.staging);
        }
    }
}

/// A file being written beside its target.
pub struct StagedFile {
    target: PathBuf,
    /// None where the target takes bytes but cannot be replaced: a pipe, a device.
    staging: Option<PathBuf>,
    sink: Option<Sink>,
}

impl StagedFile {
    /// Starts a file that will stand at `target`, made from `inputs`.
    pub fn create(target: &Path, inputs: &[&Path]) -> Result<StagedFile, StorageError> {
        refuse_inputs(target, inputs)?;
        if target.is_dir() {
            return Err(StorageError::Exists { path: target.to_owned(), why: "is a folder".to_owned() });
        }
        if fs::metadata(target).is_ok_and(|metadata| !metadata.is_file()) {
            return Ok(StagedFile { target: target.to_owned(), staging: None, sink: Some(create(target)?) });
        }
        let target = &behind_links(target);
        let staging = staging_name(target);
        let sink = create(&staging).map_err(|error| match error {
            // The user knows the target's name, not ours.
            StorageError::Io { action, source, .. } => {
                StorageError::Io { path: target.to_owned(), action, source }
            }
            other => other,
        })?;
        Ok(StagedFile { target: target.to_owned(), staging: Some(staging), sink: Some(sink) })
    }

    /// Where to write.
    pub fn sink(&mut self) -> &mut Sink {
        self.sink.as_mut().expect("the sink is there until commit")
    }

    /// Puts the file in its place.
    pub fn commit(mut self) -> Result<(), StorageError> {
        self.sink.take().expect("commit happens once").finish()?;
        let Some(staging) = &self.staging else { return Ok(()) };
        fs::rename(staging, &self.target).map_err(StorageError::io(&self.target, "create"))?;
        sync_folder(&parent_of(&self.target))
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // After a commit the name is gone and this does nothing.
        if let Some(staging) = &self.staging {
            let _ = fs::remove_file(staging);
        }
    }
}

fn refuse_inputs(target: &Path, inputs: &[&Path]) -> Result<(), StorageError> {
    let Ok(target) = target.canonicalize() else { return Ok(()) };
    for input in inputs {
        if input.canonicalize().is_ok_and(|input| input == target) {
            return Err(StorageError::SameAsInput { path: target });
        }
    }
    Ok(())
}

fn refuse_existing(target: &Path, existing: Existing) -> Result<(), StorageError> {
    let refused = |why: &str| Err(StorageError::Exists { path: target.to_owned(), why: why.to_owned() });
    let Ok(metadata) = fs::metadata(target) else { return Ok(()) };
    if !metadata.is_dir() {
        return refused("is not a folder");
    }
    let mut entries = fs::read_dir(target).map_err(StorageError::io(target, "read"))?;
    if entries.next().is_none() {
        return Ok(());
    }
    match existing {
        Existing::Refuse => refused("is not empty"),
        Existing::ReplaceIfHolds(marker) if target.join(marker).is_file() => Ok(()),
        Existing::ReplaceIfHolds(marker) => {
            refused(&format!("holds no {marker}, so it is not ours to replace"))
        }
    }
}

/// Where a target that exists really lies, so that renaming replaces it and not a link to it.
fn behind_links(target: &Path) -> PathBuf {
    let is_link = fs::symlink_metadata(target).is_ok_and(|metadata| metadata.is_symlink());
    if is_link { target.canonicalize().unwrap_or_else(|_| target.to_owned()) } else { target.to_owned() }
}

fn parent_of(target: &Path) -> PathBuf {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A hidden sibling, so that the rename stays on one file system. The process id keeps two
/// writers apart. The target's ending is kept, as it decides the compression.
fn staging_name(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    parent_of(target).join(format!(".partial-{}-{name}", std::process::id()))
}

fn sync_folder(folder: &Path) -> Result<(), StorageError> {
    // Folders cannot be opened as files everywhere; where they can, this makes the rename durable.
    if cfg!(unix) {
        File::open(folder).and_then(|handle| handle.sync_all()).map_err(StorageError::io(folder, "write"))?;
    }
    Ok(())
}

/// Swaps two folders, in one step where the system can.
fn exchange(new: &Path, old: &Path) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let aside = new.with_extension("old");
    fs::rename(old, &aside)?;
    fs::rename(new, old)?;
    fs::rename(&aside, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_appears_whole_and_a_dropped_one_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("out");
        let staged = StagedFolder::create(&target, Existing::Refuse, &[]).unwrap();
        staged.file("a.txt").unwrap().finish().unwrap();
        assert!(!target.exists());
        drop(staged);
        assert!(names(dir.path()).is_empty());

        let staged = StagedFolder::create(&target, Existing::Refuse, &[]).unwrap();
        staged.file("a.txt").unwrap().finish().unwrap();
        staged.commit().unwrap();
        assert_eq!(names(dir.path()), ["out"]);
        assert_eq!(names(&target), ["a.txt"]);
    }

    #[test]
    fn only_our_own_folder_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("out");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("precious"), "x").unwrap();
        let replace = Existing::ReplaceIfHolds("manifest.json");
        assert!(matches!(StagedFolder::create(&target, replace, &[]), Err(StorageError::Exists { .. })));

        fs::write(target.join("manifest.json"), "x").unwrap();
        let staged = StagedFolder::create(&target, replace, &[]).unwrap();
        staged.file("manifest.json").unwrap().finish().unwrap();
        staged.commit().unwrap();
        assert_eq!(names(&target), ["manifest.json"]);
        assert_eq!(names(dir.path()), ["out"]);
    }

    #[test]
    fn an_input_is_never_the_output() {
        let dir = tempfile::tempdir().unwrap();
        let same = dir.path().join("x/..");
        fs::create_dir(dir.path().join("x")).unwrap();
        let error = StagedFolder::create(dir.path(), Existing::Refuse, &[&same]).unwrap_err();
        assert!(matches!(error, StorageError::SameAsInput { .. }));
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("real/out"), dir.path().join("link"));
        fs::create_dir(dir.path().join("real")).unwrap();
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut staged = StagedFile::create(&link, &[]).unwrap();
        staged.sink().write(b"new").unwrap();
        staged.commit().unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(dir.path()), ["link", "real"]);
        assert_eq!(names(&dir.path().join("real")), ["out"]);

        let folder_link = dir.path().join("folder");
        std::os::unix::fs::symlink(dir.path().join("real"), &folder_link).unwrap();
        let staged = StagedFolder::create(&folder_link, Existing::ReplaceIfHolds("out"), &[]).unwrap();
        staged.file("fresh").unwrap().finish().unwrap();
        staged.commit().unwrap();
        assert_eq!(names(&dir.path().join("real")), ["fresh"]);
        assert!(fs::symlink_metadata(&folder_link).unwrap().is_symlink());
    }

    #[test]
    fn a_file_appears_whole() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("out.jsonl");
        let mut staged = StagedFile::create(&target, &[]).unwrap();
        staged.sink().write(b"one\n").unwrap();
        assert!(!target.exists());
        staged.commit().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"one\n");
        assert_eq!(names(dir.path()), ["out.jsonl"]);
    }
}
