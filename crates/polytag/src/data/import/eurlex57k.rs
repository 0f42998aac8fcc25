//! EURLEX57K: EU laws tagged with EuroVoc concepts (Chalkidis and others, ACL 2019).
//!
//! A folder enters that holds `train`, `dev` and `test`, or some of them, each full of JSON files of
//! one law, and the concept file `EURLEX57K.json`. What leaves is the same splits, laws in order of
//! file names, and a label for each concept of the file, in order of ids. Memory: one law, the
//! concepts, and the file names of one split.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::intake::{Intake, malformed, not_blank, plain_name, sorted_entries, split_named, utf8};
use super::{ImportContext, Importer};
use crate::data::error::{DataError, Place};
use crate::data::label::Label;
use crate::data::record::{DocumentRecord, WrittenId};
use crate::data::task::{Split, find};
use crate::data::writer::TaskWriter;
use crate::storage::{Lines, read_bounded};

/// The names under which the concept file goes around.
const CONCEPT_FILES: [&str; 4] =
    ["EURLEX57K.json", "eurovoc_en.json", "eurovoc_concepts.jsonl", "eurovoc_concepts.json"];

/// The largest concept file: that of the distribution has 2 MiB.
const MAX_CONCEPTS: u64 = 256 << 20;

const DOCUMENT_REMEDY: &str =
    "write one law a file, like {\"celex_id\": \"32010D0395\", \"title\": \"…\", \"concepts\": [\"1\"]}";
const CONCEPT_REMEDY: &str = "the file should map ids to concepts, like {\"1\": {\"label\": \"…\"}}";

/// Imports the EURLEX57K distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Eurlex57k {
    /// The concept file, where it does not lie in the source under its own name.
    pub concepts: Option<PathBuf>,
}

impl Importer for Eurlex57k {
    fn import(
        &self,
        source: &Path,
        task: &mut TaskWriter,
        context: &ImportContext<'_>,
    ) -> Result<(), DataError> {
        let root = find_root(source)?;
        let concepts = match &self.concepts {
            Some(path) => path.clone(),
            None => find_concepts(&[&root, source])?,
        };
        let mut unnamed = 0;
        let mut intake = Intake::new(task, context);
        for (id, label) in read_concepts(&concepts, context.max_line)? {
            unnamed += u64::from(label.is_none());
            intake.label(label.unwrap_or_else(|| Label::new(&id, &id)))?;
        }
        for path in sorted_entries(&root)?.into_iter().filter(|path| path.is_dir()) {
            if let Some(split) = split_named(&plain_name(&path)) {
                import_split(&path, split, &mut intake)?;
            }
        }
        unnamed += intake.describe_rest(|id| Label::new(id, id))? as u64;
        if unnamed > 0 {
            context.warn(&format!(
                "{unnamed} concepts have no name in {}; their ids stand in, which zero-shot methods \
                 cannot read",
                concepts.display()
            ));
        }
        intake.finish(source, "folders train, dev and test with JSON files in them")
    }
}

/// The folder that holds the splits: `source`, or `dataset` in it.
fn find_root(source: &Path) -> Result<PathBuf, DataError> {
    for root in [source.to_owned(), source.join("dataset")] {
        let has_split = Split::ALL.iter().any(|split| root.join(split.as_str()).is_dir());
        if has_split {
            return Ok(root);
        }
    }
    // A source that is not there, or is a file, has a plainer error than a missing split.
    sorted_entries(source)?;
    Err(malformed(
        Place::file(source),
        "no folder train, dev or test here or in dataset",
        "name the folder that the distribution was unpacked to",
    ))
}

fn find_concepts(dirs: &[&Path]) -> Result<PathBuf, DataError> {
    for dir in dirs {
        for name in CONCEPT_FILES {
            if let Some(path) = find(dir, name)? {
                return Ok(path);
            }
        }
    }
    Err(DataError::MissingFile {
        dir: dirs[0].to_owned(),
        name: CONCEPT_FILES[0].to_owned(),
        remedy: "the concepts get their names from it; put it there or name it with --concepts",
    })
}

fn import_split(dir: &Path, split: Split, intake: &mut Intake<'_>) -> Result<(), DataError> {
    let mut paths = sorted_entries(dir)?;
    paths.retain(|path| path.is_file() && plain_name(path).ends_with(".json"));
    for path in &paths {
        let bytes = read_bounded(path, intake.context.max_line as u64)?;
        intake.document(split, parse_document(&bytes, path)?, &Place::file(path))?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct RawDocument {
    celex_id: Option<WrittenId>,
    title: Option<String>,
    #[serde(default)]
    header: Value,
    #[serde(default)]
    recitals: Value,
    #[serde(default)]
    main_body: Value,
    #[serde(default)]
    attachments: Value,
    #[serde(alias = "eurovoc_concepts")]
    concepts: Option<Vec<WrittenId>>,
}

/// Reads one law. Its text is header, recitals, main body and attachments, a line each; parts that
/// are missing, null or not text are passed over. A law without `concepts` is one nobody labelled.
pub fn parse_document(bytes: &[u8], path: &Path) -> Result<DocumentRecord, DataError> {
    let raw: RawDocument = parse_json(utf8(bytes, path)?, path, DOCUMENT_REMEDY)?;
    let id = raw.celex_id.and_then(|id| not_blank(id.0));
    let Some(id) = id else {
        return Err(malformed(
            Place::file(path),
            "the field \"celex_id\" is missing or empty",
            DOCUMENT_REMEDY,
        ));
    };
    let mut parts = Vec::new();
    for value in [&raw.header, &raw.recitals, &raw.main_body, &raw.attachments] {
        match value {
            Value::String(text) => parts.push(text.as_str()),
            Value::Array(values) => parts.extend(values.iter().filter_map(Value::as_str)),
            _ => {}
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    let labels = raw.concepts.map(|ids| ids.into_iter().map(|id| id.0).filter(|id| !id.is_empty()).collect());
    Ok(DocumentRecord { id, title: raw.title.and_then(not_blank), text: parts.join("\n"), labels })
}

#[derive(Deserialize)]
struct RawConcept {
    id: Option<WrittenId>,
    #[serde(alias = "title", alias = "name")]
    label: Option<String>,
    alt_labels: Option<Vec<String>>,
    parents: Option<Vec<WrittenId>>,
}

impl RawConcept {
    /// The label, or nothing where the concept has no name.
    fn into_label(self, id: &str) -> Option<Label> {
        let name = self.label.and_then(not_blank)?;
        let aliases = self.alt_labels.unwrap_or_default();
        Some(Label {
            aliases: aliases.into_iter().filter_map(not_blank).collect(),
            parents: self.parents.unwrap_or_default().into_iter().map(|id| id.0).collect(),
            ..Label::new(id, name)
        })
    }
}

/// Concepts by id; `None` for one without a name.
pub type Concepts = BTreeMap<String, Option<Label>>;

fn read_concepts(path: &Path, max_line: usize) -> Result<Concepts, DataError> {
    if plain_name(path).ends_with(".jsonl") {
        return read_concept_lines(path, max_line);
    }
    parse_concepts(&read_bounded(path, MAX_CONCEPTS)?, path)
}

/// Reads the concept file: one object of concepts by id.
pub fn parse_concepts(bytes: &[u8], path: &Path) -> Result<Concepts, DataError> {
    let raw: BTreeMap<String, RawConcept> = parse_json(utf8(bytes, path)?, path, CONCEPT_REMEDY)?;
    let mut concepts = Concepts::new();
    for (id, concept) in raw {
        if id.is_empty() {
            return Err(malformed(Place::file(path), "a concept has an empty id", "give it one"));
        }
        let label = concept.into_label(&id);
        concepts.insert(id, label);
    }
    Ok(concepts)
}

/// Reads concepts as lines of JSON with an `id` each.
fn read_concept_lines(path: &Path, max_line: usize) -> Result<Concepts, DataError> {
    let mut lines = Lines::open(path, max_line)?;
    let mut concepts = Concepts::new();
    while let Some(line) = lines.next_line()? {
        let place = || Place::line(path, line.number);
        let remedy = "write a line like {\"id\": \"1\", \"label\": \"…\"}";
        let mut concept: RawConcept =
            serde_json::from_str(line.text).map_err(|error| malformed(place(), error.to_string(), remedy))?;
        let id = concept.id.take().and_then(|id| not_blank(id.0));
        let id = id.ok_or_else(|| malformed(place(), "the field \"id\" is missing or empty", remedy))?;
        let label = concept.into_label(&id);
        concepts.insert(id, label);
    }
    Ok(concepts)
}

/// Reads a whole file of JSON; the error names the line.
fn parse_json<'a, T: Deserialize<'a>>(text: &'a str, path: &Path, remedy: &str) -> Result<T, DataError> {
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or(&message);
        // A file without a line is faulty on its first.
        let place = Place::line(path, (error.line() as u64).max(1));
        malformed(place, format!("column {}: {message}", error.column()), remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{complaint, folder, run};
    use super::*;
    use proptest::prelude::*;

    const LAW: &str = r#"{"celex_id": "32010D0395", "title": "Commission Decision", "type": "Decision",
        "header": "COMMISSION DECISION", "recitals": ",\nHaving regard",
        "main_body": ["Article 1", null, 3, "Article 2"],
        "attachments": null, "concepts": ["889", "1519", "889"]}"#;
    const CONCEPTS: &str = r#"{"889": {"label": "State aid", "alt_labels": ["aid", ""], "parents": ["1519"]},
        "1519": {"label": "rail", "alt_labels": null, "parents": []}, "7": {"label": ""}}"#;

    #[test]
    fn the_distribution_is_imported_as_it_is() {
        let second = LAW.replace("32010D0395", "31999L0001").replace("\"889\"]", "\"4\"]");
        let dir = folder(&[
            ("dataset/train/b.json", LAW),
            ("dataset/train/a.json", &second),
            ("dataset/train/notes.txt", "not a law"),
            ("dataset/test/c.json", r#"{"celex_id": 5, "main_body": "text"}"#),
            ("EURLEX57K.json", CONCEPTS),
        ]);
        let imported = run(&Eurlex57k::default(), &dir, "").unwrap();
        let text = "COMMISSION DECISION\n,\nHaving regard\nArticle 1\nArticle 2";
        let train = imported.split(Split::Train);
        assert_eq!(train[0].0, "31999L0001");
        assert_eq!(train[1], ("32010D0395", "Commission Decision", text, "1519 889".to_owned()));
        assert_eq!(imported.split(Split::Test), [("5", "-", "text", "?".to_owned())]);
        assert_eq!(imported.names(), ["1519=rail", "7=7", "889=State aid", "4=4"]);
        assert_eq!(imported.labels[2].aliases, ["aid"]);
        assert_eq!(imported.labels[2].parents, ["1519"]);
        assert_eq!(imported.warnings.len(), 1);
        assert!(imported.warnings[0].starts_with("2 concepts have no name in "));
    }

    #[test]
    fn concepts_may_be_lines_named_by_an_option() {
        let dir = folder(&[
            ("dev/b.json", LAW),
            ("names.jsonl", "{\"id\":889,\"title\":\"aid\"}\n\n{\"id\":\"1519\",\"label\":\"rail\"}\n"),
        ]);
        let importer = Eurlex57k { concepts: Some(dir.path().join("in/names.jsonl")) };
        let imported = run(&importer, &dir, "").unwrap();
        assert_eq!(imported.names(), ["1519=rail", "889=aid"]);
        assert_eq!(imported.split(Split::Dev).len(), 1);
    }

    #[test]
    fn complaints_name_file_and_line() {
        let importer = Eurlex57k::default();
        let with = |law: &str, concepts: &str| {
            let dir = folder(&[("train/a.json", law), ("EURLEX57K.json", concepts)]);
            complaint(&importer, &dir, "")
        };
        assert!(
            with("{\n\"celex_id\": }", CONCEPTS)
                .starts_with("train/a.json, line 2: column 13: expected value; ")
        );
        assert!(with("{}", CONCEPTS).starts_with("train/a.json: the field \"celex_id\" is missing"));
        assert!(with("", CONCEPTS).starts_with("train/a.json, line 1: column 0: EOF"));
        assert!(with(LAW, "{\"1\":\n[]}").starts_with("EURLEX57K.json, line 2: "));
        let dir = folder(&[("train/a.json", LAW)]);
        assert!(complaint(&importer, &dir, "").contains("no EURLEX57K.json here"));
        let dir = folder(&[("train/a.json", LAW), ("train/b.json", LAW), ("EURLEX57K.json", CONCEPTS)]);
        assert!(
            complaint(&importer, &dir, "")
                .starts_with("train/b.json: the id \"32010D0395\" was used before, in train/a.json")
        );
        let dir = folder(&[("other/a.json", LAW)]);
        assert!(complaint(&importer, &dir, "").contains("no folder train, dev or test"));
        assert!(complaint(&importer, &dir, "nowhere").contains("check the path"));
        let dir = folder(&[("train/readme", ""), ("EURLEX57K.json", CONCEPTS)]);
        assert!(complaint(&importer, &dir, "").contains("it should hold folders train, dev and test"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            text in "[\\[\\]{}\":,a-c_ \n0-9]{0,60}",
        ) {
            let path = Path::new("x.json");
            for bytes in [&bytes[..], text.as_bytes()] {
                let _ = parse_document(bytes, path);
                let _ = parse_concepts(bytes, path);
            }
        }
    }
}
