//! Parked tasks of a run, and the times of their retries.
//!
//! Failed attempts may be the fault of the task or of the workers: a machine that is switched off looks the
//! same. So all parked tasks are retried, one at a time. After a success the next trial starts immediately;
//! after a failure it waits twice as long.

use std::collections::{BTreeMap, BTreeSet};

use crate::{clock::Ticks, fleet::WorkerIx, ledger::tasks::TaskIx};

/// Time from the first parked task to its trial.
const MIN_TRIAL_INTERVAL_MS: Ticks = 60_000;

/// Maximum time between two trials.
const MAX_TRIAL_INTERVAL_MS: Ticks = 3_600_000;

/// Number of distinct workers whose failures park a task.
const MAX_FAILED_WORKERS: usize = 5;

/// Number of failed attempts that park a task, for clusters with few workers.
const MAX_FAILED_ATTEMPTS: usize = 20;

/// Returns whether the failed attempts of these workers are enough to park a task.
pub(crate) fn should_park(failed: &[WorkerIx]) -> bool {
    let distinct: BTreeSet<_> = failed.iter().collect();
    distinct.len() >= MAX_FAILED_WORKERS || failed.len() >= MAX_FAILED_ATTEMPTS
}

/// The failed attempts at the tasks of one run, and those that are parked.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    /// The workers of the failed attempts at each open task, in order.
    failed: BTreeMap<TaskIx, Vec<WorkerIx>>,
    tasks: BTreeSet<TaskIx>,
    /// The task that is being retried, until it is done or parked again.
    trial: Option<TaskIx>,
    /// The last task retried; trials go on after it, so that no task blocks the others.
    last: Option<TaskIx>,
    interval_ms: Ticks,
    next_at: Ticks,
}

impl Parking {
    pub(crate) fn park(&mut self, task: TaskIx, now: Ticks) {
        if self.trial == Some(task) {
            self.trial = None;
            self.interval_ms = (2 * self.interval_ms).min(MAX_TRIAL_INTERVAL_MS);
            self.next_at = now + self.interval_ms;
        } else if self.tasks.is_empty() && self.trial.is_none() {
            self.interval_ms = MIN_TRIAL_INTERVAL_MS;
            self.next_at = now + self.interval_ms;
        }
        self.tasks.insert(task);
    }

    /// Removes a task that is no longer parked.
    pub(crate) fn leave(&mut self, task: TaskIx) {
        self.tasks.remove(&task);
    }

    /// Notes that a task is done: if it was on trial, the next trial is due.
    pub(crate) fn counted(&mut self, task: TaskIx, now: Ticks) {
        if self.trial == Some(task) {
            self.trial = None;
            self.interval_ms = MIN_TRIAL_INTERVAL_MS;
            self.next_at = now;
        }
    }

    /// Starts the next trial if its time has come; returns the task.
    pub(crate) fn next_trial(&mut self, now: Ticks) -> Option<TaskIx> {
        if self.next_at > now || self.trial.is_some() {
            return None;
        }
        let after = self.last.map_or(0, |last| last.saturating_add(1));
        let next = self.tasks.range(after..).next().or(self.tasks.first());
        self.trial = next.copied();
        self.last = self.trial;
        self.trial
    }

    /// Forgets the trial, and the failures of its task and all parked ones; returns the parked tasks.
    pub(crate) fn free_all(&mut self) -> Vec<TaskIx> {
        if let Some(task) = self.trial.take() {
            self.failed.remove(&task);
        }
        self.last = None;
        self.failed.retain(|task, _| !self.tasks.contains(task));
        self.tasks.iter().copied().collect()
    }

    /// Returns the workers of a task's failed attempts.
    pub(crate) fn failed(&self, task: TaskIx) -> &[WorkerIx] {
        self.failed.get(&task).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn note_failed(&mut self, task: TaskIx, worker: WorkerIx) {
        self.failed.entry(task).or_default().push(worker);
    }

    /// Forgets the failed attempts at a task that has a count.
    pub(crate) fn forget_failed(&mut self, task: TaskIx) {
        self.failed.remove(&task);
    }

    /// Returns the start of the next trial; `None` during one or without parked tasks.
    pub(crate) fn next_trial_at(&self) -> Option<Ticks> {
        (!self.tasks.is_empty() && self.trial.is_none()).then_some(self.next_at)
    }

    pub(crate) fn on_trial(&self) -> Option<TaskIx> {
        self.trial
    }

    pub(crate) fn tasks(&self) -> &BTreeSet<TaskIx> {
        &self.tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_task_does_not_postpone_the_first_trial() {
        let mut parking = Parking::default();
        parking.park(3, 0);
        parking.park(5, MIN_TRIAL_INTERVAL_MS / 2);
        assert_eq!(parking.next_trial_at(), Some(MIN_TRIAL_INTERVAL_MS));
        assert_eq!(parking.next_trial(MIN_TRIAL_INTERVAL_MS), Some(3));
    }

    #[test]
    fn one_task_is_retried_at_a_time_and_a_bad_one_only_delays_the_others() {
        let mut parking = Parking::default();
        assert_eq!(parking.next_trial(0), None);
        for task in [3, 5, 9] {
            parking.park(task, 1_000);
        }
        assert_eq!(parking.next_trial(MIN_TRIAL_INTERVAL_MS), None);
        let mut now = 1_000 + MIN_TRIAL_INTERVAL_MS;
        assert_eq!(parking.next_trial(now), Some(3));
        assert_eq!(parking.on_trial(), Some(3));
        parking.leave(3);
        assert_eq!((parking.next_trial(now), parking.next_trial_at()), (None, None));
        // The trial fails: the next one waits twice as long and is of another task.
        parking.park(3, now);
        assert_eq!(parking.next_trial_at(), Some(now + 2 * MIN_TRIAL_INTERVAL_MS));
        now += 2 * MIN_TRIAL_INTERVAL_MS;
        assert_eq!(parking.next_trial(now), Some(5));
        parking.leave(5);
        parking.counted(5, now);
        assert_eq!(parking.next_trial(now), Some(9));
        parking.leave(9);
        parking.counted(9, now);
        // Only the failing task remains: its trials are at most an hour apart.
        for _ in 0..20 {
            now = parking.next_trial_at().expect("another trial");
            assert_eq!(parking.next_trial(now), Some(3));
            parking.leave(3);
            parking.park(3, now);
        }
        assert_eq!(parking.next_trial_at(), Some(now + MAX_TRIAL_INTERVAL_MS));
        assert_eq!(parking.free_all(), [3]);
        assert_eq!(parking.on_trial(), None);
        // The task on trial is not parked, and its failures are forgotten too.
        now = parking.next_trial_at().expect("another trial");
        assert_eq!(parking.next_trial(now), Some(3));
        parking.leave(3);
        parking.note_failed(3, 1);
        assert!(parking.free_all().is_empty());
        assert_eq!((parking.failed(3), parking.on_trial()), (&[][..], None));
    }
}
