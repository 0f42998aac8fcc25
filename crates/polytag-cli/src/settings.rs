//! What holds for every command: threads, limits, how progress is shown, how work is stopped.

use std::path::Path;
use std::process;

use clap::{Args, value_parser};
use polytag::data::{ReadOptions, Task};
use polytag::progress::{Progress, Stop, Watch};
use polytag::storage::DEFAULT_MAX_LINE;

use crate::progress::{self, ProgressStyle};

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    /// Threads to work with, at most 512; 0 means one a core
    #[arg(long, global = true, default_value_t = 0, value_name = "N", value_parser = value_parser!(u16).range(..=512))]
    threads: u16,
    /// Longest line that is read, in MiB
    #[arg(long, global = true, default_value_t = (DEFAULT_MAX_LINE >> 20) as u16, value_name = "N",
          value_parser = value_parser!(u16).range(1..=1023))]
    max_line_mib: u16,
    /// Show no progress
    #[arg(long, short, global = true)]
    quiet: bool,
}

/// What a command works with.
pub(crate) struct Session {
    pub(crate) quiet: bool,
    pub(crate) progress: Box<dyn Progress>,
    pub(crate) stop: Stop,
    pub(crate) read: ReadOptions,
}

impl Session {
    pub(crate) fn start(settings: &Settings) -> anyhow::Result<Session> {
        rayon::ThreadPoolBuilder::new().num_threads(settings.threads.into()).build_global()?;
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
        read.max_line = usize::from(settings.max_line_mib) << 20;
        Ok(Session { quiet: settings.quiet, progress: progress::shown(style), stop, read })
    }

    pub(crate) fn watch(&self) -> Watch<'_> {
        Watch { progress: self.progress.as_ref(), stop: &self.stop }
    }

    pub(crate) fn task(&self, dir: &Path) -> Result<Task, polytag::Error> {
        Ok(Task::open(dir, &self.read)?)
    }
}
