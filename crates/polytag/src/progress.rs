//! Watching and stopping long work.
//!
//! Work reports [`Event`]s to a [`Progress`] and asks a [`Stop`] between steps. What is shown, and
//! where, is for the command line or the server to decide.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
