//! Paragraphs of control files, as Debian's package lists and vocabulary are written (deb822).
//!
//! Lines enter; what leaves are paragraphs, each a set of named fields with the lines they stood on.
//! A line that begins with white space goes on with the field above it, a blank line ends the
//! paragraph, and a line that begins with `#` is a comment. Memory: the wanted fields of one
//! paragraph; the many others that lists carry are passed over.

use std::path::Path;

use crate::data::error::{DataError, Place};
use crate::storage::{Lines, StorageError};

/// One field of a paragraph.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    name: &'static str,
    /// Its lines, joined by line breaks, each without the one white space that marks it as a
    /// continuation.
    pub(super) value: String,
    /// The line it starts on.
    pub(super) line: u64,
}

/// The wanted fields between two blank lines.
#[derive(Debug)]
pub(super) struct Paragraph {
    /// The line it starts on.
    pub(super) line: u64,
    fields: Vec<Field>,
}

impl Paragraph {
    /// The field with this name, if it is there; `name` is spelled as among the wanted.
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The value of the field with this name.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.field(name).map(|field| field.value.as_str())
    }
}

/// Reads a control file paragraph by paragraph.
pub(super) struct Paragraphs {
    lines: Lines,
    wanted: &'static [&'static str],
    max_value: usize,
    /// The line that ended the last paragraph by standing behind a blank one.
    pending: Option<(u64, String)>,
}

impl Paragraphs {
    /// Opens `path` to read the `wanted` fields; neither a line nor a value may be over `max_line` bytes.
    pub(super) fn open(
        path: &Path,
        wanted: &'static [&'static str],
        max_line: usize,
    ) -> Result<Paragraphs, DataError> {
        Ok(Paragraphs::over(Lines::open(path, max_line)?, wanted, max_line))
    }

    fn over(lines: Lines, wanted: &'static [&'static str], max_value: usize) -> Paragraphs {
        Paragraphs { lines, wanted, max_value, pending: None }
    }

    /// The file's name.
    pub(super) fn path(&self) -> &Path {
        self.lines.path()
    }

    /// The next paragraph, or `None` at the end.
    pub(super) fn read(&mut self) -> Result<Option<Paragraph>, DataError> {
        while let Some(block) = self.read_block()? {
            // A block of comments is no paragraph.
            if block.current != Current::Nothing {
                return Ok(Some(Paragraph { line: block.line, fields: block.fields }));
            }
        }
        Ok(None)
    }

    /// Reads up to the next blank line.
    fn read_block(&mut self) -> Result<Option<Builder>, DataError> {
        let path = self.lines.path().to_owned();
        let mut block: Option<Builder> = None;
        if let Some((number, text)) = self.pending.take() {
            block.insert(Builder::new(number, self.wanted, self.max_value)).push(&path, number, &text)?;
        }
        while let Some(line) = self.lines.next_line()? {
            let current = block.get_or_insert_with(|| Builder::new(line.number, self.wanted, self.max_value));
            // Blank lines are not handed on; they show as a gap in the numbers.
            if line.number > current.last_line + 1 {
                self.pending = Some((line.number, line.text.to_owned()));
                break;
            }
            current.push(&path, line.number, line.text)?;
        }
        Ok(block)
    }
}

/// A paragraph of which some lines have been read.
struct Builder {
    line: u64,
    last_line: u64,
    wanted: &'static [&'static str],
    max_value: usize,
    fields: Vec<Field>,
    current: Current,
}

/// What a continuation line would go on with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Current {
    Nothing,
    /// The last of the fields kept.
    Kept,
    /// A field that nobody wants.
    PassedOver,
}

impl Builder {
    fn new(line: u64, wanted: &'static [&'static str], max_value: usize) -> Builder {
        Builder { line, last_line: line, wanted, max_value, fields: Vec::new(), current: Current::Nothing }
    }

    fn push(&mut self, path: &Path, number: u64, text: &str) -> Result<(), DataError> {
        self.last_line = number;
        if text.starts_with('#') {
            return Ok(());
        }
        if let Some(rest) = text.strip_prefix([' ', '\t']) {
            return self.continue_field(path, number, rest);
        }
        let Some((name, value)) = text.split_once(':') else {
            return Err(malformed(
                path,
                number,
                "neither a field (`Name: value`) nor the continuation of one",
            ));
        };
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(malformed(path, number, "the name of the field is empty or holds white space"));
        }
        let Some(name) = self.wanted.iter().find(|wanted| wanted.eq_ignore_ascii_case(name)) else {
            self.current = Current::PassedOver;
            return Ok(());
        };
        if let Some(first) = self.fields.iter().find(|field| field.name == *name) {
            let problem =
                format!("the field {name} stands twice in one paragraph, first on line {}", first.line);
            return Err(malformed(path, number, problem));
        }
        self.fields.push(Field { name, value: value.trim().to_owned(), line: number });
        self.current = Current::Kept;
        Ok(())
    }

    fn continue_field(&mut self, path: &Path, number: u64, rest: &str) -> Result<(), DataError> {
        if self.current == Current::Nothing {
            return Err(malformed(path, number, "goes on with a field, but no field stands above it"));
        }
        if self.current == Current::Kept
            && let Some(field) = self.fields.last_mut()
        {
            if field.value.len() + rest.len() > self.max_value {
                let (path, limit) = (path.to_owned(), self.max_value);
                return Err(StorageError::LineTooLong { path, line: field.line, limit }.into());
            }
            field.value.push('\n');
            field.value.push_str(rest.trim_end());
        }
        Ok(())
    }
}

/// A description as its field holds it: one line that says it all, then any number that say more.
pub(super) fn short_and_long(description: &str) -> (&str, Option<String>) {
    let (short, long) = description.split_once('\n').unwrap_or((description, ""));
    // A full stop of its own stands for a blank line.
    let lines: Vec<&str> = long.lines().map(|line| if line.trim() == "." { "" } else { line }).collect();
    let long = lines.join("\n");
    let long = long.trim_end().trim_start_matches('\n');
    (short.trim(), (!long.trim().is_empty()).then(|| long.to_owned()))
}

/// An error about a line of a control file.
pub(super) fn malformed(path: &Path, line: u64, problem: impl Into<String>) -> DataError {
    DataError::Malformed {
        place: Place::line(path, line),
        problem: problem.into(),
        remedy: "fetch the file again (`apt-get update` for package lists)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    const WANTED: &[&str] = &["Package", "Tag", "Description"];

    fn paragraphs(bytes: impl Into<Vec<u8>>) -> Paragraphs {
        let input = Box::new(Cursor::new(bytes.into()));
        Paragraphs::over(Lines::new(Path::new("x_Packages"), input, 1000), WANTED, 1000)
    }

    fn error(text: &str) -> String {
        let mut paragraphs = paragraphs(text);
        loop {
            match paragraphs.read() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("no error in {text:?}"),
                Err(error) => return error.to_string(),
            }
        }
    }

    #[test]
    fn fields_go_on_over_lines_and_paragraphs_end_at_blank_ones() {
        let mut read = paragraphs(
            "# a block of\n# comments\n\n# one more\nPackage: a\nX-Other: 1\n more of the other\ntag: x::y,\n x::z\n\n \nPackage:b\n",
        );
        let first = read.read().unwrap().unwrap();
        assert_eq!((first.line, first.value("Package")), (4, Some("a")));
        let tag = first.field("Tag").unwrap();
        assert_eq!((tag.value.as_str(), tag.line), ("x::y,\nx::z", 8));
        assert_eq!(first.value("Description"), None);
        let second = read.read().unwrap().unwrap();
        assert_eq!((second.line, second.value("Package")), (12, Some("b")));
        assert!(read.read().unwrap().is_none());
        assert!(read.read().unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_is_said_with_file_and_line() {
        for (text, line, problem) in [
            ("Package: a\nrubbish\n", 2, "neither a field"),
            (" Package: a\n", 1, "no field stands above it"),
            ("Package: a\n\n goes on\n", 3, "no field stands above it"),
            ("Package: a\nPackage: b\n", 2, "stands twice in one paragraph, first on line 1"),
            (": a\n", 1, "is empty or holds white space"),
            ("Two words: a\n", 1, "is empty or holds white space"),
        ] {
            let error = error(text);
            assert!(error.starts_with(&format!("x_Packages, line {line}: ")), "{error}");
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn a_value_has_a_limit_however_short_its_lines() {
        let text = format!("Description: a\n{}", " word\n".repeat(300));
        assert!(error(&text).contains("line 1: longer than"));
    }

    #[test]
    fn descriptions_part_into_a_line_and_a_text() {
        let field = "Strategy game\nBuild a city\nof stone.\n.\n * verbatim\n.";
        let (short, long) = short_and_long(field);
        assert_eq!(
            (short, long.as_deref()),
            ("Strategy game", Some("Build a city\nof stone.\n\n * verbatim"))
        );
        assert_eq!(short_and_long("Only this"), ("Only this", None));
        assert_eq!(short_and_long("Only this\n.\n"), ("Only this", None));
    }

    proptest! {
        #[test]
        fn any_bytes_give_paragraphs_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut paragraphs = paragraphs(bytes);
            while let Ok(Some(_)) = paragraphs.read() {}
        }

        #[test]
        fn what_is_written_is_read(values in proptest::collection::vec("[a-z:.,]{1,9}( [a-z:#.]{1,9}){0,3}", 1..9)) {
            let text: String = values.iter().map(|value| format!("Package: {value}\nOther: x\n\n")).collect();
            let mut paragraphs = paragraphs(text);
            for value in &values {
                let paragraph = paragraphs.read().unwrap().unwrap();
                prop_assert_eq!(paragraph.value("Package"), Some(value.as_str()));
            }
            prop_assert!(paragraphs.read().unwrap().is_none());
        }
    }
}
