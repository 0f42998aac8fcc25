//! Rows of a CSV or TSV file, with their lines.
//!
//! A file with a header enters; rows leave one at a time, as many fields in each as the header has.
//! A quoted field may hold line breaks; a row's line is the one it begins on. A quote that is never
//! closed would take in all that follows, so it is an error. Memory: one row, which may not be longer
//! than a limit.

use std::io::{BufRead, Chain, Read};
use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;

use crate::data::error::{DataError, Place};
use crate::data::import::intake::{malformed, plain_name};
use crate::storage::{Meter, Metered, open};

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// What stands between fields.
    pub delimiter: u8,
    /// Whether `"` puts a field in quotes.
    pub quoting: bool,
    /// The most bytes of one row.
    pub limit: usize,
}

impl Dialect {
    /// Tabs for a file that is called `.tsv` or `.tab`, else commas.
    pub fn of(path: &Path, limit: usize) -> Dialect {
        let name = plain_name(path).to_lowercase();
        let tabs = name.ends_with(".tsv") || name.ends_with(".tab");
        Dialect { delimiter: if tabs { b'\t' } else { b',' }, quoting: true, limit }
    }
}

/// What is read, with a line break behind it.
type Ended = Chain<Box<dyn BufRead + Send>, &'static [u8]>;

/// A table being read.
pub struct Table {
    path: PathBuf,
    reader: ::csv::Reader<Metered<Ended>>,
    meter: Meter,
    header: Vec<String>,
    record: ::csv::StringRecord,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The line it begins on, from one.
    pub line: u64,
    record: &'a ::csv::StringRecord,
}

impl Row<'_> {
    /// The field of a column, without blanks around it.
    pub fn field(&self, column: usize) -> &str {
        self.record.get(column).unwrap_or_default().trim()
    }
}

impl Table {
    /// Opens `path` and reads its header.
    pub fn open(path: &Path, dialect: Dialect) -> Result<Table, DataError> {
        Table::new(path, open(path)?, dialect)
    }

    /// Reads `input`, header first; `path` is only its name in errors.
    pub fn new(path: &Path, input: Box<dyn BufRead + Send>, dialect: Dialect) -> Result<Table, DataError> {
        // With a line break at the end, only a row in an open quote goes on to the end.
        let input = Metered::new(input.chain(&b"\n"[..]), dialect.limit);
        let meter = input.meter();
        let reader = ::csv::ReaderBuilder::new()
            .delimiter(dialect.delimiter)
            .quoting(dialect.quoting)
            .has_headers(false)
            .flexible(true)
            .from_reader(input);
        let record = ::csv::StringRecord::new();
        let mut table = Table { path: path.to_owned(), reader, meter, header: Vec::new(), record };
        let Some(line) = table.advance()? else {
            return Err(DataError::Empty { path: table.path, expected: "a header and one document a row" });
        };
        table.header = table.record.iter().map(|name| name.trim().to_owned()).collect();
        let mut names = FxHashSet::default();
        for name in &table.header {
            if !name.is_empty() && !names.insert(name) {
                let place = Place::line(path, line);
                return Err(malformed(place, format!("two columns are called {name:?}"), "rename one"));
            }
        }
        Ok(table)
    }

    /// The names of the columns.
    pub fn header(&self) -> &[String] {
        &self.header
    }

    /// The column of this name, if there is one.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|column| column == name)
    }

    /// The column of this name, or an error that lists those there are.
    pub fn required_column(&self, name: &str) -> Result<usize, DataError> {
        self.column(name).ok_or_else(|| {
            malformed(
                Place::line(&self.path, 1),
                format!("no column is called {name:?}; there are {:?}", self.header),
                "name another column, or check the delimiter",
            )
        })
    }

    /// The next row, or `None` at the end.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, DataError> {
        let Some(line) = self.advance()? else { return Ok(None) };
        if self.record.len() != self.header.len() {
            return Err(malformed(
                Place::line(&self.path, line),
                format!("{} fields, but the header has {}", self.record.len(), self.header.len()),
                "put fields that hold the delimiter, a quote or a line break in quotes",
            ));
        }
        Ok(Some(Row { line, record: &self.record }))
    }

    /// Reads a record, and says on which line it begins.
    fn advance(&mut self) -> Result<Option<u64>, DataError> {
        let mut bytes = std::mem::take(&mut self.record).into_byte_record();
        let more = self.reader.read_byte_record(&mut bytes).map_err(|error| {
            let problem = error.to_string();
            match error.into_kind() {
                ::csv::ErrorKind::Io(error) => self.meter.error(&self.path, error).into(),
                _ => malformed(Place::line(&self.path, self.meter.line()), problem, "correct the row"),
            }
        })?;
        self.meter.mark();
        if !more {
            return Ok(None);
        }
        let breaks: usize = bytes.iter().map(|field| memchr::memchr_iter(b'\n', field).count()).sum();
        let is_open = self.meter.has_ended();
        // The last break within an open quote begins no line.
        let line = (self.meter.line() + u64::from(is_open)).saturating_sub(breaks as u64);
        if is_open {
            return Err(malformed(
                Place::line(&self.path, line),
                "a quote that is opened in this row is never closed, so that the row takes in the rest of the file",
                "close it, and write a quote within quotes twice",
            ));
        }
        self.record = ::csv::StringRecord::from_byte_record(bytes).map_err(|error| {
            let field = error.utf8_error().field();
            malformed(
                Place::line(&self.path, line),
                format!("field {} of the row is not UTF-8", field + 1),
                "convert the file, for example with `iconv -f LATIN1 -t UTF-8`",
            )
        })?;
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    fn table(bytes: &[u8], limit: usize) -> Result<Table, DataError> {
        let dialect = Dialect { delimiter: b',', quoting: true, limit };
        Table::new(Path::new("t.csv"), Box::new(Cursor::new(bytes.to_vec())), dialect)
    }

    fn rows(bytes: &[u8]) -> Result<Vec<(u64, String)>, DataError> {
        let mut table = table(bytes, 1000)?;
        let mut rows = Vec::new();
        while let Some(row) = table.next_row()? {
            rows.push((row.line, (0..row.record.len()).map(|i| row.field(i)).collect::<Vec<_>>().join("|")));
        }
        Ok(rows)
    }

    #[test]
    fn lines_are_those_on_which_rows_begin() {
        let expected = [(2, "1|x".to_owned()), (4, "2|a\nb\nc".to_owned()), (7, "3|y".to_owned())];
        let plain = "\u{feff}id,text\n1,x\n\n2,\"a\nb\nc\"\n3,y";
        assert_eq!(rows(plain.as_bytes()).unwrap(), expected);
        let windows = plain.replace('\n', "\r\n");
        let lines: Vec<u64> = rows(windows.as_bytes()).unwrap().into_iter().map(|row| row.0).collect();
        assert_eq!(lines, [2, 4, 7]);
    }

    #[test]
    fn complaints_name_file_and_line() {
        let complaint = |bytes: &[u8]| rows(bytes).unwrap_err().to_string();
        assert!(
            complaint(b"a,b\n1,2\n\"x\ny\",2,3\n")
                .starts_with("t.csv, line 3: 3 fields, but the header has 2; ")
        );
        assert!(complaint(b"a,b\n1,\xff\n").starts_with("t.csv, line 2: field 2 of the row is not UTF-8"));
        assert!(complaint(b"a,a\n").starts_with("t.csv, line 1: two columns are called \"a\""));
        assert!(complaint(b"\n\n").contains("the file is empty"));
        let mut long = table(b"a\n1\n\"2222\n2222\n2222\n", 8).unwrap();
        assert_eq!(long.next_row().unwrap().unwrap().field(0), "1");
        assert!(long.next_row().unwrap_err().to_string().starts_with("t.csv, line 3: longer than"));
    }

    #[test]
    fn a_quote_that_is_never_closed_is_named_where_its_row_begins() {
        for (table, line) in [
            ("a,b\n1,\"x\n2,y\n3,z\n", 2),
            ("a,b\n1,x\n2,y\n\"3,z\n4,u\n", 4),
            // The row has as many fields as it should.
            ("a,b\n1,x\n\n2,\"y\n", 4),
            ("a,b\n1,\"x\ny\",\"z\n", 2),
            ("a,b\n1,\"x\"\"\n", 2),
            ("a,b\n1,x\n2,\"", 3),
            ("a,\"b\n1,x\n", 1),
        ] {
            let cut = table.trim_end();
            for table in
                [table.to_owned(), table.replace('\n', "\r\n"), cut.to_owned(), format!("{table}\n\n")]
            {
                let complaint = rows(table.as_bytes()).unwrap_err().to_string();
                let expected =
                    format!("t.csv, line {line}: a quote that is opened in this row is never closed, ");
                assert!(complaint.starts_with(&expected), "{table:?}: {complaint}");
            }
        }
    }

    #[test]
    fn quotes_may_be_closed_at_the_very_end() {
        for (table, expected) in [
            ("a,b\n1,\"x\"", (2, "1|x")),
            ("a,b\n1,\"x\n\"", (2, "1|x")),
            ("a,b\n1,\"x\n\"\n", (2, "1|x")),
            ("a,b\n1,\"x\"\"\"\r\n", (2, "1|x\"")),
            ("a,b\n1,5\" disk", (2, "1|5\" disk")),
        ] {
            assert_eq!(rows(table.as_bytes()).unwrap(), [(expected.0, expected.1.to_owned())], "{table:?}");
        }
        let plain = Dialect { delimiter: b',', quoting: false, limit: 1000 };
        let mut open = Table::new(Path::new("t.csv"), Box::new(&b"a,b\n1,\"x"[..]), plain).unwrap();
        assert_eq!(open.next_row().unwrap().unwrap().field(1), "\"x");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            text in "[ab,\"\r\n]{0,80}",
        ) {
            let _ = rows(&bytes);
            let _ = rows(text.as_bytes());
        }
    }
}
