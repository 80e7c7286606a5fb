//! The name of a lease, by which results, acknowledgements and revocations find each other.

use std::fmt;

use common::run::{Epoch, Partial, TaskRef};

/// One lease: a task and the epoch it was handed out under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeaseKey {
    pub(crate) task: TaskRef,
    pub(crate) epoch: Epoch,
}

impl LeaseKey {
    pub(crate) fn of(partial: &Partial) -> Self {
        Self {
            task: partial.task,
            epoch: partial.epoch,
        }
    }
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TaskRef { run, task, .. } = self.task;
        write!(f, "task {task} of run {run} (epoch {})", self.epoch.0)
    }
}
