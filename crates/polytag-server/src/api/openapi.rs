//! The description of it all, for programs and for /docs.

use std::sync::LazyLock;

use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{Content, Ref, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use super::error::Failure;
use super::receive::Json;
use super::{annif, feedback, health, labels, models, tag};

/// Every address, what it takes and what it gives.
#[derive(OpenApi)]
#[openapi(
    info(title = "polytag", description = "Tag texts with labels, and change the labels."),
    paths(
        models::all,
        models::model,
        models::tail,
        models::curve,
        models::map,
        tag::tag,
        tag::explain,
        labels::search,
        labels::one,
        labels::add,
        labels::change,
        labels::retire,
        feedback::add,
        feedback::export,
        annif::projects,
        annif::project,
        annif::suggest,
        annif::suggest_batch,
        annif::learn,
        health::alive,
        health::ready,
        health::metrics
    ),
    components(schemas(labels::Only, Failure)),
    modifiers(&Common)
)]
struct Api;

/// What any address may answer, because of who asks or how the server stands.
struct Common;

impl Modify for Common {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        for (path, item) in &mut api.paths.paths {
            let PathItem { get, post, patch, delete, .. } = item;
            for operation in [get, post, patch, delete].into_iter().flatten() {
                let takes_body = operation.request_body.is_some();
                let has_parts = path.contains('{');
                let also = [
                    (takes_body, "408", "The body came too slowly"),
                    (has_parts, "400", "It cannot be read"),
                ];
                let always = [
                    ("401", "A key is needed"),
                    ("403", "The key does not open this, or the request comes from elsewhere"),
                    ("500", "A fault of the server's"),
                    ("503", "The server is shutting down, or the database of labels cannot be used"),
                ];
                let also =
                    also.into_iter().filter(|(fits, ..)| *fits).map(|(_, status, words)| (status, words));
                always.into_iter().chain(also).for_each(|(status, words)| tell(operation, status, words));
            }
        }
    }
}

/// Adds an answer to those that an operation may give.
fn tell(operation: &mut Operation, status: &str, words: &str) {
    let body = Content::new(Some(Ref::from_schema_name("Failure")));
    let response = ResponseBuilder::new().description(words).content("application/json", body).build();
    operation.responses.responses.entry(status.to_owned()).or_insert_with(|| response.into());
}

/// The description.
pub(super) async fn document() -> Json<&'static utoipa::openapi::OpenApi> {
    static DOCUMENT: LazyLock<utoipa::openapi::OpenApi> = LazyLock::new(Api::openapi);
    Json(&DOCUMENT)
}
