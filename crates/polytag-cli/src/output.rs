//! Writing answers: to standard output, or to a file that appears whole.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use polytag::storage::{StagedFile, StorageError};
use serde::Serialize;

/// Where a stream of lines goes.
pub(crate) enum Lines {
    Stdout(io::BufWriter<io::Stdout>),
    File(Box<StagedFile>),
}

impl Lines {
    /// Standard output, or a file; `inputs` are refused as that file.
    pub(crate) fn to(path: Option<&Path>, inputs: &[&Path]) -> Result<Lines, polytag::Error> {
        match path {
            None => Ok(Lines::Stdout(io::BufWriter::new(io::stdout()))),
            Some(path) => Ok(Lines::File(Box::new(StagedFile::create(path, inputs)?))),
        }
    }

    /// Writes one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        match self {
            Lines::Stdout(out) => {
                let written = serde_json::to_writer(&mut *out, value).map_err(io::Error::from);
                written.and_then(|()| out.write_all(b"\n")).map_err(stdout_error)?;
            }
            Lines::File(file) => file.sink().write_json_line(value).map_err(polytag::Error::from)?,
        }
        Ok(())
    }

    /// Makes what was written visible now, where that is possible.
    pub(crate) fn flush(&mut self) -> Result<(), polytag::Error> {
        match self {
            Lines::Stdout(out) => out.flush().map_err(stdout_error),
            Lines::File(_) => Ok(()),
        }
    }

    /// Ends the stream; a file takes its place.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        match self {
            Lines::Stdout(mut out) => out.flush().map_err(stdout_error)?,
            Lines::File(file) => file.commit().map_err(polytag::Error::from)?,
        }
        Ok(())
    }
}

/// Prints `value` as JSON for a program to read.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print_text(&text)
}

/// Prints text for a person to read.
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(stdout_error)?)
}

/// A failure of standard output, which may be a file on a full disk.
fn stdout_error(error: io::Error) -> polytag::Error {
    StorageError::io(Path::new("standard output"), "write")(error).into()
}

/// Writes `text` to a file that appears whole.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), polytag::Error> {
    let mut file = StagedFile::create(path, &[])?;
    file.sink().write(text.as_bytes())?;
    Ok(file.commit()?)
}

/// Writes text to a file, or prints it where the path is `-`.
pub(crate) fn write_or_print(path: &Path, text: &str) -> anyhow::Result<()> {
    if path == Path::new("-") { print_text(text) } else { Ok(write_file(path, text)?) }
}

/// The whole content of a file that is small by nature.
pub(crate) fn read_text(path: &PathBuf) -> Result<String, polytag::Error> {
    std::fs::read_to_string(path).map_err(|error| StorageError::io(path, "read")(error).into())
}
