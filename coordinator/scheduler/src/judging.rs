//! Weighing of evidence: counts that differ, and workers whose counts nobody has confirmed.

use crate::{
    fleet::{LeaseIx, OWN_REFEREE, RunIx, WorkerIx},
    ledger::{RunState, Stage, TaskCount, tasks::TaskIx},
    run::Lease,
    snapshot::Snapshot,
};

/// Number of tasks that unchecked machines of a distrusted token may hold, or have counted, at once.
const MAX_UNCHECKED: usize = 8;

impl<'a> Snapshot<'a> {
    /// Returns whether a worker's machine has made one of these counts.
    pub(crate) fn is_party(self, counts: &[TaskCount], worker: WorkerIx) -> bool {
        counts.iter().any(|of| self.workers.same_machine(of.author, worker))
    }

    /// Divides the counts of a task, in their order, into recounts and others.
    /// A trusted worker's count is a recount if other machines counted the task before and its own did not.
    pub(crate) fn recounts_among(self, counts: &[TaskCount]) -> (Vec<TaskCount>, Vec<TaskCount>) {
        let (mut recounts, mut plain) = (Vec::new(), Vec::new());
        for (at, &of) in counts.iter().enumerate() {
            let is_trusted =
                at > 0 && self.workers[of.author].trusted && !self.is_party(&plain, of.author);
            let is_recount = is_trusted || of.author == OWN_REFEREE;
            if is_recount { recounts.push(of) } else { plain.push(of) }
        }
        (recounts, plain)
    }

    /// Returns whether a worker's next count of a task is a recount by a referee.
    pub(crate) fn is_recount(self, (run, task): LeaseIx, worker: WorkerIx) -> bool {
        let state = self.runs[run].tasks().state(task);
        let counts = state.counts();
        // A recount that stands, since the others are void, is a count like any other.
        let plain = match state.standing() {
            Some(_) => counts.clone(),
            None => self.recounts_among(&counts).1,
        };
        self.workers.is_referee(worker) && !counts.is_empty() && !self.is_party(&plain, worker)
    }

    /// Returns the final count of a disputed task, if there is one.
    ///
    /// A referee made it twice, or once after an equal count of a worker while no two tokens agree against
    /// it. No other referee that is connected, or that recounted the task twice, made a different count.
    pub(crate) fn final_count(self, counts: &[TaskCount]) -> Option<TaskCount> {
        let (recounts, plain) = self.recounts_among(counts);
        let is_repeated =
            |of: &TaskCount| recounts.iter().filter(|other| other.author == of.author).count() > 1;
        // After a restart, a worker is unknown until it calls.
        let in_grace = self.clock.ticks() < self.config.lease_ms;
        let is_connected = |worker| match worker {
            OWN_REFEREE => self.referee.threads > 0 && !self.is_broken(),
            _ => self.workers.find(worker).map_or(in_grace, |known| known.deadline.is_some()),
        };
        let agree = |one: &TaskCount, other: &TaskCount| {
            let [one_token, other_token] = [one, other].map(|of| self.workers.token(of.author));
            one.count == other.count && one_token != other_token
        };
        let is_final = |of: &&TaskCount| {
            let mut others = recounts.iter().filter(|other| other.count != of.count);
            let is_opposed = others.any(|other| is_repeated(other) || is_connected(other.author));
            let against = || plain.iter().filter(|other| other.count != of.count);
            let is_backed = || {
                // A later count may be a copy: conflicts are no secret.
                let mut earlier = counts.iter().take_while(|other| *other != *of);
                earlier.any(|other| other.count == of.count && plain.contains(other))
                    && !against().any(|one| against().any(|other| agree(one, other)))
            };
            let is_able = of.author != OWN_REFEREE || !self.is_broken();
            is_able && !is_opposed && (is_repeated(of) || is_backed())
        };
        recounts.iter().find(is_final).copied()
    }

    /// Returns whether a count differs from the one of its task in the run's total: the first, which stands,
    /// or stood until others of a complete run differed.
    pub(crate) fn contradicts_total(self, (run, task): LeaseIx, count: &TaskCount) -> bool {
        let in_run = &self.runs[run];
        let state = in_run.tasks().state(task);
        let is_in_total = state.standing().is_some() || in_run.is_rechecking();
        is_in_total && state.counts().first().is_some_and(|first| first.count != count.count)
    }

    pub(crate) fn conflict_reason(self, (run, task): LeaseIx) -> String {
        let counts = self.runs[run].disputed_counts(task).iter().map(|of| of.count.to_string());
        let counts = counts.collect::<Vec<_>>().join(", ");
        format!(
            "conflicting counts of task {task} ({counts}): none stands until the referee has counted it"
        )
    }

    /// Returns whether only a referee's count takes a complete run's result away.
    pub(crate) fn keeps_result(self, run: RunIx) -> bool {
        let in_run = &self.runs[run];
        in_run.state() == RunState::Complete
            && (self.can_count_itself(run) || in_run.is_rechecking() && self.is_refereed(run))
    }

    /// Returns whether the counts of a run's tasks fit the state of the run.
    /// A complete run that keeps its result may have disputes, until a referee contradicts the total.
    pub(crate) fn counts_match_state(self, run: RunIx) -> bool {
        let in_run = &self.runs[run];
        let is_decided_later = |(&task, counts): (&TaskIx, &Vec<TaskCount>)| {
            let (recounts, _) = self.recounts_among(counts);
            !recounts.iter().any(|count| self.contradicts_total((run, task), count))
        };
        match in_run.state() {
            RunState::Complete if self.keeps_result(run) => {
                let tasks = in_run.tasks();
                tasks.number(Stage::Done) + tasks.number(Stage::Disputed) == tasks.size()
                    && tasks.disputed().iter().all(is_decided_later)
            }
            RunState::Complete | RunState::Contradicted => in_run.is_counted(),
            RunState::Disputed => in_run.has_only_disputes(),
            RunState::Running | RunState::Paused | RunState::Cancelled => true,
        }
    }

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
            // Tasks of paused and finished runs are not rechecked.
            !self.runs[run].is_finished()
                && self.runs[run].grants()
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
