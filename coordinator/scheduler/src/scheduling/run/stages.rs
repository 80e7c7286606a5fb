//! Transitions of tasks from stage to stage.

use super::{
    super::{
        Millis, TaskIx, WorkerIx,
        clock::{Clock, Ticks},
        task_table::{Done, Stage, UNKNOWN_S, WorkerCount, seconds},
    },
    Run, id, index,
};
use crate::ledger::{Confirmation, EntryKind, Recheck, TaskRow, TaskState};

/// Denominator of the share of a run's cost that rechecks of first counts may add.
/// Guaranteed rechecks are made even beyond that.
const FIRST_COUNTS_PART: u64 = 100;

/// Maximum size of a run that ranks all its tasks.
/// Larger ones rank only the lowest eighth: no referee reaches more.
const MAX_FULLY_RANKED: u64 = 100_000;

impl Run {
    /// Applies a journaled count by the ledger's rules; `level` compares two counts.
    ///
    /// # Panics
    /// If the count cannot follow: the scheduler decides by the same rules.
    pub(crate) fn apply(
        &mut self,
        task: TaskIx,
        kind: EntryKind,
        count: WorkerCount,
        level: impl Fn(&WorkerCount, &WorkerCount) -> Confirmation,
        clock: &Clock,
    ) {
        let now = clock.ticks();
        let before = self.task_state(task);
        let after = before.after(kind, count, level).expect("decided by the same rules");
        match kind {
            EntryKind::Confirmed => {
                self.agreed += 1;
                self.rate.add(0, self.cost(task), now);
            }
            EntryKind::Disputed | EntryKind::Recounted => {
                self.conflicts += u64::from(before.standing().is_some());
            }
            EntryKind::Accepted | EntryKind::Settled | EntryKind::Voided => {}
        }
        if before.is_open() && !after.is_open() {
            self.parking.counted(task, now);
            self.rate.add(count.count, self.cost(task), now);
        }
        if kind == EntryKind::Voided && after.standing() != before.standing() {
            self.recount_order.remove(&(self.rank(task), task));
            self.replaced.insert(task);
        }
        // It is not known when the count that now stands was accepted.
        let is_known = kind != EntryKind::Voided;
        let accepted_s = if is_known { seconds(clock.steady(now)) } else { UNKNOWN_S };
        self.set_state(task, after, accepted_s);
    }

    pub(crate) fn restore(
        &mut self,
        task: TaskIx,
        state: TaskState<WorkerCount>,
        accepted: Millis,
    ) {
        self.set_state(task, state, seconds(accepted));
    }

    fn set_state(&mut self, task: TaskIx, state: TaskState<WorkerCount>, accepted_s: u32) {
        match state {
            TaskState::Pending | TaskState::Leased { .. } | TaskState::Parked => {
                self.failed.remove(&task);
                self.life.is_announced = false;
                self.enter(task, Stage::Pending);
            }
            TaskState::Disputed { counts } => {
                if self.tasks.stage(task) != Stage::Disputed {
                    self.life.is_announced = false;
                    self.enter(task, Stage::Disputed);
                }
                self.disputed.insert(task, counts);
            }
            TaskState::Done { first, second, confirmed } => {
                let second = second.map(|of| (of.worker, of.kernel, of.orientation));
                let done = Done { first, second, confirmed, accepted_s };
                match self.tasks.done(task) {
                    Some(before) if before.first.worker == first.worker => {
                        self.confirm(task, Done { accepted_s: before.accepted_s, ..done });
                    }
                    Some(_) => {
                        self.enter(task, Stage::Pending);
                        self.accept(task, done);
                    }
                    None => self.accept(task, done),
                }
            }
        }
    }

    /// Updates the confirmation of a standing count without delaying the run's end.
    pub(crate) fn confirm(&mut self, task: TaskIx, done: Done) {
        self.tasks.accept(task, self.cost(task), done);
        if done.confirmed == Confirmation::Referee {
            self.rechecks.remove(&(done.first.worker, task));
            self.recount_order.remove(&(self.rank(task), task));
        }
    }

    /// Moves a task to a stage other than `Done`.
    pub(crate) fn enter(&mut self, task: TaskIx, stage: Stage) {
        if let Some(done) = self.tasks.done(task)
            && self.is_sampled[task as usize]
        {
            self.sample.remove(id(task), done.first.count, self.cost(task));
        }
        self.leave(task);
        self.done_since = None;
        self.tasks.enter(task, self.cost(task), stage);
        match stage {
            Stage::Pending => drop(self.returned.insert(task)),
            Stage::Parked | Stage::Leased | Stage::Done | Stage::Disputed => {}
        }
    }

    fn leave(&mut self, task: TaskIx) {
        match self.tasks.stage(task) {
            Stage::Pending => {
                self.returned.remove(&task);
                self.orphaned.remove(&task);
            }
            Stage::Parked => self.parking.leave(task),
            Stage::Disputed => drop(self.disputed.remove(&task)),
            Stage::Done => {
                self.remove_recheck(task);
                self.recount_order.remove(&(self.rank(task), task));
            }
            Stage::Leased => {}
        }
    }

    /// Returns a task's place among the random recounts.
    /// A count that replaces a void one is first: workers know that the task was not recounted.
    fn rank(&self, task: TaskIx) -> u64 {
        match self.replaced.contains(&task) {
            true => 0,
            false => self.sampler.rank(self.manifest.run, id(task)),
        }
    }

    fn accept(&mut self, task: TaskIx, done: Done) {
        self.leave(task);
        let cost = self.cost(task);
        self.tasks.accept(task, cost, done);
        if self.is_sampled[task as usize] {
            self.sample.add(id(task), done.first.count, cost);
        }
        self.failed.remove(&task);
        self.overdue_at.remove(&task);
        let rank = self.rank(task);
        let is_low = self.tasks.len() <= MAX_FULLY_RANKED || rank < u64::MAX / 8;
        if is_low && done.confirmed < Confirmation::Referee {
            self.recount_order.insert((rank, task));
        }
        let first = self.first_counts.entry(done.first.worker).or_insert(task);
        if self.tasks.done(*first).is_none_or(|other| other.first.worker != done.first.worker) {
            *first = task;
        }
        self.extend_sample();
    }

    /// Extends the sample in the plan's order up to the first pending or leased task.
    /// Of later tasks only short ones are done. Parked, disputed and orphaned tasks are skipped and added
    /// once they are done: waiting for them might take as long as the run.
    fn extend_sample(&mut self) {
        while self.sampled_to < self.tasks.len() {
            let task = index(self.plan.task_at(self.sampled_to));
            match self.tasks.stage(task) {
                Stage::Done => {
                    let count = self.tasks.done(task).map_or(0, |done| done.first.count);
                    self.sample.add(id(task), count, self.cost(task));
                }
                Stage::Pending if !self.orphaned.contains(&task) => break,
                Stage::Leased => break,
                Stage::Pending | Stage::Parked | Stage::Disputed => {}
            }
            self.is_sampled[task as usize] = true;
            self.sampled_to += 1;
        }
    }

    pub(crate) fn park(&mut self, task: TaskIx, now: Ticks) {
        self.enter(task, Stage::Parked);
        self.parking.park(task, now);
    }

    /// Restores a task's highest epoch, the workers of its failed attempts, its conflicts, and whether its
    /// count replaced a void one.
    pub(crate) fn restore_attempts(&mut self, task: TaskIx, row: &TaskRow, failed: Vec<WorkerIx>) {
        self.tasks.raise_epoch(task, row.epoch.0);
        self.conflicts += u64::from(row.conflicts);
        if row.replaced {
            self.replaced.insert(task);
        }
        if !failed.is_empty() {
            self.failed.insert(task, failed);
        }
    }

    pub(crate) fn note_failed(&mut self, task: TaskIx, worker: WorkerIx) {
        self.failed.entry(task).or_default().push(worker);
    }

    /// Makes a leased task without holders pending; `orphaned` if its worker vanished.
    pub(crate) fn return_task(&mut self, task: TaskIx, orphaned: bool) {
        self.enter(task, Stage::Pending);
        if orphaned {
            self.orphaned.insert(task);
        }
    }

    /// Starts the next trial if its time has come; returns the task, to be unparked.
    pub(crate) fn next_trial(&mut self, now: Ticks) -> Option<TaskIx> {
        self.parking.next_trial(now)
    }

    /// Forgets the failures of all parked tasks; returns the tasks, to be unparked.
    pub(crate) fn free_parked(&mut self) -> Vec<TaskIx> {
        let parked = self.parking.free_all();
        for task in &parked {
            self.failed.remove(task);
        }
        parked
    }

    /// Returns whether a task is selected at random for a recheck.
    pub(crate) fn is_selected(&self, task: TaskIx) -> bool {
        self.sampler.selects(self.manifest.run, id(task), self.life.settings.recheck)
    }

    /// Queues a recheck of a done task that no worker holds; returns whether it is new.
    pub(crate) fn add_recheck(&mut self, task: TaskIx, now: Ticks) -> bool {
        self.done_since = None;
        let done = self.tasks.done(task).filter(|_| !self.is_held(task));
        let is_new =
            done.is_some_and(|done| self.rechecks.insert((done.first.worker, task), now).is_none());
        // The run has to be announced again after the recheck.
        self.life.is_announced &= !is_new;
        is_new
    }

    pub(crate) fn remove_recheck(&mut self, task: TaskIx) {
        if let Some(done) = self.tasks.done(task) {
            self.rechecks.remove(&(done.first.worker, task));
        }
    }

    /// Queues rechecks of all matching done tasks; returns the new ones.
    pub(crate) fn add_rechecks(
        &mut self,
        now: Ticks,
        matches: impl Fn(&Self, TaskIx, &Done) -> bool,
    ) -> Vec<TaskIx> {
        let mut added = Vec::new();
        for task in self.all_tasks() {
            let is_meant = self.tasks.done(task).is_some_and(|done| matches(self, task, &done));
            if is_meant && self.add_recheck(task, now) {
                added.push(task);
            }
        }
        added
    }

    /// Charges the run for the recheck of a first count; returns whether it did.
    /// Only `auto` rechecks first counts, if the run can afford it or if it is `guaranteed`.
    pub(crate) fn charge_first_count(&mut self, task: TaskIx, guaranteed: bool) -> bool {
        let limit = self.tasks.total_cost() / FIRST_COUNTS_PART;
        let cost = self.first_rechecks_cost.saturating_add(self.cost(task));
        let is_charged =
            self.life.settings.recheck == Recheck::Auto && (guaranteed || cost <= limit);
        if is_charged {
            self.first_rechecks_cost = cost;
        }
        is_charged
    }

    pub(crate) fn set_recheck(&mut self, recheck: Recheck) {
        self.life.settings.recheck = recheck;
    }

    /// Notes rechecks that an operator asked for after the run's end.
    pub(crate) fn note_asked(&mut self, added: usize) {
        self.life.asked += added;
    }
}
