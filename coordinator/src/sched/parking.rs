//! Tasks set aside after failed attempts, and when each is tried again.
//!
//! A task on which worker after worker died may be at fault, or the workers were: machines that are
//! switched off look the same from here. So nothing stays aside: one task at a time goes out on
//! trial. Where it is counted, the next follows at once; where it fails again, the next waits twice
//! as long as this one did.

use std::collections::BTreeSet;

use super::{
    clock::Ticks,
    index::{TaskIx, WorkerIx},
};

/// From the first task set aside to its trial.
const FIRST_TRIAL_MS: Ticks = 60_000;

/// Between two trials at most.
const LAST_TRIAL_MS: Ticks = 3_600_000;

/// A task on which this many distinct workers failed is parked: so many that are all at fault are seldom.
const WORKERS_FAILED: usize = 5;

/// A task that failed this often is parked, whoever failed: in a small cluster it is the same ones again.
const ATTEMPTS_FAILED: usize = 20;

/// Whether attempts by these workers, one entry an attempt, are enough to park a task.
pub(super) fn too_often(failed: &[WorkerIx]) -> bool {
    let distinct: BTreeSet<_> = failed.iter().collect();
    distinct.len() >= WORKERS_FAILED || failed.len() >= ATTEMPTS_FAILED
}

/// The parked tasks of one run.
#[derive(Debug, Default)]
pub(super) struct Parking {
    tasks: BTreeSet<TaskIx>,
    /// The task that was let out, until it is counted or parked again.
    trial: Option<TaskIx>,
    /// The task tried last: the next one is the one after it, so that a bad one delays the others
    /// and does not keep them.
    last: Option<TaskIx>,
    interval_ms: Ticks,
    next_at: Ticks,
}

impl Parking {
    pub(super) fn park(&mut self, task: TaskIx, now: Ticks) {
        if self.trial == Some(task) {
            self.trial = None;
            self.interval_ms = (2 * self.interval_ms).min(LAST_TRIAL_MS);
            self.next_at = now + self.interval_ms;
        } else if self.is_empty() {
            self.interval_ms = FIRST_TRIAL_MS;
            self.next_at = now + self.interval_ms;
        }
        self.tasks.insert(task);
    }

    /// The task is no longer parked, whatever became of it.
    pub(super) fn leave(&mut self, task: TaskIx) {
        self.tasks.remove(&task);
    }

    /// The task was counted: if it was on trial, the next one need not wait.
    pub(super) fn counted(&mut self, task: TaskIx, now: Ticks) {
        if self.trial == Some(task) {
            self.trial = None;
            self.interval_ms = FIRST_TRIAL_MS;
            self.next_at = now;
        }
    }

    /// Lets the next task out on trial, if its time has come.
    pub(super) fn next_trial(&mut self, now: Ticks) -> Option<TaskIx> {
        if self.next_at > now || self.trial.is_some() {
            return None;
        }
        let after = self.last.map_or(0, |last| last.saturating_add(1));
        let next = self.tasks.range(after..).next().or(self.tasks.first());
        self.trial = next.copied();
        self.last = self.trial;
        self.trial
    }

    /// An operator frees all of them: returns the tasks, and forgets the trial.
    pub(super) fn free_all(&mut self) -> Vec<TaskIx> {
        self.trial = None;
        self.last = None;
        self.tasks.iter().copied().collect()
    }

    /// When the next trial begins; `None` while there is nothing to try, or a trial is on.
    pub(super) fn next_trial_at(&self) -> Option<Ticks> {
        (!self.tasks.is_empty() && self.trial.is_none()).then_some(self.next_at)
    }

    /// The task on trial.
    pub(super) fn on_trial(&self) -> Option<TaskIx> {
        self.trial
    }

    pub(super) fn tasks(&self) -> &BTreeSet<TaskIx> {
        &self.tasks
    }

    fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.trial.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_later_does_not_put_the_trial_of_the_first_off() {
        let mut parking = Parking::default();
        parking.park(3, 0);
        parking.park(5, FIRST_TRIAL_MS / 2);
        assert_eq!(parking.next_trial_at(), Some(FIRST_TRIAL_MS));
        assert_eq!(parking.next_trial(FIRST_TRIAL_MS), Some(3));
    }

    #[test]
    fn one_is_tried_at_a_time_and_a_bad_one_does_not_keep_the_others() {
        let mut parking = Parking::default();
        assert_eq!(parking.next_trial(0), None);
        for task in [3, 5, 9] {
            parking.park(task, 1_000);
        }
        assert_eq!(parking.next_trial(FIRST_TRIAL_MS), None);
        let mut now = 1_000 + FIRST_TRIAL_MS;
        assert_eq!(parking.next_trial(now), Some(3));
        assert_eq!(parking.on_trial(), Some(3));
        parking.leave(3);
        assert_eq!(
            (parking.next_trial(now), parking.next_trial_at()),
            (None, None)
        );
        // It fails: the next waits twice as long, and is another.
        parking.park(3, now);
        assert_eq!(parking.next_trial_at(), Some(now + 2 * FIRST_TRIAL_MS));
        now += 2 * FIRST_TRIAL_MS;
        assert_eq!(parking.next_trial(now), Some(5));
        parking.leave(5);
        parking.counted(5, now);
        assert_eq!(parking.next_trial(now), Some(9));
        parking.leave(9);
        parking.counted(9, now);
        // The bad one alone: at most an hour apart.
        for _ in 0..20 {
            now = parking.next_trial_at().expect("it is tried for ever");
            assert_eq!(parking.next_trial(now), Some(3));
            parking.leave(3);
            parking.park(3, now);
        }
        assert_eq!(parking.next_trial_at(), Some(now + LAST_TRIAL_MS));
        assert_eq!(parking.free_all(), [3]);
        assert_eq!(parking.on_trial(), None);
    }
}
