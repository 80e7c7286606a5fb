//! The facts: what happened in a run, and what that makes of its tasks. No I/O, no clock; below
//! both the scheduler, which decides what happens, and the store, which keeps it.
//!
//! A [`Change`] is a fact that somebody decided; a [`Record`] is the one that counts; a
//! [`JournalEntry`] is a record with what was said of it. `fold` knows what each makes of a task.

mod draw;
pub(crate) mod fold;
#[cfg(test)]
mod fold_tests;
mod principal;
mod recheck;
mod refusal;
mod trust;

pub(crate) use draw::Draw;
pub use fold::Fold;
pub use principal::{Confirmed, Principal};
pub use recheck::{BadRecheck, Recheck};
pub use refusal::{PlanMismatch, Refusal};
pub use trust::{Trust, TrustRecord};

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
    /// Everything that can be counted is, and counts of some tasks contradict each other with
    /// nobody left to decide.
    Disputed,
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
    /// On whose word.
    pub principal: Principal,
    /// The version of the worker program.
    pub version: String,
    /// The instruction set that counted.
    pub kernel: KernelName,
    /// Through which data.
    pub orientation: Orientation,
    /// Time of one core, in microseconds.
    pub duration_us: u64,
    /// When it was accepted, in milliseconds since 1970: for people, since clocks are set.
    pub accepted_unix_ms: u64,
    /// How long coordinators had served the run until then, in milliseconds of a clock that nobody
    /// sets; 0 where that was not recorded.
    pub elapsed_ms: u64,
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
    /// Journalled: durable when `Store::apply` returns.
    Accepted(Record),
    /// An equal count came from another lease of a task that is done. Journalled as evidence.
    Confirmed(Record),
    /// A count contradicts the accepted one, or joins a quarantine undecided: none of them counts
    /// until the next accepted record. Journalled.
    Quarantined {
        /// The count that contradicts; the run and the task are in it.
        second: Record,
    },
    /// An operator's word, or completion. Durable when `Store::apply` returns.
    State {
        /// The run.
        run: RunId,
        /// Its new state.
        state: RunState,
    },
    /// How much of a run is to be counted a second time. Durable when `Store::apply` returns.
    Recheck {
        /// The run.
        run: RunId,
        /// How much.
        recheck: Recheck,
    },
    /// What is thought of a worker from now on, in every run. Durable when `Store::apply` returns.
    Trust(TrustRecord),
}

/// A run, as found on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRun {
    /// What it is.
    pub manifest: RunManifest,
    /// How far it is.
    pub state: RunState,
    /// How much of it is to be counted twice; `None` if nobody has said.
    pub recheck: Option<Recheck>,
    /// How long coordinators have served it, until its last record, in milliseconds.
    pub elapsed_ms: u64,
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
        vote: Vote,
        /// Who agreed with it, of all the one who says most.
        confirmed: Confirmed,
    },
    /// Its counts contradict each other.
    Quarantined {
        /// All of them, in the order they came.
        votes: Vec<Vote>,
        /// Who had agreed with the first of them before it was contradicted.
        confirmed: Confirmed,
    },
    /// Set aside after too many failed attempts.
    Parked,
}

/// One count of a task, and what later counts of it have to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The weighted number of solutions.
    pub count: u64,
    /// Who counted.
    pub worker: WorkerId,
    /// On whose word.
    pub principal: Principal,
    /// The instruction set that counted.
    pub kernel: KernelName,
    /// Through which data.
    pub orientation: Orientation,
    /// When it was accepted, in milliseconds since 1970.
    pub accepted_unix_ms: u64,
}

impl From<&Record> for Vote {
    fn from(record: &Record) -> Self {
        Self {
            count: record.count,
            worker: record.worker,
            principal: record.principal.clone(),
            kernel: record.kernel,
            orientation: record.orientation,
            accepted_unix_ms: record.accepted_unix_ms,
        }
    }
}

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

impl JournalEntry {
    /// The record of the line, whatever its kind.
    pub const fn record(&self) -> &Record {
        match self {
            Self::Accepted(record) | Self::Confirmed(record) | Self::Quarantined(record) => record,
        }
    }
}

impl RunManifest {
    /// By what runs are ordered: creation, then name.
    pub(crate) const fn age(&self) -> (u64, u64) {
        (self.created_unix_ms, self.run.0)
    }
}

impl RunState {
    /// The name in the state file, in status and in reports.
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

/// How long coordinators had served a run when its last record was accepted. Nobody's clock is
/// believed where a record says how long it took itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elapsed {
    created_unix_ms: u64,
    ms: u64,
}

impl Elapsed {
    pub(crate) fn of(manifest: &RunManifest) -> Self {
        Self {
            created_unix_ms: manifest.created_unix_ms,
            ms: 0,
        }
    }

    /// Takes the next record of the journal.
    pub(crate) fn see(&mut self, record: &Record) {
        let ms = match record.elapsed_ms {
            // Format 1: there is nothing but the clock.
            0 => record.accepted_unix_ms.saturating_sub(self.created_unix_ms),
            ms => ms,
        };
        self.ms = self.ms.max(ms);
    }

    pub(crate) const fn ms(&self) -> u64 {
        self.ms
    }
}

#[cfg(test)]
mod tests {
    use common::{board::Board, method::Layout, plan::Plan};

    use super::*;

    #[test]
    fn clocks_that_are_set_do_not_change_how_long_a_run_took() {
        const DAY_MS: u64 = 86_400_000;
        let spec = PlanSpec::new(Board::new(8).unwrap(), Layout::FirstRows);
        let manifest = RunManifest {
            run: RunId(1),
            spec,
            plan: Plan::new(spec).unwrap().hash(),
            plan_version: spec.version(),
            priority: 0,
            created_unix_ms: 100 * DAY_MS,
            key: None,
        };
        let record = |accepted_unix_ms, elapsed_ms| Record {
            run: RunId(1),
            task: TaskId(0),
            epoch: Epoch(1),
            count: 1,
            worker: WorkerId(1),
            principal: Principal::new(1, None),
            version: String::new(),
            kernel: KernelName::Scalar,
            orientation: Orientation::Upright,
            duration_us: 1,
            accepted_unix_ms,
            elapsed_ms,
        };
        let mut elapsed = Elapsed::of(&manifest);
        // A clock a year ahead, then one that was set back before the run began.
        for (accepted_unix_ms, elapsed_ms) in [(465 * DAY_MS, 1_000), (99 * DAY_MS, 2_500)] {
            elapsed.see(&record(accepted_unix_ms, elapsed_ms));
        }
        assert_eq!(elapsed.ms(), 2_500);
        // Format 1 knows the clock alone, and never less than nothing.
        let mut elapsed = Elapsed::of(&manifest);
        elapsed.see(&record(99 * DAY_MS, 0));
        assert_eq!(elapsed.ms(), 0);
        elapsed.see(&record(100 * DAY_MS + 700, 0));
        assert_eq!(elapsed.ms(), 700);
    }
}
