//! A file as batches of rows: a table, lines of JSON, or lines of plain text.
//!
//! Each batch knows where in the file it ends, so that reading can begin behind it another time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::error::TablesError;
use crate::columns::{Batches, Form, Table, TableError};
use crate::data::{DataError, DocumentRecord, Place};
use crate::predict::{Columns, FoundColumns};
use crate::storage::{Lines, StorageError};

/// Lines in a batch at most, and bytes of them, whichever is reached first.
const BATCH_ROWS: usize = 2048;
const BATCH_BYTES: usize = 16 << 20;

/// How files of rows are read.
#[derive(Clone, Debug)]
pub struct RowsConfig {
    /// Which columns of a table are what.
    pub columns: Columns,
    /// The longest line, in bytes.
    pub max_line: usize,
    /// Whether lines are texts, not JSON; their numbers become their ids.
    pub plain: bool,
    /// Whether lines that cannot be read are passed over.
    pub keep_going: bool,
}

/// The rows of a file, some at a time.
pub struct Rows {
    path: PathBuf,
    found: FoundColumns,
    source: Source,
    /// Rows of the file before the next batch, or lines.
    position: u64,
}

enum Source {
    Table(Box<Batches>),
    Lines { lines: Lines, plain: bool, keep_going: bool, ended: bool },
}

/// Some rows.
pub(super) struct RowBatch {
    pub(super) rows: RecordBatch,
    /// For each row, how many rows or lines of the file end with it.
    ends: Ends,
    /// The line behind them, where it could not be read, and its number.
    pub(super) unreadable: Option<(DataError, u64)>,
}

enum Ends {
    After(u64),
    Each(Vec<u64>),
}

impl RowBatch {
    /// Rows of a table behind so many others.
    pub(super) fn of_table(rows: RecordBatch, before: u64) -> RowBatch {
        RowBatch { rows, ends: Ends::After(before), unreadable: None }
    }

    /// Where the file is read on behind the first `rows`; at least one.
    pub(super) fn end(&self, rows: usize) -> u64 {
        match &self.ends {
            Ends::After(before) => before + rows as u64,
            Ends::Each(ends) => ends[rows - 1],
        }
    }

    /// The rows from `start` on, up to `end`, and the number of the first in the file, from one; at least one.
    pub(super) fn slice(&self, start: usize, end: usize) -> (RecordBatch, u64) {
        let first_row = match &self.ends {
            Ends::After(before) => before + start as u64 + 1,
            Ends::Each(ends) => ends[start],
        };
        (self.rows.slice(start, end - start), first_row)
    }
}

impl Rows {
    /// Whether a file of this name is read as rows: a table, or lines of JSON.
    pub fn is_known(path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
        let plain = [".gz", ".zst"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
        Form::from_name(path).is_some()
            || [".jsonl", ".ndjson", ".json"].iter().any(|ending| plain.ends_with(ending))
    }

    /// Opens the file at `path`, to read it from a position on that a batch ended at; zero is its beginning.
    ///
    /// # Errors
    /// If it cannot be read, or its columns are not as they should be.
    pub fn open(path: &Path, config: &RowsConfig, position: u64) -> Result<Rows, TablesError> {
        if Form::from_name(path).is_some() && !config.plain {
            return Rows::table(path, &config.columns, position);
        }
        Rows::lines(Lines::open(path, config.max_line)?, config, position)
    }

    /// Reads lines.
    ///
    /// # Errors
    /// If columns are named, which lines do not have, or they end before the position.
    pub fn lines(lines: Lines, config: &RowsConfig, position: u64) -> Result<Rows, TablesError> {
        let path = lines.path().to_owned();
        if config.columns != Columns::default() {
            return Err(TablesError::LinesHaveFields { path });
        }
        let mut lines = if config.plain { lines.keeping_blank() } else { lines };
        let mut at = 0;
        while at < position {
            match lines.next_line() {
                Ok(Some(line)) => at = line.number,
                // What was passed over before is passed over again.
                Err(StorageError::LineTooLong { line, .. } | StorageError::NotUtf8 { line, .. }) => at = line,
                Ok(None) => return Err(TablesError::Changed { path, what: "it is shorter" }),
                Err(error) => return Err(error.into()),
            }
        }
        let found = Columns::default().find(&line_schema(config.plain)).map_err(TableError::column(&path))?;
        let source =
            Source::Lines { lines, plain: config.plain, keep_going: config.keep_going, ended: false };
        Ok(Rows { path, found, source, position })
    }

    fn table(path: &Path, columns: &Columns, position: u64) -> Result<Rows, TablesError> {
        let mut table = Table::open(path)?;
        let in_file = |error| TableError::column(path)(error);
        let found = columns.find(table.schema()).map_err(in_file)?;
        table.view_texts(&found.read_only())?;
        let batches = table.batches(&found.positions(), position)?;
        let found = columns.find(batches.schema()).map_err(in_file)?;
        Ok(Rows { path: path.to_owned(), found, source: Source::Table(Box::new(batches)), position })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The schema of the answers.
    pub fn schema(&self) -> &SchemaRef {
        self.found.schema()
    }

    /// Rows, or lines, of the file before the next batch.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Where the columns are in the batches.
    pub(super) fn found(&self) -> &FoundColumns {
        &self.found
    }

    /// The next rows; none at the end.
    pub(super) fn read(&mut self) -> Result<Option<RowBatch>, TablesError> {
        let before = self.position;
        let batch = match &mut self.source {
            Source::Table(batches) => {
                let Some(rows) = batches.next().transpose()? else { return Ok(None) };
                RowBatch::of_table(rows, before)
            }
            Source::Lines { lines, plain, keep_going, ended } => {
                if *ended {
                    return Ok(None);
                }
                let batch = gather(lines, *plain, *keep_going)?;
                if batch.rows.num_rows() == 0 && batch.unreadable.is_none() {
                    *ended = true;
                    return Ok(None);
                }
                batch
            }
        };
        if batch.rows.num_rows() > 0 {
            self.position = batch.end(batch.rows.num_rows());
        }
        Ok(Some(batch))
    }
}

fn line_schema(plain: bool) -> Schema {
    let text = Field::new("text", DataType::Utf8, false);
    if plain {
        return Schema::new(vec![text]);
    }
    Schema::new(vec![
        Field::new("id", DataType::Utf8, false),
        Field::new("title", DataType::Utf8, true),
        text,
    ])
}

/// Some lines as rows, up to one that cannot be read; nothing at the end of the file.
fn gather(lines: &mut Lines, plain: bool, keep_going: bool) -> Result<RowBatch, TablesError> {
    let [mut ids, mut titles, mut texts] = [(); 3].map(|()| StringBuilder::new());
    let (mut ends, mut unreadable, mut bytes) = (Vec::new(), None, 0);
    while ends.len() < BATCH_ROWS && bytes < BATCH_BYTES {
        match read_document(lines, plain) {
            Ok(None) => break,
            Ok(Some((record, line))) => {
                bytes += record.text.len() + record.title.as_deref().map_or(0, str::len) + record.id.len();
                ids.append_value(&record.id);
                titles.append_option(record.title.as_deref());
                texts.append_value(&record.text);
                ends.push(line);
            }
            Err(error) if keep_going && error.is_of_one_line() => {
                // Rows of plain text are called by the number of their line, so that a batch ends where one is missing.
                unreadable = Some((error, lines.number()));
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let text: ArrayRef = Arc::new(texts.finish());
    let columns =
        if plain { vec![text] } else { vec![Arc::new(ids.finish()), Arc::new(titles.finish()), text] };
    let rows = RecordBatch::try_new(Arc::new(line_schema(plain)), columns)
        .expect("as many of each as there are lines");
    Ok(RowBatch { rows, ends: Ends::Each(ends), unreadable })
}

/// The next document and the number of its line; none at the end.
fn read_document(lines: &mut Lines, plain: bool) -> Result<Option<(DocumentRecord, u64)>, DataError> {
    let path = lines.path().to_owned();
    let Some(line) = lines.next_line()? else { return Ok(None) };
    let record = match plain {
        true => DocumentRecord { text: line.text.to_owned(), ..DocumentRecord::default() },
        false => DocumentRecord::parse(line.text, || Place::line(&path, line.number))?,
    };
    Ok(Some((record, line.number)))
}
