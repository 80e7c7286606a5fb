//! Counts of workers and of referees: first ones, equal ones and different ones.

use std::collections::BTreeMap;

use common::messages::{
    run::Partial,
    sync::{Acknowledgement, Verdict},
};

use super::{
    Scheduler,
    leases::{LeaseEnd, UNPROVEN},
};
use crate::{
    choosing::BARRED,
    fleet::{LeaseIx, OWN_REFEREE, RunIx, WorkerIx},
    ledger::{
        Confirmation, Done, EntryKind, Recheck, Record, RunState, Stage, TaskCount, Trust, tasks,
    },
    run::Purpose,
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
        let key = self.snapshot().find(lease.task).map_err(refused)?;
        let (run, task) = key;
        self.note_epoch(key, lease.epoch.0);
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
        let is_recount = self.snapshot().is_recount(key, worker);
        let Partial { lease, count, kernel, orientation, duration_us } = *partial;
        let epoch = lease.epoch;
        let count = TaskCount { count, author: worker, kernel, orientation };
        let version = self.workers.get(worker).info.version.clone();
        let record =
            Record { epoch, version, duration_us, ..self.snapshot().record_of(key, &count) };
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
                        (Verdict::Conflict, self.snapshot().conflict_reason(key))
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
        let is_suspect = self.snapshot().is_suspect(run, task);
        // The default level, auto, does not recheck the worker of `--local`.
        let in_run = &mut self.runs[run];
        let is_exempt = self.workers.is_local(count.author) && in_run.recheck() == Recheck::Auto;
        if is_charged || is_distrusted || is_suspect || (in_run.is_selected(task) && !is_exempt) {
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
        let is_alone = self.snapshot().on_other_machine(run, first.author).next().is_none();
        if self.snapshot().is_well_confirmed(key) || is_alone && by == Confirmation::SameMachine {
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
            let is_decided_later =
                self.runs[run].is_rechecking() && self.snapshot().is_refereed(run);
            self.reopen_if_finished(run, before.standing().is_some() && !is_decided_later);
        }
        (Verdict::Conflict, self.snapshot().conflict_reason(key))
    }

    /// Applies a referee's count of a task.
    pub(super) fn take_recount(&mut self, key: LeaseIx, count: TaskCount, record: Record) {
        let (run, task) = key;
        let before = self.runs[run].tasks().state(task);
        let mut counts = before.counts();
        // A repeated message is not a second recount, which has the other orientation. A task without
        // counts was reopened: its next count will be checked.
        if counts.contains(&count) || counts.is_empty() {
            return;
        }
        counts.push(count);
        let mut own = counts.iter().filter(|of| of.author == count.author);
        let contradicts_itself = own.any(|of| of.count != count.count);
        let is_settled = match before.standing() {
            Some(stands) if before.is_final() => {
                if stands != count.count {
                    self.blame_author(key, &count, stands);
                }
                return;
            }
            Some(stands) => stands == count.count,
            None => {
                let wins = || {
                    self.snapshot().final_count(&counts).is_some_and(|of| of.count == count.count)
                };
                !contradicts_itself && wins()
            }
        };
        if is_settled {
            return self.settle(key, count, record);
        }
        let contradicts_total = self.snapshot().contradicts_total(key, &count);
        self.remove_all(run, task);
        self.journal(key, EntryKind::Recounted, count, record);
        self.reopen_if_finished(run, contradicts_total);
        if contradicts_itself {
            self.blame(count.author, &format!("its two counts of task {task} differ"), None);
            self.void_counts(key, Some(count.author));
            // Another referee's count may be final now.
            self.settle_if_final(key);
        }
    }

    /// Makes a referee's count final and bars the authors of different ones.
    fn settle(&mut self, key: LeaseIx, count: TaskCount, record: Record) {
        let (run, task) = key;
        let was_disputed = self.runs[run].state() == RunState::Disputed
            && self.runs[run].tasks().stage(task) == Stage::Disputed;
        let reopens = was_disputed || self.snapshot().contradicts_total(key, &count);
        self.remove_all(run, task);
        let counts = self.runs[run].tasks().state(task).counts();
        let (right, wrong): (Vec<_>, Vec<_>) =
            counts.into_iter().partition(|other| other.count == count.count);
        let losers: BTreeMap<_, _> =
            wrong.iter().rev().map(|other| (other.author, other)).collect();
        for loser in losers.into_values() {
            self.blame_author(key, loser, count.count);
        }
        for winner in right.iter().filter(|other| other.author != count.author) {
            self.workers.reputation_mut(winner.author).confirm(Confirmation::Referee);
        }
        self.journal(key, EntryKind::Settled, count, record);
        self.reopen_if_finished(run, reopens);
        self.announce_if_done(run);
    }

    /// Settles a disputed task if it has a final count.
    pub(super) fn settle_if_final(&mut self, key: LeaseIx) {
        if let Some(count) = self.snapshot().final_count(self.runs[key.0].disputed_counts(key.1)) {
            let record = self.snapshot().record_of(key, &count);
            self.settle(key, count, record);
        }
    }

    /// Blames the author of a count that differs from the final one; returns why.
    pub(super) fn blame_author(&mut self, key: LeaseIx, of: &TaskCount, right: u64) -> String {
        let reason = format!("it counted {} for task {}, the referee {right}", of.count, key.1);
        self.blame(of.author, &reason, Some(key));
        reason
    }

    /// Bars a machine that was found wrong, or stops the coordinator's own referee.
    fn blame(&mut self, worker: WorkerIx, reason: &str, except: Option<LeaseIx>) {
        match worker {
            OWN_REFEREE => self.stop_referee(reason),
            _ => self.bar(worker, reason, except),
        }
    }

    /// Stops the coordinator's own referee after a wrong count, until readmission.
    pub(super) fn stop_referee(&mut self, why: &str) {
        self.workers.bar(OWN_REFEREE);
        let reason = format!(
            "the coordinator's own machine is broken and its referee has stopped: {why}; check memory and \
             cooling"
        );
        self.note_trust(OWN_REFEREE, Trust::Barred, &reason);
    }
}
