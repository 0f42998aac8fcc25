//! LF datasets: documents and labels with titles and contents, as JSON lines.
//!
//! `lbl.json` holds a label a line; documents name labels by their line, from zero, in
//! `target_ind`. Ids are the uids. In the wild a uid may come twice: the second `x` becomes `x-2`,
//! with a warning, as the two are different products or pages more often than not. Memory: one
//! line, the labels, and some 80 bytes a document for its id.

use std::path::PathBuf;

use serde::Deserialize;

use crate::data::error::{DataError, Place};
use crate::data::import::intake::{Intake, UniqueIds, malformed, not_blank};
use crate::data::label::Label;
use crate::data::record::{DocumentRecord, WrittenId};
use crate::data::task::Split;
use crate::storage::Lines;

const DOCUMENT_REMEDY: &str =
    r#"write a line like {"uid": "d1", "title": "…", "content": "…", "target_ind": [0]}"#;
const LABEL_REMEDY: &str = r#"write a line like {"uid": "l1", "title": "…"}"#;

pub(super) struct RawFiles {
    pub(super) labels: PathBuf,
    pub(super) documents: Vec<(Split, PathBuf)>,
}

/// A line of one of the files; labels have no targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawLine {
    /// The uid; never empty.
    pub uid: String,
    /// The title, unless blank.
    pub title: Option<String>,
    /// The content, unless blank.
    pub content: Option<String>,
    /// The labels by line, from zero; `None` where the line has no such field.
    pub targets: Option<Vec<u64>>,
}

#[derive(Deserialize)]
struct Fields {
    uid: Option<WrittenId>,
    title: Option<String>,
    content: Option<String>,
    target_ind: Option<Vec<u64>>,
}

/// Reads one line of a document or label file.
pub fn parse_line(line: &str, remedy: &str, place: impl Fn() -> Place) -> Result<RawLine, DataError> {
    let fields: Fields = serde_json::from_str(line).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or(&message);
        malformed(place(), format!("column {}: {message}", error.column()), remedy)
    })?;
    let uid = fields.uid.and_then(|id| not_blank(id.0));
    let uid = uid.ok_or_else(|| malformed(place(), "the field \"uid\" is missing or empty", remedy))?;
    Ok(RawLine {
        uid,
        title: fields.title.and_then(not_blank),
        content: fields.content.and_then(not_blank),
        targets: fields.target_ind,
    })
}

pub(super) fn import(files: &RawFiles, intake: &mut Intake<'_>) -> Result<(), DataError> {
    let labels = import_labels(files, intake)?;
    for (split, path) in &files.documents {
        let mut ids = UniqueIds::default();
        let mut lines = Lines::open(path, intake.context.max_line)?;
        while let Some(line) = lines.next_line()? {
            let place = || Place::line(path, line.number);
            let raw = parse_line(line.text, DOCUMENT_REMEDY, place)?;
            let name = |target: u64| {
                let label = usize::try_from(target).ok().and_then(|target| labels.get(target));
                label.cloned().ok_or_else(|| {
                    malformed(
                        place(),
                        format!(
                            "target_ind names label {target}, but {} has {}",
                            files.labels.display(),
                            labels.len()
                        ),
                        "take both files from the same dataset",
                    )
                })
            };
            let targets = raw.targets.map(|targets| targets.into_iter().map(name).collect());
            let record = DocumentRecord {
                id: ids.make(raw.uid),
                title: raw.title,
                text: raw.content.unwrap_or_default(),
                labels: targets.transpose()?,
            };
            intake.document(*split, record, &place())?;
        }
        if ids.changed > 0 {
            intake.context.warn(&format!(
                "{}: {} documents had the uid of another and got a number behind theirs",
                path.display(),
                ids.changed
            ));
        }
    }
    Ok(())
}

/// Describes all labels, and hands back their ids by line.
fn import_labels(files: &RawFiles, intake: &mut Intake<'_>) -> Result<Vec<String>, DataError> {
    let path = &files.labels;
    let mut lines = Lines::open(path, intake.context.max_line)?.keeping_blank();
    let mut ids = UniqueIds::default();
    let mut labels = Vec::new();
    let mut unnamed = 0;
    let mut blank = None;
    while let Some(line) = lines.next_line()? {
        if line.text.trim().is_empty() {
            blank = blank.or(Some(line.number));
            continue;
        }
        // Blank lines at the end move nothing.
        if let Some(blank) = blank {
            return Err(malformed(
                Place::line(path, blank),
                "the line is blank, though documents name labels by their line",
                "fetch the file again, or write what belongs there",
            ));
        }
        let raw = parse_line(line.text, LABEL_REMEDY, || Place::line(path, line.number))?;
        unnamed += usize::from(raw.title.is_none());
        let name = raw.title.unwrap_or_else(|| raw.uid.clone());
        let id = ids.make(raw.uid);
        intake.label(Label { description: raw.content, ..Label::new(&id, name) })?;
        labels.push(id);
    }
    for (count, what) in [
        (unnamed, "labels have no title and are called by their uid, which zero-shot methods cannot read"),
        (ids.changed as usize, "labels had the uid of another and got a number behind theirs"),
    ] {
        if count > 0 {
            intake.context.warn(&format!("{}: {count} {what}", path.display()));
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{complaint, folder, run};
    use super::super::Xc;
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    const LABELS: &str = r#"{"uid":"A","title":"Glue","content":"sticky"}
{"uid":"A","title":""}
{"uid":7,"title":"Rail"}
"#;
    const TRAIN: &str = r#"{"uid":"d1","title":"T","content":"C","target_ind":[2,0,2],"target_rel":[1.0,1,1]}
{"uid":"d1","content":"other","target_ind":[1]}
"#;
    const TEST: &str = r#"{"uid":"d1","title":"T","content":"","target_ind":[],"target_rel":[]}
{"uid":"u"}
"#;

    #[test]
    fn titles_contents_and_targets_are_imported() {
        let labels = format!("{LABELS}\n \n");
        let dir = folder(&[("tst.json", TEST), ("lbl.json.gz", &labels), ("trn.json.gz", TRAIN)]);
        let imported = run(&Xc::default(), &dir, "").unwrap();
        let train = [("d1", "T", "C", "A 7".to_owned()), ("d1-2", "-", "other", "A-2".to_owned())];
        assert_eq!(imported.split(Split::Train), train);
        let test = [("d1", "T", "", String::new()), ("u", "-", "", "?".to_owned())];
        assert_eq!(imported.split(Split::Test), test);
        assert_eq!(imported.names(), ["A=Glue", "A-2=A", "7=Rail"]);
        assert_eq!(imported.labels[0].description.as_deref(), Some("sticky"));
        let warned = imported.warnings.join("\n");
        assert!(warned.contains("lbl.json.gz: 1 labels have no title"));
        assert!(warned.contains("lbl.json.gz: 1 labels had the uid of another"));
        assert!(warned.contains("trn.json.gz: 1 documents had the uid of another"));
    }

    #[test]
    fn complaints_name_file_and_line() {
        let with = |labels: &str, train: &str| {
            complaint(&Xc::default(), &folder(&[("lbl.json", labels), ("trn.json", train)]), "")
        };
        let good = "{\"uid\":\"d\",\"target_ind\":[0]}\n";
        assert!(
            with(LABELS, "{\"uid\":\"d\",\"target_ind\":[3]}")
                .starts_with("trn.json, line 1: target_ind names label 3, but lbl.json has 3")
        );
        assert!(with(LABELS, "{\"uid\":\"d\",\"target_ind\":[-1]}").starts_with("trn.json, line 1: column "));
        assert!(
            with(LABELS, &format!("{good}{{\"title\":\"x\"}}"))
                .starts_with("trn.json, line 2: the field \"uid\" is missing")
        );
        assert!(with(LABELS, "[").starts_with("trn.json, line 1: column 1: "));
        assert!(
            with("{\"uid\":\"a\",\"title\":\"A\"}\n{}", good)
                .starts_with("lbl.json, line 2: the field \"uid\"")
        );
        assert!(
            with(&LABELS.replacen('\n', "\n\n\n", 1), good)
                .starts_with("lbl.json, line 2: the line is blank")
        );
        assert!(with("", good).contains("but lbl.json has 0"));
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in "\\PC{0,60}", json in "[\\[\\]{}\":,0-9uidtarg_ ]{0,60}") {
            let place = || Place::line(Path::new("x"), 1);
            let _ = parse_line(&line, LABEL_REMEDY, place);
            let _ = parse_line(&json, LABEL_REMEDY, place);
        }
    }
}
