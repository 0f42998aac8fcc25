//! What holds for every command: threads, limits, how progress is shown, how work is stopped.

use std::ops::Deref;
use std::path::Path;
use std::process;

use clap::{Args, value_parser};
use polytag::data::{ReadOptions, Task};
use polytag::method;
use polytag::predict::Predictor;
use polytag::progress::{Event, Progress, Stop, Watch};
use polytag::storage::DEFAULT_MAX_LINE;
use polytag_nn::device::Device;

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

    /// The model in a folder, with a word about what its user should know.
    pub(crate) fn model(&self, dir: &Path, device: &Device) -> Result<Loaded<'_>, polytag::Error> {
        let mut loaded = Loaded {
            predictor: method::load(dir, device)?,
            progress: self.progress.as_ref(),
            is_told: false,
        };
        loaded.tell();
        Ok(loaded)
    }

    pub(crate) fn task(&self, dir: &Path) -> Result<Task, polytag::Error> {
        Ok(Task::open(dir, &self.read)?)
    }
}

/// A model that is asked. What its user should know is told when it is loaded or, if it comes to that later, in the end.
pub(crate) struct Loaded<'a> {
    predictor: Box<dyn Predictor>,
    progress: &'a dyn Progress,
    is_told: bool,
}

impl Loaded<'_> {
    fn tell(&mut self) {
        if let Some(notice) = self.predictor.notice().filter(|_| !self.is_told) {
            self.progress.report(Event::Warned(&notice));
            self.is_told = true;
        }
    }
}

impl Deref for Loaded<'_> {
    type Target = dyn Predictor;

    fn deref(&self) -> &(dyn Predictor + 'static) {
        self.predictor.as_ref()
    }
}

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        self.tell();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use polytag::artifact::{ArtifactError, ModelWriter};
    use polytag::data::{LabelChange, LabelSpace, Passage};
    use polytag::ids::LabelId;
    use polytag::predict::{Ask, Explanation, PredictError};
    use polytag::ranking::Ranking;

    use super::*;

    /// A model that has something to say once it was asked.
    #[derive(Default)]
    struct Late {
        space: LabelSpace,
        was_asked: AtomicBool,
    }

    impl Predictor for Late {
        fn label_space(&self) -> &LabelSpace {
            &self.space
        }

        fn predict(&self, passages: &[Passage<'_>], _: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
            self.was_asked.store(true, Ordering::Relaxed);
            Ok(vec![Ranking::default(); passages.len()])
        }

        fn apply(&mut self, _: &[LabelChange]) -> Result<(), PredictError> {
            Err(PredictError::OnlyTrained)
        }

        fn explain(&self, _: Passage<'_>, _: LabelId) -> Result<Explanation, PredictError> {
            Err(PredictError::NoId)
        }

        fn notice(&self) -> Option<String> {
            self.was_asked.load(Ordering::Relaxed).then(|| "it got tired".to_owned())
        }

        fn save(&self, _: &mut ModelWriter) -> Result<(), ArtifactError> {
            Ok(())
        }
    }

    #[derive(Default)]
    struct Heard(AtomicUsize);

    impl Progress for Heard {
        fn report(&self, event: Event<'_>) {
            assert!(matches!(event, Event::Warned("it got tired")));
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_a_model_has_to_say_is_told_once_however_late() {
        for (asked_before, at_first) in [(false, 0), (true, 1)] {
            let heard = Heard::default();
            let predictor = Box::new(Late { was_asked: AtomicBool::new(asked_before), ..Late::default() });
            let mut loaded = Loaded { predictor, progress: &heard, is_told: false };
            loaded.tell();
            assert_eq!(heard.0.load(Ordering::Relaxed), at_first);
            loaded.predict(&[], &Ask { k: 1, allowed: None }).unwrap();
            drop(loaded);
            assert_eq!(heard.0.load(Ordering::Relaxed), 1);
        }
    }
}
