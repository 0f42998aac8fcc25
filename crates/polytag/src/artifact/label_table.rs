//! The label table of a model: the lines of a task's `labels.jsonl`, with training counts.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::ArtifactError;
use crate::data::{Label, LabelSpace};

pub(super) const NAME: &str = "labels.jsonl";

#[derive(Serialize, Deserialize)]
struct Entry<L> {
    #[serde(flatten)]
    label: L,
    train_documents: u32,
}

/// The table as a file.
pub(super) fn to_bytes(space: &LabelSpace) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (id, label) in space.iter() {
        let entry = Entry { label, train_documents: space.train_count(id) };
        serde_json::to_writer(&mut bytes, &entry).expect("strings and numbers always make JSON");
        bytes.push(b'\n');
    }
    bytes
}

/// Reads the table from the content of its file.
pub(super) fn from_text(path: &Path, text: &str, train_documents: u64) -> Result<LabelSpace, ArtifactError> {
    let mut space = LabelSpace::default();
    let mut counts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let damaged = |problem: String| ArtifactError::Damaged {
            path: path.to_owned(),
            problem: format!("line {}: {problem}", index + 1),
        };
        let entry: Entry<Label> = serde_json::from_str(line).map_err(|error| damaged(error.to_string()))?;
        counts.push(entry.train_documents);
        space.add(entry.label).map_err(|error| damaged(error.to_string()))?;
    }
    space.set_train_counts(counts, train_documents);
    Ok(space)
}
