//! Writing a task folder: documents as they come, labels when all are known, all or nothing.
//!
//! Memory: the labels, and 40 bytes a document to find ids used twice.

use std::collections::BTreeMap;
use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};

use super::error::{DataError, Place};
use super::label::Label;
use super::reader::FirstLines;
use super::record::DocumentRecord;
use super::task::Split;
use crate::storage::{Existing, StagedFolder};

/// What a finished task folder holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TaskSummary {
    /// Labels described.
    pub labels: usize,
    /// Documents, by the name of their split.
    pub documents: BTreeMap<&'static str, u64>,
    /// Pairs of a document and a label, over all splits.
    pub pairs: u64,
}

/// A task folder being written. Nothing is visible before [`finish`](TaskWriter::finish).
pub struct TaskWriter {
    folder: StagedFolder,
    target: std::path::PathBuf,
    labels: Vec<Label>,
    described: FxHashSet<String>,
    /// Each label id in use, with the document that used it first.
    used: FxHashMap<String, String>,
    splits: BTreeMap<Split, SplitFile>,
    pairs: u64,
}

struct SplitFile {
    sink: crate::storage::Sink,
    ids: FirstLines,
    documents: u64,
}

impl TaskWriter {
    /// Starts a task folder at `target`, made from `inputs`. A folder that is there must be empty.
    pub fn create(target: &Path, inputs: &[&Path]) -> Result<TaskWriter, DataError> {
        Ok(TaskWriter {
            folder: StagedFolder::create(target, Existing::Refuse, inputs)?,
            target: target.to_owned(),
            labels: Vec::new(),
            described: FxHashSet::default(),
            used: FxHashMap::default(),
            splits: BTreeMap::new(),
            pairs: 0,
        })
    }

    /// Describes a label; false, and nothing done, where its id is described already.
    pub fn label(&mut self, label: Label) -> Result<bool, DataError> {
        if label.name.trim().is_empty() {
            return Err(DataError::Field {
                place: self.place("labels.jsonl"),
                problem: format!("the label {:?} would have no name", label.id),
                remedy: "name it in the source",
            });
        }
        if label.id.is_empty() {
            return Err(DataError::Field {
                place: self.place("labels.jsonl"),
                problem: format!("the label {:?} would have no id", label.name),
                remedy: "give it one in the source",
            });
        }
        if !self.described.insert(label.id.clone()) {
            return Ok(false);
        }
        self.labels.push(label);
        Ok(true)
    }

    /// Whether a label with this id has been described.
    pub fn has_label(&self, id: &str) -> bool {
        self.described.contains(id)
    }

    /// Adds a document. Its labels may be described later, but before the end.
    pub fn document(&mut self, split: Split, document: &DocumentRecord) -> Result<(), DataError> {
        let file = match self.splits.entry(split) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let sink = self.folder.file(&split.file_name())?;
                entry.insert(SplitFile { sink, ids: FirstLines::default(), documents: 0 })
            }
        };
        file.documents += 1;
        if document.id.is_empty() {
            return Err(DataError::Field {
                place: Place::line(&self.target.join(split.file_name()), file.documents),
                problem: "the document would have no id".to_owned(),
                remedy: "give it one in the source",
            });
        }
        if let Some(first) = file.ids.note(&document.id, file.documents) {
            return Err(DataError::DuplicateId {
                place: Place::line(&self.target.join(split.file_name()), file.documents),
                id: document.id.clone(),
                first,
            });
        }
        for label in document.labels.iter().flatten() {
            self.pairs += 1;
            if !self.used.contains_key(label) {
                self.used.insert(label.clone(), document.id.clone());
            }
        }
        file.sink.write_json_line(document)?;
        Ok(())
    }

    /// Labels in use that nobody has described yet, in order of their ids.
    pub fn undescribed(&self) -> Vec<String> {
        let mut missing: Vec<String> =
            self.used.keys().filter(|id| !self.described.contains(*id)).cloned().collect();
        missing.sort_unstable();
        missing
    }

    /// Writes the labels and puts the folder in its place.
    pub fn finish(self) -> Result<TaskSummary, DataError> {
        if let Some(id) = self.undescribed().into_iter().next() {
            return Err(DataError::Malformed {
                place: self.place("labels.jsonl"),
                problem: format!("nothing describes the label {id:?} of document {:?}", self.used[&id]),
                remedy: "complete the label list of the source".to_owned(),
            });
        }
        if self.labels.is_empty() {
            return Err(DataError::Empty {
                path: self.target.join("labels.jsonl"),
                expected: "one label a line, but the source has none",
            });
        }
        let mut summary =
            TaskSummary { labels: self.labels.len(), pairs: self.pairs, ..TaskSummary::default() };
        for (split, file) in self.splits {
            summary.documents.insert(split.as_str(), file.documents);
            file.sink.finish()?;
        }
        let mut sink = self.folder.file("labels.jsonl")?;
        for label in &self.labels {
            sink.write_json_line(label)?;
        }
        sink.finish()?;
        self.folder.commit()?;
        Ok(summary)
    }

    fn place(&self, name: &str) -> Place {
        Place::file(&self.target.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_back_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut task = TaskWriter::create(&dir.path().join("task"), &[]).unwrap();
        let complaint = task.label(Label::new("", "A")).unwrap_err().to_string();
        assert!(complaint.contains("the label \"A\" would have no id"));
        assert!(task.label(Label::new("a", " ")).unwrap_err().to_string().contains("would have no name"));
        let nameless = DocumentRecord::default();
        let complaint = task.document(Split::Train, &nameless).unwrap_err().to_string();
        assert!(complaint.contains("train.jsonl, line 1: the document would have no id"));
    }
}
