//! How a run ends, and how it goes on after all.

use super::{
    super::{clock::Ticks, tasks::Stage},
    Run,
};
use crate::ledger::{Change, Recheck, RunState};

/// How a command found a run.
#[derive(Clone, Copy, Debug)]
pub(in crate::sched) struct Before {
    state: RunState,
    recheck: Recheck,
    announced: bool,
    stuck_since: Option<Ticks>,
}

impl Run {
    /// Everything is counted, nothing is disputed and no second count is awaited.
    pub(in crate::sched) fn all_done(&self) -> bool {
        self.tasks.number(Stage::Done) == self.tasks.len() && self.seconds.number() == 0
    }

    /// Its tasks are not all counted, and may be granted now or once it is resumed.
    pub(in crate::sched) fn is_open(&self) -> bool {
        matches!(self.state, RunState::Running | RunState::Paused) && !self.announced
    }

    /// Tasks are granted.
    pub(in crate::sched) fn grants(&self) -> bool {
        match self.state {
            RunState::Running => !self.announced,
            // Somebody may have come who can decide.
            RunState::Disputed => !self.contested.is_empty(),
            RunState::Paused
            | RunState::Cancelled
            | RunState::Complete
            | RunState::Contradicted => false,
        }
    }

    /// It came to an end, which a later count may undo.
    pub(in crate::sched) fn is_over(&self) -> bool {
        match self.state {
            RunState::Complete | RunState::Contradicted | RunState::Disputed => true,
            RunState::Running | RunState::Paused | RunState::Cancelled => false,
        }
    }

    /// Work that nobody holds.
    pub(in crate::sched) fn has_waiting(&self) -> bool {
        self.tasks.number(Stage::Pending) > 0
            || !self.contested.is_empty()
            || self.seconds.number_waiting() > 0
    }

    /// Completion was announced, and nothing has contradicted it since.
    pub(in crate::sched) fn is_announced(&self) -> bool {
        self.announced
    }

    /// It may come to its end: nobody has ended it, or it paused.
    pub(in crate::sched) fn is_live(&self) -> bool {
        matches!(self.state, RunState::Running | RunState::Paused)
    }

    /// Whether its owner is to be told, once, that it has all its counts.
    pub(in crate::sched) fn announce(&mut self) -> bool {
        let news = self.is_live() && !self.announced && self.all_done();
        self.announced |= news;
        news
    }

    /// Its total was checked. What is to be kept, if it still has all its counts.
    pub(in crate::sched) fn conclude(&mut self, agrees: bool) -> Option<Change> {
        let ends = self.is_live() && self.announced && self.all_done();
        let state = match agrees {
            true => RunState::Complete,
            false => RunState::Contradicted,
        };
        ends.then(|| self.change_to(state)).flatten()
    }

    /// Nobody who is there can decide what is contested. What is to be kept, unless it ended so before.
    pub(in crate::sched) fn dispute(&mut self) -> Option<Change> {
        let change = self.change_to(RunState::Disputed)?;
        self.announced = true;
        Some(change)
    }

    /// It was over, and is not: what is to be kept.
    pub(in crate::sched) fn reopen(&mut self) -> Change {
        self.announced = false;
        self.stuck_since = None;
        self.state = RunState::Running;
        Change::State {
            run: self.manifest.run,
            state: RunState::Running,
        }
    }

    /// Its new state: what is to be kept, if it is new.
    pub(in crate::sched) fn change_to(&mut self, state: RunState) -> Option<Change> {
        if self.state == state {
            return None;
        }
        self.state = state;
        let run = self.manifest.run;
        Some(Change::State { run, state })
    }

    /// Nothing of it is left to count but contested tasks, and nobody counts those.
    pub(in crate::sched) fn has_disputes_alone(&self) -> bool {
        let contested = self.contested.len() as u64;
        contested > 0
            && contested == self.tasks.number(Stage::Quarantined)
            && self.tasks.number(Stage::Done) + contested == self.tasks.len()
            && self.seconds.number() == 0
    }

    /// Since when it is stuck with those: from now on, if it was not.
    pub(in crate::sched) fn stuck_since(&mut self, now: Ticks) -> Ticks {
        *self.stuck_since.get_or_insert(now)
    }

    /// It is not stuck, or that was looked into.
    pub(in crate::sched) fn unstick(&mut self) {
        self.stuck_since = None;
    }

    /// How it is, to go back to.
    pub(in crate::sched) fn before(&self) -> Before {
        Before {
            state: self.state,
            recheck: self.recheck,
            announced: self.announced,
            stuck_since: self.stuck_since,
        }
    }

    /// It is as it was.
    pub(in crate::sched) fn go_back(&mut self, before: Before) {
        self.state = before.state;
        self.recheck = before.recheck;
        self.announced = before.announced;
        self.stuck_since = before.stuck_since;
    }
}
