//! What people accepted and rejected.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::receive::{self, Json, Path};
use super::stream::NDJSON;
use super::tag::too_many;
use super::{ApiError, App};
use crate::feedback::Said;
use crate::served::{Document, Served};

/// A document, and what was said of its labels.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FeedbackBody {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    title: Option<String>,
    text: String,
    /// The ids of labels that fit.
    #[serde(default)]
    accepted: Vec<String>,
    /// The ids of labels that do not.
    #[serde(default)]
    rejected: Vec<String>,
}

/// How much was said.
#[derive(Serialize, ToSchema)]
pub(super) struct Stored {
    /// How many documents there are with what was said of them.
    stored: u64,
}

/// Say which labels fit a document: kept as pairs for the next fit
#[utoipa::path(post, path = "/v1/models/{model}/feedback", tag = "feedback", params(("model" = String, Path)),
    request_body = FeedbackBody, responses((status = 201, body = Stored), (status = 400, body = super::error::Failure),
    (status = 404, body = super::error::Failure), (status = 413, body = super::error::Failure),
    (status = 415, body = super::error::Failure), (status = 422, body = super::error::Failure),
    (status = 507, body = super::error::Failure)))]
pub(super) async fn add(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Stored>), ApiError> {
    app.model(&name)?;
    let FeedbackBody { id, title, text, accepted, rejected } = receive::json(&app, &headers, body).await?;
    too_many("labels", accepted.len() + rejected.len(), app.server.limits.labels)?;
    let said = Said { document: Document { id, title, text }, accepted, rejected };
    let stored = keep(&app, &name, vec![said]).await?;
    Ok((StatusCode::CREATED, Json(Stored { stored })))
}

/// Checks what was said and keeps it; how many documents there are now.
pub(super) async fn keep(app: &Arc<App>, name: &str, all: Vec<Said>) -> Result<u64, ApiError> {
    let served = app.model(name)?;
    all.iter().try_for_each(|said| check(served, said))?;
    let (app, name) = (Arc::clone(app), name.to_owned());
    let kept = tokio::task::spawn_blocking(move || Ok(app.model(&name)?.feedback.add(&all)?));
    kept.await.unwrap_or(Err(ApiError::Ours))
}

fn check(served: &Served, said: &Said) -> Result<(), ApiError> {
    if said.document.text.trim().is_empty() {
        return Err(ApiError::Unfit { what: "text", problem: "there is no text to learn from".to_owned() });
    }
    let view = served.view();
    let space = &view.space;
    let mut named = said.accepted.iter().chain(&said.rejected);
    if let Some(id) = named.find(|id| space.find(id).is_none()) {
        return Err(crate::desk::DeskError::NoLabel(id.clone()).into());
    }
    match said.accepted.iter().find(|id| said.rejected.contains(id)) {
        Some(id) => Err(ApiError::Unfit { what: "rejected", problem: format!("{id:?} is accepted, too") }),
        None => Ok(()),
    }
}

/// Everything that was said, a document of a task folder a line
#[utoipa::path(get, path = "/v1/models/{model}/feedback", tag = "feedback", params(("model" = String, Path)),
    responses((status = 200, content_type = "application/x-ndjson", body = String),
    (status = 404, body = super::error::Failure)))]
pub(super) async fn export(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    app.model(&name)?;
    let read = tokio::task::spawn_blocking(move || Ok(app.model(&name)?.feedback.read()?));
    let lines = read.await.unwrap_or(Err(ApiError::Ours))?;
    Ok(([(header::CONTENT_TYPE, NDJSON)], lines).into_response())
}
