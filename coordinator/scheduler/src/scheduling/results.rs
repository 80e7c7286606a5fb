//! Results of workers: first counts, equal ones and different ones.

use common::{
    run::Partial,
    sync::{Acknowledgement, Verdict},
};

use super::{
    Scheduler,
    leases::{BARRED, LeaseEnd, UNPROVEN},
};
use crate::{
    fleet::{LeaseIx, OWN_REFEREE, RunIx, WorkerIx},
    ledger::{
        Confirmation, Done, EntryKind, Recheck, Record, RunState, Stage, TaskCount,
        tasks::{self, TaskIx},
    },
    run::{Purpose, Run},
};

/// Maximum number of counts of a disputed task.
const MAX_DISPUTED_COUNTS: usize = 8;

/// A verdict with its reason.
type Ruling = (Verdict, String);

impl Scheduler {
    pub(super) fn report(&mut self, worker: WorkerIx, partial: &Partial) -> Acknowledgement {
        let (verdict, reason) = match self.check(worker, partial) {
            Ok(key) => {
                let (run, task) = key;
                if self.runs[run].lease(task, worker).is_some_and(|lease| lease.is_timed) {
                    self.workers.get_mut(worker).delivered += self.runs[run].cost(task);
                }
                self.rule(key, worker, partial)
            }
            Err(refusal) => refusal,
        };
        Acknowledgement { lease: partial.lease, verdict, reason }
    }

    /// Checks a partial regardless of its task's state; an error is the answer.
    fn check(&mut self, worker: WorkerIx, partial: &Partial) -> Result<LeaseIx, Ruling> {
        let Partial { lease, orientation, .. } = *partial;
        if self.proven(worker, &lease) != Some(orientation) {
            return Err((Verdict::RefusedKeep, UNPROVEN.to_owned()));
        }
        let refused = |reason: String| (Verdict::Refused, reason);
        let key = self.find(lease.task).map_err(refused)?;
        let (run, task) = key;
        // An older copy of the data may not know the lease.
        self.runs[run].raise_epoch(task, lease.epoch.0);
        if self.runs[run].state() == RunState::Cancelled {
            return Err(refused(format!("run {} is cancelled: drop its results", lease.task.run)));
        }
        if self.workers.is_barred(worker) {
            return Err(refused(BARRED.to_owned()));
        }
        let (count, limit) = (partial.count, self.runs[run].plan.task_limit(tasks::id(task)));
        if count > limit {
            if self.runs[run].lease(task, worker).is_some() {
                let reason =
                    format!("it counted {count} for task {task}, at most {limit} are possible");
                self.bar(worker, &reason, None);
            }
            return Err(refused(format!(
                "implausible count {count} for task {task} (maximum {limit}): check this machine's memory"
            )));
        }
        Ok(key)
    }

    fn rule(&mut self, key: LeaseIx, worker: WorkerIx, partial: &Partial) -> Ruling {
        let (run, task) = key;
        self.workers.pin(worker);
        let is_recount = self.is_recount(key, worker);
        let Partial { lease, count, kernel, orientation, duration_us } = *partial;
        let epoch = lease.epoch;
        let count = TaskCount { count, author: worker, kernel, orientation };
        let version = self.workers.get(worker).info.version.clone();
        let record = Record { epoch, version, duration_us, ..self.record_of(key, &count) };
        let done = self.runs[run].tasks().done(task);
        let is_final = done.is_some_and(|done| done.confirmed == Confirmation::Referee);
        match (self.runs[run].tasks().stage(task), done) {
            (Stage::Pending | Stage::Leased | Stage::Parked, _) => {
                self.accept(key, count, record);
                (Verdict::Accepted, String::new())
            }
            (Stage::Done | Stage::Disputed, _) if is_recount && !is_final => {
                self.credit(worker, run);
                self.take_recount(key, count, record);
                match self.runs[run].tasks().stage(task) {
                    Stage::Done if done.is_some() => (Verdict::Duplicate, String::new()),
                    Stage::Done => (Verdict::Accepted, String::new()),
                    Stage::Pending | Stage::Leased | Stage::Parked | Stage::Disputed => {
                        (Verdict::Conflict, self.conflict_reason(key))
                    }
                }
            }
            (_, Some(done)) if done.first.count == count.count => {
                self.agree(key, &done, count, record)
            }
            (_, Some(done)) if is_final => {
                (Verdict::Refused, self.blame_author(key, &count, done.first.count))
            }
            (Stage::Done | Stage::Disputed, _) => self.dispute(key, count, record),
        }
    }

    /// Journals a count and applies it to its task.
    pub(super) fn journal(
        &mut self,
        (run, task): LeaseIx,
        kind: EntryKind,
        count: TaskCount,
        record: Record,
    ) {
        let (workers, in_run) = (&self.workers, &mut self.runs[run]);
        // Confirmations are judged as in the ledger, which does not know hosts: the run and the ledger
        // have to retain the same counts.
        let level = |first: WorkerIx, other: WorkerIx| {
            workers[first].principal.confirmed_by(&workers[other].principal)
        };
        in_run.apply(task, kind, count, level, &self.clock);
        if let Some(done) = in_run.tasks().done(task)
            && let Some(second) = match kind {
                EntryKind::Confirmed => Some(count.author),
                EntryKind::Voided => done.second.map(|(second, ..)| second),
                EntryKind::Accepted
                | EntryKind::Disputed
                | EntryKind::Recounted
                | EntryKind::Settled => None,
            }
        {
            let confirmed = workers.confirmed_by(done.first.author, second);
            in_run.confirm(task, Done { confirmed, ..done });
        }
        self.changes.push_back(kind.change(record));
    }

    /// Accepts the first count of a task.
    pub(super) fn accept(&mut self, key: LeaseIx, count: TaskCount, record: Record) {
        let (run, task) = key;
        self.remove_all(run, task);
        if count.author != OWN_REFEREE {
            self.credit(count.author, run);
        }
        self.workers.reputation_mut(count.author).has_counted = true;
        self.journal(key, EntryKind::Accepted, count, record);
        let is_charged = self.charge_initial_recheck(key, count.author);
        let is_distrusted = self.workers.is_distrusted(count.author);
        // The default level, auto, does not recheck the worker of `--local`.
        let in_run = &mut self.runs[run];
        let is_exempt = self.workers.is_local(count.author) && in_run.recheck() == Recheck::Auto;
        if is_charged || is_distrusted || (in_run.is_selected(task) && !is_exempt) {
            in_run.add_recheck(task, self.clock.ticks());
        }
        if count.author != OWN_REFEREE && self.workers[count.author].stored_self_tests == 0 {
            self.note_self_tests(count.author);
        }
        self.announce_if_done(run);
    }

    /// Charges the run for the recheck of an initial count; returns whether it did.
    pub(super) fn charge_initial_recheck(
        &mut self,
        (run, task): LeaseIx,
        worker: WorkerIx,
    ) -> bool {
        let is_local = self.workers.is_local(worker) || worker == OWN_REFEREE;
        let reputation = self.workers.reputation_mut(worker);
        let is_charged = !is_local
            && reputation.is_new()
            && self.runs[run].charge_first_count(task, reputation.is_guaranteed_recheck());
        reputation.selected += u32::from(is_charged);
        is_charged
    }

    /// Measures a worker's speed from the counts of a call, and notes the runs in which it was implausible.
    pub(super) fn measure_delivered(&mut self, worker: WorkerIx, partials: &[Partial]) {
        let now = self.clock.ticks();
        let known = self.workers.get_mut(worker);
        known.measure_delivered(now);
        if known.is_implausible() {
            for partial in partials {
                if let Some(&run) = self.by_id.get(&partial.lease.task.run) {
                    self.runs[run].implausible.insert(worker);
                }
            }
        }
    }

    /// Notes a finished task, and clears the worker's declines in `run`.
    fn credit(&mut self, worker: WorkerIx, run: RunIx) {
        let known = self.workers.get_mut(worker);
        known.tasks_done += 1;
        known.declined.retain(|declined| declined.run != run);
        self.workers.set_vanished(worker, false);
    }

    /// Applies a count equal to the standing one; journals a stronger confirmation.
    fn agree(&mut self, key: LeaseIx, done: &Done, second: TaskCount, record: Record) -> Ruling {
        let ((run, task), first) = (key, done.first);
        let is_independent =
            first.author != second.author || first.orientation != second.orientation;
        let lease = self.runs[run].lease(task, second.author);
        // A repeated message has an older epoch.
        let was_asked = lease.is_some_and(|lease| {
            lease.purpose == Purpose::Recheck && lease.epoch == record.epoch.0
        });
        let by = match self.workers.confirmed_by(first.author, second.author) {
            Confirmation::SameMachine if !(is_independent && was_asked) => Confirmation::None,
            by => by,
        };
        let is_stronger = by > done.confirmed;
        if is_stronger {
            self.credit(second.author, run);
            for worker in [first.author, second.author] {
                self.workers.reputation_mut(worker).confirm(by);
            }
            self.journal(key, EntryKind::Confirmed, second, record);
        }
        let is_alone = self.on_other_machine(run, first.author).next().is_none();
        if self.is_well_confirmed(key) || is_alone && by == Confirmation::SameMachine {
            self.remove_all(run, task);
            self.runs[run].remove_recheck(task);
        } else if was_asked {
            // A machine may confirm its own count only while it is alone. If another machine has connected
            // since the recheck was granted, the recheck stays due.
            self.end_lease(second.author, key, LeaseEnd::Released);
            if !is_stronger && is_alone {
                self.runs[run].remove_recheck(task);
            }
        }
        self.announce_if_done(run);
        (Verdict::Duplicate, String::new())
    }

    /// Applies a different count: none stands until the referee has counted the task.
    fn dispute(&mut self, key: LeaseIx, count: TaskCount, record: Record) -> Ruling {
        let (run, task) = key;
        let before = self.runs[run].tasks().state(task);
        let counts = before.counts();
        let is_repeated =
            counts.iter().any(|other| other.author == count.author && other.count == count.count);
        if !is_repeated && counts.len() >= MAX_DISPUTED_COUNTS {
            return (Verdict::Refused, format!("task {task} has {} counts already", counts.len()));
        }
        if before.standing().is_some() {
            self.remove_all(run, task);
        }
        if !is_repeated {
            self.journal(key, EntryKind::Disputed, count, record);
            // The count of a complete run stands until a referee contradicts it.
            let is_decided_later = self.runs[run].is_rechecking() && self.is_refereed(run);
            self.reopen_if_finished(run, before.standing().is_some() && !is_decided_later);
        }
        (Verdict::Conflict, self.conflict_reason(key))
    }

    fn conflict_reason(&self, (run, task): LeaseIx) -> String {
        let counts = self.runs[run].disputed_counts(task).iter().map(|of| of.count.to_string());
        let counts = counts.collect::<Vec<_>>().join(", ");
        format!(
            "conflicting counts of task {task} ({counts}): none stands until the referee has counted it"
        )
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
            RunState::Complete if self.keeps_result(run) => {
                self.runs[run].note_asked(added.len());
            }
            _ => self.reopen_if_finished(run, !added.is_empty()),
        }
        added
    }

    /// Returns whether only a referee's count takes a complete run's result away.
    pub(super) fn keeps_result(&self, run: RunIx) -> bool {
        let in_run = &self.runs[run];
        in_run.state() == RunState::Complete
            && (self.can_count_itself(run) || in_run.is_rechecking() && self.is_refereed(run))
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
}
