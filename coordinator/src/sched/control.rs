//! What operators say: of runs, and of workers.

use common::run::{RunId, WorkerId};

use super::{
    Millis, Scheduler,
    index::{RunIx, TaskIx},
    run::{Before, Run},
};
use crate::ledger::{Change, Recheck, RunState, Trust};

/// An operator's word on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Hand out nothing new; results are welcome.
    Pause,
    /// Hand out tasks again.
    Resume,
    /// Give the run up; its records stay.
    Cancel,
    /// Try parked tasks again, all at once, and ask those again who could not settle a dispute.
    Unpark,
    /// Count so much of it twice from now on, what is done and what is to come; a run that is over
    /// goes on for that.
    Recheck(Recheck),
}

/// A command that a run cannot follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No run has this name.
    #[error("there is no run {0}")]
    NoSuchRun(RunId),
    /// The run is complete.
    #[error("run {0} is complete")]
    Over(RunId),
    /// The run was cancelled.
    #[error("run {0} is cancelled: submit it again")]
    Cancelled(RunId),
    /// The run is not over.
    #[error("run {0} is not over: cancel it first")]
    Live(RunId),
}

/// What [`Scheduler::take_back`] needs to make a run what it was before a command.
#[derive(Debug)]
pub(super) struct Undo {
    run: RunIx,
    before: Before,
    /// Tasks that the command drew.
    drawn: Vec<TaskIx>,
    /// Tasks whose second count it asked for.
    wanted: Vec<TaskIx>,
}

impl Scheduler {
    /// Follows an operator's command. The same command twice is no error.
    pub fn control(
        &mut self,
        run: RunId,
        command: Command,
        now: Millis,
    ) -> Result<RunState, ControlError> {
        self.advance(now);
        let &number = self.by_id.get(&run).ok_or(ControlError::NoSuchRun(run))?;
        let in_run = &self.runs[number];
        let before = in_run.state();
        self.undo = Some(Undo {
            run: number,
            before: in_run.before(),
            drawn: Vec::new(),
            wanted: Vec::new(),
        });
        match before {
            RunState::Running | RunState::Paused => {}
            RunState::Cancelled if command == Command::Cancel => return Ok(before),
            RunState::Cancelled => return Err(ControlError::Cancelled(run)),
            RunState::Complete | RunState::Contradicted | RunState::Disputed => {
                match command {
                    Command::Recheck(recheck) => self.recheck_from_now_on(number, recheck),
                    Command::Unpark if before == RunState::Disputed => {
                        self.unpark(number);
                        self.reopen(number);
                    }
                    Command::Pause | Command::Resume | Command::Cancel | Command::Unpark => {
                        return Err(ControlError::Over(run));
                    }
                }
                return Ok(self.runs[number].state());
            }
        }
        let after = match command {
            Command::Pause => RunState::Paused,
            Command::Resume => RunState::Running,
            Command::Cancel => RunState::Cancelled,
            Command::Unpark => {
                self.unpark(number);
                before
            }
            Command::Recheck(recheck) => {
                self.recheck_from_now_on(number, recheck);
                before
            }
        };
        self.changes.extend(self.runs[number].change_to(after));
        if after == RunState::Cancelled {
            self.drop_leases(number);
        }
        Ok(after)
    }

    /// The owner could not keep what the last command changed: the run is what it was before. Leases
    /// that ended are not given back; their workers name them again.
    pub fn take_back(&mut self) {
        let Some(undo) = self.undo.take() else {
            return;
        };
        let run = &mut self.runs[undo.run];
        run.go_back(undo.before);
        run.undraw(&undo.drawn, &undo.wanted);
    }

    fn unpark(&mut self, run: RunIx) {
        for task in self.runs[run].free_parked() {
            self.let_out(run, task);
        }
    }

    /// Another part of a run is counted twice.
    fn recheck_from_now_on(&mut self, run: RunIx, recheck: Recheck) {
        let name = self.runs[run].manifest().run;
        self.changes
            .push_back(Change::Recheck { run: name, recheck });
        let drawn = self.runs[run].draw_by(recheck, &self.draw);
        let wanted = self.count_again(run, |done| done.drawn && !done.confirmed.elsewhere());
        if let Some(undo) = &mut self.undo {
            undo.drawn = drawn;
            undo.wanted = wanted;
        }
    }

    /// An operator vouches for a worker again, after a repair: it gets work, and its word counts.
    pub fn trust(&mut self, worker: WorkerId) {
        let worker = self.workers.pinned(worker);
        self.workers.standing_mut(worker).trust();
        self.note_trust(worker, Trust::Trusted, "an operator vouches for it");
    }

    /// Has this process of a worker stop in good order: it is told at its next call, and gets nothing more.
    /// Whether it is there to be told. Not kept: a coordinator that starts anew knows nothing of it.
    pub fn drain(&mut self, worker: WorkerId) -> bool {
        match self.workers.find_live(worker) {
            Some(known) => {
                known.told_to_drain = true;
                known.draining = true;
                true
            }
            None => false,
        }
    }

    /// Ends every lease of a cancelled run, in memory: on disk the state says enough. What they were for
    /// is wanted as before, since the command may be taken back.
    fn drop_leases(&mut self, run: RunIx) {
        let now = self.clock.ticks();
        let tasks: Vec<_> = self.runs[run].held().keys().copied().collect();
        for task in tasks {
            let is_second = self.runs[run].seconds().running().contains(&task);
            self.remove_all(run, task);
            self.runs[run].drop_leased(task, is_second, now);
        }
    }

    /// Forgets a run that is over.
    pub fn forget_run(&mut self, run: RunId) {
        let Some(number) = self.by_id.remove(&run) else {
            return;
        };
        self.drop_leases(number);
        self.order.retain(|other| *other != number);
        self.finished.retain(|other| *other != run);
        // Its number stays taken: leases and workers name runs by it.
        self.runs[number] = Run::husk(self.runs[number].manifest().clone());
    }
}
