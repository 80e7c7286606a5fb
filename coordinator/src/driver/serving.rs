//! The coordinator that serves the runs, and its disk space.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use store::{ArchiveLag, Leader, Outages};
use tokio::{task::spawn_blocking, time::sleep};

/// The coordinator that serves the runs, and where they are stored.
#[derive(Clone, Debug)]
pub struct Serving {
    pub leader: Leader,
    pub archive_lag: Option<ArchiveLag>,
    /// The file system of the data directory.
    pub disk: Option<DiskSpaceMonitor>,
    pub outages: Outages,
}

const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Space on a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Available to this process.
    pub free: u64,
    pub total: u64,
}

/// The last sample of the disk space, taken in the background because it can block.
#[derive(Clone, Debug)]
pub struct DiskSpaceMonitor(Arc<Mutex<Option<DiskSpace>>>);

impl DiskSpaceMonitor {
    /// Samples the file system of `directory` now and every `POLL_INTERVAL`.
    /// Stops when the monitor is dropped. Requires a runtime.
    pub fn start(directory: PathBuf) -> Self {
        let sample = Arc::new(Mutex::new(disk_space(&directory)));
        tokio::spawn(poll(directory, Arc::downgrade(&sample)));
        Self(sample)
    }

    /// Returns the last sample; `None` if unknown.
    pub fn get(&self) -> Option<DiskSpace> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn poll(directory: PathBuf, sample: Weak<Mutex<Option<DiskSpace>>>) {
    loop {
        sleep(POLL_INTERVAL).await;
        let path = directory.clone();
        let Ok(space) = spawn_blocking(move || disk_space(&path)).await else {
            return;
        };
        match sample.upgrade() {
            Some(sample) => *sample.lock().unwrap_or_else(PoisonError::into_inner) = space,
            None => return,
        }
    }
}

#[cfg(unix)]
fn disk_space(directory: &Path) -> Option<DiskSpace> {
    let stats = rustix::fs::statvfs(directory).ok()?;
    Some(DiskSpace {
        free: stats.f_bavail.checked_mul(stats.f_frsize)?,
        total: stats.f_blocks.checked_mul(stats.f_frsize)?,
    })
}

#[cfg(not(unix))]
fn disk_space(_: &Path) -> Option<DiskSpace> {
    None
}
