//! Lines behind those of a file, on the disk before anybody is told.

use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::StorageError;
use super::staged::sync_folder;

/// Writes `bytes` behind the first `length` bytes of the file at `path`, which is made if it is not there; what stood
/// behind them goes. When this returns, they are on the disk; after an error, the file is as long as it was.
/// Whether it was done: not where the file is shorter than `length`, as somebody else cut it.
///
/// # Errors
/// If the disk refuses.
pub fn append_durably(path: &Path, length: u64, bytes: &[u8]) -> Result<bool, StorageError> {
    let failed = |error| StorageError::io(path, "write")(error);
    let is_new = !path.exists();
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let mut file = opened.map_err(failed)?;
    if file.metadata().map_err(failed)?.len() < length {
        return Ok(false);
    }
    let written = file
        .set_len(length)
        .and_then(|()| file.seek(SeekFrom::Start(length)))
        .and_then(|_| file.write_all(bytes))
        .and_then(|()| file.sync_all())
        .map_err(failed)
        .and_then(|()| match path.parent().filter(|_| is_new) {
            Some(folder) => sync_folder(folder),
            None => Ok(()),
        });
    if written.is_err() {
        // What was not acknowledged must not come back to life.
        let _ = file.set_len(length).and_then(|()| file.sync_all());
    }
    written.map(|()| true)
}
