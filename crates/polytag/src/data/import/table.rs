//! Tables of columns: Parquet and Arrow files.
//!
//! A file enters with a document a row, or a folder of such files, and perhaps another file that describes labels. What
//! leaves are the rows in the split that a column names, or the name of their file (`train-00000-of-00004.parquet`), or
//! else one drawn by [`Shares`]. A table without ids gets the number of the row, from one, counted over all files. Null
//! labels mean that nobody labelled the document, an empty list that it is labelled with nothing. Memory: a batch of rows,
//! the labels, and some 40 bytes a document for its id.

use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use serde::{Deserialize, Serialize};

use super::intake::{Intake, file_name, malformed, not_blank, sorted_entries, split_in_name, split_named};
use super::{ImportContext, Importer, Shares};
use crate::columns::{ColumnError, Form, Ids, Lists, Table, TableError, Texts, column, find_column};
use crate::data::error::{DataError, Place};
use crate::data::label::Label;
use crate::data::reader::FirstLines;
use crate::data::record::DocumentRecord;
use crate::data::table_lines::{self, LABELS};
use crate::data::task::Split;
use crate::data::writer::TaskWriter;

/// Imports tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tables {
    /// The column of ids, texts or whole numbers. Unless it is named here, `id` where there is such a column.
    pub id: Option<String>,
    /// The column of titles. Unless it is named here, `title` where there is such a column.
    pub title: Option<String>,
    /// The column of texts.
    pub text: String,
    /// The column of labels: lists, or texts with something between the labels. Unless it is named here, `labels` where
    /// there is such a column.
    pub labels: Option<String>,
    /// The column that says train, dev or test; without one, the names of files do, or splits are drawn.
    pub split: Option<String>,
    /// What stands between the labels of a document, where they are one text.
    pub label_separator: String,
    /// A file that describes labels, with `id`, `name`, `description`, `aliases` and `parents`: a table, or lines of JSON.
    pub label_file: Option<PathBuf>,
    /// How splits are drawn where nothing names them.
    pub shares: Shares,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            id: None,
            title: None,
            text: "text".to_owned(),
            labels: None,
            split: None,
            label_separator: ";".to_owned(),
            label_file: None,
            shares: Shares::default(),
        }
    }
}

/// Where the columns are.
struct Positions {
    id: Option<usize>,
    title: Option<usize>,
    text: usize,
    labels: Option<usize>,
    split: Option<usize>,
}

impl Importer for Tables {
    fn import(
        &self,
        source: &Path,
        task: &mut TaskWriter,
        context: &ImportContext<'_>,
    ) -> Result<(), DataError> {
        self.shares.check()?;
        if self.label_separator.is_empty() {
            let problem = "the label separator is empty";
            return Err(malformed(
                Place::file(source),
                problem,
                "say what stands between labels, such as `;`",
            ));
        }
        let mut intake = Intake::new(task, context);
        if let Some(labels) = &self.label_file {
            import_labels(labels, &mut intake)?;
        }
        let files = if source.is_dir() { table_files(source)? } else { vec![source.to_owned()] };
        let mut row = 0;
        for file in &files {
            self.import_file(file, &mut row, &mut intake)?;
        }
        let undescribed = intake.describe_rest(|id| Label::new(id, id))?;
        if undescribed > 0
            && let Some(labels) = &self.label_file
        {
            let problem =
                format!("{undescribed} labels in use are not described; their ids stand for their names");
            context.warn(&format!("{}: {problem}", labels.display()));
        }
        intake.finish(source, "one document a row")
    }
}

impl Tables {
    fn import_file(&self, path: &Path, row: &mut u64, intake: &mut Intake<'_>) -> Result<(), DataError> {
        let table = Table::open(path)?;
        let found = self.find(table.schema()).map_err(TableError::column(path))?;
        let columns = [Some(found.text), found.id, found.title, found.labels, found.split];
        let columns: Vec<usize> = columns.into_iter().flatten().collect();
        let named = split_in_name(&file_name(path));
        let mut batches = table.batches(&columns, 0)?;
        let found = self.find(batches.schema()).map_err(TableError::column(path))?;
        let mut before = 0;
        while let Some(batch) = batches.next().transpose()? {
            let cells = Cells::of(&batch, &found, &self.label_separator).map_err(TableError::column(path))?;
            for at in 0..batch.num_rows() {
                *row += 1;
                before += 1;
                let place = Place::line(path, before);
                let (split, record) = self.document(&cells, at, (*row, named), &place)?;
                intake.document(split, record, &place)?;
            }
        }
        Ok(())
    }

    fn find(&self, schema: &Schema) -> Result<Positions, ColumnError> {
        let optional = |named: &Option<String>, usual: &str| match named {
            Some(name) => column(schema, name).map(Some),
            None => find_column(schema, usual),
        };
        let found = Positions {
            id: optional(&self.id, "id")?,
            title: optional(&self.title, "title")?,
            text: column(schema, &self.text)?,
            labels: optional(&self.labels, "labels")?,
            split: self.split.as_deref().map(|name| column(schema, name)).transpose()?,
        };
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

    fn document(
        &self,
        cells: &Cells<'_>,
        at: usize,
        (row, named): (u64, Option<Split>),
        place: &Place,
    ) -> Result<(Split, DocumentRecord), DataError> {
        let blank = |what: &str, remedy: &str| {
            malformed(place.clone(), format!("the {what} is null or blank"), remedy)
        };
        let id = match &cells.ids {
            None => row.to_string(),
            Some(ids) => {
                let id = ids.get(at).filter(|id| !id.is_empty());
                id.ok_or_else(|| blank("id", "give the row an id of its own"))?.to_owned()
            }
        };
        let text = cells.texts.get(at);
        let text = text
            .ok_or_else(|| malformed(place.clone(), "the text is null", "fill it in, or take the row out"))?;
        let split = match (&cells.splits, named) {
            (None, Some(split)) => split,
            (None, None) => self.shares.split_of(&id),
            (Some(splits), _) => {
                let word = splits.get(at).ok_or_else(|| blank("split", "say train, dev or test"))?;
                let unknown = || {
                    malformed(place.clone(), format!("no split is called {word:?}"), "say train, dev or test")
                };
                split_named(word).ok_or_else(unknown)?
            }
        };
        let title = cells.titles.as_ref().and_then(|titles| titles.get(at));
        let record = DocumentRecord {
            id,
            title: title.and_then(|title| not_blank(title.to_owned())),
            text: text.to_owned(),
            labels: cells.labels.get(at),
        };
        Ok((split, record))
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
    Texts(Texts<'a>, &'a str),
}

impl Labels<'_> {
    fn get(&self, row: usize) -> Option<Vec<String>> {
        match self {
            Labels::None => None,
            Labels::Lists(lists) => lists.get(row),
            Labels::Texts(texts, separator) => {
                let items = texts.get(row)?.split(separator).map(str::trim);
                Some(items.filter(|item| !item.is_empty()).map(str::to_owned).collect())
            }
        }
    }
}

impl<'a> Cells<'a> {
    fn of(batch: &'a RecordBatch, found: &Positions, separator: &'a str) -> Result<Cells<'a>, ColumnError> {
        let name = |at: usize| batch.schema_ref().field(at).name().as_str();
        let texts = |at: usize| Texts::of(name(at), batch.column(at).as_ref());
        let labels = match found.labels {
            None => Labels::None,
            Some(at) if Texts::are_in(batch.column(at).data_type()) => Labels::Texts(texts(at)?, separator),
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

fn import_labels(path: &Path, intake: &mut Intake<'_>) -> Result<(), DataError> {
    let mut seen = FirstLines::default();
    let mut lines = table_lines::open(path, LABELS, intake.context.max_line)?;
    while let Some(line) = lines.next_line()? {
        let place = Place::line(path, line.number);
        let label = Label::parse(line.text, || place.clone())?;
        if let Some(first) = seen.note(&label.id, line.number) {
            return Err(DataError::DuplicateId { place, id: label.id, first });
        }
        intake.label(label)?;
    }
    Ok(())
}
