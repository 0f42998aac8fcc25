//! Tables with a header, in CSV or TSV.
//!
//! A file enters with a document a row, and perhaps a second one that describes labels. What leaves
//! are the rows in the split that a column names, or else one drawn by [`Shares`](super::Shares). A table without
//! ids gets the number of the row, from one. A blank cell of labels means a document labelled with
//! nothing; a table without that column holds documents nobody labelled. Memory: one row, the
//! labels, and some 40 bytes a document for its id.

pub mod table; // rows with their lines

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::document_rows::{DocumentRows, LabelCells, RowCells};
use super::intake::{Intake, malformed};
use super::{ImportContext, Importer};
use crate::data::error::{DataError, Place};
use crate::data::writer::TaskWriter;
use table::{Dialect, Table};

/// Imports a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Csv {
    /// Which columns are what.
    pub rows: DocumentRows,
    /// What stands between fields; unless given, a tab for `.tsv` and `.tab`, else a comma.
    pub delimiter: Option<char>,
    /// Whether `"` puts a field in quotes.
    pub quoting: bool,
}

impl Default for Csv {
    fn default() -> Csv {
        Csv { rows: DocumentRows::default(), delimiter: None, quoting: true }
    }
}

impl Importer for Csv {
    fn import(
        &self,
        source: &Path,
        task: &mut TaskWriter,
        context: &ImportContext<'_>,
    ) -> Result<(), DataError> {
        self.rows.check(source)?;
        let mut table = Table::open(source, self.dialect(source, context.max_line)?)?;
        let columns = self.rows.find(|name| Ok(table.column(name)), |name| table.required_column(name))?;
        let mut intake = Intake::new(task, context);
        self.rows.describe_labels(&mut intake)?;
        let (mut number, mut label_cells) = (0, LabelCells::default());
        while let Some(row) = table.next_row()? {
            number += 1;
            let place = Place::line(source, row.line);
            let cell = |column: usize| row.field(column);
            if let Some(column) = columns.labels {
                label_cells.note(cell(column), &self.rows.label_separator);
            }
            let cells = RowCells {
                id: columns.id.map(cell),
                title: columns.title.map(cell),
                text: Some(cell(columns.text)),
                labels: columns.labels.map(|column| self.rows.items(cell(column))),
                split: columns.split.map(cell),
            };
            let (split, record) = self.rows.document(&columns, cells, (number, None), &place)?;
            intake.document(split, record, &place)?;
        }
        label_cells.tell(source, &self.rows.label_separator, context);
        self.rows.describe_rest(&mut intake)?;
        intake.finish(source, "one document a row below the header")
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
}

#[cfg(test)]
mod tests {
    use super::super::Shares;
    use super::super::testing::{complaint, folder, run};
    use super::*;
    use crate::data::task::Split;

    const TABLE: &str = "id,title,text,labels,part\nd1,T,\"a \"\"b\"\"\nc\",l2; l1;;l2,train\nd2,,x,,Test\n";

    fn of(rows: DocumentRows) -> Csv {
        Csv { rows, ..Csv::default() }
    }

    fn with_split() -> DocumentRows {
        DocumentRows { split: Some("part".to_owned()), ..DocumentRows::default() }
    }

    #[test]
    fn rows_become_documents() {
        let dir = folder(&[("t.csv", TABLE)]);
        let imported = run(&of(with_split()), &dir, "t.csv").unwrap();
        assert_eq!(imported.split(Split::Train), [("d1", "T", "a \"b\"\nc", "l1 l2".to_owned())]);
        assert_eq!(imported.split(Split::Test), [("d2", "-", "x", String::new())]);
        assert_eq!(imported.names(), ["l1=l1", "l2=l2"]);
        assert!(imported.warnings.is_empty());
    }

    #[test]
    fn another_separator_is_told_of() {
        let warnings = |labels: [&str; 3]| {
            let rows = labels.iter().map(|labels| format!("x,\"{labels}\"\n"));
            let dir = folder(&[("t.csv", &format!("text,labels\n{}", rows.collect::<String>()))]);
            run(&of(DocumentRows::default()), &dir, "t.csv").unwrap().warnings
        };
        let told = warnings(["E11.9|I10", "I10|K21", "I10"]);
        assert!(
            told.len() == 1 && told[0].contains("'|' in 2") && told[0].contains("--label-separator '|'"),
            "{told:?}"
        );
        assert_eq!(warnings(["a|b", "c|d", "e;f"]), [""; 0], "ours is there");
        assert_eq!(warnings(["a", "b, the second", "c"]), [""; 0], "once may be in a name");
    }

    #[test]
    fn columns_separators_and_shares_are_the_users() {
        let rows: String = (0..200).map(|n| format!("text {n}\ta|b{n}\n")).collect();
        let dir = folder(&[("t.tsv", &format!("body\ttags\n{rows}"))]);
        let rows = DocumentRows {
            text: "body".to_owned(),
            labels: Some("tags".to_owned()),
            label_separator: "|".to_owned(),
            shares: Shares { dev: 0.2, test: 0.2, seed: 1 },
            ..DocumentRows::default()
        };
        let imported = run(&of(rows.clone()), &dir, "t.tsv").unwrap();
        let sizes = Split::ALL.map(|split| imported.split(split).len());
        assert_eq!(sizes.iter().sum::<usize>(), 200);
        assert!(sizes[1] > 20 && sizes[2] > 20, "{sizes:?}");
        let (split, first) = imported.documents.iter().find(|(_, record)| record.id == "1").unwrap();
        assert_eq!(first.text, "text 0");
        assert_eq!(*split, rows.shares.split_of("1"));
    }

    #[test]
    fn labels_may_be_described() {
        let labels = "id,name,aliases,parents,description\nl1,Glue,paste;gum,l2,Sticky.\n";
        let dir = folder(&[("t.csv", TABLE), ("l.csv", labels)]);
        let importer = of(DocumentRows { label_file: Some(dir.path().join("in/l.csv")), ..with_split() });
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
        let importer = of(DocumentRows { label_file: Some(dir.path().join("in/l.jsonl")), ..with_split() });
        assert_eq!(run(&importer, &dir, "t.csv").unwrap().names(), ["l1=Glue", "l2=Rail"]);
    }

    #[test]
    fn complaints_name_file_and_line() {
        let with = |importer: &Csv, table: &str| complaint(importer, &folder(&[("t.csv", table)]), "t.csv");
        let usual = Csv::default();
        assert!(with(&usual, "id,body\n").starts_with("t.csv, line 1: no column is called \"text\""));
        assert!(
            with(&of(DocumentRows { id: Some("key".to_owned()), ..DocumentRows::default() }), TABLE)
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
            with(&of(with_split()), &TABLE.replace("Test", "final"))
                .starts_with("t.csv, line 4: no split is called \"final\"")
        );
        assert!(with(&usual, "id,text,labels\n").contains("it should hold one document a row"));
        assert!(
            with(&Csv { delimiter: Some('é'), ..Csv::default() }, TABLE)
                .contains("cannot stand between fields")
        );
        assert!(
            with(&of(DocumentRows { label_separator: String::new(), ..DocumentRows::default() }), TABLE)
                .contains("separator is empty")
        );
        let shares = Shares { dev: f64::NAN, test: 0.0, seed: 0 };
        assert!(
            with(&of(DocumentRows { shares, ..DocumentRows::default() }), TABLE)
                .contains("dev cannot take NaN")
        );
        for (labels, expected) in [
            ("id,name\na,A\na,B\n", "l.csv, line 3: the id \"a\" was used before, on line 2"),
            ("id,name\na,\n", "l.csv, line 2: the name of the label is blank"),
            ("id\na\n", "l.csv, line 1: no column is called \"name\""),
        ] {
            let dir = folder(&[("t.csv", TABLE), ("l.csv", labels)]);
            let importer = of(DocumentRows { label_file: Some(dir.path().join("in/l.csv")), ..with_split() });
            let complaint = complaint(&importer, &dir, "t.csv");
            assert!(complaint.starts_with(expected), "{complaint}");
        }
    }
}
