//! How long the disk takes to keep what it is given.

use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;

/// Upper bounds of the buckets in seconds: from a disk with a cache of its own that survives power cuts to
/// one that holds every worker up.
const BUCKETS: [f64; 14] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// How long groups of counts took to become durable: `fdatasync` of a journal, or the commit of a
/// database's transaction. Clones share what they saw.
#[derive(Clone, Debug)]
pub struct SyncTimes(Histogram);

impl Default for SyncTimes {
    fn default() -> Self {
        Self(Histogram::new(BUCKETS))
    }
}

impl SyncTimes {
    pub(super) fn saw(&self, took: Duration) {
        self.0.observe(took.as_secs_f64());
    }

    /// What monitoring reads, in seconds.
    pub(crate) fn histogram(&self) -> &Histogram {
        &self.0
    }
}
