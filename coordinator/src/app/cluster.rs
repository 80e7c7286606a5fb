//! Everything that runs in the process, and how it ends in order.

use std::time::Duration;

use anyhow::anyhow;
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::JoinHandle,
    time::timeout,
};
use worker::{Summary, WorkerError, config::WorkerConfig};

use crate::{
    driver::{Clock, DriverError, DriverHandle},
    grpc::{ServeError, Server},
};

/// How long the worker and the server may each take to end. A worker that is in the middle of a
/// long task gives it up then: nothing of it is lost but its time.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// The driver, the server, and with `--local` a worker.
pub(super) struct Cluster {
    pub(super) driver: DriverHandle,
    driver_end: oneshot::Receiver<Result<(), DriverError>>,
    server: JoinHandle<Result<(), ServeError>>,
    close_server: watch::Sender<bool>,
    local: Option<LocalWorker>,
}

struct LocalWorker {
    stop: watch::Sender<bool>,
    end: JoinHandle<Result<Summary, WorkerError>>,
}

impl Cluster {
    pub(super) fn start(
        driver: DriverHandle,
        driver_end: oneshot::Receiver<Result<(), DriverError>>,
        listener: TcpListener,
        clock: Clock,
    ) -> Self {
        let close_server = watch::Sender::new(false);
        let close = raised(close_server.subscribe());
        let server = Server::new(driver.clone(), clock);
        Self {
            driver,
            driver_end,
            server: tokio::spawn(server.serve(listener, close)),
            close_server,
            local: None,
        }
    }

    /// Counts in this process too, over the same gRPC as everybody else.
    pub(super) fn start_local(&mut self, config: WorkerConfig) {
        let stop = watch::Sender::new(false);
        let end = tokio::spawn(worker::run(config, raised(stop.subscribe())));
        self.local = Some(LocalWorker { stop, end });
    }

    /// Returns why the cluster cannot go on, as soon as a part of it ends on its own.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        tokio::select! {
            end = &mut self.driver_end => match end {
                Ok(Err(error)) => anyhow!(error),
                Ok(Ok(())) | Err(_) => anyhow!("the driver ended unexpectedly"),
            },
            end = &mut self.server => match end {
                Ok(Err(error)) => anyhow!(error),
                Ok(Ok(())) | Err(_) => anyhow!("the gRPC server ended unexpectedly"),
            },
            error = local_failed(self.local.as_mut()) => error,
        }
    }

    /// Ends everything: the worker first, so that its last results are taken; the driver last.
    pub(super) async fn close(mut self) -> anyhow::Result<()> {
        if let Some(LocalWorker { stop, mut end }) = self.local.take() {
            stop.send_replace(true);
            if timeout(ENDS_WITHIN, &mut end).await.is_err() {
                end.abort();
            }
        }
        self.close_server.send_replace(true);
        // Clients may hold their connections open as long as they like.
        let _ = timeout(ENDS_WITHIN, &mut self.server).await;
        self.server.abort();
        self.driver.stop().await;
        match self.driver_end.await {
            Ok(end) => Ok(end?),
            Err(_) => Err(anyhow!("the driver ended unexpectedly")),
        }
    }
}

async fn local_failed(local: Option<&mut LocalWorker>) -> anyhow::Error {
    let Some(local) = local else {
        return std::future::pending().await;
    };
    match (&mut local.end).await {
        Ok(Err(error)) => anyhow!(error).context("the worker in this process failed"),
        Ok(Ok(_)) => anyhow!("the worker in this process ended unexpectedly"),
        Err(error) => anyhow!(error).context("the worker in this process failed"),
    }
}

async fn raised(mut flag: watch::Receiver<bool>) {
    // A sender that is gone cannot raise it any more, and ends its process anyway.
    let _ = flag.wait_for(|raised| *raised).await;
}
