//! The words of a lease on its way through the worker: its name, its work, what became of it.

use std::{fmt, num::NonZeroU16, time::Duration};

use common::{
    count::{Orientation, SetupError},
    plan::Plan,
    run::{Epoch, Partial, TaskRef},
    sync::Grant,
};

/// The name of a lease, by which results, acknowledgements and revocations find each other: a task
/// and the epoch it was handed out under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey {
    /// The task.
    pub task: TaskRef,
    /// The epoch.
    pub epoch: Epoch,
}

impl LeaseKey {
    /// The lease under which `partial` was counted.
    pub fn of(partial: &Partial) -> Self {
        Self {
            task: partial.task,
            epoch: partial.epoch,
        }
    }

    /// The lease that `grant` gives.
    pub fn granted(grant: &Grant) -> Self {
        Self {
            task: grant.task,
            epoch: grant.epoch,
        }
    }
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TaskRef { run, task, .. } = self.task;
        write!(f, "task {task} of run {run} (epoch {})", self.epoch.0)
    }
}

/// A leased task, as it is handed to whoever counts it.
#[derive(Clone, Debug)]
pub struct Work {
    /// Under which lease.
    pub lease: LeaseKey,
    /// To which the task belongs.
    pub plan: Plan,
    /// Through which data to count.
    pub orientation: Orientation,
    /// In the unit of [`Plan::task_cost`].
    pub cost: u64,
}

impl Work {
    /// The task of `lease`, which `plan` must contain.
    pub fn new(lease: LeaseKey, plan: Plan, orientation: Orientation) -> Self {
        Self {
            cost: plan.task_cost(lease.task.task),
            lease,
            plan,
            orientation,
        }
    }
}

/// Work left its slot. All that was begun does so exactly once.
#[derive(Debug)]
pub struct Left {
    /// What it was.
    pub work: Work,
    /// What became of it.
    pub outcome: Outcome,
    /// How long its threads had it, added up.
    pub duration: Duration,
    /// How many they were.
    pub threads: NonZeroU16,
}

/// What became of work that was begun.
#[derive(Debug)]
pub enum Outcome {
    /// The weighted count of its task.
    Counted(u64),
    /// It was stopped.
    Cancelled,
    /// It has no count.
    Failed(Failure),
}

/// Why a task has no count.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// This worker cannot count tasks of this plan.
    #[error("{0}")]
    Setup(#[from] SetupError),
    /// The count does not fit.
    #[error("the weighted count passes 64 bits")]
    Overflow,
    /// The program has a fault.
    #[error("the counting thread panicked: {0}")]
    Panic(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{RUN, plan, task_ref};

    #[test]
    fn a_lease_is_told_by_task_run_and_epoch() {
        let lease = LeaseKey {
            task: task_ref(&plan(8), 3),
            epoch: Epoch(7),
        };
        assert_eq!(lease.to_string(), format!("task 3 of run {RUN} (epoch 7)"));
    }

    #[test]
    fn work_costs_what_its_plan_says() {
        let plan = plan(8);
        let lease = LeaseKey {
            task: task_ref(&plan, 1),
            epoch: Epoch(1),
        };
        let work = Work::new(lease, plan.clone(), Orientation::Turned);
        assert_eq!(work.cost, plan.task_cost(lease.task.task));
        assert_eq!(work.orientation, Orientation::Turned);
    }
}
