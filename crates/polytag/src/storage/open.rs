//! Opening files for reading and writing, whatever they are compressed with.
//!
//! The content decides, not the name: a gzip, zstd or lz4 frame is known by its first bytes. A
//! name that promises compression the content does not have is an error.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use super::error::StorageError;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    Plain,
    /// gzip, `.gz`.
    Gzip,
    /// Zstandard, `.zst`.
    Zstd,
    /// LZ4 frames, `.lz4`.
    Lz4,
}

impl Compression {
    /// What the name of a file promises.
    pub fn from_name(path: &Path) -> Compression {
        match path.extension().and_then(|ext| ext.to_str()) {
            Some("gz") => Compression::Gzip,
            Some("zst") => Compression::Zstd,
            Some("lz4") => Compression::Lz4,
            _ => Compression::Plain,
        }
    }

    fn from_magic(head: &[u8]) -> Compression {
        match head {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            [0x04, 0x22, 0x4d, 0x18, ..] => Compression::Lz4,
            _ => Compression::Plain,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Compression::Plain => "plain",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Lz4 => "lz4",
        }
    }
}

/// The names under which `name` may lie in `dir`: plain, `.gz` and `.zst`; those that exist.
pub fn compressed_variants(dir: &Path, name: &str) -> Vec<PathBuf> {
    ["", ".gz", ".zst"]
        .iter()
        .map(|ext| dir.join(format!("{name}{ext}")))
        .filter(|path| path.is_file())
        .collect()
}

/// An error, unless `dir` is a folder; `action` is what was to be done with it.
pub fn require_folder(dir: &Path, action: &'static str) -> Result<(), StorageError> {
    let found = std::fs::metadata(dir).and_then(|metadata| match metadata.is_dir() {
        true => Ok(()),
        false => Err(io::ErrorKind::NotADirectory.into()),
    });
    found.map_err(StorageError::io(dir, action))
}

/// Opens `path` for reading, decompressing on the way.
///
/// Errors of the decoder surface from `read` as [`io::Error`]; [`decode_error`] gives them their
/// place. Memory: the decoder's window, 8 MiB for zstd at its default levels.
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, StorageError> {
    let file = File::open(path).map_err(StorageError::io(path, "open"))?;
    let mut input = BufReader::with_capacity(1 << 16, file);
    let head = input.fill_buf().map_err(StorageError::io(path, "read"))?;
    let found = Compression::from_magic(head);
    let promised = Compression::from_name(path);
    if promised != Compression::Plain && promised != found && !head.is_empty() {
        return Err(StorageError::BadCompression {
            path: path.to_owned(),
            format: promised.name(),
            detail: "the file does not start like one".to_owned(),
        });
    }
    Ok(match found {
        Compression::Plain => Box::new(input),
        Compression::Gzip => buffered(flate2::bufread::MultiGzDecoder::new(input)),
        Compression::Zstd => {
            buffered(zstd::stream::read::Decoder::with_buffer(input).map_err(StorageError::io(path, "read"))?)
        }
        Compression::Lz4 => buffered(lz4_flex::frame::FrameDecoder::new(input)),
    })
}

fn buffered(read: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(1 << 16, read))
}

/// Gives an error that a reader from [`open`] returned its place and meaning.
pub fn decode_error(path: &Path, error: io::Error) -> StorageError {
    let format = File::open(path)
        .and_then(|file| {
            let mut head = Vec::new();
            file.take(4).read_to_end(&mut head)?;
            Ok(Compression::from_magic(&head))
        })
        .unwrap_or(Compression::Plain);
    if format == Compression::Plain || error.raw_os_error().is_some() {
        return StorageError::Io { path: path.to_owned(), action: "read", source: error };
    }
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return StorageError::Truncated { path: path.to_owned(), format: format.name() };
    }
    StorageError::BadCompression { path: path.to_owned(), format: format.name(), detail: error.to_string() }
}

/// Reads a whole file, decompressed, as long as it is at most `limit` bytes.
pub fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, StorageError> {
    let mut bytes = Vec::new();
    open(path)?.take(limit + 1).read_to_end(&mut bytes).map_err(|error| decode_error(path, error))?;
    if bytes.len() as u64 > limit {
        return Err(StorageError::FileTooLarge { path: path.to_owned(), limit });
    }
    Ok(bytes)
}

/// Creates `path` for writing, compressed as its name says. Call the result's
/// [`finish`](Sink::finish): dropping it loses the tail.
pub fn create(path: &Path) -> Result<Sink, StorageError> {
    create_as(path, path)
}

/// Creates `path` for writing, under another name in errors.
pub(super) fn create_as(path: &Path, shown: &Path) -> Result<Sink, StorageError> {
    let file = File::create(path).map_err(StorageError::io(shown, "create"))?;
    let encoder = match Compression::from_name(path) {
        Compression::Zstd => {
            let encoder =
                zstd::stream::write::Encoder::new(file, 9).map_err(StorageError::io(shown, "create"))?;
            Encoder::Zstd(encoder)
        }
        Compression::Gzip => {
            Encoder::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default()))
        }
        Compression::Lz4 => Encoder::Lz4(lz4_flex::frame::FrameEncoder::new(file)),
        Compression::Plain => Encoder::Plain(file),
    };
    Ok(Sink { path: shown.to_owned(), out: BufWriter::with_capacity(1 << 16, encoder) })
}

/// A file being written.
pub struct Sink {
    path: PathBuf,
    out: BufWriter<Encoder>,
}

enum Encoder {
    Plain(File),
    Gzip(flate2::write::GzEncoder<File>),
    Zstd(zstd::stream::write::Encoder<'static, File>),
    Lz4(lz4_flex::frame::FrameEncoder<File>),
}

impl Sink {
    /// Writes all of `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.out.write_all(bytes).map_err(StorageError::io(&self.path, "write"))
    }

    /// Writes `value` as one line of JSON.
    pub fn write_json_line(&mut self, value: &impl serde::Serialize) -> Result<(), StorageError> {
        serde_json::to_writer(&mut self.out, value)
            .map_err(io::Error::from)
            .and_then(|()| self.out.write_all(b"\n"))
            .map_err(StorageError::io(&self.path, "write"))
    }

    /// Writes what is left and sees it onto the disk.
    pub fn finish(self) -> Result<(), StorageError> {
        let path = self.path.clone();
        self.close().and_then(|file| file.sync_all().map_err(StorageError::io(&path, "write")))
    }

    /// Writes what is left, where there is no disk behind it: a pipe or a device.
    pub(super) fn finish_unsynced(self) -> Result<(), StorageError> {
        self.close().map(drop)
    }

    fn close(self) -> Result<File, StorageError> {
        let Sink { path, out } = self;
        out.into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|encoder| match encoder {
                Encoder::Plain(file) => Ok(file),
                Encoder::Gzip(encoder) => encoder.finish(),
                Encoder::Zstd(encoder) => encoder.finish(),
                Encoder::Lz4(encoder) => encoder.finish().map_err(io::Error::other),
            })
            .map_err(StorageError::io(&path, "write"))
    }
}

impl Write for Encoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Encoder::Plain(file) => file.write(bytes),
            Encoder::Gzip(encoder) => encoder.write(bytes),
            Encoder::Zstd(encoder) => encoder.write(bytes),
            Encoder::Lz4(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Plain(file) => file.flush(),
            Encoder::Gzip(encoder) => encoder.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
            Encoder::Lz4(encoder) => encoder.flush(),
        }
    }
}
