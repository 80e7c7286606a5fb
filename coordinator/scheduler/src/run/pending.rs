//! Pending tasks of a run, in the order in which they are granted.

use std::{cell::Cell, collections::BTreeSet};

use common::plan::Plan;

use crate::ledger::{
    Stage, Tasks,
    tasks::{TaskIx, index},
};

/// Pending tasks: those that workers returned, and those that were never granted.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Position in the plan's order; pending tasks before it are in `returned`.
    next: Cell<u64>,
    returned: BTreeSet<TaskIx>,
    /// The `returned` tasks that no worker failed to deliver.
    intact: BTreeSet<TaskIx>,
    /// The `returned` tasks of vanished workers: other tasks go first.
    orphaned: BTreeSet<TaskIx>,
}

impl Pending {
    /// Returns the next task that was never granted.
    pub(super) fn next_fresh(&self, plan: &Plan, tasks: &Tasks) -> Option<TaskIx> {
        (self.next.get()..plan.tasks()).find_map(|position| {
            self.next.set(position);
            let task = index(plan.task_at(position));
            let is_fresh = tasks.stage(task) == Stage::Pending && !self.returned.contains(&task);
            is_fresh.then_some(task)
        })
    }

    pub(super) fn upcoming<'a>(&self, plan: &'a Plan) -> impl Iterator<Item = TaskIx> + use<'a> {
        (self.next.get()..plan.tasks()).map(|position| index(plan.task_at(position)))
    }

    /// Adds a task that is pending again; `failed` if an attempt at it failed.
    pub(super) fn give_back(&mut self, task: TaskIx, failed: bool) {
        self.returned.insert(task);
        if !failed {
            self.intact.insert(task);
        }
    }

    /// Lets other tasks go before a returned one.
    pub(super) fn orphan(&mut self, task: TaskIx) {
        self.intact.remove(&task);
        self.orphaned.insert(task);
    }

    /// Removes a task that is no longer pending.
    pub(super) fn leave(&mut self, task: TaskIx) {
        self.returned.remove(&task);
        self.intact.remove(&task);
        self.orphaned.remove(&task);
    }

    pub(crate) fn returned(&self) -> &BTreeSet<TaskIx> {
        &self.returned
    }

    /// Returns the first returned task that no worker failed to deliver.
    pub(crate) fn first_intact(&self) -> Option<TaskIx> {
        self.intact.first().copied()
    }

    /// Returns the number of returned tasks that a worker failed to deliver.
    pub(super) fn missed(&self) -> usize {
        self.returned.len() - self.intact.len()
    }

    pub(crate) fn is_orphaned(&self, task: TaskIx) -> bool {
        self.orphaned.contains(&task)
    }

    /// Returns whether the other sets follow from the returned tasks and those with a failed attempt.
    pub(crate) fn is_consistent(&self, has_failed: impl Fn(TaskIx) -> bool) -> bool {
        let is_intact = |task: &TaskIx| !self.orphaned.contains(task) && !has_failed(*task);
        self.orphaned.is_subset(&self.returned)
            && self.intact.iter().eq(self.returned.iter().filter(|task| is_intact(task)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::test_records;

    #[test]
    fn a_fresh_task_is_passed_once_and_a_returned_one_is_never_fresh() {
        let plan = test_records::plan();
        let mut tasks = Tasks::new(&plan);
        let mut pending = Pending::default();
        let order: Vec<_> = pending.upcoming(&plan).collect();
        let lease = |pending: &Pending, tasks: &mut Tasks| {
            let task = pending.next_fresh(&plan, tasks).unwrap();
            tasks.enter(task, 1, Stage::Leased);
            task
        };
        assert_eq!([0; 2].map(|_| lease(&pending, &mut tasks)), order[..2]);
        tasks.enter(order[1], 1, Stage::Pending);
        pending.give_back(order[1], false);
        assert_eq!((pending.first_intact(), pending.missed()), (Some(order[1]), 0));
        pending.orphan(order[1]);
        assert_eq!((pending.first_intact(), pending.missed()), (None, 1));
        assert!(pending.is_orphaned(order[1]) && pending.is_consistent(|_| false));
        assert_eq!(lease(&pending, &mut tasks), order[2]);
        pending.leave(order[1]);
        assert!(pending.returned().is_empty() && !pending.is_orphaned(order[1]));
        let rest: Vec<_> = pending.upcoming(&plan).collect();
        assert_eq!(rest, order[2..], "tasks before the next one are not considered again");
    }
}
