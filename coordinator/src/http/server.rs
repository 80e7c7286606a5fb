//! The server: connections, limits, and where every address leads.

use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, Request},
    http::{StatusCode, Uri},
    middleware,
    routing::{get, post},
};
use hyper::{body::Incoming as IncomingBody, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{net::TcpListener, time::timeout};
use tokio_stream::StreamExt as _;
use tonic::transport::server::Connected as _;
use tower::Service as _;

use super::{
    api, error::Refusal, guard, live::Live, metrics, page, sessions::Sessions,
    storage::StorageHealth, submit,
};
use crate::{
    descriptors,
    doors::{Accounts, Connections, Gate, Guest, Incoming, Limits, Peer},
    driver::{Clock, DriverHandle},
    grpc::{ServeError, bind},
    render::Statuses,
};

/// Connections at the same time: pages that people leave open, scrapes and probes.
const MOST_CONNECTIONS: usize = 1024;

/// Bytes of a request's body: commands are short.
const MOST_BODY_BYTES: usize = 64 << 10;

/// Bytes of a request's head.
const MOST_HEAD_BYTES: usize = 16 << 10;

/// A request whose head has not come by then is none.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// An answer that has not begun by then is refused.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Requests under way on one connection.
const REQUESTS_PER_CONNECTION: u32 = 64;

const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How long requests under way may take once the server closes.
const CLOSES_WITHIN: Duration = Duration::from_secs(2);

/// Why the HTTP port cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The port is another program's.
    #[error(
        "{address} is in use by another program; stop it, give another --http address, or --no-http"
    )]
    InUse {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {why}; give another --http address, or --no-http")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the operating system said.
        why: io::Error,
    },
}

/// What every answer is made from.
pub(super) type App = Arc<AppParts>;

pub(super) struct AppParts {
    pub(super) driver: DriverHandle,
    pub(super) clock: Clock,
    pub(super) statuses: Statuses,
    pub(super) gate: Gate,
    pub(super) accounts: Arc<Accounts>,
    /// The names that other machines have for this one.
    pub(super) names: Vec<String>,
    pub(super) requests: metrics::Requests,
    pub(super) sessions: Arc<Sessions>,
    pub(super) live: Live,
    pub(super) storage: StorageHealth,
}

/// Where the pages are, for those who ask over gRPC.
#[derive(Clone, Debug)]
pub struct Dashboard {
    /// The address of the first page, without a slash at its end.
    pub url: String,
    /// Whether it is reached from the coordinator's own machine alone.
    pub only_here: bool,
    pub(crate) sessions: Arc<Sessions>,
}

impl Dashboard {
    /// The pages at this address.
    pub fn new(url: String, only_here: bool) -> Self {
        Self {
            url,
            only_here,
            sessions: Arc::default(),
        }
    }
}

/// The HTTP face, ready to serve.
pub struct Http {
    app: App,
}

impl Http {
    /// Takes the port, so that a port in use is known before anything else happens.
    pub fn bind(address: SocketAddr) -> Result<TcpListener, HttpError> {
        bind(address).map_err(|error| match error {
            ServeError::InUse { address } => HttpError::InUse { address },
            ServeError::Bind { address, why } => HttpError::Bind { address, why },
            ServeError::Transport(_) | ServeError::Reflection(_) => {
                unreachable!("binding neither serves nor reflects")
            }
        })
    }

    /// A face that asks `driver`, which keeps its counts in `storage`, for those whom `gate` admits;
    /// other machines know this one by `names`.
    pub fn new(
        driver: DriverHandle,
        clock: Clock,
        storage: StorageHealth,
        gate: Gate,
        (dashboard, names): (&Dashboard, Vec<String>),
    ) -> Self {
        let statuses = Statuses::new(driver.clone());
        let app = AppParts {
            live: Live::new(driver.clone(), statuses.clone(), clock),
            sessions: dashboard.sessions.clone(),
            statuses,
            driver,
            clock,
            gate,
            accounts: Accounts::new(Limits::default()),
            names,
            requests: metrics::Requests::default(),
            storage,
        };
        Self { app: Arc::new(app) }
    }

    /// Serves until `shutdown`, and then ends what is under way.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let most = MOST_CONNECTIONS.min(descriptors::left_for_connections());
        let connections = Connections::new(listener, most);
        let mut incoming = Incoming::new(connections, self.app.gate.locks(), Limits::default());
        let router = router(&self.app);
        let under_way = GracefulShutdown::new();
        let mut shutdown = pin!(shutdown);
        let live = self.app.clone();
        let ticking = tokio::spawn(async move { live.live.tick().await });
        loop {
            tokio::select! {
                guest = incoming.next() => match guest {
                    Some(Ok(guest)) => attend(guest, router.clone(), &under_way),
                    // Its connection is gone; the next may be fine.
                    Some(Err(_)) => {}
                    None => break,
                },
                () = &mut shutdown => break,
            }
        }
        ticking.abort();
        self.app.live.close();
        // Whoever does not let go is cut off with the process.
        let _ = timeout(CLOSES_WITHIN, under_way.shutdown()).await;
    }
}

/// Serves one connection in a task of its own.
fn attend(guest: Guest, router: Router, under_way: &GracefulShutdown) {
    let peer: Peer = guest.connect_info();
    let (address, tls) = (peer.address, peer.tls);
    let service = service_fn(move |request: hyper::Request<IncomingBody>| {
        let (mut router, peer) = (router.clone(), peer.clone());
        async move {
            let mut request: Request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            let answer: Result<_, Infallible> = router.call(request).await;
            answer
        }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    if !tls {
        // Browsers speak HTTP/2 over TLS alone, and what is not guessed need not be waited for.
        server = server.http1_only();
    }
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(MOST_HEAD_BYTES);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(MOST_HEAD_BYTES).unwrap_or(u32::MAX))
        .max_concurrent_streams(REQUESTS_PER_CONNECTION)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    let connection = server.serve_connection(TokioIo::new(guest), service);
    let connection = under_way.watch(connection.into_owned());
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("{address}: HTTP: {error}");
        }
    });
}

fn router(app: &App) -> Router {
    Router::new()
        .route("/healthz", get(api::health))
        .route("/readyz", get(api::ready))
        .route("/metrics", get(metrics::metrics))
        .route("/api/v1/openapi.json", get(api::description))
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/workers", get(api::workers))
        .route("/api/v1/runs", get(api::runs).post(submit::submit))
        .route("/api/v1/runs/{run}", get(api::run).delete(api::delete))
        .route("/api/v1/runs/{run}/pause", post(api::pause))
        .route("/api/v1/runs/{run}/resume", post(api::resume))
        .route("/api/v1/runs/{run}/cancel", post(api::cancel))
        .route("/api/v1/runs/{run}/retry", post(api::retry))
        .route("/api/v1/runs/{run}/recheck", post(api::recheck))
        .route("/api/v1/runs/{run}/map", get(api::map))
        .route("/api/v1/runs/{run}/grid", get(api::grid))
        .route("/api/v1/runs/{run}/tasks/{task}", get(api::task))
        .route("/api/v1/runs/{run}/history", get(api::history))
        .route("/api/v1/join", post(api::join))
        .route("/", get(page::home))
        .route("/workers", get(page::workers))
        .route("/runs/{run}", get(page::run))
        .route("/runs/{run}/events", get(page::events))
        .route("/login", get(page::login_form).post(page::login))
        .route("/login/{link}", get(page::follow))
        .route("/logout", post(page::logout))
        .route("/assets/{name}", get(page::asset))
        .route_layer(middleware::from_fn_with_state(app.clone(), guard::admit))
        .fallback(nothing_there)
        .layer(DefaultBodyLimit::max(MOST_BODY_BYTES))
        .layer(middleware::from_fn(guard::harden))
        .with_state(app.clone())
}

async fn nothing_there(uri: Uri) -> Refusal {
    let what = format!(
        "there is nothing at {}; see /api/v1/openapi.json",
        uri.path()
    );
    Refusal::new(StatusCode::NOT_FOUND, what)
}
