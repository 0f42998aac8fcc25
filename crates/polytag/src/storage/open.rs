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

    /// What the first bytes of a file say.
    fn from_head(head: &[u8]) -> Compression {
        let all = [Compression::Gzip, Compression::Zstd, Compression::Lz4];
        all.into_iter().find(|found| head.starts_with(found.magic())).unwrap_or(Compression::Plain)
    }

    /// How such a file starts.
    fn magic(self) -> &'static [u8] {
        match self {
            Compression::Plain => &[],
            Compression::Gzip => &[0x1f, 0x8b],
            Compression::Zstd => &[0x28, 0xb5, 0x2f, 0xfd],
            Compression::Lz4 => &[0x04, 0x22, 0x4d, 0x18],
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
    let found = Compression::from_head(head);
    let promised = Compression::from_name(path);
    if promised != Compression::Plain && promised != found {
        if promised.magic().starts_with(head) {
            return Err(StorageError::Truncated { path: path.to_owned(), format: promised.name() });
        }
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
        Compression::Lz4 => buffered(Lz4Decoder::new(input)),
    })
}

fn buffered(read: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(1 << 16, read))
}

/// LZ4 frames, one after the other, to the end of the last.
///
/// The decoder of `lz4_flex` stops behind the first frame, and takes a file that ends between two
/// blocks for a whole one. Here the bytes that it reads are followed by a [`FrameTrail`], which
/// knows whether they ended with a frame.
struct Lz4Decoder<R: BufRead>(lz4_flex::frame::FrameDecoder<Followed<R>>);

impl<R: BufRead> Lz4Decoder<R> {
    fn new(input: R) -> Lz4Decoder<R> {
        let followed = Followed { input, trail: FrameTrail::default() };
        Lz4Decoder(lz4_flex::frame::FrameDecoder::new(followed))
    }
}

impl<R: BufRead> Read for Lz4Decoder<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(out)?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            // Nothing: a frame has ended, or an empty block, or the file.
            let followed = self.0.get_mut();
            if followed.input.fill_buf()?.is_empty() {
                let ended = followed.trail.is_between_frames();
                return if ended { Ok(0) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }
}

/// The bytes of a file, followed frame by frame.
struct Followed<R> {
    input: R,
    trail: FrameTrail,
}

impl<R: BufRead> Read for Followed<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(out)?;
        self.trail.follow(&out[..read]);
        Ok(read)
    }
}

/// Where in an LZ4 frame a reader stands: bytes of one part of it after the other go by.
///
/// The parts are those of the LZ4 Frame Format Description, version 1.6.4.
struct FrameTrail {
    part: FramePart,
    /// Bytes of the part that are still to come.
    left: usize,
    /// The last four bytes of a part that has a meaning here, as a little-endian number.
    word: u32,
    flags: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FramePart {
    /// The magic number and the flags.
    Start,
    /// The rest of the header.
    Header,
    /// The size of a block; zero behind the last.
    BlockSize,
    /// A block and its checksum.
    Block,
    /// The checksum of the content.
    Checksum,
}

impl FrameTrail {
    const START: usize = 5;

    fn is_between_frames(&self) -> bool {
        self.part == FramePart::Start && self.left == Self::START
    }

    fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.left));
            bytes = later;
            self.left -= now.len();
            if matches!(self.part, FramePart::Start | FramePart::BlockSize) {
                self.word = now.iter().fold(self.word, |word, &byte| word >> 8 | u32::from(byte) << 24);
            }
            while self.left == 0 {
                (self.part, self.left) = self.next_part();
            }
        }
    }

    /// The part behind the one that has ended, and its size.
    fn next_part(&mut self) -> (FramePart, usize) {
        if self.part == FramePart::Start {
            [.., self.flags] = self.word.to_le_bytes();
        }
        let sized = |bit: u8, size: usize| if self.flags & bit == 0 { 0 } else { size };
        match self.part {
            // The largest block and the header's checksum; perhaps a content size and a dictionary.
            FramePart::Start => (FramePart::Header, 2 + sized(0x08, 8) + sized(0x01, 4)),
            FramePart::BlockSize if self.word == 0 => match sized(0x04, 4) {
                0 => (FramePart::Start, Self::START),
                size => (FramePart::Checksum, size),
            },
            // The highest bit says that the block is not compressed.
            FramePart::BlockSize => (FramePart::Block, (self.word & 0x7fff_ffff) as usize + sized(0x10, 4)),
            FramePart::Header | FramePart::Block => (FramePart::BlockSize, 4),
            FramePart::Checksum => (FramePart::Start, Self::START),
        }
    }
}

impl Default for FrameTrail {
    fn default() -> FrameTrail {
        FrameTrail { part: FramePart::Start, left: FrameTrail::START, word: 0, flags: 0 }
    }
}

/// Gives an error that a reader from [`open`] returned its place and meaning.
pub fn decode_error(path: &Path, error: io::Error) -> StorageError {
    let format = File::open(path)
        .and_then(|file| {
            let mut head = Vec::new();
            file.take(4).read_to_end(&mut head)?;
            Ok(Compression::from_head(&head))
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
    Sink::into_open(file, Compression::from_name(path), shown)
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
    /// Writes into a file that is open; `shown` is what errors call it.
    pub(super) fn into_open(
        file: File,
        compression: Compression,
        shown: &Path,
    ) -> Result<Sink, StorageError> {
        let encoder = match compression {
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

    /// Writes what is left, where there may be no disk behind it: a pipe, a device, a descriptor.
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

/// For writers of formats that make bytes on their own.
impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut self.out, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Text that does not shrink to nothing.
    fn text(lines: usize) -> Vec<u8> {
        (0..lines).flat_map(|n| format!("{n} {:x}\n", n.wrapping_mul(2_654_435_761)).into_bytes()).collect()
    }

    fn lz4(content: &[u8], checksums: bool) -> Vec<u8> {
        let info = lz4_flex::frame::FrameInfo::new()
            .block_size(lz4_flex::frame::BlockSize::Max64KB)
            .block_checksums(checksums)
            .content_checksum(checksums);
        let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn compressed(name: &str, content: &[u8]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let mut sink = create(&path).unwrap();
        sink.write(content).unwrap();
        sink.finish().unwrap();
        std::fs::read(path).unwrap()
    }

    /// Reads `bytes` as a file of this name.
    fn read(name: &str, bytes: &[u8]) -> Result<Vec<u8>, StorageError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        read_bounded(&path, 1 << 30)
    }

    fn assert_truncated(name: &str, whole: &[u8], at: usize) {
        let read = read(name, &whole[..at]);
        assert!(matches!(read, Err(StorageError::Truncated { .. })), "{name} cut at {at}: {read:?}");
    }

    #[test]
    fn a_small_file_cut_anywhere_is_not_taken_for_whole() {
        for name in ["x.gz", "x.zst", "x.lz4"] {
            let content = text(20);
            let whole = compressed(name, &content);
            assert_eq!(read(name, &whole).unwrap(), content);
            (0..whole.len()).for_each(|at| assert_truncated(name, &whole, at));
            // Without the name's promise the first bytes have to be there.
            (4..whole.len()).for_each(|at| assert_truncated("x", &whole, at));
        }
    }

    #[test]
    fn frames_and_members_are_read_to_the_last() {
        for name in ["x.gz", "x.zst", "x.lz4"] {
            let parts = [text(5), Vec::new(), text(50)];
            let [first, second, third] = parts.each_ref().map(|part| compressed(name, part));
            let whole = [first.clone(), second.clone(), third].concat();
            assert_eq!(read(name, &whole).unwrap(), parts.concat());
            // A cut between two of them leaves a whole file; any other does not.
            for at in (1..whole.len()).filter(|at| ![first.len(), first.len() + second.len()].contains(at)) {
                let read = read(name, &whole[..at]);
                assert!(read.is_err(), "{name} cut at {at}");
            }
        }
    }

    #[test]
    fn lz4_cut_between_blocks_is_not_taken_for_whole() {
        for checksums in [false, true] {
            let content = text(20_000);
            let whole = lz4(&content, checksums);
            assert_eq!(read("x.lz4", &whole).unwrap(), content);
            let mut blocks = 0;
            let mut at = 7;
            loop {
                let size = u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) & 0x7fff_ffff;
                // Before the size of a block, in it, behind it, and in the block.
                (at..at + 6)
                    .filter(|&at| at < whole.len())
                    .for_each(|at| assert_truncated("x.lz4", &whole, at));
                if size == 0 {
                    break;
                }
                blocks += 1;
                at += 4 + size as usize + if checksums { 4 } else { 0 };
            }
            assert!(blocks > 3, "{blocks} blocks");
        }
    }

    #[test]
    fn an_empty_block_ends_no_lz4_file() {
        let content = text(3);
        let whole = lz4(&content, false);
        let empty = 0x8000_0000u32.to_le_bytes();
        let with_empty = [&whole[..7], &empty[..], &whole[7..]].concat();
        assert_eq!(read("x.lz4", &with_empty).unwrap(), content);
    }

    #[test]
    fn a_name_may_not_promise_what_the_content_is_not() {
        for name in ["x.gz", "x.zst", "x.lz4"] {
            assert!(matches!(read(name, b"plain"), Err(StorageError::BadCompression { .. })));
        }
        assert_eq!(read("x.txt", b"").unwrap(), b"");
    }
}
