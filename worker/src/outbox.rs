//! Finished partials on their way to the coordinator: in memory until acknowledged, and copied to
//! the spool by a thread of its own, so that the disk never holds counting up.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use common::run::Partial;

use crate::{lease::LeaseKey, spool::Spool};

/// Results that are acknowledged sooner than this are never written: to lose such a result in a
/// crash costs no more than the work of the moment.
const LINGER: Duration = Duration::from_millis(100);

/// How long a spool that could not be written is left alone.
const RETRY: Duration = Duration::from_secs(10);

/// Partials that nobody has answered for. Bounded by the number of leases a worker may hold.
#[derive(Debug)]
pub(crate) struct Outbox {
    waiting: BTreeMap<LeaseKey, Partial>,
    writer: Option<Writer>,
}

#[derive(Debug)]
struct Writer {
    orders: Sender<Order>,
    /// Ends with the leases whose partials are not on the disk.
    thread: JoinHandle<BTreeSet<LeaseKey>>,
    /// Set by the thread while the spool cannot be written.
    failing: Arc<AtomicBool>,
}

impl Writer {
    fn works(&self) -> bool {
        !self.thread.is_finished() && !self.failing.load(Relaxed)
    }
}

enum Order {
    Keep(Partial),
    Forget(LeaseKey),
}

impl Outbox {
    /// An outbox that begins with what `spool` kept, or an empty one in memory alone.
    pub(crate) fn new(spool: Option<Spool>) -> std::io::Result<Self> {
        let mut waiting = BTreeMap::new();
        let mut writer = None;
        if let Some(spool) = spool {
            waiting.extend(spool.unacknowledged().map(|p| (LeaseKey::of(p), *p)));
            let (orders, received) = channel();
            let failing = Arc::new(AtomicBool::new(false));
            let spool_writer = SpoolWriter::new(spool, failing.clone());
            let thread = Builder::new()
                .name("spool".to_owned())
                .spawn(move || spool_writer.run(&received))?;
            writer = Some(Writer {
                orders,
                thread,
                failing,
            });
        }
        Ok(Self { waiting, writer })
    }

    /// Keeps a partial until it is acknowledged.
    pub(crate) fn put(&mut self, partial: Partial) {
        self.waiting.insert(LeaseKey::of(&partial), partial);
        self.order(Order::Keep(partial));
    }

    /// Drops an acknowledged partial, if it is here.
    pub(crate) fn acknowledge(&mut self, lease: LeaseKey) -> Option<Partial> {
        let partial = self.waiting.remove(&lease)?;
        self.order(Order::Forget(lease));
        Some(partial)
    }

    /// What waits, in order of tasks.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Partial> {
        self.waiting.values()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether this lease's partial waits.
    pub(crate) fn contains(&self, lease: &LeaseKey) -> bool {
        self.waiting.contains_key(lease)
    }

    /// Whether what waits survives this process (once [`Outbox::close`] has run).
    pub(crate) fn is_on_disk(&self) -> bool {
        self.writer.as_ref().is_some_and(Writer::works)
    }

    fn order(&self, order: Order) {
        if let Some(writer) = &self.writer {
            // A writer that is gone has panicked; memory still holds all, and `is_on_disk` and
            // `close` say what that means.
            let _ = writer.orders.send(order);
        }
    }

    /// Writes what is not yet written, and ends. How many partials are lost with this process:
    /// those that wait and are not on the disk. Blocks on the disk.
    pub(crate) fn close(self) -> usize {
        let Some(Writer { orders, thread, .. }) = self.writer else {
            return self.waiting.len();
        };
        drop(orders);
        match thread.join() {
            Ok(unwritten) => self
                .waiting
                .keys()
                .filter(|lease| unwritten.contains(lease))
                .count(),
            Err(_) => {
                tracing::error!("the spool's thread panicked; what it held may be lost");
                self.waiting.len()
            }
        }
    }
}

/// The spool's thread: collects orders for a moment and carries them out together.
struct SpoolWriter {
    spool: Spool,
    keep: BTreeMap<LeaseKey, Partial>,
    forget: Vec<LeaseKey>,
    /// Handed to a spool that could not be written, and not yet on the disk.
    unwritten: BTreeSet<LeaseKey>,
    /// Set while the spool cannot be written.
    failing: Arc<AtomicBool>,
}

impl SpoolWriter {
    fn new(spool: Spool, failing: Arc<AtomicBool>) -> Self {
        Self {
            spool,
            keep: BTreeMap::new(),
            forget: Vec::new(),
            unwritten: BTreeSet::new(),
            failing,
        }
    }

    fn failing(&self) -> bool {
        self.failing.load(Relaxed)
    }

    fn run(mut self, orders: &Receiver<Order>) -> BTreeSet<LeaseKey> {
        while let Some(first) = self.first(orders) {
            if let Some(order) = first {
                self.note(order);
                self.collect(orders);
            }
            self.write();
        }
        self.write();
        self.unwritten
    }

    /// The next order; nothing where there is something to try again; `None` at the end.
    fn first(&self, orders: &Receiver<Order>) -> Option<Option<Order>> {
        if self.failing() {
            match orders.recv_timeout(RETRY) {
                Ok(order) => Some(Some(order)),
                Err(RecvTimeoutError::Timeout) => Some(None),
                Err(RecvTimeoutError::Disconnected) => None,
            }
        } else {
            orders.recv().ok().map(Some)
        }
    }

    /// Notes what else comes in a moment.
    fn collect(&mut self, orders: &Receiver<Order>) {
        let until = Instant::now() + if self.failing() { RETRY } else { LINGER };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match orders.recv_timeout(left) {
                Ok(order) => self.note(order),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn note(&mut self, order: Order) {
        match order {
            Order::Keep(partial) => {
                self.keep.insert(LeaseKey::of(&partial), partial);
            }
            Order::Forget(lease) => {
                if self.keep.remove(&lease).is_none() {
                    self.forget.push(lease);
                }
            }
        }
    }

    fn write(&mut self) {
        let keep: Vec<Partial> = std::mem::take(&mut self.keep).into_values().collect();
        let forget = std::mem::take(&mut self.forget);
        if keep.is_empty() && forget.is_empty() && !self.failing() {
            return;
        }
        let directory = self.spool.directory().display().to_string();
        match self.spool.keep(&keep, &forget) {
            Ok(()) => {
                self.unwritten.clear();
                if self.failing.swap(false, Relaxed) {
                    tracing::info!(
                        "spool {directory} can be written again; every result is on disk"
                    );
                }
            }
            Err(error) => {
                self.unwritten.extend(keep.iter().map(LeaseKey::of));
                if !self.failing.swap(true, Relaxed) {
                    tracing::error!(
                        "spool {directory}: {error}; results are kept in memory until the \
                         coordinator has them or the disk has room: do not kill this worker, stop it"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use common::run::WorkerId;

    use super::*;
    use crate::testing::sample_partial;

    fn open(path: &std::path::Path) -> Outbox {
        Outbox::new(Some(Spool::open(path, WorkerId(1)).unwrap())).unwrap()
    }

    fn tasks(outbox: &Outbox) -> Vec<u64> {
        outbox.waiting().map(|p| p.task.task.0).collect()
    }

    #[test]
    fn what_is_not_acknowledged_comes_back_in_the_next_life() {
        let home = tempfile::tempdir().unwrap();
        let mut outbox = open(home.path());
        for task in 0..6 {
            outbox.put(sample_partial(task, 1));
        }
        let lease = |task| LeaseKey::of(&sample_partial(task, 1));
        assert_eq!(outbox.acknowledge(lease(2)), Some(sample_partial(2, 1)));
        assert_eq!(outbox.acknowledge(lease(2)), None);
        assert!(outbox.contains(&lease(3)) && !outbox.contains(&lease(2)));
        outbox.close();
        let mut outbox = open(home.path());
        assert_eq!(tasks(&outbox), [0, 1, 3, 4, 5]);
        // Also across lives: the acknowledgement of a result that an earlier life had written.
        outbox.acknowledge(lease(4)).unwrap();
        outbox.close();
        assert_eq!(tasks(&open(home.path())), [0, 1, 3, 5]);
    }

    #[test]
    fn without_a_spool_memory_is_all_there_is() {
        let mut outbox = Outbox::new(None).unwrap();
        outbox.put(sample_partial(1, 1));
        assert_eq!((tasks(&outbox), outbox.len()), (vec![1], 1));
        assert!(!outbox.is_on_disk());
        assert_eq!(outbox.close(), 1, "it is lost");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_a_full_disk_did_not_take_is_lost_and_told() {
        let home = tempfile::tempdir().unwrap();
        let mut earlier = open(home.path());
        earlier.put(sample_partial(1, 1));
        assert_eq!(earlier.close(), 0);
        let mut spool = Spool::open(home.path(), WorkerId(1)).unwrap();
        spool.fill_disk();
        let mut outbox = Outbox::new(Some(spool)).unwrap();
        assert!(outbox.is_on_disk());
        (2..5).for_each(|task| outbox.put(sample_partial(task, 1)));
        while outbox.is_on_disk() {
            std::thread::yield_now();
        }
        let third = LeaseKey::of(&sample_partial(3, 1));
        outbox.acknowledge(third).unwrap();
        assert_eq!(outbox.close(), 2, "tasks 2 and 4");
    }

    #[test]
    fn a_dead_spool_thread_keeps_nothing() {
        let mut outbox = Outbox::new(None).unwrap();
        let (orders, received) = channel();
        outbox.writer = Some(Writer {
            orders,
            thread: std::thread::spawn(move || {
                let _gone = received;
                panic!("the spool's thread has a fault")
            }),
            failing: Arc::default(),
        });
        outbox.put(sample_partial(1, 1));
        while outbox.is_on_disk() {
            std::thread::yield_now();
        }
        assert_eq!(outbox.close(), 1);
    }
}
