//! Lines of UTF-8, one at a time, none longer than a limit.
//!
//! Memory: one line. A line that is too long or not UTF-8 is an error for that line alone; the
//! reader can go on to the next. Errors of the disk or the decoder end it.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use super::error::StorageError;
use super::open::{decode_error, open};

/// The longest line that is read unless the caller says otherwise: 64 MiB, some ten million words.
pub const DEFAULT_MAX_LINE: usize = 64 << 20;

/// One line of a file, without its line break.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Its number, from one.
    pub number: u64,
    /// Its text.
    pub text: &'a str,
}

/// Reads a file line by line.
pub struct Lines {
    path: PathBuf,
    input: Box<dyn BufRead + Send>,
    buffer: Vec<u8>,
    number: u64,
    max_line: usize,
    keeps_blank: bool,
    ended: bool,
}

impl Lines {
    /// Opens `path`; lines over `max_line` bytes will be refused.
    pub fn open(path: &Path, max_line: usize) -> Result<Lines, StorageError> {
        Ok(Lines::new(path, open(path)?, max_line))
    }

    /// Reads `input`; `path` is only its name in errors.
    pub fn new(path: &Path, input: Box<dyn BufRead + Send>, max_line: usize) -> Lines {
        Lines {
            path: path.to_owned(),
            input,
            buffer: Vec::new(),
            number: 0,
            max_line,
            keeps_blank: false,
            ended: false,
        }
    }

    /// Hands blank lines out too, for files whose lines belong to the lines of another file.
    pub fn keeping_blank(mut self) -> Lines {
        self.keeps_blank = true;
        self
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the line that was read last, or that could not be read; zero before the first.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line, or `None` at the end. Blank lines are passed over, though counted, unless
    /// [`keeping_blank`](Lines::keeping_blank) was asked for. A line break at the very end starts no
    /// further line.
    pub fn next_line(&mut self) -> Result<Option<Line<'_>>, StorageError> {
        loop {
            if self.ended || !self.fill()? {
                return Ok(None);
            }
            if self.keeps_blank || !self.buffer.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        let number = self.number;
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(Some(Line { number, text })),
            Err(error) => Err(StorageError::NotUtf8 {
                path: self.path.clone(),
                line: number,
                byte: error.valid_up_to() + 1,
            }),
        }
    }

    /// Reads the next line into the buffer; false at the end of the file.
    fn fill(&mut self) -> Result<bool, StorageError> {
        self.buffer.clear();
        self.number += 1;
        let limit = self.max_line as u64 + 1;
        let read = self.input.by_ref().take(limit).read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|error| self.broken(error))?;
        if read == 0 {
            self.ended = true;
            return Ok(false);
        }
        let terminated = self.buffer.last() == Some(&b'\n');
        if !terminated && self.buffer.len() > self.max_line {
            self.buffer = Vec::new();
            self.input.skip_until(b'\n').map_err(|error| self.broken(error))?;
            return Err(StorageError::LineTooLong {
                path: self.path.clone(),
                line: self.number,
                limit: self.max_line,
            });
        }
        if terminated {
            self.buffer.pop();
            if self.buffer.last() == Some(&b'\r') {
                self.buffer.pop();
            }
        }
        if self.number == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.buffer.drain(..3);
        }
        Ok(true)
    }

    fn broken(&mut self, error: std::io::Error) -> StorageError {
        self.ended = true;
        decode_error(&self.path, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn lines(bytes: &'static [u8], max_line: usize) -> Lines {
        Lines::new(Path::new("x.jsonl"), Box::new(Cursor::new(bytes)), max_line)
    }

    fn all(mut lines: Lines) -> Vec<Result<(u64, String), String>> {
        let mut out = Vec::new();
        loop {
            match lines.next_line() {
                Ok(None) => return out,
                Ok(Some(line)) => out.push(Ok((line.number, line.text.to_owned()))),
                Err(error) => out.push(Err(error.to_string())),
            }
        }
    }

    #[test]
    fn breaks_blanks_and_marks_are_dropped_and_numbers_kept() {
        let read = all(lines(b"\xef\xbb\xbfone\r\n\n  \ntwo\nthree", 100));
        assert_eq!(read, [Ok((1, "one".into())), Ok((4, "two".into())), Ok((5, "three".into()))]);
    }

    #[test]
    fn blank_lines_are_kept_on_request() {
        let read = all(lines(b"one\n\n \ntwo\n", 100).keeping_blank());
        let texts: Vec<String> = read.into_iter().map(|line| line.unwrap().1).collect();
        assert_eq!(texts, ["one", "", " ", "two"]);
    }

    #[test]
    fn a_long_line_and_a_bad_byte_are_errors_of_their_own_line() {
        let read = all(lines(b"ok\n12345\nab\xff\nend\n", 4));
        assert_eq!(read[0], Ok((1, "ok".into())));
        assert!(read[1].as_ref().unwrap_err().starts_with("x.jsonl, line 2: longer than"));
        assert!(
            read[2].as_ref().unwrap_err().starts_with("x.jsonl, line 3: byte 3 of the line is not UTF-8")
        );
        assert_eq!(read[3], Ok((4, "end".into())));
        assert_eq!(read.len(), 4);
    }

    #[test]
    fn a_line_of_exactly_the_limit_passes() {
        assert_eq!(all(lines(b"1234\n12345", 4)).iter().filter(|line| line.is_ok()).count(), 1);
    }
}
