//! Lines of a task folder as JSON, before anything is looked up.
//!
//! Ids may be written as strings or whole numbers. Fields we do not know are passed over: people
//! keep their own notes in such files, and `inspect` lists them.

use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;

use super::error::{DataError, Place};
use super::label::Label;

pub(super) const DOCUMENT_EXAMPLE: &str = r#"{"id": "d1", "title": "…", "text": "…", "labels": ["l1"]}"#;
pub(super) const LABEL_EXAMPLE: &str = r#"{"id": "l1", "name": "…"}"#;

/// A document as it stands in a file, its labels by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DocumentRecord {
    /// Its id.
    pub id: String,
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its text.
    pub text: String,
    /// The ids of its labels; `None` where nobody labelled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct RawDocument {
    id: Option<Id>,
    title: Option<String>,
    text: Option<String>,
    labels: Option<Vec<Id>>,
}

#[derive(Deserialize)]
struct RawLabel {
    id: Option<Id>,
    name: Option<String>,
    description: Option<String>,
    aliases: Option<Vec<String>>,
    parents: Option<Vec<Id>>,
}

impl DocumentRecord {
    /// Reads one line of a document file.
    pub fn parse(line: &str, place: impl Fn() -> Place) -> Result<DocumentRecord, DataError> {
        let raw: RawDocument = parse_object(line, &place, DOCUMENT_EXAMPLE)?;
        let id = required_id(raw.id, &place)?;
        let Some(text) = raw.text else {
            return Err(DataError::Field {
                place: place(),
                problem: "the field \"text\" is missing".to_owned(),
                remedy: "add it, if only as \"\" for a document that is all title",
            });
        };
        let labels = raw.labels.map(|labels| labels.into_iter().map(|id| id.0).collect());
        Ok(DocumentRecord { id, title: raw.title, text, labels })
    }
}

impl Label {
    /// Reads one line of a label file.
    pub fn parse(line: &str, place: impl Fn() -> Place) -> Result<Label, DataError> {
        let raw: RawLabel = parse_object(line, &place, LABEL_EXAMPLE)?;
        let id = required_id(raw.id, &place)?;
        let name = raw.name.unwrap_or_default();
        if name.trim().is_empty() {
            return Err(DataError::Field {
                place: place(),
                problem: format!("the label {id:?} has no name"),
                remedy: "add a \"name\" that says what it means",
            });
        }
        Ok(Label {
            id,
            name,
            description: raw.description.filter(|text| !text.trim().is_empty()),
            aliases: raw.aliases.unwrap_or_default(),
            parents: raw.parents.unwrap_or_default().into_iter().map(|id| id.0).collect(),
        })
    }
}

fn parse_object<'a, T: Deserialize<'a>>(
    line: &'a str,
    place: &impl Fn() -> Place,
    example: &'static str,
) -> Result<T, DataError> {
    let problem = if line.trim_start().starts_with('{') {
        match serde_json::from_str(line) {
            Ok(value) => return Ok(value),
            Err(error) => {
                // serde_json counts lines within our one line; the column is what helps.
                let message = error.to_string();
                let message = message.split(" at line ").next().unwrap_or(&message);
                format!("not valid JSON at column {}: {message}", error.column())
            }
        }
    } else {
        "not a JSON object".to_owned()
    };
    Err(DataError::Json { place: place(), problem, example })
}

fn required_id(id: Option<Id>, place: &impl Fn() -> Place) -> Result<String, DataError> {
    let problem = match id {
        Some(Id(id)) if !id.is_empty() => return Ok(id),
        Some(_) => "the field \"id\" is empty",
        None => "the field \"id\" is missing",
    };
    Err(DataError::Field { place: place(), problem: problem.to_owned(), remedy: "give it an id of its own" })
}

/// An id written as a string or as a whole number.
#[derive(Clone, Debug)]
pub(super) struct Id(pub(super) String);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Id;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id: a string or a whole number")
            }

            fn visit_str<E: de::Error>(self, id: &str) -> Result<Id, E> {
                Ok(Id(id.to_owned()))
            }

            fn visit_string<E: de::Error>(self, id: String) -> Result<Id, E> {
                Ok(Id(id))
            }

            fn visit_u64<E: de::Error>(self, id: u64) -> Result<Id, E> {
                Ok(Id(id.to_string()))
            }

            fn visit_i64<E: de::Error>(self, id: i64) -> Result<Id, E> {
                Ok(Id(id.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn place() -> Place {
        Place::line(Path::new("t.jsonl"), 3)
    }

    #[test]
    fn ids_may_be_numbers_and_unknown_fields_are_passed_over() {
        let line = r#"{"id": 7, "text": "x", "labels": [1, "b"], "note": {"mine": [1]}}"#;
        let record = DocumentRecord::parse(line, place).unwrap();
        assert_eq!(record.id, "7");
        assert_eq!(record.labels.unwrap(), ["1", "b"]);
    }

    #[test]
    fn null_is_absent() {
        let record =
            DocumentRecord::parse(r#"{"id":"a","title":null,"text":"","labels":null}"#, place).unwrap();
        assert_eq!((record.title, record.labels), (None, None));
        let label = Label::parse(r#"{"id":"a","name":"A","aliases":null,"parents":null}"#, place).unwrap();
        assert_eq!(label, Label::new("a", "A"));
    }

    #[test]
    fn complaints_name_the_place_and_the_field() {
        let complaint = |line: &str| DocumentRecord::parse(line, place).unwrap_err().to_string();
        assert!(complaint(r#"{"text": "x"}"#).starts_with("t.jsonl, line 3: the field \"id\" is missing; "));
        assert!(complaint(r#"{"id": "", "text": "x"}"#).contains("\"id\" is empty"));
        assert!(complaint(r#"{"id": "a"}"#).contains("\"text\" is missing"));
        assert!(complaint(r#"{"id": "a", "text": NaN}"#).contains("not valid JSON at column 21"));
        assert!(complaint(r#"["a", null, "x", []]"#).contains("not a JSON object"));
        assert!(complaint(r#"{"id": 1.5, "text": ""}"#).contains("expected an id"));
        let complaint = |line: &str| Label::parse(line, place).unwrap_err().to_string();
        assert!(complaint(r#"{"id": "a"}"#).contains("the label \"a\" has no name"));
    }
}
