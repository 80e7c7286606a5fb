//! Readings for monitoring: leader, commit latencies and archive lag of a store.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use prometheus_client::metrics::histogram::Histogram;

/// The coordinator that may write to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The machine and the process.
    pub name: String,
    pub term: u64,
    /// Start of the term in ms since 1970, by the database's clock if there is one.
    pub since_unix_ms: u64,
}

/// A leader, as a standby sees it.
#[derive(Clone, Debug)]
pub struct Observed {
    pub leader: Leader,
    /// The time of its last known heartbeat.
    pub heard: Instant,
}

/// Upper bounds of the buckets in seconds.
/// They range from a disk with a power-loss-protected cache to one that delays every worker.
const BUCKETS: [f64; 14] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Commit latencies of groups of counts. Clones share their observations.
/// A latency is that of a journal's `fdatasync`, or of a database transaction.
#[derive(Clone, Debug)]
pub struct SyncTimes(Histogram);

impl Default for SyncTimes {
    fn default() -> Self {
        Self(Histogram::new(BUCKETS))
    }
}

impl SyncTimes {
    pub(crate) fn observe(&self, took: Duration) {
        self.0.observe(took.as_secs_f64());
    }

    /// Returns the distribution, in seconds.
    pub fn histogram(&self) -> &Histogram {
        &self.0
    }
}

/// A database that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub since: SystemTime,
    /// The last error, with the remedy.
    pub why: String,
    /// The same time as `since`, by the monotonic clock.
    began: Instant,
}

impl Outage {
    /// Returns how long the outage has lasted, also if the wall clock was set back since.
    pub fn duration(&self) -> Duration {
        self.began.elapsed()
    }
}

/// The current outages of the connections to a database. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Outages(Arc<Mutex<BTreeMap<usize, Outage>>>);

impl Outages {
    /// Returns the longest current outage.
    pub fn current(&self) -> Option<Outage> {
        self.lock().values().min_by_key(|outage| outage.began).cloned()
    }

    /// Begins the outage of a connection, or updates its reason.
    pub(crate) fn begin(&self, connection: usize, why: String) {
        let mut outages = self.lock();
        let known = outages.get(&connection).map(|outage| (outage.since, outage.began));
        let (since, began) = known.unwrap_or_else(|| (SystemTime::now(), Instant::now()));
        outages.insert(connection, Outage { since, why, began });
    }

    pub(crate) fn end(&self, connection: usize) {
        self.lock().remove(&connection);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Outage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The replication lag of an archive, shared between the archiver and its readers.
#[derive(Clone, Debug)]
pub struct ArchiveLag(Arc<Mutex<Instant>>);

impl ArchiveLag {
    /// Creates the lag of an archive that holds everything written before `when`.
    pub fn up_to(when: Instant) -> Self {
        Self(Arc::new(Mutex::new(when)))
    }

    /// Returns the age of the oldest change that the archive may lack.
    pub fn behind(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Records that the archive holds everything written before `when`.
    pub(crate) fn advance(&self, when: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = when;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_outage_does_not_depend_on_the_wall_clock() {
        let outages = Outages::default();
        outages.begin(1, "first".to_owned());
        outages.begin(2, "second".to_owned());
        // The clock was set back between the two.
        outages.lock().get_mut(&2).expect("an outage").since = SystemTime::UNIX_EPOCH;
        let first = outages.current().expect("an outage");
        assert_eq!(first.why, "first");
        outages.begin(1, "another reason".to_owned());
        let why = "another reason".to_owned();
        assert_eq!(outages.current(), Some(Outage { why, ..first }), "it goes on");
    }
}
