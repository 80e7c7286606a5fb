//! Changes that the rules forbid, and runs of another plan.

use common::{
    plan::{BadSpec, PlanHash, TaskId},
    run::{RunId, WorkerId},
};

/// A change that the journal's rules forbid: its author has lost track of the task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The plan has no such task.
    #[error("run {run} has tasks 0 to {last}, not {task}", last = tasks.saturating_sub(1))]
    NoSuchTask {
        /// The run.
        run: RunId,
        /// The task named.
        task: TaskId,
        /// How many tasks the run's plan has.
        tasks: u64,
    },
    /// A count above what the task can have.
    #[error("task {task} of run {run}: {count} solutions are more than its limit of {limit}")]
    ImpossibleCount {
        /// The run.
        run: RunId,
        /// The task.
        task: TaskId,
        /// The count reported.
        count: u64,
        /// The most that the plan allows.
        limit: u64,
    },
    /// A second accepted record for a task that is not quarantined.
    #[error("task {task} of run {run} has an accepted count of {count} by {worker} already")]
    AcceptedTwice {
        /// The run.
        run: RunId,
        /// The task.
        task: TaskId,
        /// The count accepted before.
        count: u64,
        /// Who reported it.
        worker: WorkerId,
    },
    /// A confirmation of a count that is not the accepted one.
    #[error("task {task} of run {run} has no accepted count of {count} to confirm")]
    NothingToConfirm {
        /// The run.
        run: RunId,
        /// The task.
        task: TaskId,
        /// The count to be confirmed.
        count: u64,
    },
    /// A quarantine without a contradiction.
    #[error("task {task} of run {run} has no accepted count that {count} would contradict")]
    NothingToContradict {
        /// The run.
        run: RunId,
        /// The task.
        task: TaskId,
        /// The count that was said to contradict.
        count: u64,
    },
}

/// A run whose plan is not the one that this program makes of the run's spec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanMismatch {
    /// The rules of the plan have changed since.
    #[error(
        "run {run} was made with plan version {theirs} (hash {their_hash}), this program makes \
         version {ours} (hash {our_hash}): finish it with the program it was started with, or use \
         another data directory"
    )]
    Version {
        /// The run.
        run: RunId,
        /// The plan version in its manifest.
        theirs: u16,
        /// The plan version of this program.
        ours: u16,
        /// The plan hash in its manifest.
        their_hash: PlanHash,
        /// The plan hash of this program.
        our_hash: PlanHash,
    },
    /// The version agrees, the hash does not.
    #[error(
        "run {run} names plan {theirs}, but its spec makes plan {ours}: the manifest was altered \
         or the program differs; use the program it was started with, or another data directory"
    )]
    Hash {
        /// The run.
        run: RunId,
        /// The plan hash in its manifest.
        theirs: PlanHash,
        /// The hash of the plan that the spec makes.
        ours: PlanHash,
    },
    /// No plan exists for the spec.
    #[error("run {run} has a spec without a plan: {reason}")]
    NoPlan {
        /// The run.
        run: RunId,
        /// Why there is no plan.
        reason: BadSpec,
    },
}
