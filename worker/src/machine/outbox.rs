//! Finished partials on their way to the coordinator: in memory until acknowledged, and in the spool
//! if that takes a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use common::run::Partial;

use super::LeaseKey;

/// Results that are acknowledged sooner than this are never written: to lose such a result in a
/// crash costs no more than the work of the moment.
const LINGER: Duration = Duration::from_millis(100);

/// How long a spool that could not be written is left alone.
const RETRY: Duration = Duration::from_secs(10);

/// What the spool is to hold from now on, in one write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpoolWrite {
    /// These as well.
    pub keep: Vec<Partial>,
    /// These no more.
    pub forget: Vec<LeaseKey>,
}

/// Partials that nobody has answered for. Bounded by the number of leases a worker may hold.
#[derive(Debug)]
pub(super) struct Outbox {
    waiting: BTreeMap<LeaseKey, Partial>,
    /// Those that the call on its way carries.
    sending: BTreeSet<LeaseKey>,
    spool: Option<Spooling>,
}

/// What the spool has, and what it should have.
#[derive(Debug, Default)]
struct Spooling {
    /// Never handed to the spool.
    fresh: BTreeSet<LeaseKey>,
    /// Handed to it, and it failed.
    failed: BTreeSet<LeaseKey>,
    /// Acknowledged after they were handed to it.
    forget: BTreeSet<LeaseKey>,
    /// What the write under way holds.
    writing: Option<SpoolWrite>,
    /// The last write failed.
    failing: bool,
    /// When the next one is due, if there is something to write.
    due: Option<Instant>,
}

impl Outbox {
    /// An outbox that begins with what a spool kept; one in memory alone where there is no spool.
    pub(super) fn new(kept: Option<Vec<Partial>>) -> Self {
        let spool = kept.as_ref().map(|_| Spooling::default());
        let kept = kept.unwrap_or_default();
        Self {
            waiting: kept.into_iter().map(|p| (LeaseKey::of(&p), p)).collect(),
            sending: BTreeSet::new(),
            spool,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn contains(&self, lease: &LeaseKey) -> bool {
        self.waiting.contains_key(lease)
    }

    /// Keeps a partial until it is acknowledged.
    pub(super) fn put(&mut self, partial: Partial, now: Instant) {
        let lease = LeaseKey::of(&partial);
        self.waiting.insert(lease, partial);
        if let Some(spool) = &mut self.spool {
            spool.fresh.insert(lease);
            // Counted once more after an answer: what was to be forgotten is news.
            spool.forget.remove(&lease);
            spool.due.get_or_insert(now + LINGER);
        }
    }

    /// The first `most`, in order of tasks, to be sent now; and the leases of the others.
    pub(super) fn send(&mut self, most: usize) -> (Vec<Partial>, Vec<LeaseKey>) {
        let mut waiting = self.waiting.values();
        let now: Vec<Partial> = waiting.by_ref().take(most).copied().collect();
        let later = waiting.map(LeaseKey::of).collect();
        self.sending = now.iter().map(LeaseKey::of).collect();
        (now, later)
    }

    /// What was sent last may not have arrived.
    pub(super) fn lost(&mut self) {
        self.sending.clear();
    }

    /// Drops a partial that was sent last and is answered for. Whether there was one.
    pub(super) fn acknowledge(&mut self, lease: LeaseKey, now: Instant) -> bool {
        if !self.sending.contains(&lease) || self.waiting.remove(&lease).is_none() {
            return false;
        }
        if let Some(spool) = &mut self.spool {
            spool.forget(lease, now);
        }
        true
    }

    /// Whether what waits survives this process, once the last write is carried out.
    pub(super) fn is_safe(&self) -> bool {
        self.waiting.is_empty() || self.spool.as_ref().is_some_and(|spool| !spool.failing)
    }

    /// How many would be lost if the process ended now.
    pub(super) fn unkept(&self) -> usize {
        match &self.spool {
            None => self.waiting.len(),
            Some(spool) => {
                let on_disk = |lease: &&LeaseKey| !spool.is_unwritten(lease);
                self.waiting.len() - self.waiting.keys().filter(on_disk).count()
            }
        }
    }

    /// When [`Self::poll_write`] has something, if nothing else happens.
    pub(super) fn write_at(&self) -> Option<Instant> {
        let spool = self.spool.as_ref()?;
        spool.due.filter(|_| spool.writing.is_none())
    }

    /// What is to be written now, whose end is then to be told.
    pub(super) fn poll_write(&mut self, now: Instant) -> Option<SpoolWrite> {
        self.write_at().filter(|due| *due <= now)?;
        self.write()
    }

    /// What is to be written before the process ends, however young it is.
    pub(super) fn poll_last_write(&mut self) -> Option<SpoolWrite> {
        let spool = self.spool.as_ref()?;
        let nothing = spool.fresh.is_empty() && spool.failed.is_empty() && spool.forget.is_empty();
        if nothing || spool.writing.is_some() {
            return None;
        }
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

    /// The write under way has ended; after a failure it is tried again.
    pub(super) fn written(&mut self, succeeded: bool, now: Instant) {
        let waiting = &self.waiting;
        let Some(spool) = &mut self.spool else {
            return;
        };
        let Some(write) = spool.writing.take() else {
            return;
        };
        spool.failing = !succeeded;
        if succeeded {
            return;
        }
        let waits = |lease: &LeaseKey| waiting.contains_key(lease);
        let unwritten = write.keep.iter().map(LeaseKey::of).filter(waits);
        spool.failed.extend(unwritten);
        let gone = write.forget.into_iter().filter(|lease| !waits(lease));
        spool.forget.extend(gone);
        spool.due = Some(now + RETRY);
    }

    /// There is no spool any more.
    pub(super) fn lose_spool(&mut self) {
        self.spool = None;
    }
}

impl Spooling {
    fn forget(&mut self, lease: LeaseKey, now: Instant) {
        if !self.fresh.remove(&lease) {
            self.failed.remove(&lease);
            self.forget.insert(lease);
            self.due.get_or_insert(now + LINGER);
        } else if self.is_idle() {
            self.due = None;
        }
    }

    /// Whether nothing is to be written, nor to be tried.
    fn is_idle(&self) -> bool {
        let nothing = self.fresh.is_empty() && self.failed.is_empty() && self.forget.is_empty();
        nothing && !self.failing
    }

    fn is_unwritten(&self, lease: &LeaseKey) -> bool {
        let writes = |write: &SpoolWrite| write.keep.iter().any(|p| LeaseKey::of(p) == *lease);
        self.fresh.contains(lease)
            || self.failed.contains(lease)
            || self.writing.as_ref().is_some_and(writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample_partial;

    fn lease(task: u64) -> LeaseKey {
        LeaseKey::of(&sample_partial(task, 1))
    }

    fn outbox(tasks: impl IntoIterator<Item = u64>, now: Instant) -> Outbox {
        let mut outbox = Outbox::new(Some(Vec::new()));
        for task in tasks {
            outbox.put(sample_partial(task, 1), now);
        }
        outbox
    }

    fn write(keep: &[u64], forget: &[u64]) -> SpoolWrite {
        SpoolWrite {
            keep: keep.iter().map(|task| sample_partial(*task, 1)).collect(),
            forget: forget.iter().map(|task| lease(*task)).collect(),
        }
    }

    #[test]
    fn what_was_sent_and_answered_is_dropped_and_nothing_else() {
        let now = Instant::now();
        let mut outbox = outbox(0..4, now);
        let (sent, later) = outbox.send(2);
        assert_eq!(sent, [sample_partial(0, 1), sample_partial(1, 1)]);
        assert_eq!(later, [lease(2), lease(3)]);
        assert!(outbox.acknowledge(lease(1), now));
        assert!(!outbox.acknowledge(lease(1), now), "twice");
        assert!(!outbox.acknowledge(lease(2), now), "it was not sent");
        assert!(outbox.contains(&lease(0)) && !outbox.contains(&lease(1)));
        assert_eq!(outbox.len(), 3);
        outbox.lost();
        assert!(!outbox.acknowledge(lease(0), now), "of an older call");
        assert_eq!(outbox.send(9).0.len(), 3);
        assert!(outbox.acknowledge(lease(0), now));
    }

    #[test]
    fn results_that_are_soon_acknowledged_are_never_written() {
        let now = Instant::now();
        let mut outbox = outbox(0..2, now);
        assert_eq!(outbox.write_at(), Some(now + LINGER));
        assert_eq!(outbox.poll_write(now), None);
        outbox.send(9);
        outbox.acknowledge(lease(0), now);
        assert_eq!(outbox.write_at(), Some(now + LINGER), "the other one waits");
        outbox.acknowledge(lease(1), now);
        assert_eq!(outbox.write_at(), None);
        assert_eq!(outbox.poll_write(now + RETRY), None);
        assert_eq!(outbox.poll_last_write(), None);
    }

    #[test]
    fn what_waits_is_written_once_and_forgotten_when_acknowledged() {
        let now = Instant::now();
        let mut outbox = outbox(0..2, now);
        let due = now + LINGER;
        outbox.put(sample_partial(2, 1), due);
        assert_eq!(outbox.write_at(), Some(due), "the oldest decides");
        assert_eq!(outbox.poll_write(due), Some(write(&[0, 1, 2], &[])));
        outbox.put(sample_partial(3, 1), due);
        assert_eq!(outbox.write_at(), None, "one write at a time");
        assert_eq!(outbox.poll_last_write(), None);
        assert_eq!((outbox.unkept(), outbox.is_safe()), (4, true));
        outbox.written(true, due);
        assert_eq!(outbox.unkept(), 1);
        outbox.send(9);
        outbox.acknowledge(lease(1), due);
        assert_eq!(outbox.write_at(), Some(due + LINGER));
        assert_eq!(outbox.poll_last_write(), Some(write(&[3], &[1])));
        outbox.written(true, due);
        assert_eq!((outbox.unkept(), outbox.len()), (0, 3));
        assert_eq!(outbox.write_at(), None);
        outbox.acknowledge(lease(3), due);
        assert_eq!(outbox.write_at(), Some(due + LINGER), "to be forgotten");
        assert_eq!(outbox.poll_write(due + LINGER), Some(write(&[], &[3])));
    }

    #[test]
    fn a_failed_write_is_tried_again_with_all_that_it_held() {
        let now = Instant::now();
        let mut outbox = outbox(0..3, now);
        outbox.send(9);
        let due = now + LINGER;
        assert_eq!(outbox.poll_write(due), Some(write(&[0, 1, 2], &[])));
        // Acknowledged while it is written.
        outbox.acknowledge(lease(0), due);
        outbox.written(false, due);
        assert!(!outbox.is_safe());
        assert_eq!(outbox.unkept(), 2);
        // And while it is failing: who knows what the disk holds.
        outbox.acknowledge(lease(1), due);
        assert_eq!(outbox.write_at(), Some(due + RETRY));
        let again = due + RETRY;
        assert_eq!(outbox.poll_write(again), Some(write(&[2], &[0, 1])));
        outbox.written(false, again);
        let third = again + RETRY;
        assert_eq!(outbox.poll_write(third), Some(write(&[2], &[0, 1])));
        outbox.written(true, third);
        assert!(outbox.is_safe());
        assert_eq!((outbox.unkept(), outbox.write_at()), (0, None));
    }

    #[test]
    fn a_spool_that_failed_is_tried_though_nothing_is_left_to_write() {
        let now = Instant::now();
        let mut outbox = outbox([], now);
        outbox.put(sample_partial(0, 1), now);
        outbox.send(9);
        outbox.poll_write(now + LINGER).unwrap();
        outbox.written(false, now);
        outbox.put(sample_partial(1, 1), now);
        outbox.send(9);
        outbox.acknowledge(lease(1), now);
        outbox.acknowledge(lease(0), now);
        assert!(outbox.is_safe(), "nothing waits");
        assert_eq!(outbox.write_at(), Some(now + RETRY));
        assert_eq!(outbox.poll_write(now + RETRY), Some(write(&[], &[0])));
        // An answer that nobody waits for changes nothing.
        outbox.written(true, now);
        outbox.written(false, now);
        assert_eq!(outbox.write_at(), None);
    }

    #[test]
    fn what_a_spool_kept_is_there_and_written_already() {
        let now = Instant::now();
        let mut outbox = Outbox::new(Some(vec![sample_partial(5, 1), sample_partial(4, 1)]));
        assert_eq!((outbox.len(), outbox.unkept()), (2, 0));
        assert_eq!(outbox.write_at(), None);
        outbox.send(9);
        outbox.acknowledge(lease(4), now);
        assert_eq!(outbox.poll_write(now + LINGER), Some(write(&[], &[4])));
    }

    #[test]
    fn while_one_is_written_the_others_on_disk_are_kept() {
        let now = Instant::now();
        let mut outbox = Outbox::new(Some([4, 5, 6].map(|task| sample_partial(task, 1)).into()));
        outbox.put(sample_partial(1, 1), now);
        outbox.poll_write(now + LINGER).unwrap();
        assert_eq!((outbox.len(), outbox.unkept()), (4, 1));
    }

    #[test]
    fn a_result_that_comes_again_after_its_answer_is_kept() {
        let now = Instant::now();
        let mut outbox = Outbox::new(Some(vec![sample_partial(5, 1)]));
        outbox.send(9);
        outbox.acknowledge(lease(5), now);
        outbox.put(sample_partial(5, 1), now);
        assert_eq!(outbox.poll_last_write(), Some(write(&[5], &[])));
        outbox.written(true, now);
        outbox.send(9);
        outbox.acknowledge(lease(5), now);
        assert_eq!(outbox.poll_last_write(), Some(write(&[], &[5])));
        // The write that forgets it is under way, and fails.
        outbox.put(sample_partial(5, 1), now);
        outbox.written(false, now);
        assert_eq!(outbox.poll_last_write(), Some(write(&[5], &[])));
    }

    #[test]
    fn without_a_spool_memory_is_all_there_is() {
        let now = Instant::now();
        let mut outbox = Outbox::new(None);
        assert!(outbox.is_safe(), "nothing can be lost");
        outbox.put(sample_partial(1, 1), now);
        assert_eq!((outbox.len(), outbox.unkept()), (1, 1));
        assert_eq!(outbox.write_at(), None);
        assert!(!outbox.is_safe());
        let mut spooled = Outbox::new(Some(vec![sample_partial(5, 1)]));
        spooled.lose_spool();
        assert_eq!((spooled.unkept(), spooled.is_safe()), (1, false));
    }
}
