//! Facts of a run, and the state of each task that follows from them.
//!
//! A [`Change`] is a decision to be stored, a [`Record`] an accepted count, and a [`JournalEntry`] a record
//! with its effect on the task. [`TaskState`] defines how counts change a task. [`Tasks`] hold the states of a run's
//! tasks: a [`Fold`] derives them from the journal, and the scheduler, to which they are moved, goes on with them.

pub mod fold;
#[cfg(test)]
mod fold_tests;
mod principal;
mod sampling;
mod task;
pub mod tasks;
#[cfg(test)]
pub(crate) mod test_records;
mod trust;

use common::{
    compute::kernel::KernelName,
    count::Orientation,
    messages::{
        limits,
        run::{Epoch, RunId, SubmitKey, WorkerId},
    },
    plan::{Plan, PlanHash, PlanSpec, TaskId},
};
use serde::{Deserialize, Serialize};

pub use common::messages::recheck::Recheck;
pub use fold::{Contribution, Elapsed, Fold, PlanMismatch, Refusal, StoredTasks};
pub use principal::{Caller, Confirmation, Principal};
pub use sampling::RecheckSampler;
pub use task::{AuthorIx, OpenState, OpenTask, TaskCount, TaskState};
pub use tasks::{Done, Stage, Tasks};
pub use trust::{Trust, TrustRecord};

/// Properties of a run, fixed when it is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunManifest {
    pub run: RunId,
    pub spec: PlanSpec,
    /// Hash of the plan and version of the planning rules when the run was created.
    pub plan: PlanHash,
    pub plan_version: u16,
    /// Order of service: runs of higher priority come first.
    pub priority: i32,
    pub created_unix_ms: u64,
    /// The idempotency key of the submission.
    pub key: Option<SubmitKey>,
}

/// Numbers of symmetric solutions of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymmetricCounts {
    /// Solutions that a rotation by 180° maps to themselves.
    pub half_turn: u64,
    /// Half-turn solutions that a rotation by 90° also maps to themselves.
    pub quarter_turn: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Grants tasks.
    Running,
    /// Grants nothing and accepts results.
    Paused,
    /// Cancelled by an operator; the records are kept.
    Cancelled,
    /// All tasks are done and all checks passed.
    Complete,
    /// All tasks are done and a check contradicts the total.
    Contradicted,
    /// Only disputed tasks are left, and no referee can count them.
    Disputed,
}

/// An accepted partial, as it is journaled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub run: RunId,
    pub task: TaskId,
    /// The lease under which the task was counted.
    pub epoch: Epoch,
    /// The weighted number of solutions.
    pub count: u64,
    pub worker: WorkerId,
    pub principal: Principal,
    /// The version of the worker program.
    pub version: String,
    pub kernel: KernelName,
    pub orientation: Orientation,
    /// Core time spent on the count.
    pub duration_us: u64,
    /// Wall-clock time, for display only: clocks are adjusted.
    pub accepted_unix_ms: u64,
    /// Time for which tasks of the run had been counted so far, by a monotonic clock.
    pub elapsed_ms: u64,
}

/// A decision to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A task without a count was leased, or its lease ended, which leaves `after`.
    Lease { run: RunId, task: TaskId, event: LeaseEvent, after: OpenTask },
    /// A count was recorded. Journaled: durable when `Store::apply` returns.
    Recorded(JournalEntry),
    /// A run entered a state. Durable when `Store::apply` returns.
    State { run: RunId, state: RunState },
    /// An operator changed a run's settings. Durable when `Store::apply` returns.
    Settings { run: RunId, settings: Settings },
    /// The trust in a worker changed. Durable when `Store::apply` returns.
    Trust(TrustRecord),
}

/// Change of the leases of a task without a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    Leased,
    /// A lease was released without a failed attempt.
    Released,
    /// A lease ended without a result: the attempt of this worker failed.
    Failed(WorkerId),
    /// The task was parked after too many failed attempts.
    Parked,
    /// The parked task is pending again.
    Unparked,
}

/// Properties of a run that operators change, besides its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub recheck: Recheck,
    /// Runs of higher priority are served first; at first, the manifest's.
    pub priority: i32,
}

impl Settings {
    /// Returns the settings of a run with `recheck`, before any change.
    pub const fn new(manifest: &RunManifest, recheck: Recheck) -> Self {
        Self { recheck, priority: manifest.priority }
    }
}

/// A run as it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRun {
    pub manifest: RunManifest,
    pub state: RunState,
    pub settings: Settings,
}

/// A journal line: a count and its effect on the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    pub kind: EntryKind,
    pub record: Record,
}

/// Effect of a journaled count on its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// The first count of a task.
    Accepted,
    /// A count equal to the task's.
    Confirmed,
    /// A different count: the task is disputed.
    Disputed,
    /// A referee's count that is not final, since other counts contradict it.
    Recounted,
    /// The referee's final count.
    Settled,
    /// A count that is void because its machine or token was barred.
    Voided,
}

impl EntryKind {
    pub const fn of(self, record: Record) -> JournalEntry {
        JournalEntry { kind: self, record }
    }

    /// Returns the change that journals `record`.
    pub const fn change(self, record: Record) -> Change {
        Change::Recorded(self.of(record))
    }
}

impl JournalEntry {
    /// Returns the entry with the version cut to its limit.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let mut entry = self.clone();
        fold::cut(&mut entry.record.version, limits::VERSION_BYTES);
        entry
    }
}

impl RunManifest {
    pub fn new(run: RunId, plan: &Plan, priority: i32, created_unix_ms: u64) -> Self {
        Self {
            run,
            spec: *plan.spec(),
            plan: plan.hash(),
            plan_version: plan.spec().version(),
            priority,
            created_unix_ms,
            key: None,
        }
    }

    /// Returns the key that orders runs: creation time, then ID.
    pub const fn age(&self) -> (u64, u64) {
        (self.created_unix_ms, self.run.0)
    }
}

impl StoredRun {
    pub const fn new(manifest: RunManifest, recheck: Recheck) -> Self {
        let settings = Settings::new(&manifest, recheck);
        Self { manifest, state: RunState::Running, settings }
    }
}

impl RunState {
    /// Returns the state's name in the state file, in status and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Cancelled => "cancelled",
            Self::Complete => "complete",
            Self::Contradicted => "contradicted",
            Self::Disputed => "disputed",
        }
    }
}
