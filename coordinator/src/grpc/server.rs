//! The server: both services, health and reflection on one port.

use std::{io, net::SocketAddr};

use proto::{
    limits::MESSAGE_BYTES,
    v1::{
        FILE_DESCRIPTOR_SET, runs_server::RunsServer, tokens_server::TokensServer,
        work_queue_server::WorkQueueServer,
    },
};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::watch,
};
use tonic::service::Routes;
use tonic_health::server::HealthReporter;

use super::{runs::RunsService, tokens::TokensService, work_queue::WorkQueueService};
use crate::{
    descriptors,
    doors::{Connections, Gate, GateLayer, Incoming, Limits},
    driver::{Clock, DriverHandle},
    http::Dashboard,
    render::Statuses,
};

/// Connections that may wait to be accepted: a whole cluster comes back at once after a restart.
const BACKLOG: u32 = 4096;

/// Why the server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port is another program's.
    #[error("{address} is in use by another program; stop it or give another --listen address")]
    InUse {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {why}; give another --listen address")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the operating system said.
        why: io::Error,
    },
    /// The transport failed while serving.
    #[error("gRPC: {0}")]
    Transport(#[from] tonic::transport::Error),
    /// The descriptors of the services cannot be read.
    #[error("gRPC reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Takes the port, so that a port in use is known before anything else happens.
pub fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let listen = || {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        // A restarted coordinator takes its port back although old connections linger.
        #[cfg(unix)]
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|why| match why.kind() {
        io::ErrorKind::AddrInUse => ServeError::InUse { address },
        _ => ServeError::Bind { address, why },
    })
}

/// The services, ready to be served.
pub struct Server {
    driver: DriverHandle,
    clock: Clock,
    gate: Gate,
    limits: Limits,
    health: HealthReporter,
    closing: watch::Sender<bool>,
    dashboard: Option<Dashboard>,
}

impl Server {
    /// A server that asks `driver`, for those whom `gate` admits.
    pub fn new(driver: DriverHandle, clock: Clock, gate: Gate) -> Self {
        Self {
            driver,
            clock,
            gate,
            limits: Limits::default(),
            health: HealthReporter::new(),
            closing: watch::Sender::new(false),
            dashboard: None,
        }
    }

    /// The same with other limits than the usual ones.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Tells those who ask where the pages are.
    pub fn with_dashboard(self, dashboard: Option<Dashboard>) -> Self {
        Self { dashboard, ..self }
    }

    /// Serves until `shutdown`; then calls under way are finished, streams get their last message.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let routes = self.routes().await?;
        let limits = self.limits;
        let most = descriptors::left_for_connections().min(limits.connections);
        let connections = Connections::new(listener, most);
        let incoming = Incoming::new(connections, self.gate.locks(), limits);
        let gate = GateLayer::new(self.gate.clone(), limits);
        let closed = async {
            shutdown.await;
            self.health
                .set_not_serving::<WorkQueueServer<WorkQueueService>>()
                .await;
            self.health
                .set_not_serving::<RunsServer<RunsService>>()
                .await;
            self.closing.send_replace(true);
        };
        limits
            .server()
            .layer(gate)
            .add_routes(routes)
            .serve_with_incoming_shutdown(incoming, closed)
            .await?;
        Ok(())
    }

    async fn routes(&self) -> Result<Routes, ServeError> {
        let work_queue = WorkQueueServer::new(WorkQueueService {
            driver: self.driver.clone(),
        })
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
        let runs = RunsServer::new(RunsService {
            driver: self.driver.clone(),
            clock: self.clock,
            statuses: Statuses::new(self.driver.clone()),
            closing: self.closing.subscribe(),
            dashboard: self.dashboard.clone(),
            keys: self.gate.keys(),
        })
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
        let tokens = TokensServer::new(TokensService {
            keys: self.gate.keys(),
            clock: self.clock,
        })
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
        self.health
            .set_serving::<WorkQueueServer<WorkQueueService>>()
            .await;
        self.health.set_serving::<RunsServer<RunsService>>().await;
        let health = tonic_health::pb::health_server::HealthServer::new(
            tonic_health::server::HealthService::from_health_reporter(self.health.clone()),
        );
        Ok(Routes::new(work_queue)
            .add_service(runs)
            .add_service(tokens)
            .add_service(health)
            .add_service(reflection().build_v1()?)
            // What many a client still asks for, Python's among them.
            .add_service(reflection().build_v1alpha()?))
    }
}

/// What both versions of the reflection service tell.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
