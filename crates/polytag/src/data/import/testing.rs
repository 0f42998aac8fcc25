//! What the tests of importers and splits share: files on disk, and an ear for warnings.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use crate::data::error::Place;
use crate::data::import::ImportContext;
use crate::data::label::Label;
use crate::data::record::DocumentRecord;
use crate::data::task::Split;
use crate::progress::{Event, Progress, Stop};
use crate::storage::{DEFAULT_MAX_LINE, Lines, create};

/// Writes files as their names say, compressed or not, into a folder.
pub(in crate::data) fn write_files(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let mut sink = create(&dir.path().join(name)).unwrap();
        sink.write(text.as_bytes()).unwrap();
        sink.finish().unwrap();
    }
    dir
}

/// Remembers warnings.
#[derive(Default)]
pub(in crate::data) struct Heard {
    warnings: Mutex<Vec<String>>,
    stop: Stop,
}

impl Heard {
    pub(in crate::data) fn context(&self) -> ImportContext<'_> {
        ImportContext { progress: self, stop: &self.stop, max_line: DEFAULT_MAX_LINE }
    }

    pub(in crate::data) fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap().clone()
    }
}

impl Progress for Heard {
    fn report(&self, event: Event<'_>) {
        if let Event::Warned(warning) = event {
            self.warnings.lock().unwrap().push(warning.to_owned());
        }
    }
}

/// The documents of a task folder by id, whatever their split.
pub(in crate::data) fn documents(dir: &Path) -> BTreeMap<String, DocumentRecord> {
    let mut documents = BTreeMap::new();
    for path in Split::ALL.map(|split| dir.join(split.file_name())).iter().filter(|path| path.exists()) {
        let mut lines = Lines::open(path, DEFAULT_MAX_LINE).unwrap();
        while let Some(line) = lines.next_line().unwrap() {
            let document = DocumentRecord::parse(line.text, || Place::file(path)).unwrap();
            documents.insert(document.id.clone(), document);
        }
    }
    documents
}

/// The labels of a task folder by id.
pub(in crate::data) fn labels(dir: &Path) -> BTreeMap<String, Label> {
    let path = dir.join("labels.jsonl");
    let mut labels = BTreeMap::new();
    let mut lines = Lines::open(&path, DEFAULT_MAX_LINE).unwrap();
    while let Some(line) = lines.next_line().unwrap() {
        let label = Label::parse(line.text, || Place::file(&path)).unwrap();
        labels.insert(label.id.clone(), label);
    }
    labels
}
