//! The same for clients of Annif: a project is a model, a subject is a label.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::feedback::keep;
use super::receive::{self, Json, Path, Query};
use super::tag::{check_k, check_size, check_threshold, too_many};
use super::{ApiError, App};
use crate::desk::Question;
use crate::feedback::Said;
use crate::served::{Described, Document, Served};

/// How many subjects Annif suggests if nobody says.
const LIMIT: usize = 10;

/// A model as Annif describes one.
#[derive(Serialize, ToSchema)]
pub(super) struct Project {
    project_id: String,
    name: String,
    language: String,
    #[schema(value_type = Object)]
    backend: serde_json::Value,
    is_trained: bool,
}

impl Project {
    fn of(served: &Served) -> Project {
        let method = served.facts.manifest.method.clone();
        Project {
            project_id: served.name.clone(),
            name: served.name.clone(),
            language: "en".to_owned(),
            backend: serde_json::json!({ "backend_id": method }),
            is_trained: true,
        }
    }
}

/// All models as Annif describes them.
#[derive(Serialize, ToSchema)]
pub(super) struct Projects {
    projects: Vec<Project>,
}

/// The models, as Annif's projects
#[utoipa::path(get, path = "/v1/projects", tag = "annif", responses((status = 200, body = Projects)))]
pub(super) async fn projects(State(app): State<Arc<App>>) -> Json<Projects> {
    Json(Projects { projects: app.models.values().map(Project::of).collect() })
}

/// A model, as Annif's project
#[utoipa::path(get, path = "/v1/projects/{model}", tag = "annif", params(("model" = String, Path)),
    responses((status = 200, body = Project), (status = 404, body = super::error::Failure)))]
pub(super) async fn project(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<Project>, ApiError> {
    Ok(Json(Project::of(app.model(&name)?)))
}

/// A text, as Annif's clients send it.
#[derive(Deserialize, ToSchema)]
pub(super) struct SuggestForm {
    text: String,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    threshold: Option<f32>,
}

/// A label as Annif describes one.
#[derive(Serialize, ToSchema)]
pub(super) struct Suggestion {
    uri: String,
    label: String,
    notation: Option<String>,
    score: f32,
}

/// Labels of a text.
#[derive(Serialize, ToSchema)]
pub(super) struct Suggestions {
    results: Vec<Suggestion>,
}

fn suggestions(labels: Vec<Described>) -> Vec<Suggestion> {
    let suggestion = |label: Described| Suggestion {
        uri: label.id,
        label: label.name,
        notation: None,
        score: label.score,
    };
    labels.into_iter().map(suggestion).collect()
}

/// Find labels for a text, as Annif does
#[utoipa::path(post, path = "/v1/projects/{model}/suggest", tag = "annif", params(("model" = String, Path)),
    request_body(content = SuggestForm, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, body = Suggestions), (status = 400, body = super::error::Failure),
    (status = 404, body = super::error::Failure), (status = 413, body = super::error::Failure),
    (status = 415, body = super::error::Failure), (status = 422, body = super::error::Failure),
    (status = 429, body = super::error::Failure), (status = 504, body = super::error::Failure)))]
pub(super) async fn suggest(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Suggestions>, ApiError> {
    app.model(&name)?;
    let form: SuggestForm = match receive::media_type(&headers).as_str() {
        "application/x-www-form-urlencoded" => {
            let bytes = receive::whole(&app, body).await?;
            serde_urlencoded::from_bytes(&bytes)
                .map_err(|error| ApiError::Malformed { problem: error.to_string() })?
        }
        _ => receive::json(&app, &headers, body).await?,
    };
    let document = Document { text: form.text, ..Document::default() };
    let mut labels = found(&app, &name, vec![document], (form.limit, form.threshold)).await?;
    Ok(Json(Suggestions { results: suggestions(labels.pop().unwrap_or_default()) }))
}

/// Documents, as Annif's clients send them.
#[derive(Deserialize, ToSchema)]
pub(super) struct BatchBody {
    documents: Vec<BatchDocument>,
}

/// A document of a batch.
#[derive(Deserialize, ToSchema)]
pub(super) struct BatchDocument {
    text: String,
    #[serde(default)]
    document_id: Option<String>,
}

/// How much is wanted of a batch.
#[derive(Deserialize, IntoParams)]
pub(super) struct BatchQuery {
    /// How many labels at most.
    limit: Option<usize>,
    /// Labels that score less are left out.
    threshold: Option<f32>,
}

/// Labels of a document of a batch.
#[derive(Serialize, ToSchema)]
pub(super) struct BatchResult {
    document_id: Option<String>,
    results: Vec<Suggestion>,
}

/// Find labels for several texts, as Annif does
#[utoipa::path(post, path = "/v1/projects/{model}/suggest-batch", tag = "annif",
    params(("model" = String, Path), BatchQuery), request_body = BatchBody,
    responses((status = 200, body = Vec<BatchResult>), (status = 400, body = super::error::Failure),
    (status = 404, body = super::error::Failure), (status = 413, body = super::error::Failure),
    (status = 415, body = super::error::Failure), (status = 422, body = super::error::Failure),
    (status = 429, body = super::error::Failure), (status = 504, body = super::error::Failure)))]
pub(super) async fn suggest_batch(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Query(query): Query<BatchQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Vec<BatchResult>>, ApiError> {
    app.model(&name)?;
    let BatchBody { documents } = receive::json(&app, &headers, body).await?;
    let (ids, documents): (Vec<Option<String>>, Vec<Document>) = documents
        .into_iter()
        .map(|document| (document.document_id, Document { text: document.text, ..Document::default() }))
        .unzip();
    let labels = found(&app, &name, documents, (query.limit, query.threshold)).await?;
    let result = |(document_id, labels)| BatchResult { document_id, results: suggestions(labels) };
    Ok(Json(ids.into_iter().zip(labels).map(result).collect()))
}

/// The labels of documents.
async fn found(
    app: &App,
    name: &str,
    documents: Vec<Document>,
    (limit, threshold): (Option<usize>, Option<f32>),
) -> Result<Vec<Vec<Described>>, ApiError> {
    let served = app.model(name)?;
    let k = limit.unwrap_or(LIMIT);
    check_k(app, k)?;
    check_threshold(threshold)?;
    check_size(app, &documents, k)?;
    let question = Question { documents, k, threshold, ..Question::default() };
    Ok(served.desk.tag(question, (served.facts.reads, app.deadline()), false).await?)
}

/// A document and its subjects, as Annif's clients send them.
#[derive(Deserialize, ToSchema)]
pub(super) struct Learned {
    text: String,
    subjects: Vec<Subject>,
}

/// A subject that fits.
#[derive(Deserialize, ToSchema)]
pub(super) struct Subject {
    uri: String,
}

/// Say which labels fit documents, as Annif does: kept as pairs for the next fit
#[utoipa::path(post, path = "/v1/projects/{model}/learn", tag = "annif", params(("model" = String, Path)),
    request_body = Vec<Learned>, responses((status = 204), (status = 400, body = super::error::Failure),
    (status = 404, body = super::error::Failure), (status = 413, body = super::error::Failure),
    (status = 415, body = super::error::Failure), (status = 422, body = super::error::Failure),
    (status = 507, body = super::error::Failure)))]
pub(super) async fn learn(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    app.model(&name)?;
    let documents: Vec<Learned> = receive::json(&app, &headers, body).await?;
    too_many("texts", documents.len(), app.server.limits.documents)?;
    let said = |Learned { text, subjects }| Said {
        document: Document { text, ..Document::default() },
        accepted: subjects.into_iter().map(|subject| subject.uri).collect(),
        rejected: Vec::new(),
    };
    keep(&app, &name, documents.into_iter().map(said).collect()).await?;
    Ok(StatusCode::NO_CONTENT)
}
