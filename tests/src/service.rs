//! gRPC: clients that a test drives, an in-process coordinator, a recording proxy.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Instant,
};

use anyhow::Context as _;
use auth::{Authenticator, Role, TokenAuth};
use common::{
    messages::{
        run::{Partial, WorkerId},
        sync::{SyncReply, SyncRequest},
    },
    plan::Plan,
};
use coordinator::{
    driver::{Driver, DriverError, DriverHandle, Submission, new_manifest},
    grpc::Server,
    listen::bind,
};
use kit::{FakeWorker, count};
use proto::{
    connect::{AuthChannel, CoordinatorEndpoint, JoinString, WorkerSecret, install_crypto},
    issued_secret,
    v1::{
        self, Acknowledgement,
        runs_client::RunsClient,
        work_queue_client::WorkQueueClient,
        work_queue_server::{WorkQueue, WorkQueueServer},
    },
};
use reqwest::{blocking::Client, redirect::Policy};
use scheduler::{Config, Scheduler, ledger::Recheck};
use store::{Clock, MemoryStore, RunManifest, SecretStore, Store};
use tokio::{net::TcpListener, sync::oneshot};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::process::{PATIENCE, within};

/// Returns an HTTP client that keeps its connection open and follows no redirect.
pub fn http_client() -> Client {
    install_crypto();
    let client = Client::builder().tls_certs_only([]).no_proxy().redirect(Policy::none());
    client.timeout(PATIENCE).build().expect("a client")
}

/// Returns a role's join string in the data directory of a started coordinator.
pub fn find_join(data_dir: &Path, role: Role) -> anyhow::Result<JoinString> {
    let join = JoinString::find(data_dir, role.as_str())?;
    join.with_context(|| format!("no {role}.join in {}", data_dir.display()))
}

/// A driver and its server, with any store behind them, on a real port.
pub struct Service {
    pub driver: DriverHandle,
    pub address: SocketAddr,
    /// The result of the driver's thread.
    pub end: oneshot::Receiver<Result<(), DriverError>>,
    close: oneshot::Sender<()>,
    /// The tokens and their directory, if the service has tokens.
    tokens: Option<(Arc<TokenAuth>, tempfile::TempDir)>,
}

impl Service {
    /// Serves an empty store in memory.
    pub fn start() -> anyhow::Result<Self> {
        Self::with(Box::new(MemoryStore::default()), Config::default(), Ipv4Addr::LOCALHOST)
    }

    /// Serves `store` on a free port of `host`, to callers with a token.
    pub fn with(store: Box<dyn Store>, config: Config, host: Ipv4Addr) -> anyhow::Result<Self> {
        install_crypto();
        let listener = bind_port(host)?;
        let address = format!("127.0.0.1:{}", listener.local_addr()?.port());
        let dir = tempfile::tempdir()?;
        let secrets = SecretStore::of_directory(dir.path());
        let tokens = Arc::new(TokenAuth::open(secrets, vec![address], Clock::start())?);
        let auth = Authenticator::Tokens(Arc::clone(&tokens));
        let service = Self::with_auth(store, config, listener, auth)?;
        Ok(Self { tokens: Some((tokens, dir)), ..service })
    }

    /// Serves `store` to callers that `auth` admits.
    pub fn with_auth(
        store: Box<dyn Store>,
        config: Config,
        listener: TcpListener,
        auth: Authenticator,
    ) -> anyhow::Result<Self> {
        let clock = Clock::start();
        let mut scheduler = Scheduler::new(config, 1);
        // The test does the referee's work.
        scheduler.set_referee(1, 1 << 30);
        let (driver, end) = Driver::start(scheduler, store, clock)?;
        let address = listener.local_addr()?;
        let (close, closed) = oneshot::channel();
        let server = Server::new(driver.clone(), clock, auth);
        tokio::spawn(server.serve(listener, async { drop(closed.await) }));
        Ok(Self { driver, address, end, close, tokens: None })
    }

    pub async fn create(&self, plan: &Plan) -> anyhow::Result<RunManifest> {
        let manifest = new_manifest(plan, 0, Clock::start().now());
        let submission = Submission {
            manifest: manifest.clone(),
            plan: plan.clone(),
            new_run: false,
            recheck: Recheck::default(),
        };
        self.driver.submit(submission, None).await?;
        Ok(manifest)
    }

    pub fn tokens(&self) -> &TokenAuth {
        &self.tokens.as_ref().expect("tokens").0
    }

    pub fn join(&self, role: Role) -> JoinString {
        self.tokens().join(role).expect("readable secrets").expect("a token")
    }

    pub fn endpoint(&self, role: Role) -> CoordinatorEndpoint {
        CoordinatorEndpoint::Token(self.join(role))
    }

    pub async fn connect(&self) -> anyhow::Result<AuthChannel> {
        Ok(self.endpoint(Role::Operator).connect().await?)
    }

    pub async fn runs(&self) -> anyhow::Result<RunsClient<AuthChannel>> {
        Ok(RunsClient::new(self.connect().await?))
    }

    /// Stops the server and then the driver.
    pub async fn stop(self) -> anyhow::Result<()> {
        let _ = self.close.send(());
        self.driver.stop().await;
        Ok(self.end.await.context("the driver panicked")??)
    }
}

pub fn bind_port(host: Ipv4Addr) -> anyhow::Result<TcpListener> {
    Ok(bind(SocketAddr::new(IpAddr::V4(host), 0))?)
}

/// A worker that a test drives over gRPC, one call at a time.
pub struct HandWorker {
    pub fake: FakeWorker,
    pub calls: WorkQueueClient<AuthChannel>,
    /// The issued identity; without one, the next call is that of a new worker.
    pub secret: Option<WorkerSecret>,
}

impl HandWorker {
    pub async fn connect(service: &Service, number: u64) -> anyhow::Result<Self> {
        Self::at(&service.endpoint(Role::Worker), number).await
    }

    /// Connects to the coordinator with this data directory.
    pub async fn in_dir(data_dir: &Path, number: u64) -> anyhow::Result<Self> {
        Self::at(&CoordinatorEndpoint::Token(find_join(data_dir, Role::Worker)?), number).await
    }

    pub async fn at(coordinator: &CoordinatorEndpoint, number: u64) -> anyhow::Result<Self> {
        let calls = WorkQueueClient::new(coordinator.connect().await?);
        Ok(Self { fake: FakeWorker::new(number), calls, secret: None })
    }

    /// Returns a call that submits these counts and asks for `seconds_wanted` of work.
    pub fn request(&self, partials: Vec<Partial>, seconds_wanted: f64) -> SyncRequest {
        SyncRequest { seconds_wanted, ..self.fake.report(partials) }
    }

    /// Makes one call; repeats the first one with the issued secret.
    pub async fn sync(&mut self, request: SyncRequest) -> Result<SyncReply, Status> {
        loop {
            let mut message = v1::SyncRequest::from(request.clone());
            message.secret = self.secret();
            let reply = self.calls.sync(message).await?.into_inner();
            match issued_secret(&reply).expect("a secret has 32 bytes") {
                Some(issued) => self.secret = Some(issued),
                None => return Ok(SyncReply::try_from(reply).expect("a sound reply")),
            }
        }
    }

    /// Returns the bytes of the secret; empty before the first call.
    pub fn secret(&self) -> Vec<u8> {
        self.secret.as_ref().map_or_else(Vec::new, |secret| secret.as_bytes().to_vec())
    }

    /// Returns the identity that the coordinator issued in the first call.
    pub fn worker(&self) -> WorkerId {
        self.secret.as_ref().expect("an identity").worker()
    }

    /// Submits these counts and asks for `seconds_wanted` of work.
    pub async fn call(
        &mut self,
        partials: Vec<Partial>,
        seconds_wanted: f64,
    ) -> Result<SyncReply, Status> {
        self.sync(self.request(partials, seconds_wanted)).await
    }

    /// Counts all granted tasks until none is granted; returns their number.
    pub async fn count_all(&mut self) -> anyhow::Result<u64> {
        self.count_wrong(|_| 0).await
    }

    /// Counts as [`Self::count_all`] does and adds `error` to each count.
    pub async fn count_wrong(
        &mut self,
        mut error: impl FnMut(&Partial) -> u64,
    ) -> anyhow::Result<u64> {
        let mut partials = Vec::new();
        let mut counted = 0;
        within("no task is granted", async {
            loop {
                let reply = self.call(partials, 1000.0).await?;
                partials = reply.grants.iter().map(count).collect();
                partials.iter_mut().for_each(|partial| partial.count += error(partial));
                counted += partials.len() as u64;
                if partials.is_empty() {
                    return Ok(counted);
                }
            }
        })
        .await
    }
}

/// A proxy for workers' calls to a coordinator that is restarted at times.
pub struct Recorder {
    pub url: String,
    acknowledged: Arc<Mutex<Vec<(Instant, Acknowledgement)>>>,
}

impl Recorder {
    /// Starts a proxy for a data directory's coordinator; it ends with the runtime.
    pub async fn start(data_dir: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound port");
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let service = Proxy {
            data_dir: data_dir.to_owned(),
            client: Mutex::default(),
            acknowledged: Arc::clone(&acknowledged),
        };
        let server = tonic::transport::Server::builder().add_service(WorkQueueServer::new(service));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self { url: format!("http://{address}"), acknowledged }
    }

    /// Returns the arguments with which a worker finds the proxy.
    pub fn connection(&self) -> [String; 2] {
        ["--coordinator".to_owned(), self.url.clone()]
    }

    /// Returns all acknowledgements so far, with the time of each.
    pub fn recorded(&self) -> Vec<(Instant, Acknowledgement)> {
        self.acknowledged.lock().expect("no call panics").clone()
    }
}

struct Proxy {
    data_dir: PathBuf,
    /// The client and its join string: a restarted coordinator may have another one.
    client: Mutex<Option<(JoinString, WorkQueueClient<AuthChannel>)>>,
    acknowledged: Arc<Mutex<Vec<(Instant, Acknowledgement)>>>,
}

impl Proxy {
    fn client(&self) -> Result<WorkQueueClient<AuthChannel>, Status> {
        let join = find_join(&self.data_dir, Role::Worker);
        let join = join.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut client = self.client.lock().expect("no call panics");
        if let Some((known, client)) = &*client
            && *known == join
        {
            return Ok(client.clone());
        }
        let coordinator = CoordinatorEndpoint::Token(join.clone());
        // The client reconnects whenever the coordinator is back.
        let new_client = WorkQueueClient::new(
            coordinator.authenticate(coordinator.endpoints().remove(0).connect_lazy()),
        );
        *client = Some((join, new_client.clone()));
        Ok(new_client)
    }
}

#[tonic::async_trait]
impl WorkQueue for Proxy {
    async fn sync(
        &self,
        request: Request<v1::SyncRequest>,
    ) -> Result<Response<v1::SyncResponse>, Status> {
        let reply = self.client()?.sync(request.into_inner()).await?;
        let reply = reply.into_inner();
        let now = Instant::now();
        let acknowledged = reply.acknowledgements.iter().cloned();
        self.acknowledged
            .lock()
            .expect("no call panics")
            .extend(acknowledged.map(|acknowledgement| (now, acknowledgement)));
        Ok(Response::new(reply))
    }
}
