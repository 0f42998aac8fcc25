//! Bytes for parsers that read on their own, counted by line and bounded by record.
//!
//! A parser of CSV or XML takes a reader and hands out records; it does not say on which line they
//! stood, nor stop at a record that never ends. [`Metered`] hands it one line at a time, so that the
//! lines handed out are the lines it has seen, and fails when too many bytes go by without a
//! [`Meter::mark`]. Memory: nothing of its own.

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::rc::Rc;

use super::error::StorageError;
use super::open::decode_error;

/// A reader that counts.
pub struct Metered<R> {
    input: R,
    meter: Meter,
}

/// What a [`Metered`] reader has counted; clones share the count.
#[derive(Clone, Debug)]
pub struct Meter {
    count: Rc<Cell<Count>>,
    limit: usize,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    lines: u64,
    /// Whether the next byte starts a line.
    at_start: bool,
    since_mark: usize,
    /// The line on which what follows the last mark begins.
    marked: u64,
    /// Whether the parser was told that nothing more comes.
    has_ended: bool,
}

impl<R: BufRead> Metered<R> {
    /// Reads `input`; over `limit` bytes between two marks are an error.
    pub fn new(input: R, limit: usize) -> Metered<R> {
        let count = Count { lines: 0, at_start: true, since_mark: 0, marked: 1, has_ended: false };
        Metered { input, meter: Meter { count: Rc::new(Cell::new(count)), limit } }
    }

    /// The count, to be kept while the parser owns the reader.
    pub fn meter(&self) -> Meter {
        self.meter.clone()
    }
}

impl Meter {
    /// The line that was read last, from one; zero before the first.
    pub fn line(&self) -> u64 {
        self.count.get().lines
    }

    /// Whether the parser has asked for more than there is.
    pub fn has_ended(&self) -> bool {
        self.count.get().has_ended
    }

    /// Says that a record ended here.
    pub fn mark(&self) {
        let count = self.count.get();
        let marked = count.lines + u64::from(count.at_start);
        self.count.set(Count { since_mark: 0, marked, ..count });
    }

    /// Says that the parser will make `bytes` more of what it has read; they count like bytes read.
    pub fn grow(&self, bytes: usize) {
        let count = self.count.get();
        self.count.set(Count { since_mark: count.since_mark.saturating_add(bytes), ..count });
    }

    /// An error if too much has gone by since the last mark.
    pub fn check(&self) -> io::Result<()> {
        if self.count.get().since_mark > self.limit {
            return Err(io::Error::other("a record is too long"));
        }
        Ok(())
    }

    /// Gives an error that came out of the reader, through the parser, its place and meaning. The
    /// place of a record that is too long is the line it begins on.
    pub fn error(&self, path: &Path, error: io::Error) -> StorageError {
        let Count { since_mark, marked, .. } = self.count.get();
        if since_mark > self.limit {
            return StorageError::LineTooLong { path: path.to_owned(), line: marked, limit: self.limit };
        }
        decode_error(path, error)
    }
}

impl<R: BufRead> Read for Metered<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.meter.check()?;
        let mut count = self.meter.count.get();
        let bytes = self.input.fill_buf()?;
        let line = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1);
        let taken = line.min(out.len());
        if taken > 0 {
            count.lines += u64::from(count.at_start);
            count.since_mark += taken;
            count.at_start = bytes[taken - 1] == b'\n';
            out[..taken].copy_from_slice(&bytes[..taken]);
            self.input.consume(taken);
        }
        count.has_ended |= taken == 0 && !out.is_empty();
        self.meter.count.set(count);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_read_is_handed_out_and_counted() {
        let mut input = Metered::new(&b"one\ntwo three\n\nend"[..], 100);
        let meter = input.meter();
        let mut seen = Vec::new();
        let mut buffer = [0; 6];
        loop {
            let n = input.read(&mut buffer).unwrap();
            assert_eq!(meter.has_ended(), n == 0);
            if n == 0 {
                break;
            }
            seen.push((meter.line(), String::from_utf8_lossy(&buffer[..n]).into_owned()));
        }
        let expected = [(1, "one\n"), (2, "two th"), (2, "ree\n"), (3, "\n"), (4, "end")];
        assert_eq!(seen, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn bytes_between_marks_are_bounded() {
        let mut input = Metered::new(&b"1234\n1234\n1234\n"[..], 7);
        let meter = input.meter();
        let mut buffer = [0; 64];
        assert_eq!(input.read(&mut buffer).unwrap(), 5);
        meter.mark();
        assert_eq!(input.read(&mut buffer).unwrap(), 5);
        assert_eq!(input.read(&mut buffer).unwrap(), 5);
        let error = meter.error(Path::new("x.csv"), input.read(&mut buffer).unwrap_err());
        assert!(error.to_string().starts_with("x.csv, line 2: longer than"));
    }

    #[test]
    fn a_record_that_begins_within_a_line_is_placed_there() {
        let mut input = Metered::new(&b"1234\n12345678\n12345678\n"[..], 7);
        let meter = input.meter();
        let mut buffer = [0; 7];
        assert_eq!(input.read(&mut buffer).unwrap(), 5);
        assert_eq!(input.read(&mut buffer).unwrap(), 7);
        meter.mark();
        assert_eq!(input.read(&mut buffer).unwrap(), 2);
        assert_eq!(input.read(&mut buffer).unwrap(), 7);
        let error = meter.error(Path::new("x.rdf"), input.read(&mut buffer).unwrap_err());
        assert!(error.to_string().starts_with("x.rdf, line 2: longer than"), "{error}");
    }

    #[test]
    fn what_a_parser_makes_of_its_bytes_counts() {
        let mut input = Metered::new(&b"1\n2\n3\n"[..], 7);
        let meter = input.meter();
        let mut buffer = [0; 7];
        assert_eq!(input.read(&mut buffer).unwrap(), 2);
        meter.grow(5);
        assert_eq!(input.read(&mut buffer).unwrap(), 2);
        meter.mark();
        meter.grow(usize::MAX);
        assert!(input.read(&mut buffer).is_err());
    }
}
