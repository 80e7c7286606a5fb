//! Which of a task's counts are recounts, and which is final.

use crate::{
    fleet::{LeaseIx, OWN_REFEREE, RunIx, WorkerIx},
    ledger::{RunState, TaskCount},
    snapshot::Snapshot,
};

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
}
