//! What the scheduler can be told, and its limits.

/// A reading of the wall clock: milliseconds since 1970 (in a simulation, of any origin).
///
/// It may jump either way: own time follows in bounded steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

/// The times that an operator sets, and limits of messages and tables. The defaults are those of a
/// cluster; what nobody sets is a constant beside its use.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How long a lease lasts after the last sync that named it.
    pub lease_ms: u64,
    /// How long leases found on disk last after a restart, for their workers to come back.
    pub grace_ms: u64,
    /// The shortest regular time between two syncs of a worker.
    pub sync_floor_ms: u64,
    /// When a worker found nothing to do and something may soon be: the time until its next sync.
    pub dry_sync_ms: u64,
    /// The shortest time between two syncs that is ever asked for.
    pub least_sync_ms: u64,
    /// Partials taken from one message.
    pub partials_per_sync: usize,
    /// Leases in one reply.
    pub grants_per_sync: usize,
    /// Leases of one worker.
    pub leases_per_worker: usize,
    /// Workers remembered.
    pub workers: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lease_ms: 300_000,
            grace_ms: 300_000,
            sync_floor_ms: 15_000,
            dry_sync_ms: 1_000,
            least_sync_ms: 500,
            partials_per_sync: 4096,
            grants_per_sync: 4096,
            leases_per_worker: 8192,
            workers: 100_000,
        }
    }
}
