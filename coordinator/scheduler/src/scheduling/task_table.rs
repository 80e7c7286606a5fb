//! Tasks of a run in compact form: 41 bytes per task.

use std::ops::RangeInclusive;

use common::{
    count::Orientation,
    kernel::KernelName,
    plan::{Plan, TaskId},
};

use super::{Millis, TaskIx, WorkerIx};
use crate::ledger::{AnyCount, Confirmation, TaskState};

/// Stage of a task: its [`TaskState`] without the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Pending,
    Leased,
    Done,
    Parked,
    Disputed,
}

impl Stage {
    pub(super) const ALL: [Self; 5] =
        [Self::Pending, Self::Leased, Self::Done, Self::Parked, Self::Disputed];
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkerCount {
    pub(super) count: u64,
    pub(super) worker: WorkerIx,
    pub(super) kernel: KernelName,
    pub(super) orientation: Orientation,
}

impl AnyCount for WorkerCount {
    fn count(&self) -> u64 {
        self.count
    }

    fn same_worker(&self, other: &Self) -> bool {
        self.worker == other.worker
    }
}

/// A standing count, and the equal one that confirms it best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) first: WorkerCount,
    pub(super) second: Option<(WorkerIx, KernelName, Orientation)>,
    pub(super) confirmed: Confirmation,
    /// Time of acceptance, in Unix seconds of [`super::clock::Clock::steady`], or [`UNKNOWN_S`].
    pub(super) accepted_s: u32,
}

impl Done {
    /// Returns whether the count was accepted in this time, as far as known.
    pub(super) fn was_accepted_in(&self, window: &RangeInclusive<u32>) -> bool {
        self.accepted_s == UNKNOWN_S || window.contains(&self.accepted_s)
    }

    pub(super) fn state(&self) -> TaskState<WorkerCount> {
        let Self { first, second, confirmed, .. } = *self;
        let equal = |(worker, kernel, orientation)| {
            Box::new(WorkerCount { count: first.count, worker, kernel, orientation })
        };
        TaskState::Done { first, second: second.map(equal), confirmed }
    }
}

/// An unknown time of acceptance.
pub(super) const UNKNOWN_S: u32 = u32::MAX;

/// Converts a time to the unit of [`Done::accepted_s`].
pub(super) fn seconds(at: Millis) -> u32 {
    u32::try_from(at.0 / 1_000).unwrap_or(u32::MAX)
}

#[derive(Debug)]
pub(super) struct TaskTable {
    stages: Vec<Stage>,
    /// Counts by task; 0 unless the task is done.
    done: Vec<Done>,
    epochs: Vec<u64>,
    /// Numbers and costs of the tasks by stage.
    numbers: [u64; Stage::ALL.len()],
    costs: [u64; Stage::ALL.len()],
    /// Numbers of done tasks by level of confirmation.
    levels: [u64; Confirmation::ALL.len()],
}

impl TaskTable {
    pub(super) fn new(plan: &Plan) -> Self {
        let size = usize::try_from(plan.tasks()).expect("at most MAX_TASKS");
        let costs = (0..plan.tasks()).map(|task| plan.task_cost(TaskId(task)));
        let mut table = Self {
            stages: vec![Stage::Pending; size],
            done: vec![Done::default(); size],
            epochs: vec![0; size],
            numbers: [0; Stage::ALL.len()],
            costs: [0; Stage::ALL.len()],
            levels: [0; Confirmation::ALL.len()],
        };
        table.numbers[Stage::Pending as usize] = plan.tasks();
        table.costs[Stage::Pending as usize] = costs.fold(0, u64::saturating_add);
        table
    }

    pub(super) fn len(&self) -> u64 {
        self.stages.len() as u64
    }

    pub(super) fn number(&self, stage: Stage) -> u64 {
        self.numbers[stage as usize]
    }

    pub(super) fn cost(&self, stage: Stage) -> u64 {
        self.costs[stage as usize]
    }

    pub(super) fn total_cost(&self) -> u64 {
        self.costs.iter().fold(0, |sum, cost| sum.saturating_add(*cost))
    }

    pub(super) fn stage(&self, task: TaskIx) -> Stage {
        self.stages[task as usize]
    }

    /// Moves a task of this cost to a stage. Leaving `Done` forgets the count.
    pub(super) fn enter(&mut self, task: TaskIx, cost: u64, stage: Stage) {
        let from = std::mem::replace(&mut self.stages[task as usize], stage);
        if from == Stage::Done {
            let done = &mut self.done[task as usize];
            done.first.count = 0;
            self.levels[done.confirmed as usize] -= 1;
        }
        self.numbers[from as usize] -= 1;
        self.costs[from as usize] = self.costs[from as usize].saturating_sub(cost);
        self.numbers[stage as usize] += 1;
        self.costs[stage as usize] = self.costs[stage as usize].saturating_add(cost);
    }

    /// Makes `done` the standing count of a task of this cost.
    pub(super) fn accept(&mut self, task: TaskIx, cost: u64, done: Done) {
        self.enter(task, cost, Stage::Done);
        self.done[task as usize] = done;
        self.levels[done.confirmed as usize] += 1;
    }

    /// Returns the number of standing counts with this level of confirmation.
    pub(super) fn number_confirmed(&self, level: Confirmation) -> u64 {
        self.levels[level as usize]
    }

    /// Returns the standing count of a task.
    pub(super) fn done(&self, task: TaskIx) -> Option<Done> {
        (self.stage(task) == Stage::Done).then(|| self.done[task as usize])
    }

    /// Returns the count of every task; 0 unless it is done.
    pub(super) fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.done.iter().map(|done| done.first.count)
    }

    /// Returns the highest epoch that may have been issued for a task; 0 if none.
    pub(super) fn epoch(&self, task: TaskIx) -> u64 {
        self.epochs[task as usize]
    }

    /// Skips all epochs up to this one: a crash may have lost their leases.
    pub(super) fn raise_epochs(&mut self, epoch: u64) {
        for highest in &mut self.epochs {
            *highest = epoch.max(*highest);
        }
    }

    pub(super) fn raise_epoch(&mut self, task: TaskIx, epoch: u64) {
        let highest = &mut self.epochs[task as usize];
        *highest = epoch.max(*highest);
    }
}

#[cfg(test)]
mod tests {
    use common::{board::Board, method::Layout, plan::PlanSpec};

    use super::*;

    #[test]
    fn levels_follow_the_standing_counts() {
        let spec = PlanSpec::new(Board::new(8).unwrap(), Layout::FirstRows);
        let mut table = TaskTable::new(&Plan::new(spec).unwrap());
        assert_eq!(size_of::<Done>() + size_of::<u64>() + size_of::<Stage>(), 41);
        let first = WorkerCount { count: 1, kernel: KernelName::Avx2, ..WorkerCount::default() };
        let second = Some((3, KernelName::Avx2, Orientation::Upright));
        let done = |confirmed| Done { first, second, confirmed, accepted_s: 0 };
        let levels = |table: &TaskTable| Confirmation::ALL.map(|of| table.number_confirmed(of));
        table.accept(0, 1, done(Confirmation::None));
        assert_eq!(levels(&table), [1, 0, 0, 0, 0]);
        table.accept(0, 1, done(Confirmation::Referee));
        assert_eq!(levels(&table), [0, 0, 0, 0, 1], "the same task");
        assert_eq!(table.done(0), Some(done(Confirmation::Referee)));
        table.enter(0, 1, Stage::Disputed);
        assert_eq!((levels(&table), table.done(0)), ([0; 5], None));
        assert_eq!(table.counts().sum::<u64>(), 0);
    }

    #[test]
    fn times_are_stored_in_whole_seconds() {
        let stored = [0, 999, 1_000, 86_400_000, u64::MAX].map(|ms| seconds(Millis(ms)));
        assert_eq!(stored, [0, 0, 1, 86_400, u32::MAX]);
    }
}
