//! Long work beside the interpreter: on threads of our own, while the thread that called gives up its lock and listens.
//!
//! A pool belongs to the process that made it. A process that was forked has copies of our values, but none of our
//! threads, so that it makes pools anew: Python's `multiprocessing` and Spark's workers fork.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use std::{mem, process};

use polytag::progress::{Event, Progress, Silent, Stop, Watch};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::errors;

/// How often Ctrl-C is looked for.
const HEARING: Duration = Duration::from_millis(50);
/// Threads that may be asked for, as on the command line.
const MOST_THREADS: usize = 512;

/// Pools by process and number of threads.
static POOLS: Mutex<BTreeMap<(u32, usize), Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());

/// A number of threads that can be had; none is one a core.
pub(crate) fn threads(asked: Option<usize>) -> PyResult<usize> {
    match asked {
        None => Ok(0),
        Some(threads @ 1..=MOST_THREADS) => Ok(threads),
        Some(threads) => {
            Err(errors::input(format!("threads={threads}: say 1 to {MOST_THREADS}, or None for one a core")))
        }
    }
}

/// The pool of so many threads, made when it is first asked for and shared by all models.
fn pool(threads: usize) -> PyResult<Arc<ThreadPool>> {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let owner = process::id();
    if let Some(pool) = pools.get(&(owner, threads)) {
        return Ok(Arc::clone(pool));
    }
    for ((process, size), pool) in mem::take(&mut *pools) {
        if process == owner {
            pools.insert((process, size), pool);
        } else {
            // Of the process that this one was forked from: it has no threads here, and to drop it would wait for them.
            mem::forget(pool);
        }
    }
    let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(|n| format!("polytag-{n}"));
    let made = Arc::new(builder.build().map_err(errors::ours)?);
    pools.insert((owner, threads), Arc::clone(&made));
    Ok(made)
}

/// Work for a caller that may not be Python: it neither gives up the interpreter's lock nor is it broken off.
pub(crate) fn unwatched<T: Send>(threads: usize, work: impl FnOnce() -> PyResult<T> + Send) -> PyResult<T> {
    let pool = pool(threads)?;
    catch_unwind(AssertUnwindSafe(|| pool.install(work)))
        .unwrap_or_else(|payload| Err(errors::panicked(payload.as_ref())))
}

/// Work that is soon done: it is not broken off.
pub(crate) fn short<T: Send>(
    py: Python<'_>,
    threads: usize,
    work: impl FnOnce() -> PyResult<T> + Send,
) -> PyResult<T> {
    py.detach(|| unwatched(threads, work))
}

/// Work that may take long: Ctrl-C tells it to stop, and what it reports goes to `listener`, a callable that is given a
/// dictionary; warnings go to Python's own.
pub(crate) fn long<T: Send>(
    py: Python<'_>,
    threads: usize,
    listener: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Watch<'_>) -> PyResult<T> + Send,
) -> PyResult<T> {
    let pool = pool(threads)?;
    beside(py, listener, |watch| pool.install(|| work(watch)))
}

/// The same for work that takes turns with Python: what calls it runs on a thread beside the pool, which `Crew::work` asks, so
/// that Python code that it waits for can ask the pool, too.
pub(crate) fn in_turns<T: Send>(
    py: Python<'_>,
    threads: usize,
    work: impl FnOnce(&Crew, &Watch<'_>) -> PyResult<T> + Send,
) -> PyResult<T> {
    let crew = Crew(pool(threads)?);
    beside(py, None, |watch| work(&crew, watch))
}

/// The threads that work.
pub(crate) struct Crew(Arc<ThreadPool>);

impl Crew {
    /// Has them do something, and waits for it.
    pub(crate) fn work<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.install(work)
    }
}

/// Has something done on a thread of its own, and listens meanwhile.
fn beside<T: Send>(
    py: Python<'_>,
    listener: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Watch<'_>) -> PyResult<T> + Send,
) -> PyResult<T> {
    let stop = Stop::default();
    let (sender, receiver) = mpsc::channel();
    let receiver = Mutex::new(receiver);
    thread::scope(|scope| {
        let (asked, listened) = (stop.clone(), listener.is_some());
        let worker = scope.spawn(move || {
            let told = Told(sender);
            let progress: &dyn Progress = if listened { &told } else { &OnlyWarnings(&told) };
            work(&Watch { progress, stop: &asked })
            // Its end is heard, for with it goes the sender, also when it panics.
        });
        let heard = listen(py, &receiver, listener, &stop);
        let ended = py.detach(|| worker.join());
        let done = ended.unwrap_or_else(|payload| Err(errors::panicked(payload.as_ref())));
        // Who broke it off says why.
        heard.and(done)
    })
}

/// Hands on what work reports until it ends. What Python raises meanwhile, such as by Ctrl-C, stops the work.
fn listen(
    py: Python<'_>,
    receiver: &Mutex<Receiver<Owned>>,
    listener: Option<&Bound<'_, PyAny>>,
    stop: &Stop,
) -> PyResult<()> {
    let mut raised = Ok(());
    loop {
        let heard = py.detach(|| {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(HEARING)
        });
        let event = match heard {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return raised,
        };
        if raised.is_ok() {
            raised = py.check_signals().and_then(|()| event.map_or(Ok(()), |event| event.tell(py, listener)));
            if raised.is_err() {
                stop.ask();
            }
        }
    }
}

/// Tells of everything.
struct Told(Sender<Owned>);

/// Tells of warnings alone, where nobody listens to more.
struct OnlyWarnings<'a>(&'a Told);

impl Progress for Told {
    fn report(&self, event: Event<'_>) {
        // Nobody listens any more only when the work has ended.
        let _ = self.0.send(Owned::from(event));
    }
}

impl Progress for OnlyWarnings<'_> {
    fn report(&self, event: Event<'_>) {
        match event {
            Event::Warned(_) => self.0.report(event),
            other => Silent.report(other),
        }
    }
}

/// An event that outlives its work.
enum Owned {
    Started { stage: String, total: Option<u64> },
    Advanced(u64),
    Finished,
    Measured { name: String, value: f64 },
    Row { title: String, values: Vec<(String, f64)> },
    Warned(String),
}

impl From<Event<'_>> for Owned {
    fn from(event: Event<'_>) -> Owned {
        match event {
            Event::Started { stage, total } => Owned::Started { stage: stage.to_owned(), total },
            Event::Advanced(steps) => Owned::Advanced(steps),
            Event::Finished => Owned::Finished,
            Event::Measured { name, value } => Owned::Measured { name: name.to_owned(), value },
            Event::Row { title, values } => {
                let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
                Owned::Row { title: title.to_owned(), values }
            }
            Event::Warned(words) => Owned::Warned(words.to_owned()),
        }
    }
}

impl Owned {
    fn tell(&self, py: Python<'_>, listener: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        if let Owned::Warned(words) = self {
            let class = py.import("polytag._errors")?.getattr("PolytagWarning")?;
            py.import("warnings")?.call_method1("warn", (words, class))?;
        }
        let Some(listener) = listener else { return Ok(()) };
        let told = PyDict::new(py);
        match self {
            Owned::Started { stage, total } => {
                told.set_item("event", "started")?;
                told.set_item("stage", stage)?;
                told.set_item("total", total)?;
            }
            Owned::Advanced(steps) => {
                told.set_item("event", "advanced")?;
                told.set_item("steps", steps)?;
            }
            Owned::Finished => told.set_item("event", "finished")?,
            Owned::Measured { name, value } => {
                told.set_item("event", "measured")?;
                told.set_item("values", PyDict::from_sequence(&vec![(name, value)].into_pyobject(py)?)?)?;
            }
            Owned::Row { title, values } => {
                told.set_item("event", "measured")?;
                told.set_item("title", title)?;
                told.set_item("values", PyDict::from_sequence(&values.into_pyobject(py)?)?)?;
            }
            Owned::Warned(words) => {
                told.set_item("event", "warned")?;
                told.set_item("message", words)?;
            }
        }
        listener.call1((told,)).map(drop)
    }
}
