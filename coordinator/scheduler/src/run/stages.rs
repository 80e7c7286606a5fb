//! Transitions of tasks from stage to stage.

use std::collections::btree_map::Entry;

use super::Run;
use crate::{
    clock::{SchedulerClock, Ticks},
    fleet::WorkerIx,
    ledger::{
        Confirmation, Done, EntryKind, Fold, Recheck, Stage, TaskCount, TaskState,
        tasks::{TaskIx, accepted_s},
    },
};

/// Denominator of the share of a run's cost that rechecks of first counts may add.
/// Guaranteed rechecks are made even beyond that.
const FIRST_COUNTS_PART: u64 = 100;

impl Run {
    /// Restores the sets and sums that follow from the stored counts.
    pub(crate) fn restore_counts(&mut self, fold: &Fold) {
        self.time.counted_ms = fold.elapsed.ms();
        self.conflicts = fold.disagreements;
        self.life.is_announced &= self.tasks.disputed().is_empty();
        self.recounts.restore_replaced(&fold.replaced);
        self.all_tasks().for_each(|task| self.recounts.add(&self.tasks, task));
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
        clock: &SchedulerClock,
    ) {
        let now = clock.ticks();
        let before = self.tasks.state(task);
        let after = before.after(kind, count, level).expect("decided by the same rules");
        match kind {
            EntryKind::Confirmed => {
                self.agreed += 1;
                self.time.rate.add(0, self.cost(task), now);
            }
            EntryKind::Disputed | EntryKind::Recounted => {
                self.conflicts += u64::from(before.standing().is_some());
            }
            EntryKind::Accepted | EntryKind::Settled | EntryKind::Voided => {}
        }
        if before == TaskState::Open && after != TaskState::Open {
            self.parking.counted(task, now);
            self.time.rate.add(count.count, self.cost(task), now);
        }
        if kind == EntryKind::Voided && after.standing() != before.standing() {
            self.recounts.replace(task);
        }
        let accepted_s = accepted_s(kind, clock.steady(now).0);
        self.set_state(task, after, accepted_s);
    }

    /// Gives a task the state that its counts decide, and updates all sets.
    fn set_state(&mut self, task: TaskIx, state: TaskState, accepted_s: u32) {
        match state {
            TaskState::Open => {
                self.parking.forget_failed(task);
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
        if self.tasks.is_recounted(task) {
            self.remove_recheck(task);
            self.recounts.remove(task);
        }
    }

    /// Moves a task to a stage other than `Done`.
    pub(crate) fn enter(&mut self, task: TaskIx, stage: Stage) {
        self.sample.remove(&self.plan, &self.tasks, task);
        self.leave(task);
        self.life.done_since = None;
        self.tasks.enter(task, self.cost(task), stage);
        match stage {
            Stage::Pending => {
                self.pending.give_back(task, !self.parking.failed(task).is_empty());
            }
            Stage::Parked | Stage::Leased | Stage::Done | Stage::Disputed => {}
        }
    }

    fn leave(&mut self, task: TaskIx) {
        match self.tasks.stage(task) {
            Stage::Pending => self.pending.leave(task),
            Stage::Parked => self.parking.leave(task),
            Stage::Done => {
                self.remove_recheck(task);
                self.recounts.remove(task);
            }
            Stage::Leased | Stage::Disputed => {}
        }
    }

    /// Updates the sets after a count that did not stand before.
    fn accepted(&mut self, task: TaskIx) {
        self.sample.add(&self.plan, &self.tasks, task);
        self.parking.forget_failed(task);
        self.leases.forget_overdue(task);
        self.recounts.add(&self.tasks, task);
        self.extend_sample();
    }

    pub(crate) fn extend_sample(&mut self) {
        self.sample.extend(&self.plan, &self.tasks, &self.pending);
    }

    pub(crate) fn park(&mut self, task: TaskIx, now: Ticks) {
        self.enter(task, Stage::Parked);
        self.parking.park(task, now);
        // A restart forgets when the task was first leased, and its workers may not get it again.
        self.leases.note_overdue(task, now);
    }

    pub(crate) fn note_failed(&mut self, task: TaskIx, worker: WorkerIx) {
        self.parking.note_failed(task, worker);
    }

    /// Makes a leased task without holders pending; `orphaned` if its worker vanished.
    pub(crate) fn return_task(&mut self, task: TaskIx, orphaned: bool) {
        self.enter(task, Stage::Pending);
        if orphaned {
            self.pending.orphan(task);
        }
    }

    /// Starts the next trial if its time has come; returns the task, to be unparked.
    pub(crate) fn next_trial(&mut self, now: Ticks) -> Option<TaskIx> {
        self.parking.next_trial(now)
    }

    /// Forgets the failures of all parked tasks; returns the tasks, to be unparked.
    pub(crate) fn free_parked(&mut self) -> Vec<TaskIx> {
        let trial =
            self.parking.on_trial().filter(|&task| self.tasks.stage(task) == Stage::Pending);
        let parked = self.parking.free_all();
        if let Some(task) = trial {
            // Its failures are forgotten.
            self.enter(task, Stage::Pending);
        }
        parked
    }

    /// Returns whether a task is selected at random for a recheck.
    pub(crate) fn is_selected(&self, task: TaskIx) -> bool {
        self.recounts.selects(task, self.life.settings.recheck)
    }

    /// Queues a recheck of a done task that no worker holds; returns whether it is new. One that waits keeps its age,
    /// at which the referee makes it.
    pub(crate) fn add_recheck(&mut self, task: TaskIx, now: Ticks) -> bool {
        self.life.done_since = None;
        let done = self.tasks.done(task).filter(|_| !self.is_held(task));
        let is_new = done.is_some_and(|done| {
            let entry = self.rechecks.queue.entry((done.first.author, task));
            let is_new = matches!(entry, Entry::Vacant(_));
            entry.or_insert(now);
            is_new
        });
        // The run has to be announced again after the recheck.
        self.life.is_announced &= !is_new;
        is_new
    }

    pub(crate) fn remove_recheck(&mut self, task: TaskIx) {
        if let Some(done) = self.tasks.done(task) {
            self.rechecks.queue.remove(&(done.first.author, task));
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
        let cost = self.rechecks.first_cost.saturating_add(self.cost(task));
        let is_charged =
            self.life.settings.recheck == Recheck::Auto && (guaranteed || cost <= limit);
        if is_charged {
            self.rechecks.first_cost = cost;
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
