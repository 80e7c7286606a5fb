//! Unacknowledged results: in memory, and in the spool if they wait for long.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use common::messages::run::{LeaseKey, Partial};

/// Delay of writes; most results are acknowledged earlier and need none.
const LINGER: Duration = Duration::from_millis(100);

/// Delay after a failed write.
const RETRY: Duration = Duration::from_secs(10);

/// A change of the spool in one write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpoolWrite {
    pub keep: Vec<Partial>,
    pub forget: Vec<LeaseKey>,
}

/// Results without an acknowledgement. Bounded by the number of leases of a worker.
#[derive(Debug)]
pub(super) struct Outbox {
    waiting: BTreeMap<LeaseKey, Partial>,
    /// Results that the coordinator refused and that stay in the spool; they are not sent again.
    kept: BTreeSet<LeaseKey>,
    /// Results in the current call.
    sending: BTreeSet<LeaseKey>,
    spool: Option<Spooling>,
}

/// The difference between the spool's content and what it should be.
#[derive(Debug, Default)]
struct Spooling {
    /// Results that were never written.
    fresh: BTreeSet<LeaseKey>,
    /// Results to write that may already have a line in the file.
    ///
    /// Their write failed, or the task was counted again.
    failed: BTreeSet<LeaseKey>,
    /// Written results that were acknowledged.
    forget: BTreeSet<LeaseKey>,
    writing: Option<SpoolWrite>,
    /// Whether the last write failed.
    failing: bool,
    /// Time of the next write, if there is something to write.
    due: Option<Instant>,
}

impl Outbox {
    /// Creates an outbox with the content of a spool; in memory only without one.
    pub(super) fn new(spooled: Option<Vec<Partial>>) -> Self {
        let spool = spooled.as_ref().map(|_| Spooling::default());
        let spooled = spooled.into_iter().flatten();
        let waiting = spooled.map(|p| (p.lease, p)).collect();
        Self { waiting, kept: BTreeSet::new(), sending: BTreeSet::new(), spool }
    }

    /// Returns the number of results to be sent.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() - self.kept.len()
    }

    pub(super) fn contains(&self, lease: &LeaseKey) -> bool {
        self.waiting.contains_key(lease)
    }

    /// Stores a result until it is acknowledged.
    pub(super) fn put(&mut self, partial: Partial, now: Instant) {
        let lease = partial.lease;
        self.waiting.insert(lease, partial);
        if let Some(spool) = &mut self.spool {
            // The task may be counted again before the file forgets its acknowledged count.
            let is_in_file = spool.forget.remove(&lease);
            if is_in_file { &mut spool.failed } else { &mut spool.fresh }.insert(lease);
            spool.due.get_or_insert(now + LINGER);
        }
    }

    /// Returns the first `limit` results for a call, and the leases of the others.
    pub(super) fn send(&mut self, limit: usize) -> (Vec<Partial>, Vec<LeaseKey>) {
        let mut waiting =
            self.waiting.values().filter(|partial| !self.kept.contains(&partial.lease));
        let partials: Vec<Partial> = waiting.by_ref().take(limit).copied().collect();
        let later = waiting.map(|partial| partial.lease).collect();
        self.sending = partials.iter().map(|partial| partial.lease).collect();
        (partials, later)
    }

    /// Returns whether the current call has results.
    pub(super) fn is_sending(&self) -> bool {
        !self.sending.is_empty()
    }

    /// Notes that the current call failed.
    pub(super) fn lost(&mut self) {
        self.sending.clear();
    }

    /// Drops an acknowledged result of the current call; returns whether there was one.
    pub(super) fn acknowledge(&mut self, lease: LeaseKey, now: Instant) -> bool {
        if !self.sending.contains(&lease) || self.waiting.remove(&lease).is_none() {
            return false;
        }
        if let Some(spool) = &mut self.spool {
            spool.forget(lease, now);
        }
        true
    }

    /// Keeps a refused result of the current call in the spool; returns whether there was one.
    pub(super) fn keep(&mut self, lease: LeaseKey) -> bool {
        self.sending.contains(&lease) && self.kept.insert(lease)
    }

    pub(super) fn has_spool(&self) -> bool {
        self.spool.is_some()
    }

    /// Returns whether all results survive this process after the last write.
    pub(super) fn is_safe(&self) -> bool {
        self.waiting.is_empty() || self.spool.as_ref().is_some_and(|spool| !spool.failing)
    }

    /// Returns the number of results that are not on disk.
    pub(super) fn unsaved(&self) -> usize {
        match &self.spool {
            None => self.waiting.len(),
            Some(spool) => self.waiting.keys().filter(|lease| spool.is_unwritten(lease)).count(),
        }
    }

    /// Returns when the next write is due.
    pub(super) fn write_at(&self) -> Option<Instant> {
        let spool = self.spool.as_ref()?;
        spool.due.filter(|_| spool.writing.is_none())
    }

    /// Returns the write that is due now; [`Self::written`] takes its outcome.
    pub(super) fn poll_write(&mut self, now: Instant) -> Option<SpoolWrite> {
        self.write_at().filter(|due| *due <= now)?;
        self.write()
    }

    /// Returns the write before the process ends, due or not.
    pub(super) fn poll_last_write(&mut self) -> Option<SpoolWrite> {
        self.spool.as_ref().filter(|spool| !spool.is_empty() && spool.writing.is_none())?;
        self.write()
    }

    fn write(&mut self) -> Option<SpoolWrite> {
        let spool = self.spool.as_mut()?;
        spool.due = None;
        let mut keep = std::mem::take(&mut spool.failed);
        keep.append(&mut spool.fresh);
        let write = SpoolWrite {
            keep: keep.iter().map(|lease| self.waiting[lease]).collect(),
            forget: std::mem::take(&mut spool.forget).into_iter().collect(),
        };
        spool.writing = Some(write.clone());
        Some(write)
    }

    /// Notes the end of the current write; a failed one is repeated.
    pub(super) fn written(&mut self, succeeded: bool, now: Instant) {
        let Self { waiting, spool: Some(spool), .. } = self else { return };
        let Some(write) = spool.writing.take() else { return };
        spool.failing = !succeeded;
        if succeeded {
            return;
        }
        let waits = |lease: &LeaseKey| waiting.contains_key(lease);
        let unwritten = write.keep.iter().map(|partial| partial.lease).filter(waits);
        spool.failed.extend(unwritten);
        let acknowledged = write.forget.into_iter().filter(|lease| !waits(lease));
        spool.forget.extend(acknowledged);
        spool.due = Some(now + RETRY);
    }

    /// Notes that the spool is gone.
    pub(super) fn lose_spool(&mut self) {
        self.spool = None;
    }
}

impl Spooling {
    fn forget(&mut self, lease: LeaseKey, now: Instant) {
        let may_be_in_file = self.failed.remove(&lease);
        if !self.fresh.remove(&lease) || may_be_in_file {
            self.forget.insert(lease);
            self.due.get_or_insert(now + LINGER);
        } else if self.is_empty() && !self.failing {
            self.due = None;
        }
    }

    /// Returns whether there is nothing to write.
    fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.failed.is_empty() && self.forget.is_empty()
    }

    fn is_unwritten(&self, lease: &LeaseKey) -> bool {
        let writes = |write: &SpoolWrite| write.keep.iter().any(|p| p.lease == *lease);
        self.fresh.contains(lease)
            || self.failed.contains(lease)
            || self.writing.as_ref().is_some_and(writes)
    }
}
