//! Rankings that another program made: a file of scores enters, and a predictor leaves that answers with them by the ids
//! of documents, so that any classifier can be measured, fused or blended.
//!
//! Three formats are told apart by their content:
//!
//! ```text
//! JSON lines   {"id": "d7", "labels": [{"id": "2449", "score": 0.93}, …]}, as `polytag predict` writes them;
//!              a label may be a pair, too: ["2449", 0.93]
//! sparse text  a first line `rows columns`, then `column:score column:score …` for each row, as in the XC repository
//! .npz         a matrix in CSR form as SciPy saves it, which is what PECOS predicts
//! ```
//!
//! In the last two, rows are the documents of a split in their order and columns the labels of `labels.jsonl` in theirs, so
//! their numbers must be the same. A score must be finite and not negative. Labels that the task does not know
//! are left out and counted in a warning, as classifiers often know more labels than are asked about; a file of which
//! no label is known is refused. Memory: 8 bytes a score, and the ids.

mod rankings; // what the formats have in common
mod json_lines; // as `polytag predict` writes it
mod sparse_text; // as in the XC repository
mod numpy; // as SciPy saves it
mod model; // the predictor

#[cfg(test)]
mod tests;

pub use model::RecordedModel;

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use self::rankings::Rankings;
use super::error::MethodError;
use super::{Method, TrainContext};
use crate::data::{DataError, Dataset, Place, Split, Task};
use crate::predict::Predictor;
use crate::progress::Event;
use crate::storage::{DEFAULT_MAX_LINE, Lines, StorageError, open};

const METHOD: &str = "recorded";

/// Settings of `recorded`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordedConfig {
    /// The file of scores.
    pub scores: String,
    /// The split whose documents the rows of a matrix are: train, dev or test. JSON lines name documents themselves.
    pub split: String,
}

impl Default for RecordedConfig {
    fn default() -> RecordedConfig {
        RecordedConfig { scores: String::new(), split: Split::Test.as_str().to_owned() }
    }
}

/// The method, its settings checked.
pub struct Recorded {
    scores: PathBuf,
    split: Split,
}

impl TryFrom<RecordedConfig> for Recorded {
    type Error = MethodError;

    fn try_from(config: RecordedConfig) -> Result<Recorded, MethodError> {
        let split =
            config.split.parse().map_err(|problem| MethodError::Config { method: METHOD, problem })?;
        Ok(Recorded { scores: config.scores.into(), split })
    }
}

impl Recorded {
    /// The ids of the split's documents, in their order.
    fn documents(&self, task: Option<&Task>) -> Result<Vec<String>, DataError> {
        let task = task.ok_or_else(|| DataError::Malformed {
            place: Place::file(&self.scores),
            problem: "the rows of a matrix belong to the documents of a task, and there is none".to_owned(),
            remedy: "use JSON lines, which name their documents".to_owned(),
        })?;
        task.documents(self.split)?.map(|document| Ok(document?.id)).collect()
    }

    fn read<'a>(
        &'a self,
        dataset: &'a dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Rankings<'a>, DataError> {
        let space = dataset.label_space();
        let mut rankings = Rankings::new(&self.scores, space);
        if is_zip(&self.scores)? {
            numpy::read(&self.scores, &self.documents(context.task)?, &mut rankings)?;
            return Ok(rankings);
        }
        let max_line = context.task.map_or(DEFAULT_MAX_LINE, |task| task.options().max_line);
        let mut lines = Lines::open(&self.scores, max_line)?.keeping_blank();
        let Some(first) = lines.next_line()? else {
            let expected = "the rankings of documents, one a line";
            return Err(DataError::Empty { path: self.scores.clone(), expected });
        };
        let first = first.text.to_owned();
        if first.trim_start().starts_with('{') {
            json_lines::read(first, lines, &mut rankings, context.stop)?;
        } else {
            sparse_text::read(&first, lines, &self.documents(context.task)?, &mut rankings)?;
        }
        Ok(rankings)
    }
}

impl Method for Recorded {
    fn train(
        &self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Box<dyn Predictor>, MethodError> {
        if self.scores.as_os_str().is_empty() {
            let problem = "which scores? say --set scores=FILE".to_owned();
            return Err(MethodError::Config { method: METHOD, problem });
        }
        let rankings = self.read(dataset, context)?;
        if let Some(warning) = rankings.warning()? {
            context.progress.report(Event::Warned(&warning));
        }
        Ok(Box::new(RecordedModel::new(dataset.label_space().clone(), rankings.into_answers())))
    }
}

/// Whether a file begins as zip archives do, which `.npz` is.
fn is_zip(path: &Path) -> Result<bool, StorageError> {
    let mut head = Vec::new();
    open(path)?.take(4).read_to_end(&mut head).map_err(StorageError::io(path, "read"))?;
    Ok(head == b"PK\x03\x04")
}
