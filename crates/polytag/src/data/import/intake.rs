//! What importers share on the way from a source into a [`TaskWriter`].
//!
//! Documents enter as records; they leave for the task with each label once, after the stop flag
//! was asked and the count reported. Here too: splits by name, sorted folders, ids made unique.

use std::collections::hash_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};
use xxhash_rust::xxh3::xxh3_128;

use super::ImportContext;
use crate::data::error::{DataError, Place};
use crate::data::label::Label;
use crate::data::record::DocumentRecord;
use crate::data::task::Split;
use crate::data::writer::TaskWriter;
use crate::progress::Stage;
use crate::storage::StorageError;

/// Documents and labels on their way into a task, watched.
pub(super) struct Intake<'a> {
    task: &'a mut TaskWriter,
    pub(super) context: &'a ImportContext<'a>,
    stage: Stage<'a>,
}

impl<'a> Intake<'a> {
    pub(super) fn new(task: &'a mut TaskWriter, context: &'a ImportContext<'a>) -> Intake<'a> {
        Intake { task, context, stage: Stage::start(context.progress, "importing documents", None) }
    }

    /// Adds a document that stands at `place`; a label it carries twice counts once.
    pub(super) fn document(
        &mut self,
        split: Split,
        mut record: DocumentRecord,
        place: &Place,
    ) -> Result<(), DataError> {
        self.context.check_stop()?;
        if let Some(labels) = &mut record.labels {
            let mut seen = FxHashSet::default();
            labels.retain(|label| seen.insert(label.clone()));
        }
        self.task.document_from(split, &record, place)?;
        self.stage.step();
        Ok(())
    }

    /// Describes a label; false where that was done before.
    pub(super) fn label(&mut self, label: Label) -> Result<bool, DataError> {
        self.context.check_stop()?;
        self.task.label(label)
    }

    /// Whether the label has been described.
    pub(super) fn has_label(&self, id: &str) -> bool {
        self.task.has_label(id)
    }

    /// Describes the labels that documents carry and nothing described, and says how many they were.
    pub(super) fn describe_rest(
        &mut self,
        mut describe: impl FnMut(&str) -> Label,
    ) -> Result<usize, DataError> {
        let missing = self.task.undescribed();
        for id in &missing {
            self.task.label(describe(id))?;
        }
        Ok(missing.len())
    }

    /// Ends the stage; an error where the source held no document.
    pub(super) fn finish(self, source: &Path, expected: &str) -> Result<(), DataError> {
        if self.stage.finish() == 0 {
            let remedy = format!("it should hold {expected}");
            return Err(malformed(Place::file(source), "no document was found", remedy));
        }
        Ok(())
    }
}

/// Ids as they come, changed where one was given out before: `x`, `x-2`, `x-3`.
///
/// Memory: some 40 bytes an id, as hashes of 128 bits stand for them.
#[derive(Default)]
pub(super) struct UniqueIds {
    /// Each id given out, with the number its last copy got.
    taken: FxHashMap<u128, u64>,
    /// How many were changed.
    pub(super) changed: u64,
}

impl UniqueIds {
    pub(super) fn make(&mut self, id: String) -> String {
        let hash = xxh3_128(id.as_bytes());
        let Some(last) = self.taken.get(&hash) else {
            self.taken.insert(hash, 1);
            return id;
        };
        self.changed += 1;
        let mut copy = *last;
        loop {
            copy += 1;
            let candidate = format!("{id}-{copy}");
            if let Entry::Vacant(entry) = self.taken.entry(xxh3_128(candidate.as_bytes())) {
                entry.insert(1);
                self.taken.insert(hash, copy);
                return candidate;
            }
        }
    }
}

/// A fault in a foreign format.
pub(super) fn malformed(place: Place, problem: impl Into<String>, remedy: impl Into<String>) -> DataError {
    DataError::Malformed { place, problem: problem.into(), remedy: remedy.into() }
}

/// The split that a folder or a column calls by this word.
pub(super) fn split_named(word: &str) -> Option<Split> {
    match word.trim().to_lowercase().as_str() {
        "train" | "trn" | "training" => Some(Split::Train),
        "dev" | "val" | "valid" | "validate" | "validation" | "development" => Some(Split::Dev),
        "test" | "tst" | "testing" => Some(Split::Test),
        _ => None,
    }
}

/// The split that one of the words of a file's name speaks of: `yso-train-2.tsv`, `yso_test2.tsv`.
///
/// Whole words, numbered or not: neither `latest.tsv` nor `testament.tsv` is a test set.
pub(super) fn split_in_name(name: &str) -> Option<Split> {
    let mut words = name.split(|c: char| !c.is_alphanumeric());
    words.find_map(|word| split_named(word.trim_end_matches(|c: char| c.is_ascii_digit())))
}

/// What lies in `dir`, hidden names aside, in order of names, so that every run sees the same order.
pub(super) fn sorted_entries(dir: &Path) -> Result<Vec<PathBuf>, DataError> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(StorageError::io(dir, "read"))? {
        let path = entry.map_err(StorageError::io(dir, "read"))?.path();
        if !file_name(&path).starts_with('.') {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// The last piece of a path, for a person.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The name of a file without the ending of its compression: `a.tsv` for `a.tsv.gz`.
pub(super) fn plain_name(path: &Path) -> String {
    let name = file_name(path);
    [".gz", ".zst"].iter().find_map(|ext| name.strip_suffix(ext)).unwrap_or(&name).to_owned()
}

/// Text that must be UTF-8; the error names the line of the first byte that is not.
pub(super) fn utf8<'a>(bytes: &'a [u8], path: &Path) -> Result<&'a str, DataError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let start = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        let line = memchr::memchr_iter(b'\n', before).count() as u64 + 1;
        StorageError::NotUtf8 { path: path.to_owned(), line, byte: before.len() - start + 1 }.into()
    })
}

/// Something, unless it is blank.
pub(super) fn not_blank(text: String) -> Option<String> {
    if text.trim().is_empty() { None } else { Some(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_become_unique_and_stay_so() {
        let mut ids = UniqueIds::default();
        let made: Vec<String> =
            ["a", "a", "a-2", "a", "b"].into_iter().map(|id| ids.make(id.to_owned())).collect();
        assert_eq!(made, ["a", "a-2", "a-2-2", "a-3", "b"]);
        assert_eq!(ids.changed, 3);
    }

    #[test]
    fn splits_are_found_by_word() {
        assert_eq!(split_in_name("yso-finna-train2.tsv"), Some(Split::Train));
        assert_eq!(split_in_name("eurlex_test"), Some(Split::Test));
        assert_eq!(split_in_name("kirjastonhoitaja-validate"), Some(Split::Dev));
        assert_eq!(split_in_name("Trn.2.tsv"), Some(Split::Train));
        for name in ["latest", "devices.tsv", "testament.tsv", "trainers.tsv", "protest", "2020", ""] {
            assert_eq!(split_in_name(name), None, "{name}");
        }
        assert_eq!((split_named("Validation"), split_named("x")), (Some(Split::Dev), None));
    }

    #[test]
    fn a_byte_that_is_not_utf8_is_placed() {
        let error = utf8(b"ab\ncd\xffe\n", Path::new("x.txt")).unwrap_err().to_string();
        assert!(error.starts_with("x.txt, line 2: byte 3 of the line is not UTF-8"), "{error}");
    }
}
