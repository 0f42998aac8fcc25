//! Datasets of the Extreme Classification Repository, in either of its two forms.
//!
//! A folder enters. If it holds `trn.json` and `lbl.json` (plain, `.gz` or `.zst`) it is one of the
//! LF datasets with titles and contents, see [`raw`]; otherwise it holds sparse rows of features,
//! see [`sparse`]. What leaves are the splits of the source with its labels.

pub mod raw; // titles and contents, as JSON lines
pub mod sparse; // numbered features, one row a document

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::intake::{Intake, file_name, malformed, plain_name, sorted_entries, split_in_name};
use super::{ImportContext, Importer};
use crate::data::error::{DataError, Place};
use crate::data::task::{Split, find};
use crate::data::writer::TaskWriter;

/// Imports a dataset of the Extreme Classification Repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Xc {
    /// The sparse rows to train on, where their file is not called `train.txt` or the like.
    pub train: Option<PathBuf>,
    /// The sparse rows to test on, where their file is not called `test.txt` or the like.
    pub test: Option<PathBuf>,
    /// The names of the features, one a line, where they are not in `Xf.txt`.
    pub features: Option<PathBuf>,
    /// The names of the labels, one a line, where they are not in `Y.txt`.
    pub labels: Option<PathBuf>,
}

impl Importer for Xc {
    fn import(
        &self,
        source: &Path,
        task: &mut TaskWriter,
        context: &ImportContext<'_>,
    ) -> Result<(), DataError> {
        let mut intake = Intake::new(task, context);
        let named = self.train.is_some() || self.test.is_some();
        match find_raw(source)? {
            Some(files) if !named => raw::import(&files, &mut intake)?,
            _ => sparse::import(&self.find_sparse(source)?, &mut intake)?,
        }
        intake.finish(source, "documents, one a line")
    }
}

impl Xc {
    fn find_sparse(&self, source: &Path) -> Result<sparse::SparseFiles, DataError> {
        let mut rows: Vec<(Split, PathBuf)> = Vec::new();
        let named = [(Split::Train, &self.train), (Split::Test, &self.test)];
        rows.extend(named.into_iter().filter_map(|(split, path)| Some((split, path.clone()?))));
        if rows.is_empty() {
            rows = find_rows(source)?;
        }
        if rows.is_empty() {
            return Err(malformed(
                Place::file(source),
                "neither trn.json and lbl.json nor train.txt or test.txt here",
                "name the folder that the dataset was unpacked to, or the files with --train and --test",
            ));
        }
        let or_found = |given: &Option<PathBuf>, name: &str| match given {
            Some(path) => Ok(Some(path.clone())),
            None if source.is_dir() => find(source, name),
            None => Ok(None),
        };
        Ok(sparse::SparseFiles {
            rows,
            features: or_found(&self.features, "Xf.txt")?,
            labels: or_found(&self.labels, "Y.txt")?,
            // In most datasets this file holds the words of labels; in some, the labels.
            perhaps_labels: or_found(&None, "Yf.txt")?,
        })
    }
}

/// The files of an LF dataset, if `source` is one.
fn find_raw(source: &Path) -> Result<Option<raw::RawFiles>, DataError> {
    if !source.is_dir() {
        return Ok(None);
    }
    let either = |stem: &str| match find(source, &format!("{stem}.json"))? {
        Some(path) => Ok::<_, DataError>(Some(path)),
        None => find(source, &format!("{stem}.raw.json")),
    };
    let Some(labels) = either("lbl")? else { return Ok(None) };
    let mut documents = Vec::new();
    for (split, stem) in [(Split::Train, "trn"), (Split::Dev, "val"), (Split::Test, "tst")] {
        documents.extend(either(stem)?.map(|path| (split, path)));
    }
    Ok(Some(raw::RawFiles { labels, documents }))
}

/// The files of sparse rows in `source` by their names: `train.txt`, `eurlex_train.txt`, `trn.txt`.
fn find_rows(source: &Path) -> Result<Vec<(Split, PathBuf)>, DataError> {
    let mut rows: Vec<(Split, PathBuf)> = Vec::new();
    for path in sorted_entries(source)? {
        let name = plain_name(&path);
        // Lists of pairs to leave out of the score lie beside the rows, under names that end the same.
        let Some(stem) = name.strip_suffix(".txt").filter(|stem| !stem.starts_with("filter")) else {
            continue;
        };
        let last_word = stem.rsplit(['_', '-', '.']).next().unwrap_or(stem);
        let Some(split) = split_in_name(last_word).filter(|_| path.is_file()) else { continue };
        if let Some((_, first)) = rows.iter().find(|(of, _)| *of == split) {
            let (first, second) = (file_name(first), file_name(&path));
            return Err(DataError::Ambiguous { dir: source.to_owned(), first, second });
        }
        rows.push((split, path));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{complaint, folder, run};
    use super::*;

    #[test]
    fn the_folder_says_which_form_it_is() {
        let dir = folder(&[
            ("lbl.json", "{\"uid\":\"l\",\"title\":\"L\"}\n"),
            ("trn.json", "{\"uid\":\"d\",\"content\":\"c\",\"target_ind\":[0]}\n"),
            ("test.txt", "nonsense"),
        ]);
        assert_eq!(run(&Xc::default(), &dir, "").unwrap().names(), ["l=L"]);
        let dir = folder(&[("toy_train.txt", "1 1 1\n0 0:1\n"), ("filter_labels_train.txt", "0 0\n")]);
        assert_eq!(run(&Xc::default(), &dir, "").unwrap().split(Split::Train).len(), 1);
        let dir = folder(&[("a.txt", "1 1 1\n0 0:1\n")]);
        let importer = Xc { test: Some(dir.path().join("in/a.txt")), ..Xc::default() };
        assert_eq!(run(&importer, &dir, "").unwrap().split(Split::Test).len(), 1);
    }

    #[test]
    fn a_folder_of_neither_form_is_refused() {
        let dir = folder(&[("a.txt", "1 1 1\n0 0:1\n")]);
        assert!(complaint(&Xc::default(), &dir, "").contains("neither trn.json and lbl.json nor train.txt"));
        let dir = folder(&[("train.txt", ""), ("x_train.txt", "")]);
        assert!(complaint(&Xc::default(), &dir, "").contains("holds both train.txt and x_train.txt"));
        assert!(complaint(&Xc::default(), &dir, "nowhere").contains("check the path"));
        let dir = folder(&[("lbl.json", "{\"uid\":\"l\",\"title\":\"L\"}\n")]);
        assert!(complaint(&Xc::default(), &dir, "").contains("it should hold documents, one a line"));
    }
}
