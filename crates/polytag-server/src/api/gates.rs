//! Who may pass, and what a browser may do with an answer.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::error::Fallen;
use super::{ApiError, App};
use crate::journal::Event;
use crate::keys::Scope;

/// Who asks: the name of a key.
#[derive(Clone, Debug)]
pub(super) struct Asker(pub(super) String);

/// Counts every answer, and tells of faults.
pub(super) async fn count(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    app.metrics.answered(&route, response.status().as_u16(), started.elapsed());
    if let Some(Fallen(problem)) = response.extensions().get::<Fallen>() {
        app.journal.write(Event::Fault { place: &route, problem });
    }
    response
}

/// Lets a browser do nothing with an answer but show it.
pub(super) async fn harden(mut response: Response) -> Response {
    const HEADERS: [(HeaderName, &str); 5] = [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Where no key is needed, only those who know that they speak to this machine may ask: a page from elsewhere whose name
/// was bent to point here does not.
pub(super) async fn same_site(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if app.server.keys.is_empty() {
        let host = host(request.uri(), request.headers());
        let is_local = host.is_some_and(is_local);
        let foreign = request
            .headers()
            .get("sec-fetch-site")
            .is_some_and(|site| site != "same-origin" && site != "none")
            && request.method() != Method::GET;
        if !is_local || foreign {
            return ApiError::Stranger.into_response();
        }
    }
    next.run(request).await
}

/// The host that a request is for, without its port.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let named = uri.host().or_else(|| headers.get(header::HOST)?.to_str().ok())?;
    let end = if named.starts_with('[') { named.find(']').map(|end| end + 1) } else { named.find(':') };
    Some(&named[..end.unwrap_or(named.len())])
}

fn is_local(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Asks for a key where keys are needed.
pub(super) async fn authorise(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let by = match asker(&app, &request) {
        Ok(by) => by,
        Err(error) => return error.into_response(),
    };
    request.extensions_mut().insert(Asker(by));
    next.run(request).await
}

fn asker(app: &App, request: &Request) -> Result<String, ApiError> {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let Some(needed) = needed(request.method(), route) else { return Ok("anyone".to_owned()) };
    if app.server.keys.is_empty() {
        return Ok("nobody".to_owned());
    }
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let (scheme, key) = header.and_then(|value| value.split_once(' ')).ok_or(ApiError::NoKey)?;
    let found = app.server.keys.find(key.trim()).filter(|_| scheme.eq_ignore_ascii_case("bearer"));
    let (name, scope) = found.ok_or(ApiError::NoKey)?;
    if scope < needed { Err(ApiError::WrongScope) } else { Ok(name.to_owned()) }
}

/// What a key must open for a request to a route; nothing, if anyone may make it.
fn needed(method: &Method, route: &str) -> Option<Scope> {
    let last = route.rsplit('/').next().unwrap_or_default();
    let is_read = method == Method::GET || method == Method::HEAD;
    match route {
        "/metrics" => Some(Scope::Read),
        // The page asks for a key itself, and machines that watch have none.
        _ if !route.starts_with("/v1/") => None,
        _ if is_read && last == "feedback" => Some(Scope::Admin),
        _ if is_read => Some(Scope::Read),
        _ if matches!(last, "tag" | "explain" | "suggest" | "suggest-batch") && method == Method::POST => {
            Some(Scope::Read)
        }
        _ => Some(Scope::LabelWrite),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_needs_more() {
        let needs = |method: Method, path: &str| needed(&method, path);
        assert_eq!(needs(Method::GET, "/"), None);
        assert_eq!(needs(Method::GET, "/healthz"), None);
        assert_eq!(needs(Method::GET, "/v1/models/m/labels"), Some(Scope::Read));
        assert_eq!(needs(Method::POST, "/v1/models/m/tag"), Some(Scope::Read));
        assert_eq!(needs(Method::POST, "/v1/models/m/labels"), Some(Scope::LabelWrite));
        assert_eq!(needs(Method::GET, "/v1/models/{model}/labels/{id}"), Some(Scope::Read));
        assert_eq!(needs(Method::POST, "/v1/models/m/feedback"), Some(Scope::LabelWrite));
        assert_eq!(needs(Method::GET, "/v1/models/m/feedback"), Some(Scope::Admin));
    }

    #[test]
    fn only_this_machine_is_this_machine() {
        for local in ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"] {
            assert!(is_local(local), "{local}");
        }
        for foreign in ["example.org", "localhost.example.org", "10.0.0.1", ""] {
            assert!(!is_local(foreign), "{foreign}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("[::1]:8080"));
        assert_eq!(host(&Uri::from_static("/"), &headers), Some("[::1]"));
    }
}
