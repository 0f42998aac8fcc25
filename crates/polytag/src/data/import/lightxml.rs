//! The text form that AttentionXML and LightXML train on: texts and labels in two files, by line.
//!
//! A folder enters with `train_texts.txt` and `train_labels.txt`, and the same for `test` and `dev`
//! where they are there (AttentionXML's `train_raw_texts.txt` too). A text may have its title before
//! ` /SEP/ `. A label is a word, often with underscores for blanks; the word is its id, and its name
//! where no label map gives another. Document ids are the split and the line from one. Memory: one
//! line of each file, and the labels.

use std::path::{Path, PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::intake::{Intake, malformed, not_blank};
use super::{ImportContext, Importer};
use crate::data::error::{DataError, Place};
use crate::data::label::Label;
use crate::data::record::DocumentRecord;
use crate::data::task::{Split, find};
use crate::data::writer::TaskWriter;
use crate::storage::Lines;

/// What AttentionXML puts between title and text.
const SEPARATOR: &str = "/SEP/";

/// Imports a folder of texts and labels by line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LightXml {
    /// Names for labels, where they are not in `label_map.txt`: lines of `label<TAB>name`, or names
    /// alone, which then belong to the labels `0`, `1` and so on.
    pub label_map: Option<PathBuf>,
}

impl Importer for LightXml {
    fn import(
        &self,
        source: &Path,
        task: &mut TaskWriter,
        context: &ImportContext<'_>,
    ) -> Result<(), DataError> {
        let map = match &self.label_map {
            Some(path) => Some(path.clone()),
            None => find(source, "label_map.txt")?,
        };
        let map = match map {
            Some(path) => LabelMap::read(&path, context.max_line)?,
            None => LabelMap::default(),
        };
        let mut intake = Intake::new(task, context);
        let mut found = false;
        for (split, stems) in
            [(Split::Train, &["train"][..]), (Split::Dev, &["dev", "valid"]), (Split::Test, &["test"])]
        {
            for stem in stems {
                found |= import_split(source, split, stem, &mut intake)?;
            }
        }
        if !found {
            return Err(DataError::MissingFile {
                dir: source.to_owned(),
                name: "train_texts.txt".to_owned(),
                remedy: "name the folder that holds it and train_labels.txt",
            });
        }
        for (token, name) in &map.by_token {
            intake.label(Label::new(token, name))?;
        }
        intake.describe_rest(|token| Label::new(token, map.name(token)))?;
        intake.finish(source, "documents, one a line")
    }
}

fn import_split(dir: &Path, split: Split, stem: &str, intake: &mut Intake<'_>) -> Result<bool, DataError> {
    let texts = match find(dir, &format!("{stem}_texts.txt"))? {
        Some(path) => Some(path),
        None => find(dir, &format!("{stem}_raw_texts.txt"))?,
    };
    let Some(texts_path) = texts else { return Ok(false) };
    let name = format!("{stem}_labels.txt");
    let labels_path = find(dir, &name)?.ok_or_else(|| DataError::MissingFile {
        dir: dir.to_owned(),
        name,
        remedy: "each line of it lists the labels of the text on the same line",
    })?;
    let mut texts = Lines::open(&texts_path, intake.context.max_line)?.keeping_blank();
    let mut labels = Lines::open(&labels_path, intake.context.max_line)?.keeping_blank();
    let mut count = 0;
    loop {
        match (texts.next_line()?, labels.next_line()?) {
            (Some(text), Some(labels)) => {
                count += 1;
                let record = parse_document(format!("{split}-{count}"), text.text, labels.text);
                intake.document(split, record, &Place::line(&texts_path, text.number))?;
            }
            (None, None) => return Ok(true),
            (text, label) => {
                let (longer, shorter, lines) = match (text, label) {
                    (Some(_), _) => (&texts_path, &labels_path, &mut texts),
                    _ => (&labels_path, &texts_path, &mut labels),
                };
                let rest = count_lines(lines)?;
                return Err(malformed(
                    Place::line(longer, count + 1),
                    format!(
                        "{} has {} lines, but {} ends after {count}",
                        longer.display(),
                        count + 1 + rest,
                        shorter.display()
                    ),
                    "make line n of the one belong to line n of the other",
                ));
            }
        }
    }
}

fn count_lines(lines: &mut Lines) -> Result<u64, DataError> {
    let mut count = 0;
    while lines.next_line()?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Makes a document of a line of text and a line of labels.
pub fn parse_document(id: String, text: &str, labels: &str) -> DocumentRecord {
    let (title, text) = match text.split_once(SEPARATOR) {
        Some((title, text)) => (not_blank(title.trim().to_owned()), text.trim()),
        None => (None, text.trim()),
    };
    let labels = labels.split_whitespace().map(str::to_owned).collect();
    DocumentRecord { id, title, text: text.to_owned(), labels: Some(labels) }
}

/// Names for labels.
#[derive(Default)]
struct LabelMap {
    /// Names of lines `label<TAB>name`, in order.
    by_token: Vec<(String, String)>,
    /// Lines that are a name alone.
    by_line: FxHashMap<usize, String>,
    /// The same lines, to tell a list of names from a list of the labels themselves.
    listed: FxHashSet<String>,
}

impl LabelMap {
    fn read(path: &Path, max_line: usize) -> Result<LabelMap, DataError> {
        let mut lines = Lines::open(path, max_line)?;
        let mut map = LabelMap::default();
        while let Some(line) = lines.next_line()? {
            match line.text.split_once('\t') {
                Some((token, name)) if !token.trim().is_empty() && !name.trim().is_empty() => {
                    map.by_token.push((token.trim().to_owned(), words(name)));
                }
                Some(_) => {
                    return Err(malformed(
                        Place::line(path, line.number),
                        "the label or its name is blank",
                        "write `label<TAB>name`, or one name a line",
                    ));
                }
                None => {
                    let name = line.text.trim().to_owned();
                    map.listed.insert(name.clone());
                    map.by_line.insert(line.number as usize - 1, name);
                }
            }
        }
        Ok(map)
    }

    /// The name of a label that no line `label<TAB>name` names.
    fn name(&self, token: &str) -> String {
        let by_line = || self.by_line.get(&token.parse().ok()?);
        if self.listed.contains(token) {
            return words(token);
        }
        by_line().map_or_else(|| words(token), |name| words(name))
    }
}

/// A label as words: `motor_vehicle` is "motor vehicle". One that is nothing but marks stays as it is.
fn words(token: &str) -> String {
    let words: Vec<&str> = token.split(|c: char| c == '_' || c == '-' || c.is_whitespace()).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    if words.is_empty() { token.to_owned() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{complaint, folder, run};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_and_labels_meet_by_line() {
        let dir = folder(&[
            ("train_texts.txt", "first text\n\nTitle /SEP/ body\n"),
            ("train_labels.txt", "motor_vehicle glue motor_vehicle\nglue\n\n"),
            ("test_texts.txt", "t\n"),
            ("test_labels.txt", "new-label ___"),
        ]);
        let imported = run(&LightXml::default(), &dir, "").unwrap();
        let train = [
            ("train-1", "-", "first text", "glue motor_vehicle".to_owned()),
            ("train-2", "-", "", "glue".to_owned()),
            ("train-3", "Title", "body", String::new()),
        ];
        assert_eq!(imported.split(Split::Train), train);
        assert_eq!(imported.split(Split::Test), [("test-1", "-", "t", "___ new-label".to_owned())]);
        assert_eq!(
            imported.names(),
            ["___=___", "glue=glue", "motor_vehicle=motor vehicle", "new-label=new label"]
        );
    }

    #[test]
    fn a_map_names_labels_by_word_or_by_number() {
        let files = [("train_texts.txt", "a\n"), ("train_labels.txt", "1 7 x\n")];
        let with =
            |map: &str| run(&LightXml::default(), &folder(&[files[0], files[1], ("label_map.txt", map)]), "");
        assert_eq!(with("7\tseven_up\n9\tnine\n").unwrap().names(), ["7=seven up", "9=nine", "1=1", "x=x"]);
        assert_eq!(with("zero\none_two\n").unwrap().names(), ["1=one two", "7=7", "x=x"]);
        assert_eq!(with("x\n7\n1\n").unwrap().names(), ["1=1", "7=7", "x=x"]);
        let dir = folder(&[files[0], files[1], ("label_map.txt", "a\tb\n\tc\n")]);
        let complaint = complaint(&LightXml::default(), &dir, "");
        assert!(complaint.starts_with("label_map.txt, line 2: the label or its name is blank"));
    }

    #[test]
    fn complaints_name_both_files_and_the_line() {
        let with = |texts: &str, labels: &str| {
            complaint(
                &LightXml::default(),
                &folder(&[("train_texts.txt", texts), ("train_labels.txt", labels)]),
                "",
            )
        };
        assert!(with("a\nb\nc\n", "l\n").starts_with(
            "train_texts.txt, line 2: train_texts.txt has 3 lines, but train_labels.txt ends after 1; "
        ));
        assert!(with("a\n", "l\n\n").starts_with(
            "train_labels.txt, line 2: train_labels.txt has 2 lines, but train_texts.txt ends after 1; "
        ));
        assert!(with("", "").contains("it should hold documents"));
        let dir = folder(&[("train_texts.txt", "a\n")]);
        assert!(complaint(&LightXml::default(), &dir, "").contains("no train_labels.txt here"));
        let dir = folder(&[("x.txt", "a\n")]);
        assert!(complaint(&LightXml::default(), &dir, "").contains("no train_texts.txt here"));
        std::fs::write(dir.path().join("in/train_texts.txt"), b"a\n\xff\n").unwrap();
        std::fs::write(dir.path().join("in/train_labels.txt"), b"l\nl\n").unwrap();
        assert!(complaint(&LightXml::default(), &dir, "").starts_with("train_texts.txt, line 2: byte 1"));
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(text in "\\PC{0,60}", labels in "\\PC{0,60}") {
            let record = parse_document("x".to_owned(), &text, &labels);
            for label in record.labels.unwrap() {
                prop_assert!(!words(&label).trim().is_empty());
            }
        }
    }
}
