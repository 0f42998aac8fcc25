//! What is done of a folder, on the disk.
//!
//! A line an event, `checksum json`. The checksum covers the line before it too, so that no line can be changed, dropped or
//! moved unseen. A line is on the disk before anybody relies on it; one that a crash cut short was never relied on, and is
//! dropped.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::error::TablesError;
use super::flow::{Mark, Tally};
use crate::storage::{StorageError, append_durably};

/// How the folder was asked for, by name; the same when it goes on.
pub(super) type Settings = BTreeMap<String, serde_json::Value>;

const VERSION: u64 = 1;

/// By what a file is known again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    bytes: u64,
    /// When it was last written, in nanoseconds since 1970.
    modified: u64,
}

impl Identity {
    pub(super) fn of(path: &Path) -> Result<Identity, StorageError> {
        let about = fs::metadata(path).map_err(StorageError::io(path, "read"))?;
        let modified = about.modified().map_err(StorageError::io(path, "read"))?;
        let modified = modified.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Ok(Identity { bytes: about.len(), modified })
    }

    /// How another file differs from this one.
    pub(super) fn difference(&self, other: &Identity) -> Option<&'static str> {
        if self.bytes != other.bytes {
            return Some("its size has changed");
        }
        (self.modified != other.modified).then_some("it was written again")
    }
}

/// A piece whose answers lie in a file of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Piece {
    /// The name of that file.
    pub(super) file: String,
    /// Its size.
    pub(super) bytes: u64,
    pub(super) mark: Mark,
}

/// What was done.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Event {
    Started { version: u64, settings: Settings },
    Begun { input: String, identity: Identity },
    Piece { input: String, piece: Piece },
    Finished { input: String, tally: Tally },
}

/// How far a file has come.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) identity: Identity,
    pub(super) pieces: Vec<Piece>,
    pub(super) finished: Option<Tally>,
}

/// The journal of a folder, held so that no other run can write to it.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// The open journal, locked.
    _lock: File,
    settings: Option<Settings>,
    pub(super) inputs: BTreeMap<String, Progress>,
    length: u64,
    chain: u32,
}

impl Journal {
    /// Opens the journal at `path`, or begins it; `folder` is what errors call the place.
    pub(super) fn open(path: &Path, folder: &Path) -> Result<Journal, TablesError> {
        let failed = |error| StorageError::io(path, "open")(error);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let lock = opened.map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => TablesError::Busy { path: folder.to_owned() },
            TryLockError::Error(error) => StorageError::io(path, "lock")(error).into(),
        })?;
        let text = fs::read(path).map_err(failed)?;
        let mut journal = Journal {
            path: path.to_owned(),
            _lock: lock,
            settings: None,
            inputs: BTreeMap::new(),
            length: 0,
            chain: 0,
        };
        // What stands behind the last line break was never relied on.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let count = text[..whole].split_inclusive(|&byte| byte == b'\n').count();
        for (place, line) in text[..whole].split_inclusive(|&byte| byte == b'\n').enumerate() {
            if let Err(problem) = journal.take(line) {
                // A crash of the machine may leave a last line of the right length with the wrong bytes.
                if place + 1 == count && problem == OTHER_BYTES {
                    break;
                }
                return Err(TablesError::DamagedJournal { path: path.to_owned(), line: place + 1, problem });
            }
        }
        Ok(journal)
    }

    /// Reads a line.
    fn take(&mut self, line: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(line).map_err(|_| OTHER_BYTES.to_owned())?;
        let (checksum, json) = text.trim_end_matches('\n').split_once(' ').ok_or(OTHER_BYTES)?;
        let chain = checksum_of(self.chain, json.as_bytes());
        if checksum != format!("{chain:08x}") {
            return Err(OTHER_BYTES.to_owned());
        }
        let event: Event = serde_json::from_str(json).map_err(|error| error.to_string())?;
        self.apply(event)?;
        (self.chain, self.length) = (chain, self.length + line.len() as u64);
        Ok(())
    }

    fn apply(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Started { version, settings } => {
                if version > VERSION {
                    return Err(format!("it is of version {version}; this program knows {VERSION}"));
                }
                self.settings = Some(settings);
            }
            Event::Begun { input, identity } => {
                self.inputs.insert(input, Progress { identity, pieces: Vec::new(), finished: None });
            }
            Event::Piece { input, piece } => self.input(&input)?.pieces.push(piece),
            Event::Finished { input, tally } => self.input(&input)?.finished = Some(tally),
        }
        Ok(())
    }

    fn input(&mut self, input: &str) -> Result<&mut Progress, String> {
        self.inputs.get_mut(input).ok_or_else(|| format!("{input:?} was never begun"))
    }

    /// Writes the settings down, or compares them with those the folder was begun with.
    pub(super) fn start(&mut self, settings: Settings, folder: &Path) -> Result<(), TablesError> {
        let Some(begun) = &self.settings else {
            return self.note(Event::Started { version: VERSION, settings });
        };
        let null = serde_json::Value::Null;
        let names = begun.keys().chain(settings.keys());
        let other =
            names.map(|name| (name, begun.get(name).unwrap_or(&null), settings.get(name).unwrap_or(&null)));
        match other.into_iter().find(|(_, then, now)| then != now) {
            None => Ok(()),
            Some((name, then, now)) => Err(TablesError::OtherSettings {
                path: folder.to_owned(),
                what: format!("{name} (then {then}, now {now})"),
            }),
        }
    }

    /// Begins a file, or begins it anew.
    pub(super) fn begin(&mut self, input: &str, identity: Identity) -> Result<(), TablesError> {
        self.note(Event::Begun { input: input.to_owned(), identity })
    }

    /// Takes note of a piece whose file is on the disk.
    pub(super) fn piece(&mut self, input: &str, piece: Piece) -> Result<(), TablesError> {
        self.note(Event::Piece { input: input.to_owned(), piece })
    }

    /// Takes note of a file whose answer is in its place.
    pub(super) fn finish(&mut self, input: &str, tally: Tally) -> Result<(), TablesError> {
        self.note(Event::Finished { input: input.to_owned(), tally })
    }

    fn note(&mut self, event: Event) -> Result<(), TablesError> {
        let json = serde_json::to_string(&event).expect("texts and numbers always make JSON");
        let chain = checksum_of(self.chain, json.as_bytes());
        let line = format!("{chain:08x} {json}\n");
        if !append_durably(&self.path, self.length, line.as_bytes())? {
            let problem = "another program cut it short".to_owned();
            return Err(TablesError::DamagedJournal { path: self.path.clone(), line: 0, problem });
        }
        (self.chain, self.length) = (chain, self.length + line.len() as u64);
        self.apply(event).expect("what is noted was begun");
        Ok(())
    }
}

const OTHER_BYTES: &str = "it is not what was written";

fn checksum_of(before: u32, json: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&before.to_le_bytes());
    hasher.update(json);
    hasher.finalize()
}
