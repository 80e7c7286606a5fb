//! Durable state behind one trait, in the words of the domain.
//!
//! The truth about results is the journal of accepted records; everything else (leases, attempts,
//! parked tasks) may be lost without changing a total.

#[cfg(test)]
mod conformance;
mod disk;
#[cfg(test)]
mod disk_tests;
mod error;
mod files;
mod fold;
mod journal;
mod line;
mod manifest;
mod memory;
mod recover;
mod rows;
mod verify;
#[cfg(test)]
mod verify_tests;

pub use disk::DiskStore;
pub use error::{PlanMismatch, Refusal, StoreError};
pub(crate) use fold::plan_of;
pub use memory::MemoryStore;
pub use verify::{Checks, Flaw, RunReport, VerifyError, VerifyReport, verify};

use std::ops::ControlFlow;

use common::{
    count::Orientation,
    kernel::KernelName,
    plan::{PlanHash, PlanSpec, TaskId},
    run::{Epoch, RunId, SubmitKey, WorkerId},
};

/// What a run is, fixed when it is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunManifest {
    /// Its name.
    pub run: RunId,
    /// What its plan is made from.
    pub spec: PlanSpec,
    /// The hash of that plan when the run was created.
    pub plan: PlanHash,
    /// The version of the plan's rules when the run was created.
    pub plan_version: u16,
    /// Higher is served first.
    pub priority: i32,
    /// When it was created, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// By what it was asked for, if its operator named that.
    pub key: Option<SubmitKey>,
}

/// The solutions of a board that rotations fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymmetricCounts {
    /// Fixed by the half turn.
    pub half_turn: u64,
    /// Fixed by the quarter turn too.
    pub quarter_turn: u64,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Tasks are handed out.
    Running,
    /// Nothing new is handed out; results are welcome.
    Paused,
    /// Given up by its operator; its records stay.
    Cancelled,
    /// Every task is done and every check agrees.
    Complete,
    /// Every task is done, and a check contradicts the total.
    Contradicted,
}

/// An accepted partial, as it is journalled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The run.
    pub run: RunId,
    /// The task.
    pub task: TaskId,
    /// The lease under which it was counted.
    pub epoch: Epoch,
    /// The weighted number of solutions.
    pub count: u64,
    /// Who counted.
    pub worker: WorkerId,
    /// The version of the worker program.
    pub version: String,
    /// The instruction set that counted.
    pub kernel: KernelName,
    /// Through which data.
    pub orientation: Orientation,
    /// Time of one core, in microseconds.
    pub duration_us: u64,
    /// When it was accepted, in milliseconds since 1970.
    pub accepted_unix_ms: u64,
}

/// Something that happened and has to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A task was leased.
    Leased {
        /// The run.
        run: RunId,
        /// The task.
        task: TaskId,
        /// To whom.
        worker: WorkerId,
        /// The new lease's epoch.
        epoch: Epoch,
        /// When the lease ends unless renewed, in milliseconds since 1970.
        until_unix_ms: u64,
    },
    /// A lease was given back unfinished, which is nobody's fault.
    Released {
        /// The run.
        run: RunId,
        /// The task.
        task: TaskId,
        /// The lease's epoch.
        epoch: Epoch,
    },
    /// A lease ended without a result: the worker's attempt failed.
    Expired {
        /// The run.
        run: RunId,
        /// The task.
        task: TaskId,
        /// The lease's epoch.
        epoch: Epoch,
        /// Whose attempt it was.
        worker: WorkerId,
    },
    /// Too many workers failed on a task: it is set aside.
    Parked {
        /// The run.
        run: RunId,
        /// The task.
        task: TaskId,
    },
    /// A parked task is pending again, its failed attempts forgiven.
    Unparked {
        /// The run.
        run: RunId,
        /// The task.
        task: TaskId,
    },
    /// A partial was accepted: the first of its task, or the one that resolves a quarantine.
    /// Journalled: durable when [`Store::apply`] returns.
    Accepted(Record),
    /// An equal count came from another lease of a task that is done. Journalled as evidence.
    Confirmed(Record),
    /// A count contradicts the accepted one, or joins a quarantine undecided: none of them counts
    /// until the next accepted record. Journalled.
    Quarantined {
        /// The count that contradicts; the run and the task are in it.
        second: Record,
    },
    /// An operator's word, or completion. Durable when [`Store::apply`] returns.
    State {
        /// The run.
        run: RunId,
        /// Its new state.
        state: RunState,
    },
}

/// A run, as found on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRun {
    /// What it is.
    pub manifest: RunManifest,
    /// How far it is.
    pub state: RunState,
}

/// What is known of one task when a run is loaded. Tasks that nothing happened to have no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// The task.
    pub task: TaskId,
    /// The highest epoch ever leased.
    pub epoch: Epoch,
    /// Where it stands.
    pub state: TaskState,
    /// Workers whose lease on it ended without a result.
    pub failed: Vec<WorkerId>,
}

/// Where a task stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Waiting to be leased.
    Pending,
    /// Leased until a time, in milliseconds since 1970.
    Leased {
        /// To whom.
        worker: WorkerId,
        /// When the lease ends.
        until_unix_ms: u64,
    },
    /// Counted.
    Done {
        /// The accepted count.
        count: u64,
        /// Who counted it.
        worker: WorkerId,
        /// Another lease gave the same count, or this one resolved a quarantine.
        confirmed: bool,
    },
    /// Its counts contradict each other; all of them, in the order they came.
    Quarantined {
        /// The counts with who reported them on which kernel.
        counts: Vec<(u64, WorkerId, KernelName)>,
    },
    /// Set aside after too many failed attempts.
    Parked,
}

/// Durable state of all runs of one coordinator. One owner, one thread.
pub trait Store: Send {
    /// Every run, in order of creation time, then of name.
    fn runs(&self) -> Result<Vec<StoredRun>, StoreError>;

    /// Creates a run, durably. A run of the same name is an error.
    fn create(&mut self, manifest: &RunManifest) -> Result<(), StoreError>;

    /// Removes a run with all that is kept of it. After an error it is as it was.
    fn delete(&mut self, run: RunId) -> Result<(), StoreError>;

    /// The symmetric solutions of a run's board, if they were kept.
    fn symmetric(&self, run: RunId) -> Result<Option<SymmetricCounts>, StoreError>;

    /// Keeps the symmetric solutions of a run's board.
    fn keep_symmetric(&mut self, run: RunId, counts: SymmetricCounts) -> Result<(), StoreError>;

    /// Keeps what happened, in this order; nothing of it after an error that
    /// [kept nothing](StoreError::kept_nothing). On return every journalled change is on disk (one
    /// `fdatasync` for all of them); leases and attempts may reach the disk later.
    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError>;

    /// Every task of `run` that something happened to, in any order, each once.
    fn scan(&self, run: RunId, visit: &mut dyn FnMut(TaskRow)) -> Result<(), StoreError>;

    /// The journal lines of `run` (accepted, confirmed, quarantined) in journal order from a place
    /// on, without line ends, with their sequence numbers (1, 2, …), until `visit` breaks or the
    /// journal ends. Returns the place after the last line visited.
    fn journal(
        &self,
        run: RunId,
        from: JournalCursor,
        visit: &mut dyn FnMut(u64, &JournalEntry, &str) -> ControlFlow<()>,
    ) -> Result<JournalCursor, StoreError>;
}

/// A place between two lines of a run's journal, good for the store it came from; the default is
/// the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalCursor(u64);

/// What one journal line says of a run's tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEntry {
    /// See [`Change::Accepted`].
    Accepted(Record),
    /// See [`Change::Confirmed`].
    Confirmed(Record),
    /// See [`Change::Quarantined`].
    Quarantined(Record),
}
