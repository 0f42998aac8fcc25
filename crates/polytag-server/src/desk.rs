//! Texts gathered into batches.
//!
//! Requests wait in a queue that is bounded in tokens; one thread takes as many as a batch holds, answers them, and takes
//! the next ones: while it works, others gather, so that batches grow with the load. On an idle server nobody waits for
//! company; under load the thread waits a fiftieth of a batch for those who were just answered, so that all are in one
//! batch instead of in two that wait for each other. Whoever finds the queue full is told to come again, and what nobody
//! waits for any more is not worked on.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polytag::data::Passage;
use polytag::index::{Allowed, IndexError};
use polytag::method::LiveModel;
use polytag::predict::{Ask, PredictError};
use tokio::sync::{Notify, oneshot};

use crate::metrics::Metrics;
use crate::served::{Described, Document};

/// Bytes of text that make a token, about.
pub(crate) const BYTES_A_TOKEN: usize = 4;

/// How many tokens a text has, about; at most as many as the model reads.
pub(crate) fn tokens(document: &Document, most: Option<usize>) -> usize {
    let bytes = document.text.len() + document.title.as_ref().map_or(0, String::len);
    (bytes / BYTES_A_TOKEN + 1).min(most.unwrap_or(usize::MAX))
}

/// What is asked of documents.
#[derive(Debug, Default)]
pub(crate) struct Question {
    pub(crate) documents: Vec<Document>,
    pub(crate) k: usize,
    pub(crate) threshold: Option<f32>,
    /// The ids of the labels that may be answered with.
    pub(crate) allowed: Option<Arc<Vec<String>>>,
    pub(crate) explain: bool,
}

/// The labels of each document, in order.
pub(crate) type Labels = Vec<Vec<Described>>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeskError {
    /// The queue is full.
    #[error("too many requests are waiting")]
    Full {
        /// When there may be room.
        retry: Duration,
    },
    /// The time for the answer is over.
    #[error("the answer was not ready in time")]
    Late,
    /// The server is going down.
    #[error("the server is shutting down")]
    Closed,
    /// The model refused.
    #[error(transparent)]
    Model(#[from] PredictError),
    /// A label that the model does not have.
    #[error("there is no label {0:?}")]
    NoLabel(String),
    /// The model broke.
    #[error("the model failed on this input")]
    Broken,
}

/// Work that waits.
struct Job {
    tokens: usize,
    deadline: Instant,
    work: Work,
}

enum Work {
    /// Labels for documents: many are done together.
    Tag(Question, oneshot::Sender<Result<Labels, DeskError>>),
    /// Anything else, done alone; and whether somebody still waits for it.
    Other(Box<dyn FnOnce(&LiveModel) + Send>, Box<dyn Fn() -> bool + Send>),
}

impl Job {
    fn is_wanted(&self) -> bool {
        let awaited = match &self.work {
            Work::Tag(_, answer) => !answer.is_closed(),
            Work::Other(_, awaited) => awaited(),
        };
        awaited && Instant::now() < self.deadline
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    tokens: usize,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    /// There is work, or there will be none.
    wake: Condvar,
    /// There is room.
    room: Notify,
    /// Microseconds that the last batches took, smoothed.
    pace: AtomicU64,
    metrics: Arc<Metrics>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue of a model, and the thread that answers.
pub(crate) struct Desk {
    shared: Arc<Shared>,
    /// Tokens that may wait.
    room: usize,
    /// Tokens that are worked on together.
    batch: usize,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl Desk {
    /// Opens a desk for a model.
    pub(crate) fn open(
        model: Arc<RwLock<LiveModel>>,
        (batch, room): (usize, usize),
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Desk> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            room: Notify::new(),
            pace: AtomicU64::new(0),
            metrics,
        });
        let worker = {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("desk".to_owned()).spawn(move || work(&shared, &model, batch))?
        };
        Ok(Desk { shared, room, batch, worker: Mutex::new(Some(worker)) })
    }

    /// How many tokens wait.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.queue().tokens
    }

    /// The labels of documents. Many documents are done in pieces of a batch each, so that others come in between; only
    /// the first piece can be refused for want of room, and not if it is part of something that has `begun`.
    pub(crate) async fn tag(
        &self,
        question: Question,
        (most, deadline): (Option<usize>, Instant),
        mut begun: bool,
    ) -> Result<Labels, DeskError> {
        let mut labels = Vec::with_capacity(question.documents.len());
        let Question { documents, k, threshold, allowed, explain } = question;
        let mut documents = documents.into_iter().peekable();
        while documents.peek().is_some() {
            let (mut piece, mut size) = (Vec::new(), 0);
            // Each explanation reads the text once more.
            let cost = |document: &Document| tokens(document, most) * if explain { 1 + k } else { 1 };
            while let Some(document) =
                documents.next_if(|document| piece.is_empty() || size + cost(document) <= self.batch)
            {
                size += cost(&document);
                piece.push(document);
            }
            let (answer, answered) = oneshot::channel();
            let question = Question { documents: piece, k, threshold, allowed: allowed.clone(), explain };
            let job = Job { tokens: size, deadline, work: Work::Tag(question, answer) };
            self.put(job, begun).await?;
            begun = true;
            labels.extend(awaited(answered, deadline).await??);
        }
        Ok(labels)
    }

    /// What `work` makes of the model, in turn with everything else.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        tokens: usize,
        deadline: Instant,
        work: impl FnOnce(&LiveModel) -> T + Send + 'static,
    ) -> Result<T, DeskError> {
        let (answer, answered) = oneshot::channel();
        let slot = Arc::new(Mutex::new(Some(answer)));
        let lock = |slot: &Mutex<Option<oneshot::Sender<T>>>| {
            slot.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        let waiting = Arc::clone(&slot);
        let is_awaited = move || {
            let slot = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            slot.as_ref().is_some_and(|answer| !answer.is_closed())
        };
        let run = move |model: &LiveModel| {
            let made = work(model);
            if let Some(answer) = lock(&slot) {
                answer.send(made).ok();
            }
        };
        let work = Work::Other(Box::new(run), Box::new(is_awaited));
        self.put(Job { tokens, deadline, work }, false).await?;
        awaited(answered, deadline).await
    }

    /// Puts work into the queue: at once or not at all, or, for what was begun, when there is room.
    async fn put(&self, job: Job, begun: bool) -> Result<(), DeskError> {
        let mut job = Some(job);
        loop {
            let room = self.shared.room.notified();
            {
                let mut queue = self.shared.queue();
                if queue.closed {
                    return Err(DeskError::Closed);
                }
                let size = job.as_ref().map_or(0, |job| job.tokens);
                // Where nothing waits, there is room for anything; and what was begun is not kept out by smaller things.
                let fits = queue.tokens + size <= self.room || (begun && queue.tokens < self.room);
                if queue.jobs.is_empty() || fits {
                    queue.tokens += size;
                    queue.jobs.extend(job.take());
                    self.shared.wake.notify_one();
                    return Ok(());
                }
            }
            if !begun {
                self.shared.metrics.refused.fetch_add(1, Ordering::Relaxed);
                return Err(DeskError::Full { retry: self.pace().max(Duration::from_millis(100)) });
            }
            let deadline = job.as_ref().map_or_else(Instant::now, |job| job.deadline);
            tokio::time::timeout_at(deadline.into(), room).await.map_err(|_| DeskError::Late)?;
        }
    }

    /// How long a batch takes of late.
    fn pace(&self) -> Duration {
        Duration::from_micros(self.shared.pace.load(Ordering::Relaxed))
    }

    /// Takes no more, and waits for what was taken.
    pub(crate) fn close(&self) {
        self.shared.queue().closed = true;
        self.shared.wake.notify_all();
        self.shared.room.notify_waiters();
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(worker) = worker {
            worker.join().ok();
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.close();
    }
}

/// What was answered in time.
async fn awaited<T>(answer: oneshot::Receiver<T>, deadline: Instant) -> Result<T, DeskError> {
    match tokio::time::timeout_at(deadline.into(), answer).await {
        Err(_) => Err(DeskError::Late),
        // Whoever worked on it let it fall: its time was up, or the model broke.
        Ok(Err(_)) if Instant::now() >= deadline => Err(DeskError::Late),
        Ok(Err(_)) => Err(DeskError::Broken),
        Ok(Ok(answer)) => Ok(answer),
    }
}

/// The longest that a batch waits for company.
const GATHERING: Duration = Duration::from_millis(10);

/// Answers until the desk is closed and nothing waits.
fn work(shared: &Shared, model: &RwLock<LiveModel>, budget: usize) {
    // When the last batch was done, if it had company.
    let mut loaded: Option<Instant> = None;
    loop {
        let batch = {
            let mut queue = shared.queue();
            while queue.jobs.is_empty() && !queue.closed {
                queue = shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.jobs.is_empty() {
                return;
            }
            let pace = Duration::from_micros(shared.pace.load(Ordering::Relaxed));
            let until = loaded.take().map(|done| done + (pace / 50).min(GATHERING));
            while let Some(left) = until.and_then(|until| until.checked_duration_since(Instant::now())) {
                if queue.tokens >= budget || queue.closed || left.is_zero() {
                    break;
                }
                (queue, _) = shared.wake.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner);
            }
            next_batch(&mut queue, budget)
        };
        shared.room.notify_waiters();
        let (wanted, unwanted): (Vec<Job>, Vec<Job>) = batch.into_iter().partition(Job::is_wanted);
        shared.metrics.dropped.fetch_add(unwanted.len() as u64, Ordering::Relaxed);
        if wanted.is_empty() {
            continue;
        }
        let started = Instant::now();
        let has_company = wanted.len() > 1;
        let tokens: usize = wanted.iter().map(|job| job.tokens).sum();
        let documents = answer(&model.read().unwrap_or_else(PoisonError::into_inner), wanted);
        let took = started.elapsed().as_micros() as u64;
        let pace = shared.pace.load(Ordering::Relaxed);
        shared.pace.store(if pace == 0 { took } else { (3 * pace + took) / 4 }, Ordering::Relaxed);
        loaded = has_company.then(Instant::now);
        shared.metrics.batches.fetch_add(1, Ordering::Relaxed);
        shared.metrics.tokens.fetch_add(tokens as u64, Ordering::Relaxed);
        shared.metrics.documents.fetch_add(documents as u64, Ordering::Relaxed);
    }
}

/// The first jobs that fit in a batch together: at least one, and nothing beside what is done alone.
fn next_batch(queue: &mut Queue, budget: usize) -> Vec<Job> {
    let (mut batch, mut tokens) = (Vec::new(), 0);
    while let Some(job) = queue.jobs.front() {
        let alone = matches!(job.work, Work::Other(..));
        if !batch.is_empty() && (alone || tokens + job.tokens > budget) {
            break;
        }
        tokens += job.tokens;
        queue.tokens -= job.tokens;
        batch.extend(queue.jobs.pop_front());
        if alone {
            break;
        }
    }
    batch
}

/// Answers jobs; how many documents they had.
fn answer(model: &LiveModel, jobs: Vec<Job>) -> usize {
    // Whoever waits for a model that is not to be believed learns of it by the answer that never comes.
    if !model.is_sound() {
        return 0;
    }
    let mut questions = Vec::new();
    let mut documents = 0;
    for job in jobs {
        match job.work {
            Work::Other(run, _) => {
                // Whoever waits learns of it by the answer that never comes.
                catch_unwind(AssertUnwindSafe(|| run(model))).ok();
            }
            Work::Tag(question, answer) => {
                documents += question.documents.len();
                questions.push((question, answer));
            }
        }
    }
    // Those that ask alike are asked together.
    while let Some((first, _)) = questions.first() {
        let (k, allowed) = (first.k, first.allowed.clone());
        let alike;
        (alike, questions) = questions
            .into_iter()
            .partition(|(question, _): &(Question, _)| question.k == k && question.allowed == allowed);
        let (alike, answers): (Vec<Question>, Vec<_>) = alike.into_iter().unzip();
        let together = (alike.len() > 1).then(|| broken_or(|| tag(model, &alike)));
        match together {
            Some(Ok(labels)) => answers.into_iter().zip(labels).for_each(|(answer, labels)| {
                answer.send(Ok(labels)).ok();
            }),
            // It is not for the texts, and each would wait for the same.
            Some(Err(DeskError::Model(PredictError::Index(IndexError::Away { problem, may_pass })))) => {
                for answer in answers {
                    let away = IndexError::Away { problem: problem.clone(), may_pass };
                    answer.send(Err(PredictError::from(away).into())).ok();
                }
            }
            // Alone, so that a text that the model refuses harms nobody else.
            _ => alike.iter().zip(answers).for_each(|(question, answer)| {
                let labels = broken_or(|| tag(model, std::slice::from_ref(question)));
                answer.send(labels.map(|mut labels| labels.pop().unwrap_or_default())).ok();
            }),
        }
    }
    documents
}

/// What `work` makes; a panic is an error like others.
fn broken_or<T>(work: impl FnOnce() -> Result<T, DeskError>) -> Result<T, DeskError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(DeskError::Broken))
}

/// Answers questions that ask alike.
fn tag(model: &LiveModel, questions: &[Question]) -> Result<Vec<Labels>, DeskError> {
    let Some(first) = questions.first() else { return Ok(Vec::new()) };
    let predictor = model.predictor();
    let space = predictor.label_space();
    let allowed: Option<Allowed> = match &first.allowed {
        None => None,
        Some(ids) => {
            let find = |id: &String| space.find(id).ok_or_else(|| DeskError::NoLabel(id.clone()));
            Some(ids.iter().map(find).collect::<Result<_, DeskError>>()?)
        }
    };
    let documents = || questions.iter().flat_map(|question| &question.documents);
    let passages: Vec<Passage<'_>> = documents().map(Document::passage).collect();
    // One more where a document may be among its own labels.
    let k = first.k.saturating_add(usize::from(predictor.item_to_item()));
    let rankings = predictor.predict(&passages, &Ask { k, allowed: allowed.as_ref() })?;
    let mut ranked = passages.iter().zip(&rankings);
    let mut all = Vec::with_capacity(questions.len());
    for question in questions {
        let mut labels = Vec::with_capacity(question.documents.len());
        for (passage, ranking) in ranked.by_ref().take(question.documents.len()) {
            let itself = passage.id.filter(|_| predictor.item_to_item()).and_then(|id| space.find(id));
            let entries = ranking.entries().iter().filter(|entry| Some(entry.label) != itself);
            let good = |score: f32| question.threshold.is_none_or(|least| score >= least);
            let mut described = Vec::new();
            for entry in entries.take(question.k).filter(|entry| good(entry.score)) {
                let why = match question.explain {
                    true => Some(predictor.explain(*passage, entry.label)?),
                    false => None,
                };
                described.push(Described::new(space, entry, why));
            }
            labels.push(described);
        }
        all.push(labels);
    }
    Ok(all)
}
