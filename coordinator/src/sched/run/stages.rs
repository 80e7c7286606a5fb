//! Moving tasks from stage to stage, with every set that mirrors the stages.

use common::count::Orientation;

use super::{
    super::{
        clock::Ticks,
        index::{TaskIx, WorkerIx},
        tasks::{Done, Stage},
    },
    Report, Run, id,
};
use crate::ledger::{Confirmed, Draw, Recheck};

/// First counts of workers beyond those that each is owed are compared while all of them cost no more
/// than this part of the run.
const FIRSTS_PART: u64 = 100;

impl Run {
    /// Moves a task to a stage and keeps every set that mirrors the stages.
    pub(super) fn enter(&mut self, task: TaskIx, stage: Stage) {
        let before = self.tasks.stage(task);
        if before == Stage::Done {
            self.forget_count(task);
        }
        self.leave(task, before);
        self.tasks.enter(task, self.cost(task), stage);
        match stage {
            Stage::Pending => drop(self.returned.insert(task)),
            Stage::Parked => {}
            Stage::Quarantined => {
                self.quarantined.insert(task);
                self.contested.insert(task);
            }
            Stage::Leased | Stage::Done => {}
        }
    }

    fn leave(&mut self, task: TaskIx, stage: Stage) {
        match stage {
            Stage::Pending => {
                self.returned.remove(&task);
                self.shaken.remove(&task);
            }
            Stage::Parked => self.parking.leave(task),
            Stage::Quarantined => {
                self.quarantined.remove(&task);
                self.contested.remove(&task);
            }
            Stage::Done => {
                let done = self.tasks.done(task).expect("stage is done");
                self.seconds.forget(task, done.worker);
            }
            Stage::Leased => {}
        }
    }

    /// Sets a task aside after too many failed attempts.
    pub(in crate::sched) fn park(&mut self, task: TaskIx, now: Ticks) {
        self.enter(task, Stage::Parked);
        self.parking.park(task, now);
    }

    /// Takes a count that was found on disk as the task's.
    pub(in crate::sched) fn accept(&mut self, task: TaskIx, done: Done) {
        self.leave(task, self.tasks.stage(task));
        let cost = self.cost(task);
        self.tasks.accept(task, cost, done);
        self.finished.add(done.count, cost);
        self.odd.remove(&task);
    }

    fn forget_count(&mut self, task: TaskIx) {
        if let Some(done) = self.tasks.done(task) {
            self.finished.remove(done.count, self.cost(task));
        }
    }

    /// Takes a count that has just come as the task's.
    pub(in crate::sched) fn arrive(&mut self, task: TaskIx, done: Done, now: Ticks) {
        self.accept(task, done);
        self.parking.counted(task, now);
        let cost = self.cost(task);
        self.rate.add(done.count, cost, now);
    }

    /// A second count agreed: none is wanted any more.
    pub(in crate::sched) fn confirm(&mut self, task: TaskIx, by: Confirmed) {
        self.tasks.confirm(task, by);
        self.agreed += 1;
        self.forget_second(task);
    }

    /// Another count contradicts the task's: neither counts from now on. Whether the run was over.
    pub(in crate::sched) fn contradict(
        &mut self,
        task: TaskIx,
        first: Done,
        second: Report,
    ) -> bool {
        let was_over = self.is_over();
        self.announced = false;
        self.conflicts += 1;
        self.enter(task, Stage::Quarantined);
        let reported = Report {
            count: first.count,
            worker: first.worker,
            how: first.how,
        };
        let odd = self.odd.entry(task).or_default();
        odd.agreed = first.confirmed.elsewhere().then_some(first.count);
        odd.reports = vec![reported, second];
        was_over
    }

    /// One more count of a contested task. The latest word of a worker counts, so that one who comes back
    /// to what it said moves it to the end.
    pub(in crate::sched) fn add_report(&mut self, task: TaskIx, report: Report) {
        let odd = self.odd.entry(task).or_default();
        let same =
            |other: &mut Report| (other.count, other.worker) == (report.count, report.worker);
        for before in odd.reports.extract_if(.., same) {
            odd.tried.push((before.worker, before.how.orientation));
        }
        odd.reports.push(report);
    }

    /// Contradicting counts that were found on disk, and who had agreed with the first of them.
    pub(in crate::sched) fn restore_reports(
        &mut self,
        task: TaskIx,
        reports: Vec<Report>,
        confirmed: Confirmed,
    ) {
        self.conflicts += 1;
        self.enter(task, Stage::Quarantined);
        let odd = self.odd.entry(task).or_default();
        let first = reports.first().filter(|_| confirmed.elsewhere());
        odd.agreed = first.map(|first| first.count);
        odd.reports = reports;
    }

    /// Workers whose attempts failed, found on disk.
    pub(in crate::sched) fn restore_failed(&mut self, task: TaskIx, failed: Vec<WorkerIx>) {
        if !failed.is_empty() {
            self.odd.entry(task).or_default().failed = failed;
        }
    }

    /// A worker's attempt failed.
    pub(in crate::sched) fn note_failed(&mut self, task: TaskIx, worker: WorkerIx) {
        self.odd.entry(task).or_default().failed.push(worker);
    }

    /// A worker counted a task in this way without adding anything.
    pub(in crate::sched) fn note_tried(&mut self, task: TaskIx, way: (WorkerIx, Orientation)) {
        self.odd.entry(task).or_default().tried.push(way);
    }

    /// A leased task that nobody holds any more waits again; `shaken` if a worker took it away and
    /// vanished.
    pub(in crate::sched) fn come_back(&mut self, task: TaskIx, shaken: bool) {
        self.enter(task, Stage::Pending);
        if shaken {
            self.shaken.insert(task);
        }
    }

    /// A parked task is pending again.
    pub(in crate::sched) fn let_out(&mut self, task: TaskIx) {
        self.enter(task, Stage::Pending);
    }

    /// The next parked task whose time has come, to be let out.
    pub(in crate::sched) fn next_trial(&mut self, now: Ticks) -> Option<TaskIx> {
        self.parking.next_trial(now)
    }

    /// An operator wants all parked tasks tried again and everybody asked again: returns the parked ones,
    /// to be let out. What they failed before is forgotten.
    pub(in crate::sched) fn free_parked(&mut self) -> Vec<TaskIx> {
        let parked = self.parking.free_all();
        for task in &parked {
            if let Some(odd) = self.odd.get_mut(task) {
                odd.failed.clear();
            }
        }
        for odd in self.odd.values_mut() {
            odd.tried.clear();
        }
        parked
    }

    /// Wants a second count of a done task; whether it was not wanted before.
    pub(in crate::sched) fn want_second(&mut self, task: TaskIx, now: Ticks) -> bool {
        let done = self.tasks.done(task);
        done.is_some_and(|done| self.seconds.want(task, done.worker, now))
    }

    /// A second count of a done task is not wanted any more.
    pub(in crate::sched) fn forget_second(&mut self, task: TaskIx) {
        if let Some(done) = self.tasks.done(task) {
            self.seconds.forget(task, done.worker);
        }
    }

    /// Wants second counts of all done tasks that `is_meant`. Returns those that were not wanted before;
    /// with any, the run is not counted to its end.
    pub(in crate::sched) fn want_seconds(
        &mut self,
        now: Ticks,
        is_meant: impl Fn(&Done) -> bool,
    ) -> Vec<TaskIx> {
        let mut wanted = Vec::new();
        for task in self.all_tasks() {
            let meant = self.tasks.done(task).is_some_and(|done| is_meant(&done));
            if meant && self.want_second(task, now) {
                wanted.push(task);
            }
        }
        if !wanted.is_empty() {
            self.announced = false;
        }
        wanted
    }

    /// Whether the run affords to compare this task as one of its worker's first counts, or it is `owed`
    /// in any case; if so, what it costs is noted.
    pub(in crate::sched) fn affords_first(&mut self, task: TaskIx, owed: bool) -> bool {
        let most = self.tasks.cost_of_all() / FIRSTS_PART;
        let cost = self.cost(task);
        self.recheck.compares_first_counts() && self.seconds.afford(cost, most, owed)
    }

    /// Counts so much of it twice, found on disk: before its tasks are restored.
    pub(in crate::sched) fn restore_recheck(&mut self, recheck: Recheck) {
        self.recheck = recheck;
    }

    /// Counts so much of it twice from now on; returns the done tasks that are drawn by that, and were
    /// not before.
    pub(in crate::sched) fn draw_by(&mut self, recheck: Recheck, draw: &Draw) -> Vec<TaskIx> {
        self.recheck = recheck;
        let mut drawn = Vec::new();
        for task in self.all_tasks() {
            let done = self.tasks.done(task);
            if done.is_some_and(|done| !done.drawn)
                && draw.chosen(self.manifest.run, id(task), recheck)
            {
                self.tasks.draw(task, true);
                drawn.push(task);
            }
        }
        drawn
    }

    /// The same taken back, with the second counts that it brought.
    pub(in crate::sched) fn undraw(&mut self, drawn: &[TaskIx], wanted: &[TaskIx]) {
        for &task in drawn {
            self.tasks.draw(task, false);
        }
        for &task in wanted {
            self.forget_second(task);
        }
    }
}
