//! What is answered when something is wrong: a status, a code for programs, a sentence for people, a remedy.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use polytag::Fault;
use polytag::artifact::ArtifactError;
use polytag::data::SpaceError;
use polytag::index::IndexError;
use polytag::predict::PredictError;
use serde::Serialize;
use utoipa::ToSchema;

use crate::desk::DeskError;
use crate::store::StoreError;

/// Anything that is wrong with a request, or with us.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("the request is not what is expected: {problem}")]
    Malformed { problem: String },
    #[error("the body is {found}; send application/json")]
    MediaType { found: String },
    #[error("the body is larger than {most} bytes")]
    TooLarge { most: usize },
    #[error("the body did not arrive in {seconds} seconds")]
    TooSlow { seconds: f64 },
    #[error("{what}: {found} are more than the {most} that are allowed")]
    TooMany { what: &'static str, found: usize, most: usize },
    #[error("{what}: {problem}")]
    Unfit { what: &'static str, problem: String },
    #[error("there is no model {name:?}")]
    NoModel { name: String },
    #[error("there is no label {id:?}")]
    NoLabel { id: String },
    #[error("there is nothing at this address")]
    Nothing,
    #[error("this address does not answer to that method")]
    Method,
    #[error("this needs an API key")]
    NoKey,
    #[error("this key does not open that")]
    WrongScope,
    #[error("requests come from this machine, by its own name, or with a key")]
    Stranger,
    #[error(transparent)]
    Desk(#[from] DeskError),
    #[error(transparent)]
    Library(#[from] polytag::Error),
    #[error(transparent)]
    Store(StoreError),
    #[error("the server failed on this request")]
    Ours,
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        match error {
            StoreError::Model(error) => ApiError::Library(error),
            error => ApiError::Store(error),
        }
    }
}

impl From<polytag::storage::StorageError> for ApiError {
    fn from(error: polytag::storage::StorageError) -> ApiError {
        ApiError::Library(error.into())
    }
}

/// An error as it goes out.
#[derive(Serialize, ToSchema)]
pub(crate) struct Failure {
    error: Complaint,
}

/// What is wrong.
#[derive(Serialize, ToSchema)]
pub(crate) struct Complaint {
    /// The same for the same mistake, for programs.
    #[schema(value_type = String)]
    code: &'static str,
    /// A sentence for people.
    message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    remedy: Option<&'static str>,
}

impl ApiError {
    /// The status, a code for programs, and a remedy.
    fn kind(&self) -> (StatusCode, &'static str, Option<&'static str>) {
        use StatusCode as S;
        match self {
            ApiError::Malformed { .. } => {
                (S::BAD_REQUEST, "malformed", Some("/docs shows what each address takes"))
            }
            ApiError::MediaType { .. } => (S::UNSUPPORTED_MEDIA_TYPE, "media_type", None),
            ApiError::TooLarge { .. } => (
                S::PAYLOAD_TOO_LARGE,
                "too_large",
                Some("send less at once, or stream documents as application/x-ndjson"),
            ),
            ApiError::TooSlow { .. } => (S::REQUEST_TIMEOUT, "too_slow", None),
            ApiError::TooMany { what: "texts" | "tokens", .. } => (
                S::PAYLOAD_TOO_LARGE,
                "too_many",
                Some("send fewer at once, or stream them as application/x-ndjson"),
            ),
            ApiError::TooMany { .. } => (S::UNPROCESSABLE_ENTITY, "too_many", Some("ask for fewer at once")),
            ApiError::Unfit { .. } => (S::UNPROCESSABLE_ENTITY, "unfit", None),
            ApiError::NoModel { .. } => {
                (S::NOT_FOUND, "no_model", Some("GET /v1/models lists those that there are"))
            }
            ApiError::NoLabel { .. } | ApiError::Desk(DeskError::NoLabel(_)) => {
                let remedy = "GET /v1/models/{model}/labels?match= finds labels";
                let status = if matches!(self, ApiError::NoLabel { .. }) {
                    S::NOT_FOUND
                } else {
                    S::UNPROCESSABLE_ENTITY
                };
                (status, "no_label", Some(remedy))
            }
            ApiError::Nothing => (S::NOT_FOUND, "nothing_there", Some("/docs lists all addresses")),
            ApiError::Method => (S::METHOD_NOT_ALLOWED, "method", Some("/docs lists all addresses")),
            ApiError::NoKey => {
                (S::UNAUTHORIZED, "no_key", Some("send `Authorization: Bearer KEY` with a valid key"))
            }
            ApiError::WrongScope => (S::FORBIDDEN, "wrong_scope", Some("ask for a key with a wider scope")),
            ApiError::Stranger => (S::FORBIDDEN, "stranger", None),
            ApiError::Library(polytag::Error::Predict(PredictError::Space(error))) => match error {
                SpaceError::Taken { .. } => {
                    (S::CONFLICT, "taken", Some("take another id, or change the label"))
                }
                SpaceError::Unknown { .. } => (S::NOT_FOUND, "no_label", None),
                _ => (S::UNPROCESSABLE_ENTITY, "unfit", None),
            },
            ApiError::Desk(DeskError::Full { .. }) => {
                (S::TOO_MANY_REQUESTS, "busy", Some("come again after the seconds in Retry-After"))
            }
            ApiError::Desk(DeskError::Late) => (S::GATEWAY_TIMEOUT, "late", Some("send less at once")),
            ApiError::Desk(DeskError::Closed) => (S::SERVICE_UNAVAILABLE, "closing", None),
            ApiError::Desk(DeskError::Broken) | ApiError::Ours => (S::INTERNAL_SERVER_ERROR, "fault", None),
            ApiError::Desk(DeskError::Model(error)) => of_model(error),
            ApiError::Library(polytag::Error::Predict(error)) => of_model(error),
            ApiError::Library(polytag::Error::Artifact(ArtifactError::Replaced { .. })) => {
                (S::CONFLICT, "replaced", Some("start the server again"))
            }
            // A disk that is full or must not be written to.
            ApiError::Library(polytag::Error::Storage(_) | polytag::Error::Artifact(_)) => {
                (S::INSUFFICIENT_STORAGE, "disk", Some("nothing was changed; see to the server's disk"))
            }
            ApiError::Store(StoreError::Unsure { .. }) => (
                S::SERVICE_UNAVAILABLE,
                "store_unsure",
                Some(
                    "look at the label once the database is back, and ask again if it is not as it should be",
                ),
            ),
            ApiError::Store(StoreError::Busy) => {
                (S::SERVICE_UNAVAILABLE, "store_busy", Some("nothing was changed; ask again"))
            }
            ApiError::Store(error) if error.may_pass() => (
                S::SERVICE_UNAVAILABLE,
                "store_away",
                Some("nothing was changed; ask again when the database is back"),
            ),
            ApiError::Store(_) => {
                (S::SERVICE_UNAVAILABLE, "store_unfit", Some("nothing was changed; see to the database"))
            }
            ApiError::Library(_) => (S::INTERNAL_SERVER_ERROR, "fault", None),
        }
    }

    /// When to come again, if that helps.
    fn retry(&self) -> Option<Duration> {
        match self {
            ApiError::Desk(DeskError::Full { retry }) => Some(*retry),
            ApiError::Store(error) if error.may_pass() => Some(Duration::from_secs(1)),
            ApiError::Desk(DeskError::Model(error)) | ApiError::Library(polytag::Error::Predict(error))
                if is_away(error) =>
            {
                Some(Duration::from_secs(1))
            }
            _ => None,
        }
    }

    /// The body of the answer.
    pub(crate) fn failure(&self) -> Failure {
        let (_, code, remedy) = self.kind();
        Failure { error: Complaint { code, message: self.to_string(), remedy } }
    }
}

/// Whether the vectors of labels are in a database that cannot be reached now.
fn is_away(error: &PredictError) -> bool {
    matches!(error, PredictError::Index(IndexError::Away { may_pass: true, .. }))
}

/// What a refusal of a model means.
fn of_model(error: &PredictError) -> (StatusCode, &'static str, Option<&'static str>) {
    if is_away(error) {
        let remedy = "ask again when the database is back";
        return (StatusCode::SERVICE_UNAVAILABLE, "store_away", Some(remedy));
    }
    if matches!(error, PredictError::Index(IndexError::Away { .. })) {
        return (StatusCode::SERVICE_UNAVAILABLE, "store_unfit", Some("see to the database"));
    }
    match error.fault() {
        Fault::User => (StatusCode::UNPROCESSABLE_ENTITY, "refused", None),
        Fault::Ours => (StatusCode::INTERNAL_SERVER_ERROR, "fault", None),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, ..) = self.kind();
        let body = serde_json::to_vec(&self.failure()).expect("strings always make JSON");
        let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if let Some(retry) = self.retry() {
            let seconds = HeaderValue::from(retry.as_secs_f64().ceil().max(1.0) as u64);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::INSUFFICIENT_STORAGE].contains(&status) {
            response.extensions_mut().insert(Fallen(self.to_string()));
        }
        response
    }
}

/// What failed, for the journal.
#[derive(Clone)]
pub(crate) struct Fallen(pub(crate) String);

/// The answer of every other address.
pub(super) async fn nothing_there() -> ApiError {
    ApiError::Nothing
}

/// The answer to a method that an address does not know.
pub(super) async fn not_that_way() -> ApiError {
    ApiError::Method
}
