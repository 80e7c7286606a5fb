//! Selection of a recheck for a worker.

use std::{
    cell::LazyCell,
    collections::{BTreeSet, btree_map::Range},
};

use common::text::plural;

use super::{
    Scheduler,
    grants::{Choice, MAX_SCANNED},
};
use crate::{
    clock::Ticks,
    fleet::{OWN_REFEREE, RunIx, WorkerIx},
    ledger::{Confirmation, Recheck, tasks::TaskIx},
    run::{Purpose, RecheckQueue},
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

impl Scheduler {
    /// Chooses a recheck of another machine's count, in the other orientation.
    /// It waits for another token if one is active, and for another kernel if one is fast enough.
    pub(super) fn choose_recheck(&self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
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
    pub(super) fn choose_own_recheck(&self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
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

    /// Returns what the last rechecks of a run wait for; empty if a worker makes one at its next call.
    /// Returns `None` if some are being made, if tasks are not done, or if no worker may make any.
    pub(super) fn recheck_reason(&self, run_ix: RunIx) -> Option<String> {
        let run = &self.runs[run_ix];
        let awaited = run.awaited_rechecks();
        let mut held = run.held().flat_map(|task| run.leases_of(task));
        if !run.is_counted() || awaited == 0 || held.any(|(_, lease)| lease.started.is_some()) {
            return None;
        }
        let may_make = |worker: &WorkerIx| {
            let known = self.workers.get(*worker);
            let choice = || {
                let of_others = self.choose_recheck(run_ix, *worker);
                of_others.or_else(|| self.choose_own_recheck(run_ix, *worker))
            };
            known.paused.is_empty() && (known.runs().any(|of| of == run_ix) || choice().is_some())
        };
        let makers: Vec<_> =
            self.active_workers(run_ix).take(MAX_SCANNED).filter(may_make).collect();
        let is_idle = |worker: &WorkerIx| self.workers.get(*worker).runs().all(|of| of == run_ix);
        match makers.len() {
            0 => None,
            _ if makers.iter().any(is_idle) => Some(String::new()),
            number => Some(format!(
                "every task is done; awaiting {}, behind tasks of other runs on {}",
                plural(awaited as u64, "recheck"),
                plural(number as u64, "worker")
            )),
        }
    }

    /// Returns the recheck of a done task, in the other orientation.
    pub(super) fn recheck_of(&self, run: RunIx, task: TaskIx) -> Choice {
        let done = self.runs[run].tasks().done(task).expect("rechecked tasks are done");
        let orientation = done.first.orientation.rotated();
        Choice { task, purpose: Purpose::Recheck, orientation }
    }

    /// Returns a run's active workers: connected, eligible, not draining or barred.
    pub(super) fn active_workers(&self, run: RunIx) -> impl Iterator<Item = WorkerIx> + '_ {
        let now = self.clock.ticks();
        self.workers.connected().filter(move |&worker| {
            let is_excluded = self.workers.get(worker).draining || self.workers.is_barred(worker);
            !is_excluded && self.is_eligible(run, worker, now)
        })
    }

    /// Returns whether an active worker with a different token than this one delivers counts.
    /// Nobody waits for idle strangers.
    pub(super) fn has_other_token(&self, run: RunIx, worker: WorkerIx) -> bool {
        let token = self.workers.token(worker);
        let mut others = self.active_workers(run);
        others.any(|other| self.workers.token(other) != token && self.delivers(run, other))
    }

    /// Returns whether a worker holds a fresh lease of a run, or has delivered a count recently.
    fn delivers(&self, run: RunIx, worker: WorkerIx) -> bool {
        let known = self.workers.get(worker);
        let tasks = self.runs[run].tasks();
        let patience_ms = || self.fresh_ms(worker, tasks.total_cost() / tasks.size());
        known.tasks_done > 0 && self.clock.ticks() < known.busy_since + patience_ms()
            || self
                .leases_of(worker)
                .any(|((of, _), lease)| of == run && self.is_fresh(worker, lease))
    }

    pub(super) fn active_tokens(&self, run: RunIx) -> BTreeSet<Option<&str>> {
        self.active_workers(run).map(|worker| self.workers.token(worker)).collect()
    }

    /// Returns whether a recheck should wait for a kernel other than the first count's.
    /// It should if the worker has the same kernel, and a machine with another kernel is about as fast.
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
    pub(super) fn is_well_confirmed(&self, (run, task): (RunIx, TaskIx)) -> bool {
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
