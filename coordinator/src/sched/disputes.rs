//! When everything else is counted and nobody can decide what is contested.

use super::{
    Scheduler,
    clock::Ticks,
    run::{Run, RunIx},
    tasks::Stage,
};
use crate::ledger::{Change, RunState};

/// How long a run waits for somebody who can decide, once nothing else is left to do.
const PATIENCE_MS: Ticks = 60_000;

impl Scheduler {
    /// Ends runs whose counts contradict each other and that nobody who is there can decide. A worker
    /// that comes later, and has not counted the tasks, is given them all the same.
    pub(super) fn end_disputed(&mut self, now: Ticks) {
        for number in 0..self.runs.len() {
            let run = &self.runs[number];
            let live = self.workers.live() > 0;
            if run.state != RunState::Running || !has_disputes_alone(run) || !live {
                self.runs[number].stuck_since = None;
                continue;
            }
            let since = *self.runs[number].stuck_since.get_or_insert(now);
            if now < since + PATIENCE_MS {
                continue;
            }
            if self.may_be_decided(number) {
                self.runs[number].stuck_since = None;
                continue;
            }
            let run = &mut self.runs[number];
            run.state = RunState::Disputed;
            run.announced = true;
            self.finished.push_back(run.manifest.run);
            self.changes.push_back(Change::State {
                run: run.manifest.run,
                state: RunState::Disputed,
            });
        }
    }

    /// Whether a worker that is there could decide a contested task.
    fn may_be_decided(&self, run: RunIx) -> bool {
        let now = self.clock.ticks();
        self.runs[run].contested.iter().any(|&task| {
            let mut live = self.workers.live_ones();
            live.any(|worker| {
                !self.workers.get(worker).declines(run, now) && self.may_decide(run, task, worker)
            })
        })
    }
}

/// Nothing of the run is left to count but contested tasks, and nobody counts those.
fn has_disputes_alone(run: &Run) -> bool {
    let contested = run.contested.len() as u64;
    contested > 0
        && contested == run.tasks.number(Stage::Quarantined)
        && run.tasks.number(Stage::Done) + contested == run.tasks.len()
        && run.seconds.number() == 0
}
