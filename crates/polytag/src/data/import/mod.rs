//! Foreign formats in, task folders out: one file or folder a format.
//!
//! An [`Importer`] reads its source as a stream and hands documents and labels to a
//! [`TaskWriter`], which checks them and puts the folder in place when all of it is there.

pub mod eurlex57k; // EU laws as one JSON file each, with EuroVoc concepts
pub mod xc; // the Extreme Classification Repository: sparse rows, or titles and contents
pub mod lightxml; // one text a line beside one list of labels a line
pub mod skos; // a thesaurus, as labels without documents
pub mod annif; // Annif's corpora, with their vocabulary
pub mod csv; // tables with a header
pub mod table; // tables of columns: Parquet and Arrow files
pub mod debian; // apt's package lists
pub mod wordnet; // the lexical database

mod intake; // what importers share: splits by name, unique ids, warnings
mod document_rows; // how rows of a table become documents
#[cfg(test)]
mod testing; // what their tests share

pub use document_rows::DocumentRows;

use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::error::DataError;
use super::task::Split;
use super::writer::{TaskSummary, TaskWriter};
use crate::progress::{Event, Progress, Stop};

/// What an importer may use besides its source.
pub struct ImportContext<'a> {
    /// Where to report what it does, and what it had to pass over.
    pub progress: &'a dyn Progress,
    /// Whether to end early.
    pub stop: &'a Stop,
    /// The longest line, in bytes.
    pub max_line: usize,
}

impl ImportContext<'_> {
    /// Tells the user something, though the work goes on.
    pub fn warn(&self, message: &str) {
        self.progress.report(Event::Warned(message));
    }

    /// An error if the work was asked to stop.
    pub fn check_stop(&self) -> Result<(), DataError> {
        if self.stop.is_asked() { Err(DataError::Stopped) } else { Ok(()) }
    }
}

/// Turns a foreign format into a task.
///
/// ```
/// use std::path::Path;
/// use polytag::data::import::{ImportContext, Importer, import};
/// use polytag::data::{DataError, Label, TaskWriter};
/// use polytag::progress::{Silent, Stop};
///
/// /// A label a line.
/// struct Words;
/// impl Importer for Words {
///     fn import(
///         &self,
///         source: &Path,
///         task: &mut TaskWriter,
///         context: &ImportContext<'_>,
///     ) -> Result<(), DataError> {
///         let mut lines = polytag::storage::Lines::open(source, context.max_line)?;
///         while let Some(line) = lines.next_line()? {
///             task.label(Label::new(line.text, line.text))?;
///         }
///         Ok(())
///     }
/// }
/// let dir = tempfile::tempdir()?;
/// std::fs::write(dir.path().join("words.txt"), "glue\nrail\n")?;
/// let context = ImportContext { progress: &Silent, stop: &Stop::default(), max_line: 1000 };
/// let summary = import(&Words, &dir.path().join("words.txt"), &dir.path().join("task"), &context)?;
/// assert_eq!(summary.labels, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Importer {
    /// Reads `source` into `task`.
    fn import(
        &self,
        source: &Path,
        task: &mut TaskWriter,
        context: &ImportContext<'_>,
    ) -> Result<(), DataError>;
}

/// Imports `source` as the new task folder `target`.
pub fn import(
    importer: &dyn Importer,
    source: &Path,
    target: &Path,
    context: &ImportContext<'_>,
) -> Result<TaskSummary, DataError> {
    let mut task = TaskWriter::create(target, &[source])?;
    importer.import(source, &mut task, context)?;
    task.finish()
}

/// Which share of the documents goes to dev and to test, for sources that have no splits of their own.
///
/// A document's split depends on its id and the seed alone: more documents move none of the old ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shares {
    /// Share of dev, between 0 and 1.
    pub dev: f64,
    /// Share of test, between 0 and 1.
    pub test: f64,
    /// What makes one drawing differ from another.
    pub seed: u64,
}

impl Default for Shares {
    /// One document in twenty for dev, and one for test.
    fn default() -> Shares {
        Shares { dev: 0.05, test: 0.05, seed: 0 }
    }
}

impl Shares {
    /// An error if they are not shares of one whole.
    pub fn check(&self) -> Result<(), DataError> {
        let (dev, test) = (self.dev, self.test);
        if dev >= 0.0 && test >= 0.0 && dev + test < 1.0 {
            return Ok(());
        }
        Err(DataError::Split {
            problem: format!("dev cannot take {dev} and test {test} of the documents"),
            remedy: "give shares from 0 up that leave something for train, such as 0.05 and 0.05",
        })
    }

    /// The split of the document `id`.
    pub fn split_of(&self, id: &str) -> Split {
        // The top 53 bits make a number in [0, 1) that a double holds exactly.
        let draw = (xxh3_64_with_seed(id.as_bytes(), self.seed) >> 11) as f64 / (1u64 << 53) as f64;
        if draw < self.test {
            Split::Test
        } else if draw < self.test + self.dev {
            Split::Dev
        } else {
            Split::Train
        }
    }
}
