//! Tables of columns: Parquet and Arrow files.
//!
//! A file enters with a document a row, or a folder of such files, and perhaps another file that describes labels. What
//! leaves are the rows in the split that a column names, or the name of their file (`train-00000-of-00004.parquet`), or
//! else one drawn by [`Shares`](super::Shares). A table without ids gets the number of the row, from one, counted over all
//! files. Null labels mean that nobody labelled the document, an empty list that it is labelled with nothing. Memory: a
//! batch of rows, the labels, and some 40 bytes a document for its id.

use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use serde::{Deserialize, Serialize};

use super::document_rows::{DocumentRows, Positions, RowCells};
use super::intake::{Intake, file_name, malformed, sorted_entries, split_in_name};
use super::{ImportContext, Importer};
use crate::columns::{ColumnError, Form, Ids, Lists, Table, TableError, Texts, column, find_column};
use crate::data::error::{DataError, Place};
use crate::data::writer::TaskWriter;

/// Imports tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tables {
    /// Which columns are what. Ids are texts or whole numbers; labels are lists, or texts with something between the labels;
    /// without a column of splits, the names of files say, or splits are drawn.
    pub rows: DocumentRows,
}

impl Importer for Tables {
    fn import(
        &self,
        source: &Path,
        task: &mut TaskWriter,
        context: &ImportContext<'_>,
    ) -> Result<(), DataError> {
        self.rows.check(source)?;
        let mut intake = Intake::new(task, context);
        self.rows.describe_labels(&mut intake)?;
        let files = if source.is_dir() { table_files(source)? } else { vec![source.to_owned()] };
        let mut number = 0;
        for file in &files {
            self.import_file(file, &mut number, &mut intake)?;
        }
        self.rows.describe_rest(&mut intake)?;
        intake.finish(source, "one document a row")
    }
}

impl Tables {
    /// Imports a file; `number` counts the rows of all.
    fn import_file(&self, path: &Path, number: &mut u64, intake: &mut Intake<'_>) -> Result<(), DataError> {
        let in_file = |error| TableError::column(path)(error);
        let table = Table::open(path)?;
        let all = self.find(table.schema()).map_err(in_file)?.all();
        let named = split_in_name(&file_name(path));
        let mut batches = table.batches(&all, 0)?;
        let found = self.find(batches.schema()).map_err(in_file)?;
        let mut row = 0;
        while let Some(batch) = batches.next().transpose()? {
            let cells = Cells::of(&batch, &found).map_err(in_file)?;
            for at in 0..batch.num_rows() {
                *number += 1;
                row += 1;
                let place = Place::line(path, row);
                let cells = cells.row(at, &self.rows);
                let (split, record) = self.rows.document(&found, cells, (*number, named), &place)?;
                intake.document(split, record, &place)?;
            }
        }
        Ok(())
    }

    fn find(&self, schema: &Schema) -> Result<Positions, ColumnError> {
        let found = self.rows.find(|name| find_column(schema, name), |name| column(schema, name))?;
        let check = |at: Option<usize>, check: fn(&str, &DataType) -> Result<(), ColumnError>| {
            at.map_or(Ok(()), |at| check(schema.field(at).name(), schema.field(at).data_type()))
        };
        check(Some(found.text), Texts::check)?;
        check(found.title, Texts::check)?;
        check(found.id, Ids::check)?;
        check(found.split, Texts::check)?;
        check(
            found.labels,
            |name, kind| if Texts::are_in(kind) { Ok(()) } else { Lists::check(name, kind) },
        )?;
        Ok(found)
    }
}

/// The cells of a batch.
struct Cells<'a> {
    ids: Option<Ids<'a>>,
    titles: Option<Texts<'a>>,
    texts: Texts<'a>,
    labels: Labels<'a>,
    splits: Option<Texts<'a>>,
}

enum Labels<'a> {
    None,
    Lists(Lists<'a>),
    Texts(Texts<'a>),
}

impl<'a> Cells<'a> {
    fn of(batch: &'a RecordBatch, found: &Positions) -> Result<Cells<'a>, ColumnError> {
        let name = |at: usize| batch.schema_ref().field(at).name().as_str();
        let texts = |at: usize| Texts::of(name(at), batch.column(at).as_ref());
        let labels = match found.labels {
            None => Labels::None,
            Some(at) if Texts::are_in(batch.column(at).data_type()) => Labels::Texts(texts(at)?),
            Some(at) => Labels::Lists(Lists::of(name(at), batch.column(at).as_ref())?),
        };
        Ok(Cells {
            ids: found.id.map(|at| Ids::of(name(at), batch.column(at).as_ref())).transpose()?,
            titles: found.title.map(texts).transpose()?,
            texts: texts(found.text)?,
            labels,
            splits: found.split.map(texts).transpose()?,
        })
    }

    fn row(&self, at: usize, rows: &DocumentRows) -> RowCells<'_> {
        RowCells {
            id: self.ids.as_ref().and_then(|ids| ids.get(at)),
            title: self.titles.as_ref().and_then(|titles| titles.get(at)),
            text: self.texts.get(at),
            labels: match &self.labels {
                Labels::None => None,
                Labels::Lists(lists) => lists.get(at),
                Labels::Texts(texts) => texts.get(at).map(|cell| rows.items(cell)),
            },
            split: self.splits.as_ref().and_then(|splits| splits.get(at)),
        }
    }
}

/// The tables in a folder, in order of their names.
fn table_files(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let mut files = sorted_entries(folder)?;
    files.retain(|path| path.is_file() && Form::from_name(path).is_some());
    if files.is_empty() {
        let remedy = "name a folder of .parquet or .arrow files, or one of them";
        return Err(malformed(Place::file(folder), "no table was found", remedy));
    }
    Ok(files)
}
