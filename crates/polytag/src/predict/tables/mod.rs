//! Files of rows tagged: tables or lines in, tables or lines out, as streams.
//!
//! Rows are read, tagged and written by a thread each, a batch apart. Rows are cut into pieces, always at the same rows of
//! the same file: a piece is a row group of the answer, and in a folder what is on the disk for good
//! ([`TagFolder`]). One file into another ([`tag_file`]) appears when all of it is done. Memory: some batches in, and a
//! piece of answers, whatever the length of the file.

mod error; // what can stand in the way
mod rows; // a file as batches of rows
mod answers; // answers as tables or lines
mod flow; // from rows to answers
mod journal; // what is done, on the disk
mod inputs; // which files are to be tagged
mod pieces; // answers piece by piece, on the disk
mod folder; // a folder of files, which goes on where it was stopped

pub use answers::AnswerForm;
pub use error::TablesError;
pub use flow::Tally;
pub use folder::{FolderDone, TagFolder};
pub use rows::{Rows, RowsConfig};

use std::io::Write;
use std::path::Path;

use super::BatchTagger;
use crate::data::DataError;
use crate::progress::Watch;
use answers::Answers;

/// Tags the rows of one file into `out`; `path` is what errors call that.
///
/// # Errors
/// If a row cannot be read, tagged or written, or the work is asked to stop.
pub fn tag_file(
    rows: Rows,
    tagger: &BatchTagger<'_>,
    out: (impl Write + Send, &Path, AnswerForm),
    watch: &Watch<'_>,
) -> Result<Tally, TablesError> {
    let (out, path, form) = out;
    let mut answers = Answers::new(out, path, form, rows.schema().clone())?;
    let tagged = flow::tag_rows(rows, tagger, watch, &mut answers);
    let tally = tagged.map_err(|error| match error {
        // A file that is not whole is not there.
        TablesError::Stopped { .. } => TablesError::Data(DataError::Stopped),
        error => error,
    })?;
    answers.finish()?;
    Ok(tally)
}
