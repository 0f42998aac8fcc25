//! Tables of a task as lines: a row becomes the line of JSON that says the same.
//!
//! So a split or the labels may lie in a Parquet or Arrow file, and whoever reads lines of JSON need not know. The columns
//! have the names of the fields; other columns are not read. Memory: a batch of rows, once as columns and once as lines.

use std::io::{self, BufRead, Read};
use std::path::Path;

use arrow_schema::{DataType, Schema};

use super::error::DataError;
use crate::columns::{
    Batches, ColumnError, Form, Ids, JsonRows, Lists, Table, TableError, Texts, column, find_column,
};
use crate::storage::Lines;

/// A field of a line, as a column.
pub(super) struct Field {
    name: &'static str,
    required: bool,
    check: fn(&str, &DataType) -> Result<(), ColumnError>,
}

const fn field(
    name: &'static str,
    required: bool,
    check: fn(&str, &DataType) -> Result<(), ColumnError>,
) -> Field {
    Field { name, required, check }
}

/// The columns of documents.
pub(super) const DOCUMENTS: &[Field] = &[
    field("id", true, Ids::check),
    field("title", false, Texts::check),
    field("text", true, Texts::check),
    field("labels", false, Lists::check),
];

/// The columns of labels.
pub(super) const LABELS: &[Field] = &[
    field("id", true, Ids::check),
    field("name", true, Texts::check),
    field("description", false, Texts::check),
    field("aliases", false, Lists::check),
    field("parents", false, Lists::check),
];

/// The lines of the file at `path`, whose rows have these fields if it is a table.
pub(super) fn open(path: &Path, fields: &[Field], max_line: usize) -> Result<Lines, DataError> {
    if Form::from_name(path).is_none() {
        return Ok(Lines::open(path, max_line)?);
    }
    let table = Table::open(path)?;
    let found = positions(table.schema(), fields).map_err(TableError::column(path))?;
    let rows = Rows { batches: table.batches(&found, 0)?, lines: Vec::new(), read: 0 };
    Ok(Lines::new(path, Box::new(rows), max_line))
}

/// The names of the columns of a table that are not among the `known`, and its rows; none where the file is no table.
pub(super) fn unknown_columns(path: &Path, known: &[&str]) -> Result<Option<(Vec<String>, u64)>, DataError> {
    if Form::from_name(path).is_none() {
        return Ok(None);
    }
    let table = Table::open(path)?;
    let names = table.schema().fields().iter().map(|field| field.name().clone());
    Ok(Some((names.filter(|name| !known.contains(&name.as_str())).collect(), table.rows()?)))
}

fn positions(schema: &Schema, fields: &[Field]) -> Result<Vec<usize>, ColumnError> {
    let mut positions = Vec::new();
    for field in fields {
        let found =
            if field.required { Some(column(schema, field.name)?) } else { find_column(schema, field.name)? };
        if let Some(position) = found {
            (field.check)(field.name, schema.field(position).data_type())?;
            positions.push(position);
        }
    }
    Ok(positions)
}

/// The rows of a table, as bytes.
struct Rows {
    batches: Batches,
    lines: Vec<u8>,
    /// How many of those bytes have been read.
    read: usize,
}

impl Rows {
    fn render(&mut self) -> Result<(), TableError> {
        self.lines.clear();
        self.read = 0;
        let Some(batch) = self.batches.next().transpose()? else { return Ok(()) };
        let rows = JsonRows::of(&batch).map_err(TableError::column(self.batches.path()))?;
        for row in 0..batch.num_rows() {
            rows.write(row, &mut self.lines);
            self.lines.push(b'\n');
        }
        Ok(())
    }
}

impl BufRead for Rows {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.read == self.lines.len() {
            // The error is taken out again where it becomes one of a task.
            self.render().map_err(io::Error::other)?;
        }
        Ok(&self.lines[self.read..])
    }

    fn consume(&mut self, bytes: usize) {
        self.read += bytes;
    }
}

impl Read for Rows {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(out)?;
        self.consume(read);
        Ok(read)
    }
}
