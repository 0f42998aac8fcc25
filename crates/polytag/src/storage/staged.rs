//! Writing a folder or a file so that it is there whole or not at all.
//!
//! Content is written beside its target under a hidden name, seen onto the disk, and renamed. A
//! crash at any point leaves the old content or the new, and an error removes what was begun. A
//! target that is a link stands for what it points to; one that is no plain file, such as a device
//! or a pipe, is written to as it is. So is one that names a descriptor, such as `/dev/stdout`,
//! whatever stands behind that.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_64;

use super::descriptor;
use super::error::StorageError;
use super::open::{Compression, Sink, create, create_as};

/// What to do with a target folder that exists and is not empty.
#[derive(Clone, Copy, Debug)]
pub enum Existing {
    /// Refuse to write.
    Refuse,
    /// Replace it, unless this says why not. It must make sure that the folder is one of ours.
    ReplaceUnless(fn(&Path) -> Option<String>),
}

/// A folder being written beside its target.
#[derive(Debug)]
pub struct StagedFolder {
    target: Target,
    staging: PathBuf,
    /// Folders above the target that had to be made; removed again if nothing comes of it.
    made: Vec<PathBuf>,
}

/// Where something is to stand: as the user named it, and as it really is.
#[derive(Clone, Debug)]
struct Target {
    named: PathBuf,
    real: PathBuf,
}

impl Target {
    fn new(named: &Path) -> Target {
        Target { named: named.to_owned(), real: resolve(named) }
    }

    fn error(&self, action: &'static str) -> impl FnOnce(io::Error) -> StorageError {
        StorageError::io(&self.named, action)
    }

    /// An error if it is one of these, or lies in one.
    fn refuse_inputs(&self, inputs: &[&Path]) -> Result<(), StorageError> {
        let holds_it = |input: &&Path| input.canonicalize().is_ok_and(|input| self.real.starts_with(input));
        match inputs.iter().any(holds_it) {
            true => Err(StorageError::SameAsInput { path: self.named.clone() }),
            false => Ok(()),
        }
    }
}

impl StagedFolder {
    /// Starts a folder that will stand at `target`, made from `inputs`. It must not be an input, nor
    /// hold one.
    pub fn create(target: &Path, existing: Existing, inputs: &[&Path]) -> Result<StagedFolder, StorageError> {
        let target = Target::new(target);
        for input in inputs {
            if input.canonicalize().is_ok_and(|input| input.starts_with(&target.real)) {
                return Err(StorageError::SameAsInput { path: target.named });
            }
        }
        refuse_existing(&target, existing)?;
        let parent = parent_of(&target.real);
        let made = missing_folders(&parent);
        fs::create_dir_all(&parent).map_err(target.error("create"))?;
        let staging = hidden_name(&target.real);
        let folder = StagedFolder { target, staging, made };
        fs::create_dir(&folder.staging).map_err(folder.target.error("create"))?;
        Ok(folder)
    }

    /// Where the folder will stand.
    pub fn target(&self) -> &Path {
        &self.target.named
    }

    /// Starts the file `name` in the folder, compressed as its name says. Folders in the name are made.
    pub fn file(&self, name: &str) -> Result<Sink, StorageError> {
        let (path, shown) = (self.staging.join(name), self.target.named.join(name));
        fs::create_dir_all(parent_of(&path)).map_err(StorageError::io(&shown, "create"))?;
        create_as(&path, &shown)
    }

    /// Where something called `name` is to be written until the folder is in its place.
    pub(crate) fn staged(&self, name: &str) -> PathBuf {
        self.staging.join(name)
    }

    /// Puts the folder in its place.
    pub fn commit(mut self) -> Result<(), StorageError> {
        sync_folders(&self.staging)?;
        let Target { real, .. } = &self.target;
        // After an exchange the staging name holds the old folder, which goes when this is dropped.
        let placed =
            if real.exists() { exchange(&self.staging, real) } else { fs::rename(&self.staging, real) };
        placed.map_err(self.target.error("create"))?;
        self.made.clear();
        sync_folder(&parent_of(&self.target.real))
    }
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        // Nothing better can be done with a failure here. Folders that hold something stay.
        let _ = fs::remove_dir_all(&self.staging);
        for folder in &self.made {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// A file being written beside its target.
pub struct StagedFile {
    target: Target,
    /// None where the target is written to as it is.
    staging: Option<PathBuf>,
    /// Taken when the file is put in its place.
    sink: Option<Sink>,
}

impl StagedFile {
    /// Starts a file that will stand at `target`, made from `inputs`. It must not be an input, nor lie
    /// in one.
    pub fn create(target: &Path, inputs: &[&Path]) -> Result<StagedFile, StorageError> {
        let is_special = fs::metadata(target).is_ok_and(|data| !data.is_file() && !data.is_dir());
        let target = Target::new(target);
        if let Some(file) = descriptor::behind(&target.named).map_err(target.error("write"))? {
            // A terminal may well be both.
            if file.metadata().is_ok_and(|data| data.is_file()) {
                target.refuse_inputs(inputs)?;
            }
            let compression = Compression::from_name(&target.named);
            let sink = Some(Sink::into_open(file, compression, &target.named)?);
            return Ok(StagedFile { target, staging: None, sink });
        }
        if is_special {
            let sink = Some(create(&target.named)?);
            return Ok(StagedFile { target, staging: None, sink });
        }
        if target.real.is_dir() {
            return Err(StorageError::Exists { path: target.named, why: "is a folder".to_owned() });
        }
        target.refuse_inputs(inputs)?;
        let staging = hidden_name(&target.real);
        let sink = Some(create_as(&staging, &target.named)?);
        Ok(StagedFile { target, staging: Some(staging), sink })
    }

    /// Where to write.
    pub fn sink(&mut self) -> &mut Sink {
        self.sink.as_mut().expect("the sink is there until the file is put in its place")
    }

    /// Puts the file in its place.
    pub fn commit(mut self) -> Result<(), StorageError> {
        let sink = self.sink.take().expect("a file is put in its place once");
        let Some(staging) = &self.staging else { return sink.finish_unsynced() };
        sink.finish()?;
        fs::rename(staging, &self.target.real).map_err(self.target.error("create"))?;
        sync_folder(&parent_of(&self.target.real))
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if let Some(staging) = &self.staging {
            // Once the file is in its place, this finds nothing.
            let _ = fs::remove_file(staging);
        }
    }
}

/// Where a target really lies: links are followed as far as there is something.
pub fn resolve(target: &Path) -> PathBuf {
    if let Ok(real) = target.canonicalize() {
        return real;
    }
    match (target.parent(), target.file_name()) {
        (Some(parent), Some(name)) if parent.as_os_str().is_empty() => resolve(Path::new(".")).join(name),
        (Some(parent), Some(name)) => resolve(parent).join(name),
        _ => target.to_owned(),
    }
}

fn refuse_existing(target: &Target, existing: Existing) -> Result<(), StorageError> {
    let refused = |why: String| Err(StorageError::Exists { path: target.named.clone(), why });
    let Ok(metadata) = fs::metadata(&target.real) else { return Ok(()) };
    if !metadata.is_dir() {
        return refused("is not a folder".to_owned());
    }
    if is_mount_point(&target.real) {
        return refused(
            "is a file system of its own, which cannot be put in place; name a folder in it".to_owned(),
        );
    }
    let mut entries = fs::read_dir(&target.real).map_err(target.error("read"))?;
    if entries.next().is_none() {
        return Ok(());
    }
    match existing {
        Existing::Refuse => refused("is not empty".to_owned()),
        Existing::ReplaceUnless(objection) => objection(&target.real).map_or(Ok(()), refused),
    }
}

fn is_mount_point(folder: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let device = |path: &Path| fs::metadata(path).map(|data| data.dev()).ok();
        device(folder) != device(&parent_of(folder))
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        false
    }
}

/// The folders on the way to `folder` that are not there, the deepest first.
fn missing_folders(folder: &Path) -> Vec<PathBuf> {
    folder
        .ancestors()
        .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
        .map(Path::to_owned)
        .collect()
}

fn parent_of(target: &Path) -> PathBuf {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A hidden name beside `target`, so that renaming stays on one file system. No two are alike, within
/// a program or between programs that share a disk. The target's ending is kept, as it decides the
/// compression.
fn hidden_name(target: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let unique = xxh3_64(format!("{} {count} {now}", std::process::id()).as_bytes());
    let ending = target.extension().map(|ext| format!(".{}", ext.to_string_lossy())).unwrap_or_default();
    parent_of(target).join(format!(".partial-{unique:016x}{ending}"))
}

/// Makes renames in a folder durable, where folders can be opened.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), StorageError> {
    if cfg!(unix) {
        File::open(folder).and_then(|handle| handle.sync_all()).map_err(StorageError::io(folder, "write"))?;
    }
    Ok(())
}

/// Makes the names in a folder, and in the folders below it, durable.
fn sync_folders(folder: &Path) -> Result<(), StorageError> {
    for entry in fs::read_dir(folder).map_err(StorageError::io(folder, "read"))? {
        let entry = entry.map_err(StorageError::io(folder, "read"))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            sync_folders(&entry.path())?;
        }
    }
    sync_folder(folder)
}

/// Swaps two folders, in one step where the system can.
fn exchange(new: &Path, old: &Path) -> io::Result<()> {
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
        let target = dir.path().join("new/out");
        let staged = StagedFolder::create(&target, Existing::Refuse, &[]).unwrap();
        staged.file("a.txt").unwrap().finish().unwrap();
        assert!(!target.exists());
        drop(staged);
        assert!(names(dir.path()).is_empty());

        let staged = StagedFolder::create(&target, Existing::Refuse, &[]).unwrap();
        staged.file("a.txt").unwrap().finish().unwrap();
        staged.file("b/c.txt").unwrap().finish().unwrap();
        staged.commit().unwrap();
        assert_eq!(names(&dir.path().join("new")), ["out"]);
        assert_eq!(names(&target), ["a.txt", "b"]);
        assert_eq!(names(&target.join("b")), ["c.txt"]);
    }

    #[test]
    fn a_folder_is_replaced_only_without_objection() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("out");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("precious"), "x").unwrap();
        let existing = Existing::ReplaceUnless(|dir| {
            dir.join("precious").exists().then(|| "holds something".to_owned())
        });
        assert!(matches!(StagedFolder::create(&target, existing, &[]), Err(StorageError::Exists { .. })));

        fs::rename(target.join("precious"), target.join("old")).unwrap();
        let staged = StagedFolder::create(&target, existing, &[]).unwrap();
        staged.file("new").unwrap().finish().unwrap();
        staged.commit().unwrap();
        assert_eq!(names(&target), ["new"]);
        assert_eq!(names(dir.path()), ["out"]);
    }

    #[test]
    fn an_input_is_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let input = dir.path().join("model/task");
        fs::create_dir_all(&input).unwrap();
        let same = dir.path().join("model/../model/task");
        for target in [&same, &dir.path().join("model")] {
            let error =
                StagedFolder::create(target, Existing::ReplaceUnless(|_| None), &[&input]).unwrap_err();
            assert!(matches!(error, StorageError::SameAsInput { .. }));
        }
        let error = StagedFile::create(&input.join("labels.jsonl"), &[&input]).err().unwrap();
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
        let staged = StagedFolder::create(&folder_link, Existing::ReplaceUnless(|_| None), &[]).unwrap();
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
        drop(StagedFile::create(&dir.path().join("other"), &[]).unwrap());
        assert_eq!(names(dir.path()), ["out.jsonl"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_behind_a_descriptor_keeps_what_is_in_it() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("log"), dir.path().join("link.gz"));
        let mut log = File::create(&path).unwrap();
        log.write_all(b"before\n").unwrap();
        let name = PathBuf::from(format!("/proc/self/fd/{}", log.as_raw_fd()));
        std::os::unix::fs::symlink(&name, &link).unwrap();
        for target in [&name, &link] {
            let mut staged = StagedFile::create(target, &[]).unwrap();
            staged.sink().write(b"ours\n").unwrap();
            staged.commit().unwrap();
        }
        log.write_all(b"after\n").unwrap();
        assert_eq!(names(dir.path()), ["link.gz", "log"]);
        let content = fs::read(&path).unwrap();
        assert!(
            content.starts_with(b"before\nours\n\x1f\x8b") && content.ends_with(b"after\n"),
            "{content:?}"
        );
        for input in [&*path, dir.path()] {
            let error = StagedFile::create(&name, &[input]).err().unwrap();
            assert!(matches!(error, StorageError::SameAsInput { .. }));
        }
        assert_eq!(fs::read(&path).unwrap(), content);
    }

    #[cfg(unix)]
    #[test]
    fn devices_stay_devices() {
        let mut staged = StagedFile::create(Path::new("/dev/null"), &[]).unwrap();
        staged.sink().write(b"gone").unwrap();
        staged.commit().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
