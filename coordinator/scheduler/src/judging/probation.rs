//! Which workers get little work until their counts are checked, or until they deliver.

use crate::{
    fleet::{LeaseIx, RunIx, WorkerIx},
    ledger::tasks::TaskIx,
    run::Lease,
    snapshot::Snapshot,
};

/// Number of tasks that unchecked machines of a distrusted token may hold, or have counted, at once.
const MAX_UNCHECKED: usize = 8;

impl<'a> Snapshot<'a> {
    /// Returns whether a worker on probation waits for a check of its counts, or of those of its token's machines.
    pub(crate) fn is_held_back(self, worker: WorkerIx) -> bool {
        if !self.is_on_probation(worker) {
            return false;
        }
        // An aged lease holds nobody back, so that no machine can keep its neighbors from work.
        let holds = |other| self.leases_of(other).any(|(_, lease)| self.is_fresh(other, lease));
        let is_unchecked = |&other: &WorkerIx| {
            other != worker
                && !self.workers.is_barred(other)
                && self.is_on_probation(other)
                && (holds(other) || self.awaits_check(other))
        };
        self.awaits_check(worker)
            || self
                .workers
                .of_same_token(worker)
                .filter(is_unchecked)
                .nth(MAX_UNCHECKED - 1)
                .is_some()
    }

    /// Returns whether another token or a referee is going to check a count of a worker.
    fn awaits_check(self, worker: WorkerIx) -> bool {
        self.order.iter().any(|&run| {
            // Referees do not recount tasks of finished runs.
            !self.runs[run].is_finished()
                && self.runs[run].has_first_count(worker)
                && (self.is_refereed(run) || self.has_other_token(run, worker))
        })
    }

    /// Returns whether a worker gets only a single task until another token or a referee has confirmed a count of it.
    pub(crate) fn is_on_probation(self, worker: WorkerIx) -> bool {
        let is_checked_by = |run| self.is_refereed(run) || self.has_other_token(run, worker);
        self.workers.is_distrusted(worker) && self.order.iter().any(|&run| is_checked_by(run))
    }

    /// Returns whether a worker gets one task at a time until its next count, since it vanished with a lease.
    /// New identities are free: so does one whose token has another that never counted, and that holds an aged
    /// lease or vanished with one.
    pub(crate) fn is_unproven(self, worker: WorkerIx) -> bool {
        let is_new = |of: WorkerIx| !self.workers[of].reputation.has_counted;
        let now = self.clock.ticks();
        let owes = |&of: &WorkerIx| {
            // A package is due at its promised return.
            let is_aged = |(_, lease): (LeaseIx, &Lease)| {
                lease.fresh_until <= now && lease.return_unix_ms == 0
            };
            is_new(of) && (self.workers[of].vanished || self.leases_of(of).any(is_aged))
        };
        self.workers[worker].vanished
            || is_new(worker) && self.workers.of_same_token(worker).any(|of| owes(&of))
    }

    /// Returns whether a worker gets only tasks that nobody has had before. It might take the others again and again,
    /// while other workers or the coordinator can count them.
    pub(crate) fn gets_only_fresh_tasks(self, run: RunIx, worker: WorkerIx) -> bool {
        self.counts_itself(run) && self.is_unproven(worker)
    }

    /// Returns whether a task's count was accepted in a suspect time of its author.
    pub(crate) fn is_suspect(self, run: RunIx, task: TaskIx) -> bool {
        self.runs[run].tasks().done(task).is_some_and(|done| {
            let mut windows = self.suspect_windows.iter();
            windows.any(|(worker, of)| *worker == done.first.author && done.was_accepted_in(of))
        })
    }
}
