//! Documents by position: what methods train on.
//!
//! Memory: 16 bytes a document and 4 a pair. The text lies unpacked in a nameless temporary file,
//! which the system takes back when the set is dropped; the task's own file may change meanwhile.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::document::Document;
use super::error::{DataError, Place};
use super::reader::{DocumentReader, resolve};
use super::record::DocumentRecord;
use super::space::LabelSpace;
use super::task::{Split, Task};
use crate::ids::{DocId, LabelId};
use crate::progress::{Progress, Stage, Stop};
use crate::storage::{StorageError, read_exact_at};

/// Documents by position, with the label space they belong to.
///
/// ```
/// use polytag::data::{DataError, Dataset, Document, Label, LabelSpace};
/// use polytag::ids::{DocId, LabelId};
///
/// struct Two { space: LabelSpace, labels: [Vec<LabelId>; 2] }
/// impl Dataset for Two {
///     fn len(&self) -> usize { 2 }
///     fn document(&self, id: DocId) -> Result<Document, DataError> {
///         let labels = Some(self.labels[id.index()].clone());
///         Ok(Document { id: id.0.to_string(), title: None, text: "words".into(), labels })
///     }
///     fn labels_of(&self, id: DocId) -> &[LabelId] { &self.labels[id.index()] }
///     fn label_space(&self) -> &LabelSpace { &self.space }
/// }
/// let mut space = LabelSpace::default();
/// let label = space.add(Label::new("a", "A")).unwrap();
/// let two = Two { space, labels: [vec![label], vec![]] };
/// assert_eq!(two.document(DocId(0))?.gold(), two.labels_of(DocId(0)));
/// # Ok::<(), DataError>(())
/// ```
pub trait Dataset: Send + Sync {
    /// How many documents there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The document at a position. An error is a failed read; past the end is a panic.
    fn document(&self, id: DocId) -> Result<Document, DataError>;

    /// The labels of the document at a position, without reading its text.
    fn labels_of(&self, id: DocId) -> &[LabelId];

    /// The labels, with counts over this set's documents.
    fn label_space(&self) -> &LabelSpace;
}

/// A split of a task folder, every line of it checked.
#[derive(Debug)]
pub struct FileDataset {
    path: PathBuf,
    file: File,
    /// Where each line begins, and the end of the file.
    offsets: Vec<u64>,
    label_starts: Vec<usize>,
    labels: Vec<LabelId>,
    space: LabelSpace,
}

impl FileDataset {
    pub(super) fn open(
        task: &Task,
        split: Split,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<FileDataset, DataError> {
        let path = task.required_file(split)?;
        let options = task.options();
        let stage = Stage::start(progress, "reading documents", None);
        let mut spool = Spool::new(&options.spool)?;
        let mut reader = DocumentReader::open(&path, task.labels(), options.max_line)?;
        let mut label_starts = vec![0];
        let mut labels = Vec::new();
        let mut counts = vec![0u32; task.labels().positions()];
        while let Some((document, line)) = reader.read()? {
            if stop.is_asked() {
                return Err(DataError::Stopped);
            }
            spool.push(line.text)?;
            for label in document.gold() {
                counts[label.index()] += 1;
            }
            labels.extend_from_slice(document.gold());
            label_starts.push(labels.len());
            stage.step();
        }
        let documents = stage.finish();
        if documents == 0 {
            return Err(DataError::Empty { path, expected: "one document a line" });
        }
        let mut space = task.labels().clone();
        space.set_train_counts(counts, documents);
        let (file, offsets) = spool.finish()?;
        Ok(FileDataset { path, file, offsets, label_starts, labels, space })
    }
}

impl Dataset for FileDataset {
    fn len(&self) -> usize {
        self.label_starts.len() - 1
    }

    fn document(&self, id: DocId) -> Result<Document, DataError> {
        let (start, end) = (self.offsets[id.index()], self.offsets[id.index() + 1]);
        let mut bytes = vec![0; (end - start) as usize];
        read_exact_at(&self.file, &mut bytes, start).map_err(StorageError::io(&self.path, "read"))?;
        let place = || Place::file(&self.path);
        let line = String::from_utf8(bytes).map_err(|error| {
            StorageError::io(&self.path, "read the unpacked copy of")(io::Error::other(error))
        })?;
        resolve(DocumentRecord::parse(&line, place)?, &self.space, place)
    }

    fn labels_of(&self, id: DocId) -> &[LabelId] {
        &self.labels[self.label_starts[id.index()]..self.label_starts[id.index() + 1]]
    }

    fn label_space(&self) -> &LabelSpace {
        &self.space
    }
}

/// The checked lines, unpacked, one after the other.
struct Spool {
    path: PathBuf,
    out: BufWriter<File>,
    offsets: Vec<u64>,
}

impl Spool {
    fn new(dir: &Path) -> Result<Spool, DataError> {
        let file = tempfile::tempfile_in(dir).map_err(StorageError::io(dir, "create a temporary file in"))?;
        Ok(Spool { path: dir.to_owned(), out: BufWriter::with_capacity(1 << 18, file), offsets: vec![0] })
    }

    fn push(&mut self, line: &str) -> Result<(), DataError> {
        self.out
            .write_all(line.as_bytes())
            .map_err(StorageError::io(&self.path, "write a temporary file in"))?;
        let start = self.offsets[self.offsets.len() - 1];
        self.offsets.push(start + line.len() as u64);
        Ok(())
    }

    fn finish(self) -> Result<(File, Vec<u64>), DataError> {
        let file = self
            .out
            .into_inner()
            .map_err(|error| StorageError::io(&self.path, "write a temporary file in")(error.into_error()))?;
        Ok((file, self.offsets))
    }
}

/// A set without documents: all that is known are the labels.
#[derive(Debug)]
pub struct LabelsOnly(LabelSpace);

impl LabelsOnly {
    /// A set of no documents over `space`.
    pub fn new(space: LabelSpace) -> LabelsOnly {
        LabelsOnly(space)
    }
}

impl Dataset for LabelsOnly {
    fn len(&self) -> usize {
        0
    }

    fn document(&self, id: DocId) -> Result<Document, DataError> {
        panic!("{id} of a set without documents");
    }

    fn labels_of(&self, id: DocId) -> &[LabelId] {
        panic!("{id} of a set without documents");
    }

    fn label_space(&self) -> &LabelSpace {
        &self.0
    }
}
