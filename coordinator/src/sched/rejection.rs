//! Why a lease is not a worker's, or a count is not taken.

use common::{plan::PlanHash, run::RunId};

use super::index::TaskIx;

/// What is wrong with a lease that a worker names or with a count that it reports, as it is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Rejection {
    #[error("this coordinator has no run {0}: drop its tasks")]
    NoSuchRun(RunId),
    #[error(
        "run {run} has plan {ours}, the worker made plan {theirs}: run the coordinator's version of \
         the worker"
    )]
    OtherPlan {
        run: RunId,
        ours: PlanHash,
        theirs: PlanHash,
    },
    #[error("run {run} has tasks 0 to {last}, and no task {task}: drop it")]
    NoSuchTask { run: RunId, last: u64, task: u64 },
    #[error("task {task} was never leased under epoch {epoch}: drop it and ask for work")]
    NeverLeased { task: TaskIx, epoch: u64 },
    #[error(
        "{faults} counts of this worker were wrong, so it gets no more work: check the machine's \
         memory and cooling"
    )]
    Barred { faults: u32 },
    #[error("the worker holds too many leases")]
    TooManyLeases,
    #[error("the run is cancelled")]
    RunCancelled,
    #[error("run {0} is cancelled: drop its results")]
    ResultsOfCancelled(RunId),
    #[error("the run is over")]
    RunOver,
    #[error("the task is leased to another worker by now")]
    LeasedElsewhere,
    #[error("the task is counted")]
    Counted,
    #[error("the task is set aside after failed attempts")]
    SetAside,
    #[error("the task is quarantined: its counts disagree")]
    Quarantined,
    #[error(
        "task {task} cannot have {count} solutions, {limit} at most: check this machine's memory"
    )]
    ImpossibleCount {
        task: TaskIx,
        count: u64,
        limit: u64,
    },
}
