//! The random sample of done tasks from which the total is estimated.

use common::{
    estimate::sample::{Estimate, RunEstimate},
    plan::Plan,
};

use super::Pending;
use crate::ledger::{
    Stage, Tasks,
    tasks::{TaskIx, id, index},
};

/// The first tasks in the plan's order, which is random.
#[derive(Debug)]
pub(crate) struct RunSample {
    sums: RunEstimate,
    /// Position in the plan's order up to which `includes` is set.
    next: u64,
    includes: Vec<bool>,
}

impl RunSample {
    pub(super) fn new(tasks: &Tasks) -> Self {
        let size = usize::try_from(tasks.size()).expect("at most MAX_TASKS");
        let sums = RunEstimate::of(tasks.size(), tasks.total_cost());
        Self { sums, next: 0, includes: vec![false; size] }
    }

    pub(crate) fn estimate(&self) -> Option<Estimate> {
        self.sums.estimate()
    }

    /// Adds the count of a done task if the sample includes the task.
    pub(super) fn add(&mut self, plan: &Plan, tasks: &Tasks, task: TaskIx) {
        if let Some(done) = tasks.done(task).filter(|_| self.includes[task as usize]) {
            self.sums.add(id(task), done.first.count, plan.task_cost(id(task)));
        }
    }

    /// Removes the count of a task that is still done if the sample includes the task.
    pub(super) fn remove(&mut self, plan: &Plan, tasks: &Tasks, task: TaskIx) {
        if let Some(done) = tasks.done(task).filter(|_| self.includes[task as usize]) {
            self.sums.remove(id(task), done.first.count, plan.task_cost(id(task)));
        }
    }

    /// Extends the sample in the plan's order up to the first pending or leased task.
    /// Of later tasks only short ones are done. Parked, disputed and orphaned tasks are skipped and added
    /// once they are done: waiting for them might take as long as the run.
    pub(super) fn extend(&mut self, plan: &Plan, tasks: &Tasks, pending: &Pending) {
        while self.next < plan.tasks() {
            let task = index(plan.task_at(self.next));
            match tasks.stage(task) {
                Stage::Pending if !pending.is_orphaned(task) => break,
                Stage::Leased => break,
                Stage::Done | Stage::Pending | Stage::Parked | Stage::Disputed => {}
            }
            self.includes[task as usize] = true;
            self.add(plan, tasks, task);
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Done, TaskCount, test_records};

    #[test]
    fn the_sample_ends_before_the_first_task_that_may_still_come() {
        let plan = test_records::plan();
        let mut tasks = Tasks::new(&plan);
        let (mut sample, mut pending) = (RunSample::new(&tasks), Pending::default());
        let order: Vec<_> = pending.upcoming(&plan).collect();
        let done =
            Done { first: TaskCount { count: 1, ..TaskCount::default() }, ..Done::default() };
        let included =
            |sample: &RunSample| order.iter().filter(|&&at| sample.includes[at as usize]).count();
        // The third task is not done yet; the second is parked and added later.
        for (at, stage) in [(0, Stage::Done), (1, Stage::Parked), (3, Stage::Done)] {
            match stage {
                Stage::Done => tasks.accept(order[at], 1, done),
                _ => tasks.enter(order[at], 1, stage),
            }
        }
        sample.extend(&plan, &tasks, &pending);
        assert_eq!(included(&sample), 2);
        pending.give_back(order[2], false);
        pending.orphan(order[2]);
        sample.extend(&plan, &tasks, &pending);
        assert_eq!(included(&sample), 4, "nobody waits for an orphaned task");
    }
}
