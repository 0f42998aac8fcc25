//! What people accepted and rejected, kept for the next fit.
//!
//! A line is a document of a task folder with the labels that were accepted, so that the file can be put behind a train
//! split as it is; labels that were rejected stand beside them. A line is on the disk before it is acknowledged.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use polytag::artifact::FEEDBACK as NAME;
use polytag::storage::StorageError;
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

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    text: &'a str,
    labels: &'a [String],
    rejected: &'a [String],
    time: String,
}

impl Feedback {
    /// The file of the model folder `dir`. What a crash cut short was never acknowledged, and is passed over.
    pub(crate) fn open(dir: &Path) -> Result<Feedback, StorageError> {
        let path = dir.join(NAME);
        let mut state = State::default();
        match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(StorageError::io(&path, "open")(error)),
            Ok(file) => {
                let (mut reader, mut line) = (BufReader::new(file), Vec::new());
                loop {
                    line.clear();
                    let read =
                        reader.read_until(b'\n', &mut line).map_err(StorageError::io(&path, "read"))?;
                    if !line.ends_with(b"\n") {
                        break;
                    }
                    state.lines += 1;
                    state.length += read as u64;
                }
            }
        }
        Ok(Feedback { path, state: Mutex::new(state) })
    }

    /// Keeps what was said of a document; how many there are now.
    pub(crate) fn add(
        &self,
        document: &Document,
        accepted: &[String],
        rejected: &[String],
    ) -> Result<u64, StorageError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let made = format!("feedback-{}", state.lines + 1);
        let line = Line {
            id: document.id.as_deref().unwrap_or(&made),
            title: document.title.as_deref(),
            text: &document.text,
            labels: accepted,
            rejected,
            time: clock::now(),
        };
        let mut line = serde_json::to_vec(&line).expect("strings always make JSON");
        line.push(b'\n');
        self.write(state.length, &line).map_err(StorageError::io(&self.path, "write"))?;
        state.lines += 1;
        state.length += line.len() as u64;
        Ok(state.lines)
    }

    fn write(&self, length: u64, line: &[u8]) -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(&self.path)?;
        let written = file
            .set_len(length)
            .and_then(|()| file.seek(SeekFrom::Start(length)))
            .and_then(|_| file.write_all(line))
            .and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = file.set_len(length).and_then(|()| file.sync_all());
        }
        written
    }

    /// All lines, as they are in the file.
    pub(crate) fn read(&self) -> Result<Vec<u8>, StorageError> {
        let state = *self.state.lock().unwrap_or_else(PoisonError::into_inner);
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
        let document = Document { id: None, title: Some("Tea".into()), text: "trade\nof tea".into() };
        let labels = ["a".to_owned()];
        let feedback = Feedback::open(dir.path()).unwrap();
        assert!(feedback.read().unwrap().is_empty());
        assert_eq!(feedback.add(&document, &labels, &[]).unwrap(), 1);
        // A line that was cut short.
        let mut bytes = feedback.read().unwrap();
        bytes.extend_from_slice(b"{\"id\":\"x\",\"te");
        std::fs::write(dir.path().join(NAME), bytes).unwrap();
        let again = Feedback::open(dir.path()).unwrap();
        assert_eq!(again.add(&document, &[], &labels).unwrap(), 2);
        let text = String::from_utf8(again.read().unwrap()).unwrap();
        let ids: Vec<String> = text
            .lines()
            .map(|line| {
                let place = || polytag::data::Place::line(Path::new(NAME), 1);
                DocumentRecord::parse(line, place).unwrap().id
            })
            .collect();
        assert_eq!(ids, ["feedback-1", "feedback-2"]);
    }
}
