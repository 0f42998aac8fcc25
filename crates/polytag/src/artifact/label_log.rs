//! Changes to a model's labels after it was fitted.
//!
//! What is changed together is one line, `checksum json`. The checksum covers the line before it
//! too, so that no line can be changed, dropped or moved unseen. A line is on the disk before its
//! changes are acknowledged; one that a crash cut short was never acknowledged, and is dropped.
//!
//! When there are many lines, what they come down to is written to a snapshot, whole or not at all, and the log begins
//! anew: its first line goes on from the checksum of the last one that the snapshot covers. A snapshot that is cut short
//! shows, and so does a log without its snapshot.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use super::error::ArtifactError;
use super::manifest::MANIFEST;
use crate::data::LabelChange;
use crate::storage::{StagedFile, StorageError, append_durably};
use serde::{Deserialize, Serialize};

/// The log's file name.
pub const NAME: &str = "labels.log";

/// The snapshot's file name.
pub const SNAPSHOT: &str = "labels.snapshot";

/// A log of fewer changes is left as it is.
const FEW: usize = 1024;

/// The log of a model folder, held so that no one else can write to it.
#[derive(Debug)]
pub struct LabelLog {
    path: PathBuf,
    snapshot: PathBuf,
    manifest: PathBuf,
    /// The open manifest, locked.
    lock: File,
    state: State,
}

/// What many lines come down to.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Snapshot {
    /// The checksum that the log began from whose lines it covers.
    from: u32,
    /// The checksum of the last line that it covers.
    covers: u32,
    changes: Vec<LabelChange>,
}

/// What a log holds, and where the next line goes.
#[derive(Debug, Default)]
struct State {
    /// All changes, those of the snapshot first.
    changes: Vec<LabelChange>,
    /// How many of them are in the log.
    logged: usize,
    /// The checksum that the log begins from.
    start: u32,
    /// Bytes of whole lines.
    length: u64,
    /// Checksum of the last line.
    chain: u32,
    /// Whether the last line has lost its line break.
    unterminated: bool,
    /// Whether lines that a snapshot covers were passed over.
    covered: bool,
}

impl LabelLog {
    /// The changes logged in the model folder `dir`; none where there is no log.
    pub fn read(dir: &Path) -> Result<Vec<LabelChange>, ArtifactError> {
        Ok(read(&dir.join(NAME), &dir.join(SNAPSHOT))?.changes)
    }

    /// Opens the log of the model folder `dir` for writing. Until it is dropped, no one else can, nor can
    /// the model be replaced. The lock is on the manifest, so that nothing is made before there is
    /// something to log.
    pub fn lock(dir: &Path) -> Result<LabelLog, ArtifactError> {
        let (path, snapshot, manifest) = (dir.join(NAME), dir.join(SNAPSHOT), dir.join(MANIFEST));
        let lock = File::open(&manifest).map_err(StorageError::io(&manifest, "open"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => ArtifactError::Locked { path: dir.to_owned() },
            TryLockError::Error(error) => StorageError::io(&manifest, "lock")(error).into(),
        })?;
        let state = read(&path, &snapshot)?;
        let log = LabelLog { path, snapshot, manifest, lock, state };
        log.check_place()?;
        sweep(dir);
        Ok(log)
    }

    /// Holds the model folder `dir` as one whose labels are kept elsewhere: until what comes back is dropped, the model
    /// cannot be replaced and its log not be written to, but others can hold it in the same way.
    pub fn share(dir: &Path) -> Result<File, ArtifactError> {
        let manifest = dir.join(MANIFEST);
        let lock = File::open(&manifest).map_err(StorageError::io(&manifest, "open"))?;
        match lock.try_lock_shared() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => Err(ArtifactError::Locked { path: dir.to_owned() }),
            Err(TryLockError::Error(error)) => Err(StorageError::io(&manifest, "lock")(error).into()),
        }
    }

    /// The changes logged so far.
    pub fn changes(&self) -> &[LabelChange] {
        &self.state.changes
    }

    /// Logs changes, all or none. When this returns, they are on the disk.
    pub fn append(&mut self, changes: &[LabelChange]) -> Result<(), ArtifactError> {
        let json = serde_json::to_string(changes).expect("strings always make JSON");
        let chain = checksum(self.state.chain, json.as_bytes());
        let line_break = if self.state.unterminated { "\n" } else { "" };
        let line = format!("{line_break}{chain:08x} {json}\n");
        self.check_place()?;
        self.write(&line)?;
        self.state.length += line.len() as u64;
        self.state.chain = chain;
        self.state.unterminated = false;
        self.state.changes.extend_from_slice(changes);
        self.state.logged += changes.len();
        self.check_place()
    }

    /// Whether there is so much in the log that a snapshot of it saves work: as much again as in the last one.
    pub fn is_long(&self) -> bool {
        self.state.logged >= FEW.max(self.state.changes.len() - self.state.logged)
    }

    /// Writes what all changes come down to as a snapshot, and begins the log anew. Whatever happens on the way, all
    /// changes stay.
    pub fn compact(&mut self) -> Result<(), ArtifactError> {
        let changes = LabelChange::compacted(&self.state.changes);
        let snapshot = Snapshot { from: self.state.start, covers: self.state.chain, changes };
        let json = serde_json::to_string(&snapshot).expect("strings always make JSON");
        let mut file = StagedFile::create(&self.snapshot, &[])?;
        file.sink().write(format!("{:08x} {json}\n", checksum(0, json.as_bytes())).as_bytes())?;
        file.commit()?;
        // From here on the log is covered; if it cannot be emptied now, its lines are passed over when it is read.
        match OpenOptions::new().write(true).open(&self.path).and_then(|file| file.set_len(0)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StorageError::io(&self.path, "empty")(error).into());
            }
            _ => {
                let (start, chain, changes) = (self.state.chain, self.state.chain, snapshot.changes);
                self.state = State { start, chain, changes, ..State::default() };
            }
        }
        // A line that goes on from the snapshot, so that it shows if that is gone.
        self.append(&[])
    }

    fn write(&self, line: &str) -> Result<(), ArtifactError> {
        let length = self.state.length;
        if !append_durably(&self.path, length, line.as_bytes())? {
            let problem = format!("another program cut it short: {length} bytes were written to it");
            return Err(ArtifactError::Damaged { path: self.path.clone(), problem });
        }
        Ok(())
    }

    /// An error if the model was replaced by another since the log was opened.
    fn check_place(&self) -> Result<(), ArtifactError> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let held = self.lock.metadata().map_err(StorageError::io(&self.manifest, "read"))?;
            let there = fs::metadata(&self.manifest).ok();
            if there.is_none_or(|there| (there.dev(), there.ino()) != (held.dev(), held.ino())) {
                return Err(ArtifactError::Replaced { path: self.path.clone() });
            }
        }
        Ok(())
    }
}

/// Removes snapshots that a crash left unfinished. Only who holds the log writes any, so that nobody misses them.
fn sweep(dir: &Path) {
    let unfinished = |name: &str| name.starts_with(".partial-") && name.ends_with(".snapshot");
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(unfinished) {
            // What cannot be removed is in nobody's way.
            fs::remove_file(entry.path()).ok();
        }
    }
}

fn read_if_there(path: &Path) -> Result<Vec<u8>, StorageError> {
    match fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(StorageError::io(path, "read")),
    }
}

fn checksum(chain: u32, json: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&chain.to_le_bytes());
    hasher.update(json);
    hasher.finalize()
}

/// The log at `path` behind the snapshot at `snapshot`, if there are such.
fn read(path: &Path, snapshot: &Path) -> Result<State, ArtifactError> {
    let bytes = read_if_there(path)?;
    let Some(Snapshot { from, covers, changes }) = read_snapshot(snapshot)? else {
        return parse(path, &bytes, 0, None);
    };
    // A crash may have come before the log was emptied: then its lines are those that the snapshot covers.
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let is_covered = verify(covers, line).is_none() && verify(from, line).is_some();
    let logged = match is_covered {
        true => parse(path, &bytes, from, Some(covers))?,
        false => parse(path, &bytes, covers, None)?,
    };
    // The last covered lines may be missing: then there is none after them, and the log begins anew.
    let logged = match is_covered && !logged.covered {
        true => State { start: covers, chain: covers, ..State::default() },
        false => logged,
    };
    Ok(State { changes: [changes, logged.changes].concat(), ..logged })
}

fn read_snapshot(path: &Path) -> Result<Option<Snapshot>, ArtifactError> {
    let damaged = |problem: String| ArtifactError::Damaged { path: path.to_owned(), problem };
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(StorageError::io(path, "read"))?,
    };
    let whole = bytes.strip_suffix(b"\n").and_then(|line| verify(0, line));
    let (_, json) = whole.ok_or_else(|| {
        damaged(format!(
            "its checksum does not fit what is there, {} bytes; it may be cut short",
            bytes.len()
        ))
    })?;
    serde_json::from_slice(json).map(Some).map_err(|error| damaged(error.to_string()))
}

/// The lines of a log that goes on from the checksum `start`. If it was covered up to a line, those are passed over.
fn parse(path: &Path, bytes: &[u8], start: u32, covered: Option<u32>) -> Result<State, ArtifactError> {
    let mut state = State { start, chain: start, ..State::default() };
    for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let damaged = |problem: String| ArtifactError::Damaged {
            path: path.to_owned(),
            problem: format!("line {}: {problem}", index + 1),
        };
        let (content, terminated) = match line.strip_suffix(b"\n") {
            Some(content) => (content, true),
            None => (line, false),
        };
        let verified = verify(state.chain, content);
        if !terminated && verified.is_none() {
            // A line that is whole but for its changed line break is damaged; any other was cut short.
            let all_but_one = &content[..content.len() - 1];
            if verify(state.chain, all_but_one).is_some() {
                return Err(damaged("its line break was changed".to_owned()));
            }
            break;
        }
        let (sum, json) = verified.ok_or_else(|| damaged("its checksum does not fit".to_owned()))?;
        let changes: Vec<LabelChange> =
            serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        state.logged += changes.len();
        state.changes.extend(changes);
        state.chain = sum;
        state.length += line.len() as u64;
        state.unterminated = !terminated;
        if covered == Some(sum) {
            state.changes.clear();
            (state.logged, state.covered) = (0, true);
        }
    }
    Ok(state)
}

/// The checksum and the JSON of a line, if they fit each other and the line before.
fn verify(chain: u32, line: &[u8]) -> Option<(u32, &[u8])> {
    let (head, json) = line.split_at_checked(9)?;
    let sum = checksum(chain, json);
    (head == format!("{sum:08x} ").as_bytes()).then_some((sum, json))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Label;

    fn changes() -> Vec<LabelChange> {
        vec![
            LabelChange::Add { label: Label::new("a", "A") },
            LabelChange::Rename { id: "a".into(), name: "Ä\n".into() },
            LabelChange::Remove { id: "a".into() },
        ]
    }

    /// A log of two lines: the first change, then the others together.
    fn written() -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(MANIFEST), "{}").unwrap();
        let mut log = LabelLog::lock(dir.path()).unwrap();
        assert!(!dir.path().join(NAME).exists());
        log.append(&changes()[..1]).unwrap();
        log.append(&changes()[1..]).unwrap();
        let bytes = fs::read(dir.path().join(NAME)).unwrap();
        (dir, bytes)
    }

    #[test]
    fn changes_come_back_in_order() {
        let (dir, _) = written();
        assert_eq!(LabelLog::read(dir.path()).unwrap(), changes());
        assert!(LabelLog::read(tempfile::tempdir().unwrap().path()).unwrap().is_empty());
    }

    #[test]
    fn what_was_cut_short_is_dropped_whole_and_written_over() {
        let (dir, bytes) = written();
        let path = dir.path().join(NAME);
        let first = bytes.iter().position(|&byte| byte == b'\n').unwrap();
        for cut in 0..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            // A line that only lacks its line break is whole.
            let whole = if cut < first {
                0
            } else if cut < bytes.len() - 1 {
                1
            } else {
                3
            };
            assert_eq!(LabelLog::read(dir.path()).unwrap(), changes()[..whole], "cut at {cut}");
            let mut log = LabelLog::lock(dir.path()).unwrap();
            log.append(&changes()[..1]).unwrap();
            drop(log);
            assert_eq!(LabelLog::read(dir.path()).unwrap(), [&changes()[..whole], &changes()[..1]].concat());
        }
    }

    #[test]
    fn no_byte_can_be_changed_and_no_line_moved_unseen() {
        let (dir, bytes) = written();
        let path = dir.path().join(NAME);
        for at in 0..bytes.len() {
            for change in [1u8, 0x20, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                fs::write(&path, &changed).unwrap();
                assert!(LabelLog::read(dir.path()).is_err(), "byte {at} by {change}");
            }
        }
        let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
        fs::write(&path, [lines[1], lines[0]].concat()).unwrap();
        assert!(LabelLog::read(dir.path()).is_err());
    }

    #[test]
    fn two_writers_are_one_too_many() {
        let (dir, _) = written();
        let _first = LabelLog::lock(dir.path()).unwrap();
        assert!(matches!(LabelLog::lock(dir.path()), Err(ArtifactError::Locked { .. })));
        assert!(matches!(LabelLog::share(dir.path()), Err(ArtifactError::Locked { .. })));
    }

    #[test]
    fn many_may_hold_a_folder_whose_labels_are_elsewhere_and_then_nobody_writes() {
        let (dir, _) = written();
        let first = LabelLog::share(dir.path()).unwrap();
        let second = LabelLog::share(dir.path()).unwrap();
        drop(first);
        assert!(matches!(LabelLog::lock(dir.path()), Err(ArtifactError::Locked { .. })));
        drop(second);
        LabelLog::lock(dir.path()).unwrap();
    }

    fn added(id: usize) -> LabelChange {
        LabelChange::Add { label: Label::new(id.to_string(), "a name") }
    }

    /// A folder with a snapshot of `count` labels and a line after it.
    fn compacted(count: usize) -> (tempfile::TempDir, Vec<LabelChange>) {
        let (dir, _) = written();
        let mut log = LabelLog::lock(dir.path()).unwrap();
        let all: Vec<LabelChange> = (0..=count).map(added).collect();
        log.append(&all[..count]).unwrap();
        log.compact().unwrap();
        assert_eq!(log.changes(), &all[..count]);
        log.append(&all[count..]).unwrap();
        (dir, all)
    }

    #[test]
    fn a_snapshot_holds_what_the_log_came_down_to() {
        let (dir, all) = compacted(20);
        assert_eq!(LabelLog::read(dir.path()).unwrap(), all);
        let length = fs::metadata(dir.path().join(NAME)).unwrap().len();
        assert!(length < 100, "the log is {length} bytes long");
        let mut log = LabelLog::lock(dir.path()).unwrap();
        log.compact().unwrap();
        log.compact().unwrap();
        log.append(&[added(99)]).unwrap();
        drop(log);
        assert_eq!(LabelLog::read(dir.path()).unwrap(), [all, vec![added(99)]].concat());
    }

    #[test]
    fn snapshots_that_were_never_finished_are_removed() {
        let (dir, _) = written();
        let stale = dir.path().join(".partial-0123456789abcdef.snapshot");
        fs::write(&stale, "0000").unwrap();
        fs::write(dir.path().join(".partial-notes"), "mine").unwrap();
        drop(LabelLog::lock(dir.path()).unwrap());
        assert!(!stale.exists() && dir.path().join(".partial-notes").exists());
    }

    #[test]
    fn long_logs_ask_for_a_snapshot() {
        let (dir, _) = written();
        let mut log = LabelLog::lock(dir.path()).unwrap();
        log.append(&(0..FEW).map(added).collect::<Vec<_>>()).unwrap();
        assert!(log.is_long());
        log.compact().unwrap();
        assert!(!log.is_long());
    }

    #[test]
    fn a_crash_before_the_log_is_emptied_loses_nothing_and_doubles_nothing() {
        let (dir, _) = written();
        let path = dir.path().join(NAME);
        let mut log = LabelLog::lock(dir.path()).unwrap();
        log.append(&[added(1)]).unwrap();
        log.append(&[added(2)]).unwrap();
        for _ in 0..2 {
            let before = fs::read(&path).unwrap();
            log.compact().unwrap();
            drop(log);
            fs::write(&path, &before).unwrap();
            assert_eq!(LabelLog::read(dir.path()).unwrap(), [added(1), added(2)]);
            log = LabelLog::lock(dir.path()).unwrap();
            log.append(&[LabelChange::Rename { id: "1".into(), name: "other".into() }]).unwrap();
            let renamed = LabelLog::read(dir.path()).unwrap();
            assert_eq!(renamed.len(), 3);
            log.append(&[LabelChange::Rename { id: "1".into(), name: "a name".into() }]).unwrap();
        }
        // The same, and the last covered line was cut off as well: the snapshot has it.
        let before = fs::read(&path).unwrap();
        log.compact().unwrap();
        drop(log);
        fs::write(&path, &before[..before.len() - 5]).unwrap();
        assert_eq!(LabelLog::read(dir.path()).unwrap(), [added(1), added(2)]);
        let mut log = LabelLog::lock(dir.path()).unwrap();
        log.append(&[added(3)]).unwrap();
        assert_eq!(LabelLog::read(dir.path()).unwrap(), [added(1), added(2), added(3)]);
    }

    #[test]
    fn a_snapshot_cut_anywhere_shows_and_so_does_one_that_is_gone() {
        let (dir, _) = compacted(60);
        let path = dir.path().join(SNAPSHOT);
        let whole = fs::read(&path).unwrap();
        assert!(whole.len() > 2048);
        for cut in (0..whole.len()).step_by(512).chain([1, whole.len() - 1]) {
            fs::write(&path, &whole[..cut]).unwrap();
            let error = LabelLog::read(dir.path()).unwrap_err().to_string();
            assert!(error.contains(SNAPSHOT) && error.contains("restore"), "{error}");
        }
        fs::remove_file(&path).unwrap();
        assert!(LabelLog::read(dir.path()).unwrap_err().to_string().contains(NAME));
        // Even if nothing was changed since.
        fs::write(&path, &whole).unwrap();
        LabelLog::lock(dir.path()).unwrap().compact().unwrap();
        fs::remove_file(&path).unwrap();
        assert!(LabelLog::read(dir.path()).unwrap_err().to_string().contains(NAME));
    }

    #[test]
    fn a_log_that_somebody_cut_short_takes_no_more() {
        let (dir, bytes) = written();
        let mut log = LabelLog::lock(dir.path()).unwrap();
        fs::write(dir.path().join(NAME), &bytes[..10]).unwrap();
        let error = log.append(&[added(1)]).unwrap_err().to_string();
        assert!(error.contains("another program cut it short"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_acknowledged_in_a_folder_that_is_no_more() {
        let (dir, _) = written();
        let mut log = LabelLog::lock(dir.path()).unwrap();
        fs::rename(dir.path().join(MANIFEST), dir.path().join("old")).unwrap();
        assert!(matches!(log.append(&changes()[..1]), Err(ArtifactError::Replaced { .. })));
    }
}
