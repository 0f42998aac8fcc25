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
    /// Whether the next byte starts a line.
    at_start: bool,
}

/// What a [`Metered`] reader has counted; clones share the count.
#[derive(Clone, Debug)]
pub struct Meter {
    count: Rc<Cell<Count>>,
    limit: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    lines: u64,
    since_mark: usize,
}

impl<R: BufRead> Metered<R> {
    /// Reads `input`; over `limit` bytes between two marks are an error.
    pub fn new(input: R, limit: usize) -> Metered<R> {
        Metered { input, meter: Meter { count: Rc::default(), limit }, at_start: true }
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

    /// Says that a record ended here.
    pub fn mark(&self) {
        self.count.set(Count { since_mark: 0, ..self.count.get() });
    }

    /// Gives an error that came out of the reader, through the parser, its place and meaning.
    pub fn error(&self, path: &Path, error: io::Error) -> StorageError {
        if self.count.get().since_mark > self.limit {
            return StorageError::LineTooLong { path: path.to_owned(), line: self.line(), limit: self.limit };
        }
        decode_error(path, error)
    }
}

impl<R: BufRead> Read for Metered<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut count = self.meter.count.get();
        if count.since_mark > self.meter.limit {
            return Err(io::Error::other("a record is too long"));
        }
        let bytes = self.input.fill_buf()?;
        let line = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1);
        let taken = line.min(out.len());
        if taken > 0 {
            count.lines += u64::from(self.at_start);
            count.since_mark += taken;
            self.at_start = bytes[taken - 1] == b'\n';
            out[..taken].copy_from_slice(&bytes[..taken]);
            self.input.consume(taken);
            self.meter.count.set(count);
        }
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
        assert!(error.to_string().starts_with("x.csv, line 3: longer than"));
    }
}
