//! What there is: models, how often their labels occur, how they were trained, where their labels lie.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::receive::{Json, Path};
use super::{ApiError, App};
use crate::served::{Served, Spot};

/// A model.
#[derive(Serialize, ToSchema)]
pub(super) struct Summary {
    name: String,
    method: String,
    labels: usize,
    /// How many of them no training document carries.
    unseen: usize,
    train_documents: u64,
    /// Whether scores are probabilities.
    probabilities: bool,
    /// How many changes to labels there were since it was fitted.
    changes: usize,
    /// Whether labels can be added.
    can_add: bool,
}

impl Summary {
    fn of(served: &Served) -> Summary {
        let (view, facts) = (served.view(), &served.facts);
        let space = &view.space;
        Summary {
            name: served.name.clone(),
            method: facts.manifest.method.clone(),
            labels: space.len(),
            unseen: space.iter().filter(|(label, _)| !space.is_seen(*label)).count(),
            train_documents: facts.manifest.train_documents,
            probabilities: facts.gives_probabilities,
            changes: view.changes,
            can_add: facts.takes_new_labels,
        }
    }
}

/// All models.
#[derive(Serialize, ToSchema)]
pub(super) struct Summaries {
    models: Vec<Summary>,
}

/// A model, and how it was made.
#[derive(Serialize, ToSchema)]
pub(super) struct Details {
    #[serde(flatten)]
    summary: Summary,
    #[schema(value_type = Object)]
    config: serde_json::Value,
    seed: u64,
    /// The version of the program that fitted it.
    program: String,
    /// Whether the course of its training is known.
    training_page: bool,
    /// Whether training documents can be shown.
    documents: bool,
    /// How good it was found to be, as `polytag evaluate --keep` left it.
    #[schema(value_type = Option<Object>)]
    evaluation: Option<serde_json::Value>,
}

/// The models that are served
#[utoipa::path(get, path = "/v1/models", tag = "models", responses((status = 200, body = Summaries)))]
pub(super) async fn all(State(app): State<Arc<App>>) -> Json<Summaries> {
    Json(Summaries { models: app.models.values().map(Summary::of).collect() })
}

/// One model
#[utoipa::path(get, path = "/v1/models/{model}", tag = "models", params(("model" = String, Path)),
    responses((status = 200, body = Details), (status = 404, body = super::error::Failure)))]
pub(super) async fn model(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<Details>, ApiError> {
    let served = app.model(&name)?;
    let manifest = served.facts.manifest.clone();
    Ok(Json(Details {
        summary: Summary::of(served),
        config: manifest.config,
        seed: manifest.seed,
        program: manifest.program,
        training_page: manifest.files.iter().any(|file| file.name == "curve.jsonl"),
        documents: served.neighbours.is_some(),
        evaluation: served.evaluation(),
    }))
}

/// How often labels occur.
#[derive(Serialize, ToSchema)]
pub(super) struct Tail {
    /// Labels by how many training documents carry them; each bucket is twice as wide as the one before.
    buckets: Vec<Bucket>,
    /// The ten that occur most.
    most: Vec<Frequent>,
}

/// Labels that occur about as often.
#[derive(Serialize, ToSchema)]
pub(super) struct Bucket {
    from: u32,
    to: u32,
    labels: usize,
}

/// A label, and how often it occurs.
#[derive(Serialize, ToSchema)]
pub(super) struct Frequent {
    id: String,
    name: String,
    train_documents: u32,
}

/// How often the labels of a model occur
#[utoipa::path(get, path = "/v1/models/{model}/tail", tag = "models", params(("model" = String, Path)),
    responses((status = 200, body = Tail), (status = 404, body = super::error::Failure)))]
pub(super) async fn tail(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<Tail>, ApiError> {
    let view = app.model(&name)?.view();
    let space = &view.space;
    let mut counts: Vec<(u32, &str, &str)> = space
        .iter()
        .map(|(label, text)| (space.train_count(label), text.id.as_str(), text.name.as_str()))
        .collect();
    counts.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let mut buckets = vec![Bucket { from: 0, to: 0, labels: 0 }];
    for &(count, ..) in counts.iter().rev() {
        while buckets.last().is_some_and(|bucket| bucket.to < count) {
            let from = buckets.last().map_or(0, |bucket| bucket.to) + 1;
            buckets.push(Bucket { from, to: 2 * from - 1, labels: 0 });
        }
        buckets.iter_mut().rev().take(1).for_each(|bucket| bucket.labels += 1);
    }
    let most = counts.iter().filter(|(count, ..)| *count > 0).take(10);
    let most = most.map(|&(train_documents, id, name)| Frequent {
        id: id.to_owned(),
        name: name.to_owned(),
        train_documents,
    });
    Ok(Json(Tail { buckets, most: most.collect() }))
}

/// The course of a training.
#[derive(Serialize, ToSchema)]
pub(super) struct Curve {
    points: Vec<Point>,
}

/// How a training stood at a step.
#[derive(Serialize, ToSchema)]
pub(super) struct Point {
    step: u64,
    loss: Option<f64>,
    /// What was measured on the dev split, by name.
    #[schema(value_type = Object)]
    measures: std::collections::BTreeMap<String, f64>,
}

/// A line of a training's record; it may be a loss, or measures, or both.
#[derive(Deserialize)]
struct Line {
    step: u64,
    #[serde(default)]
    loss: Option<f64>,
    #[serde(default)]
    measures: std::collections::BTreeMap<String, f64>,
}

/// How a model was trained; no points, if it did not train in steps
#[utoipa::path(get, path = "/v1/models/{model}/curve", tag = "models", params(("model" = String, Path)),
    responses((status = 200, body = Curve), (status = 404, body = super::error::Failure)))]
pub(super) async fn curve(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<Curve>, ApiError> {
    let served = app.model(&name)?;
    let record = served.file("curve.jsonl").unwrap_or_default();
    let lines = record.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let points = lines.map(|Line { step, loss, measures }| Point { step, loss, measures }).collect();
    Ok(Json(Curve { points }))
}

/// Labels as places in a plane.
#[derive(Serialize, ToSchema)]
pub(super) struct Map<'a> {
    points: &'a [Spot],
}

/// Where the labels of a model lie, on the first two principal components of their vectors; no points, if they have none
#[utoipa::path(get, path = "/v1/models/{model}/map", tag = "models", params(("model" = String, Path)),
    responses((status = 200, body = Map), (status = 404, body = super::error::Failure)))]
pub(super) async fn map(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<axum::response::Response, ApiError> {
    use axum::response::IntoResponse as _;
    app.model(&name)?;
    let drawing = Arc::clone(&app);
    // Reading vectors and finding their main directions takes a while the first time.
    let drawn = tokio::task::spawn_blocking(move || {
        let points = drawing.model(&name)?.map().unwrap_or_default();
        Ok(Json(Map { points }).into_response())
    });
    drawn.await.unwrap_or(Err(ApiError::Ours))
}
