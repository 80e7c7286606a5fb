//! Rechecks: the done tasks that wait for one, and which worker makes it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    RunIx, Scheduler, TaskIx, WorkerIx,
    clock::Ticks,
    grants::{Choice, MAX_SCANNED},
    worker::Purpose,
};
use crate::ledger::{Confirmation, Recheck};

/// How long a recheck waits for a worker that proves more: one with another token or another kernel.
pub(super) const RECHECK_WAIT_MS: Ticks = 60_000;

/// Maximum number of waiting tasks that are considered for one worker.
const MAX_SCANNED_RECHECKS: usize = 4_096;

/// Maximum factor by which a thread with another kernel may be slower than the present worker.
const KERNEL_SLOWDOWN: f64 = 1.5;

/// Done tasks of a run whose recheck is due and that no worker counts, by the author of the first count, with
/// the time since when they wait.
#[derive(Debug, Default)]
pub(super) struct RecheckQueue(BTreeMap<WorkerIx, BTreeMap<TaskIx, Ticks>>);

impl RecheckQueue {
    /// Adds a task; returns whether it is new.
    pub(super) fn add(&mut self, task: TaskIx, author: WorkerIx, now: Ticks) -> bool {
        self.0.entry(author).or_default().insert(task, now).is_none()
    }

    pub(super) fn remove(&mut self, task: TaskIx, author: WorkerIx) {
        if let Some(tasks) = self.0.get_mut(&author) {
            tasks.remove(&task);
            if tasks.is_empty() {
                self.0.remove(&author);
            }
        }
    }

    /// Returns the tasks by the author of the first count.
    pub(super) fn by_author(&self) -> impl Iterator<Item = (WorkerIx, &BTreeMap<TaskIx, Ticks>)> {
        self.0.iter().map(|(&author, tasks)| (author, tasks))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Scheduler {
    /// Chooses a recheck of another machine's count, in the other orientation; with another token if
    /// available, and with another kernel if the fleet has one that is fast enough.
    pub(super) fn choose_recheck(&self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        let now = self.clock.ticks();
        let in_run = &self.runs[run];
        if in_run.rechecks().is_empty() {
            return None;
        }
        let mine = self.workers.token(worker);
        let has_other_token = self.has_other_token(run, worker);
        let waits_for_token = |first| has_other_token && mine == self.workers.token(first);
        let all = in_run.recheck() == Recheck::All;
        let suits =
            |first| !(self.workers.same_machine(first, worker) || all && waits_for_token(first));
        let waiting = in_run.rechecks().by_author().filter(|&(first, _)| suits(first));
        let mut tasks = waiting
            .flat_map(|(first, tasks)| {
                tasks.iter().take(MAX_SCANNED).map(move |task| (first, task))
            })
            .take(MAX_SCANNED_RECHECKS);
        let (_, (&task, _)) = tasks.find(|&(first, (&task, &since))| {
            now >= since + RECHECK_WAIT_MS
                || !(waits_for_token(first)
                    || self.another_kernel_is_available((run, task), first, worker))
        })?;
        Some(self.recheck_of(run, task))
    }

    /// Chooses a recheck of the worker's own counts, if no other machine is available. It finds transient
    /// errors, not permanent ones.
    pub(super) fn choose_own_recheck(&self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        let is_alone = |first| self.on_other_machine(run, first).next().is_none();
        let mut waiting = self.runs[run].rechecks().by_author();
        let (_, tasks) = waiting
            .find(|&(first, _)| self.workers.same_machine(first, worker) && is_alone(first))?;
        Some(self.recheck_of(run, *tasks.keys().next()?))
    }

    /// Returns the recheck of a done task, in the other orientation.
    pub(super) fn recheck_of(&self, run: RunIx, task: TaskIx) -> Choice {
        let done = self.runs[run].tasks().done(task).expect("rechecked tasks are done");
        let orientation = done.first.orientation.rotated();
        Choice { task, purpose: Purpose::Recheck, orientation }
    }

    /// Returns the connected workers that count tasks of a run: neither draining nor barred.
    pub(super) fn active_workers(&self, run: RunIx) -> impl Iterator<Item = WorkerIx> + '_ {
        let now = self.clock.ticks();
        self.workers.live_ones().filter(move |&worker| {
            let is_idle = self.workers.get(worker).draining || self.workers.is_barred(worker);
            !is_idle && self.is_eligible(run, worker, now)
        })
    }

    /// Returns whether an active worker has another token than this one.
    fn has_other_token(&self, run: RunIx, worker: WorkerIx) -> bool {
        let token = self.workers.token(worker);
        self.active_workers(run).any(|other| self.workers.token(other) != token)
    }

    /// Returns the tokens of the active workers.
    pub(super) fn active_tokens(&self, run: RunIx) -> BTreeSet<Option<&str>> {
        self.active_workers(run).map(|worker| self.workers.token(worker)).collect()
    }

    /// Returns whether the worker has the kernel of the first count, and another machine with another kernel
    /// is about as fast.
    fn another_kernel_is_available(
        &self,
        (run, task): (RunIx, TaskIx),
        first: WorkerIx,
        worker: WorkerIx,
    ) -> bool {
        let first_count = self.runs[run].tasks().done(task);
        let mine = &self.workers.get(worker).info;
        if first_count.is_none_or(|done| done.first.kernel != mine.kernel) {
            return false;
        }
        let speed = |worker: WorkerIx| self.workers.get(worker).speed.per_second();
        let Some(my_speed) = speed(worker) else {
            return false;
        };
        self.on_other_machine(run, first).take(MAX_SCANNED).any(|other| {
            self.workers.get(other).info.kernel != mine.kernel
                && speed(other).is_some_and(|speed| speed * KERNEL_SLOWDOWN >= my_speed)
        })
    }

    /// Returns whether a count is confirmed well enough, given the available workers: if all is rechecked,
    /// by another token or the referee.
    pub(super) fn is_enough(&self, (run, task): (RunIx, TaskIx)) -> bool {
        let in_run = &self.runs[run];
        in_run.tasks().done(task).is_some_and(|done| {
            let wants_token =
                in_run.recheck() == Recheck::All && done.confirmed < Confirmation::OtherToken;
            done.confirmed.elsewhere()
                && !(wants_token && self.has_other_token(run, done.first.worker))
        })
    }
}
