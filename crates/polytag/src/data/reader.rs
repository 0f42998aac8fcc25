//! Documents of one file, one after the other, each checked against the label space.
//!
//! Memory: one line, and some 50 bytes a document to find ids used twice.

use std::collections::hash_map::Entry;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_128;

use super::document::Document;
use super::error::{DataError, Place};
use super::record::DocumentRecord;
use super::space::LabelSpace;
use super::table_lines::{self, DOCUMENTS};
use crate::storage::{DEFAULT_MAX_LINE, Line, Lines};

/// How files of a task are read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The longest line, in bytes.
    pub max_line: usize,
    /// The folder for the unpacked copy of a split whose documents are needed by position.
    pub spool: PathBuf,
}

impl ReadOptions {
    /// The default limits, with `spool` as the folder for unpacked files.
    pub fn with_spool(spool: impl Into<PathBuf>) -> ReadOptions {
        ReadOptions { max_line: DEFAULT_MAX_LINE, spool: spool.into() }
    }
}

/// An iterator over the documents of a file.
///
/// After an error of one line ([`DataError::is_of_one_line`]) it goes on with the next; after any
/// other it ends.
pub struct DocumentReader<'a> {
    lines: Lines,
    labels: &'a LabelSpace,
    seen: FirstLines,
    ended: bool,
}

impl<'a> DocumentReader<'a> {
    /// Opens the document file at `path`.
    pub fn open(
        path: &Path,
        labels: &'a LabelSpace,
        max_line: usize,
    ) -> Result<DocumentReader<'a>, DataError> {
        Ok(DocumentReader::over(table_lines::open(path, DOCUMENTS, max_line)?, labels))
    }

    /// Reads documents from `input`; `name` is what errors call it.
    pub fn new(
        name: &Path,
        input: Box<dyn BufRead + Send>,
        labels: &'a LabelSpace,
        max_line: usize,
    ) -> DocumentReader<'a> {
        DocumentReader::over(Lines::new(name, input, max_line), labels)
    }

    fn over(lines: Lines, labels: &'a LabelSpace) -> DocumentReader<'a> {
        DocumentReader { lines, labels, seen: FirstLines::default(), ended: false }
    }

    /// The next document and its line, or `None` at the end.
    pub(super) fn read(&mut self) -> Result<Option<(Document, Line<'_>)>, DataError> {
        let path = self.lines.path().to_owned();
        let Some(line) = self.lines.next_line()? else { return Ok(None) };
        let place = || Place::line(&path, line.number);
        let record = DocumentRecord::parse(line.text, place)?;
        if let Some(first) = self.seen.note(&record.id, line.number) {
            return Err(DataError::DuplicateId { place: place(), id: record.id, first });
        }
        let document = resolve(record, self.labels, place)?;
        Ok(Some((document, line)))
    }
}

impl Iterator for DocumentReader<'_> {
    type Item = Result<Document, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let read = self.read().map(|read| read.map(|(document, _)| document));
        self.ended = match &read {
            Ok(document) => document.is_none(),
            Err(error) => !error.is_of_one_line(),
        };
        read.transpose()
    }
}

/// Looks the labels of a record up.
pub(super) fn resolve(
    record: DocumentRecord,
    labels: &LabelSpace,
    place: impl Fn() -> Place,
) -> Result<Document, DataError> {
    let find = |id: String| labels.find(&id).ok_or_else(|| DataError::UnknownLabel { place: place(), id });
    let labels = match record.labels {
        None => None,
        Some(ids) => {
            let mut found = ids.into_iter().map(find).collect::<Result<Vec<_>, _>>()?;
            found.sort_unstable();
            found.dedup();
            Some(found)
        }
    };
    Ok(Document { id: record.id, title: record.title, text: record.text, labels })
}

/// The first line of each id, by a 128-bit hash: two ids that collide are less likely than a
/// broken memory chip.
#[derive(Default)]
pub(super) struct FirstLines(FxHashMap<u128, u32>);

impl FirstLines {
    /// Notes an id; if it was noted before, says on which line.
    pub(super) fn note(&mut self, id: &str, line: u64) -> Option<u64> {
        match self.0.entry(xxh3_128(id.as_bytes())) {
            Entry::Occupied(first) => Some(u64::from(*first.get())),
            Entry::Vacant(entry) => {
                entry.insert(u32::try_from(line).unwrap_or(u32::MAX));
                None
            }
        }
    }
}
