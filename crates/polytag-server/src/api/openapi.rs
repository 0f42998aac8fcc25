//! The description of it all, for programs and for /docs.

use utoipa::OpenApi;

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
    )
)]
struct Api;

/// The description.
pub(super) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Api::openapi())
}
