//! Looking for labels, and changing them. A change is kept, on the disk or in the database, before it is answered.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use polytag::data::{Label, LabelChange, LabelSpace};
use polytag::ids::LabelId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::gates::Asker;
use super::receive::{self, Json, Path, Query};
use super::tag::too_many;
use super::{ApiError, App};
use crate::journal::Event;

/// How many labels are listed if nobody says.
const LIMIT: usize = 20;
/// The longest id, name or alias that is taken, in bytes.
const LONGEST_NAME: usize = 1024;
/// The longest description that is taken, in bytes.
const LONGEST_DESCRIPTION: usize = 64 << 10;

/// A label, and how often it occurs.
#[derive(Serialize, ToSchema)]
pub(super) struct LabelBody {
    id: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aliases: Vec<String>,
    /// The ids of broader labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parents: Vec<String>,
    train_documents: u32,
    seen: bool,
}

impl LabelBody {
    pub(super) fn of(space: &LabelSpace, label: LabelId) -> LabelBody {
        let Label { id, name, description, aliases, parents } = space.label(label).clone();
        let (train_documents, seen) = (space.train_count(label), space.is_seen(label));
        LabelBody { id, name, description, aliases, parents, train_documents, seen }
    }
}

/// Which labels are looked for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchQuery {
    /// Labels whose id, name or alias contains this, whatever its case.
    #[serde(default, rename = "match")]
    matching: String,
    /// How many at most.
    limit: Option<usize>,
    /// How many are left out before them.
    #[serde(default)]
    offset: usize,
    /// Only those that training documents carry, or only the others.
    only: Option<Only>,
}

/// Which labels.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Only {
    Seen,
    Unseen,
}

/// Labels that were found.
#[derive(Serialize, ToSchema)]
pub(super) struct Found {
    /// How many there are in all.
    total: usize,
    labels: Vec<LabelBody>,
}

/// Look for labels: those that begin with the words first
#[utoipa::path(get, path = "/v1/models/{model}/labels", tag = "labels", params(("model" = String, Path), SearchQuery),
    responses((status = 200, body = Found), (status = 400, body = super::error::Failure),
    (status = 404, body = super::error::Failure), (status = 422, body = super::error::Failure)))]
pub(super) async fn search(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Query(query): Query<SearchQuery>,
) -> Result<Json<Found>, ApiError> {
    let limit = query.limit.unwrap_or(LIMIT);
    too_many("limit", limit, app.server.limits.labels)?;
    let view = app.model(&name)?.view();
    let space = &view.space;
    let wanted = query.matching.to_lowercase();
    let mut found: Vec<(bool, &str, LabelId)> = space
        .iter()
        .filter(|(label, _)| query.only.is_none_or(|only| (only == Only::Seen) == space.is_seen(*label)))
        .filter_map(|(label, text)| {
            let mut names = std::iter::once(text.id.as_str()).chain(text.names());
            let first = text.name.to_lowercase().starts_with(&wanted);
            let fits = first || names.any(|name| name.to_lowercase().contains(&wanted));
            fits.then_some((!first, text.name.as_str(), label))
        })
        .collect();
    found.sort_unstable();
    let labels = found.iter().skip(query.offset).take(limit).map(|(.., label)| LabelBody::of(space, *label));
    Ok(Json(Found { total: found.len(), labels: labels.collect() }))
}

/// One label
#[utoipa::path(get, path = "/v1/models/{model}/labels/{id}", tag = "labels",
    params(("model" = String, Path), ("id" = String, Path)),
    responses((status = 200, body = LabelBody), (status = 404, body = super::error::Failure)))]
pub(super) async fn one(
    State(app): State<Arc<App>>,
    Path((name, id)): Path<(String, String)>,
) -> Result<Json<LabelBody>, ApiError> {
    find(&app, &name, &id).map(Json)
}

fn find(app: &App, name: &str, id: &str) -> Result<LabelBody, ApiError> {
    let view = app.model(name)?.view();
    let space = &view.space;
    let label = space.find(id).ok_or_else(|| ApiError::NoLabel { id: id.to_owned() })?;
    Ok(LabelBody::of(space, label))
}

/// A label to add.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewLabel {
    /// One is made of the name, if there is none.
    #[serde(default)]
    id: Option<String>,
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
    #[serde(default)]
    parents: Vec<String>,
}

impl NewLabel {
    /// How many aliases and parents it has.
    fn links(&self) -> usize {
        self.aliases.len() + self.parents.len()
    }
}

/// One label to add, or several, all or none of which are added.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub(super) enum AddBody {
    Several(Several),
    One(NewLabel),
}

/// Labels to add together.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Several {
    labels: Vec<NewLabel>,
}

/// Labels that were added.
#[derive(Serialize, ToSchema)]
pub(super) struct Added {
    labels: Vec<LabelBody>,
}

/// Add labels, which are in the next answer
#[utoipa::path(post, path = "/v1/models/{model}/labels", tag = "labels", params(("model" = String, Path)),
    request_body = AddBody, responses((status = 201, body = Added), (status = 400, body = super::error::Failure),
    (status = 404, body = super::error::Failure), (status = 409, body = super::error::Failure),
    (status = 413, body = super::error::Failure), (status = 415, body = super::error::Failure),
    (status = 422, body = super::error::Failure), (status = 507, body = super::error::Failure)))]
pub(super) async fn add(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Extension(Asker(by)): Extension<Asker>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Added>), ApiError> {
    app.model(&name)?;
    let labels = match receive::json(&app, &headers, body).await? {
        AddBody::One(label) => vec![label],
        AddBody::Several(Several { labels }) => labels,
    };
    too_many("labels", labels.len(), app.server.limits.labels)?;
    if labels.is_empty() {
        return Err(ApiError::Unfit { what: "labels", problem: "there is none to add".to_owned() });
    }
    too_many("aliases and parents", labels.iter().map(NewLabel::links).sum(), app.server.limits.labels)?;
    let make = move |space: &LabelSpace| additions(space, &labels);
    let labels = change_labels(&app, &name, &by, make).await?;
    Ok((StatusCode::CREATED, Json(Added { labels })))
}

/// What adding labels comes to.
fn additions(space: &LabelSpace, labels: &[NewLabel]) -> Result<Vec<LabelChange>, ApiError> {
    let (mut made, mut taken) = (Vec::with_capacity(labels.len()), HashSet::new());
    for NewLabel { id, name, description, aliases, parents } in labels.iter().cloned() {
        for text in [&name].into_iter().chain(&id).chain(&aliases).chain(&parents) {
            short("a label", text, LONGEST_NAME)?;
        }
        short("description", description.as_deref().unwrap_or_default(), LONGEST_DESCRIPTION)?;
        let is_taken = |id: &str| space.find(id).is_some() || taken.contains(id);
        let id = id.unwrap_or_else(|| free_id(&name, is_taken));
        if [".", ".."].contains(&id.as_str()) {
            let problem = format!("{id:?} has a meaning of its own in addresses; take another");
            return Err(ApiError::Unfit { what: "id", problem });
        }
        taken.insert(id.clone());
        made.push(LabelChange::Add { label: Label { id, name, description, aliases, parents } });
    }
    Ok(made)
}

fn short(what: &'static str, text: &str, most: usize) -> Result<(), ApiError> {
    let problem = format!("{} bytes are more than the {most} that are taken", text.len());
    if text.len() > most { Err(ApiError::Unfit { what, problem }) } else { Ok(()) }
}

/// An id made of a name, which no label has yet.
fn free_id(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let words = name.to_lowercase();
    let words: Vec<&str> =
        words.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let base = if words.is_empty() { "label".to_owned() } else { words.join("-") };
    let numbered = (2u64..).map(|number| format!("{base}-{number}"));
    let mut all = std::iter::once(base.clone()).chain(numbered);
    all.find(|id| !is_taken(id)).unwrap_or(base)
}

/// What of a label is to be otherwise.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeBody {
    #[serde(default)]
    name: Option<String>,
    /// An empty one takes the description away.
    #[serde(default)]
    description: Option<String>,
}

/// Give a label another name or description
#[utoipa::path(patch, path = "/v1/models/{model}/labels/{id}", tag = "labels",
    params(("model" = String, Path), ("id" = String, Path)), request_body = ChangeBody,
    responses((status = 200, body = LabelBody), (status = 400, body = super::error::Failure),
    (status = 404, body = super::error::Failure), (status = 413, body = super::error::Failure),
    (status = 415, body = super::error::Failure), (status = 422, body = super::error::Failure),
    (status = 507, body = super::error::Failure)))]
pub(super) async fn change(
    State(app): State<Arc<App>>,
    Path((name, id)): Path<(String, String)>,
    Extension(Asker(by)): Extension<Asker>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<LabelBody>, ApiError> {
    find(&app, &name, &id)?;
    let ChangeBody { name: new_name, description } = receive::json(&app, &headers, body).await?;
    short("name", new_name.as_deref().unwrap_or_default(), LONGEST_NAME)?;
    short("description", description.as_deref().unwrap_or_default(), LONGEST_DESCRIPTION)?;
    let rename = new_name.map(|name| LabelChange::Rename { id: id.clone(), name });
    let describe = description
        .map(|description| LabelChange::Describe { id: id.clone(), description: Some(description) });
    let changes: Vec<LabelChange> = rename.into_iter().chain(describe).collect();
    if changes.is_empty() {
        let problem = "there is neither a name nor a description in it".to_owned();
        return Err(ApiError::Unfit { what: "the change", problem });
    }
    let labels = change_labels(&app, &name, &by, move |_| Ok(changes.clone())).await?;
    labels.into_iter().next().map(Json).ok_or(ApiError::NoLabel { id })
}

/// Take a label out
#[utoipa::path(delete, path = "/v1/models/{model}/labels/{id}", tag = "labels",
    params(("model" = String, Path), ("id" = String, Path)),
    responses((status = 204), (status = 404, body = super::error::Failure), (status = 507, body = super::error::Failure)))]
pub(super) async fn retire(
    State(app): State<Arc<App>>,
    Path((name, id)): Path<(String, String)>,
    Extension(Asker(by)): Extension<Asker>,
) -> Result<StatusCode, ApiError> {
    find(&app, &name, &id)?;
    change_labels(&app, &name, &by, move |_| Ok(vec![LabelChange::Remove { id: id.clone() }])).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes changes, and tells of each; the labels that they are about, as they are then, where they are still there.
async fn change_labels(
    app: &Arc<App>,
    name: &str,
    by: &str,
    make: impl Fn(&LabelSpace) -> Result<Vec<LabelChange>, ApiError> + Send + 'static,
) -> Result<Vec<LabelBody>, ApiError> {
    let (app, name, by) = (Arc::clone(app), name.to_owned(), by.to_owned());
    // It is made even if the client goes: what is kept is told of.
    let made = tokio::task::spawn_blocking(move || {
        app.model(&name)?.change(&by, make, |space, changes| {
            for change in changes {
                app.journal.write(Event::Label { model: &name, by: &by, change });
            }
            let left = changes.iter().filter_map(|change| space.find(change.id()));
            left.map(|label| LabelBody::of(space, label)).collect()
        })
    });
    made.await.unwrap_or(Err(ApiError::Ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_made_of_names_and_never_twice() {
        let taken = ["tea-trade", "tea-trade-2"];
        assert_eq!(free_id("Tea  Trade!", |id| taken.contains(&id)), "tea-trade-3");
        assert_eq!(free_id("日本", |_| false), "日本");
        assert_eq!(free_id("<script>", |_| false), "script");
        assert_eq!(free_id("…", |_| false), "label");
    }
}
