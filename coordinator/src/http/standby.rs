//! The HTTP service of a standby. It needs no token, since it says nothing about runs.

use std::time::Duration;

use auth::Authenticator;
use axum::{
    Json, Router,
    extract::{Request, State},
    http::StatusCode,
    middleware,
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::json;
use store::Observed;
use tokio::{net::TcpListener, sync::watch, time::timeout};

use super::{
    SHUTDOWN_TIMEOUT, api,
    guard::{Refusal, error_page, harden, wants_page},
    metrics, page, serve_until,
};

type Seen = watch::Receiver<Option<Observed>>;

/// Serves probes, metrics and a page until the sender of `seen` is dropped.
pub async fn serve_standby(listener: TcpListener, authenticator: Authenticator, seen: Seen) {
    let router = Router::new()
        .route("/healthz", get(api::health))
        .route("/readyz", get(not_ready))
        .route("/metrics", get(async |seen: State<Seen>| metrics::of_standby(silence(&seen))))
        .route("/assets/{name}", get(page::asset))
        .fallback(not_leading)
        .layer(middleware::from_fn(harden))
        .with_state(seen.clone());
    let mut seen = seen;
    let ended = async {
        let _ = seen.wait_for(|_| false).await;
    };
    let under_way = serve_until(listener, authenticator, router, ended).await;
    // Clients with an open connection connect again, to the leader that this coordinator is now.
    let _ = timeout(SHUTDOWN_TIMEOUT, under_way.shutdown()).await;
}

/// Returns the time since the leader's last heartbeat.
fn silence(seen: &Seen) -> Duration {
    seen.borrow().as_ref().map_or(Duration::ZERO, |seen| seen.heard.elapsed())
}

async fn not_ready() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "ready": false }))).into_response()
}

/// Answers every other request.
async fn not_leading(State(seen): State<Seen>, request: Request) -> Response {
    let leader = seen.borrow().as_ref().map_or(String::new(), |seen| seen.leader.name.clone());
    let refusal = Refusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!(
            "standby of {leader}, last heard {:.1} s ago: ask the leader; this coordinator takes over if \
             its heartbeat stops",
            silence(&seen).as_secs_f64()
        ),
    );
    match wants_page(&request, request.uri().path()) {
        true => error_page(&refusal),
        false => refusal.into_response(),
    }
}
