//! Configuration of the scheduler.

/// The default of [`Config::recounts`]: if none is wrong, at most 3 % of the counts are, with 95 % confidence.
pub const DEFAULT_RECOUNTS: u64 = 300;

/// Times that an operator sets, and limits of messages and tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Duration of a lease after the last sync that named it, or after a restart.
    pub lease_ms: u64,
    /// Minimum regular interval between two syncs of a worker.
    pub sync_floor_ms: u64,
    /// Maximum number of partials accepted from one message.
    pub partials_per_sync: usize,
    /// Maximum number of grants in one reply.
    pub grants_per_sync: usize,
    pub leases_per_worker: usize,
    /// Maximum number of known workers.
    pub workers: usize,
    /// Maximum number of connected workers per token or certificate.
    /// Lower than `workers`, so that a leaked token does not keep other workers out.
    pub workers_per_token: usize,
    /// Minimum number of random recounts of a run whose total matches no published one.
    pub recounts: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lease_ms: 300_000,
            sync_floor_ms: 15_000,
            partials_per_sync: 4096,
            grants_per_sync: 4096,
            leases_per_worker: 8192,
            workers: 100_000,
            workers_per_token: 12_288,
            recounts: DEFAULT_RECOUNTS,
        }
    }
}
