//! What people accepted and rejected, kept for the next fit.
//!
//! A line is a document of a task folder with the labels that were accepted, so that the file can be put behind a train
//! split as it is; labels that were rejected stand beside them. A line is on the disk before it is acknowledged.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use polytag::artifact::FEEDBACK as NAME;
use polytag::storage::{StorageError, append_durably};
use serde::Serialize;

use crate::clock;
use crate::served::Document;

/// The file of a model.
pub(crate) struct Feedback {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Default)]
struct State {
    lines: u64,
    /// Bytes of whole lines.
    length: u64,
}

impl State {
    /// With the lines that came since, from whomever; all of them, if somebody took the lines for the next fit, as they
    /// should.
    fn read_on(self, path: &Path) -> Result<State, StorageError> {
        let mut state = self;
        let mut file = match File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(State::default()),
            opened => opened.map_err(StorageError::io(path, "open"))?,
        };
        if file.metadata().map_err(StorageError::io(path, "read"))?.len() < state.length {
            state = State::default();
        }
        file.seek(SeekFrom::Start(state.length)).map_err(StorageError::io(path, "read"))?;
        let (mut reader, mut line) = (BufReader::new(file), Vec::new());
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(StorageError::io(path, "read"))?;
            if !line.ends_with(b"\n") {
                return Ok(state);
            }
            state.lines += 1;
            state.length += read as u64;
        }
    }
}

/// What was said of a document.
pub(crate) struct Said {
    pub(crate) document: Document,
    pub(crate) accepted: Vec<String>,
    pub(crate) rejected: Vec<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    /// No other document has it, whatever was judged before.
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    text: &'a str,
    labels: &'a [String],
    rejected: &'a [String],
    /// What the client calls the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<&'a str>,
    time: String,
}

impl Feedback {
    /// The file of the model folder `dir`. What a crash cut short was never acknowledged, and is passed over.
    pub(crate) fn open(dir: &Path) -> Result<Feedback, StorageError> {
        let path = dir.join(NAME);
        let state = State::default().read_on(&path)?;
        Ok(Feedback { path, state: Mutex::new(state) })
    }

    /// Keeps what was said of documents, all or nothing; how many there are now.
    pub(crate) fn add(&self, all: &[Said]) -> Result<u64, StorageError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = Vec::new();
        for Said { document, accepted, rejected } in all {
            let line = Line {
                id: format!("feedback-{:016x}", rand::random::<u64>()),
                title: document.title.as_deref(),
                text: &document.text,
                labels: accepted,
                rejected,
                document: document.id.as_deref(),
                time: clock::now(),
            };
            serde_json::to_writer(&mut lines, &line).expect("strings always make JSON");
            lines.push(b'\n');
        }
        // Servers that share labels may share the folder.
        let is_new = !self.path.exists();
        let held = OpenOptions::new().append(true).create(true).open(&self.path);
        let held = held.map_err(StorageError::io(&self.path, "write"))?;
        held.lock().map_err(StorageError::io(&self.path, "lock"))?;
        if let Some(folder) = self.path.parent().filter(|_| is_new) {
            let synced = File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(StorageError::io(folder, "sync"))?;
        }
        *state = state.read_on(&self.path)?;
        if !append_durably(&self.path, state.length, &lines)? {
            // Somebody took the file away meanwhile: it begins anew.
            *state = State::default();
            append_durably(&self.path, 0, &lines)?;
        }
        state.lines += all.len() as u64;
        state.length += lines.len() as u64;
        Ok(state.lines)
    }

    /// All lines, as they are in the file.
    pub(crate) fn read(&self) -> Result<Vec<u8>, StorageError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.read_on(&self.path)?;
        if state.length == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = std::fs::read(&self.path).map_err(StorageError::io(&self.path, "read"))?;
        bytes.truncate(state.length as usize);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polytag::data::DocumentRecord;

    #[test]
    fn lines_are_documents_of_a_task_and_survive_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let document =
            Document { id: Some("7".into()), title: Some("Tea".into()), text: "trade\nof tea".into() };
        let said =
            || Said { document: document.clone(), accepted: vec!["a".to_owned()], rejected: Vec::new() };
        let feedback = Feedback::open(dir.path()).unwrap();
        assert!(feedback.read().unwrap().is_empty());
        assert_eq!(feedback.add(&[said()]).unwrap(), 1);
        // A line that was cut short.
        let mut bytes = feedback.read().unwrap();
        bytes.extend_from_slice(b"{\"id\":\"x\",\"te");
        std::fs::write(dir.path().join(NAME), bytes).unwrap();
        let again = Feedback::open(dir.path()).unwrap();
        assert_eq!(again.add(&[said(), said()]).unwrap(), 3);
        let text = String::from_utf8(again.read().unwrap()).unwrap();
        let ids: Vec<String> = text
            .lines()
            .map(|line| {
                let place = || polytag::data::Place::line(Path::new(NAME), 1);
                DocumentRecord::parse(line, place).unwrap().id
            })
            .collect();
        // Judged twice, and a document of its own each time: a task has no two of one id.
        let different: std::collections::BTreeSet<&String> = ids.iter().collect();
        assert_eq!((ids.len(), different.len()), (3, 3));
        // Another server on the same folder loses none of them, nor its own.
        assert_eq!(feedback.add(&[said()]).unwrap(), 4);
        assert_eq!(again.add(&[said()]).unwrap(), 5);
        assert_eq!(feedback.read().unwrap(), again.read().unwrap());
        std::fs::remove_file(dir.path().join(NAME)).unwrap();
        assert_eq!(again.add(&[said()]).unwrap(), 1);
        assert_eq!(again.read().unwrap().first(), Some(&b'{'));
    }
}
