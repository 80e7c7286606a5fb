//! Messages of one `Sync` call as plain data.
//!
//! The wire form is `queens.v1.SyncRequest` and `SyncResponse`; `proto` converts and validates it.

use serde::{Deserialize, Serialize};

use crate::{
    compute::kernel::KernelName,
    count::Orientation,
    messages::run::{LeaseKey, Partial, SessionId},
    plan::PlanSpec,
};

/// A worker's call, which always lists its whole inventory.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncRequest {
    pub worker: WorkerInfo,
    /// All leases of the worker, with their progress.
    pub held: Vec<HeldLease>,
    /// Finished partials that were not acknowledged.
    pub partials: Vec<Partial>,
    /// Requested work, in seconds of all the worker's threads.
    pub seconds_wanted: f64,
    /// Whether the worker drains or pauses: missing leases are released, not failed.
    pub draining: bool,
    pub self_test: SelfTestReport,
    /// Reason for a pause; empty if not paused.
    pub paused: String,
    /// The tasks that the worker wants to take away in a package.
    pub package: Option<PackageRequest>,
}

/// A request for tasks that a worker takes away in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct PackageRequest {
    /// The first digits of a run, `N=20` for the newest one of that board, or `last`; empty: the run that is served first.
    pub run: String,
    /// Time until the promised return.
    pub away_ms: u64,
    /// Maximum number of tasks.
    pub tasks: u32,
    /// Maximum work, in seconds of one reference core.
    pub core_seconds: f64,
}

/// Limits of a token's packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageLimits {
    /// Maximum time until a promised return.
    pub away_seconds: u64,
    /// Maximum number of tasks in all packages that are away.
    pub tasks: u32,
}

impl Default for PackageLimits {
    fn default() -> Self {
        Self { away_seconds: 30 * 24 * 60 * 60, tasks: 100_000 }
    }
}

/// Self-test results of a worker, and its failed threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelfTestReport {
    /// Failed threads since the process started.
    pub failed_threads: u32,
    /// Period before this call, in milliseconds, whose results may be wrong; 0 once the coordinator has
    /// stored a report with all of these results.
    ///
    /// [`u64::MAX`] if no self-test passed in this process: then results of earlier processes may
    /// be wrong too.
    pub suspect_window_ms: u64,
    /// Passed self-tests since the process started.
    pub tests_passed: u64,
}

/// Self-description of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerInfo {
    /// Random at every start of the process.
    pub session: SessionId,
    pub name: String,
    pub version: String,
    pub kernel: KernelName,
    /// Names of the devices that count beside the CPU; empty without any.
    pub device: String,
    pub threads: u32,
    /// Maximum memory per counting thread, in bytes.
    pub memory_bytes_per_thread: u64,
    /// Number of the machine, the same for all its workers; 0 if unknown.
    pub machine: u64,
}

/// A lease in a worker's inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLease {
    pub lease: LeaseKey,
    /// Finished part of the task's cost.
    pub cost_done: u64,
    /// Whether a thread has started the task.
    pub started: bool,
    /// Whether the worker could not count the task, and holds the lease no longer.
    pub failed: bool,
}

/// The coordinator's reply to a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyncReply {
    /// One per partial of the request.
    pub acknowledgements: Vec<Acknowledgement>,
    pub grants: Vec<Grant>,
    /// Leases that the worker lost.
    pub revoked: Vec<Revocation>,
    /// Delay of the next call, in milliseconds.
    pub next_sync_ms: u64,
    /// Remaining time of all leases in the inventory, in milliseconds.
    pub lease_ms: u64,
    /// Reason why nothing was granted, or less than a package requested; empty otherwise.
    pub reason: String,
    /// Whether no run is running or paused: there is no work until one is submitted.
    pub all_runs_finished: bool,
    /// Whether an operator asked this process to drain.
    pub drain: bool,
    /// Whether the self-test report was stored: a refused worker's is not.
    pub self_test_stored: bool,
}

/// Reply to a partial. The worker may drop the partial unless the verdict is [`Verdict::RefusedKeep`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    pub lease: LeaseKey,
    pub verdict: Verdict,
    /// Problem and remedy; empty if there is none.
    pub reason: String,
}

/// Outcome of a submitted partial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The record is on disk.
    Accepted,
    /// The same count was already on disk.
    Duplicate,
    /// Differs from an earlier count: the task is disputed.
    Conflict,
    Refused,
    /// The lease's proof is not valid for this worker: the worker keeps the result, for which the reason
    /// names the remedy.
    RefusedKeep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub lease: LeaseKey,
    /// Spec of the plan, which the worker rebuilds and verifies by its hash.
    pub spec: PlanSpec,
    pub orientation: Orientation,
}

/// A revoked lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    pub lease: LeaseKey,
    pub reason: String,
}
