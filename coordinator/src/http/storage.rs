//! What monitoring reads of where the counts are kept: how fast it is, and how full.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::gauge::Gauge,
    registry::{Registry, Unit},
};

use crate::{room::SeenRoom, store::SyncTimes};

/// Where the counts are kept.
#[derive(Clone, Debug, Default)]
pub struct StorageHealth {
    /// How long groups of counts took to become durable.
    pub sync_times: SyncTimes,
    /// The disk of the data directory; `None` where a database is in its place.
    pub disk: Option<SeenRoom>,
}

impl StorageHealth {
    pub(super) fn tell(&self, registry: &mut Registry) {
        // Its unit in its name alone: some parsers know no histogram with a line for it.
        registry.register(
            "store_sync_seconds",
            "Time until a group of counts was durable: fdatasync of the journal, or the database's commit",
            self.sync_times.histogram().clone(),
        );
        let Some(room) = self.disk.as_ref().and_then(SeenRoom::get) else {
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
