//! In front of every answer: who asks, may they, and is it they who ask.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use tokio::time::timeout;

use super::{
    error::Refusal,
    page,
    server::{ANSWER_WITHIN, App},
};
use crate::doors::{Call, Kept, Peer, Principal, Proof, http_access};

/// Lets a request through to its answer, with its [`Principal`] among its extensions.
pub(super) async fn admit(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or_else(String::new, |path| path.as_str().to_owned());
    let method = request.method().clone();
    let for_people = page::is_page(&method, &route);
    let answered = match entered(&app, &route, &request) {
        Ok((principal, call)) => {
            request.extensions_mut().insert(principal);
            // No one below wants the secret, and what is not there is not logged.
            request.headers_mut().remove(header::AUTHORIZATION);
            match timeout(ANSWER_WITHIN, next.run(request)).await {
                Ok(response) => response.map(|body| Body::new(Kept { body, _call: call })),
                Err(_) => Refusal::new(
                    StatusCode::GATEWAY_TIMEOUT,
                    "no answer in time; the coordinator is busy, try again",
                )
                .into_response(),
            }
        }
        Err(refusal) => {
            if let Some(peer) = request.extensions().get::<Peer>() {
                peer.visit.refuses();
            }
            match for_people {
                true => page::turned_away(&refusal),
                false => refusal.into_response(),
            }
        }
    };
    app.requests.count(&method, &route, answered.status());
    answered
}

/// Who asks, and what keeps the connection while the answer is under way.
fn entered(app: &App, route: &str, request: &Request) -> Result<(Principal, Arc<Call>), Refusal> {
    let method = request.method();
    let access = http_access(method.as_str(), route).ok_or_else(|| {
        let what = format!("{method} is not for {route}; see /api/v1/openapi.json");
        Refusal::new(StatusCode::METHOD_NOT_ALLOWED, what)
    })?;
    let headers = request.headers();
    own_pages_only(request)?;
    let peer = request.extensions().get::<Peer>();
    let session = || page::session(headers).and_then(|session| app.sessions.find(session));
    let proof = match bearer(headers)? {
        Some(token) => Some(Proof::Bearer(token)),
        None => session().map(Proof::Session),
    };
    let shown = proof.is_some();
    let principal = app.gate.enter(access, peer, proof)?;
    if !shown {
        known_host(app, request)?;
    }
    let call = app
        .accounts
        .enter(&principal, peer.map(|peer| &peer.visit))?;
    Ok((principal, Arc::new(call)))
}

fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let bearer = value.to_str().ok();
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
    match bearer {
        Some(token) => Ok(Some(token)),
        None => Err(Refusal::new(
            StatusCode::UNAUTHORIZED,
            "the Authorization header must be: Bearer TOKEN",
        )),
    }
}

/// A page of another site that a user of this machine looks at can send requests here, but cannot hide
/// where it is from: what changes something is done for this coordinator's own pages and for programs.
fn own_pages_only(request: &Request) -> Result<(), Refusal> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
    }
    let headers = request.headers();
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let site = text(HeaderName::from_static("sec-fetch-site"));
    let foreign_site = site.is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let foreign_origin = headers.contains_key(header::ORIGIN) && {
        let origin = text(header::ORIGIN).and_then(|origin| origin.split_once("://"));
        let own = addressed_to(request);
        origin.map(|(_, host)| host) != own.as_ref().map(Authority::as_str)
    };
    match foreign_site || foreign_origin {
        true => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "this came from a page of another site; changes are made from the coordinator's own pages",
        )),
        false => Ok(()),
    }
}

/// Whoever shows no token is believed because of where it is. A name that somebody else's name server
/// resolves to this machine would make every browser on it a helper of that somebody, so that such
/// requests have to be addressed to this machine by an address or by a name that it is known to have.
fn known_host(app: &App, request: &Request) -> Result<(), Refusal> {
    // Only very old programs send no host, and browsers always do.
    let Some(named) = addressed_to(request) else {
        return Ok(());
    };
    let host = named.host().trim_matches(['[', ']']);
    let by_address = host.parse::<std::net::IpAddr>().is_ok();
    if by_address || host == "localhost" || app.names.iter().any(|name| name == host) {
        return Ok(());
    }
    Err(Refusal::new(
        StatusCode::MISDIRECTED_REQUEST,
        format!(
            "this coordinator is not known as '{host}'; use its address, or start it with --advertise"
        ),
    ))
}

/// The host that a request names: in its address over HTTP/2, which browsers speak over TLS, and in a
/// header otherwise.
fn addressed_to(request: &Request) -> Option<Authority> {
    request.uri().authority().cloned().or_else(|| {
        let host = request.headers().get(header::HOST)?;
        Authority::try_from(host.as_bytes()).ok()
    })
}

/// What every answer says to browsers: nothing from elsewhere, nothing inline, in no frame.
pub(super) async fn harden(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (
            "content-security-policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src \
             'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        ),
        ("x-content-type-options", "nosniff"),
        // Without a referrer browsers hide from us, too, that a form is our own.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}
