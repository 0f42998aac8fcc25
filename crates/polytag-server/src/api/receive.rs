//! Bodies, bounded in size and time.

use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ApiError, App};

/// What the body of a request says it is, without parameters.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// A body of JSON.
pub(super) async fn json<T: DeserializeOwned>(
    app: &App,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, ApiError> {
    let found = media_type(headers);
    // A form on a foreign page cannot send this type unasked.
    if found != "application/json" {
        let found = if found.is_empty() { "of no type".to_owned() } else { found };
        return Err(ApiError::MediaType { found });
    }
    let bytes = whole(app, body).await?;
    serde_json::from_slice(&bytes).map_err(|error| ApiError::Malformed { problem: error.to_string() })
}

/// A whole body, if it is small enough and arrives in time.
pub(super) async fn whole(app: &App, body: Body) -> Result<Bytes, ApiError> {
    let most = app.server.limits.body;
    let gather = async {
        let (mut stream, mut bytes) = (body.into_data_stream(), Vec::new());
        while let Some(part) = stream.next().await {
            let part = part.map_err(|error| ApiError::Malformed { problem: error.to_string() })?;
            if bytes.len() + part.len() > most {
                return Err(ApiError::TooLarge { most });
            }
            bytes.extend_from_slice(&part);
        }
        Ok(Bytes::from(bytes))
    };
    let seconds = app.server.receive.as_secs_f64();
    tokio::time::timeout(app.server.receive, gather).await.unwrap_or(Err(ApiError::TooSlow { seconds }))
}

/// Parts of an address. What cannot be read is told as everything else is.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>, ApiError> {
        let read = axum::extract::Path::from_request_parts(parts, state).await;
        let read = read.map_err(|error| ApiError::Malformed { problem: error.body_text() })?;
        Ok(Path(read.0))
    }
}

/// The query of an address, told of in the same way.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Query<T>, ApiError> {
        let read = axum::extract::Query::try_from_uri(&parts.uri);
        let read = read.map_err(|error| ApiError::Malformed { problem: error.body_text() })?;
        Ok(Query(read.0))
    }
}

/// An answer of JSON.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(_) => ApiError::Ours.into_response(),
        }
    }
}
