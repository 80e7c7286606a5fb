//! Selection of a recheck for a worker.

use std::{cell::LazyCell, collections::btree_map::Range};

use super::{Choice, MAX_SCANNED};
use crate::{
    clock::Ticks,
    fleet::{OWN_REFEREE, RunIx, WorkerIx},
    ledger::{Confirmation, Recheck, tasks::TaskIx},
    run::{Purpose, RecheckQueue},
    snapshot::Snapshot,
};

/// Time for which a recheck waits for a worker with another token or kernel.
pub(super) const RECHECK_WAIT_MS: Ticks = 60_000;

/// Maximum number of waiting tasks that are considered for one worker.
const MAX_SCANNED_RECHECKS: usize = 4_096;

/// Maximum slowdown of a thread with another kernel for which a recheck waits.
const KERNEL_SLOWDOWN: f64 = 1.5;

/// Returns the tasks of each author.
fn by_author(
    queue: &RecheckQueue,
) -> impl Iterator<Item = (WorkerIx, Range<'_, (WorkerIx, TaskIx), Ticks>)> {
    let mut next = queue.first_key_value();
    std::iter::from_fn(move || {
        let (&(author, _), _) = next?;
        next = queue.range((author + 1, 0)..).next();
        Some((author, queue.range((author, 0)..=(author, TaskIx::MAX))))
    })
}

impl<'a> Snapshot<'a> {
    /// Chooses a recheck of another machine's count, in the other orientation.
    /// It waits for another token if one is active, and for another kernel if one is fast enough.
    pub(crate) fn choose_recheck(self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        let now = self.clock.ticks();
        let in_run = &self.runs[run];
        if in_run.rechecks().is_empty() || self.gets_only_fresh_tasks(run, worker) {
            return None;
        }
        let mine = self.workers.token(worker);
        let has_other_token = LazyCell::new(|| self.has_other_token(run, worker));
        let has_waited = in_run.has_waited_for_tokens(now);
        let waits_for_token =
            |first| !has_waited && mine == self.workers.token(first) && *has_other_token;
        let all = in_run.recheck() == Recheck::All;
        let suits = |first| {
            let is_same_token = mine == self.workers.token(first);
            !(self.workers.same_machine(first, worker)
                || all && waits_for_token(first)
                || is_same_token && self.is_on_probation(first))
        };
        let mut tasks = by_author(in_run.rechecks())
            .filter(|&(first, _)| suits(first))
            .flat_map(|(_, tasks)| tasks.take(MAX_SCANNED))
            .take(MAX_SCANNED_RECHECKS);
        let (&(_, task), _) = tasks.find(|&(&(first, task), &since)| {
            now >= since + RECHECK_WAIT_MS
                || !(waits_for_token(first)
                    || self.another_kernel_is_available((run, task), first, worker))
        })?;
        Some(self.recheck_of(run, task))
    }

    /// Chooses a recheck of a count of the worker's own machine if no other is active.
    /// Such a recheck finds transient errors, not permanent ones: suspect counts are left to a referee.
    pub(crate) fn choose_own_recheck(self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        let is_alone = |first| self.on_other_machine(run, first).next().is_none();
        let has_referee =
            self.counts_itself(run) && !self.workers.same_machine(worker, OWN_REFEREE);
        let (&(_, task), _) = by_author(self.runs[run].rechecks())
            .filter(|&(first, _)| self.workers.same_machine(first, worker) && is_alone(first))
            .filter(|&(first, _)| !self.is_on_probation(first))
            .flat_map(|(_, tasks)| tasks.take(MAX_SCANNED_RECHECKS))
            .find(|&(&(_, task), _)| !(has_referee && self.is_suspect(run, task)))?;
        Some(self.recheck_of(run, task))
    }

    /// Returns the recheck of a done task, in the other orientation.
    pub(crate) fn recheck_of(self, run: RunIx, task: TaskIx) -> Choice {
        let done = self.runs[run].tasks().done(task).expect("rechecked tasks are done");
        let orientation = done.first.orientation.rotated();
        Choice { task, purpose: Purpose::Recheck, orientation }
    }

    /// Returns whether a recheck should wait for a kernel other than the first count's.
    /// It should if the worker has the same kernel, and a machine with another kernel is about as fast.
    fn another_kernel_is_available(
        self,
        (run, task): (RunIx, TaskIx),
        first: WorkerIx,
        worker: WorkerIx,
    ) -> bool {
        let first_count = self.runs[run].tasks().done(task);
        let mine = &self.workers.get(worker).info;
        if first_count.is_none_or(|done| done.first.kernel != mine.kernel) {
            return false;
        }
        let speed = |worker: WorkerIx| {
            let known = self.workers.get(worker);
            Some(known.speed.per_second()? / f64::from(known.info.threads.max(1)))
        };
        let Some(my_speed) = speed(worker) else {
            return false;
        };
        self.on_other_machine(run, first).take(MAX_SCANNED).any(|other| {
            self.workers.get(other).info.kernel != mine.kernel
                && speed(other).is_some_and(|speed| speed * KERNEL_SLOWDOWN >= my_speed)
        })
    }

    /// Returns whether a count is confirmed well enough, given the available workers.
    /// With [`Recheck::All`] and another token active, that token or the referee has to confirm it, unless
    /// the run has waited for it. They always have to confirm counts of a machine on probation.
    pub(crate) fn is_well_confirmed(self, (run, task): (RunIx, TaskIx)) -> bool {
        let in_run = &self.runs[run];
        let waits =
            in_run.recheck() == Recheck::All && !in_run.has_waited_for_tokens(self.clock.ticks());
        in_run.tasks().done(task).is_some_and(|done| {
            let first = done.first.author;
            let wants_token =
                || self.is_on_probation(first) || waits && self.has_other_token(run, first);
            done.confirmed.elsewhere()
                && (done.confirmed >= Confirmation::OtherToken || !wants_token())
        })
    }
}
