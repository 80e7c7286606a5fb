//! When everything else is counted and nobody can decide what is contested.

use super::{
    Scheduler,
    clock::Ticks,
    grants::SCAN,
    index::{RunIx, TaskIx, WorkerIx},
    tasks::Done,
    trust::KNOWN,
};
use crate::ledger::RunState;

/// How long a run waits for somebody who can decide, once nothing else is left to do.
const PATIENCE_MS: Ticks = 60_000;

impl Scheduler {
    /// Ends runs whose counts contradict each other and that nobody who is there can decide. A worker
    /// that comes later, and has not counted the tasks, is given them all the same.
    pub(super) fn end_disputed(&mut self, now: Ticks) {
        for number in 0..self.runs.len() {
            let run = &self.runs[number];
            let live = self.workers.live() > 0;
            let waits = matches!(run.state(), RunState::Running | RunState::Disputed);
            if !waits || !run.has_disputes_alone() || !live {
                self.runs[number].unstick();
                continue;
            }
            let since = self.runs[number].stuck_since(now);
            if now < since + PATIENCE_MS {
                continue;
            }
            self.runs[number].unstick();
            if self.may_be_decided(number) || self.examine(number) {
                continue;
            }
            if let Some(change) = self.runs[number].dispute() {
                self.finished.push_back(self.runs[number].manifest().run);
                self.changes.push_back(change);
            }
        }
    }

    /// Where more machines say one thing and better known ones another, nobody can decide until some of
    /// the many are known. They become so as everybody does, by counts that others agree with: they are
    /// given some that the known ones have made. Whether there was something to give them.
    fn examine(&mut self, run: RunIx) -> bool {
        let contested = self.runs[run].contested().iter().take(SCAN);
        let pairs = contested.filter_map(|&task| self.unknown_against_known(run, task));
        let Some((unknown, known)) = pairs.into_iter().next() else {
            return false;
        };
        let by_known = |done: &Done| {
            known
                .iter()
                .any(|&by| self.workers.same_machine(by, done.worker))
                && !unknown
                    .iter()
                    .any(|&by| self.workers.same_machine(by, done.worker))
        };
        let now = self.clock.ticks();
        let tasks = self.runs[run].all_tasks();
        let done = tasks.filter_map(|task| Some((task, self.runs[run].tasks().done(task)?)));
        let mut given: Vec<_> = done.filter(|(_, done)| by_known(done)).collect();
        // Those on which two machines agree come first: who contradicts them is most likely wrong.
        given.sort_by_key(|(_, done)| std::cmp::Reverse(done.confirmed));
        given.truncate(KNOWN as usize);
        if given.is_empty() {
            return false;
        }
        if self.runs[run].is_over() {
            self.reopen(run);
        }
        let in_run = &mut self.runs[run];
        for (task, _) in given {
            in_run.want_second(task, now);
        }
        true
    }

    /// Of a contested task: workers of machines that are there and that nobody knows, who would decide
    /// it if they were known; and the known ones who contradict them.
    fn unknown_against_known(
        &self,
        run: RunIx,
        task: TaskIx,
    ) -> Option<(Vec<WorkerIx>, Vec<WorkerIx>)> {
        let support = self.support(run, task);
        let (&count, most) = support.iter().max_by_key(|(_, of)| of.machines)?;
        let mut others = support.iter().filter(|&(&other, _)| other != count);
        let opposed = others.any(|(_, of)| of.known > most.known && of.machines < most.machines);
        if !opposed {
            return None;
        }
        let reports = self.runs[run].reports(task);
        let now = self.clock.ticks();
        let voted = |worker| {
            let mut same = reports.iter().filter(|report| report.count == count);
            same.any(|report| self.workers.same_machine(report.worker, worker))
        };
        let live = self.workers.live_ones().filter(|&worker| {
            let standing = self.workers.standing(worker);
            let works = !self.workers.get(worker).draining && standing.faults() == 0;
            works
                && self.would_count(run, worker, now)
                && voted(worker)
                && !self.workers.is_known(worker)
        });
        let unknown: Vec<_> = live.collect();
        let against = reports.iter().filter(|report| report.count != count);
        let known = against.map(|report| report.worker);
        let known = known
            .filter(|&worker| self.workers.is_known(worker))
            .collect();
        (!unknown.is_empty()).then_some((unknown, known))
    }

    /// Whether any contested task could be decided by workers that are there.
    fn may_be_decided(&self, run: RunIx) -> bool {
        let mut contested = self.runs[run].contested().iter();
        contested.any(|&task| self.somebody_may_decide(run, task))
    }

    /// Whether a count of a contested task by a worker that is there could tell something new.
    pub(super) fn somebody_may_decide(&self, run: RunIx, task: TaskIx) -> bool {
        let now = self.clock.ticks();
        let mut live = self.workers.live_ones();
        live.any(|worker| self.would_count(run, worker, now) && self.may_decide(run, task, worker))
    }
}
