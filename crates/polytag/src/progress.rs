//! Watching and stopping long work.
//!
//! Work reports [`Event`]s to a [`Progress`] and asks a [`Stop`] between steps. What is shown, and
//! where, is for the command line or the server to decide.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Something that happened in a long piece of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// A stage began; `total` is the number of steps in it, where that is known.
    Started {
        /// What the stage does, for a person: "reading documents".
        stage: &'a str,
        /// How many steps it has.
        total: Option<u64>,
    },
    /// The current stage went on by so many steps.
    Advanced(u64),
    /// The current stage is over.
    Finished,
    /// A number worth showing, such as a loss or a count.
    Measured {
        /// What was measured.
        name: &'a str,
        /// Its value.
        value: f64,
    },
    /// Numbers that were measured together: a row of a table that grows.
    Row {
        /// What it is a row of: "step 700".
        title: &'a str,
        /// Names and values, the same names in every row.
        values: &'a [(&'a str, f64)],
    },
    /// Something the user should know, though the work goes on.
    Warned(&'a str),
}

/// Receives events, possibly from several threads.
///
/// ```
/// use polytag::progress::{Event, Progress};
/// struct Count(std::sync::atomic::AtomicU64);
/// impl Progress for Count {
///     fn report(&self, event: Event<'_>) {
///         if let Event::Advanced(n) = event {
///             self.0.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
///         }
///     }
/// }
/// let count = Count(0.into());
/// count.report(Event::Advanced(3));
/// assert_eq!(count.0.into_inner(), 3);
/// ```
pub trait Progress: Send + Sync {
    /// Takes note of one event.
    fn report(&self, event: Event<'_>);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn report(&self, _event: Event<'_>) {}
}

/// Steps of a stage between two reports: a report may take a lock, a step must not.
const REPORTED: u64 = 1000;

/// A stage whose steps are counted, by any number of threads, and reported now and then.
///
/// ```
/// use polytag::progress::{Silent, Stage};
/// let stage = Stage::start(&Silent, "reading", None);
/// (0..2500).for_each(|_| stage.step());
/// assert_eq!(stage.finish(), 2500);
/// ```
pub struct Stage<'a> {
    progress: &'a dyn Progress,
    steps: AtomicU64,
}

impl<'a> Stage<'a> {
    /// Begins the stage called `name`; `total` is its number of steps, where that is known.
    pub fn start(progress: &'a dyn Progress, name: &str, total: Option<u64>) -> Stage<'a> {
        progress.report(Event::Started { stage: name, total });
        Stage { progress, steps: AtomicU64::new(0) }
    }

    /// Takes note of one step.
    pub fn step(&self) {
        self.advance(1);
    }

    /// Takes note of so many steps at once.
    pub fn advance(&self, steps: u64) {
        let before = self.steps.fetch_add(steps, Ordering::Relaxed);
        let passed = (before + steps) / REPORTED - before / REPORTED;
        if passed > 0 {
            self.progress.report(Event::Advanced(passed * REPORTED));
        }
    }

    /// Ends the stage; how many steps it took.
    pub fn finish(self) -> u64 {
        let steps = self.steps.into_inner();
        self.progress.report(Event::Advanced(steps % REPORTED));
        self.progress.report(Event::Finished);
        steps
    }
}

/// How a piece of work is watched and stopped.
pub struct Watch<'a> {
    /// Where to report.
    pub progress: &'a dyn Progress,
    /// Whether to end early.
    pub stop: &'a Stop,
}

/// A flag, shared by clones, that asks work to end early.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks everyone who holds a clone to stop.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether someone asked.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Keeps every event, as text.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Heard(pub(crate) std::sync::Mutex<Vec<String>>);

#[cfg(test)]
impl Progress for Heard {
    fn report(&self, event: Event<'_>) {
        self.0.lock().unwrap().push(format!("{event:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_reported_once() {
        let heard = Heard::default();
        let stage = Stage::start(&heard, "reading", Some(4501));
        std::thread::scope(|scope| {
            for steps in [1500, 501] {
                let stage = &stage;
                scope.spawn(move || (0..steps).for_each(|_| stage.step()));
            }
        });
        stage.advance(2500);
        assert_eq!(stage.finish(), 4501);
        let started = r#"Started { stage: "reading", total: Some(4501) }"#;
        let expected =
            [started, "Advanced(1000)", "Advanced(1000)", "Advanced(2000)", "Advanced(501)", "Finished"];
        assert_eq!(*heard.0.lock().unwrap(), expected);
    }
}
