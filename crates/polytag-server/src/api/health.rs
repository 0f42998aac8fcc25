//! For machines that watch.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;

use super::App;
use crate::store::Figures;

/// Whether the server is there
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, body = String)))]
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// Whether the server takes requests; it does so without the database of labels too, unless that is where they are
/// searched, and then a line tells that labels cannot be changed; another tells of a GPU that could help and does not
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, body = String), (status = 503, body = String)))]
pub(super) async fn ready(State(app): State<Arc<App>>) -> (StatusCode, String) {
    if app.draining.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "closing\n".to_owned());
    }
    let (mut text, mut status) = ("ready\n".to_owned(), StatusCode::OK);
    for (name, served) in &app.models {
        let problem = served.store.figures().filter(|figures| figures.problem.is_some());
        if served.store.fails_to_answer() || (problem.is_some() && served.store.answers()) {
            status = StatusCode::SERVICE_UNAVAILABLE;
            let _ = writeln!(text, "labels of {name} cannot be searched, as their database cannot be used");
        } else if let Some(Figures { revision, lasting, .. }) = problem {
            let seconds = lasting.as_secs();
            let _ = writeln!(
                text,
                "labels of {name} cannot be changed for {seconds} s, as their database cannot be used; answers know of \
                 changes up to {revision}"
            );
        }
        if let Some(notice) = served.live.notice() {
            let _ = writeln!(text, "{name}: {notice}");
        }
    }
    if status != StatusCode::OK {
        text = text.replacen("ready", "not ready", 1);
    }
    (status, text)
}

/// Counts, in the text format of Prometheus
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, body = String)))]
pub(super) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let waiting: Vec<(String, usize)> =
        app.models.iter().map(|(name, served)| (name.clone(), served.desk.waiting())).collect();
    let stores: Vec<(String, Figures)> = app
        .models
        .iter()
        .filter_map(|(name, served)| Some((name.clone(), served.store.figures()?)))
        .collect();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.to_text(&waiting, &stores))
}
