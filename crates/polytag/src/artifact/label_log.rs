//! Changes to a model's labels after it was fitted.
//!
//! What is changed together is one line, `checksum json`. The checksum covers the line before it
//! too, so that no line can be changed, dropped or moved unseen. A line is on the disk before its
//! changes are acknowledged; one that a crash cut short was never acknowledged, and is dropped.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::error::ArtifactError;
use super::manifest::MANIFEST;
use crate::data::LabelChange;
use crate::storage::{StorageError, sync_folder};

/// The log's file name.
pub const NAME: &str = "labels.log";

/// The log of a model folder, held so that no one else can write to it.
#[derive(Debug)]
pub struct LabelLog {
    path: PathBuf,
    manifest: PathBuf,
    /// The open manifest, locked.
    lock: File,
    state: State,
}

/// What a log holds, and where the next line goes.
#[derive(Debug, Default)]
struct State {
    changes: Vec<LabelChange>,
    /// Bytes of whole lines.
    length: u64,
    /// Checksum of the last line.
    chain: u32,
    /// Whether the last line has lost its line break.
    unterminated: bool,
}

impl LabelLog {
    /// The changes logged in the model folder `dir`; none where there is no log.
    pub fn read(dir: &Path) -> Result<Vec<LabelChange>, ArtifactError> {
        let path = dir.join(NAME);
        Ok(parse(&path, &read_if_there(&path)?)?.changes)
    }

    /// Opens the log of the model folder `dir` for writing. Until it is dropped, no one else can, nor can
    /// the model be replaced. The lock is on the manifest, so that nothing is made before there is
    /// something to log.
    pub fn lock(dir: &Path) -> Result<LabelLog, ArtifactError> {
        let (path, manifest) = (dir.join(NAME), dir.join(MANIFEST));
        let lock = File::open(&manifest).map_err(StorageError::io(&manifest, "open"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => ArtifactError::Locked { path: dir.to_owned() },
            TryLockError::Error(error) => StorageError::io(&manifest, "lock")(error).into(),
        })?;
        let state = parse(&path, &read_if_there(&path)?)?;
        let log = LabelLog { path, manifest, lock, state };
        log.check_place()?;
        Ok(log)
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
        self.write(&line).map_err(StorageError::io(&self.path, "write"))?;
        if let Some(dir) = self.path.parent() {
            sync_folder(dir)?;
        }
        self.state.length += line.len() as u64;
        self.state.chain = chain;
        self.state.unterminated = false;
        self.state.changes.extend_from_slice(changes);
        self.check_place()
    }

    fn write(&self, line: &str) -> std::io::Result<()> {
        let length = self.state.length;
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(&self.path)?;
        let written = file
            .set_len(length)
            .and_then(|()| file.seek(SeekFrom::Start(length)))
            .and_then(|_| file.write_all(line.as_bytes()))
            .and_then(|()| file.sync_all());
        if written.is_err() {
            // What was not acknowledged must not come back to life.
            let _ = file.set_len(length).and_then(|()| file.sync_all());
        }
        written
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

fn parse(path: &Path, bytes: &[u8]) -> Result<State, ArtifactError> {
    let mut state = State::default();
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
        state.changes.extend(changes);
        state.chain = sum;
        state.length += line.len() as u64;
        state.unterminated = !terminated;
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
