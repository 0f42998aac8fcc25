//! What lies in a task folder and looks like a part of the task, but is called otherwise: `training.jsonl`, `dev.csv`.
//!
//! A folder enters; what leaves are such names, so that somebody can be told. Nothing here is an error: people may keep what
//! they like in the folder. Names that begin with a dot or an underscore are their own notes.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::task::is_part;

/// What the name of data ends with, before the ending of its compression.
const DATA: [&str; 8] = [".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".feather"];

/// Something that is not read. Displayed, it says so, with what would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnreadFile {
    /// Its name.
    pub name: String,
    /// Whether it is a file, and not a folder or a link to nothing.
    pub is_file: bool,
}

impl fmt::Display for UnreadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.is_file { "" } else { ", as it is no file" };
        write!(
            f,
            "{} is not read{why}; the files of a task are labels, train, dev and test, each as .jsonl, .jsonl.gz, \
             .jsonl.zst, .parquet or .arrow",
            self.name
        )
    }
}

/// Those of a folder, in order of names.
pub(super) fn files(dir: &Path) -> Vec<UnreadFile> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_file = entry.path().is_file();
        let is_meant = if is_file { is_data(&name) && !is_part(&name) } else { is_part(&name) };
        if is_meant && !name.starts_with(['.', '_']) {
            files.push(UnreadFile { name, is_file });
        }
    }
    files.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    files
}

/// Whether a name says that there are data in the file.
fn is_data(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let plain = [".gz", ".zst"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
    DATA.iter().any(|ending| plain.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::task::find;

    fn names(dir: &Path) -> Vec<String> {
        files(dir).into_iter().map(|file| file.name).collect()
    }

    #[test]
    fn what_is_called_otherwise_is_found() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "labels.jsonl",
            "train.jsonl",
            "training.jsonl",
            "DEV.jsonl",
            "dev.csv",
            "test.json.gz",
            "test.parquet.zst",
            "train.NDJSON",
            "README.md",
            "Makefile",
            ".partial.jsonl",
            "_mine.jsonl",
        ] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        for name in ["dev.jsonl", "notes", "old.jsonl"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let expected = [
            "DEV.jsonl",
            "dev.csv",
            "dev.jsonl",
            "test.json.gz",
            "test.parquet.zst",
            "train.NDJSON",
            "training.jsonl",
        ];
        assert_eq!(names(dir.path()), expected);
        let said: Vec<String> = files(dir.path()).iter().map(UnreadFile::to_string).collect();
        assert!(
            said[0]
                .starts_with("DEV.jsonl is not read; the files of a task are labels, train, dev and test, ")
        );
        assert!(said[2].starts_with("dev.jsonl is not read, as it is no file; "), "{}", said[2]);
    }

    #[test]
    fn what_is_read_is_not_among_them() {
        for part in ["labels", "train", "dev", "test"] {
            for ending in [".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet", ".arrow", ".feather"] {
                let (dir, name) = (tempfile::tempdir().unwrap(), format!("{part}{ending}"));
                fs::write(dir.path().join(&name), "x").unwrap();
                assert_eq!(names(dir.path()), [""; 0], "{name}");
                assert!(find(dir.path(), &format!("{part}.jsonl")).unwrap().is_some(), "{name}");
            }
        }
    }

    #[test]
    fn a_folder_that_cannot_be_listed_has_none() {
        assert!(files(Path::new("nowhere/at/all")).is_empty());
    }
}
