//! What happens, and when.

use common::sync::{SyncReply, SyncRequest};

use super::super::{Time, coordinator::Way};

#[derive(Debug)]
pub(super) enum Event {
    Wake(usize),
    Request(Way, Box<SyncRequest>),
    Reply(Way, Box<SyncReply>),
    Crash(usize),
    Start(usize),
    Freeze(usize),
    CutOff(usize),
    Drain(usize),
    WorkerPause(usize),
    WorkerGoesOn(usize),
    Canaries(usize),
    WorkerClock(usize),
    CoordinatorCrash,
    CoordinatorStart,
    CoordinatorStep,
    DiskLoss,
    ClockLeap,
    Pause,
    Resume,
    Ghost,
}

pub(super) struct Entry {
    pub(super) at: Time,
    pub(super) serial: u64,
    pub(super) event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}
