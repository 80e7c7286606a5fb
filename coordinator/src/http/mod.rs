//! The HTTP service: pages, the JSON interface, metrics and probes.
//!
//! Like the gRPC services, handlers decode a request, ask the driver and encode its reply. The JSON format is
//! that of `queensctl --json`. The access table in `auth` lists the role that each route needs.

mod api;
mod broadcast;
mod files;
#[doc(hidden)]
pub mod fuzz_targets;
mod guard;
mod layout;
mod lists;
mod machines;
mod map;
mod metrics;
mod openapi;
mod page;
mod preview;
mod sessions;
mod standby;
mod task;
mod volunteers;

use std::{convert::Infallible, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use auth::{AcceptedConnection, Authenticator, Limits, Peer, UsageTable, VisitorQuotas};
use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, Path, Request, State},
    middleware,
    routing::{MethodRouter, get, post},
};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use scheduler::Command;
use store::{Clock, SecretStore, StoreError, descriptors};
use tokio::{net::TcpListener, time::timeout};
use tokio_stream::StreamExt as _;
use tonic::transport::server::Connected as _;
use tower::Service as _;

pub use self::{metrics::StorageHealth, standby::serve_standby};

use self::{
    api::{Caller, control},
    broadcast::Broadcast,
    sessions::Sessions,
};
use crate::{
    driver::DriverHandle,
    listen::{BindError, bind_port},
    status_cache::StatusCache,
};

/// Maximum number of concurrent connections: open pages, scrapes and probes.
const MAX_CONNECTIONS: usize = 1024;

const MAX_BODY_BYTES: usize = 64 << 10;

const MAX_HEAD_BYTES: usize = 16 << 10;

/// Time for a request's head to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for an answer to begin.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of concurrent requests per connection.
const MAX_REQUESTS_PER_CONNECTION: u32 = 64;

const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Time for requests to finish at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The state that all handlers share.
type App = Arc<AppParts>;

struct AppParts {
    driver: DriverHandle,
    clock: Clock,
    statuses: StatusCache,
    authenticator: Authenticator,
    usage: Arc<UsageTable>,
    /// Host names that requests may address.
    names: Vec<String>,
    requests: metrics::Requests,
    sessions: Arc<Sessions>,
    broadcast: Arc<Broadcast>,
    storage: StorageHealth,
    /// Lock of requests that take long: certificates and surveys of frames are made one at a time.
    working: Arc<tokio::sync::Mutex<()>>,
    /// `None` unless visitors may count.
    visitors: Option<VisitorQuotas>,
}

/// The address of the pages, for the gRPC service.
#[derive(Clone)]
pub struct Dashboard {
    /// The address of the first page, without a trailing slash.
    pub url: String,
    /// Whether the address works only on the coordinator's machine.
    pub loopback_only: bool,
    pub(crate) sessions: Arc<Sessions>,
}

impl Dashboard {
    /// Loads the open sessions of the pages at `url`.
    pub fn load(
        url: String,
        loopback_only: bool,
        secrets: SecretStore,
        clock: Clock,
    ) -> Result<Self, StoreError> {
        let sessions = Arc::new(Sessions::load(secrets, clock)?);
        Ok(Self { url, loopback_only, sessions })
    }
}

/// The HTTP service, ready to serve.
pub struct Http(App);

impl Http {
    /// Binds the port before the service exists, to report a port in use early.
    pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
        bind_port(address, "give another --http address, or --no-http")
    }

    /// Creates the service; requests may address the host names `names`.
    pub fn new(
        driver: DriverHandle,
        clock: Clock,
        storage: StorageHealth,
        authenticator: Authenticator,
        (dashboard, names): (&Dashboard, Vec<String>),
    ) -> Self {
        let statuses = StatusCache::new(driver.clone());
        let app = AppParts {
            broadcast: Arc::new(Broadcast::new(driver.clone(), statuses.clone(), clock)),
            sessions: dashboard.sessions.clone(),
            statuses,
            driver,
            clock,
            authenticator,
            usage: UsageTable::new(Limits::default()),
            names,
            requests: metrics::Requests::default(),
            storage,
            working: Arc::default(),
            visitors: None,
        };
        Self(Arc::new(app))
    }

    /// Lets visitors without a token count in their browsers.
    #[must_use]
    pub fn with_volunteers(self) -> Self {
        let app = Arc::into_inner(self.0).expect("not served yet");
        Self(Arc::new(AppParts { visitors: Some(VisitorQuotas::default()), ..app }))
    }

    /// Serves until `shutdown`, then finishes running requests.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let Self(app) = self;
        let updates = tokio::spawn(app.broadcast.clone().run());
        // While the database is away, readers get the last answers: there have to be some.
        let first_answers = tokio::spawn(metrics::metrics(State(app.clone())));
        let authenticator = app.authenticator.clone();
        let under_way = serve_until(listener, authenticator, router(&app), shutdown).await;
        updates.abort();
        first_answers.abort();
        app.broadcast.close().await;
        // Clients that do not close are disconnected when the process exits.
        let _ = timeout(SHUTDOWN_TIMEOUT, under_way.shutdown()).await;
    }
}

/// Accepts connections until `shutdown`; returns those still open.
async fn serve_until(
    listener: TcpListener,
    authenticator: Authenticator,
    router: Router,
    shutdown: impl Future<Output = ()>,
) -> GracefulShutdown {
    let most = MAX_CONNECTIONS.min(descriptors::left_for_connections());
    let mut incoming = auth::accept(listener, most, authenticator, Limits::default());
    let under_way = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            accepted = incoming.next() => match accepted {
                Some(Ok(connection)) => serve_connection(connection, router.clone(), &under_way),
                None => return under_way,
            },
            () = &mut shutdown => return under_way,
        }
    }
}

fn serve_connection(connection: AcceptedConnection, router: Router, under_way: &GracefulShutdown) {
    let peer: Peer = connection.connect_info();
    let (address, tls) = (peer.address, peer.tls);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
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
        // Browsers use HTTP/2 only over TLS; skipping detection avoids waiting for the first bytes.
        server = server.http1_only();
    }
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_REQUESTS_PER_CONNECTION)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let connection = server.serve_connection(TokioIo::new(connection), service);
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
        .route("/api/v1/openapi.json", get(openapi::openapi))
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/workers", get(api::workers))
        .route("/api/v1/workers/{worker}/drain", post(api::drain))
        .route("/api/v1/workers/{worker}/trust", post(api::trust))
        .route("/api/v1/runs", get(api::runs).post(api::submit))
        .route("/api/v1/runs/{run}", get(api::run).delete(api::delete))
        .route("/api/v1/runs/{run}/pause", command(Command::Pause))
        .route("/api/v1/runs/{run}/resume", command(Command::Resume))
        .route("/api/v1/runs/{run}/cancel", command(Command::Cancel))
        .route("/api/v1/runs/{run}/retry", command(Command::Unpark))
        .route("/api/v1/runs/{run}/recheck", post(api::recheck))
        .route("/api/v1/runs/{run}/priority", post(api::priority))
        .route("/api/v1/runs/{run}/map", get(api::map))
        .route("/api/v1/runs/{run}/grid", get(api::grid))
        .route("/api/v1/runs/{run}/tasks/{task}", get(api::task))
        .route("/api/v1/runs/{run}/history", get(api::history))
        .route("/api/v1/runs/{run}/credits", get(api::credits))
        .route("/api/v1/events", get(lists::events_json))
        .route("/api/v1/cost", get(api::cost))
        .route("/api/v1/join", post(api::join))
        .route("/", get(page::home))
        .route("/workers", get(machines::workers))
        .route("/events", get(lists::events))
        .route("/runs", get(lists::runs))
        .route("/runs/{run}", get(page::run))
        .route("/runs/{run}/events", get(page::updates))
        .route("/runs/{run}/credits", get(lists::credits))
        .route("/runs/{run}/tasks/{task}", get(task::task))
        .route("/runs/{run}/{file}", get(files::file))
        .route("/count", get(volunteers::count_page))
        .route("/count/counter.wasm", get(volunteers::counter))
        .route("/count/sync", post(volunteers::sync))
        .route("/login", get(async || sessions::login_page("")).post(sessions::login))
        .route("/login/{link}", get(sessions::confirm).post(sessions::follow))
        .route("/logout", post(sessions::logout))
        .route("/assets/{name}", get(page::asset))
        .route_layer(middleware::from_fn_with_state(app.clone(), guard::authorize))
        .fallback(guard::not_found)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn(guard::harden))
        .with_state(app.clone())
}

/// Routes an operator's command on a run.
fn command(command: Command) -> MethodRouter<App> {
    post(move |app: State<App>, run: Path<String>, by: Caller| control(app, run, by, command))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use auth::HTTP_ROUTES;

    use super::openapi::description;

    #[test]
    fn the_description_and_the_access_table_name_the_same_routes() {
        let api = description();
        let mut described = BTreeSet::new();
        for (route, methods) in api["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                described.insert((method.to_uppercase(), route.clone()));
            }
        }
        let table = HTTP_ROUTES.iter().map(|row| (row.0.to_owned(), row.1.to_owned()));
        let interface = |(_, route): &(String, String)| {
            let probes = ["/healthz", "/readyz", "/metrics"].contains(&route.as_str());
            probes || route.starts_with("/api/")
        };
        assert_eq!(described, table.filter(interface).collect());
    }
}
