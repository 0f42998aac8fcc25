//! For machines that watch.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;

use super::App;

/// Whether the server is there
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, body = String)))]
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// Whether the server takes requests
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, body = String), (status = 503, body = String)))]
pub(super) async fn ready(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    match app.draining.load(Ordering::Relaxed) {
        false => (StatusCode::OK, "ready\n"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "closing\n"),
    }
}

/// Counts, in the text format of Prometheus
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, body = String)))]
pub(super) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let waiting: Vec<(String, usize)> =
        app.models.iter().map(|(name, served)| (name.clone(), served.desk.waiting())).collect();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.to_text(&waiting))
}
