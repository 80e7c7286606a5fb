//! Taking counts: the first one, equal ones, and those that contradict.

use std::collections::BTreeSet;

use common::{
    count::Orientation,
    run::{Epoch, Partial},
    sync::{Acknowledgement, Verdict},
};

use super::{
    Millis, Scheduler, canaries,
    index::{LeaseIx, RunIx, TaskIx, WorkerIx},
    leases::End,
    rejection::Rejection,
    run::{self, Report},
    tasks::{Done, How, Stage},
    trust::Consequence,
    worker::Purpose,
};
use crate::ledger::{Change, Confirmed, Record, RunState, Trust, Vote};

/// Different counts of one task that are kept at most.
const MOST_REPORTS: usize = 8;

/// A verdict with its reason.
type Ruling = (Verdict, String);

fn refused(reason: String) -> Ruling {
    (Verdict::Refused, reason)
}

impl Scheduler {
    /// Takes one partial, and says what became of it.
    pub(super) fn report(
        &mut self,
        worker: WorkerIx,
        partial: &Partial,
        now: Millis,
    ) -> Acknowledgement {
        let (verdict, reason) = match self.check(worker, partial) {
            Ok(key) => self.rule(key, worker, (partial, now)),
            Err(rejection) => refused(rejection.to_string()),
        };
        Acknowledgement {
            task: partial.task,
            epoch: partial.epoch,
            verdict,
            reason,
        }
    }

    /// Everything that can be wrong with a partial whatever the task's state.
    fn check(&mut self, worker: WorkerIx, partial: &Partial) -> Result<LeaseIx, Rejection> {
        let key = self.find(partial.task)?;
        self.issued(key, partial.epoch)?;
        let (run, task) = key;
        if self.runs[run].state() == RunState::Cancelled {
            return Err(Rejection::ResultsOfCancelled(partial.task.run));
        }
        if self.workers.standing(worker).is_barred() {
            return Err(self.why_barred(worker));
        }
        let limit = self.runs[run].plan().task_limit(run::id(task));
        if partial.count > limit {
            let lease = self.workers.get_mut(worker).leases.get_mut(&key);
            if let Some(lease) = lease
                && !lease.spoilt
            {
                lease.spoilt = true;
                self.fault(worker);
            }
            return Err(Rejection::ImpossibleCount {
                task,
                count: partial.count,
                limit,
            });
        }
        Ok(key)
    }

    fn rule(
        &mut self,
        key: LeaseIx,
        worker: WorkerIx,
        (partial, now): (&Partial, Millis),
    ) -> Ruling {
        let (run, task) = key;
        let how = How {
            kernel: partial.kernel,
            orientation: partial.orientation,
        };
        self.workers.pin(worker);
        let report = Report {
            count: partial.count,
            worker,
            how,
        };
        let record = self.record(worker, partial, now);
        match self.runs[run].tasks().stage(task) {
            Stage::Pending | Stage::Leased | Stage::Parked => {
                self.accept(key, report, record);
                (Verdict::Accepted, String::new())
            }
            Stage::Done => {
                let first = self.runs[run].tasks().done(task).expect("stage is done");
                if first.count == partial.count {
                    self.agree(key, (first, report), record)
                } else {
                    self.contradict(key, (first, report), record)
                }
            }
            Stage::Quarantined => self.decide(key, report, record),
        }
    }

    fn record(&self, worker: WorkerIx, partial: &Partial, now: Millis) -> Record {
        let info = &self.workers.get(worker).info;
        let run = self.by_id.get(&partial.task.run);
        let elapsed_ms = run.map_or(0, |run| self.runs[*run].elapsed_ms(self.clock.ticks()));
        Record {
            run: partial.task.run,
            task: partial.task.task,
            epoch: partial.epoch,
            count: partial.count,
            worker: info.id,
            principal: self.workers.principal(worker),
            version: info.version.clone(),
            kernel: partial.kernel,
            orientation: partial.orientation,
            duration_us: partial.duration_us,
            accepted_unix_ms: now.0,
            elapsed_ms,
        }
    }

    fn accept(&mut self, (run, task): LeaseIx, report: Report, record: Record) {
        self.remove_all(run, task);
        let cost = self.runs[run].cost(task);
        let was_disputed = self.runs[run].tasks().stage(task) == Stage::Quarantined;
        let now = self.clock.ticks();
        self.credit(report.worker, run, (cost, record.duration_us));
        let confirmed = match was_disputed {
            true => self.agreement((run, task), report),
            false => Confirmed::No,
        };
        let in_run = &mut self.runs[run];
        let drawn = self
            .draw
            .chosen(in_run.manifest().run, run::id(task), in_run.recheck());
        let done = Done {
            count: report.count,
            worker: report.worker,
            how: report.how,
            confirmed,
            drawn,
            accepted_s: canaries::seconds(now),
        };
        in_run.arrive(task, done, now);
        // Each asked in any case: a count uses up what it is owed, whatever the others say.
        let first = self.is_compared_as_first((run, task), report.worker);
        let doubted = self.workers.standing(report.worker).is_doubted();
        if !confirmed.elsewhere() && (drawn || first || doubted) {
            self.runs[run].want_second(task, now);
        }
        self.changes.push_back(Change::Accepted(record));
        self.note_first_proofs(report.worker);
        if self.runs[run].state() == RunState::Disputed {
            self.reopen(run);
        }
        self.announce_if_done(run);
    }

    /// Whether a task is among the first of its worker, which are compared: some in any case, more while
    /// that costs little.
    fn is_compared_as_first(&mut self, (run, task): LeaseIx, worker: WorkerIx) -> bool {
        let standing = self.workers.standing(worker);
        let compared = standing.is_new() && self.runs[run].affords_first(task, standing.is_owed());
        if compared {
            self.workers.standing_mut(worker).chosen();
        }
        compared
    }

    /// A worker's finished task: how fast it is, and that it works on this run.
    fn credit(&mut self, worker: WorkerIx, run: RunIx, (cost, duration_us): (u64, u64)) {
        let worker = self.workers.get_mut(worker);
        worker.measure(cost, duration_us);
        worker.tasks_done += 1;
        worker.declined.retain(|declined| declined.run != run);
    }

    /// An equal count of a done task: worth noting once, if it came another way.
    fn agree(
        &mut self,
        (run, task): LeaseIx,
        (first, second): (Done, Report),
        record: Record,
    ) -> Ruling {
        let another_way =
            first.worker != second.worker || first.how.orientation != second.how.orientation;
        let epoch = record.epoch;
        let by = match self.workers.confirmed_by(first.worker, second.worker) {
            Confirmed::SameMachine if !another_way => Confirmed::No,
            by => by,
        };
        let was_wanted = self.workers.get(second.worker).leases.get(&(run, task));
        let was_asked = was_wanted.is_some_and(|lease| lease.purpose == Purpose::Recheck);
        // A second count by the same machine is taken where it was asked for: elsewhere is better.
        let news = match by {
            Confirmed::No => false,
            Confirmed::SameMachine => was_asked && first.confirmed == Confirmed::No,
            Confirmed::OtherMachine | Confirmed::OtherToken => !first.confirmed.elsewhere(),
        };
        if news {
            let cost = self.runs[run].cost(task);
            self.credit(second.worker, run, (cost, record.duration_us));
            if by.elsewhere() {
                self.workers.standing_mut(first.worker).agreed();
                self.workers.standing_mut(second.worker).agreed();
            }
            self.runs[run].confirm(task, by);
            self.changes.push_back(Change::Confirmed(record));
        }
        // Two agree on it already: the third shows that it counts right.
        if !news && was_asked && by.elsewhere() {
            self.workers.standing_mut(second.worker).agreed();
        }
        if news || first.confirmed != Confirmed::No {
            self.remove_all(run, task);
            self.announce_if_done(run);
        } else {
            // The first worker itself, not the way it was asked: that proves nothing.
            self.end_in_vain(second.worker, (run, task), epoch);
        }
        (Verdict::Duplicate, String::new())
    }

    /// Another count of a done task: neither counts from now on.
    fn contradict(
        &mut self,
        key: LeaseIx,
        (first, second): (Done, Report),
        record: Record,
    ) -> Ruling {
        let (run, task) = key;
        self.remove_all(run, task);
        let reason = self.why_disputed(task, first.count, second.count);
        let was_over = self.runs[run].contradict(task, first, second);
        self.changes
            .push_back(Change::Quarantined { second: record });
        if was_over {
            self.reopen(run);
        }
        (Verdict::Conflict, reason)
    }

    fn why_disputed(&self, task: TaskIx, first: u64, second: u64) -> String {
        format!(
            "task {task} was counted as {first}, now as {second}: neither counts until others have \
             counted it and decided which is right"
        )
    }

    /// One more count of a quarantined task, which may decide it.
    fn decide(&mut self, key: LeaseIx, report: Report, record: Record) -> Ruling {
        let (run, task) = key;
        let reports = self.runs[run].reports(task).to_vec();
        let first = reports.first().map_or(0, |first| first.count);
        let reason = self.why_disputed(task, first, report.count);
        let way = record.epoch;
        let said = (report.count, report.worker);
        let again = reports
            .iter()
            .any(|other| (other.count, other.worker) == said);
        // One more identity on a machine that has said the same: no opinion of its own, unless the
        // machine's is what decides by now.
        let echo = reports.iter().all(|other| other.worker != report.worker)
            && reports.iter().any(|other| {
                other.count == report.count
                    && self.workers.same_machine(other.worker, report.worker)
            });
        if echo && self.decided_count(run, task) != Some(report.count) {
            self.end_in_vain(report.worker, key, way);
            return (Verdict::Conflict, reason);
        }
        if !again && reports.len() >= MOST_REPORTS {
            self.end_in_vain(report.worker, key, way);
            return refused(format!(
                "task {task} has {} different counts already: an operator must look at the workers",
                reports.len()
            ));
        }
        self.runs[run].add_report(task, report);
        if self.decided_count(run, task) == Some(report.count) {
            let losers: BTreeSet<_> = reports
                .iter()
                .filter(|other| other.count != report.count)
                .map(|other| other.worker)
                .collect();
            let winners = self.runs[run].reports(task).iter();
            let winners = winners.filter(|other| other.count == report.count);
            let winners: BTreeSet<_> = winners.map(|other| other.worker).collect();
            // Doubts first: a crash must not keep the decision and forget what follows from it.
            for loser in losers {
                self.fault(loser);
            }
            for winner in winners {
                self.workers.standing_mut(winner).agreed();
            }
            self.accept(key, report, record);
            return (Verdict::Accepted, String::new());
        }
        if again {
            self.end_in_vain(report.worker, key, way);
        } else {
            self.end_lease(report.worker, key, End::Released);
            self.changes
                .push_back(Change::Quarantined { second: record });
        }
        (Verdict::Conflict, reason)
    }

    /// A second count told nothing new: its lease ends, and this worker is not asked again in the way
    /// that it was asked. A repeated message, under an older epoch, says nothing of the lease.
    fn end_in_vain(&mut self, worker: WorkerIx, key: LeaseIx, epoch: Epoch) {
        let lease = self.workers.get(worker).leases.get(&key);
        let asked = lease.filter(|lease| lease.epoch == epoch.0 && lease.purpose != Purpose::Count);
        let Some(lease) = asked else { return };
        let way = match lease.turned {
            true => Orientation::Turned,
            false => Orientation::Upright,
        };
        let purpose = lease.purpose;
        self.end_lease(worker, key, End::Released);
        let (run, task) = key;
        if purpose == Purpose::Recheck {
            // Nobody else is there, or it would not have been asked.
            self.runs[run].forget_second(task);
            self.announce_if_done(run);
            return;
        }
        self.runs[run].note_tried(task, (worker, way));
    }

    /// A worker was wrong: what it alone counted is counted again, in every run, and its next counts
    /// are compared. If it was wrong before, it gets nothing more.
    fn fault(&mut self, worker: WorkerIx) {
        match self.workers.standing_mut(worker).fault() {
            Consequence::Nothing => return,
            Consequence::Doubted => {
                self.note_trust(worker, Trust::Doubted, "a count of it was wrong");
            }
            Consequence::Barred => {
                self.note_trust(worker, Trust::Barred, "more than one count of it was wrong");
                if self.workers.find_mut(worker).is_some() {
                    self.release_all(worker);
                }
            }
        }
        for run in 0..self.runs.len() {
            if self.runs[run].state() != RunState::Cancelled {
                self.count_again(run, |done| {
                    done.worker == worker && !done.confirmed.elsewhere()
                });
            }
        }
    }

    /// Wants second counts of all done tasks that `is_meant`; a run that was over goes on for them.
    /// Returns those that were not wanted before.
    pub(super) fn count_again(
        &mut self,
        run: RunIx,
        is_meant: impl Fn(&Done) -> bool,
    ) -> Vec<TaskIx> {
        let now = self.clock.ticks();
        let wanted = self.runs[run].want_seconds(now, is_meant);
        if !wanted.is_empty() && self.runs[run].is_over() {
            self.reopen(run);
        }
        wanted
    }

    /// A run that was over is not over.
    pub(super) fn reopen(&mut self, run: RunIx) {
        self.changes.push_back(self.runs[run].reopen());
    }

    pub(super) fn why_barred(&self, worker: WorkerIx) -> Rejection {
        Rejection::Barred {
            faults: self.workers.standing(worker).faults(),
        }
    }

    /// Tells the owner, once, that a run has all its counts.
    pub(super) fn announce_if_done(&mut self, run: RunIx) {
        let in_run = &mut self.runs[run];
        if in_run.announce() {
            self.finished.push_back(in_run.manifest().run);
            self.note_all_proofs();
        }
    }

    /// The most that others have said for a count which decides between contradicting ones.
    fn agreement(&self, (run, task): LeaseIx, report: Report) -> Confirmed {
        let reports = self.runs[run].reports(task).iter();
        let equal = reports.filter(|other| other.count == report.count);
        equal
            .map(|other| self.workers.confirmed_by(other.worker, report.worker))
            .filter(|by| by.elsewhere())
            .max()
            .unwrap_or_default()
    }

    /// Puts counts that were found on disk as contradicting back; somebody may have agreed with the
    /// first of them.
    pub(super) fn restore_reports(
        &mut self,
        (run, task): LeaseIx,
        votes: &[Vote],
        confirmed: Confirmed,
    ) {
        let reports = votes
            .iter()
            .map(|vote| {
                let worker = self.workers.pinned(vote.worker);
                self.workers.restore_principal(worker, &vote.principal);
                Report {
                    count: vote.count,
                    worker,
                    how: How::of(vote),
                }
            })
            .collect();
        self.runs[run].restore_reports(task, reports, confirmed);
    }
}
