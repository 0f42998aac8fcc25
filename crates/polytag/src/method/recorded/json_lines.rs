//! Rankings as JSON lines, the form that `polytag predict` writes.

use serde::Deserialize;

use super::rankings::{Rankings, Row};
use crate::data::{DataError, Place};
use crate::progress::Stop;
use crate::storage::Lines;

const EXAMPLE: &str = r#"{"id": "d7", "labels": [{"id": "2449", "score": 0.93}]}"#;

/// The ranking of a document, as it stands on a line.
#[derive(Debug, Deserialize)]
struct Line {
    id: Name,
    labels: Vec<Entry>,
}

/// An id: text, or a number that stands for its digits.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Number(serde_json::Number),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Entry {
    Named { id: Name, score: f64 },
    Pair(Name, f64),
}

impl Name {
    fn into_text(self) -> String {
        match self {
            Name::Text(text) => text,
            Name::Number(number) => number.to_string(),
        }
    }
}

/// Reads a file of which the first line was read already.
pub(super) fn read(
    first: String,
    mut lines: Lines,
    rankings: &mut Rankings<'_>,
    stop: &Stop,
) -> Result<(), DataError> {
    let mut next = Some((1, first));
    while let Some((number, text)) = next {
        if stop.is_asked() {
            return Err(DataError::Stopped);
        }
        if !text.trim().is_empty() {
            take(&text, number, rankings)?;
        }
        next = lines.next_line()?.map(|line| (line.number, line.text.to_owned()));
    }
    Ok(())
}

fn take(text: &str, number: u64, rankings: &mut Rankings<'_>) -> Result<(), DataError> {
    let place = || rankings.line(number);
    let line = parse(text, &place)?;
    let id = line.id.into_text();
    let mut row = Row::default();
    for entry in line.labels {
        let (label, score) = match entry {
            Entry::Named { id, score } | Entry::Pair(id, score) => (id.into_text(), score),
        };
        let place = rankings.line(number);
        rankings.named(&mut row, &label, score, place)?;
    }
    let place = rankings.line(number);
    rankings.finish(&id, row, place)
}

fn parse(text: &str, place: &impl Fn() -> Place) -> Result<Line, DataError> {
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or(&message);
        // What Python writes for them is no JSON.
        let infinite = ["NaN", "Infinity"].into_iter().find(|word| text.contains(word));
        let hint = infinite.map_or(String::new(), |word| format!(" ({word} is no score)"));
        let problem = format!("not a ranking at column {}: {message}{hint}", error.column());
        DataError::Json { place: place(), problem, example: EXAMPLE }
    })
}
