//! The latest statuses, for all readers of gRPC, HTTP or events.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex as BlockingMutex, OnceLock},
    time::Duration,
};

use axum::body::Bytes;
use common::messages::run::RunId;
use proto::v1;
use store::Outage;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};

use crate::{
    driver::{DriverHandle, Stopped},
    message,
};

/// Minimum interval between status requests to the driver for one run.
const REFRESH_INTERVAL: Duration = Duration::from_millis(50);

/// The latest status of every run with readers.
#[derive(Clone)]
pub(crate) struct StatusCache {
    pub(crate) driver: DriverHandle,
    runs: Arc<BlockingMutex<BTreeMap<RunId, CachedRun>>>,
}

/// A run's latest status, locked during a request; `None` before the first one.
type CachedRun = Arc<Mutex<Option<Latest>>>;

#[derive(Clone)]
struct Latest {
    /// The driver's version number before the request.
    version: u64,
    outage: Option<Outage>,
    requested: Instant,
    status: Arc<v1::Status>,
    /// See [`StatusCache::get_framed`].
    framed: Arc<OnceLock<Bytes>>,
}

impl StatusCache {
    pub(crate) fn new(driver: DriverHandle) -> Self {
        Self { driver, runs: Arc::default() }
    }

    /// Returns a run's status, no older than this call; `None` if the run is unknown.
    pub(crate) async fn get(&self, run: RunId) -> Result<Option<Arc<v1::Status>>, Stopped> {
        Ok(self.latest(run).await?.map(|latest| latest.status))
    }

    /// Returns the status and its gRPC frame, which is encoded once for all readers.
    pub(crate) async fn get_framed(
        &self,
        run: RunId,
    ) -> Result<Option<(Arc<v1::Status>, Bytes)>, Stopped> {
        Ok(self.latest(run).await?.map(|Latest { status, framed, .. }| {
            let bytes = framed.get_or_init(|| proto::framed(&*status)).clone();
            (status, bytes)
        }))
    }

    async fn latest(&self, run: RunId) -> Result<Option<Latest>, Stopped> {
        let changes = self.driver.changes();
        let wanted = *changes.borrow();
        let cached = {
            let mut runs = self.runs.lock().expect("nothing panics here");
            Arc::clone(runs.entry(run).or_default())
        };
        let mut latest = cached.lock().await;
        if let Some(latest) = &*latest {
            if latest.version >= wanted && latest.outage == self.driver.outage() {
                return Ok(Some(latest.clone()));
            }
            sleep_until(latest.requested + REFRESH_INTERVAL).await;
        }
        let (version, outage) = (*changes.borrow(), self.driver.outage());
        let requested = Instant::now();
        let Some(report) = self.driver.status(Some(run)).await? else {
            self.runs.lock().expect("nothing panics here").remove(&run);
            return Ok(None);
        };
        let status = Arc::new(message::status(&report));
        let new = Latest { version, outage, requested, status, framed: Arc::default() };
        *latest = Some(new.clone());
        Ok(Some(new))
    }
}
