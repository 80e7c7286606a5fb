//! Transitions of tasks from stage to stage.

use super::{
    super::{
        TaskIx, WorkerIx,
        clock::{Clock, Ticks},
    },
    Run,
};
use crate::ledger::{
    Confirmation, Done, EntryKind, Fold, Recheck, Stage, TaskCount, TaskState,
    tasks::{self, UNKNOWN_S, id, seconds},
};

/// Denominator of the share of a run's cost that rechecks of first counts may add.
/// Guaranteed rechecks are made even beyond that.
const FIRST_COUNTS_PART: u64 = 100;

/// Maximum size of a run that ranks all its tasks.
/// Larger ones rank only the lowest eighth: no referee reaches more.
const MAX_FULLY_RANKED: u64 = 100_000;

impl Run {
    /// Restores what follows from the stored counts.
    pub(crate) fn restore_counts(&mut self, fold: &Fold) {
        self.counted_ms = fold.elapsed.ms();
        self.conflicts = fold.disagreements;
        self.replaced.clone_from(&fold.replaced);
        self.life.is_announced &= self.tasks.disputed().is_empty();
        for task in self.all_tasks() {
            if let Some(done) = self.tasks.done(task) {
                self.index(task, &done);
            }
        }
    }

    /// Restores the failed attempts of a task without a count.
    pub(crate) fn restore_failed(&mut self, task: TaskIx, failed: Vec<WorkerIx>) {
        if !failed.is_empty() {
            self.failed.insert(task, failed);
        }
    }

    /// Applies a journaled count by the ledger's rules; `level` compares two counts.
    ///
    /// # Panics
    /// If the count cannot follow: the scheduler decides by the same rules.
    pub(crate) fn apply(
        &mut self,
        task: TaskIx,
        kind: EntryKind,
        count: TaskCount,
        level: impl Fn(WorkerIx, WorkerIx) -> Confirmation,
        clock: &Clock,
    ) {
        let now = clock.ticks();
        let before = self.tasks.state(task);
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
        if before == TaskState::Open && after != TaskState::Open {
            self.parking.counted(task, now);
            self.rate.add(count.count, self.cost(task), now);
        }
        if kind == EntryKind::Voided && after.standing() != before.standing() {
            self.recount_order.remove(&(self.rank(task), task));
            self.replaced.insert(task);
        }
        // It is not known when the count that now stands was accepted.
        let is_known = kind != EntryKind::Voided;
        let accepted_s = if is_known { seconds(clock.steady(now).0) } else { UNKNOWN_S };
        self.set_state(task, after, accepted_s);
    }

    /// Gives a task the state that its counts decide, and updates all sets.
    fn set_state(&mut self, task: TaskIx, state: TaskState, accepted_s: u32) {
        match state {
            TaskState::Open => {
                self.failed.remove(&task);
                self.life.is_announced = false;
                self.enter(task, Stage::Pending);
            }
            TaskState::Disputed { .. } => {
                if self.tasks.stage(task) != Stage::Disputed {
                    self.life.is_announced = false;
                    self.enter(task, Stage::Disputed);
                }
                self.tasks.set(task, self.cost(task), state, accepted_s);
            }
            TaskState::Done { first, .. } => {
                let before = self.tasks.done(task).map(|before| before.first.author);
                if before.is_some_and(|author| author != first.author) {
                    self.enter(task, Stage::Pending);
                }
                if before != Some(first.author) {
                    self.leave(task);
                }
                self.tasks.set(task, self.cost(task), state, accepted_s);
                match before == Some(first.author) {
                    true => self.strengthened(task),
                    false => self.accepted(task),
                }
            }
        }
    }

    /// Replaces the confirmation of a standing count without delaying the run's end.
    pub(crate) fn confirm(&mut self, task: TaskIx, done: Done) {
        self.tasks.accept(task, self.cost(task), done);
        self.strengthened(task);
    }

    /// Updates the sets after a change of a standing count's confirmation.
    fn strengthened(&mut self, task: TaskIx) {
        if self.is_recounted(task) {
            self.remove_recheck(task);
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
            Stage::Done => {
                self.remove_recheck(task);
                self.recount_order.remove(&(self.rank(task), task));
            }
            Stage::Leased | Stage::Disputed => {}
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

    /// Updates the sets after a count that did not stand before.
    fn accepted(&mut self, task: TaskIx) {
        let Some(done) = self.tasks.done(task) else { return };
        if self.is_sampled[task as usize] {
            self.sample.add(id(task), done.first.count, self.cost(task));
        }
        self.failed.remove(&task);
        self.overdue_at.remove(&task);
        self.index(task, &done);
        self.extend_sample();
    }

    /// Adds a done task to the sets of recounts and of first counts.
    fn index(&mut self, task: TaskIx, done: &Done) {
        let rank = self.rank(task);
        let is_low = self.tasks.size() <= MAX_FULLY_RANKED || rank < u64::MAX / 8;
        if is_low && done.confirmed < Confirmation::Referee {
            self.recount_order.insert((rank, task));
        }
        let first = self.first_counts.entry(done.first.author).or_insert(task);
        if self.tasks.done(*first).is_none_or(|other| other.first.author != done.first.author) {
            *first = task;
        }
    }

    /// Extends the sample in the plan's order up to the first pending or leased task.
    /// Of later tasks only short ones are done. Parked, disputed and orphaned tasks are skipped and added
    /// once they are done: waiting for them might take as long as the run.
    pub(crate) fn extend_sample(&mut self) {
        while self.sampled_to < self.tasks.size() {
            let task = tasks::index(self.plan.task_at(self.sampled_to));
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
            done.is_some_and(|done| self.rechecks.insert((done.first.author, task), now).is_none());
        // The run has to be announced again after the recheck.
        self.life.is_announced &= !is_new;
        is_new
    }

    pub(crate) fn remove_recheck(&mut self, task: TaskIx) {
        if let Some(done) = self.tasks.done(task) {
            self.rechecks.remove(&(done.first.author, task));
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
