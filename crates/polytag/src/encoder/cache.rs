//! The folders that were pulled, and how names lead to them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::catalogue::{CATALOGUE, KnownEncoder};
use super::error::EncoderError;
use super::folder::{self, is_plain_name};
use super::source::Source;
use super::word_vectors::WordVectors;

/// Encoders on the disk, one folder each, shared by all runs.
///
/// ```no_run
/// use polytag::encoder::EncoderCache;
/// let cache = EncoderCache::new("cache/encoders");
/// let folder = cache.locate("minilm")?; // or "owner/name", or "path/to/a/folder"
/// # Ok::<(), polytag::encoder::EncoderError>(())
/// ```
#[derive(Clone, Debug)]
pub struct EncoderCache {
    root: PathBuf,
    known: &'static [KnownEncoder],
}

/// An encoder that can be asked for.
#[derive(Clone, Debug, Serialize)]
pub struct ListedEncoder {
    /// What it is asked for by.
    pub name: String,
    /// What it is; empty for those that polytag knows nothing of.
    pub about: String,
    /// Numbers in an embedding.
    pub dimension: Option<usize>,
    /// Tokens it reads of a text, if there is a limit.
    pub max_tokens: Option<usize>,
    /// What it takes on the disk.
    pub bytes: u64,
    /// The licence of the weights, where it is known.
    pub license: Option<String>,
    /// Where it lies, if it is here.
    pub folder: Option<PathBuf>,
}

/// What a name stands for.
pub(super) enum Named {
    Known(&'static KnownEncoder),
    /// `owner/name` on the model hub.
    Hub(String),
}

impl EncoderCache {
    /// The cache in the folder `root`, which need not be there yet.
    pub fn new(root: impl Into<PathBuf>) -> EncoderCache {
        EncoderCache::with_catalogue(root, CATALOGUE)
    }

    /// A cache that knows other encoders by name.
    pub fn with_catalogue(root: impl Into<PathBuf>, known: &'static [KnownEncoder]) -> EncoderCache {
        EncoderCache { root: root.into(), known }
    }

    /// The folder that the encoders lie in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of an encoder that is a network, for those who train or run one. Word vectors are an error; who can
    /// do with them asks [`locate_any`](EncoderCache::locate_any).
    pub fn locate(&self, name_or_path: &str) -> Result<PathBuf, EncoderError> {
        let folder = self.locate_any(name_or_path)?;
        match WordVectors::are_in(&folder) {
            true => Err(EncoderError::WordVectors { name: name_or_path.to_owned() }),
            false => Ok(folder),
        }
    }

    /// Whether a name or a path leads to word vectors that are here.
    pub fn has_word_vectors(&self, name_or_path: &str) -> bool {
        self.locate_any(name_or_path).is_ok_and(|folder| WordVectors::are_in(&folder))
    }

    /// The folder of an encoder, network or word vectors.
    ///
    /// A known name comes first, then a folder on this machine, then a name on the hub: a folder that
    /// is called like a known encoder is meant by `./minilm`. Pulled files are checked by their sizes
    /// only, as this is done at every start; [`pull`](super::pull()) reads them whole.
    pub fn locate_any(&self, name_or_path: &str) -> Result<PathBuf, EncoderError> {
        let path = Path::new(name_or_path);
        let named = self.named(name_or_path);
        if !matches!(named, Some(Named::Known(_))) && path.is_dir() {
            folder::check(path)?;
            return Ok(path.to_owned());
        }
        let named = named.ok_or_else(|| self.unknown(name_or_path))?;
        let folder = self.folder_of(&named);
        let name = || name_or_path.to_owned();
        if !folder.is_dir() {
            return Err(EncoderError::NotHere { name: name(), folder: self.root.clone() });
        }
        let problem = match self.source_of(&named) {
            Some(source) => source.problem(&folder),
            None => Some("it was not pulled whole".to_owned()),
        };
        match problem {
            Some(problem) => Err(EncoderError::Damaged { name: name(), folder, problem }),
            None => Ok(folder),
        }
    }

    /// The known encoders, then those from the hub that are here, each in order.
    pub fn list(&self) -> Vec<ListedEncoder> {
        let known = self.known.iter().map(|encoder| ListedEncoder {
            name: encoder.name.to_owned(),
            about: encoder.about.to_owned(),
            dimension: Some(encoder.dimension),
            max_tokens: encoder.max_tokens,
            bytes: encoder.bytes(),
            license: Some(encoder.license.to_owned()),
            folder: self.locate_any(encoder.name).ok(),
        });
        let mut others: Vec<ListedEncoder> = self.pulled_from_hub().collect();
        others.sort_by(|a, b| a.name.cmp(&b.name));
        known.chain(others).collect()
    }

    fn pulled_from_hub(&self) -> impl Iterator<Item = ListedEncoder> {
        let folders = fs::read_dir(&self.root).into_iter().flatten().flatten().map(|entry| entry.path());
        folders.filter_map(|folder| {
            let source = Source::read(&folder)?;
            let named = self.named(&source.name)?;
            if !matches!(named, Named::Hub(_)) || self.folder_of(&named) != folder {
                return None;
            }
            let (dimension, max_tokens) = folder::dimensions(&folder);
            let bytes = source.bytes();
            let folder = source.problem(&folder).is_none().then_some(folder);
            let (about, license) = ("from the hub".to_owned(), None);
            Some(ListedEncoder { name: source.name, about, dimension, max_tokens, bytes, license, folder })
        })
    }

    /// What a name stands for, if it is one.
    pub(super) fn named(&self, name: &str) -> Option<Named> {
        let known = self.known.iter().find(|encoder| encoder.name == name);
        known.map(Named::Known).or_else(|| is_hub_name(name).then(|| Named::Hub(name.to_owned())))
    }

    /// The error for something that is no name.
    pub(super) fn unknown(&self, name: &str) -> EncoderError {
        let known = self.known.iter().map(|encoder| encoder.name.to_owned()).collect();
        EncoderError::Unknown { name: name.to_owned(), known }
    }

    /// Where an encoder lies, or would lie.
    pub(super) fn folder_of(&self, named: &Named) -> PathBuf {
        self.root.join(named.folder_name())
    }

    /// What the files of an encoder must be, as far as that is known.
    pub(super) fn source_of(&self, named: &Named) -> Option<Source> {
        match named {
            Named::Known(encoder) => Some(Source::of(encoder)),
            Named::Hub(_) => Source::read(&self.folder_of(named)),
        }
    }
}

impl Named {
    /// The name of its folder. The hub allows no two dashes in a row, so that no two names share one.
    pub(super) fn folder_name(&self) -> String {
        match self {
            Named::Known(encoder) => encoder.name.to_owned(),
            Named::Hub(name) => name.replace('/', "--"),
        }
    }
}

/// Whether this is `owner/name` as the hub allows it.
fn is_hub_name(name: &str) -> bool {
    let is_part = |part: &str| {
        is_plain_name(part) && !part.contains("--") && !part.contains("..") && !part.starts_with('-')
    };
    let mut parts = name.split('/');
    matches!((parts.next(), parts.next(), parts.next()), (Some(owner), Some(name), None) if is_part(owner) && is_part(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::testing;

    #[test]
    fn names_of_the_hub_are_told_from_paths() {
        for name in ["a/b", "sentence-transformers/all-MiniLM-L6-v2", "x_1/y.2"] {
            assert!(is_hub_name(name), "{name}");
        }
        for name in
            ["a", "/a", "a/", "./a", "../a", "a/..", "a/b/c", "a--b/c", "a b/c", "~/a", "-a/b", "a\\b/c", ""]
        {
            assert!(!is_hub_name(name), "{name}");
        }
    }

    #[test]
    fn what_is_not_here_says_how_to_get_it() {
        let dir = tempfile::tempdir().unwrap();
        let cache = EncoderCache::new(dir.path());
        let told = |name: &str| cache.locate(name).unwrap_err().to_string();
        assert!(told("minilm").ends_with("fetch it with `polytag encoders pull minilm`"));
        assert!(told("some/one").ends_with("fetch it with `polytag encoders pull some/one`"));
        let unknown = told("bert");
        assert!(unknown.contains("\"bert\"") && unknown.contains("minilm, mpnet, glove"), "{unknown}");
        assert!(cache.list().iter().all(|listed| listed.folder.is_none()));
        assert_eq!(cache.list().len(), 3);
    }

    #[test]
    fn word_vectors_are_given_to_those_who_can_do_with_them() {
        let dir = tempfile::tempdir().unwrap();
        let cache = EncoderCache::new(dir.path().join("cache"));
        let own = dir.path().join("own");
        testing::write_files(&own, &[("words.txt", b"tea\n"), ("word_vectors.safetensors", b"")]);
        let name = own.to_str().unwrap();
        assert_eq!(cache.locate_any(name).unwrap(), own);
        assert!(cache.has_word_vectors(name) && !cache.has_word_vectors("minilm"));
        let error = cache.locate(name).unwrap_err().to_string();
        assert!(error.starts_with(name) && error.contains("no network"), "{error}");
    }

    #[test]
    fn a_folder_of_the_user_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        let cache = EncoderCache::new(dir.path().join("cache"));
        let own = dir.path().join("own");
        testing::write_files(&own, &testing::FILES);
        assert_eq!(cache.locate(own.to_str().unwrap()).unwrap(), own);
        fs::rename(own.join("model.safetensors"), own.join("pytorch_model.bin")).unwrap();
        let error = cache.locate(own.to_str().unwrap()).unwrap_err();
        assert!(matches!(error, EncoderError::PickleOnly { .. }), "{error}");
    }

    #[test]
    fn a_half_folder_in_the_cache_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let cache = EncoderCache::with_catalogue(dir.path(), testing::catalogue_of(&[]));
        testing::write_files(&dir.path().join("tiny"), &testing::FILES[1..]);
        let told = cache.locate("tiny").unwrap_err().to_string();
        assert!(told.contains("config.json is missing") && told.contains("pull tiny"), "{told}");
        testing::write_files(&dir.path().join("tiny"), &testing::FILES);
        assert_eq!(cache.locate("tiny").unwrap(), dir.path().join("tiny"));
        assert!(cache.list()[0].folder.is_some());
    }
}
