//! Lines of a task folder as JSON, before anything is looked up.
//!
//! Ids may be written as strings or whole numbers. Fields we do not know are passed over: people
//! keep their own notes in such files, and `inspect` lists them. Only labels that are added to a model
//! are read more strictly.

use serde::{Deserialize, Deserializer, Serialize, de};
use std::collections::BTreeMap;
use std::fmt;

use super::error::{DataError, Place};
use super::label::Label;

pub(super) const DOCUMENT_EXAMPLE: &str = r#"{"id": "d1", "title": "…", "text": "…", "labels": ["l1"]}"#;
pub(super) const LABEL_EXAMPLE: &str = r#"{"id": "l1", "name": "…"}"#;

/// The fields of a document.
pub(super) const DOCUMENT_FIELDS: &[&str] = &["id", "title", "text", "labels"];
/// The fields of a label.
pub(super) const LABEL_FIELDS: &[&str] = &["id", "name", "description", "aliases", "parents"];

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
    id: Option<WrittenId>,
    title: Option<String>,
    text: Option<String>,
    labels: Option<Vec<WrittenId>>,
}

#[derive(Deserialize)]
struct RawLabel {
    id: Option<WrittenId>,
    name: Option<String>,
    description: Option<String>,
    aliases: Option<Vec<String>>,
    parents: Option<Vec<WrittenId>>,
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

    /// Reads one line of labels that are to be added. A field that no label has is an error: it is a slip more often than a
    /// note, and nothing would show it later.
    pub fn parse_strict(line: &str, place: impl Fn() -> Place) -> Result<Label, DataError> {
        let label = Label::parse(line, &place)?;
        let unknown: Vec<String> =
            unknown_fields(line, LABEL_FIELDS).iter().map(|field| format!("{field:?}")).collect();
        let problem = match &unknown[..] {
            [] => return Ok(label),
            [field] => format!("the field {field} is not known"),
            fields => format!("the fields {} are not known", fields.join(", ")),
        };
        Err(DataError::Field {
            place: place(),
            problem,
            remedy: "a label has id, name, description, aliases and parents",
        })
    }
}

/// The fields of a line that are not among the `known`, in order of their names; none where it is no JSON object.
pub(super) fn unknown_fields(line: &str, known: &[&str]) -> Vec<String> {
    let fields: BTreeMap<String, de::IgnoredAny> = serde_json::from_str(line).unwrap_or_default();
    fields.into_keys().filter(|field| !known.contains(&field.as_str())).collect()
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

fn required_id(id: Option<WrittenId>, place: &impl Fn() -> Place) -> Result<String, DataError> {
    let problem = match id {
        Some(WrittenId(id)) if !id.is_empty() => return Ok(id),
        Some(_) => "the field \"id\" is empty",
        None => "the field \"id\" is missing",
    };
    Err(DataError::Field { place: place(), problem: problem.to_owned(), remedy: "give it an id of its own" })
}

/// An id written as a string or as a whole number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenId(
    /// The id; of a number, its digits.
    pub String,
);

impl<'de> Deserialize<'de> for WrittenId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WrittenId, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = WrittenId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id: a string or a whole number")
            }

            fn visit_str<E: de::Error>(self, id: &str) -> Result<WrittenId, E> {
                Ok(WrittenId(id.to_owned()))
            }

            fn visit_string<E: de::Error>(self, id: String) -> Result<WrittenId, E> {
                Ok(WrittenId(id))
            }

            fn visit_u64<E: de::Error>(self, id: u64) -> Result<WrittenId, E> {
                Ok(WrittenId(id.to_string()))
            }

            fn visit_i64<E: de::Error>(self, id: i64) -> Result<WrittenId, E> {
                Ok(WrittenId(id.to_string()))
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

    #[test]
    fn labels_to_be_added_have_no_fields_of_their_own() {
        let whole = r#"{"id":7,"name":"A","description":"d","aliases":["b"],"parents":[8]}"#;
        assert_eq!(Label::parse_strict(whole, place).unwrap(), Label::parse(whole, place).unwrap());
        let complaint = |line: &str| Label::parse_strict(line, place).unwrap_err().to_string();
        let one = complaint(r#"{"id":"a","name":"A","descripton":"d"}"#);
        let known = "a label has id, name, description, aliases and parents";
        assert_eq!(one, format!("t.jsonl, line 3: the field \"descripton\" is not known; {known}"));
        assert!(LABEL_FIELDS.iter().all(|field| known.contains(field)));
        let two = complaint(r#"{"id":"a","name":"A","descripton":"d","alias":["x"]}"#);
        assert!(two.contains("the fields \"alias\", \"descripton\" are not known; "), "{two}");
        assert!(complaint(r#"{"id":"a","nam":"A"}"#).contains("the label \"a\" has no name"));
    }
}
