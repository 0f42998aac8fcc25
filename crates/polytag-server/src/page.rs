//! The page, embedded: nothing is fetched from elsewhere, and nothing has to be built.

use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::api::ApiError;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Files under /page, by name.
const FILES: &[(&str, &str, &str)] = &[
    ("addform.js", SCRIPT, include_str!("../page/addform.js")),
    ("api.js", SCRIPT, include_str!("../page/api.js")),
    ("app.js", SCRIPT, include_str!("../page/app.js")),
    ("batch.js", SCRIPT, include_str!("../page/batch.js")),
    ("charts.js", SCRIPT, include_str!("../page/charts.js")),
    ("csv.js", SCRIPT, include_str!("../page/csv.js")),
    ("dialog.js", SCRIPT, include_str!("../page/dialog.js")),
    ("docs.js", SCRIPT, include_str!("../page/docs.js")),
    ("dom.js", SCRIPT, include_str!("../page/dom.js")),
    ("files.js", SCRIPT, include_str!("../page/files.js")),
    ("job.js", SCRIPT, include_str!("../page/job.js")),
    ("labels.js", SCRIPT, include_str!("../page/labels.js")),
    ("map.js", SCRIPT, include_str!("../page/map.js")),
    ("marks.js", SCRIPT, include_str!("../page/marks.js")),
    ("model.js", SCRIPT, include_str!("../page/model.js")),
    ("results.js", SCRIPT, include_str!("../page/results.js")),
    ("schema.js", SCRIPT, include_str!("../page/schema.js")),
    ("style.css", STYLE, include_str!("../page/style.css")),
    ("tag.js", SCRIPT, include_str!("../page/tag.js")),
    ("tryit.js", SCRIPT, include_str!("../page/tryit.js")),
    ("why.js", SCRIPT, include_str!("../page/why.js")),
];

fn content(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
}

/// The page where people tag.
pub(crate) async fn index() -> Response {
    content(HTML, include_str!("../page/index.html"))
}

/// The page that describes the API.
pub(crate) async fn docs() -> Response {
    content(HTML, include_str!("../page/docs.html"))
}

/// A part of a page.
pub(crate) async fn file(Path(name): Path<String>) -> Result<Response, ApiError> {
    let found = FILES.iter().find(|(known, ..)| *known == name);
    found.map(|(_, kind, text)| content(kind, text)).ok_or(ApiError::Nothing)
}
