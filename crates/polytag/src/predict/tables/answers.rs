//! Answers as tables or lines.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::error::TablesError;
use super::flow::{Mark, PieceSink};
use crate::columns::{Form, JsonRows, TableError, TableWriter};
use crate::storage::{Compression, StorageError};

/// What answers are written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerForm {
    /// A file of columns.
    Table(Form),
    /// Lines of JSON.
    Lines,
}

impl AnswerForm {
    /// What the name of a file asks for; lines where it has no ending but perhaps one of compression.
    ///
    /// # Errors
    /// If it has an ending that promises something else.
    pub fn from_name(path: &Path) -> Result<AnswerForm, TablesError> {
        if let Some(form) = Form::from_name(path) {
            return Ok(AnswerForm::Table(form));
        }
        let unpacked = match Compression::from_name(path) {
            Compression::Plain => path.to_owned(),
            _ => path.with_extension(""),
        };
        let ending = unpacked.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        match ending.as_str() {
            "" | "jsonl" | "ndjson" | "json" => Ok(AnswerForm::Lines),
            _ => Err(TablesError::UnknownOutput { path: path.to_owned() }),
        }
    }

    /// What a file of it is called by.
    pub fn ending(self) -> &'static str {
        match self {
            AnswerForm::Table(Form::Parquet) => "parquet",
            AnswerForm::Table(Form::Arrow) => "arrow",
            AnswerForm::Lines => "jsonl",
        }
    }
}

impl FromStr for AnswerForm {
    type Err = String;

    fn from_str(name: &str) -> Result<AnswerForm, String> {
        match name {
            "parquet" => Ok(AnswerForm::Table(Form::Parquet)),
            "arrow" | "feather" => Ok(AnswerForm::Table(Form::Arrow)),
            "jsonl" => Ok(AnswerForm::Lines),
            _ => Err(format!("no format is called {name:?}; say parquet, arrow or jsonl")),
        }
    }
}

/// Where answers go.
pub(super) struct Answers<W: Write + Send> {
    path: PathBuf,
    out: Out<W>,
}

enum Out<W: Write + Send> {
    Table(Box<TableWriter<W>>),
    Lines(W, Vec<u8>),
}

impl<W: Write + Send> Answers<W> {
    pub(super) fn new(
        out: W,
        path: &Path,
        form: AnswerForm,
        schema: SchemaRef,
    ) -> Result<Answers<W>, TablesError> {
        let out = match form {
            AnswerForm::Table(form) => Out::Table(Box::new(TableWriter::new(out, path, form, schema)?)),
            AnswerForm::Lines => {
                JsonRows::check(&schema).map_err(TableError::column(path))?;
                Out::Lines(out, Vec::new())
            }
        };
        Ok(Answers { path: path.to_owned(), out })
    }

    pub(super) fn finish(self) -> Result<(), TablesError> {
        match self.out {
            Out::Table(writer) => Ok(writer.finish()?),
            Out::Lines(mut out, _) => Ok(out.flush().map_err(StorageError::io(&self.path, "write"))?),
        }
    }
}

impl<W: Write + Send> PieceSink for Answers<W> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), TablesError> {
        match &mut self.out {
            Out::Table(writer) => Ok(writer.write(batch)?),
            Out::Lines(out, buffer) => {
                let rows = JsonRows::of(batch).map_err(TableError::column(&self.path))?;
                buffer.clear();
                for row in 0..batch.num_rows() {
                    rows.write(row, buffer);
                    buffer.push(b'\n');
                }
                let written: io::Result<()> = out.write_all(buffer).and_then(|()| out.flush());
                Ok(written.map_err(StorageError::io(&self.path, "write"))?)
            }
        }
    }

    fn end_piece(&mut self, _mark: &Mark) -> Result<(), TablesError> {
        match &mut self.out {
            Out::Table(writer) => Ok(writer.end_group()?),
            Out::Lines(..) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ask_for_a_format_or_for_none_that_there_is() {
        let [parquet, arrow] = [Form::Parquet, Form::Arrow].map(|form| Some(AnswerForm::Table(form)));
        let lines = Some(AnswerForm::Lines);
        for (name, expected) in [
            ("a.parquet", parquet),
            ("a.b/c.PQ", parquet),
            ("a.arrow", arrow),
            ("a.feather", arrow),
            ("a.jsonl", lines),
            ("a.NDJSON", lines),
            ("a.json", lines),
            ("a.csv.jsonl.gz", lines),
            ("a.json.zst", lines),
            ("a.jsonl.lz4", lines),
            ("a", lines),
            ("a.gz", lines),
            ("a.csv/b", lines),
            (".hidden", lines),
            ("/dev/stdout", lines),
            ("a.csv", None),
            ("a.tsv", None),
            ("a.txt", None),
            ("a.paruqet", None),
            ("a.csv.gz", None),
            // Tables are packed column by column.
            ("a.parquet.gz", None),
            // Not packed under this name.
            ("a.jsonl.GZ", None),
        ] {
            assert_eq!(AnswerForm::from_name(Path::new(name)).ok(), expected, "{name}");
        }
    }
}
