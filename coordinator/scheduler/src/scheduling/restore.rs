//! Restoration of the state from disk, before any worker is served.

use std::sync::Arc;

use common::{plan::TaskId, run::RunId, sync::WorkerInfo};

use super::{Millis, RunIx, Scheduler, run, task_table::WorkerCount};
use crate::ledger::{Caller, Confirmation, TaskCount, TaskRow, TaskState};

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

    /// Restores a task of a run that was added before.
    ///
    /// # Panics
    /// If there is no such run or task.
    pub fn restore_task(&mut self, run: RunId, task: TaskId, row: &TaskRow) {
        let run = self.by_id[&run];
        let task = run::index(task);
        let epoch = row.epoch.0;
        let failed = row.failed.iter().map(|worker| self.workers.pinned(*worker)).collect();
        let in_run = &mut self.runs[run];
        in_run.restore_attempts(task, row, failed);
        match &row.state {
            TaskState::Pending => {}
            &TaskState::Leased { worker, until_unix_ms } => {
                let is_live = in_run.is_live();
                // Only the worker's leases on disk are known.
                let info = WorkerInfo { id: worker, threads: 1, ..WorkerInfo::default() };
                let worker = self.workers.remember(&info, self.config.workers);
                if let Some(worker) = worker.filter(|_| is_live) {
                    self.restore_lease((run, task), worker, epoch);
                    let until = &mut self.workers.get_mut(worker).leased_until_ms;
                    *until = until_unix_ms.max(*until);
                }
            }
            TaskState::Done { first, second, confirmed } => {
                let confirmed = *confirmed;
                let count = self.workers.restore_count(first);
                self.workers.reputation_mut(count.worker).has_counted = true;
                let second =
                    second.as_deref().map(|second| Box::new(self.workers.restore_count(second)));
                for author in [Some(&count), second.as_deref()].into_iter().flatten() {
                    self.workers.reputation_mut(author.worker).confirm(confirmed);
                }
                let state = TaskState::Done { first: count, second, confirmed };
                self.runs[run].restore(task, state, Millis(first.accepted_unix_ms));
                let is_suspect = self.is_suspect(run, task);
                let in_run = &mut self.runs[run];
                let is_due = is_suspect
                    || row.replaced
                    || (in_run.is_selected(task) && confirmed == Confirmation::None);
                if in_run.is_live() && !confirmed.elsewhere() && is_due {
                    in_run.add_recheck(task, 0);
                }
            }
            TaskState::Disputed { counts } => {
                let counts: Vec<_> =
                    counts.iter().map(|of| self.workers.restore_count(of)).collect();
                self.workers.reputation_mut(counts[0].worker).has_counted = true;
                self.runs[run].restore(task, TaskState::Disputed { counts }, Millis(0));
            }
            TaskState::Parked => in_run.park(task, self.clock.ticks()),
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
            let first = first.first.worker;
            let is_due = self.workers[first].reputation.is_guaranteed_recheck();
            if is_due && self.charge_initial_recheck((run, task), first) {
                self.runs[run].add_recheck(task, 0);
            }
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
            if until_unix_ms > now.0.saturating_add(self.lease_ms()) {
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
            let undone = !self.runs[run].counts_match_state();
            self.reopen_if_finished(run, undone);
            self.announce_if_done(run);
        }
        for worker in self.workers.barred.clone() {
            self.workers.weigh_token(worker);
        }
        self.recheck_distrusted();
        self.void_barred_counts();
    }
}

impl super::Workers {
    /// Restores a count, and the identity of its author.
    fn restore_count(&mut self, count: &TaskCount) -> WorkerCount {
        let worker = self.pinned(count.worker);
        self.identify(worker, &count.principal);
        WorkerCount {
            count: count.count,
            worker,
            kernel: count.kernel,
            orientation: count.orientation,
        }
    }
}
