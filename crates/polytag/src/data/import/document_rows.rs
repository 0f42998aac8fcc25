//! How the rows of a table become documents, whatever the table is written in.
//!
//! Which columns are what, and what their cells mean, is the same in CSV, Parquet and Arrow files; how cells are read is the
//! importers' own. The files that describe labels are here too: a table of any kind, or lines of JSON.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::csv::table::{Dialect, Table};
use super::intake::{Intake, malformed, not_blank, plain_name, split_named};
use super::{ImportContext, Shares};
use crate::columns::Form;
use crate::data::error::{DataError, Place};
use crate::data::label::Label;
use crate::data::reader::FirstLines;
use crate::data::record::DocumentRecord;
use crate::data::table_lines::{self, LABELS};
use crate::data::task::Split;
use crate::storage::{Lines, decode_error, open};

/// Which columns of a table are what, and what else is known of its documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DocumentRows {
    /// The column of ids. Unless it is named here, `id` where there is such a column, else the number of the row.
    pub id: Option<String>,
    /// The column of titles. Unless it is named here, `title` where there is such a column.
    pub title: Option<String>,
    /// The column of texts.
    pub text: String,
    /// The column of labels. Unless it is named here, `labels` where there is such a column.
    pub labels: Option<String>,
    /// The column that says train, dev or test; without one, splits are drawn where nothing else names them.
    pub split: Option<String>,
    /// What stands between the labels of a document where they are one text, and between aliases or parents of a label.
    pub label_separator: String,
    /// A file that describes labels, with `id`, `name`, `description`, `aliases` and `parents`: a table of its own, or
    /// lines of JSON.
    pub label_file: Option<PathBuf>,
    /// How splits are drawn where nothing names them.
    pub shares: Shares,
}

impl Default for DocumentRows {
    fn default() -> DocumentRows {
        DocumentRows {
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
pub(super) struct Positions {
    pub(super) id: Option<usize>,
    pub(super) title: Option<usize>,
    pub(super) text: usize,
    pub(super) labels: Option<usize>,
    pub(super) split: Option<usize>,
}

impl Positions {
    /// All of them.
    pub(super) fn all(&self) -> Vec<usize> {
        let all = [Some(self.text), self.id, self.title, self.labels, self.split];
        all.into_iter().flatten().collect()
    }
}

/// The cells of a row; none where there is no such column, or it is null.
pub(super) struct RowCells<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) title: Option<&'a str>,
    pub(super) text: Option<&'a str>,
    pub(super) labels: Option<Vec<String>>,
    pub(super) split: Option<&'a str>,
}

impl DocumentRows {
    /// An error if the settings make no sense; `source` is what it is about.
    pub(super) fn check(&self, source: &Path) -> Result<(), DataError> {
        self.shares.check()?;
        if self.label_separator.is_empty() {
            let remedy = "say what stands between labels, such as `;`";
            return Err(malformed(Place::file(source), "the label separator is empty", remedy));
        }
        Ok(())
    }

    /// Finds the columns. One that the user names must be there, one of the usual names need not.
    pub(super) fn find<E>(
        &self,
        find: impl Fn(&str) -> Result<Option<usize>, E>,
        require: impl Fn(&str) -> Result<usize, E>,
    ) -> Result<Positions, E> {
        let optional = |named: &Option<String>, usual: &str| match named {
            Some(name) => require(name).map(Some),
            None => find(usual),
        };
        Ok(Positions {
            id: optional(&self.id, "id")?,
            title: optional(&self.title, "title")?,
            text: require(&self.text)?,
            labels: optional(&self.labels, "labels")?,
            split: self.split.as_deref().map(&require).transpose()?,
        })
    }

    /// The document of a row and its split. The row's number stands for an id where there is no column of them; `named` is the
    /// split that a column of splits would overrule.
    pub(super) fn document(
        &self,
        columns: &Positions,
        cells: RowCells<'_>,
        (number, named): (u64, Option<Split>),
        place: &Place,
    ) -> Result<(Split, DocumentRecord), DataError> {
        let wrong = |problem: &str, remedy: &str| malformed(place.clone(), problem, remedy);
        let id = match (columns.id, cells.id) {
            (None, _) => number.to_string(),
            (Some(_), Some(id)) if !id.is_empty() => id.to_owned(),
            (Some(_), blank) => {
                let what = if blank.is_some() { "blank" } else { "null" };
                return Err(wrong(&format!("the id is {what}"), "give the row an id of its own"));
            }
        };
        let text = cells.text.ok_or_else(|| wrong("the text is null", "fill it in, or take the row out"))?;
        let split = match (columns.split, named) {
            (None, Some(split)) => split,
            (None, None) => self.shares.split_of(&id),
            (Some(_), _) => {
                let remedy = "say train, dev or test";
                let word = cells.split.ok_or_else(|| wrong("the split is null", remedy))?;
                split_named(word).ok_or_else(|| wrong(&format!("no split is called {word:?}"), remedy))?
            }
        };
        let title = cells.title.and_then(|title| not_blank(title.to_owned()));
        Ok((split, DocumentRecord { id, title, text: text.to_owned(), labels: cells.labels }))
    }

    /// The items of a cell, blank ones left out.
    pub(super) fn items(&self, cell: &str) -> Vec<String> {
        let items = cell.split(&self.label_separator).map(str::trim);
        items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }

    /// Describes the labels of the file that does so, if there is one.
    pub(super) fn describe_labels(&self, intake: &mut Intake<'_>) -> Result<(), DataError> {
        let Some(path) = &self.label_file else { return Ok(()) };
        let max_line = intake.context.max_line;
        let mut labels = LabelFile { path, seen: FirstLines::default(), intake };
        if Form::from_name(path).is_some() {
            return labels.take_lines(table_lines::open(path, LABELS, max_line)?);
        }
        // Opened once, as it may be a pipe.
        let mut input = open(path)?;
        match is_json(path, input.as_mut())? {
            true => labels.take_lines(Lines::new(path, input, max_line)),
            false => labels.take_csv(Table::new(path, input, Dialect::of(path, max_line))?, self),
        }
    }

    /// Describes the labels in use that no file described, by their ids, and says so where one should have.
    pub(super) fn describe_rest(&self, intake: &mut Intake<'_>) -> Result<(), DataError> {
        let undescribed = intake.describe_rest(|id| Label::new(id, id))?;
        if let Some(path) = self.label_file.as_ref().filter(|_| undescribed > 0) {
            let problem = format!("{undescribed} labels in use are not described; their ids are their names");
            intake.context.warn(&format!("{}: {problem}", path.display()));
        }
        Ok(())
    }
}

/// What else may stand between labels.
const SEPARATORS: [char; 3] = [';', '|', ','];

/// What stands in cells of labels, to find out whether the separator is the right one.
#[derive(Default)]
pub(super) struct LabelCells {
    separated: bool,
    /// How many hold each of the others.
    others: [u64; SEPARATORS.len()],
}

impl LabelCells {
    /// Looks at a cell.
    pub(super) fn note(&mut self, cell: &str, separator: &str) {
        self.separated |= cell.contains(separator);
        for (count, other) in self.others.iter_mut().zip(SEPARATORS) {
            *count += u64::from(cell.contains(other));
        }
    }

    /// Says so if nothing is between labels, and something else often is.
    pub(super) fn tell(&self, source: &Path, separator: &str, context: &ImportContext<'_>) {
        let most = SEPARATORS.into_iter().zip(self.others).max_by_key(|(_, count)| *count);
        if let Some((other, count)) = most.filter(|(_, count)| *count > 1 && !self.separated) {
            context.warn(&format!(
                "{}: {separator:?} stands in no cell of labels, and {other:?} in {count}: if that is between labels, say \
                 --label-separator '{other}'",
                source.display()
            ));
        }
    }
}

/// Whether a file holds lines of JSON: its name says so, or its first character.
fn is_json(path: &Path, input: &mut dyn BufRead) -> Result<bool, DataError> {
    let name = plain_name(path).to_lowercase();
    if [".jsonl", ".ndjson", ".json"].iter().any(|ending| name.ends_with(ending)) {
        return Ok(true);
    }
    let head = input.fill_buf().map_err(|error| decode_error(path, error))?;
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    Ok(head.trim_ascii_start().starts_with(b"{"))
}

/// A file that describes labels, each once.
struct LabelFile<'a, 'b> {
    path: &'a Path,
    seen: FirstLines,
    intake: &'a mut Intake<'b>,
}

impl LabelFile<'_, '_> {
    fn add(&mut self, label: Label, line: u64) -> Result<(), DataError> {
        if let Some(first) = self.seen.note(&label.id, line) {
            let place = Place::line(self.path, line);
            return Err(DataError::DuplicateId { place, id: label.id, first });
        }
        self.intake.label(label).map(|_| ())
    }

    /// Lines of JSON, or a table of columns that is read as such.
    fn take_lines(&mut self, mut lines: Lines) -> Result<(), DataError> {
        while let Some(line) = lines.next_line()? {
            let label = Label::parse(line.text, || Place::line(self.path, line.number))?;
            self.add(label, line.number)?;
        }
        Ok(())
    }

    /// Rows of a CSV file.
    fn take_csv(&mut self, mut table: Table, rows: &DocumentRows) -> Result<(), DataError> {
        let (id, name) = (table.required_column("id")?, table.required_column("name")?);
        let [description, aliases, parents] =
            ["description", "aliases", "parents"].map(|column| table.column(column));
        while let Some(row) = table.next_row()? {
            let [id, name] = [id, name].map(|column| row.field(column).to_owned());
            if id.is_empty() || name.is_empty() {
                let which = if id.is_empty() { "id" } else { "name" };
                let place = Place::line(self.path, row.line);
                return Err(malformed(place, format!("the {which} of the label is blank"), "fill it in"));
            }
            let list =
                |column: Option<usize>| column.map_or_else(Vec::new, |column| rows.items(row.field(column)));
            let label = Label {
                description: description.and_then(|column| not_blank(row.field(column).to_owned())),
                aliases: list(aliases),
                parents: list(parents),
                ..Label::new(id, name)
            };
            let line = row.line;
            self.add(label, line)?;
        }
        Ok(())
    }
}
