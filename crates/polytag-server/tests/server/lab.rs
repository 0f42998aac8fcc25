//! A small model behind the API, in process.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use polytag::data::{Label, LabelChange, LabelSpace, Split, Task};
use polytag::encoder::EncoderCache;
use polytag::method::{self, MethodConfig, TrainContext};
use polytag::progress::{Silent, Stop};
use polytag_nn::device::Device;
use polytag_server::api::{App, router};
use polytag_server::journal::Journal;
use polytag_server::served::{Model, Neighbours};
use polytag_server::{OpenError, Server, ServerConfig};
use serde_json::Value;
use tempfile::TempDir;
use tower::ServiceExt as _;

/// What was written to a journal.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A server under test.
pub(crate) struct Lab {
    pub(crate) folder: Arc<TempDir>,
    pub(crate) app: Arc<App>,
    pub(crate) router: Router,
    journal: Lines,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: axum::http::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The code of an error.
    pub(crate) fn code(&self) -> String {
        let json = self.json();
        assert!(
            json["error"]["message"].as_str().is_some_and(|message| !message.is_empty()),
            "{}",
            self.text
        );
        json["error"]["code"].as_str().unwrap().to_owned()
    }
}

/// The bundled sample.
pub(crate) fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/debtags-sample")
}

/// Fits `lexical` to the bundled sample.
pub(crate) fn fit(model: &Path) {
    fit_method(model, "lexical", &serde_json::json!({}));
}

/// Fits a method to the bundled sample.
pub(crate) fn fit_method(model: &Path, method: &str, settings: &Value) {
    let task = Task::open(&sample(), &polytag::data::ReadOptions::with_spool(std::env::temp_dir())).unwrap();
    let config = MethodConfig::named(method, settings).unwrap();
    let (device, encoders, stop) = (Device::cpu(), EncoderCache::new(model.join("none")), Stop::default());
    let context = TrainContext::new((&device, &encoders), (&stop, &Silent));
    method::fit(&task, config, model, &context).unwrap();
}

impl Lab {
    pub(crate) fn new() -> Lab {
        Lab::with(ServerConfig::default())
    }

    pub(crate) fn with(config: ServerConfig) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        fit(&folder.path().join("tags"));
        Lab::open(folder, config)
    }

    pub(crate) fn open(folder: impl Into<Arc<TempDir>>, config: ServerConfig) -> Lab {
        Lab::try_open(folder, config).unwrap()
    }

    pub(crate) fn try_open(folder: impl Into<Arc<TempDir>>, config: ServerConfig) -> Result<Lab, OpenError> {
        let folder = folder.into();
        let task =
            Task::open(&sample(), &polytag::data::ReadOptions::with_spool(std::env::temp_dir())).unwrap();
        let train = task.dataset(Split::Train, &Silent, &Stop::default()).unwrap();
        let neighbours = Some(Arc::new(Neighbours::read(&train).unwrap()));
        let (dir, device) = (folder.path().join("tags"), Device::cpu());
        let model = Model { name: "tags".to_owned(), dir: &dir, device: &device, neighbours };
        let journal = Lines::default();
        let server = Server::try_from(config).unwrap();
        let (kept, models) = (Journal::new(journal.clone()), vec![model]);
        // It may wait for a database, on a thread that may.
        let open = || App::open(server, models, kept);
        let app = Arc::new(std::thread::scope(|scope| scope.spawn(open).join().unwrap())?);
        Ok(Lab { folder, router: router(Arc::clone(&app)), app, journal })
    }

    pub(crate) fn journal(&self) -> String {
        String::from_utf8(self.journal.0.lock().unwrap().clone()).unwrap()
    }

    pub(crate) fn labels(&self) -> LabelSpace {
        method::load_labels(&self.folder.path().join("tags")).unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer { status: parts.status, headers: parts.headers, text }
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        self.send(request(method, path).header("content-type", "application/json").body(body).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::POST, path, body).await
    }
}

pub(crate) fn request(method: Method, path: &str) -> axum::http::request::Builder {
    Request::builder().method(method).uri(path).header("host", "localhost:8080")
}

/// A change that was made by hand.
pub(crate) fn added(id: &str) -> LabelChange {
    LabelChange::Add { label: Label::new(id, id) }
}
