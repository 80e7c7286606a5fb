//! Restoration of the state from disk, before any worker is served.

use std::sync::Arc;

use common::{
    messages::{run::WorkerId, sync::WorkerInfo},
    plan::Plan,
};

use super::Scheduler;
use crate::{
    clock::Millis,
    fleet::{LeaseIx, RunIx},
    ledger::{
        Caller, Confirmation, OpenState, OpenTask, Principal, RunState, StoredRun, StoredTasks,
        tasks,
    },
};

/// Number of epochs per term. Each term issues higher epochs than all before it.
/// A crash may lose the last leases, which their workers still hold: no epoch may name two leases.
const EPOCHS_PER_TERM: u64 = 1 << 32;

/// Maximum number of epochs skipped at random: a restored backup repeats a term.
const MAX_SKIPPED_EPOCHS: u64 = 1 << 22;

/// Age of expired leases after which a restart no longer waits for their worker.
const ABANDONED_AFTER_MS: u64 = 24 * 60 * 60 * 1_000;

impl Scheduler {
    /// Sets the trusted tokens before anything is restored: recounts with them remain recounts.
    pub fn restore_trusted_tokens(&mut self, tokens: impl IntoIterator<Item = Arc<str>>) {
        let tokens = tokens.into_iter().chain([Caller::LOCAL.into()]);
        self.workers.trusted_tokens = tokens.map(Some).collect();
    }

    /// Adds a run found on disk, with its tasks.
    ///
    /// # Panics
    /// As [`Self::add_run`].
    pub fn restore_run(&mut self, run: StoredRun, plan: Plan, stored: StoredTasks) {
        let StoredTasks { mut fold, open } = stored;
        let pinned = |(id, principal): &(WorkerId, Principal)| {
            let worker = self.workers.pinned(*id);
            self.workers.identify(worker, principal);
            worker
        };
        let numbers: Vec<_> = fold.authors().iter().map(pinned).collect();
        let mut tasks = fold.take_tasks();
        tasks.renumber(|author| numbers[author as usize]);
        self.insert_run(run, plan, tasks);
        let run = self.runs.len() - 1;
        self.runs[run].restore_counts(&fold);
        self.restore_reputations(run);
        for (task, open) in open {
            self.restore_open((run, tasks::index(task)), &open);
        }
        self.runs[run].extend_sample();
    }

    /// Restores the reputations of a run's authors, and the rechecks that are due.
    fn restore_reputations(&mut self, run: RunIx) {
        for task in self.runs[run].all_tasks() {
            if let Some(of) = self.runs[run].disputed_counts(task).first() {
                self.workers.reputation_mut(of.author).has_counted = true;
            }
            let Some(done) = self.runs[run].tasks().done(task) else { continue };
            let (first, second) = (done.first.author, done.second.map(|(author, ..)| author));
            self.workers.reputation_mut(first).has_counted = true;
            for author in [first].into_iter().chain(second) {
                self.workers.reputation_mut(author).confirm(done.confirmed);
            }
            let is_suspect = self.snapshot().is_suspect(run, task);
            let in_run = &mut self.runs[run];
            let is_due = is_suspect
                || in_run.recounts.is_replaced(task)
                || (in_run.is_selected(task) && done.confirmed == Confirmation::None);
            if in_run.is_live() && !done.confirmed.elsewhere() && is_due {
                in_run.add_recheck(task, 0);
            }
        }
    }

    /// Restores the lease and the failed attempts of a task without a count.
    fn restore_open(&mut self, key: LeaseIx, open: &OpenTask) {
        let (run, task) = key;
        for worker in &open.failed {
            let worker = self.workers.pinned(*worker);
            self.runs[run].note_failed(task, worker);
        }
        let in_run = &mut self.runs[run];
        match open.state {
            OpenState::Pending => {}
            OpenState::Parked => in_run.park(task, self.clock.ticks()),
            OpenState::Leased { worker, epoch, until_unix_ms } => {
                let is_live = in_run.is_live();
                // Only the worker's leases on disk are known.
                let info = WorkerInfo { threads: 1, ..WorkerInfo::default() };
                let worker = self.workers.remember(worker, &info, self.config.workers);
                if let Some(worker) = worker.filter(|_| is_live) {
                    self.restore_lease(key, worker, epoch.0);
                    let until = &mut self.workers.get_mut(worker).leased_until_ms;
                    *until = until_unix_ms.max(*until);
                }
            }
        }
    }

    /// Queues the rechecks that a machine's first counts get in any case.
    fn restore_initial_rechecks(&mut self, run: RunIx) {
        for task in
            self.runs[run].all_tasks().filter(|_| self.runs[run].is_live()).collect::<Vec<_>>()
        {
            let done = self.runs[run].tasks().done(task);
            let Some(first) = done.filter(|done| done.confirmed == Confirmation::None) else {
                continue;
            };
            let first = first.first.author;
            let is_due = self.workers[first].reputation.is_guaranteed_recheck();
            if is_due && self.charge_initial_recheck((run, task), first) {
                self.runs[run].add_recheck(task, 0);
            }
        }
    }

    /// Makes a task's next epoch higher than that of a lease that a worker returns.
    /// An unknown epoch was issued after the backup that was restored. Other leases may have had the epochs after it, so
    /// these are skipped at random.
    pub(super) fn note_epoch(&mut self, (run, task): LeaseIx, epoch: u64) {
        if epoch > self.runs[run].epoch(task) {
            let skipped = self.jitter.below(MAX_SKIPPED_EPOCHS);
            self.runs[run].raise_epoch(task, epoch.saturating_add(skipped));
        }
    }

    /// Ends the restoration; from then on workers are served, in a term of the store.
    /// Leases found on disk last for the grace period. Those of workers not seen for a day end immediately;
    /// otherwise frequent restarts would make the coordinator wait forever. Their counts are still accepted.
    pub fn restored(&mut self, now: Millis, term: u64) {
        let ticks = self.clock.read(now);
        let holders = self.workers.iter().filter(|(_, worker)| !worker.leases.is_empty());
        let ends: Vec<_> = holders.map(|(number, known)| (number, known.leased_until_ms)).collect();
        for (worker, until_unix_ms) in ends {
            if until_unix_ms > now.0.saturating_add(self.snapshot().lease_ms()) {
                self.restore_package(worker, until_unix_ms);
                continue;
            }
            let is_abandoned = now.0.saturating_sub(until_unix_ms) > ABANDONED_AFTER_MS;
            let grace_ms = if is_abandoned { 0 } else { self.config.lease_ms };
            self.workers.expect_by(worker, ticks + grace_ms);
        }
        let skipped = self.jitter.below(MAX_SKIPPED_EPOCHS);
        let epoch = term.saturating_mul(EPOCHS_PER_TERM).saturating_add(skipped);
        for run in 0..self.runs.len() {
            self.restore_initial_rechecks(run);
            self.runs[run].raise_epochs(epoch);
            // A crash may have lost the change of state after a count that reopens the run.
            let undone = !self.snapshot().counts_match_state(run);
            self.reopen_if_finished(run, undone);
            // The rechecks of a complete run are not stored. Without a referee they would reopen it at each start.
            if self.runs[run].state() == RunState::Complete && self.snapshot().can_count_itself(run)
            {
                self.recheck_suspect(run);
            }
            self.announce_if_done(run);
        }
        for worker in self.workers.barred.clone() {
            self.workers.weigh_token(worker);
        }
        self.recheck_distrusted();
        self.void_barred_counts();
    }
}
