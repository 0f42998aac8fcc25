//! Labels for texts, and why.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use polytag::predict::{Mark, Reason};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::labels::LabelBody;
use super::receive::{self, Json, Path, Query};
use super::stream::{self, NDJSON};
use super::{ApiError, App};
use crate::desk::{self, DeskError, Question};
use crate::neighbours::Neighbour;
use crate::served::{Described, Document, Served};

/// How many labels are found if nobody says.
pub(super) const K: usize = 5;
/// How many training documents are shown.
const NEIGHBOURS: usize = 5;

/// Texts to be tagged.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TagBody {
    texts: Vec<Text>,
    /// How many labels at most.
    #[serde(default = "default_k")]
    #[schema(default = 5)]
    k: usize,
    /// Labels that score less are left out.
    #[serde(default)]
    threshold: Option<f32>,
    /// The ids of the labels that may be answered with.
    #[serde(default)]
    allowed: Option<Vec<String>>,
    /// Whether to say what speaks for each label.
    #[serde(default)]
    explain: bool,
}

fn default_k() -> usize {
    K
}

/// A text, or a document with more than that.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
enum Text {
    Plain(String),
    Document(Document),
}

impl Text {
    fn into_document(self) -> Document {
        match self {
            Text::Plain(text) => Document { text, ..Document::default() },
            Text::Document(document) => document,
        }
    }
}

/// The same as parts of an address, where the body is a stream of documents.
#[derive(Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct TagQuery {
    /// How many labels at most, where the body is a stream.
    pub(super) k: Option<usize>,
    /// Labels that score less are left out, where the body is a stream.
    pub(super) threshold: Option<f32>,
}

/// The labels of all texts.
#[derive(Serialize, ToSchema)]
pub(super) struct Tagged {
    model: String,
    results: Vec<TaggedText>,
}

/// The labels of a text.
#[derive(Serialize, ToSchema)]
pub(super) struct TaggedText {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) labels: Vec<Described>,
}

/// Find labels for texts
///
/// With `Accept: application/x-ndjson` the answer is one result a line. With `Content-Type: application/x-ndjson` the body
/// is one document a line, of any number, and so is the answer. A line is `{"id"?, "title"?, "text"}`; an id may be a whole
/// number, too, which is answered as a string. Other fields, such as the labels in the files of a task, are passed over.
#[utoipa::path(post, path = "/v1/models/{model}/tag", tag = "tag", params(("model" = String, Path), TagQuery),
    request_body(content((TagBody = "application/json"), (String = "application/x-ndjson"))),
    responses((status = 200, content((Tagged = "application/json"), (String = "application/x-ndjson"))), (status = 400, body = super::error::Failure),
    (status = 404, body = super::error::Failure), (status = 408, body = super::error::Failure),
    (status = 413, body = super::error::Failure), (status = 415, body = super::error::Failure),
    (status = 422, body = super::error::Failure), (status = 429, body = super::error::Failure),
    (status = 504, body = super::error::Failure)))]
pub(super) async fn tag(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Query(query): Query<TagQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let served = app.model(&name)?;
    if receive::media_type(&headers) == NDJSON {
        check_k(&app, query.k.unwrap_or(K))?;
        check_threshold(query.threshold)?;
        return Ok(stream::documents(Arc::clone(&app), name, query, body));
    }
    if query.k.is_some() || query.threshold.is_some() {
        let problem = "k and threshold stand in the body, unless that is a stream of documents".to_owned();
        return Err(ApiError::Malformed { problem });
    }
    let body: TagBody = receive::json(&app, &headers, body).await?;
    let question = question(&app, served, body)?;
    let ids: Vec<Option<String>> = question.documents.iter().map(|document| document.id.clone()).collect();
    let accepted =
        headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok()).unwrap_or_default();
    let lines = accepted.split([',', ';']).any(|part| part.trim() == NDJSON);
    let labels = served.desk.tag(question, (served.facts.reads, app.deadline()), false).await?;
    let results = ids.into_iter().zip(labels).map(|(id, labels)| TaggedText { id, labels });
    Ok(match lines {
        true => stream::lines(results),
        false => Json(Tagged { model: name, results: results.collect() }).into_response(),
    })
}

/// A checked question.
fn question(app: &App, served: &Served, body: TagBody) -> Result<Question, ApiError> {
    let limits = &app.server.limits;
    check_k(app, body.k)?;
    check_threshold(body.threshold)?;
    too_many("allowed", body.allowed.as_ref().map_or(0, Vec::len), limits.labels)?;
    if body.explain {
        too_many("labels to explain", body.k.saturating_mul(body.texts.len()), limits.explained)?;
    }
    let documents: Vec<Document> = body.texts.into_iter().map(Text::into_document).collect();
    check_size(app, &documents, body.k)?;
    if let Some(allowed) = &body.allowed {
        let view = served.view();
        if let Some(id) = allowed.iter().find(|id| view.space.find(id).is_none()) {
            return Err(DeskError::NoLabel(id.clone()).into());
        }
    }
    let (k, threshold, explain) = (body.k, body.threshold, body.explain);
    Ok(Question { documents, k, threshold, allowed: body.allowed.map(Arc::new), explain })
}

pub(super) fn check_k(app: &App, k: usize) -> Result<(), ApiError> {
    match k {
        0 => Err(ApiError::Unfit { what: "k", problem: "0 asks for no label; say at least 1".to_owned() }),
        _ => too_many("k", k, app.server.limits.k),
    }
}

pub(super) fn check_threshold(threshold: Option<f32>) -> Result<(), ApiError> {
    match threshold.is_none_or(f32::is_finite) {
        true => Ok(()),
        false => Err(ApiError::Unfit { what: "threshold", problem: "it must be a finite number".to_owned() }),
    }
}

/// Whether there are not too many documents, nor too much in them, nor too much asked of them.
pub(super) fn check_size(app: &App, documents: &[Document], k: usize) -> Result<(), ApiError> {
    let limits = &app.server.limits;
    too_many("texts", documents.len(), limits.documents)?;
    too_many("texts times k", documents.len().saturating_mul(k), limits.answers)?;
    too_many("tokens", documents.iter().map(|document| desk::tokens(document, None)).sum(), limits.tokens)
}

pub(super) fn too_many(what: &'static str, found: usize, most: usize) -> Result<(), ApiError> {
    if found > most { Err(ApiError::TooMany { what, found, most }) } else { Ok(()) }
}

/// A text, and a label of it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainBody {
    #[serde(default)]
    title: Option<String>,
    text: String,
    /// The id of the label.
    label: String,
}

/// Why a label fits a text.
#[derive(Serialize, ToSchema)]
pub(super) struct Explained {
    label: LabelBody,
    score: f32,
    /// The name or description of the label that fits best, if any does.
    matched: Option<String>,
    /// What speaks for it; weights add up to the score, or to its log-odds.
    #[schema(value_type = Vec<Object>)]
    reasons: Vec<Reason>,
    /// The words of the text in order, by bytes, where the model can tell what each adds.
    #[schema(value_type = Vec<Object>)]
    marks: Vec<Mark>,
    /// Training documents with the label that are like the text.
    documents: Vec<Neighbour>,
}

/// Say why a label fits a text, or how little
#[utoipa::path(post, path = "/v1/models/{model}/explain", tag = "tag", params(("model" = String, Path)),
    request_body = ExplainBody, responses((status = 200, body = Explained), (status = 400, body = super::error::Failure),
    (status = 404, body = super::error::Failure), (status = 413, body = super::error::Failure),
    (status = 415, body = super::error::Failure), (status = 422, body = super::error::Failure),
    (status = 429, body = super::error::Failure), (status = 504, body = super::error::Failure)))]
pub(super) async fn explain(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Explained>, ApiError> {
    let served = app.model(&name)?;
    let ExplainBody { title, text, label } = receive::json(&app, &headers, body).await?;
    let document = Document { id: None, title, text };
    check_size(&app, std::slice::from_ref(&document), 1)?;
    let tokens = desk::tokens(&document, served.facts.reads);
    let neighbours = served.neighbours.clone();
    let explained = move |live: &polytag::method::LiveModel| {
        let space = live.predictor().label_space();
        let found = space.find(&label).ok_or_else(|| ApiError::NoLabel { id: label.clone() })?;
        let why = live.predictor().explain(document.passage(), found).map_err(DeskError::from)?;
        let documents = neighbours
            .map(|neighbours| neighbours.nearest(document.passage(), &label, NEIGHBOURS))
            .unwrap_or_default();
        let label = LabelBody::of(space, found);
        let (score, matched, reasons, marks) = (why.score, why.matched, why.reasons, why.marks);
        Ok::<_, ApiError>(Explained { label, score, matched, reasons, marks, documents })
    };
    Ok(Json(served.desk.ask(tokens, app.deadline(), explained).await??))
}
