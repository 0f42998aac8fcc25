//! Names on the model hub, over HTTP.
//!
//! The hub is asked once what a name holds; the commit in its answer pins everything that follows. Files
//! are fetched in ranges, so that a broken connection goes on where it broke, in this run or the next.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use ureq::{Agent, Body, Proxy, http};

use super::HubConfig;
use super::copy::Copying;
use crate::encoder::error::EncoderError;
use crate::encoder::folder::{
    CONFIG, OPTIONAL, PICKLE, TOKENIZER, WEIGHTS, WEIGHTS_INDEX, is_plain_name, shards,
};
use crate::encoder::source::{CHUNK, Origin, Source, sha256_of};
use crate::progress::{Stage, Watch};
use crate::storage::{StagedFolder, StorageError, read_bounded};

/// What is fetched: the tip of the main line, which the answer pins to a commit.
const REVISION: &str = "main";

const CONNECT: Duration = Duration::from_secs(15);
const ANSWER: Duration = Duration::from_secs(30);
/// A connection that is silent for so long is given up. Being asked to stop waits for this at worst.
const SILENCE: Duration = Duration::from_secs(10);
/// Attempts in a row that bring nothing new.
const VAIN_ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);

const MAX_LISTING: u64 = 16 << 20;
/// The largest tokenizers have about 20 MiB.
const MAX_SMALL: u64 = 256 << 20;
const MAX_WEIGHTS: u64 = 64 << 30;

/// One name on the hub.
pub(super) struct Hub<'a> {
    agent: Agent,
    name: &'a str,
    endpoint: &'a str,
    watch: &'a Watch<'a>,
}

/// What was fetched of a name.
pub(super) struct Fetched {
    revision: String,
    /// Paths in the encoder's folder, and where the files wait.
    files: BTreeMap<String, PathBuf>,
}

/// The hub's answer to what a name holds.
#[derive(Debug, Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Clone, Debug, Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    /// For large files, whose content the hub knows by checksum.
    lfs: Option<Lfs>,
}

#[derive(Clone, Debug, Deserialize)]
struct Lfs {
    sha256: Option<String>,
}

/// Why a file did not come at one attempt.
enum Broken {
    /// Trying again may help.
    Connection(String),
    /// It will not.
    Final(EncoderError),
}

impl From<EncoderError> for Broken {
    fn from(error: EncoderError) -> Broken {
        Broken::Final(error)
    }
}

impl From<StorageError> for Broken {
    fn from(error: StorageError) -> Broken {
        Broken::Final(error.into())
    }
}

impl<'a> Hub<'a> {
    pub(super) fn new(
        name: &'a str,
        config: &'a HubConfig,
        watch: &'a Watch<'a>,
    ) -> Result<Hub<'a>, EncoderError> {
        let endpoint = config.endpoint.trim_end_matches('/');
        let proxy = match config.proxy.as_deref().map(Proxy::new).transpose() {
            Ok(proxy) => proxy,
            Err(error) => {
                let problem = format!("the proxy cannot be used: {error}");
                return Err(EncoderError::HubUnreachable {
                    name: name.to_owned(),
                    endpoint: endpoint.to_owned(),
                    problem,
                });
            }
        };
        let settings = Agent::config_builder()
            .proxy(proxy)
            .http_status_as_error(false)
            .user_agent(concat!("polytag/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .timeout_per_read(Some(SILENCE));
        Ok(Hub { agent: settings.build().into(), name, endpoint, watch })
    }

    /// Fetches what belongs to an encoder into `folder`, going on with what waits there.
    pub(super) fn fetch(&self, folder: &Path) -> Result<Fetched, EncoderError> {
        let listing = self.listing()?;
        if !is_plain_name(&listing.sha) {
            return Err(self.error(format!("{:?} is not a commit", listing.sha)));
        }
        let folder = folder.join(&listing.sha);
        fs::create_dir_all(&folder).map_err(StorageError::io(&folder, "create"))?;
        let by_name: BTreeMap<&str, &Sibling> =
            listing.siblings.iter().map(|sibling| (sibling.rfilename.as_str(), sibling)).collect();
        let mut wanted = self.wanted(&by_name)?;
        let mut files = BTreeMap::new();
        if wanted.remove(WEIGHTS_INDEX) {
            // Which files hold the weights is in the index.
            let index = self.sized_stage(&by_name, &BTreeSet::from([WEIGHTS_INDEX.to_owned()]));
            let path = self.file(by_name[WEIGHTS_INDEX], &listing.sha, &folder, &index)?;
            index.finish();
            let names = shards(&read_bounded(&path, MAX_SMALL)?).map_err(|problem| self.error(problem))?;
            if let Some(missing) = names.iter().find(|name| !by_name.contains_key(name.as_str())) {
                return Err(self.error(format!("{WEIGHTS_INDEX} names {missing}, which is not there")));
            }
            wanted.extend(names);
            files.insert(WEIGHTS_INDEX.to_owned(), path);
        }
        let stage = self.sized_stage(&by_name, &wanted);
        for name in wanted {
            let path = self.file(by_name[name.as_str()], &listing.sha, &folder, &stage)?;
            files.insert(name, path);
        }
        stage.finish();
        Ok(Fetched { revision: listing.sha, files })
    }

    /// Puts what was fetched into the staged folder; tells where it came from.
    pub(super) fn place(&self, fetched: &Fetched, staged: &StagedFolder) -> Result<Source, EncoderError> {
        let stage = Stage::start(self.watch.progress, "copying bytes", None);
        let copying = Copying { stage: &stage, stop: self.watch.stop };
        let mut files = BTreeMap::new();
        for (name, path) in &fetched.files {
            let input = File::open(path).map_err(StorageError::io(path, "open"))?;
            let read_error = |error| StorageError::io(path, "read")(error).into();
            let record = copying.copy(input, staged.file(name)?, MAX_WEIGHTS, read_error)?;
            files.insert(name.clone(), record);
        }
        stage.finish();
        let origin = Origin::Hub { endpoint: self.endpoint.to_owned(), revision: fetched.revision.clone() };
        Ok(Source { name: self.name.to_owned(), origin, files })
    }

    /// The files that make an encoder's folder; for weights in several files, their index stands for them.
    fn wanted(&self, listed: &BTreeMap<&str, &Sibling>) -> Result<BTreeSet<String>, EncoderError> {
        let has = |name: &str| listed.contains_key(name);
        let weights = match [WEIGHTS, WEIGHTS_INDEX].into_iter().find(|name| has(name)) {
            Some(weights) => weights,
            None if has(PICKLE) => return Err(EncoderError::PickleOnly { place: self.name.to_owned() }),
            None => return Err(self.error(format!("it has neither {WEIGHTS} nor {WEIGHTS_INDEX}"))),
        };
        if let Some(missing) = [CONFIG, TOKENIZER].into_iter().find(|name| !has(name)) {
            return Err(self.error(format!("it has no {missing}")));
        }
        let optional = OPTIONAL.into_iter().filter(|name| has(name));
        Ok([weights, CONFIG, TOKENIZER].into_iter().chain(optional).map(str::to_owned).collect())
    }

    fn sized_stage(&self, listed: &BTreeMap<&str, &Sibling>, names: &BTreeSet<String>) -> Stage<'a> {
        let sizes = names.iter().map(|name| listed[name.as_str()].size);
        let total = sizes.sum::<Option<u64>>();
        Stage::start(self.watch.progress, "fetching bytes", total)
    }

    fn listing(&self) -> Result<Listing, EncoderError> {
        let url = format!("{}/api/models/{}/revision/{REVISION}?blobs=true", self.endpoint, self.name);
        let read = || -> Result<Vec<u8>, Broken> {
            let mut answer = self.get(&url, 0)?;
            let body = answer.body_mut().with_config().limit(MAX_LISTING).read_to_vec();
            body.map_err(|error| Broken::Connection(error.to_string()))
        };
        let bytes = read().map_err(|broken| match broken {
            Broken::Connection(problem) => self.unreachable(problem),
            Broken::Final(error) => error,
        })?;
        serde_json::from_slice(&bytes)
            .map_err(|error| self.error(format!("the answer is not what a hub says: {error}")))
    }

    /// Fetches one file, or the rest of it; where it waits then.
    fn file(
        &self,
        sibling: &Sibling,
        revision: &str,
        folder: &Path,
        stage: &Stage<'_>,
    ) -> Result<PathBuf, EncoderError> {
        let name = &sibling.rfilename;
        let path = folder.join(name.replace('/', "--"));
        let part = folder.join(format!("{}.part", name.replace('/', "--")));
        if path.is_file() {
            stage.advance(size_of(&path));
            return Ok(path);
        }
        let url = format!("{}/{}/resolve/{revision}/{name}", self.endpoint, self.name);
        let mut furthest = size_of(&part);
        stage.advance(furthest);
        let mut vain = 0;
        loop {
            let error = match self.attempt(&url, &part, sibling, stage) {
                Ok(()) => break,
                Err(Broken::Final(error)) => return Err(error),
                Err(Broken::Connection(error)) => error,
            };
            let now = size_of(&part);
            vain = if now > furthest { 0 } else { vain + 1 };
            furthest = furthest.max(now);
            if vain == VAIN_ATTEMPTS {
                return Err(self.unreachable(error));
            }
            thread::sleep(PAUSE * vain);
        }
        self.check(sibling, &part)?;
        fs::rename(&part, &path).map_err(StorageError::io(&path, "create"))?;
        Ok(path)
    }

    /// Asks for the rest of a file and writes what comes behind what is there.
    fn attempt(&self, url: &str, part: &Path, sibling: &Sibling, stage: &Stage<'_>) -> Result<(), Broken> {
        let limit = if sibling.rfilename.ends_with(".safetensors") { MAX_WEIGHTS } else { MAX_SMALL };
        let too_large = || self.error(format!("{} is larger than such a file may be", sibling.rfilename));
        if sibling.size.is_some_and(|size| size > limit) {
            return Err(too_large().into());
        }
        let start = size_of(part);
        if start > 0 && sibling.size == Some(start) {
            return Ok(());
        }
        let answer = self.get(url, start)?;
        let Some(Extent { start: mut came, total }) = Extent::of(&answer, start) else {
            // What waits here is not the beginning of what is there.
            let _ = fs::remove_file(part);
            return Err(Broken::Connection(format!("it answers {} to a range", answer.status())));
        };
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(came > 0).truncate(came == 0);
        let mut file = options.open(part).map_err(StorageError::io(part, "create"))?;
        let (mut body, mut buffer) = (answer.into_body().into_reader(), vec![0; CHUNK]);
        loop {
            if self.watch.stop.is_asked() {
                return Err(EncoderError::Stopped.into());
            }
            let read = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Broken::Connection(error.to_string())),
            };
            came += read as u64;
            if came > limit {
                return Err(too_large().into());
            }
            file.write_all(&buffer[..read]).map_err(StorageError::io(part, "write"))?;
            stage.advance(read as u64);
        }
        match total.or(sibling.size) {
            Some(total) if came < total => {
                Err(Broken::Connection(format!("{} ended after {came} of {total} bytes", sibling.rfilename)))
            }
            _ => Ok(()),
        }
    }

    /// Makes sure that a file is what the hub listed. A wrong one is removed.
    fn check(&self, sibling: &Sibling, part: &Path) -> Result<(), EncoderError> {
        let bytes = size_of(part);
        let wrong_size = sibling.size.filter(|&size| size != bytes);
        let listed_sum = sibling.lfs.as_ref().and_then(|lfs| lfs.sha256.as_deref());
        let (expected, found) = match (wrong_size, listed_sum) {
            (Some(size), _) => (format!("{size} bytes"), format!("it has {bytes} bytes")),
            (None, None) => return Ok(()),
            (None, Some(listed)) => match sha256_of(part, self.watch.stop)? {
                sum if sum == listed => return Ok(()),
                sum => (format!("sha256 {listed}"), format!("its sha256 is {sum}")),
            },
        };
        fs::remove_file(part).map_err(StorageError::io(part, "remove"))?;
        Err(EncoderError::Mismatch { file: sibling.rfilename.clone(), expected, found })
    }

    /// Asks for `url` from byte `start` on. Answers that hold no content are errors.
    fn get(&self, url: &str, start: u64) -> Result<http::Response<Body>, Broken> {
        if self.watch.stop.is_asked() {
            return Err(EncoderError::Stopped.into());
        }
        let mut request = self.agent.get(url);
        if start > 0 {
            request = request.header("Range", format!("bytes={start}-"));
        }
        let answer = request.call().map_err(|error| Broken::Connection(error.to_string()))?;
        match answer.status().as_u16() {
            200 | 206 | 416 => Ok(answer),
            status @ (401 | 403 | 404) => Err(Broken::Final(EncoderError::NotOnHub {
                name: self.name.to_owned(),
                endpoint: self.endpoint.to_owned(),
                status,
            })),
            status => Err(Broken::Connection(format!("it answers {status}"))),
        }
    }

    fn unreachable(&self, problem: String) -> EncoderError {
        EncoderError::HubUnreachable {
            name: self.name.to_owned(),
            endpoint: self.endpoint.to_owned(),
            problem,
        }
    }

    fn error(&self, problem: String) -> EncoderError {
        EncoderError::Hub { name: self.name.to_owned(), endpoint: self.endpoint.to_owned(), problem }
    }
}

/// What part of a file an answer holds.
struct Extent {
    /// Its first byte.
    start: u64,
    /// The size of the whole file, where it is told.
    total: Option<u64>,
}

impl Extent {
    /// `None` where the answer holds neither the whole file nor the rest of it from `asked` on.
    fn of(answer: &http::Response<Body>, asked: u64) -> Option<Extent> {
        let header = |name: &str| answer.headers().get(name)?.to_str().ok();
        match answer.status().as_u16() {
            200 => {
                let total = header("content-length").and_then(|length| length.parse().ok());
                Some(Extent { start: 0, total })
            }
            206 => {
                let (range, total) = header("content-range")?.strip_prefix("bytes ")?.split_once('/')?;
                let start: u64 = range.split('-').next()?.parse().ok()?;
                (start == asked).then(|| Extent { start, total: total.parse().ok() })
            }
            _ => None,
        }
    }
}

/// The size of a file; nothing where there is none.
fn size_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |data| data.len())
}
