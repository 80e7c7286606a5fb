//! What coordinator and worker tell each other in one `Sync`, as plain data.
//!
//! The wire form is `queens.v1.SyncRequest` and `SyncResponse`; `proto` converts and validates.

use crate::{
    count::Orientation,
    kernel::KernelName,
    plan::PlanSpec,
    run::{Epoch, Partial, SessionId, TaskRef, WorkerId},
};

/// One call of a worker: its whole inventory, every time.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncRequest {
    /// Who calls.
    pub worker: WorkerInfo,
    /// Every lease the worker holds, with its progress.
    pub held: Vec<HeldLease>,
    /// Finished partials that were never acknowledged.
    pub partials: Vec<Partial>,
    /// How much more work there is room for, in seconds of all the worker's threads.
    pub seconds_wanted: f64,
    /// The worker is stopping or pauses; leases it no longer holds are released, not failed.
    pub draining: bool,
    /// What the canaries of its counting threads came to.
    pub failed_canaries: FailedCanaries,
    /// Why it counts nothing for the time being, for people; empty while it does.
    pub paused: String,
}

/// What came of canaries, and the counting threads that failed theirs: they counted what is known, and
/// it came out wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedCanaries {
    /// How many, since the process began.
    pub threads: u32,
    /// For how long one of them had counted, in milliseconds before this call, since its canaries were
    /// last good: whatever the worker counted within this time may be wrong. [`u64::MAX`] if they never were
    /// in this process: then whatever earlier ones counted may be wrong too.
    pub unproven_ms: u64,
    /// How often a thread has counted what is known right, since the process began.
    pub passed: u64,
}

/// A worker, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerInfo {
    /// Stays while the worker's spool directory lives.
    pub id: WorkerId,
    /// Drawn anew at every start of the process.
    pub session: SessionId,
    /// For people.
    pub name: String,
    /// The version of the worker program.
    pub version: String,
    /// The instruction set that counts.
    pub kernel: KernelName,
    /// How many threads count.
    pub threads: u32,
    /// The most memory that one thread may use for counting, in bytes.
    pub memory_bytes_per_thread: u64,
    /// Which machine counts, the same for all workers on it; 0 where that is not known.
    pub machine: u64,
}

/// A lease in a worker's inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// The leased task.
    pub task: TaskRef,
    /// The lease's epoch.
    pub epoch: Epoch,
    /// The part of the task's cost that is done.
    pub cost_done: u64,
    /// Whether a thread has begun it.
    pub started: bool,
}

/// The coordinator's answer to one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyncReply {
    /// One answer to each partial of the request.
    pub acknowledgements: Vec<Acknowledgement>,
    /// New leases.
    pub grants: Vec<Grant>,
    /// Leases that are no longer the worker's.
    pub revoked: Vec<Revocation>,
    /// When to call next, in milliseconds from now.
    pub next_sync_ms: u64,
    /// How long every lease of the inventory lasts from now, in milliseconds.
    pub lease_ms: u64,
    /// Why nothing was granted; empty when something was.
    pub reason: String,
    /// No run is running or paused: no work will come before one is submitted.
    pub all_runs_over: bool,
    /// An operator wants this process to stop in good order.
    pub drain: bool,
}

/// The answer to one partial: the worker may drop it, whatever the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The task of the partial.
    pub task: TaskRef,
    /// The epoch of the partial.
    pub epoch: Epoch,
    /// What became of it.
    pub verdict: Verdict,
    /// What is wrong and what to do about it; empty where nothing is.
    pub reason: String,
}

/// What became of a partial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its record is on disk.
    Accepted,
    /// An equal count was on disk before: a free recheck.
    Duplicate,
    /// Another count was reported before: both are quarantined, the task is counted again.
    Conflict,
    /// Not taken.
    Refused,
}

/// A new lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The leased task.
    pub task: TaskRef,
    /// The lease's epoch.
    pub epoch: Epoch,
    /// From which the worker makes its own plan, whose hash must agree with the task's.
    pub spec: PlanSpec,
    /// Through which data to count.
    pub orientation: Orientation,
}

/// A lease taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The task.
    pub task: TaskRef,
    /// The epoch of the lease taken back.
    pub epoch: Epoch,
    /// Why, for people.
    pub reason: String,
}
