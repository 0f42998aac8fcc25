//! Changes to a model's labels after it was fitted.
//!
//! Each change is a line `checksum length json`. The checksum covers the line before it too, so
//! that no line can be changed, dropped or moved unseen. A line is on disk before the change is
//! acknowledged; one that a crash cut short was never acknowledged, and is dropped.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::error::ArtifactError;
use crate::data::LabelChange;
use crate::storage::StorageError;

const NAME: &str = "labels.log";

/// The log of a model folder, held so that no one else can write to it.
#[derive(Debug)]
pub struct LabelLog {
    path: PathBuf,
    file: File,
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
}

impl LabelLog {
    /// The changes logged in the model folder `dir`; none where there is no log.
    pub fn read(dir: &Path) -> Result<Vec<LabelChange>, ArtifactError> {
        let path = dir.join(NAME);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(parse(&path, &bytes)?.changes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(StorageError::io(&path, "read")(error).into()),
        }
    }

    /// Opens the log of the model folder `dir` for writing. Until it is dropped, no one else can.
    pub fn lock(dir: &Path) -> Result<LabelLog, ArtifactError> {
        let path = dir.join(NAME);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(StorageError::io(&path, "write"))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => ArtifactError::Locked { path: path.clone() },
            TryLockError::Error(error) => StorageError::io(&path, "lock")(error).into(),
        })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(StorageError::io(&path, "read"))?;
        let state = parse(&path, &bytes)?;
        Ok(LabelLog { path, file, state })
    }

    /// The changes logged so far.
    pub fn changes(&self) -> &[LabelChange] {
        &self.state.changes
    }

    /// Logs changes, all or none. When this returns, they are on the disk.
    pub fn append(&mut self, changes: &[LabelChange]) -> Result<(), ArtifactError> {
        let mut lines = String::new();
        let mut chain = self.state.chain;
        for change in changes {
            let json = serde_json::to_string(change).expect("strings always make JSON");
            chain = checksum(chain, &json);
            lines.push_str(&format!("{chain:08x} {} {json}\n", json.len()));
        }
        let length = self.state.length;
        let written = self
            .file
            .set_len(length)
            .and_then(|()| self.file.seek(SeekFrom::Start(length)))
            .and_then(|_| self.file.write_all(lines.as_bytes()))
            .and_then(|()| self.file.sync_all());
        if let Err(error) = written {
            // Whole lines of a batch that failed must not come back to life.
            let _ = self.file.set_len(length).and_then(|()| self.file.sync_all());
            return Err(StorageError::io(&self.path, "write")(error).into());
        }
        self.state.length += lines.len() as u64;
        self.state.chain = chain;
        self.state.changes.extend_from_slice(changes);
        Ok(())
    }
}

fn checksum(chain: u32, json: &str) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&chain.to_le_bytes());
    hasher.update(json.as_bytes());
    hasher.finalize()
}

fn parse(path: &Path, bytes: &[u8]) -> Result<State, ArtifactError> {
    let mut state = State::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let line = state.changes.len() + 1;
        let damaged = |problem: &str| ArtifactError::Damaged {
            path: path.to_owned(),
            problem: format!("line {line}: {problem}"),
        };
        let Some((sum, length, start)) =
            header(rest).ok_or_else(|| damaged("it does not start as it should"))?
        else {
            break; // The head of a line that was being written.
        };
        let end =
            start.checked_add(length).filter(|&end| end < usize::MAX).ok_or_else(|| damaged("too long"))?;
        if rest.len() <= end {
            break; // The line was being written.
        }
        let json = std::str::from_utf8(&rest[start..end]).map_err(|_| damaged("it is not UTF-8"))?;
        if rest[end] != b'\n' || checksum(state.chain, json) != sum {
            return Err(damaged("its checksum does not fit"));
        }
        let change = serde_json::from_str(json).map_err(|error| damaged(&error.to_string()))?;
        state.changes.push(change);
        state.chain = sum;
        state.length += end as u64 + 1;
        rest = &rest[end + 1..];
    }
    Ok(state)
}

/// Checksum, length and where the JSON begins; the inner `None` where the bytes end before that.
#[allow(clippy::option_option)]
fn header(bytes: &[u8]) -> Option<Option<(u32, usize, usize)>> {
    let sum = &bytes[..bytes.len().min(8)];
    if !sum.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let Some(after_sum) = bytes.get(8..) else { return Some(None) };
    let Some((&space, after_space)) = after_sum.split_first() else { return Some(None) };
    let digits = after_space.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if space != b' ' || digits > 10 {
        return None;
    }
    match after_space.get(digits) {
        None => Some(None),
        Some(b' ') => {
            let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
            let length = std::str::from_utf8(&after_space[..digits]).ok()?.parse().ok()?;
            Some(Some((sum, length, 8 + 1 + digits + 1)))
        }
        Some(_) => None,
    }
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

    fn written() -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LabelLog::lock(dir.path()).unwrap();
        log.append(&changes()[..1]).unwrap();
        log.append(&changes()[1..]).unwrap();
        let bytes = std::fs::read(dir.path().join(NAME)).unwrap();
        (dir, bytes)
    }

    #[test]
    fn changes_come_back_in_order() {
        let (dir, _) = written();
        assert_eq!(LabelLog::read(dir.path()).unwrap(), changes());
        assert!(LabelLog::read(tempfile::tempdir().unwrap().path()).unwrap().is_empty());
    }

    #[test]
    fn a_line_cut_short_is_dropped_and_written_over() {
        let (dir, bytes) = written();
        let path = dir.path().join(NAME);
        for cut in 0..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let whole = bytes[..cut].iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!(LabelLog::read(dir.path()).unwrap(), changes()[..whole]);
            let mut log = LabelLog::lock(dir.path()).unwrap();
            log.append(&changes()[whole..]).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
    }

    #[test]
    fn no_byte_can_be_changed_and_no_line_moved_unseen() {
        let (dir, bytes) = written();
        let path = dir.path().join(NAME);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            let read = LabelLog::read(dir.path());
            // A length that grew past the end looks like a line cut short; it must not read whole.
            assert!(read.is_err() || read.unwrap().len() < changes().len(), "byte {at}");
        }
        let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
        std::fs::write(&path, [lines[0], lines[2]].concat()).unwrap();
        assert!(LabelLog::read(dir.path()).is_err());
    }

    #[test]
    fn two_writers_are_one_too_many() {
        let (dir, _) = written();
        let _first = LabelLog::lock(dir.path()).unwrap();
        assert!(matches!(LabelLog::lock(dir.path()), Err(ArtifactError::Locked { .. })));
    }
}
