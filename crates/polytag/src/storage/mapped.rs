//! A file as memory: its pages are read when they are looked at, and given back when memory is short.

#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

use super::StorageError;

/// The bytes of a file that nobody changes.
#[derive(Debug)]
pub struct Mapped(Mmap);

impl Mapped {
    /// Maps a file that is open, whatever has its name by now; `path` is what errors call it.
    ///
    /// The file must not be written to or cut short while it is mapped. Files of model folders never are: a folder is
    /// replaced by another one, and the pages of the old one live as long as somebody holds them.
    ///
    /// # Errors
    /// If it cannot be mapped.
    pub(crate) fn of(file: &File, path: &Path) -> Result<Mapped, StorageError> {
        // SAFETY: the map is read-only, and whoever maps a file vouches that nobody changes it, as said above.
        let map = unsafe { Mmap::map(file) }.map_err(StorageError::io(path, "map"))?;
        Ok(Mapped(map))
    }

    /// Maps the file at `path`.
    #[cfg(test)]
    pub(crate) fn open(path: &Path) -> Result<Mapped, StorageError> {
        Mapped::of(&File::open(path).map_err(StorageError::io(path, "open"))?, path)
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_replaced_stays_as_it_was_mapped() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&path, b"before").unwrap();
        let mapped = Mapped::open(&path).unwrap();
        std::fs::write(&other, b"afterwards").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(&mapped[..], b"before");
        assert_eq!(&Mapped::open(&path).unwrap()[..], b"afterwards");
        std::fs::write(&other, b"").unwrap();
        assert!(Mapped::open(&other).unwrap().is_empty());
        assert!(Mapped::open(&dir.path().join("c")).is_err());
    }
}
