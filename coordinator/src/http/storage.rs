//! What monitoring reads of where the counts are kept: how fast it is, and how full.

use std::{path::PathBuf, sync::atomic::AtomicU64};

use prometheus_client::{
    metrics::gauge::Gauge,
    registry::{Registry, Unit},
};
use tokio::task::spawn_blocking;

use crate::store::SyncTimes;

/// Where the counts are kept.
#[derive(Clone, Debug, Default)]
pub struct StorageHealth {
    /// How long groups of counts took to become durable.
    pub sync_times: SyncTimes,
    /// The data directory; `None` where a database is in its place.
    pub directory: Option<PathBuf>,
}

/// A file system, in bytes.
struct Room {
    /// Those that this process may still write.
    free: u64,
    all: u64,
}

impl StorageHealth {
    pub(super) async fn tell(&self, registry: &mut Registry) {
        // Its unit in its name alone: some parsers know no histogram with a line for it.
        registry.register(
            "store_sync_seconds",
            "Time until a group of counts was durable: fdatasync of the journal, or the database's commit",
            self.sync_times.histogram().clone(),
        );
        let Some(directory) = self.directory.clone() else {
            return;
        };
        // A disk across a network may take its time, which nobody else waits for.
        let Ok(Some(room)) = spawn_blocking(move || room(&directory)).await else {
            return;
        };
        for (name, help, bytes) in [
            (
                "data_disk_free",
                "What may still be written to the disk of the data directory",
                room.free,
            ),
            (
                "data_disk_size",
                "What the disk of the data directory holds in all",
                room.all,
            ),
        ] {
            let gauge = Gauge::<f64, AtomicU64>::default();
            #[expect(clippy::cast_precision_loss, reason = "samples are doubles")]
            gauge.set(bytes as f64);
            registry.register_with_unit(name, help, Unit::Bytes, gauge);
        }
    }
}

/// The file system that a directory is on; `None` where the operating system does not say.
#[cfg(unix)]
fn room(directory: &std::path::Path) -> Option<Room> {
    let found = rustix::fs::statvfs(directory).ok()?;
    Some(Room {
        free: found.f_bavail.checked_mul(found.f_frsize)?,
        all: found.f_blocks.checked_mul(found.f_frsize)?,
    })
}

#[cfg(not(unix))]
fn room(_: &std::path::Path) -> Option<Room> {
    None
}
