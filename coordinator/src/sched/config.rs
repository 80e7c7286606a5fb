//! What the scheduler can be told, and its limits.

/// A reading of the wall clock: milliseconds since 1970 (in a simulation, of any origin).
///
/// It may jump either way: see [`Config::max_step_ms`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

/// Times, sizes and limits of a [`Scheduler`](super::Scheduler). The defaults are those of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How long a lease lasts after the last sync that named it.
    pub lease_ms: u64,
    /// How long leases found on disk last after a restart, for their workers to come back.
    pub grace_ms: u64,
    /// The most that the scheduler's own time advances from one call to the next: a forward jump of
    /// the clock ends no lease that has more than this left.
    pub max_step_ms: u64,
    /// The shortest regular time between two syncs of a worker.
    pub sync_floor_ms: u64,
    /// Regular syncs that the coordinator wants to serve in a second, all workers together.
    pub syncs_per_second: u64,
    /// When a worker found nothing to do and something may soon be: the time until its next sync.
    pub dry_sync_ms: u64,
    /// The shortest time between two syncs that is ever asked for.
    pub least_sync_ms: u64,
    /// The most work in one grant, in seconds of the worker at its measured speed.
    pub grant_seconds: f64,
    /// The most tasks a thread of a worker whose speed is unknown, or of which no count was compared
    /// yet although another machine is there to do it.
    pub first_tasks_per_thread: u32,
    /// The part of a run's cost, at its end, that is handed out in single tasks a thread.
    pub singles_fraction: f64,
    /// How many workers may count one task at the same time.
    pub copies: usize,
    /// The age from which a lease under way is worth a backup copy.
    pub backup_after_ms: u64,
    /// A task on which this many distinct workers failed is parked.
    pub attempts: usize,
    /// A task that failed this often is parked, whoever failed.
    pub attempts_in_all: usize,
    /// A lease granted this often without ever turning up in the worker's inventory is taken back.
    pub grants_unseen: u8,
    /// A worker that gave back leases of a run unworked this often in a row gets no more of it for
    /// the time of a lease.
    pub declines: u32,
    /// Partials taken from one message.
    pub partials_per_sync: usize,
    /// Leases in one reply.
    pub grants_per_sync: usize,
    /// Leases of one worker.
    pub leases_per_worker: usize,
    /// Workers remembered.
    pub workers: usize,
}

impl Config {
    /// Whether attempts by these workers, one entry an attempt, are enough to park a task.
    pub(super) fn too_often(&self, failed: &[u32]) -> bool {
        let distinct: std::collections::BTreeSet<_> = failed.iter().collect();
        distinct.len() >= self.attempts || failed.len() >= self.attempts_in_all
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lease_ms: 300_000,
            grace_ms: 300_000,
            max_step_ms: 60_000,
            sync_floor_ms: 15_000,
            syncs_per_second: 50,
            dry_sync_ms: 1_000,
            least_sync_ms: 500,
            grant_seconds: 300.0,
            first_tasks_per_thread: 2,
            singles_fraction: 0.02,
            copies: 2,
            backup_after_ms: 10_000,
            attempts: 5,
            attempts_in_all: 20,
            grants_unseen: 5,
            declines: 3,
            partials_per_sync: 4096,
            grants_per_sync: 4096,
            leases_per_worker: 8192,
            workers: 100_000,
        }
    }
}
