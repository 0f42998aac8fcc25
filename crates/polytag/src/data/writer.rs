//! Writing a task folder: documents as they come, labels when all are known, all or nothing.
//!
//! Memory: the labels, and to find ids used twice 40 bytes a document and the names of the source's files.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};
use xxhash_rust::xxh3::xxh3_128;

use super::error::{DataError, Place};
use super::label::Label;
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
    target: PathBuf,
    labels: Vec<Label>,
    described: FxHashSet<String>,
    /// Each label id in use, with the document that used it first.
    used: FxHashMap<String, String>,
    splits: BTreeMap<Split, SplitFile>,
    pairs: u64,
}

struct SplitFile {
    sink: crate::storage::Sink,
    ids: FirstPlaces,
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
                place: Place::file(&self.target),
                problem: format!("the label {:?} would have no name", label.id),
                remedy: "name it in the source",
            });
        }
        if label.id.is_empty() {
            return Err(DataError::Field {
                place: Place::file(&self.target),
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
        let place = Place::file(&self.target);
        self.document_from(split, document, &place)
    }

    /// Adds a document that stands at `place` in the source: what is wrong with it is wrong there.
    pub fn document_from(
        &mut self,
        split: Split,
        document: &DocumentRecord,
        place: &Place,
    ) -> Result<(), DataError> {
        if document.id.is_empty() {
            return Err(DataError::Field {
                place: place.clone(),
                problem: "the document would have no id".to_owned(),
                remedy: "give it one in the source",
            });
        }
        let file = match self.splits.entry(split) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let sink = self.folder.file(&split.file_name())?;
                entry.insert(SplitFile { sink, ids: FirstPlaces::default(), documents: 0 })
            }
        };
        if let Some(first) = file.ids.note(&document.id, place) {
            return Err(used_before(&document.id, place, &first));
        }
        file.documents += 1;
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
                place: Place::file(&self.target),
                problem: format!("nothing describes the label {id:?} of document {:?}", self.used[&id]),
                remedy: "complete the label list of the source".to_owned(),
            });
        }
        if self.labels.is_empty() {
            return Err(DataError::Malformed {
                place: Place::file(&self.target),
                problem: "the task would have no label".to_owned(),
                remedy: "check that the source is the right one, and whole".to_owned(),
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
}

fn used_before(id: &str, place: &Place, first: &Place) -> DataError {
    match first.line {
        Some(line) if first.path == place.path => {
            DataError::DuplicateId { place: place.clone(), id: id.to_owned(), first: line }
        }
        _ => DataError::Malformed {
            place: place.clone(),
            problem: if first == place {
                format!("the id {id:?} was used before")
            } else {
                format!("the id {id:?} was used before, in {first}")
            },
            remedy: "give each its own id".to_owned(),
        },
    }
}

/// Where in the source each id stood first, by a 128-bit hash as a
/// [`DocumentReader`](super::DocumentReader) does it.
#[derive(Default)]
struct FirstPlaces {
    /// The files, in the order they were come to.
    paths: Vec<PathBuf>,
    /// The file and the line; line zero is the file as a whole.
    places: FxHashMap<u128, (u32, u32)>,
}

impl FirstPlaces {
    /// Notes an id; if it was noted before, says where.
    fn note(&mut self, id: &str, place: &Place) -> Option<Place> {
        match self.places.entry(xxh3_128(id.as_bytes())) {
            Entry::Occupied(first) => {
                let &(file, line) = first.get();
                let line = (line > 0).then_some(u64::from(line));
                Some(Place { path: self.paths[file as usize].clone(), line })
            }
            Entry::Vacant(entry) => {
                if self.paths.last() != Some(&place.path) {
                    self.paths.push(place.path.clone());
                }
                let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
                entry.insert((small(self.paths.len() as u64 - 1), place.line.map_or(0, small)));
                None
            }
        }
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
        assert!(complaint.contains("task: the document would have no id"), "{complaint}");
        let complaint = task.finish().unwrap_err().to_string();
        assert!(complaint.contains("task: the task would have no label"), "{complaint}");
    }

    #[test]
    fn complaints_name_the_place_in_the_source() {
        let dir = tempfile::tempdir().unwrap();
        let mut task = TaskWriter::create(&dir.path().join("task"), &[]).unwrap();
        let mut add = |id: &str, split, place: Place| {
            let record = DocumentRecord { id: id.to_owned(), ..DocumentRecord::default() };
            task.document_from(split, &record, &place).map_err(|error| error.to_string())
        };
        let [a, b] = ["a.csv", "b.csv"].map(Path::new);
        assert_eq!(add("x", Split::Train, Place::line(a, 2)), Ok(()));
        assert_eq!(add("y", Split::Train, Place::file(b)), Ok(()));
        assert_eq!(add("x", Split::Test, Place::line(b, 3)), Ok(()));
        for (id, place, expected) in [
            ("x", Place::line(a, 5), "a.csv, line 5: the id \"x\" was used before, on line 2; "),
            ("x", Place::line(b, 9), "b.csv, line 9: the id \"x\" was used before, in a.csv, line 2; "),
            ("y", Place::file(a), "a.csv: the id \"y\" was used before, in b.csv; "),
            ("y", Place::file(b), "b.csv: the id \"y\" was used before; "),
            ("", Place::line(a, 7), "a.csv, line 7: the document would have no id; "),
        ] {
            let complaint = add(id, Split::Train, place).unwrap_err();
            assert!(complaint.starts_with(expected), "{complaint}");
        }
    }
}
