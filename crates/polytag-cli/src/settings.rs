//! What holds for every command: threads, limits, how progress is shown, how work is stopped.

use std::path::Path;
use std::process;

use clap::Args;
use polytag::data::{ReadOptions, Task};
use polytag::metric::Watch;
use polytag::progress::{Progress, Stop};
use polytag::storage::DEFAULT_MAX_LINE;

use crate::failure::user_error;
use crate::progress::{self, ProgressStyle};

/// More threads than any machine can use, and few enough to start.
const MOST_THREADS: usize = 1024;

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    /// Threads to work with; 0 means one a core
    #[arg(long, global = true, default_value_t = 0, value_name = "N")]
    threads: usize,
    /// Longest line that is read, in MiB
    #[arg(long, global = true, default_value_t = DEFAULT_MAX_LINE >> 20, value_name = "N")]
    max_line_mib: usize,
    /// Show no progress
    #[arg(long, short, global = true)]
    quiet: bool,
}

/// What a command works with.
pub(crate) struct Session {
    pub(crate) progress: Box<dyn Progress>,
    pub(crate) stop: Stop,
    pub(crate) read: ReadOptions,
}

impl Session {
    pub(crate) fn start(settings: &Settings) -> anyhow::Result<Session> {
        if settings.max_line_mib == 0 || settings.max_line_mib > 1023 {
            return Err(user_error("--max-line-mib must be from 1 to 1023"));
        }
        if settings.threads > MOST_THREADS {
            return Err(user_error(format!("--threads must be from 0 to {MOST_THREADS}")));
        }
        rayon::ThreadPoolBuilder::new().num_threads(settings.threads).build_global()?;
        let stop = Stop::default();
        let asked = stop.clone();
        ctrlc::set_handler(move || {
            if asked.is_asked() {
                process::exit(130); // Asked twice: at once.
            }
            asked.ask();
        })?;
        let style = if settings.quiet { ProgressStyle::Quiet } else { ProgressStyle::for_stderr() };
        let mut read = ReadOptions::with_spool(std::env::temp_dir());
        read.max_line = settings.max_line_mib << 20;
        Ok(Session { progress: progress::shown(style), stop, read })
    }

    pub(crate) fn watch(&self) -> Watch<'_> {
        Watch { progress: self.progress.as_ref(), stop: &self.stop }
    }

    pub(crate) fn task(&self, dir: &Path) -> Result<Task, polytag::Error> {
        Ok(Task::open(dir, &self.read)?)
    }
}
