//! The gRPC services, with health and reflection on one port. They decode requests,
//! call the driver and encode its answers; all decisions are the driver's.

mod runs;

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use auth::{
    AuthLayer, Authenticator, Limits, NewToken, Role, Subject, TokenAuth, TokenAuthError,
    TokenEntry,
};
use common::messages::{
    limits::MESSAGE_BYTES,
    sync::{PackageLimits, SyncRequest},
};
use proto::{
    CallId,
    connect::JoinString,
    sent_secret,
    v1::{
        self, FILE_DESCRIPTOR_SET,
        runs_server::RunsServer,
        tokens_server::{Tokens, TokensServer},
        work_queue_server::{WorkQueue, WorkQueueServer},
    },
};
use scheduler::{ControlError, ledger::Caller};
use store::{Clock, descriptors};
use tokio::{net::TcpListener, sync::watch::Sender, task::spawn_blocking};
use tonic::{Code, Request, Response, Status, service::Routes};
use tonic_health::server::HealthReporter;
use tower::util::MapResponseLayer;
use tracing::Instrument as _;

use self::runs::{RunsService, encoded_once};
use crate::{
    driver::{DriverHandle, OutageError, RequestError, Stopped},
    http::Dashboard,
    status_cache::StatusCache,
};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("gRPC: {0}")]
    Transport(#[from] tonic::transport::Error),
    #[error("gRPC reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// The configured services.
pub struct Server {
    driver: DriverHandle,
    clock: Clock,
    authenticator: Authenticator,
    health: HealthReporter,
    closing: Sender<bool>,
    dashboard: Result<Dashboard, String>,
}

impl Server {
    /// Creates a server that calls `driver` for clients that `authenticator` admits.
    pub fn new(driver: DriverHandle, clock: Clock, authenticator: Authenticator) -> Self {
        Self {
            driver,
            clock,
            authenticator,
            health: HealthReporter::new(),
            closing: Sender::new(false),
            dashboard: Err(String::new()),
        }
    }

    /// Sets the dashboard whose URL operators can request, or the reason why there is none.
    pub fn with_dashboard(self, dashboard: Result<Dashboard, String>) -> Self {
        Self { dashboard, ..self }
    }

    /// Serves until `shutdown`, then finishes calls; streams send a last message.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let routes = self.routes().await?;
        let limits = Limits::default();
        let most = descriptors::left_for_connections().min(limits.connections);
        let incoming = auth::accept(listener, most, self.authenticator.clone(), limits);
        let auth = AuthLayer::new(self.authenticator.clone(), limits);
        let closed = async {
            shutdown.await;
            self.health.set_not_serving::<WorkQueueServer<WorkQueueService>>().await;
            self.health.set_not_serving::<RunsServer<RunsService>>().await;
            self.closing.send_replace(true);
        };
        limits
            .server()
            .layer(auth)
            .layer(MapResponseLayer::new(encoded_once))
            .add_routes(routes)
            .serve_with_incoming_shutdown(incoming, closed)
            .await?;
        Ok(())
    }

    async fn routes(&self) -> Result<Routes, ServeError> {
        let work_queue = WorkQueueServer::new(WorkQueueService(self.driver.clone()))
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        let runs = RunsServer::new(RunsService {
            driver: self.driver.clone(),
            clock: self.clock,
            statuses: StatusCache::new(self.driver.clone()),
            closing: self.closing.subscribe(),
            dashboard: self.dashboard.clone(),
        })
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
        let tokens = TokensServer::new(TokensService {
            auth: self.authenticator.tokens().cloned(),
            clock: self.clock,
        })
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
        self.health.set_serving::<WorkQueueServer<WorkQueueService>>().await;
        self.health.set_serving::<RunsServer<RunsService>>().await;
        let health = tonic_health::pb::health_server::HealthServer::new(
            tonic_health::server::HealthService::from_health_reporter(self.health.clone()),
        );
        Ok(Routes::new(work_queue)
            .add_service(runs)
            .add_service(tokens)
            .add_service(health)
            .add_service(reflection().build_v1()?)
            // Some clients, such as Python's, still request this version.
            .add_service(reflection().build_v1alpha()?))
    }
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

struct WorkQueueService(DriverHandle);

#[tonic::async_trait]
impl WorkQueue for WorkQueueService {
    async fn sync(&self, request: Request<v1::SyncRequest>) -> Answer<v1::SyncResponse> {
        let span = match CallId::read(request.metadata()) {
            Some(id) => tracing::debug_span!("call", %id),
            None => tracing::Span::none(),
        };
        let subject = request.extensions().get::<Subject>().cloned();
        let answer = async {
            let answer = self.answer(subject.as_ref(), request.into_inner()).await;
            match &answer {
                Ok(_) => tracing::debug!("answered"),
                Err(status) => tracing::debug!("refused: {}", status.message()),
            }
            answer
        };
        Ok(Response::new(answer.instrument(span).await?))
    }
}

impl WorkQueueService {
    /// Identifies the worker and calls the driver; issues secrets to unknown workers.
    async fn answer(
        &self,
        subject: Option<&Subject>,
        message: v1::SyncRequest,
    ) -> Result<v1::SyncResponse, Status> {
        let secret = sent_secret(&message)?;
        let request = SyncRequest::try_from(message)?;
        let token = subject.and_then(Subject::token);
        let identities = &self.0.identities;
        let issued_before = |secret: &_| identities.is_issued(secret, token.as_deref());
        let Some(secret) = secret.filter(issued_before) else {
            let issued = identities.issue(token.as_deref());
            tracing::debug!("issued identity {} to '{}'", issued.worker(), request.worker.name);
            return Ok(v1::SyncResponse {
                issued_secret: issued.as_bytes().to_vec(),
                reason: "the worker is issued a secret that identifies it".to_owned(),
                ..Default::default()
            });
        };
        let mut caller = Caller::new(secret.worker(), token);
        if let Some(&Subject::Token { trusted, machines, packages, .. }) = subject {
            caller = Caller { trusted, max_machines: machines, packages, ..caller };
        }
        Ok(self.0.sync(caller, request).await?.into())
    }
}

type Answer<T> = Result<Response<T>, Status>;

impl From<Stopped> for Status {
    fn from(stopped: Stopped) -> Self {
        Self::unavailable(stopped.to_string())
    }
}

impl From<OutageError> for Status {
    fn from(outage: OutageError) -> Self {
        Self::unavailable(outage.to_string())
    }
}

impl From<RequestError> for Status {
    fn from(error: RequestError) -> Self {
        let code = match &error {
            RequestError::Stopped(_) => Code::Unavailable,
            RequestError::Control(ControlError::NoSuchRun(_)) | RequestError::NoWorker(_) => {
                Code::NotFound
            }
            RequestError::Control(
                ControlError::Finished(_) | ControlError::Cancelled(_) | ControlError::Live(_),
            )
            | RequestError::AmbiguousWorker { .. }
            | RequestError::NotConnected(_)
            | RequestError::NotBarred(_)
            | RequestError::LocalWorker => Code::FailedPrecondition,
            RequestError::RunExists { .. } => Code::AlreadyExists,
            RequestError::KeyUsed { .. } => Code::InvalidArgument,
            RequestError::Store(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

struct TokensService {
    /// `None` without tokens.
    auth: Option<Arc<TokenAuth>>,
    clock: Clock,
}

impl TokensService {
    /// Runs `work` on a blocking thread: changes wait for the disk.
    async fn with<T, F>(&self, work: F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: FnOnce(&TokenAuth) -> Result<T, Status> + Send + 'static,
    {
        let auth = self.auth.clone().ok_or_else(|| {
            Status::failed_precondition(
                "this coordinator has no tokens: it was started with --insecure, or with --client-ca, \
                 whose authority issues and revokes certificates",
            )
        })?;
        spawn_blocking(move || work(&auth))
            .await
            .map_err(|error| Status::internal(error.to_string()))?
    }

    /// Issues a join string, and describes its token.
    async fn issue<F>(&self, work: F) -> Answer<v1::CreateTokenResponse>
    where
        F: FnOnce(&TokenAuth) -> Result<JoinString, TokenAuthError> + Send + 'static,
    {
        let (join, entry) = self
            .with(move |auth| {
                let join = work(auth).map_err(refused)?;
                let id = join.token().id();
                let entry = auth.list().into_iter().find(|entry| entry.id == id);
                Ok((join, entry))
            })
            .await?;
        Ok(Response::new(v1::CreateTokenResponse {
            join: join.expose(),
            token: entry.as_ref().map(|entry| self.token(entry)),
        }))
    }

    fn token(&self, entry: &TokenEntry) -> v1::Token {
        v1::Token {
            id: entry.id.to_string(),
            role: v1::Role::from(entry.role).into(),
            name: entry.name.clone(),
            created_unix_ms: entry.created_unix_ms,
            expires_unix_ms: entry.expires_unix_ms,
            revoked_unix_ms: entry.revoked_unix_ms,
            active: entry.refusal(self.clock.now().0).is_none(),
            trusted: entry.trusted,
            machines: entry.machines.map(NonZeroU32::get),
            packages: entry.packages.map(|PackageLimits { away_seconds, tasks }| {
                v1::PackageLimits { away_seconds, tasks }
            }),
        }
    }
}

fn refused(error: TokenAuthError) -> Status {
    match error {
        TokenAuthError::Request(_) | TokenAuthError::Join(_) => {
            Status::invalid_argument(error.to_string())
        }
        TokenAuthError::Store(_)
        | TokenAuthError::Authority { .. }
        | TokenAuthError::Tokens { .. }
        | TokenAuthError::Certificate(_) => Status::internal(error.to_string()),
    }
}

#[tonic::async_trait]
impl Tokens for TokensService {
    async fn create(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Answer<v1::CreateTokenResponse> {
        let request = request.into_inner();
        let role = Role::try_from(request.role())
            .map_err(|bad| Status::invalid_argument(format!("role: {bad}")))?;
        let v1::CreateTokenRequest { name, lifetime_seconds, trusted, machines, packages, .. } =
            request;
        let lifetime = lifetime_seconds.map(Duration::from_secs);
        let machines = machines.map(NonZeroU32::try_from).transpose();
        let machines = machines.map_err(|_| Status::invalid_argument("machines: at least 1"))?;
        let packages = packages
            .map(|v1::PackageLimits { away_seconds, tasks }| PackageLimits { away_seconds, tasks });
        self.issue(move |auth| {
            auth.create(NewToken { role, name: &name, lifetime, trusted, machines, packages })
        })
        .await
    }

    async fn renew(
        &self,
        request: Request<v1::RenewTokenRequest>,
    ) -> Answer<v1::CreateTokenResponse> {
        let name = request.into_inner().name;
        self.issue(move |auth| auth.renew(&name)).await
    }

    async fn list(
        &self,
        _request: Request<v1::ListTokensRequest>,
    ) -> Answer<v1::ListTokensResponse> {
        let entries = self.with(|auth| Ok(auth.list())).await?;
        let tokens = entries.iter().map(|entry| self.token(entry)).collect();
        Ok(Response::new(v1::ListTokensResponse { tokens }))
    }

    async fn revoke(
        &self,
        request: Request<v1::RevokeTokenRequest>,
    ) -> Answer<v1::RevokeTokenResponse> {
        let name = request.into_inner().name;
        let revoked = name.clone();
        let revoked = self.with(move |auth| auth.revoke(&revoked).map_err(refused)).await?;
        match u32::try_from(revoked).unwrap_or(u32::MAX) {
            0 => Err(Status::not_found(format!(
                "no active token '{name}' (see `queensctl token list`)"
            ))),
            revoked => Ok(Response::new(v1::RevokeTokenResponse { revoked })),
        }
    }
}
