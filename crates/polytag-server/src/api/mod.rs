//! Requests in, answers out. One file for each kind of thing that is asked about.
//!
//! A request passes gates before a handler sees it: it is counted; where no key is needed, it must come from this machine
//! under its own name, and from no foreign page; elsewhere it must carry a key; and what leaves gets headers that let a
//! browser do nothing else with it. Handlers look at labels and facts of a model that are there at once; what may wait is
//! done by the model's desk or on a thread of its own.

mod error; // what is answered when something is wrong
mod receive; // bodies, bounded in size and time
mod gates; // who may pass
mod models; // what there is
mod tag; // labels for texts, and why
mod stream; // many texts, one answer a line
mod labels; // looking for labels, and changing them
mod feedback; // what people accepted and rejected
mod annif; // the same for clients of Annif
mod health; // for machines that watch
mod openapi; // the description of it all

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use crate::config::Server;
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::page;
use crate::served::{Around, Model, OpenError, Served};
use crate::store::{Engine, StoreError};
pub(crate) use error::ApiError;

/// What every handler knows.
pub struct App {
    pub(crate) server: Server,
    pub(crate) models: BTreeMap<String, Served>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) journal: Arc<Journal>,
    /// Whether it is going down.
    pub(crate) draining: AtomicBool,
}

impl App {
    /// Opens models.
    ///
    /// # Errors
    /// If one cannot be read, or another program holds it, or the database of its labels cannot be used.
    pub fn open(server: Server, models: Vec<Model<'_>>, journal: Journal) -> Result<App, OpenError> {
        let (metrics, journal) = (Arc::new(Metrics::default()), Arc::new(journal));
        let engine = match &server.labels {
            None => None,
            Some(address) => Some(Arc::new(Engine::start().map_err(|error| {
                OpenError::of_store(address.in_words(), StoreError::Away { problem: error.to_string() })
            })?)),
        };
        let around =
            Around { server: &server, metrics: &metrics, journal: &journal, engine: engine.as_ref() };
        let open = |model: Model<'_>| {
            let served = Served::open(model, &around)?;
            Ok((served.name.clone(), served))
        };
        let models = models.into_iter().map(open).collect::<Result<_, OpenError>>()?;
        Ok(App { server, models, metrics, journal, draining: AtomicBool::new(false) })
    }

    /// The model of this name.
    pub(crate) fn model(&self, name: &str) -> Result<&Served, ApiError> {
        self.models.get(name).ok_or_else(|| ApiError::NoModel { name: name.to_owned() })
    }

    /// When an answer that is asked for now must be ready.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.server.deadline
    }

    /// Finishes what was taken, and takes no more.
    pub(crate) fn close(&self) {
        self.models.values().for_each(Served::close);
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // Threads that wait for a database are not waited for.
        self.models.values().for_each(|served| served.store.close());
    }
}

/// All addresses.
pub fn router(app: Arc<App>) -> Router {
    let model = Router::new()
        .route("/tag", post(tag::tag))
        .route("/explain", post(tag::explain))
        .route("/labels", get(labels::search).post(labels::add))
        .route("/labels/{id}", get(labels::one).patch(labels::change).delete(labels::retire))
        .route("/feedback", post(feedback::add).get(feedback::export))
        .route("/tail", get(models::tail))
        .route("/curve", get(models::curve))
        .route("/map", get(models::map));
    Router::new()
        .route("/v1/models", get(models::all))
        .route("/v1/models/{model}", get(models::model))
        .nest("/v1/models/{model}", model)
        .route("/v1/projects", get(annif::projects))
        .route("/v1/projects/{model}", get(annif::project))
        .route("/v1/projects/{model}/suggest", post(annif::suggest))
        .route("/v1/projects/{model}/suggest-batch", post(annif::suggest_batch))
        .route("/v1/projects/{model}/learn", post(annif::learn))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi::document))
        .route("/", get(page::index))
        .route("/docs", get(page::docs))
        .route("/page/{name}", get(page::file))
        .fallback(error::nothing_there)
        .method_not_allowed_fallback(error::not_that_way)
        .layer(from_fn_with_state(Arc::clone(&app), gates::authorise))
        .layer(from_fn_with_state(Arc::clone(&app), gates::same_site))
        .layer(axum::middleware::map_response(gates::harden))
        .layer(from_fn_with_state(Arc::clone(&app), gates::count))
        .with_state(app)
}
