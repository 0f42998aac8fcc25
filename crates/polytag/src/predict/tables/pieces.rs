//! The pieces of a file, each on the disk and noted before the next begins.

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use xxhash_rust::xxh3::xxh3_64;

use super::answers::{AnswerForm, Answers};
use super::error::TablesError;
use super::flow::{Mark, PieceSink};
use super::inputs::Input;
use super::journal::{Journal, Piece};
use crate::columns::Form;
use crate::storage::{self, Sink, StorageError};

/// The pieces of a file, each on the disk and noted before the next begins.
pub(super) struct Pieces<'a> {
    pub(super) work: &'a Path,
    pub(super) journal: &'a mut Journal,
    pub(super) input: &'a Input,
    pub(super) schema: SchemaRef,
    /// Where the answers of the pieces so far lie.
    pub(super) files: Vec<PathBuf>,
    pub(super) open: Option<(PathBuf, Answers<Sink>)>,
    /// Where the open piece begins.
    pub(super) last: u64,
}

impl Pieces<'_> {
    fn open(&mut self) -> Result<&mut Answers<Sink>, TablesError> {
        if self.open.is_none() {
            let name = format!("{:016x}-{}.parquet", xxh3_64(self.input.name.as_bytes()), self.last);
            let path = self.work.join(name);
            let sink = storage::create(&path)?;
            let form = AnswerForm::Table(Form::Parquet);
            self.open = Some((path.clone(), Answers::new(sink, &path, form, self.schema.clone())?));
        }
        Ok(&mut self.open.as_mut().expect("it was just opened").1)
    }
}

impl PieceSink for Pieces<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), TablesError> {
        self.open()?.write(batch)
    }

    fn end_piece(&mut self, mark: &Mark) -> Result<(), TablesError> {
        if mark.tally.rows == 0 && !self.files.is_empty() {
            return Ok(());
        }
        self.open()?;
        let (path, answers) = self.open.take().expect("it was just opened");
        answers.finish()?;
        let failed = |error| StorageError::io(&path, "write")(error);
        let file = File::open(&path).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.journal.piece(&self.input.name, Piece { file: name, bytes, mark: *mark })?;
        self.files.push(path);
        self.last = mark.position;
        Ok(())
    }
}
