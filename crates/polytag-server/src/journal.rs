//! Lines for people: every change of a label, with who made it, and every fault of ours. One JSON object a line.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use polytag::data::LabelChange;
use serde::Serialize;

use crate::clock;

/// Where lines go.
pub struct Journal(Mutex<Box<dyn Write + Send>>);

/// A line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    event: Event<'a>,
}

/// What happened.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event<'a> {
    /// A label was changed.
    Label {
        /// The model.
        model: &'a str,
        /// The key's name, or "nobody" where none is needed.
        by: &'a str,
        /// What was done.
        #[serde(flatten)]
        change: &'a LabelChange,
    },
    /// A store of labels is otherwise than before.
    Store {
        /// The model.
        model: &'a str,
        /// How it is.
        state: &'a str,
    },
    /// Something of ours failed.
    Fault {
        /// Where.
        place: &'a str,
        /// What.
        problem: &'a str,
    },
}

impl Journal {
    /// A journal that is written to `sink`.
    pub fn new(sink: impl Write + Send + 'static) -> Journal {
        Journal(Mutex::new(Box::new(sink)))
    }

    /// Writes a line. A journal that cannot be written stops no work.
    pub(crate) fn write(&self, event: Event<'_>) {
        let mut line =
            serde_json::to_vec(&Line { time: clock::now(), event }).expect("strings always make JSON");
        line.push(b'\n');
        let mut sink = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = sink.write_all(&line).and_then(|()| sink.flush());
    }
}
