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
            Lines::Stdout(out) => serde_json::to_writer(&mut *out, value)
                .map_err(io::Error::from)
                .and_then(|()| out.write_all(b"\n"))
                .map_err(stdout_error)?,
            Lines::File(file) => file.sink().write_json_line(value).map_err(polytag::Error::from)?,
        }
        Ok(())
    }

    /// Makes what was written visible now, where that is possible.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        match self {
            Lines::Stdout(out) => out.flush().map_err(stdout_error),
            Lines::File(_) => Ok(()),
        }
    }

    /// Ends the stream; a file takes its place.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        match self {
            Lines::Stdout(mut out) => out.flush().map_err(stdout_error),
            Lines::File(file) => Ok(file.commit().map_err(polytag::Error::from)?),
        }
    }
}

/// What went wrong with standard output. A reader that has gone away is no fault; a full disk behind it
/// is the user's to mend.
fn stdout_error(error: io::Error) -> anyhow::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return error.into();
    }
    polytag::Error::from(StorageError::io(Path::new("standard output"), "write")(error)).into()
}

/// Prints `value` as JSON for a program to read.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print_text(&json_text(value)?)
}

/// `value` as JSON, with a line break at the end.
pub(crate) fn json_text(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Prints text for a person to read.
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(stdout_error)
}

/// Writes `text` to a file that appears whole; `inputs` are refused as that file, or as its folder.
pub(crate) fn write_file(path: &Path, text: &str, inputs: &[&Path]) -> Result<(), polytag::Error> {
    let mut file = StagedFile::create(path, inputs)?;
    file.sink().write(text.as_bytes())?;
    Ok(file.commit()?)
}

/// Whether a path is `-`, which means standard input or output. A file of that name is `./-`.
pub(crate) fn is_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes text to a file, or prints it where the path is `-`.
pub(crate) fn write_or_print(path: &Path, text: &str, inputs: &[&Path]) -> anyhow::Result<()> {
    if is_stream(path) { print_text(text) } else { Ok(write_file(path, text, inputs)?) }
}

/// The whole content of a file that is small by nature.
pub(crate) fn read_text(path: &PathBuf) -> Result<String, polytag::Error> {
    std::fs::read_to_string(path).map_err(|error| StorageError::io(path, "read")(error).into())
}
