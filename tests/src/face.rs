//! A coordinator's gRPC face in this process, on a real port, with any store behind it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use common::{
    board::Board,
    count::{Counter, Orientation, Setup, Unwatched},
    kernel::Kernel,
    method::Layout,
    plan::{Plan, PlanSpec},
    run::{Partial, SessionId, WorkerId},
    sync::{Grant, SyncReply, SyncRequest, WorkerInfo},
};
use coordinator::{
    doors::{Gate, Principal},
    driver::{Clock, Driver, DriverError, DriverHandle, Submission, new_manifest},
    grpc::{Server, bind},
    ledger::Recheck,
    sched::{Config, Scheduler},
    store::{RunManifest, Store},
};
use proto::v1::{runs_client::RunsClient, work_queue_client::WorkQueueClient};
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};

/// A driver and its server.
pub struct Face {
    /// The way to the driver.
    pub driver: DriverHandle,
    /// Where the server listens.
    pub address: SocketAddr,
    /// The end of the driver's thread.
    pub end: oneshot::Receiver<Result<(), DriverError>>,
    close: oneshot::Sender<()>,
}

impl Face {
    /// Serves `store` on a free port of loopback, to everybody.
    pub fn start(store: Box<dyn Store>, config: Config) -> anyhow::Result<Self> {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self::behind(store, config, loopback, |_| {
            Ok(Gate::Open(Principal::Loopback))
        })
    }

    /// Serves `store` on a free port of `host`, to those whom the gate lets in; it is made once the
    /// port is known.
    pub fn behind(
        store: Box<dyn Store>,
        config: Config,
        host: IpAddr,
        gate: impl FnOnce(SocketAddr) -> anyhow::Result<Gate>,
    ) -> anyhow::Result<Self> {
        let clock = Clock::start();
        let (driver, end) = Driver::start(Scheduler::new(config, 1), store, clock)?;
        let listener = bind(SocketAddr::new(host, 0))?;
        let address = listener.local_addr()?;
        let (close, closed) = oneshot::channel();
        let server = Server::new(driver.clone(), clock, gate(address)?);
        tokio::spawn(server.serve(listener, async { drop(closed.await) }));
        Ok(Self {
            driver,
            address,
            end,
            close,
        })
    }

    /// A new run.
    pub async fn create(&self, plan: &Plan) -> anyhow::Result<RunManifest> {
        let manifest = new_manifest(plan, 0, Clock::start().now());
        let submission = Submission {
            manifest: manifest.clone(),
            plan: plan.clone(),
            again: false,
            recheck: Recheck::default(),
        };
        self.driver.submit(submission).await?;
        Ok(manifest)
    }

    /// A connection.
    pub async fn connect(&self) -> anyhow::Result<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))?;
        Ok(endpoint.connect().await?)
    }

    /// A client of the operators' service.
    pub async fn runs(&self) -> anyhow::Result<RunsClient<Channel>> {
        Ok(RunsClient::new(self.connect().await?))
    }

    /// Ends the server and then the driver.
    pub async fn stop(self) -> anyhow::Result<()> {
        let _ = self.close.send(());
        self.driver.stop().await;
        Ok(self.end.await.context("the driver panicked")??)
    }
}

/// The plan of a small board.
pub fn plan(n: u8, layout: Layout, task_cost: u64) -> Plan {
    let board = Board::new(n).expect("a board of the tests");
    let spec = PlanSpec {
        board,
        layout,
        task_cost,
    };
    Plan::new(spec).expect("a plan of the tests")
}

/// A worker written by hand, one call at a time, so that every message can be bent.
pub struct HandWorker {
    /// What it says of itself.
    pub info: WorkerInfo,
    /// Its connection.
    pub client: WorkQueueClient<Channel>,
}

impl HandWorker {
    /// A worker with this identity.
    pub async fn connect(face: &Face, id: u128) -> anyhow::Result<Self> {
        Self::at(&format!("http://{}", face.address), id).await
    }

    /// A worker with this identity, of a coordinator in any process.
    pub async fn at(url: &str, id: u128) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(url.to_owned())?.connect().await?;
        Ok(Self {
            info: WorkerInfo {
                id: WorkerId(id),
                session: SessionId(1),
                name: format!("by hand {id}"),
                version: "0.0.0".to_owned(),
                kernel: Kernel::SCALAR.name(),
                threads: 1,
                memory_bytes_per_thread: 1 << 30,
                machine: 1 + u64::try_from(id).unwrap_or(0),
            },
            client: WorkQueueClient::new(channel),
        })
    }

    /// What a call without news says.
    pub fn request(&self, partials: Vec<Partial>, seconds_wanted: f64) -> SyncRequest {
        SyncRequest {
            worker: self.info.clone(),
            held: Vec::new(),
            partials,
            seconds_wanted,
            draining: false,
            failed_canaries: Default::default(),
            paused: String::new(),
        }
    }

    /// One call.
    pub async fn sync(&mut self, request: SyncRequest) -> Result<SyncReply, tonic::Status> {
        let reply = self
            .client
            .sync(proto::v1::SyncRequest::from(request))
            .await?;
        Ok(SyncReply::try_from(reply.into_inner()).expect("what the coordinator sends is sound"))
    }

    /// Counts every grant and reports it with the next call, until nothing is granted.
    pub async fn count_all(&mut self) -> anyhow::Result<u64> {
        let mut partials = Vec::new();
        let mut counted = 0;
        loop {
            let reply = self.sync(self.request(partials, 10.0)).await?;
            partials = reply.grants.iter().map(count).collect();
            counted += partials.len() as u64;
            if partials.is_empty() {
                return Ok(counted);
            }
        }
    }
}

/// Counts a granted task.
pub fn count(grant: &Grant) -> Partial {
    let plan = Plan::new(grant.spec).expect("the coordinator made the same plan");
    let setup = Setup {
        kernel: Kernel::SCALAR,
        threads: std::num::NonZeroU16::MIN,
        memory_bytes: 1 << 30,
        orientation: Orientation::Upright,
    };
    let mut counter = Counter::new(&plan, &setup).expect("enough memory");
    let units = plan.task_units(grant.task.task);
    Partial {
        task: grant.task,
        epoch: grant.epoch,
        count: counter.count(units, &Unwatched).expect("nobody cancels"),
        kernel: setup.kernel.name(),
        orientation: setup.orientation,
        duration_us: 1,
    }
}
