//! Labels searched in the database, for label sets that do not fit in memory.
//!
//! The table has a graph over the vectors of a model's labels, in 16 bits a number (pgvector's HNSW). It is asked for
//! somewhat more labels than are wanted, and the database scores those by their vectors in full. Where few labels are
//! allowed, or the graph does not come by enough of them, all that are allowed are compared. What this server has not
//! heard of yet, or knows to be gone, is left out of answers.
//!
//! Memory: a bit a label.

use std::borrow::Cow;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use polytag::ids::LabelId;
use polytag::index::{Allowed, IndexError, LabelIndex};
use polytag::ranking::{Ranking, Scored};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Statement};

use super::address::Address;
use super::error::StoreError;
use super::graph::{Graph, near_sql, ranking, scored};
use super::link::{Bell, CREATION, Engine, Link};
use super::rows::Vector;

/// How many connections search at once.
const SEATS: usize = 4;

/// The share of labels below which the allowed ones are compared one and all.
const FEW: f64 = 0.1;

/// How much further than it is wanted the graph is asked at most, where only some labels are allowed.
const FURTHER: usize = 4000;

/// Questions that a connection is asked at once: few enough to be answered in the time that the database is given.
const WAVE: usize = 16;

/// Labels that are read at once.
const PAGE: i64 = 100_000;

/// So soon after a failure, it is not tried again for each text.
const MOMENT: Duration = Duration::from_millis(500);

/// So long after a failure, others are told not to send texts.
const LATELY: Duration = Duration::from_secs(5);

/// The connections that search the labels of a model.
pub(super) struct Searchers {
    engine: Arc<Engine>,
    number: i32,
    dim: usize,
    seats: Vec<Mutex<Seat>>,
    next: AtomicUsize,
    /// What was wrong, and when.
    failed: Lock<Option<(Instant, String)>>,
}

/// A connection, and what is asked on it.
struct Seat {
    link: Link,
    /// Which of its connections the questions are known to.
    made: u64,
    questions: Option<Questions>,
}

/// What is asked, as the database knows it.
#[derive(Clone)]
struct Questions {
    /// The labels that the graph finds: a query, and how many.
    near: Statement,
    /// The best of some labels: a query, their positions, and how many.
    among: Statement,
    /// The vector of a label.
    vector: Statement,
}

impl Questions {
    async fn prepare(client: &Client, number: i32, dim: usize) -> Result<Questions, tokio_postgres::Error> {
        let among = format!(
            "SELECT position, embedding <#> $1::vector FROM polytag.labels WHERE model = {number} AND NOT removed \
             AND embedding IS NOT NULL AND position = ANY($2) ORDER BY 2, 1 LIMIT $3"
        );
        let vector = format!(
            "SELECT embedding FROM polytag.labels WHERE model = {number} AND NOT removed AND position = $1"
        );
        Ok(Questions {
            near: client.prepare(&near_sql(number, dim)).await?,
            among: client.prepare(&among).await?,
            vector: client.prepare(&vector).await?,
        })
    }
}

impl Searchers {
    /// Connections for the graph of a model's labels; none is made before it is needed.
    pub(super) fn new(
        engine: &Arc<Engine>,
        address: &Address,
        (number, dim): (i32, usize),
        graph: &Graph,
    ) -> Result<Arc<Searchers>, StoreError> {
        let seat = |_| {
            let mut link = Link::new(address, Arc::new(Bell::default()))?;
            link.greet(graph.settings(address.patience));
            Ok(Mutex::new(Seat { link, made: 0, questions: None }))
        };
        Ok(Arc::new(Searchers {
            engine: Arc::clone(engine),
            number,
            dim,
            seats: (0..SEATS).map(seat).collect::<Result<_, StoreError>>()?,
            next: AtomicUsize::new(0),
            failed: Lock::default(),
        }))
    }

    /// The index of the labels as they were fitted and are still.
    pub(super) fn index(self: &Arc<Searchers>) -> Result<DatabaseIndex, StoreError> {
        let number = self.number;
        // All labels are looked at, which may take long.
        let read = async {
            let mut seat = self.seats[0].lock().await;
            let link = &mut seat.link;
            let patience = std::mem::replace(&mut link.patience, CREATION);
            let found = link.begin(async |client| fitted_positions(client, number).await).await;
            link.patience = patience;
            found
        };
        let labels = self.engine.wait(read)?;
        Ok(DatabaseIndex { searchers: Arc::clone(self), labels })
    }

    /// Asks something on one of the connections.
    async fn on_a_seat<T>(
        &self,
        work: impl AsyncFnOnce(&Client, &Questions) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, StoreError> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.seats.len();
        let mut seat = self.seats[at].lock().await;
        let Seat { link, made, questions } = &mut *seat;
        link.begin(async |_| Ok::<(), StoreError>(())).await?;
        let (number, dim) = (self.number, self.dim);
        if *made != link.made {
            *questions = None;
        }
        let known = match questions {
            Some(questions) => questions.clone(),
            None => {
                let fresh = link.go_on(async |client| Questions::prepare(client, number, dim).await).await?;
                *made = link.made;
                questions.insert(fresh).clone()
            }
        };
        link.go_on(async |client| work(client, &known).await).await
    }

    /// What a question gives, unless one failed a moment ago.
    fn ask<T>(&self, question: impl Future<Output = Result<T, StoreError>>) -> Result<T, IndexError> {
        let failed = || self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = failed().as_ref().filter(|(at, _)| at.elapsed() < MOMENT).map(|(_, why)| why.clone());
        if let Some(problem) = recent {
            return Err(IndexError::Away { problem, may_pass: true });
        }
        self.engine.wait(question).map_err(|error| {
            let (problem, may_pass) = (error.to_string(), error.may_pass());
            *failed() = Some((Instant::now(), problem.clone()));
            IndexError::Away { problem, may_pass }
        })
    }

    /// Whether a question failed lately.
    pub(super) fn fails(&self) -> bool {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.as_ref().is_some_and(|(at, _)| at.elapsed() < LATELY)
    }
}

/// The positions of the labels that are as they were fitted.
async fn fitted_positions(client: &Client, number: i32) -> Result<Allowed, StoreError> {
    let (mut labels, mut from) = (Allowed::default(), 0i32);
    let sql = "SELECT position, revision = 0 AND NOT removed AND embedding IS NOT NULL FROM polytag.labels \
               WHERE model = $1 AND position >= $2 ORDER BY position LIMIT $3";
    let statement = client.prepare(sql).await?;
    loop {
        let rows = client.query(&statement, &[&number, &from, &PAGE]).await?;
        for row in &rows {
            let (position, is_fitted): (i32, bool) = (row.try_get(0)?, row.try_get(1)?);
            let label = u32::try_from(position)
                .map_err(|_| StoreError::Unfit { problem: format!("a label is at position {position}") })?;
            if is_fitted {
                labels.insert(LabelId(label));
            }
            from = position.saturating_add(1);
        }
        if (rows.len() as i64) < PAGE {
            return Ok(labels);
        }
    }
}

/// Labels by vectors that a database has.
pub(super) struct DatabaseIndex {
    searchers: Arc<Searchers>,
    /// Those that we heard of.
    labels: Allowed,
}

impl DatabaseIndex {
    /// The best labels for some queries, on one connection.
    async fn search_on_one(
        &self,
        queries: &[f32],
        (k, eligible): (usize, &Eligible<'_>),
    ) -> Result<Vec<Ranking>, StoreError> {
        let queries: Vec<Vector> =
            queries.chunks_exact(self.searchers.dim).map(|query| Vector(query.to_vec())).collect();
        let mut rankings = Vec::with_capacity(queries.len());
        for wave in queries.chunks(WAVE) {
            let found = self.searchers.on_a_seat(async |client, questions| {
                // Questions go out together, and are answered one after the other.
                try_join_all(wave.iter().map(|query| self.best(client, questions, query, (k, eligible))))
                    .await
            });
            for scored in found.await? {
                rankings.push(ranking(scored, k)?);
            }
        }
        Ok(rankings)
    }

    async fn best(
        &self,
        client: &Client,
        questions: &Questions,
        query: &Vector,
        (k, eligible): (usize, &Eligible<'_>),
    ) -> Result<Vec<Scored>, tokio_postgres::Error> {
        if let Some(limit) = eligible.limit {
            let mut near = scored(client, &questions.near, &[query, &(limit as i64)]).await?;
            near.retain(|entry| eligible.labels.contains(entry.label));
            if near.len() >= k {
                return Ok(near);
            }
        }
        // The graph did not come by enough of them, or was not asked.
        let positions: Vec<i32> = eligible.labels.iter().map(|label| label.0 as i32).collect();
        scored(client, &questions.among, &[query, &positions, &(k as i64)]).await
    }
}

/// The labels that may be answered with.
struct Eligible<'a> {
    labels: Cow<'a, Allowed>,
    /// How many labels the graph is asked for, if it is.
    limit: Option<usize>,
}

impl LabelIndex for DatabaseIndex {
    fn dim(&self) -> usize {
        self.searchers.dim
    }

    fn labels(&self) -> &Allowed {
        &self.labels
    }

    fn vector(&self, label: LabelId) -> Result<Option<Vec<f32>>, IndexError> {
        if !self.labels.contains(label) {
            return Ok(None);
        }
        let position = label.0 as i32;
        let found = self.searchers.ask(self.searchers.on_a_seat(async |client, questions| {
            let found = client.query_opt(&questions.vector, &[&position]).await?;
            found.map(|row| row.try_get::<_, Option<Vector>>(0)).transpose()
        }))?;
        Ok(found.flatten().map(|Vector(numbers)| numbers))
    }

    fn check(&self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        let expected = self.dim();
        if vector.len() != expected {
            return Err(IndexError::Dimension { label, found: vector.len(), expected });
        }
        match vector.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(place) => {
                let limit = "only finite numbers can be compared";
                Err(IndexError::Value { label, place, value: vector[place], limit })
            }
        }
    }

    /// The database has the vector already; from now on it is answered with.
    fn set(&mut self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        self.check(label, vector)?;
        self.labels.insert(label);
        Ok(())
    }

    fn remove(&mut self, label: LabelId) {
        self.labels.remove(label);
    }

    fn search(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&Allowed>,
    ) -> Result<Vec<Ranking>, IndexError> {
        let dim = self.dim();
        self.check_queries(queries)?;
        let count = queries.len() / dim;
        let labels = match allowed {
            None => Cow::Borrowed(&self.labels),
            Some(_) => Cow::Owned(self.labels.intersected(allowed)),
        };
        let k = k.min(labels.len());
        if k == 0 || count == 0 {
            return Ok(vec![Ranking::default(); count]);
        }
        let share = labels.len() as f64 / self.labels.len() as f64;
        let limit = (((k + k / 4 + 16) as f64 / share) as usize).min(k + FURTHER);
        let eligible = Eligible { labels, limit: (share >= FEW).then_some(limit) };
        let parts = queries.chunks(count.div_ceil(SEATS.min(count)) * dim);
        let found = self
            .searchers
            .ask(try_join_all(parts.map(|queries| self.search_on_one(queries, (k, &eligible)))))?;
        Ok(found.into_iter().flatten().collect())
    }
}
