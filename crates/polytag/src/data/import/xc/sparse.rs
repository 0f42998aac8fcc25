//! Sparse rows: a header `documents features labels`, then `l1,l2 f:v f:v …` for each document.
//!
//! Such a file has no text. A document becomes the names of its features with blanks between,
//! from `Xf.txt` where that is there, else `f123`. A feature that counts is written as often as it
//! counts: if all values of a row are whole numbers up to 100 they are taken for counts; otherwise
//! they are weights, and each feature stands once. Features of value zero are left out. Document
//! ids are the split and the row from zero; label ids are their numbers. Labels that have no name and
//! that no row carries are left out. Memory: one row, and the names of features and labels.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::data::error::{DataError, Place};
use crate::data::import::intake::{Intake, malformed};
use crate::data::label::Label;
use crate::data::record::DocumentRecord;
use crate::data::task::Split;
use crate::storage::Lines;

/// The largest value that is taken for a count of words.
const MAX_COUNT: f64 = 100.0;

const HEADER_REMEDY: &str =
    "start the file with the numbers of documents, features and labels, like `15539 5000 3993`";

pub(super) struct SparseFiles {
    pub(super) rows: Vec<(Split, PathBuf)>,
    pub(super) features: Option<PathBuf>,
    pub(super) labels: Option<PathBuf>,
    /// Holds label names only if it has as many lines as there are labels.
    pub(super) perhaps_labels: Option<PathBuf>,
}

/// The first line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How many rows follow.
    pub documents: u64,
    /// How many features there are.
    pub features: usize,
    /// How many labels there are.
    pub labels: usize,
}

/// One document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Its labels by number.
    pub labels: Vec<usize>,
    /// Its features by number, with their values, all finite.
    pub features: Vec<(usize, f64)>,
}

/// Reads the first line of a file.
pub fn parse_header(line: &str, place: impl Fn() -> Place) -> Result<Header, DataError> {
    let numbers: Vec<Option<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [Some(documents), Some(features), Some(labels)] => {
            // Rows address features and labels by 32-bit numbers here as elsewhere.
            let bounded = |n: u64| u32::try_from(n).ok().map(|n| n as usize);
            match (bounded(features), bounded(labels)) {
                (Some(features), Some(labels)) => Ok(Header { documents, features, labels }),
                _ => Err(malformed(
                    place(),
                    "the header counts more than 2^32 features or labels",
                    HEADER_REMEDY,
                )),
            }
        }
        _ => Err(malformed(place(), "the header is not three whole numbers", HEADER_REMEDY)),
    }
}

/// Reads one row and checks its numbers against the header.
pub fn parse_row(line: &str, header: &Header, place: impl Fn() -> Place) -> Result<Row, DataError> {
    let mut row = Row::default();
    // A row without labels starts with a blank, or at once with a feature.
    let (labels, features) = match line.split_once(|c: char| c.is_ascii_whitespace()) {
        _ if line.split_ascii_whitespace().next().is_some_and(|word| word.contains(':')) => ("", line),
        Some((labels, features)) => (labels, features),
        None => (line, ""),
    };
    for label in labels.split(',').map(str::trim).filter(|label| !label.is_empty()) {
        let number = parse_number(label, header.labels);
        row.labels.push(number.ok_or_else(|| {
            malformed(
                place(),
                format!("{label:?} is no label"),
                format!("labels are numbers below {}, with commas between", header.labels),
            )
        })?);
    }
    for feature in features.split_ascii_whitespace() {
        let parsed = feature.split_once(':').and_then(|(index, value)| {
            let value: f64 = value.parse().ok()?;
            value.is_finite().then_some((parse_number(index, header.features)?, value))
        });
        row.features.push(parsed.ok_or_else(|| {
            malformed(
                place(),
                format!("{feature:?} is no feature"),
                format!("features are a number below {}, a colon and a finite value", header.features),
            )
        })?);
    }
    Ok(row)
}

fn parse_number(word: &str, below: usize) -> Option<usize> {
    word.parse().ok().filter(|&number: &usize| number < below)
}

impl Row {
    /// The row as text, or `None` if that is longer than `limit` bytes.
    pub fn text(&self, names: Option<&[String]>, limit: usize) -> Option<String> {
        let whole = |&(_, value): &(usize, f64)| value.fract() == 0.0 && (0.0..=MAX_COUNT).contains(&value);
        let counts = self.features.iter().all(whole);
        let mut text = String::new();
        for &(index, value) in self.features.iter().filter(|(_, value)| *value != 0.0) {
            let name = match names.and_then(|names| names.get(index)).map(|name| name.trim()) {
                Some(name) if !name.is_empty() => Cow::Borrowed(name),
                _ => Cow::Owned(format!("f{index}")),
            };
            let times = if counts { value as usize } else { 1 };
            for _ in 0..times {
                if !text.is_empty() {
                    text.push(' ');
                }
                text.push_str(&name);
                // Asked each time: a count may repeat a name that is almost as long as the limit.
                if text.len() > limit {
                    return None;
                }
            }
        }
        Some(text)
    }
}

pub(super) fn import(files: &SparseFiles, intake: &mut Intake<'_>) -> Result<(), DataError> {
    let max_line = intake.context.max_line;
    let mut first: Option<(&Path, Header)> = None;
    let mut features = None;
    let mut unnamed = 0;
    for (split, path) in &files.rows {
        let mut lines = Lines::open(path, max_line)?.keeping_blank();
        let Some(line) = lines.next_line()? else {
            return Err(DataError::Empty { path: path.clone(), expected: "a header and one row a document" });
        };
        let header = parse_header(line.text, || Place::line(path, 1))?;
        match first {
            None => {
                first = Some((path, header));
                features = match &files.features {
                    Some(names) => Some(read_names(names, header.features, "features", max_line)?),
                    None => None,
                };
                unnamed = describe_labels(files, &header, intake)?;
            }
            Some((other, known)) if (known.features, known.labels) != (header.features, header.labels) => {
                return Err(malformed(
                    Place::line(path, 1),
                    format!(
                        "{} features and {} labels here, but {} and {} in {}",
                        header.features,
                        header.labels,
                        known.features,
                        known.labels,
                        other.display()
                    ),
                    "take both files from the same dataset",
                ));
            }
            Some(_) => {}
        }
        import_rows(lines, *split, &header, features.as_deref(), intake)?;
    }
    // Without names, only labels in use are worth having; a header may count any number of others.
    unnamed += intake.describe_rest(|id| numbered(id))?;
    if unnamed > 0 {
        intake.context.warn(&format!(
            "{unnamed} labels have no name and are called by number; zero-shot methods cannot read such \
             names, so add a Y.txt with one name a line if there is one"
        ));
    }
    Ok(())
}

fn import_rows(
    mut lines: Lines,
    split: Split,
    header: &Header,
    names: Option<&[String]>,
    intake: &mut Intake<'_>,
) -> Result<(), DataError> {
    let path = lines.path().to_owned();
    let limit = intake.context.max_line;
    let mut count = 0;
    while let Some(line) = lines.next_line()? {
        let place = || Place::line(&path, line.number);
        if count == header.documents {
            // An editor may have left blank lines at the end.
            if line.text.trim().is_empty() {
                continue;
            }
            return Err(malformed(
                place(),
                format!("more rows than the {} that the header counts", header.documents),
                "correct the header, or fetch the file again",
            ));
        }
        let row = parse_row(line.text, header, place)?;
        let text = row.text(names, limit).ok_or_else(|| {
            malformed(place(), "the row makes too long a text", "raise the limit with --max-line-mib")
        })?;
        let labels = row.labels.iter().map(usize::to_string).collect();
        let id = format!("{split}-{count}");
        intake.document(split, DocumentRecord { id, title: None, text, labels: Some(labels) })?;
        count += 1;
    }
    if count < header.documents {
        return Err(malformed(
            Place::file(&path),
            format!("{count} rows, though the header counts {}", header.documents),
            "the file was cut short, so fetch it again",
        ));
    }
    Ok(())
}

/// Describes the labels that have names, and says how many of them are blank.
fn describe_labels(
    files: &SparseFiles,
    header: &Header,
    intake: &mut Intake<'_>,
) -> Result<usize, DataError> {
    let read = |path: &Path| read_names(path, header.labels, "labels", intake.context.max_line);
    let names = match (&files.labels, &files.perhaps_labels) {
        (Some(path), _) => read(path)?,
        (None, Some(path)) => match read(path) {
            // Another number of lines: the words of labels, then, and not the labels.
            Err(DataError::Malformed { .. }) => Vec::new(),
            names => names?,
        },
        (None, None) => Vec::new(),
    };
    let mut unnamed = 0;
    for (index, name) in names.iter().enumerate() {
        if name.trim().is_empty() {
            unnamed += 1;
            intake.label(numbered(index))?;
        } else {
            intake.label(Label::new(index.to_string(), name.trim()))?;
        }
    }
    Ok(unnamed)
}

fn numbered(id: impl fmt::Display) -> Label {
    Label::new(id.to_string(), format!("label {id}"))
}

/// Reads exactly `count` names, one a line; blank ones keep their place.
fn read_names(path: &Path, count: usize, of: &str, max_line: usize) -> Result<Vec<String>, DataError> {
    let mut lines = Lines::open(path, max_line)?.keeping_blank();
    let mut names = Vec::new();
    while let Some(line) = lines.next_line()? {
        names.push(line.text.to_owned());
        if names.len() > count && !line.text.trim().is_empty() {
            break;
        }
    }
    while names.len() > count && names.last().is_some_and(|name| name.trim().is_empty()) {
        names.pop();
    }
    if names.len() == count {
        return Ok(names);
    }
    let (sign, found) = if names.len() > count { ("more than ", count) } else { ("", names.len()) };
    Err(malformed(
        Place::file(path),
        format!("{sign}{found} names for the {count} {of} of the header"),
        "take the file from the same dataset, one name a line",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::super::intake::fixture::{complaint, folder, run};
    use super::super::Xc;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_become_words_and_counts_repeat_them() {
        let dir = folder(&[
            ("train.txt", "3 3 2\n1,0 0:2 2:1\n 1:0.5 2:3\n\n"),
            ("test.txt", "2 3 2\n0 1:0.0 2:1e0\n1:1\n\n"),
            ("Xf.txt", "glue\n\nrail\n"),
            ("Y.txt", "adhesives\ntransport\n"),
        ]);
        let imported = run(&Xc::default(), &dir, "").unwrap();
        let train = [
            ("train-0", "-", "glue glue rail", "0 1".to_owned()),
            ("train-1", "-", "f1 rail", String::new()),
            ("train-2", "-", "", String::new()),
        ];
        assert_eq!(imported.split(Split::Train), train);
        let test = [("test-0", "-", "rail", "0".to_owned()), ("test-1", "-", "f1", String::new())];
        assert_eq!(imported.split(Split::Test), test);
        assert_eq!(imported.names(), ["0=adhesives", "1=transport"]);
        assert!(imported.warnings.is_empty());
    }

    #[test]
    fn labels_without_names_are_numbered_and_warned_of() {
        let dir = folder(&[("train.txt", "1 9 2\n1,0 7:1\n"), ("Yf.txt", "words\nof\nlabels\n")]);
        let imported = run(&Xc::default(), &dir, "").unwrap();
        assert_eq!(imported.names(), ["0=label 0", "1=label 1"]);
        assert_eq!(imported.split(Split::Train)[0].2, "f7");
        assert!(imported.warnings[0].starts_with("2 labels have no name"));
        let dir = folder(&[("train.txt", "1 9 2\n1 7:1\n"), ("Yf.txt", "one\ntwo\n")]);
        assert_eq!(run(&Xc::default(), &dir, "").unwrap().names(), ["0=one", "1=two"]);
    }

    #[test]
    fn complaints_name_file_and_line() {
        let with = |train: &str| complaint(&Xc::default(), &folder(&[("train.txt", train)]), "");
        assert!(with("").contains("train.txt: the file is empty"));
        assert!(with("1 2\n").starts_with("train.txt, line 1: the header is not three whole numbers"));
        assert!(with("1 5000000000 1\n").starts_with("train.txt, line 1: the header counts more"));
        assert!(
            with("1 2 2\n2 0:1\n")
                .starts_with("train.txt, line 2: \"2\" is no label; labels are numbers below 2")
        );
        assert!(with("1 2 2\n1 2:1\n").starts_with("train.txt, line 2: \"2:1\" is no feature"));
        assert!(with("1 2 2\n1 1:NaN\n").starts_with("train.txt, line 2: \"1:NaN\" is no feature"));
        assert!(with("1 2 2\n1 1:inf\n").contains("a finite value"));
        assert!(with("1 2 2\n1 1\n").contains("\"1\" is no feature"));
        assert!(with("1 2 2\n1 1:1\n0 1:1\n").starts_with("train.txt, line 3: more rows than the 1"));
        assert!(with("3 2 2\n1 1:1\n").starts_with("train.txt: 1 rows, though the header counts 3"));
        let row = "1 1 1\n0 0:1\n";
        let dir = folder(&[("train.txt", row), ("test.txt", "1 2 1\n0 0:1\n")]);
        assert!(
            complaint(&Xc::default(), &dir, "")
                .starts_with("train.txt, line 1: 1 features and 1 labels here, but 2 and 1 in test.txt")
        );
        let dir = folder(&[("train.txt", row), ("Y.txt", "a\nb\n")]);
        assert!(complaint(&Xc::default(), &dir, "").starts_with("Y.txt: more than 1 names for the 1 labels"));
        let dir = folder(&[("train.txt", row), ("Xf.txt", "")]);
        assert!(complaint(&Xc::default(), &dir, "").starts_with("Xf.txt: 0 names for the 1 features"));
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in "\\PC{0,60}", row in "[0-9:., \\-eNan]{0,60}") {
            let place = || Place::line(Path::new("x"), 1);
            let header = Header { documents: 1, features: 20, labels: 20 };
            for line in [line, row] {
                let _ = parse_header(&line, place);
                if let Ok(row) = parse_row(&line, &header, place) {
                    prop_assert!(row.labels.iter().all(|&label| label < 20));
                    prop_assert!(row.features.iter().all(|&(index, value)| index < 20 && value.is_finite()));
                    let _ = row.text(None, 1000);
                }
            }
        }
    }
}
