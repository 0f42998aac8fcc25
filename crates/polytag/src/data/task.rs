//! The task folder.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::dataset::FileDataset;
use super::error::{DataError, Place};
use super::label::Label;
use super::reader::{DocumentReader, FirstLines, ReadOptions};
use super::space::LabelSpace;
use super::table_lines::{self, LABELS};
use super::unread::{self, UnreadFile};
use crate::progress::{Progress, Stop};
use crate::storage::{compressed_variants, require_folder};

/// What the name of a file of lines may end with.
const LINES: [&str; 3] = [".jsonl", ".jsonl.gz", ".jsonl.zst"];
/// What a table's name may end with.
const TABLES: [&str; 3] = [".parquet", ".arrow", ".feather"];

/// A part of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Split {
    /// What methods learn from.
    Train,
    /// What choices are made on.
    Dev,
    /// What is measured last.
    Test,
}

impl Split {
    /// All of them, in order.
    pub const ALL: [Split; 3] = [Split::Train, Split::Dev, Split::Test];

    /// Its name in file names and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Dev => "dev",
            Split::Test => "test",
        }
    }

    /// The plain name of its file.
    pub fn file_name(self) -> String {
        format!("{}.jsonl", self.as_str())
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Split {
    type Err = String;

    fn from_str(name: &str) -> Result<Split, String> {
        let found = Split::ALL.into_iter().find(|split| split.as_str() == name);
        found.ok_or_else(|| format!("no split is called {name:?}; say train, dev or test"))
    }
}

/// A task folder whose labels have been read.
///
/// ```no_run
/// use polytag::data::{ReadOptions, Split, Task};
/// let task = Task::open("tasks/eurlex".as_ref(), &ReadOptions::with_spool("/tmp"))?;
/// for document in task.documents(Split::Dev)? {
///     println!("{}", document?.id);
/// }
/// # Ok::<(), polytag::data::DataError>(())
/// ```
#[derive(Debug)]
pub struct Task {
    dir: PathBuf,
    labels: LabelSpace,
    options: ReadOptions,
}

impl Task {
    /// Reads the labels of the task folder `dir`.
    pub fn open(dir: &Path, options: &ReadOptions) -> Result<Task, DataError> {
        require_folder(dir, "open the task folder")?;
        let path = find(dir, "labels.jsonl")?.ok_or_else(|| DataError::MissingFile {
            dir: dir.to_owned(),
            name: "labels.jsonl".to_owned(),
            remedy: "a task folder needs one; `polytag import --help` shows how to make it",
        })?;
        let labels = read_labels(&path, options.max_line)?;
        Ok(Task { dir: dir.to_owned(), labels, options: options.clone() })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its labels. Nothing is known yet about which of them training has seen; a
    /// [`FileDataset`] of the train split knows.
    pub fn labels(&self) -> &LabelSpace {
        &self.labels
    }

    /// How its files are read.
    pub fn options(&self) -> &ReadOptions {
        &self.options
    }

    /// The file of `split`, if the task has that split.
    pub fn file(&self, split: Split) -> Result<Option<PathBuf>, DataError> {
        find(&self.dir, &split.file_name())
    }

    /// The file of the labels.
    pub fn labels_file(&self) -> Result<Option<PathBuf>, DataError> {
        find(&self.dir, "labels.jsonl")
    }

    /// The file of `split`, or an error that says it is missing.
    pub fn required_file(&self, split: Split) -> Result<PathBuf, DataError> {
        self.file(split)?.ok_or_else(|| DataError::MissingFile {
            dir: self.dir.clone(),
            name: split.file_name(),
            remedy: "choose a split that the task has, or add the file",
        })
    }

    /// What lies in the folder, looks like a part of the task, and is not read, in order of names. A folder that cannot be
    /// listed has none.
    pub fn unread_files(&self) -> Vec<UnreadFile> {
        unread::files(&self.dir)
    }

    /// The documents of `split`, one after the other.
    pub fn documents(&self, split: Split) -> Result<DocumentReader<'_>, DataError> {
        DocumentReader::open(&self.required_file(split)?, &self.labels, self.options.max_line)
    }

    /// The documents of `split` by position, all checked.
    pub fn dataset(
        &self,
        split: Split,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<FileDataset, DataError> {
        FileDataset::open(self, split, progress, stop)
    }
}

/// Finds `name` in `dir`, plain, compressed or as a table.
pub(super) fn find(dir: &Path, name: &str) -> Result<Option<PathBuf>, DataError> {
    let mut found = compressed_variants(dir, name);
    let stem = name.strip_suffix(".jsonl");
    let tables = TABLES.iter().filter_map(|ending| Some(dir.join(format!("{}{ending}", stem?))));
    found.extend(tables.filter(|path| path.is_file()));
    if found.len() > 1 {
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Err(DataError::Ambiguous {
            dir: dir.to_owned(),
            first: name(&found[0]),
            second: name(&found[1]),
        });
    }
    Ok(found.pop())
}

/// Whether a file of this name is a part of a task.
pub(super) fn is_part(name: &str) -> bool {
    let mut parts = ["labels"].into_iter().chain(Split::ALL.map(Split::as_str));
    parts.any(|part| {
        let ending = name.strip_prefix(part).unwrap_or_default();
        LINES.contains(&ending) || TABLES.contains(&ending)
    })
}

/// Reads a label file.
pub(crate) fn read_labels(path: &Path, max_line: usize) -> Result<LabelSpace, DataError> {
    let mut lines = table_lines::open(path, LABELS, max_line)?;
    let mut space = LabelSpace::default();
    let mut seen = FirstLines::default();
    while let Some(line) = lines.next_line()? {
        let place = || Place::line(path, line.number);
        let label = Label::parse(line.text, place)?;
        if let Some(first) = seen.note(&label.id, line.number) {
            return Err(DataError::DuplicateId { place: place(), id: label.id, first });
        }
        space.add(label)?;
    }
    if space.is_empty() {
        return Err(DataError::Empty { path: path.to_owned(), expected: "one label a line" });
    }
    Ok(space)
}
