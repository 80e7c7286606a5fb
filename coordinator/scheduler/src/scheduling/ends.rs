//! Ends of runs: the waits before them, and reopening.

use super::Scheduler;
use crate::{
    clock::Ticks,
    fleet::{RunIx, WorkerIx},
    ledger::{Done, RunState, tasks::TaskIx},
    run::Run,
};

/// Time that a run waits at its end for a referee to appear.
const REFEREE_WAIT_MS: Ticks = 60_000;

impl Scheduler {
    /// Announces to the owner, once, that a run has all its counts.
    pub(super) fn announce_if_done(&mut self, run: RunIx) {
        if !self.runs[run].is_open() || self.awaits_recounts(run) {
            return;
        }
        let in_run = &mut self.runs[run];
        if in_run.announce() {
            self.finished.push_back(in_run.manifest.run);
            let counted = self.workers.iter().filter(|(_, known)| known.tasks_done > 0);
            for worker in counted.map(|(worker, _)| worker).collect::<Vec<_>>() {
                self.note_self_tests(worker);
            }
        }
    }

    /// Rechecks tasks of a run. A complete run keeps its result if a referee can contradict it; other finished runs
    /// continue. Returns the new rechecks.
    pub(super) fn recheck(
        &mut self,
        run: RunIx,
        matches: impl Fn(&Run, TaskIx, &Done) -> bool,
    ) -> Vec<TaskIx> {
        let added = self.runs[run].add_rechecks(self.clock.ticks(), matches);
        match self.runs[run].state() {
            RunState::Complete if self.snapshot().keeps_result(run) => {
                self.runs[run].note_asked(added.len());
            }
            _ => self.reopen_if_finished(run, !added.is_empty()),
        }
        added
    }

    pub(super) fn reopen(&mut self, run: RunIx) {
        self.changes.push_back(self.runs[run].reopen());
        // While its result stood, the counts of barred machines only waited for rechecks.
        self.void_counts_of_barred(run, None);
    }

    pub(super) fn reopen_if_finished(&mut self, run: RunIx, condition: bool) {
        if condition && self.runs[run].is_finished() {
            self.reopen(run);
        }
    }

    /// Returns whether a run whose tasks are all done waits for random recounts.
    pub(super) fn awaits_recounts(&mut self, run: RunIx) -> bool {
        let now = self.clock.ticks();
        let is_verifying = self.runs[run].all_done() && self.snapshot().is_verifying(run);
        let limit_ms =
            if is_verifying { Some(Ticks::MAX) } else { self.snapshot().recount_wait_ms(run) };
        let Some(limit_ms) = limit_ms else { return false };
        now < self.runs[run].done_since(now).saturating_add(limit_ms)
    }

    /// Removes the rechecks of a run that wait for another token.
    /// Unconfirmed counts stay queued for another machine with the same token, or the coordinator's referee.
    fn remove_waits_for_tokens(&mut self, run: RunIx) {
        let (tokens, in_run) = (self.snapshot().active_tokens(run), &self.runs[run]);
        let is_removed = |&&(author, task): &&(WorkerIx, TaskIx)| {
            let token = self.workers.token(author);
            let mut others = self.snapshot().on_other_machine(run, author);
            let done = in_run.tasks().done(task);
            tokens.iter().any(|other| *other != token)
                && (done.is_some_and(|done| done.confirmed.elsewhere())
                    || !self.snapshot().counts_itself(run)
                        && others.all(|other| self.workers.token(other) != token))
        };
        let removed: Vec<_> = in_run.rechecks().keys().filter(is_removed).copied().collect();
        for (_, task) in removed {
            self.runs[run].remove_recheck(task);
        }
    }

    /// Ends the waits of runs that have lasted long enough.
    /// Runs wait for random recounts, with [`Recheck::All`] for rechecks by another token, and for a referee.
    pub(super) fn end_waits(&mut self, now: Ticks) {
        for run in 0..self.runs.len() {
            self.runs[run].wait_for_tokens(now);
            if self.runs[run].has_waited_for_tokens(now) {
                self.remove_waits_for_tokens(run);
            }
            self.announce_if_done(run);
            let waits = self.runs[run].is_rechecking()
                || matches!(self.runs[run].state(), RunState::Running | RunState::Disputed);
            let stalled = waits && self.runs[run].has_only_disputes() && self.workers.live() > 0;
            if !stalled || self.snapshot().has_referee_for_disputes(run) {
                self.runs[run].clear_stall();
                continue;
            }
            // A referee that contradicted a count may have left.
            for task in self.runs[run].tasks().disputed().keys().copied().collect::<Vec<_>>() {
                self.settle_if_final((run, task));
            }
            let is_over = now >= self.runs[run].stalled_since(now) + REFEREE_WAIT_MS;
            if is_over && self.runs[run].has_only_disputes() {
                self.runs[run].clear_stall();
                if let Some(change) = self.runs[run].end_disputed() {
                    self.finished.push_back(self.runs[run].manifest.run);
                    self.changes.push_back(change);
                }
            }
        }
    }
}
