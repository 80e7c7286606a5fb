//! Authentication, authorization, cross-site protection and errors of requests.

use std::sync::Arc;

use auth::{AuthError, Call, CallerCredential, Peer, Subject, TrackedBody, http_access};
use axum::{
    Json,
    body::{Body, Bytes},
    extract::{self, FromRequest, FromRequestParts, MatchedPath, Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts,
        uri::Authority,
    },
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};
use common::text::Escaped;
use http_body::Frame;
use maud::html;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;
use tonic::{Code, Status};

use super::{ANSWER_TIMEOUT, App, layout::page, sessions::session};
use crate::driver::{RequestError, Stopped};

/// The answer to a rejected request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(super) struct ErrorAnswer {
    error: ErrorCause,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ErrorCause {
    /// Name of the HTTP status, such as not_found.
    code: String,
    /// One line for people: what failed, why, and what to do.
    message: String,
}

/// A rejected request.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) code: StatusCode,
    /// One line: what failed, why, and what to do.
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }
}

/// The query of an API call; an invalid one is refused in JSON.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match extract::Query::from_request_parts(parts, state).await {
            Ok(extract::Query(query)) => Ok(Self(query)),
            Err(bad) => {
                let why =
                    bad.body_text().replace("Failed to deserialize query string", "invalid query");
                let why = why.replace(
                    "invalid digit found in string",
                    "expected a whole number, at least 0",
                );
                Err(Refusal::new(bad.status(), why))
            }
        }
    }
}

/// The JSON body of an API call; an invalid one is refused in JSON.
pub(super) struct Input<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Input<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let read = Json::from_request(request, state).await;
        let Json(body) = read.map_err(|bad| Refusal::new(bad.status(), bad.body_text()))?;
        Ok(Self(body))
    }
}

/// Maps gRPC codes to HTTP.
impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let code = match status.code() {
            Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Code::Ok | Code::Cancelled | Code::Unknown | Code::Internal | Code::DataLoss => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self::new(code, status.message())
    }
}

impl From<Stopped> for Refusal {
    fn from(stopped: Stopped) -> Self {
        Status::from(stopped).into()
    }
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        Status::from(error).into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { code, message } = self;
        let reason = code.canonical_reason().unwrap_or("error");
        let reason = reason.to_lowercase().replace(' ', "_");
        // The message may quote the request.
        let message = Escaped(&message).to_string();
        let body = ErrorAnswer { error: ErrorCause { code: reason, message: message.clone() } };
        let mut response = (code, Json(body)).into_response();
        if code == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer realm=\"queens\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        response.extensions_mut().insert(Self { code, message });
        response
    }
}

/// Returns whether errors are pages: for the routes of pages, and for browsers outside of the API.
pub(super) fn wants_page(request: &Request, route: &str) -> bool {
    let accepted = request.headers().get(header::ACCEPT).and_then(|kinds| kinds.to_str().ok());
    let is_browser = accepted.is_some_and(|kinds| kinds.contains("text/html"));
    *request.method() == Method::GET
        && (matches!(route, "/" | "/workers" | "/runs" | "/events" | "/runs/{run}" | "/count")
            || is_browser && !request.uri().path().starts_with("/api/"))
}

/// Returns the page of an error, or a redirect to the login.
pub(super) fn error_page(refusal: &Refusal) -> Response {
    if refusal.code == StatusCode::UNAUTHORIZED {
        return Redirect::to("/login").into_response();
    }
    let body = html! { body { main.login { h1 { "queens" } p.error role="alert" { (refusal.message) } } } };
    (refusal.code, page("queens", &body)).into_response()
}

/// Answers a request for an unknown address.
pub(super) async fn not_found(request: Request) -> Response {
    let what =
        format!("{} not found; see / for the pages and /api/v1/openapi.json", request.uri().path());
    let refusal = Refusal::not_found(what);
    if wants_page(&request, "") { error_page(&refusal) } else { refusal.into_response() }
}

/// The content type of server-sent events.
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// Authorizes a request and passes it on with its [`Subject`] as an extension.
pub(super) async fn authorize(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or_else(String::new, |path| path.as_str().to_owned());
    let method = request.method().clone();
    let for_people = wants_page(&request, &route);
    let answered = match authorized(&app, &route, &request) {
        Ok((subject, call)) => {
            let ended = app.authenticator.until_ended(&subject);
            request.extensions_mut().insert(subject);
            // Removed so that it cannot be logged.
            request.headers_mut().remove(header::AUTHORIZATION);
            let is_read = method == Method::GET;
            match in_time(&app, next.run(request), is_read).await {
                Ok(response) => {
                    // Only readers of streams understand a final message.
                    let kind = response.headers().get(header::CONTENT_TYPE);
                    let ended = ended.filter(|_| kind.is_some_and(|kind| kind == EVENT_STREAM));
                    response.map(|body| Body::new(TrackedBody::new(body, call, ended, last_event)))
                }
                Err(refusal) => refusal.into_response(),
            }
        }
        Err(refusal) => {
            if let Some(peer) = request.extensions().get::<Peer>() {
                peer.activity.record_refusal();
            }
            refusal.into_response()
        }
    };
    let refusal = answered.extensions().get::<Refusal>().filter(|_| for_people).cloned();
    let answered = refusal.map_or(answered, |refusal| error_page(&refusal));
    app.requests.count(&method, &route, answered.status());
    answered
}

/// Waits for the answer to a read or a change.
async fn in_time(
    app: &App,
    answer: impl Future<Output = Response>,
    is_read: bool,
) -> Result<Response, Refusal> {
    let answered = timeout(ANSWER_TIMEOUT, async {
        if is_read { app.driver.in_time(answer).await } else { Ok(answer.await) }
    });
    let answered = answered.await.map_err(|_| {
        let message = "no answer in time; the coordinator is busy, try again";
        Refusal::new(StatusCode::GATEWAY_TIMEOUT, message)
    })?;
    answered.map_err(|outage| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, outage.to_string()))
}

/// Returns the caller and its call, which holds the connection during the answer.
fn authorized(app: &App, route: &str, request: &Request) -> Result<(Subject, Arc<Call>), Refusal> {
    let method = request.method();
    let host = requested_host(request)?;
    check_host(app, host.as_ref())?;
    let access = http_access(method.as_str(), route).ok_or_else(|| {
        let what = format!("{method} is not supported for {route}; see /api/v1/openapi.json");
        Refusal::new(StatusCode::METHOD_NOT_ALLOWED, what)
    })?;
    let headers = request.headers();
    own_pages_only(request, host.as_ref())?;
    let peer = request.extensions().get::<Peer>();
    let open = || session(headers).and_then(|session| app.sessions.open.find(session));
    let credential = match bearer(headers)? {
        Some(token) => Some(CallerCredential::Bearer(token)),
        None => open().map(CallerCredential::Session),
    };
    let subject = app.authenticator.authenticate(access, peer, credential)?;
    let call = app.usage.start_call(&subject, peer.map(|peer| &peer.activity))?;
    Ok((subject, Arc::new(call)))
}

fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    match value.to_str().ok().and_then(auth::bearer) {
        Some(token) => Ok(Some(token)),
        None => Err(Refusal::new(
            StatusCode::UNAUTHORIZED,
            "the Authorization header must be: Bearer TOKEN",
        )),
    }
}

/// Rejects changes that a page of another site requests: browsers send its origin.
fn own_pages_only(request: &Request, host: Option<&Authority>) -> Result<(), Refusal> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
    }
    let headers = request.headers();
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let site = text(HeaderName::from_static("sec-fetch-site"));
    let foreign_site = site.is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let foreign_origin = headers.contains_key(header::ORIGIN) && {
        let origin = text(header::ORIGIN).and_then(|origin| origin.split_once("://"));
        origin.map(|(_, host)| host) != host.map(Authority::as_str)
    };
    match foreign_site || foreign_origin {
        true => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "rejected a change requested by another site; use the coordinator's own pages",
        )),
        false => Ok(()),
    }
}

/// Rejects requests for unknown host names, to prevent DNS rebinding: another site
/// could make its own name resolve to this machine. An IP address cannot be rebound.
fn check_host(app: &App, host: Option<&Authority>) -> Result<(), Refusal> {
    // Browsers always send a host.
    let Some(host) = host.map(|host| host.host().trim_matches(['[', ']'])) else {
        return Ok(());
    };
    let by_address = host.parse::<std::net::IpAddr>().is_ok();
    let by_name = |name: &String| name.eq_ignore_ascii_case(host);
    if by_address || host.eq_ignore_ascii_case("localhost") || app.names.iter().any(by_name) {
        return Ok(());
    }
    Err(Refusal::new(
        StatusCode::MISDIRECTED_REQUEST,
        format!(
            "unknown host '{}': use an address of the coordinator, or start it with --http-host NAME",
            Escaped(host)
        ),
    ))
}

/// Returns the host of a request, from its URI (HTTP/2) or the Host header.
fn requested_host(request: &Request) -> Result<Option<Authority>, Refusal> {
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.clone()));
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return match request.headers().contains_key(header::HOST) {
            true => Err(Refusal::new(StatusCode::BAD_REQUEST, "more than one Host header")),
            false => Ok(None),
        };
    };
    Authority::try_from(host.as_bytes()).map(Some).map_err(|_| {
        Refusal::new(StatusCode::BAD_REQUEST, "invalid Host header: expected HOST or HOST:PORT")
    })
}

/// Returns the final message of an event stream whose token is no longer valid.
fn last_event(denied: &AuthError) -> Frame<Bytes> {
    let why = serde_json::json!({ "why": denied.to_string() });
    Frame::data(Bytes::from(format!("event: ended\ndata: {why}\n\n")))
}

/// Returns a policy of a page's content with these sources of scripts.
macro_rules! policy {
    ($scripts:literal) => {
        concat!(
            "default-src 'none'; script-src ",
            $scripts,
            "; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; \
             base-uri 'none'"
        )
    };
}

/// Adds security headers: no foreign or inline content, no framing.
pub(super) async fn harden(request: Request, next: Next) -> Response {
    // Only the page that counts, and its counter, compile WebAssembly.
    let policy = match request.uri().path() {
        "/count" | "/assets/counter.js" => policy!("'self' 'wasm-unsafe-eval'"),
        _ => policy!("'self'"),
    };
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        // With no-referrer browsers would hide the origin of our own forms.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}
