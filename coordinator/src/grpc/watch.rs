//! Streams of status messages: many watchers, one question to the driver for all of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex as BlockingMutex},
    time::Duration,
};

use common::run::RunId;
use proto::v1;
use tokio::{
    sync::{Mutex, mpsc, watch},
    time::{Instant, sleep, sleep_until},
};
use tonic::Status;

use crate::{
    driver::{DriverHandle, Stopped},
    render::message,
};

/// The driver is asked for the status of one run at most once in this time, however many watch.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The status of every watched run, as it was asked for last.
#[derive(Clone)]
pub(super) struct Statuses {
    driver: DriverHandle,
    runs: Arc<BlockingMutex<BTreeMap<RunId, OfOneRun>>>,
}

/// Locked while one watcher asks for all; `None` before the first.
type OfOneRun = Arc<Mutex<Option<Latest>>>;

#[derive(Clone)]
struct Latest {
    /// The driver's number of changes before it was asked.
    version: u64,
    asked: Instant,
    status: Arc<v1::Status>,
}

impl Statuses {
    pub(super) fn new(driver: DriverHandle) -> Self {
        Self {
            driver,
            runs: Arc::default(),
        }
    }

    /// The status of a run, no older than this call; `None` if there is no such run.
    async fn get(&self, run: RunId) -> Result<Option<Arc<v1::Status>>, Stopped> {
        let changes = self.driver.changes();
        let wanted = *changes.borrow();
        let of_run = {
            let mut runs = self.runs.lock().expect("nothing panics here");
            Arc::clone(runs.entry(run).or_default())
        };
        // Held while one asks for all that wait.
        let mut latest = of_run.lock().await;
        if let Some(latest) = &*latest {
            if latest.version >= wanted {
                return Ok(Some(Arc::clone(&latest.status)));
            }
            sleep_until(latest.asked + ASK_EVERY).await;
        }
        let version = *changes.borrow();
        let asked = Instant::now();
        let Some(report) = self.driver.status(Some(run)).await? else {
            self.runs.lock().expect("nothing panics here").remove(&run);
            return Ok(None);
        };
        let status = Arc::new(message::status(&report));
        *latest = Some(Latest {
            version,
            asked,
            status: Arc::clone(&status),
        });
        Ok(Some(status))
    }
}

/// One stream of status messages.
pub(super) struct StatusWatch {
    pub(super) statuses: Statuses,
    pub(super) closing: watch::Receiver<bool>,
    pub(super) sender: mpsc::Sender<Result<v1::Status, Status>>,
    pub(super) interval: Duration,
}

impl StatusWatch {
    /// Sends the status now and then every change, until the reader goes away, the run has its
    /// result, or the server closes. A reader that does not read is waited for, and costs nothing.
    pub(super) async fn send_all(mut self, run: RunId) {
        let mut changed = self.statuses.driver.changes();
        let mut closing = false;
        loop {
            changed.mark_unchanged();
            let status = match self.statuses.get(run).await {
                Ok(Some(status)) => status,
                Ok(None) => return,
                Err(stopped) => {
                    let _ = self.sender.send(Err(stopped.into())).await;
                    return;
                }
            };
            let last = status.result.is_some() || closing;
            let sent = self.sender.send(Ok((*status).clone())).await;
            if sent.is_err() || last {
                return;
            }
            closing = tokio::select! {
                () = sleep(self.interval) => false,
                _ = self.closing.wait_for(|closing| *closing) => true,
                () = self.sender.closed() => return,
            };
            if !closing {
                closing = tokio::select! {
                    changed = changed.changed() => match changed {
                        Ok(()) => false,
                        Err(_) => return,
                    },
                    _ = self.closing.wait_for(|closing| *closing) => true,
                    () = self.sender.closed() => return,
                };
            }
        }
    }
}
