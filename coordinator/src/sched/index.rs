//! By which numbers the scheduler's tables name runs, tasks and workers.

/// A run's index in the scheduler.
pub(super) type RunIx = usize;

/// A task's index, below [`Plan::MAX_TASKS`](common::plan::Plan::MAX_TASKS).
pub(super) type TaskIx = u32;

/// A worker's index in [`Workers`](super::workers::Workers).
pub(super) type WorkerIx = u32;

/// Names a lease within one worker.
pub(super) type LeaseIx = (RunIx, TaskIx);
