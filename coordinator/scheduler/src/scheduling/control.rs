//! Commands of operators, for runs and for workers.

use common::messages::run::{RunId, WorkerId};

use super::{Scheduler, leases::LeaseEnd};
use crate::{
    clock::Millis,
    fleet::RunIx,
    ledger::{Change, Confirmation, Recheck, RunState, Trust, tasks::TaskIx},
    run::{Lifecycle, Run},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Grant nothing; results are accepted.
    Pause,
    /// Grant tasks again.
    Resume,
    /// Cancel the run; its records are kept.
    Cancel,
    /// Retry all parked tasks now; a run that ended disputed continues.
    Unpark,
    /// Set the part to recheck, including done tasks. A complete run stays complete meanwhile.
    Recheck(Recheck),
    /// Set the priority; granted leases stay.
    Priority(i32),
}

/// A command that cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    #[error("run {0} not found")]
    NoSuchRun(RunId),
    #[error("run {0} is finished")]
    Finished(RunId),
    #[error(
        "run {0} was cancelled and cannot be continued: a new submission counts from the start"
    )]
    Cancelled(RunId),
    #[error("run {0} is not finished: cancel it first")]
    Live(RunId),
}

/// State of a run before a command.
#[derive(Debug)]
pub(super) struct Undo {
    run: RunIx,
    before: Lifecycle,
    /// Tasks whose recheck the command added.
    added: Vec<TaskIx>,
}

impl Scheduler {
    /// Applies an operator's command; repeating it has no effect.
    pub fn control(
        &mut self,
        run: RunId,
        command: Command,
        now: Millis,
    ) -> Result<RunState, ControlError> {
        self.advance(now);
        let &number = self.by_id.get(&run).ok_or(ControlError::NoSuchRun(run))?;
        let before = self.runs[number].state();
        let life = self.runs[number].life();
        self.undo = Some(Undo { run: number, before: life, added: Vec::new() });
        let is_finished = self.runs[number].is_finished();
        let after = match command {
            Command::Cancel if before == RunState::Cancelled => return Ok(before),
            _ if before == RunState::Cancelled => return Err(ControlError::Cancelled(run)),
            Command::Recheck(recheck) => {
                self.set_recheck(number, recheck);
                return Ok(self.runs[number].state());
            }
            Command::Unpark if before == RunState::Disputed => {
                self.unpark(number);
                self.reopen(number);
                return Ok(RunState::Running);
            }
            _ if is_finished => return Err(ControlError::Finished(run)),
            Command::Unpark => {
                self.unpark(number);
                before
            }
            Command::Priority(priority) => {
                self.runs[number].set_priority(priority);
                self.note_settings(number);
                self.sort_runs();
                before
            }
            Command::Pause => RunState::Paused,
            Command::Resume => RunState::Running,
            Command::Cancel => RunState::Cancelled,
        };
        self.changes.extend(self.runs[number].change_to(after));
        match after {
            RunState::Cancelled => self.drop_leases(number),
            RunState::Paused => self.return_unstarted(number),
            _ => {}
        }
        Ok(after)
    }

    /// Undoes the last command, which could not be stored.
    /// Leases that it ended are adopted when their workers name them again.
    pub fn undo_command(&mut self) {
        if let Some(Undo { run, before, added }) = self.undo.take() {
            self.runs[run].roll_back(before, &added);
            self.sort_runs();
        }
    }

    fn note_settings(&mut self, run: RunIx) {
        let in_run = &self.runs[run];
        let (run, settings) = (in_run.manifest.run, in_run.settings());
        self.changes.push_back(Change::Settings { run, settings });
    }

    fn unpark(&mut self, run: RunIx) {
        for task in self.runs[run].free_parked() {
            self.unpark_task(run, task);
        }
    }

    fn set_recheck(&mut self, run: RunIx, recheck: Recheck) {
        self.runs[run].set_recheck(recheck);
        self.note_settings(run);
        let least = match recheck == Recheck::All && self.snapshot().active_tokens(run).len() > 1 {
            true => Confirmation::OtherToken,
            false => Confirmation::SameToken,
        };
        let now = self.clock.ticks();
        let added = self.runs[run].add_rechecks(now, |in_run, task, done| {
            done.confirmed < least && in_run.is_selected(task)
        });
        match self.runs[run].state() {
            // The result stays published: only a referee's count can contradict it.
            RunState::Complete => self.runs[run].note_asked(added.len()),
            _ => self.reopen_if_finished(run, !added.is_empty()),
        }
        if let Some(undo) = &mut self.undo {
            undo.added = added;
        }
    }

    /// Readmits a worker after a repair.
    pub fn readmit(&mut self, worker: WorkerId) {
        let worker = self.workers.pinned(worker);
        self.workers.readmit(worker);
        self.note_trust(worker, Trust::Trusted, "an operator readmitted it");
    }

    /// Drains the current process of a worker, or revokes a package; returns whether it is connected or away.
    /// The drain is not stored: after a restart of the coordinator the worker continues.
    pub fn drain(&mut self, worker: WorkerId) -> bool {
        if let Some(away) = self.workers.find_away(worker) {
            self.release_all(away);
            self.workers.stop(away);
            return true;
        }
        let Some(known) = self.workers.find_live(worker) else { return false };
        known.drain_requested = true;
        known.draining = true;
        true
    }

    /// Returns the tasks of a paused run that no thread has started: their workers learn it at their next call.
    fn return_unstarted(&mut self, run: RunIx) {
        let in_run = &self.runs[run];
        let leases = in_run.held().flat_map(|task| {
            let leases = in_run.leases_of(task).iter();
            leases
                .filter(|(_, lease)| lease.started.is_none())
                .map(move |&(worker, _)| (worker, (run, task)))
        });
        for (worker, key) in leases.collect::<Vec<_>>() {
            self.end_lease(worker, key, LeaseEnd::Released);
        }
    }

    /// Ends all leases of a cancelled run, in memory only: the stored state implies it.
    /// Their tasks return to their queues, since the command may be undone.
    fn drop_leases(&mut self, run: RunIx) {
        let now = self.clock.ticks();
        let tasks: Vec<_> = self.runs[run].held().collect();
        for task in tasks {
            self.remove_all(run, task);
            self.runs[run].drop_leased(task, now);
        }
    }

    pub fn forget_run(&mut self, run: RunId) {
        let Some(number) = self.by_id.remove(&run) else {
            return;
        };
        self.drop_leases(number);
        self.order.retain(|other| *other != number);
        self.finished.retain(|other| *other != run);
        // The run's index stays in use: leases and workers refer to runs by index.
        self.runs[number] = Run::forgotten(self.runs[number].manifest.clone());
    }
}
