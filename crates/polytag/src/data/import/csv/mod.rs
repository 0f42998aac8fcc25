//! Tables with a header, in CSV or TSV.
//!
//! A file enters with a document a row, and perhaps a second one that describes labels. What leaves
//! are the rows in the split that a column names, or else one drawn by [`Shares`]. A table without
//! ids gets the number of the row, from one. A blank cell of labels means a document labelled with
//! nothing; a table without that column holds documents nobody labelled. Memory: one row, the
//! labels, and some 40 bytes a document for its id.

pub mod table; // rows with their lines

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::intake::{Intake, malformed, not_blank, plain_name, split_named};
use super::{ImportContext, Importer, Shares};
use crate::data::error::{DataError, Place};
use crate::data::label::Label;
use crate::data::reader::FirstLines;
use crate::data::record::DocumentRecord;
use crate::data::task::Split;
use crate::data::writer::TaskWriter;
use crate::storage::Lines;
use table::{Dialect, Row, Table};

/// Imports a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Csv {
    /// The column of ids. Unless it is named here, `id` where there is such a column.
    pub id: Option<String>,
    /// The column of titles. Unless it is named here, `title` where there is such a column.
    pub title: Option<String>,
    /// The column of texts.
    pub text: String,
    /// The column of labels. Unless it is named here, `labels` where there is such a column.
    pub labels: Option<String>,
    /// The column that says train, dev or test; without one, splits are drawn.
    pub split: Option<String>,
    /// What stands between fields; unless given, a tab for `.tsv` and `.tab`, else a comma.
    pub delimiter: Option<char>,
    /// Whether `"` puts a field in quotes.
    pub quoting: bool,
    /// What stands between the labels of a document, and between aliases or parents of a label.
    pub label_separator: String,
    /// A file that describes labels, with `id`, `name`, `description`, `aliases` and `parents`: a table
    /// of its own, or JSON lines.
    pub label_file: Option<PathBuf>,
    /// How splits are drawn where no column says.
    pub shares: Shares,
}

impl Default for Csv {
    fn default() -> Csv {
        Csv {
            id: None,
            title: None,
            text: "text".to_owned(),
            labels: None,
            split: None,
            delimiter: None,
            quoting: true,
            label_separator: ";".to_owned(),
            label_file: None,
            shares: Shares::default(),
        }
    }
}

impl Importer for Csv {
    fn import(
        &self,
        source: &Path,
        task: &mut TaskWriter,
        context: &ImportContext<'_>,
    ) -> Result<(), DataError> {
        self.shares.check()?;
        if self.label_separator.is_empty() {
            let remedy = "give the character that stands between labels";
            return Err(malformed(Place::file(source), "the label separator is empty", remedy));
        }
        let mut table = Table::open(source, self.dialect(source, context.max_line)?)?;
        let columns = Columns::find(self, &table)?;
        let mut intake = Intake::new(task, context);
        if let Some(path) = &self.label_file {
            self.import_labels(path, &mut intake)?;
        }
        let mut count = 0u64;
        while let Some(row) = table.next_row()? {
            count += 1;
            let place = Place::line(source, row.line);
            let (split, record) = self.document(&row, &columns, count, &place)?;
            intake.document(split, record, &place)?;
        }
        let unnamed = intake.describe_rest(|id| Label::new(id, id))?;
        if let Some(path) = self.label_file.as_ref().filter(|_| unnamed > 0) {
            let path = path.display();
            context.warn(&format!(
                "{path}: {unnamed} labels in use are not described; their ids are their names"
            ));
        }
        intake.finish(source, "one document a row below the header")
    }
}

/// Where the fields of a document stand.
struct Columns {
    id: Option<usize>,
    title: Option<usize>,
    text: usize,
    labels: Option<usize>,
    split: Option<usize>,
}

impl Columns {
    fn find(config: &Csv, table: &Table) -> Result<Columns, DataError> {
        // A column that the user names must be there; one of the usual names need not.
        let optional = |named: &Option<String>, usual: &str| match named {
            Some(name) => table.required_column(name).map(Some),
            None => Ok(table.column(usual)),
        };
        Ok(Columns {
            id: optional(&config.id, "id")?,
            title: optional(&config.title, "title")?,
            text: table.required_column(&config.text)?,
            labels: optional(&config.labels, "labels")?,
            split: config.split.as_ref().map(|name| table.required_column(name)).transpose()?,
        })
    }
}

impl Csv {
    fn dialect(&self, source: &Path, limit: usize) -> Result<Dialect, DataError> {
        let usual = Dialect { quoting: self.quoting, ..Dialect::of(source, limit) };
        let Some(delimiter) = self.delimiter else { return Ok(usual) };
        match u8::try_from(delimiter) {
            Ok(delimiter) if delimiter.is_ascii() && !b"\"\r\n".contains(&delimiter) => {
                Ok(Dialect { delimiter, ..usual })
            }
            _ => Err(malformed(
                Place::file(source),
                format!("{delimiter:?} cannot stand between fields"),
                "choose an ASCII character other than a quote or a line break",
            )),
        }
    }

    fn document(
        &self,
        row: &Row<'_>,
        columns: &Columns,
        number: u64,
        place: &Place,
    ) -> Result<(Split, DocumentRecord), DataError> {
        let id = columns.id.map_or_else(|| number.to_string(), |column| row.field(column).to_owned());
        if id.is_empty() {
            return Err(malformed(place.clone(), "the id is blank", "give the row an id of its own"));
        }
        let split = match columns.split {
            None => self.shares.split_of(&id),
            Some(column) => split_named(row.field(column)).ok_or_else(|| {
                malformed(
                    place.clone(),
                    format!("no split is called {:?}", row.field(column)),
                    "say train, dev or test",
                )
            })?,
        };
        let record = DocumentRecord {
            title: columns.title.and_then(|column| not_blank(row.field(column).to_owned())),
            text: row.field(columns.text).to_owned(),
            labels: columns.labels.map(|column| self.list(row.field(column))),
            id,
        };
        Ok((split, record))
    }

    /// The items of a cell, blank ones left out.
    fn list(&self, cell: &str) -> Vec<String> {
        let items = cell.split(&self.label_separator).map(str::trim);
        items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }

    fn import_labels(&self, path: &Path, intake: &mut Intake<'_>) -> Result<(), DataError> {
        let max_line = intake.context.max_line;
        let mut seen = FirstLines::default();
        let mut add = |label: Label, line: u64| {
            let place = Place::line(path, line);
            if let Some(first) = seen.note(&label.id, line) {
                return Err(DataError::DuplicateId { place, id: label.id, first });
            }
            intake.label(label).map(|_| ())
        };
        let name = plain_name(path);
        if name.ends_with(".jsonl") || name.ends_with(".json") {
            let mut lines = Lines::open(path, max_line)?;
            while let Some(line) = lines.next_line()? {
                add(Label::parse(line.text, || Place::line(path, line.number))?, line.number)?;
            }
            return Ok(());
        }
        let mut table = Table::open(path, Dialect::of(path, max_line))?;
        let (id, name) = (table.required_column("id")?, table.required_column("name")?);
        let [description, aliases, parents] =
            ["description", "aliases", "parents"].map(|column| table.column(column));
        while let Some(row) = table.next_row()? {
            let [id, name] = [id, name].map(|column| row.field(column).to_owned());
            if id.is_empty() || name.is_empty() {
                let which = if id.is_empty() { "id" } else { "name" };
                let place = Place::line(path, row.line);
                return Err(malformed(place, format!("the {which} of the label is blank"), "fill it in"));
            }
            let list =
                |column: Option<usize>| column.map_or_else(Vec::new, |column| self.list(row.field(column)));
            let label = Label {
                description: description.and_then(|column| not_blank(row.field(column).to_owned())),
                aliases: list(aliases),
                parents: list(parents),
                ..Label::new(id, name)
            };
            add(label, row.line)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{complaint, folder, run};
    use super::*;

    const TABLE: &str = "id,title,text,labels,part\nd1,T,\"a \"\"b\"\"\nc\",l2; l1;;l2,train\nd2,,x,,Test\n";

    fn with_split() -> Csv {
        Csv { split: Some("part".to_owned()), ..Csv::default() }
    }

    #[test]
    fn rows_become_documents() {
        let dir = folder(&[("t.csv", TABLE)]);
        let imported = run(&with_split(), &dir, "t.csv").unwrap();
        assert_eq!(imported.split(Split::Train), [("d1", "T", "a \"b\"\nc", "l1 l2".to_owned())]);
        assert_eq!(imported.split(Split::Test), [("d2", "-", "x", String::new())]);
        assert_eq!(imported.names(), ["l1=l1", "l2=l2"]);
        assert!(imported.warnings.is_empty());
    }

    #[test]
    fn columns_separators_and_shares_are_the_users() {
        let rows: String = (0..200).map(|n| format!("text {n}\ta|b{n}\n")).collect();
        let dir = folder(&[("t.tsv", &format!("body\ttags\n{rows}"))]);
        let importer = Csv {
            text: "body".to_owned(),
            labels: Some("tags".to_owned()),
            label_separator: "|".to_owned(),
            shares: Shares { dev: 0.2, test: 0.2, seed: 1 },
            ..Csv::default()
        };
        let imported = run(&importer, &dir, "t.tsv").unwrap();
        let sizes = Split::ALL.map(|split| imported.split(split).len());
        assert_eq!(sizes.iter().sum::<usize>(), 200);
        assert!(sizes[1] > 20 && sizes[2] > 20, "{sizes:?}");
        let (split, first) = imported.documents.iter().find(|(_, record)| record.id == "1").unwrap();
        assert_eq!(first.text, "text 0");
        assert_eq!(*split, importer.shares.split_of("1"));
    }

    #[test]
    fn labels_may_be_described() {
        let labels = "id,name,aliases,parents,description\nl1,Glue,paste;gum,l2,Sticky.\n";
        let dir = folder(&[("t.csv", TABLE), ("l.csv", labels)]);
        let importer = Csv { label_file: Some(dir.path().join("in/l.csv")), ..with_split() };
        let imported = run(&importer, &dir, "t.csv").unwrap();
        assert_eq!(imported.names(), ["l1=Glue", "l2=l2"]);
        assert_eq!(
            (&imported.labels[0].aliases[..], &imported.labels[0].parents[..]),
            (&["paste".to_owned(), "gum".to_owned()][..], &["l2".to_owned()][..])
        );
        assert_eq!(imported.labels[0].description.as_deref(), Some("Sticky."));
        assert!(imported.warnings[0].contains("l.csv: 1 labels in use are not described"));

        let dir = folder(&[
            ("t.csv", TABLE),
            ("l.jsonl", "{\"id\":\"l1\",\"name\":\"Glue\"}\n{\"id\":\"l2\",\"name\":\"Rail\"}\n"),
        ]);
        let importer = Csv { label_file: Some(dir.path().join("in/l.jsonl")), ..with_split() };
        assert_eq!(run(&importer, &dir, "t.csv").unwrap().names(), ["l1=Glue", "l2=Rail"]);
    }

    #[test]
    fn complaints_name_file_and_line() {
        let with = |importer: &Csv, table: &str| complaint(importer, &folder(&[("t.csv", table)]), "t.csv");
        let usual = Csv::default();
        assert!(with(&usual, "id,body\n").starts_with("t.csv, line 1: no column is called \"text\""));
        assert!(
            with(&Csv { id: Some("key".to_owned()), ..Csv::default() }, TABLE)
                .contains("no column is called \"key\"")
        );
        assert!(
            with(&usual, "id,text,labels\na,\"x\ny\",l\n,x,l\n")
                .starts_with("t.csv, line 4: the id is blank")
        );
        assert!(
            with(&usual, "id,text,labels\na,\"x\ny\",l\na,x,l\n")
                .starts_with("t.csv, line 4: the id \"a\" was used before, on line 2")
        );
        assert!(
            with(&with_split(), &TABLE.replace("Test", "final"))
                .starts_with("t.csv, line 4: no split is called \"final\"")
        );
        assert!(with(&usual, "id,text,labels\n").contains("it should hold one document a row"));
        assert!(
            with(&Csv { delimiter: Some('é'), ..Csv::default() }, TABLE)
                .contains("cannot stand between fields")
        );
        assert!(
            with(&Csv { label_separator: String::new(), ..Csv::default() }, TABLE)
                .contains("separator is empty")
        );
        let shares = Shares { dev: f64::NAN, test: 0.0, seed: 0 };
        assert!(with(&Csv { shares, ..Csv::default() }, TABLE).contains("dev cannot take NaN"));
        for (labels, expected) in [
            ("id,name\na,A\na,B\n", "l.csv, line 3: the id \"a\" was used before, on line 2"),
            ("id,name\na,\n", "l.csv, line 2: the name of the label is blank"),
            ("id\na\n", "l.csv, line 1: no column is called \"name\""),
        ] {
            let dir = folder(&[("t.csv", TABLE), ("l.csv", labels)]);
            let importer = Csv { label_file: Some(dir.path().join("in/l.csv")), ..with_split() };
            let complaint = complaint(&importer, &dir, "t.csv");
            assert!(complaint.starts_with(expected), "{complaint}");
        }
    }
}
