//! The tasks of one run that are to be counted a second time.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    clock::Ticks,
    index::{TaskIx, WorkerIx},
};

/// Done tasks whose second count is wanted or under way.
#[derive(Debug, Default)]
pub(super) struct Seconds {
    /// Those that nobody counts, by who counted them first, with since when they wait.
    waiting: BTreeMap<WorkerIx, BTreeMap<TaskIx, Ticks>>,
    number: usize,
    /// Those that somebody counts.
    running: BTreeSet<TaskIx>,
    /// Cost of the tasks chosen because they were among a worker's first.
    firsts_cost: u64,
}

impl Seconds {
    /// A second count of this task is wanted; whether it was not before.
    pub(super) fn want(&mut self, task: TaskIx, first: WorkerIx, now: Ticks) -> bool {
        if self.running.contains(&task) {
            return false;
        }
        let of_first = self.waiting.entry(first).or_default();
        let new = of_first.insert(task, now).is_none();
        self.number += usize::from(new);
        new
    }

    /// Somebody counts it.
    pub(super) fn begin(&mut self, task: TaskIx, first: WorkerIx) {
        self.forget(task, first);
        self.running.insert(task);
    }

    /// Nobody counts it any more; whether it was counted before.
    pub(super) fn end(&mut self, task: TaskIx) -> bool {
        self.running.remove(&task)
    }

    /// No second count is wanted any more.
    pub(super) fn forget(&mut self, task: TaskIx, first: WorkerIx) {
        self.running.remove(&task);
        if let Some(of_first) = self.waiting.get_mut(&first) {
            self.number -= usize::from(of_first.remove(&task).is_some());
            if of_first.is_empty() {
                self.waiting.remove(&first);
            }
        }
    }

    /// Notes what comparing a worker's first count costs, if that stays within `most` in all or is
    /// owed to the worker in any case.
    pub(super) fn afford(&mut self, cost: u64, most: u64, owed: bool) -> bool {
        let sum = self.firsts_cost.saturating_add(cost);
        let affordable = owed || sum <= most;
        if affordable {
            self.firsts_cost = sum;
        }
        affordable
    }

    /// What waits, by who counted it first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (WorkerIx, &BTreeMap<TaskIx, Ticks>)> {
        self.waiting.iter().map(|(&first, tasks)| (first, tasks))
    }

    /// Second counts that nobody has begun.
    pub(super) fn number_waiting(&self) -> usize {
        self.number
    }

    pub(super) fn running(&self) -> &BTreeSet<TaskIx> {
        &self.running
    }

    /// Wanted and under way.
    pub(super) fn number(&self) -> usize {
        self.number + self.running.len()
    }
}
