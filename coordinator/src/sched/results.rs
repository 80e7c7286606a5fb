//! Taking counts: the first one, equal ones, and those that contradict.

use common::{
    count::Orientation,
    run::{Epoch, Partial, WorkerId},
    sync::{Acknowledgement, Verdict},
};

use super::{
    Millis, Scheduler,
    leases::End,
    run::{self, Report, RunIx},
    tasks::{Done, How, Stage, TaskIx},
    workers::{LeaseKey, Purpose, WorkerIx},
};
use crate::store::{Change, Record, RunState};

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
            Err(reason) => refused(reason),
        };
        Acknowledgement {
            task: partial.task,
            epoch: partial.epoch,
            verdict,
            reason,
        }
    }

    /// Everything that can be wrong with a partial whatever the task's state.
    fn check(&mut self, worker: WorkerIx, partial: &Partial) -> Result<LeaseKey, String> {
        let key = self.find(partial.task)?;
        self.issued(key, partial.epoch)?;
        let (run, task) = key;
        if self.runs[run].state == RunState::Cancelled {
            return Err(format!(
                "run {} is cancelled: drop its results",
                partial.task.run
            ));
        }
        if self.workers.get(worker).barred {
            return Err(self.why_barred(worker));
        }
        let limit = self.runs[run].plan.task_limit(run::id(task));
        if partial.count > limit {
            let lease = self.workers.get_mut(worker).leases.get_mut(&key);
            if let Some(lease) = lease
                && !lease.spoilt
            {
                lease.spoilt = true;
                self.fault(worker);
            }
            return Err(format!(
                "task {task} cannot have {} solutions, {limit} at most: check this machine's memory",
                partial.count
            ));
        }
        Ok(key)
    }

    fn rule(
        &mut self,
        key: LeaseKey,
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
            how: Some(how),
        };
        let record = self.record(worker, partial, now);
        match self.runs[run].tasks.stage(task) {
            Stage::Pending | Stage::Leased | Stage::Parked => {
                self.accept(key, report, record);
                (Verdict::Accepted, String::new())
            }
            Stage::Done => {
                let first = self.runs[run].tasks.done(task).expect("stage is done");
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
        Record {
            run: partial.task.run,
            task: partial.task.task,
            epoch: partial.epoch,
            count: partial.count,
            worker: info.id,
            version: info.version.clone(),
            kernel: partial.kernel,
            orientation: partial.orientation,
            duration_us: partial.duration_us,
            accepted_unix_ms: now.0,
        }
    }

    fn accept(&mut self, (run, task): LeaseKey, report: Report, record: Record) {
        self.remove_all(run, task);
        let cost = self.runs[run].cost(task);
        let was_disputed = self.runs[run].tasks.stage(task) == Stage::Quarantined;
        let now = self.clock.ticks();
        self.credit(report.worker, run, (cost, record.duration_us));
        let in_run = &mut self.runs[run];
        in_run.accept(
            task,
            Done {
                count: report.count,
                worker: report.worker,
                how: report.how,
                confirmed: was_disputed,
            },
        );
        in_run.parking.counted(task, now);
        in_run.note_arrival(report.count, cost, now);
        let fraction = self.config.recheck;
        if !was_disputed && in_run.chosen_for_recheck(task, fraction) {
            in_run.rechecks.insert(task);
        }
        self.changes.push_back(Change::Accepted(record));
        self.announce_if_done(run);
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
        (run, task): LeaseKey,
        (first, second): (Done, Report),
        record: Record,
    ) -> Ruling {
        // Of a count found on disk only the worker is known: it is taken as upright.
        let orientation =
            |how: Option<How>| how.map_or(Orientation::Upright, |how| how.orientation);
        let another_way =
            first.worker != second.worker || orientation(first.how) != orientation(second.how);
        let epoch = record.epoch;
        if another_way && !first.confirmed {
            let cost = self.runs[run].cost(task);
            self.credit(second.worker, run, (cost, record.duration_us));
            let in_run = &mut self.runs[run];
            in_run.tasks.confirm(task);
            in_run.agreed += 1;
            in_run.rechecks.remove(&task);
            self.changes.push_back(Change::Confirmed(record));
        }
        let confirmed = another_way || first.confirmed;
        if confirmed {
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
        key: LeaseKey,
        (first, second): (Done, Report),
        record: Record,
    ) -> Ruling {
        let (run, task) = key;
        self.remove_all(run, task);
        let reason = self.why_disputed(task, first.count, second.count);
        let in_run = &mut self.runs[run];
        in_run.conflicts += 1;
        in_run.announced = false;
        in_run.enter(task, Stage::Quarantined);
        let first = Report {
            count: first.count,
            worker: first.worker,
            how: first.how,
        };
        in_run.odd.entry(task).or_default().reports = vec![first, second];
        self.changes
            .push_back(Change::Quarantined { second: record });
        if matches!(in_run.state, RunState::Complete | RunState::Contradicted) {
            in_run.state = RunState::Running;
            self.changes.push_back(Change::State {
                run: in_run.manifest.run,
                state: RunState::Running,
            });
        }
        (Verdict::Conflict, reason)
    }

    fn why_disputed(&self, task: TaskIx, first: u64, second: u64) -> String {
        format!(
            "task {task} was counted as {first}, now as {second}: both are set aside and it is \
             counted again elsewhere"
        )
    }

    /// One more count of a quarantined task: two equal ones of distinct workers decide.
    fn decide(&mut self, key: LeaseKey, report: Report, record: Record) -> Ruling {
        let (run, task) = key;
        let reports = self.runs[run].reports(task).to_vec();
        let first = reports.first().map_or(0, |first| first.count);
        let seconded = reports
            .iter()
            .any(|other| other.count == report.count && other.worker != report.worker);
        if seconded {
            let losers = reports
                .iter()
                .filter(|other| other.count != report.count)
                .map(|other| other.worker)
                .collect::<Vec<_>>();
            self.accept(key, report, record);
            for loser in losers {
                self.fault(loser);
            }
            return (Verdict::Accepted, String::new());
        }
        let reason = self.why_disputed(task, first, report.count);
        let again = reports
            .iter()
            .any(|other| (other.count, other.worker) == (report.count, report.worker));
        if again {
            self.end_in_vain(report.worker, key, record.epoch);
            return (Verdict::Conflict, reason);
        }
        if reports.len() >= self.config.reports {
            self.end_in_vain(report.worker, key, record.epoch);
            return refused(format!(
                "task {task} has {} different counts already: an operator must look at the workers",
                reports.len()
            ));
        }
        self.end_lease(report.worker, key, End::Released);
        let in_run = &mut self.runs[run];
        in_run.odd.entry(task).or_default().reports.push(report);
        self.changes
            .push_back(Change::Quarantined { second: record });
        (Verdict::Conflict, reason)
    }

    /// A second count told nothing new: its lease ends, and this worker is not asked again in the way
    /// that it was asked. A repeated message, under an older epoch, says nothing of the lease.
    fn end_in_vain(&mut self, worker: WorkerIx, key: LeaseKey, epoch: Epoch) {
        let lease = self.workers.get(worker).leases.get(&key);
        let asked = lease.filter(|lease| lease.epoch == epoch.0 && lease.purpose != Purpose::Count);
        let Some(lease) = asked else { return };
        let way = match lease.turned {
            true => Orientation::Turned,
            false => Orientation::Upright,
        };
        self.end_lease(worker, key, End::Released);
        let (run, task) = key;
        let odd = self.runs[run].odd.entry(task).or_default();
        odd.tried.push((worker, way));
    }

    /// A worker was wrong. If that happens more than a little, it gets nothing more, and what it
    /// alone counted is counted again.
    fn fault(&mut self, worker: WorkerIx) {
        let most = self.config.faults;
        let Some(known) = self.workers.find_mut(worker) else {
            return;
        };
        known.faults += 1;
        if known.barred || known.faults < most || known.faults * 100 < known.tasks_done {
            return;
        }
        known.barred = true;
        self.release_all(worker);
        for in_run in &mut self.runs {
            if !matches!(in_run.state, RunState::Running | RunState::Paused) {
                continue;
            }
            for task in 0..TaskIx::try_from(in_run.tasks.len()).expect("at most MAX_TASKS") {
                let doubtful = in_run
                    .tasks
                    .done(task)
                    .is_some_and(|done| done.worker == worker && !done.confirmed);
                if doubtful && !in_run.rechecking.contains(&task) {
                    in_run.rechecks.insert(task);
                    in_run.announced = false;
                }
            }
        }
    }

    pub(super) fn why_barred(&self, worker: WorkerIx) -> String {
        let known = self.workers.get(worker);
        format!(
            "{} counts of this worker were wrong, so it gets no more work: check the machine's \
             memory and cooling, then restart the coordinator or give the worker a new spool",
            known.faults
        )
    }

    /// Tells the owner, once, that a run has all its counts.
    pub(super) fn announce_if_done(&mut self, run: RunIx) {
        let in_run = &mut self.runs[run];
        let open = matches!(in_run.state, RunState::Running | RunState::Paused);
        if open && !in_run.announced && in_run.all_done() {
            in_run.announced = true;
            self.finished.push_back(in_run.manifest.run);
        }
    }

    /// Puts a worker's counts, found on disk as contradicting, back.
    pub(super) fn restore_reports(
        &mut self,
        (run, task): LeaseKey,
        counts: Vec<(u64, WorkerId, common::kernel::KernelName)>,
    ) {
        let reports = counts
            .into_iter()
            .map(|(count, worker, kernel)| Report {
                count,
                worker: self.workers.pinned(worker),
                how: Some(How {
                    kernel,
                    orientation: Orientation::Upright,
                }),
            })
            .collect();
        let in_run = &mut self.runs[run];
        in_run.conflicts += 1;
        in_run.enter(task, Stage::Quarantined);
        in_run.odd.entry(task).or_default().reports = reports;
    }
}
