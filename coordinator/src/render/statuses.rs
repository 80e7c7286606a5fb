//! The status of every run, asked for once for all who look.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex as BlockingMutex},
    time::Duration,
};

use common::run::RunId;
use proto::v1;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};

use super::message;
use crate::driver::{DriverHandle, Stopped};

/// The driver is asked for the status of one run at most once in this time, however many watch.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The status of every watched run, as it was asked for last.
#[derive(Clone)]
pub(crate) struct Statuses {
    pub(crate) driver: DriverHandle,
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
    pub(crate) fn new(driver: DriverHandle) -> Self {
        Self {
            driver,
            runs: Arc::default(),
        }
    }

    /// The status of a run, no older than this call; `None` if there is no such run.
    pub(crate) async fn get(&self, run: RunId) -> Result<Option<Arc<v1::Status>>, Stopped> {
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
