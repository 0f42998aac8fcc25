//! Labels that several servers share.
//!
//! One at a time, this server's threads have their turn at the database: to make a change, or to take in what others
//! made. Whoever makes a change holds the model's row from before the labels are looked at until the change is
//! committed, so that changes have one order, which is that of commits. Labels in memory are changed after the commit:
//! no answer knows of what the database may yet refuse, and nobody waits for the database to get an answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polytag::artifact::{LabelLog, MANIFEST};
use polytag::data::{LabelChange, LabelSpace};
use polytag::ids::LabelId;
use polytag::predict::{Embeddings, Predictor};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

use super::address::Address;
use super::error::StoreError;
use super::health::{Figures, Health, Turn};
use super::link::{Bell, CREATION, Engine, Link};
use super::rows::{self, Row};
use super::search::Searchers;
use super::tables::{self, Entry, Head, News};
use super::{Place, choice};
use crate::api::ApiError;
use crate::journal::{Event, Journal};
use crate::live::{Live, View};

/// How often it is looked for what others changed, if nobody tells.
const POLL: Duration = Duration::from_millis(1000);

/// So soon after a failure, it is not tried again for each request.
const MOMENT: Duration = Duration::from_millis(500);

/// How long it may take to read what others changed, from a database that answers.
const READING: Duration = Duration::from_secs(600);

/// The labels of a model in a database.
pub(crate) struct Shared {
    engine: Arc<Engine>,
    name: String,
    live: Arc<Live>,
    journal: Arc<Journal>,
    bell: Arc<Bell>,
    health: Health,
    patience: Duration,
    number: i32,
    dim: Option<usize>,
    key: String,
    /// What searches labels in the database, if that is where they are searched.
    searchers: Option<Arc<Searchers>>,
    /// Whoever has it may speak to the database.
    desk: Mutex<Desk>,
}

/// The connection, and how far answers are.
struct Desk {
    link: Link,
    known: Head,
}

impl Shared {
    /// Opens the labels of a model, all of which are in the next answer when this returns; afterwards, what others change
    /// is taken in by a thread of its own.
    pub(crate) fn open(
        engine: &Arc<Engine>,
        address: &Address,
        place: Place<'_>,
    ) -> Result<Arc<Shared>, StoreError> {
        let Place { name, dir, live, .. } = place;
        let bell = Arc::new(Bell::default());
        let mut link = Link::new(address, Arc::clone(&bell))?;
        let own = Own::of(dir, live)?;
        let found = engine.wait(link.begin(async |client| tables::find(client, name).await))?;
        let entry = match found {
            Some(entry) => entry,
            None if address.create => {
                link.patience = CREATION;
                let model = live.read();
                let made = engine.wait(create(&mut link, name, &own, model.predictor()));
                link.patience = address.patience;
                made?
            }
            None => return Err(StoreError::NotCreated { model: name.to_owned() }),
        };
        own.check(name, dir, &entry)?;
        engine.wait(link.listen(tables::channel(entry.number)))?;
        let searchers = choice::searchers((engine, address), &mut link, &place, (entry.number, own.dim))?;
        let Place { live, journal, .. } = place;
        let shared = Arc::new(Shared {
            engine: Arc::clone(engine),
            name: name.to_owned(),
            live: Arc::clone(live),
            journal: Arc::clone(journal),
            bell,
            health: Health::new(),
            patience: address.patience,
            number: entry.number,
            dim: own.dim,
            key: own.key.clone(),
            searchers,
            desk: Mutex::new(Desk { link, known: Head::start(&own.key) }),
        });
        let mut desk = shared.turn()?;
        // Reading all of it may take longer than reading on.
        desk.link.patience = CREATION;
        let taken = shared.catch_up(&mut desk);
        desk.link.patience = address.patience;
        taken?;
        drop(desk);
        let listening = Arc::clone(&shared);
        let failed = |error: std::io::Error| StoreError::Away { problem: error.to_string() };
        thread::Builder::new().name("labels".to_owned()).spawn(move || listening.listen()).map_err(failed)?;
        Ok(shared)
    }

    /// Waits for nobody any more.
    pub(crate) fn close(&self) {
        self.bell.end();
    }

    /// Whether labels are searched in the database.
    pub(crate) fn answers(&self) -> bool {
        self.searchers.is_some()
    }

    /// Whether a search there failed lately.
    pub(crate) fn fails_to_answer(&self) -> bool {
        self.searchers.as_ref().is_some_and(|searchers| searchers.fails())
    }

    pub(crate) fn figures(&self) -> Figures {
        self.health.figures()
    }

    /// Makes a change: see [`LabelStore::change`](super::LabelStore::change).
    pub(crate) fn change<T>(
        &self,
        by: &str,
        make: impl Fn(&LabelSpace) -> Result<Vec<LabelChange>, ApiError>,
        told: impl FnOnce(&LabelSpace, &[LabelChange]) -> T,
    ) -> Result<T, ApiError> {
        let mut desk = self.turn()?;
        if let Some(problem) = self.health.just_failed(MOMENT) {
            return Err(problem.into());
        }
        self.catch_up(&mut desk)?;
        // What is slow is done before others are held up; should one of them be faster, it is done again.
        let mut wanted = self.prepare(&make)?;
        self.hold(&mut desk)?;
        if self.fell_behind(&mut desk)? {
            wanted = match self.prepare(&make) {
                Ok(wanted) => wanted,
                Err(error) => {
                    self.engine.wait(desk.link.roll_back());
                    return Err(error);
                }
            };
        }
        let Wanted { changes, vectors, rows } = wanted;
        let (number, known) = (self.number, desk.known.clone());
        let written = self.engine.wait(async {
            let write = async |client: &tokio_postgres::Client| {
                tables::write(client, number, &known, (by, &changes), &rows).await
            };
            let head = desk.link.go_on(write).await?;
            desk.link.commit().await?;
            Ok::<Head, StoreError>(head)
        });
        let head = self.noted(&desk, written)?;
        // It holds. Should it fail here, whatever the reason, it is taken in again as the work of others is.
        let view = self.take(&changes, &vectors)?;
        self.know(&mut desk, head);
        Ok(told(&view.space, &changes))
    }

    /// Takes in what others change, until nobody wants it any more.
    fn listen(&self) {
        while self.bell.wait(POLL) {
            // A model that breaks on a change is made anew the next time.
            let taken = catch_unwind(AssertUnwindSafe(|| {
                let Ok(mut desk) = self.turn() else { return };
                // What is wrong is noted, and tried again.
                let _ = self.catch_up(&mut desk);
            }));
            if taken.is_err() {
                self.fault("the model failed on a change of labels that another server made");
            }
        }
    }

    /// Waits to be the one who speaks to the database.
    fn turn(&self) -> Result<MutexGuard<'_, Desk>, StoreError> {
        let patience = self.patience * 2;
        self.engine
            .wait(async { timeout(patience, self.desk.lock()).await })
            .map_err(|_| StoreError::late(patience))
    }

    /// Takes in what others changed.
    fn catch_up(&self, desk: &mut Desk) -> Result<(), StoreError> {
        let number = self.number;
        let found = self.engine.wait(desk.link.begin(async |client| tables::head(client, number).await));
        let head = self.failing(desk, found)?;
        if head == desk.known && self.live.read().is_sound() {
            return self.noted(desk, Ok(()));
        }
        // It answers; there may be much to read.
        let patience = std::mem::replace(&mut desk.link.patience, READING);
        let taken = self.read_on(desk);
        desk.link.patience = patience;
        self.noted(desk, taken)
    }

    /// Takes in what came since what is known.
    fn read_on(&self, desk: &mut Desk) -> Result<(), StoreError> {
        let (number, known) = (self.number, desk.known.clone());
        let found = self.engine.wait(desk.link.begin(async |client| {
            client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
            let news = tables::news(client, number, &known).await?;
            client.batch_execute("COMMIT").await?;
            Ok::<News, StoreError>(news)
        }));
        let news = self.failing(desk, found)?;
        self.take_news(desk, news)
    }

    /// Keeps others from changing labels until what is begun ends.
    fn hold(&self, desk: &mut Desk) -> Result<(), StoreError> {
        // It gives up before we do, so that we learn why.
        let (number, limit) = (self.number, (self.patience * 4 / 5).as_millis());
        let held =
            self.engine.wait(desk.link.begin(async |client| tables::lock(client, number, limit).await));
        self.failing(desk, held)?;
        desk.link.holds = true;
        Ok(())
    }

    /// Takes in what others changed before they were kept from it; whether there was something.
    fn fell_behind(&self, desk: &mut Desk) -> Result<bool, StoreError> {
        let (number, known) = (self.number, desk.known.clone());
        let found =
            self.engine.wait(desk.link.go_on(async |client| {
                match tables::head(client, number).await? == known {
                    true => Ok(None),
                    false => tables::news(client, number, &known).await.map(Some),
                }
            }));
        let Some(news) = self.failing(desk, found)? else { return Ok(false) };
        let taken = self.take_news(desk, news);
        if taken.is_err() {
            self.engine.wait(desk.link.roll_back());
        }
        self.failing(desk, taken)?;
        Ok(true)
    }

    /// Has in memory what is in the database.
    fn take_news(&self, desk: &mut Desk, news: News) -> Result<(), StoreError> {
        let News { head, rows, goes_on } = news;
        let sound = self.live.read().is_sound();
        if goes_on && sound {
            let (changes, vectors) =
                rows::difference(self.live.read().predictor().label_space(), &rows, self.dim)?;
            self.take(&changes, &vectors)?;
            if desk.known != Head::start(&self.key) {
                self.health.count(|figures| figures.taken += (head.revision - desk.known.revision) as u64);
            }
        } else {
            if !goes_on {
                let (here, there) = (desk.known.revision, head.revision);
                self.fault(&format!(
                    "the database does not have the changes that this server knew of (to revision {here}, there {there}): it was \
                     restored or failed over without them; labels are read anew"
                ));
            }
            let rows = match goes_on {
                false => rows,
                // What came since does not do: it begins with the fit.
                true => self.engine.wait(desk.link.go_on({
                    let number = self.number;
                    async move |client: &tokio_postgres::Client| tables::rows(client, number, 0).await
                }))?,
            };
            let mut fitted = self.live.read().fitted()?;
            if let Some(searchers) = &self.searchers {
                fitted.search_elsewhere(Box::new(searchers.index()?)).map_err(polytag::Error::from)?;
            }
            let (changes, vectors) = rows::difference(fitted.label_space(), &rows, self.dim)?;
            fitted.apply_prepared(&changes, &vectors).map_err(polytag::Error::from)?;
            let mut model = self.live.write();
            model.replace(fitted, changes.len());
            self.live.show(&model);
            self.health.count(|figures| figures.rebuilds += 1);
        }
        self.know(desk, head);
        Ok(())
    }

    /// Changes labels in memory.
    fn take(&self, changes: &[LabelChange], vectors: &Embeddings) -> Result<Arc<View>, StoreError> {
        let mut model = self.live.write();
        model.take(changes, vectors)?;
        Ok(self.live.show(&model))
    }

    fn know(&self, desk: &mut Desk, head: Head) {
        self.health.count(|figures| figures.revision = head.revision);
        desk.known = head;
    }

    /// What a client wants, and what it comes to.
    fn prepare(
        &self,
        make: &impl Fn(&LabelSpace) -> Result<Vec<LabelChange>, ApiError>,
    ) -> Result<Wanted, ApiError> {
        let model = self.live.read();
        let space = model.predictor().label_space();
        let changes = make(space)?;
        if let Some(id) = rows::with_zero_byte(&changes) {
            let problem = format!("{id:?} has a zero byte in its text, which the database cannot hold");
            return Err(ApiError::Unfit { what: "a label", problem });
        }
        let vectors = model.predictor().prepare(&changes).map_err(polytag::Error::from)?;
        let (after, changed) = space
            .changed(&changes)
            .map_err(|(_, error)| polytag::Error::from(polytag::predict::PredictError::from(error)))?;
        let touched: std::collections::BTreeSet<LabelId> = changed
            .written
            .into_iter()
            .chain(changed.removed)
            .chain(vectors.iter().map(|(label, _)| label))
            .collect();
        let rows = touched.into_iter().map(|label| Row::of(&after, label, &vectors)).collect();
        Ok(Wanted { changes, vectors, rows })
    }

    /// Notes a failure on the way; what succeeds there may yet fail.
    fn failing<T>(&self, desk: &Desk, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if done.is_err() { self.noted(desk, done) } else { done }
    }

    /// Notes how something went, and tells people when the database goes and comes.
    fn noted<T>(&self, desk: &Desk, done: Result<T, StoreError>) -> Result<T, StoreError> {
        let made = desk.link.made;
        self.health.count(|figures| figures.connections = made);
        // Whoever is faster is no fault of the database.
        if matches!(done, Err(StoreError::Busy)) {
            return done;
        }
        match (self.health.note(done.as_ref().map(drop)), &done) {
            (Turn::Lost, Err(problem)) => {
                let answers = if self.answers() { "there are no answers" } else { "answers go on" };
                self.fault(&format!("{problem}; {answers}, labels cannot be changed"));
            }
            (Turn::Back, _) => {
                self.journal.write(Event::Store { model: &self.name, state: "the database is back" });
            }
            _ => {}
        }
        done
    }

    fn fault(&self, problem: &str) {
        self.journal.write(Event::Fault { place: &format!("labels of {}", self.name), problem });
    }
}

/// A change that a client wants.
struct Wanted {
    changes: Vec<LabelChange>,
    vectors: Embeddings,
    /// The labels that become others by it.
    rows: Vec<Row>,
}

/// What a model folder is, to know it by.
struct Own {
    key: String,
    dim: Option<usize>,
    fitted: usize,
    /// Changes in the folder's own log.
    changes: Vec<LabelChange>,
}

impl Own {
    fn of(dir: &Path, live: &Live) -> Result<Own, StoreError> {
        let path: PathBuf = dir.join(MANIFEST);
        let manifest = std::fs::read(&path).map_err(|error| {
            polytag::Error::from(polytag::storage::StorageError::io(&path, "read")(error))
        })?;
        let changes = LabelLog::read(dir).map_err(polytag::Error::from)?;
        let model = live.read();
        Ok(Own {
            key: to_hex(&manifest),
            dim: model.predictor().label_dimension(),
            fitted: model.predictor().label_space().positions(),
            changes: LabelChange::compacted(&changes),
        })
    }

    /// The digest of the folder's own changes.
    fn digest(&self) -> String {
        to_hex(&serde_json::to_vec(&self.changes).expect("strings always make JSON"))
    }

    /// Whether labels in a database are of this model.
    fn check(&self, name: &str, dir: &Path, entry: &Entry) -> Result<(), StoreError> {
        let length = |dim: usize| i32::try_from(dim).unwrap_or(i32::MAX);
        if entry.key != self.key {
            let (found, expected) = (entry.key.clone(), self.key.clone());
            return Err(StoreError::Another { model: name.to_owned(), found, expected });
        }
        if entry.dimension != self.dim.map(length) {
            return Err(StoreError::Dimension {
                what: format!("each label of {name:?}"),
                found: entry.dimension.unwrap_or_default() as usize,
                expected: self.dim.unwrap_or_default(),
            });
        }
        if !self.changes.is_empty() && entry.own_changes != self.digest() {
            let folder = dir.display().to_string();
            return Err(StoreError::OwnChanges { folder, changes: self.changes.len() });
        }
        Ok(())
    }
}

fn to_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Puts all labels of a model into the database, with the changes that its folder holds; unless another server just did.
async fn create(
    link: &mut Link,
    name: &str,
    own: &Own,
    predictor: &dyn Predictor,
) -> Result<Entry, StoreError> {
    // Encoding many labels in between is not idleness.
    let begin = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0";
    link.begin(async |client| client.batch_execute(begin).await).await?;
    let entry = link
        .go_on(async |client| {
            tables::make(client).await?;
            if let Some(entry) = tables::find(client, name).await? {
                return Ok::<Entry, StoreError>(entry);
            }
            fill(client, name, own, predictor).await
        })
        .await?;
    link.commit().await?;
    Ok(entry)
}

async fn fill(
    client: &tokio_postgres::Client,
    name: &str,
    own: &Own,
    predictor: &dyn Predictor,
) -> Result<Entry, StoreError> {
    let mut entry = Entry {
        number: 0,
        key: own.key.clone(),
        dimension: own.dim.map(|dim| dim as i32),
        fitted: own.fitted as i32,
        own_changes: own.digest(),
    };
    let vectors = predictor.prepare(&own.changes).map_err(polytag::Error::from)?;
    let unfit =
        |(_, error): (usize, polytag::data::SpaceError)| StoreError::Unfit { problem: error.to_string() };
    let (space, changed) = predictor.label_space().changed(&own.changes).map_err(unfit)?;
    let touched: std::collections::BTreeSet<LabelId> = changed
        .written
        .into_iter()
        .chain(changed.removed)
        .chain(vectors.iter().map(|(label, _)| label))
        .collect();
    let labels = (0..space.positions()).map(LabelId::from_index);
    if let Some(label) = labels.clone().find(|&label| rows::label_holds_zero(space.label(label))) {
        let problem = format!(
            "the label {:?} has a zero byte in its text, which the database cannot hold",
            space.label(label).id
        );
        return Err(StoreError::Unfit { problem });
    }
    let rows = labels.map(|label| {
        let is_touched = touched.contains(&label);
        let fitted = (!is_touched).then(|| predictor.label_vectors(&[label])).transpose();
        let fitted = fitted.map_err(polytag::Error::from)?;
        Ok((Row::of(&space, label, fitted.as_ref().unwrap_or(&vectors)), is_touched))
    });
    entry.number = tables::enter(client, name, &entry, &own.changes, rows).await?;
    Ok(entry)
}
