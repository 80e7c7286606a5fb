//! Everything that runs in the process, and how it ends in order.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::JoinHandle,
    time::timeout,
};
use worker::config::WorkerConfig;

use crate::{
    driver::{DriverError, DriverHandle},
    grpc::Server,
    http::Http,
};

/// How long the worker and the server may each take to end. A worker that is in the middle of a
/// long task gives it up then: nothing of it is lost but its time.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// The driver, the server, and with `--local` a worker.
pub(super) struct Cluster {
    pub(super) driver: DriverHandle,
    driver_part: Part,
    server: Part,
    http: Part,
    close_server: watch::Sender<bool>,
    local: Part,
    stop_local: watch::Sender<bool>,
}

impl Cluster {
    pub(super) fn start(
        driver: DriverHandle,
        driver_end: oneshot::Receiver<Result<(), DriverError>>,
        listener: TcpListener,
        server: Server,
    ) -> Self {
        let close_server = watch::Sender::new(false);
        let close = raised(close_server.subscribe());
        let driver_end = async { Ok(driver_end.await.map_err(|_| anyhow!("it panicked"))??) };
        let serving = async { Ok(server.serve(listener, close).await?) };
        Self {
            driver,
            driver_part: Part::start("the driver", driver_end),
            server: Part::start("the gRPC server", serving),
            http: Part::absent("the HTTP server"),
            close_server,
            local: Part::absent("the worker in this process"),
            stop_local: watch::Sender::new(false),
        }
    }

    /// Serves HTTP too.
    pub(super) fn start_http(&mut self, http: Http, listener: TcpListener) {
        let close = raised(self.close_server.subscribe());
        let serving = async {
            http.serve(listener, close).await;
            Ok(())
        };
        self.http = Part::start(self.http.name, serving);
    }

    /// Counts in this process too, over the same gRPC as everybody else.
    pub(super) fn start_local(&mut self, config: WorkerConfig) {
        let stop = raised(self.stop_local.subscribe());
        let counting = async {
            let counted = worker::run(config, stop).await;
            counted.context("the worker in this process failed")?;
            Ok(())
        };
        self.local = Part::start(self.local.name, counting);
    }

    /// Returns why the cluster cannot go on, as soon as a part of it ends on its own.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        tokio::select! {
            // The others fail because of the driver, not the other way round.
            biased;
            error = self.driver_part.failed() => error,
            error = self.server.failed() => error,
            error = self.http.failed() => error,
            error = self.local.failed() => error,
        }
    }

    /// Ends everything: the worker first, so that its last results are taken; the driver last. An
    /// error is the driver's: why it ended before it was told to.
    pub(super) async fn close(mut self) -> anyhow::Result<()> {
        self.stop_local.send_replace(true);
        self.local.end_within(ENDS_WITHIN).await;
        self.close_server.send_replace(true);
        // Clients may hold their connections open as long as they like.
        self.server.end_within(ENDS_WITHIN).await;
        self.http.end_within(ENDS_WITHIN).await;
        self.driver.stop().await;
        self.driver_part.end().await
    }
}

/// Something that runs until it is told to end. Its end is told once, to whoever asks first.
struct Part {
    name: &'static str,
    /// `None` once its end was told, or if it never began.
    end: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Part {
    fn start(
        name: &'static str,
        work: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) -> Self {
        Self {
            name,
            end: Some(tokio::spawn(work)),
        }
    }

    const fn absent(name: &'static str) -> Self {
        Self { name, end: None }
    }

    /// Why it ended although nobody told it to; never, if it is not there.
    async fn failed(&mut self) -> anyhow::Error {
        if self.end.is_none() {
            return std::future::pending().await;
        }
        let name = self.name;
        let end = self.end().await;
        end.err()
            .unwrap_or_else(|| anyhow!("{name} ended unexpectedly"))
    }

    /// Its end, waited for; nothing to tell if it was told before.
    async fn end(&mut self) -> anyhow::Result<()> {
        let Some(end) = &mut self.end else {
            return Ok(());
        };
        let ended = end.await;
        self.end = None;
        ended.unwrap_or_else(|error| Err(anyhow!("{}: {error}", self.name)))
    }

    /// Waits for its end, and ends it where that takes too long. What it says then is of no use: it
    /// was told to end.
    async fn end_within(&mut self, limit: Duration) {
        if timeout(limit, self.end()).await.is_err()
            && let Some(end) = self.end.take()
        {
            end.abort();
        }
    }
}

async fn raised(mut flag: watch::Receiver<bool>) {
    // A sender that is gone cannot raise it any more, and ends its process anyway.
    let _ = flag.wait_for(|raised| *raised).await;
}
