//! What the tests of importers share: sources on disk, and the tasks that come of them.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use tempfile::TempDir;

use super::{ImportContext, Importer, import};
use crate::data::error::DataError;
use crate::data::label::Label;
use crate::data::reader::ReadOptions;
use crate::data::record::DocumentRecord;
use crate::data::task::{Split, Task};
use crate::progress::{Event, Progress, Stop};
use crate::storage::create;

/// The longest line that these tests read.
const MAX_LINE: usize = 1 << 16;

/// Writes a source of these files, folders and all, compressed as their names say.
pub(super) fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(source_of(&dir)).unwrap();
    for (name, content) in files {
        let path = source_of(&dir).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut sink = create(&path).unwrap();
        sink.write(content.as_bytes()).unwrap();
        sink.finish().unwrap();
    }
    dir
}

/// Where [`folder`] has put the files.
pub(super) fn source_of(dir: &TempDir) -> PathBuf {
    dir.path().join("in")
}

/// Remembers warnings.
#[derive(Default)]
pub(super) struct Heard {
    warnings: Mutex<Vec<String>>,
    stop: Stop,
}

impl Heard {
    pub(super) fn context(&self) -> ImportContext<'_> {
        ImportContext { progress: self, stop: &self.stop, max_line: MAX_LINE }
    }

    pub(super) fn warnings(&self) -> Vec<String> {
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

/// What came out of an import.
pub(super) struct Imported {
    pub(super) labels: Vec<Label>,
    pub(super) documents: Vec<(Split, DocumentRecord)>,
    pub(super) warnings: Vec<String>,
}

impl Imported {
    /// The documents of a split as (id, title, text, labels); no title reads `-`, no labels `?`.
    pub(super) fn split(&self, split: Split) -> Vec<(&str, &str, &str, String)> {
        self.documents.iter().filter(|(of, _)| *of == split).map(|(_, record)| as_row(record)).collect()
    }

    /// The documents of all splits, in order of ids, in the same way.
    pub(super) fn all(&self) -> Vec<(&str, &str, &str, String)> {
        let mut rows: Vec<_> = self.documents.iter().map(|(_, record)| as_row(record)).collect();
        rows.sort_unstable();
        rows
    }

    /// Each label as `id=name`.
    pub(super) fn names(&self) -> Vec<String> {
        self.labels.iter().map(|label| format!("{}={}", label.id, label.name)).collect()
    }

    /// The label with this id.
    pub(super) fn label(&self, id: &str) -> &Label {
        self.labels.iter().find(|label| label.id == id).unwrap()
    }
}

fn as_row(record: &DocumentRecord) -> (&str, &str, &str, String) {
    let title = record.title.as_deref().unwrap_or("-");
    let labels = record.labels.as_ref().map_or("?".to_owned(), |labels| labels.join(" "));
    (&record.id, title, &record.text, labels)
}

/// Imports `source` of the folder, and reads the task back as any task is read.
pub(super) fn run(importer: &dyn Importer, dir: &TempDir, source: &str) -> Result<Imported, DataError> {
    let heard = Heard::default();
    let target = dir.path().join("out");
    let imported = import(importer, &source_of(dir).join(source), &target, &heard.context());
    if imported.is_err() {
        assert!(!target.exists(), "a failed import leaves nothing behind");
    }
    imported?;
    let task = Task::open(&target, &ReadOptions::with_spool(dir.path()))?;
    let mut documents = Vec::new();
    for split in Split::ALL {
        if task.file(split)?.is_none() {
            continue;
        }
        for document in task.documents(split)? {
            let document = document?;
            let name = |&id| task.labels().label(id).id.clone();
            let labels = document.labels.as_ref().map(|ids| ids.iter().map(name).collect());
            let record =
                DocumentRecord { id: document.id, title: document.title, text: document.text, labels };
            documents.push((split, record));
        }
    }
    let labels = task.labels().iter().map(|(_, label)| label.clone()).collect();
    Ok(Imported { labels, documents, warnings: heard.warnings() })
}

/// The complaint of an import that must fail, with the path of its folder taken off.
pub(super) fn complaint(importer: &dyn Importer, dir: &TempDir, source: &str) -> String {
    let error = run(importer, dir, source).err().expect("the import must fail").to_string();
    error.replace(&format!("{}/", source_of(dir).display()), "")
}
