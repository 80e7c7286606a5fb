//! The coordinator's own referee: a worker in its process.

use std::collections::BTreeSet;

use super::{RunIx, Speed};

/// The coordinator's own referee.
#[derive(Debug, Default)]
pub(crate) struct Referee {
    pub(crate) threads: u32,
    pub(crate) memory_bytes: u64,
    /// Runs of which the referee could not count a task for lack of memory.
    pub(crate) given_up: BTreeSet<RunIx>,
    pub(crate) speed: Speed,
}

/// Status of the coordinator's own referee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefereeStatus {
    /// Number of threads; 0 if there is no referee.
    pub threads: u32,
    /// Whether the referee has stopped after a wrong count.
    pub broken: bool,
    /// Number of tasks in progress.
    pub counting: u64,
}
