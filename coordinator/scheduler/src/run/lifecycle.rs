//! States of a run, and when it ends.

use super::Run;
use crate::{
    clock::Ticks,
    ledger::{Change, Recheck, RunState, Settings, Stage, tasks::TaskIx},
};

/// State of a run that commands change; restored if a command cannot be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifecycle {
    pub(crate) state: RunState,
    pub(crate) settings: Settings,
    /// Whether the run's completion was announced, and nothing that changes its checks is awaited since.
    pub(crate) is_announced: bool,
    /// Number of the rechecks that an operator asked for after the run's end and that are not all made.
    pub(crate) asked: usize,
    /// Time at which the run stalled: only disputed tasks without a referee are left.
    stalled_since: Option<Ticks>,
    /// Start of the wait for another token, and how long counting had taken by then.
    counted_since: Option<(Ticks, u64)>,
    /// Time at which no recheck was awaited either.
    pub(super) done_since: Option<Ticks>,
}

impl Lifecycle {
    pub(crate) fn of(state: RunState, settings: Settings) -> Self {
        let is_announced =
            matches!(state, RunState::Complete | RunState::Contradicted | RunState::Disputed);
        Self {
            state,
            settings,
            is_announced,
            asked: 0,
            stalled_since: None,
            counted_since: None,
            done_since: None,
        }
    }
}

impl Run {
    /// Returns whether every task is done; rechecks may be awaited.
    pub(crate) fn is_counted(&self) -> bool {
        self.tasks.number(Stage::Done) == self.tasks.size()
    }

    /// Returns whether every task is done and no recheck is awaited.
    pub(crate) fn all_done(&self) -> bool {
        self.is_counted() && self.rechecks.queue.is_empty() && self.leases.is_empty()
    }

    /// Returns whether every task is done, and no recheck waits for a worker.
    pub(crate) fn is_rechecked(&self) -> bool {
        self.is_counted() && self.rechecks.queue.is_empty()
    }

    /// Returns whether tasks of the run may be granted, now or once it is resumed.
    pub(crate) fn is_open(&self) -> bool {
        self.is_live() && !self.life.is_announced || self.is_rechecking()
    }

    /// Returns whether the run may still complete: it is running or paused.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.life.state, RunState::Running | RunState::Paused)
    }

    /// Returns whether tasks of the run are granted now.
    pub(crate) fn grants(&self) -> bool {
        match self.life.state {
            RunState::Running | RunState::Complete => !self.life.is_announced,
            // A referee may have become available.
            RunState::Disputed => !self.tasks.disputed().is_empty(),
            RunState::Paused | RunState::Cancelled | RunState::Contradicted => false,
        }
    }

    /// Returns whether counts of a complete run are checked again, while its result stays published.
    pub(crate) fn is_rechecking(&self) -> bool {
        self.life.state == RunState::Complete && !self.life.is_announced
    }

    /// Returns how many of the rechecks that an operator asked for are made, and how many were asked for.
    pub(crate) fn rechecking(&self) -> (usize, usize) {
        let left = self.awaited_rechecks() + self.tasks.disputed().len();
        let asked = self.life.asked.max(left);
        (asked - left, asked)
    }

    /// Returns whether the run has finished; a later count may reopen it.
    pub(crate) fn is_finished(&self) -> bool {
        match self.life.state {
            RunState::Complete | RunState::Contradicted | RunState::Disputed => true,
            RunState::Running | RunState::Paused | RunState::Cancelled => false,
        }
    }

    /// Returns whether the run has work that no worker holds.
    pub(crate) fn has_waiting(&self) -> bool {
        let is_waiting =
            |task: &TaskIx| !self.is_held(*task) && !self.recounts.under_way.contains_key(task);
        self.tasks.number(Stage::Pending) > 0
            || self.tasks.disputed().keys().any(is_waiting)
            || !self.rechecks.queue.is_empty()
    }

    pub(crate) fn is_announced(&self) -> bool {
        self.life.is_announced
    }

    /// Starts the wait for rechecks by another token, unless it has started; a pause ends it.
    /// Only runs that recheck all tasks wait, once no task is open.
    pub(crate) fn wait_for_tokens(&mut self, now: Ticks) {
        let counted = self.tasks.number(Stage::Done) + self.tasks.number(Stage::Disputed);
        let waits = counted == self.tasks.size() && self.life.settings.recheck == Recheck::All;
        let since = self.life.counted_since.unwrap_or((now, self.elapsed_ms()));
        let is_served = self.life.state == RunState::Running || self.is_rechecking();
        self.life.counted_since = (waits && is_served).then_some(since);
    }

    /// Returns whether the run has waited for another token as long as its tasks took.
    pub(crate) fn has_waited_for_tokens(&self, now: Ticks) -> bool {
        self.life.counted_since.is_some_and(|(since, took_ms)| now - since > took_ms)
    }

    /// Returns whether all tasks are done and something else is awaited.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_open() && (self.life.counted_since.is_some() || self.life.done_since.is_some())
    }

    /// Returns when the wait for random recounts began; sets it to now if unset.
    pub(crate) fn done_since(&mut self, now: Ticks) -> Ticks {
        *self.life.done_since.get_or_insert(now)
    }

    /// Announces the run's completion once; returns whether it did so now.
    pub(crate) fn announce(&mut self) -> bool {
        let is_due = self.is_open() && self.all_done();
        if is_due {
            (self.life.is_announced, self.life.asked) = (true, 0);
        }
        is_due
    }

    /// Applies the result of the checks of the total if the run has all its counts.
    pub(crate) fn conclude(&mut self, agrees: bool) -> Option<Change> {
        if !(self.is_live() && self.life.is_announced && self.all_done()) {
            return None;
        }
        self.change_to(if agrees { RunState::Complete } else { RunState::Contradicted })
    }

    pub(crate) fn end_disputed(&mut self) -> Option<Change> {
        let change = self.change_to(RunState::Disputed)?;
        self.life.is_announced = true;
        Some(change)
    }

    /// Continues the run after its end.
    pub(crate) fn reopen(&mut self) -> Change {
        (self.life.is_announced, self.life.asked) = (false, 0);
        self.life.stalled_since = None;
        self.life.state = RunState::Running;
        Change::State { run: self.manifest.run, state: RunState::Running }
    }

    /// Enters a state; returns the change unless the run was in that state.
    pub(crate) fn change_to(&mut self, state: RunState) -> Option<Change> {
        let before = std::mem::replace(&mut self.life.state, state);
        (before != state).then_some(Change::State { run: self.manifest.run, state })
    }

    /// Returns whether only disputed tasks are left.
    pub(crate) fn has_only_disputes(&self) -> bool {
        let disputed = self.tasks.number(Stage::Disputed);
        disputed > 0
            && self.tasks.number(Stage::Done) + disputed == self.tasks.size()
            && self.awaited_rechecks() == 0
    }

    /// Returns the number of done tasks whose recheck is awaited or in progress.
    pub(crate) fn awaited_rechecks(&self) -> usize {
        let running = self.held().filter(|&task| self.tasks.stage(task) == Stage::Done).count();
        running + self.rechecks.queue.len()
    }

    /// Returns when the run stalled; sets the time to now if unset.
    pub(crate) fn stalled_since(&mut self, now: Ticks) -> Ticks {
        *self.life.stalled_since.get_or_insert(now)
    }

    pub(crate) fn clear_stall(&mut self) {
        self.life.stalled_since = None;
    }

    pub(crate) fn life(&self) -> Lifecycle {
        self.life
    }

    /// Restores an earlier state and removes the rechecks that were added since.
    pub(crate) fn roll_back(&mut self, life: Lifecycle, added: &[TaskIx]) {
        self.life = life;
        for &task in added {
            self.remove_recheck(task);
        }
    }
}
