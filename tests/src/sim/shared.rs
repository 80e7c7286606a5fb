//! The store that driver and simulation share, and an independent account of
//! decisions and stored changes, against which every step is checked.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use common::{
    messages::{
        run::{Epoch, LeaseKey, RunId, WorkerId},
        sync::{Grant, SyncReply, Verdict},
    },
    plan::TaskId,
    test_fixture::ExactCounts,
};
use scheduler::Scheduler;
use store::{
    Change, EntryKind, Fold, JournalCursor, JournalEntry, Recheck, RunManifest, Store, StoreError,
    StoredRun, StoredTasks, SymmetricCounts, Trust, TrustRecord,
};

use super::disk::Disk;

/// A disk that the driver and the simulation share.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<Disk>>);

impl Shared {
    pub(super) fn new(disk: Disk) -> Self {
        Self(Arc::new(Mutex::new(disk)))
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        // After a failed assertion the disk is not used any more.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Implements methods of [`Store`] by the store on the disk.
macro_rules! delegate {
    ($(fn $name:ident($self:ident: $me:ty $(, $argument:ident: $type:ty)*) -> $answer:ty;)+) => { $(
        fn $name($self: $me $(, $argument: $type)*) -> Result<$answer, StoreError> {
            $self.disk().store().$name($($argument),*)
        }
    )+ };
}

impl Store for Shared {
    delegate! {
        fn runs(self: &Self) -> Vec<StoredRun>;
        fn delete(self: &mut Self, run: RunId) -> ();
        fn symmetric(self: &Self, run: RunId) -> Option<SymmetricCounts>;
        fn trust(self: &Self) -> Vec<TrustRecord>;
        fn keep_symmetric(self: &mut Self, run: RunId, counts: SymmetricCounts) -> ();
        fn refold(self: &Self, run: RunId) -> Fold;
        fn take_tasks(self: &mut Self, run: RunId) -> StoredTasks;
    }

    fn create(&mut self, manifest: &RunManifest, recheck: Recheck) -> Result<(), StoreError> {
        self.disk().create(manifest, recheck);
        Ok(())
    }

    fn secret(&self) -> [u8; 32] {
        self.disk().secret()
    }

    fn term(&self) -> u64 {
        self.disk().store().term()
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.disk().apply(changes)
    }

    fn journal(
        &self,
        run: RunId,
        from: JournalCursor,
        visit: &mut dyn FnMut(u64, &JournalEntry, &str) -> ControlFlow<()>,
    ) -> Result<JournalCursor, StoreError> {
        self.disk().store().journal(run, from, visit)
    }
}

/// An independent account of decisions and stored changes.
#[derive(Clone, Debug)]
pub(super) struct Checker {
    seed: u64,
    truth: &'static ExactCounts,
    /// Accepted counts on disk, without disputed tasks.
    durable: BTreeMap<(RunId, TaskId), u64>,
    /// All counts on disk.
    reported: BTreeSet<(RunId, TaskId, u64)>,
    /// Holder of each granted lease.
    epochs: BTreeMap<(RunId, TaskId, Epoch), WorkerId>,
    highest: BTreeMap<(RunId, TaskId), Epoch>,
    /// Whether the disk is an older copy: terms repeat, and workers may know leases of later ones.
    pub(super) is_older_copy: bool,
    folds: BTreeMap<RunId, Fold>,
    settled: BTreeSet<(RunId, TaskId)>,
    pub(super) barred: BTreeSet<WorkerId>,
    /// Whether the scenario has wrong counts.
    has_errors: bool,
    pub(super) conflicts: u64,
    pub(super) confirmed: u64,
}

impl Checker {
    pub(super) fn new(seed: u64, truth: &'static ExactCounts, has_errors: bool) -> Self {
        Self {
            seed,
            truth,
            durable: BTreeMap::new(),
            reported: BTreeSet::new(),
            epochs: BTreeMap::new(),
            highest: BTreeMap::new(),
            is_older_copy: false,
            folds: BTreeMap::new(),
            settled: BTreeSet::new(),
            barred: BTreeSet::new(),
            has_errors,
            conflicts: 0,
            confirmed: 0,
        }
    }

    /// Checks that no epoch names two leases of a task.
    pub(super) fn granted(&mut self, worker: WorkerId, grants: &[Grant]) {
        let seed = self.seed;
        for Grant { lease, .. } in grants {
            let (run, task, epoch) = (lease.task.run, lease.task.task, lease.epoch);
            let before = self.epochs.insert((run, task, epoch), worker);
            let highest = self.highest.entry((run, task)).or_insert(Epoch(0));
            match before {
                // The worker may not have received the first grant.
                Some(before) => assert_eq!(
                    before, worker,
                    "seed {seed}: task {task}, epoch {epoch:?} leased to two workers"
                ),
                None => assert!(
                    epoch > *highest || self.is_older_copy,
                    "seed {seed}: task {task}, epoch {epoch:?} after {highest:?}"
                ),
            }
            *highest = epoch.max(*highest);
        }
    }

    /// Records stored changes.
    pub(super) fn stored(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Recorded(entry) => self.recorded(entry),
                Change::Trust(TrustRecord { worker, trust: Trust::Barred, .. }) => {
                    self.barred.insert(*worker);
                }
                _ => {}
            }
        }
    }

    fn recorded(&mut self, entry: &JournalEntry) {
        let (seed, record) = (self.seed, &entry.record);
        let (plan, key) = (&self.truth.plan, (record.run, record.task));
        self.reported.insert((record.run, record.task, record.count));
        let new = || Fold::new(&RunManifest::new(record.run, plan, 0, 0), plan);
        let fold = self.folds.entry(record.run).or_insert_with(new);
        let applied = fold.take(plan, entry, fold.lines + 1);
        assert!(applied.is_ok(), "seed {seed}: {record:?}: {applied:?}");
        let standing = fold.count(record.task);
        let before = match standing {
            Some(count) => self.durable.insert(key, count),
            None => self.durable.remove(&key),
        };
        match entry.kind {
            EntryKind::Accepted => {
                assert_eq!(before, None, "seed {seed}: {record:?} is accepted twice");
            }
            EntryKind::Confirmed => {
                assert_eq!(before, Some(record.count), "seed {seed}: {record:?}");
                self.confirmed += 1;
            }
            EntryKind::Disputed | EntryKind::Recounted => {
                assert_eq!(standing, None, "seed {seed}: {record:?}");
                self.conflicts += 1;
            }
            EntryKind::Settled => {
                assert_eq!(standing, Some(record.count), "seed {seed}: {record:?}");
                self.settled.insert(key);
            }
            EntryKind::Voided => {
                assert!(!self.settled.contains(&key), "seed {seed}: {record:?} was final");
            }
        }
    }

    /// Forgets everything, as the lost disk does.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.seed, self.truth, self.has_errors);
    }

    /// Checks that everything acknowledged is on disk.
    pub(super) fn acknowledged(&self, reply: &SyncReply, counts: &BTreeMap<LeaseKey, u64>) {
        for answer in &reply.acknowledgements {
            let on_disk = || {
                let (task, count) = (answer.lease.task, counts[&answer.lease]);
                self.reported.contains(&(task.run, task.task, count))
            };
            match answer.verdict {
                Verdict::Accepted | Verdict::Duplicate | Verdict::Conflict => {
                    assert!(on_disk(), "seed {}: {answer:?} before the disk had it", self.seed)
                }
                Verdict::Refused | Verdict::RefusedKeep => assert!(
                    !answer.reason.is_empty(),
                    "seed {}: refused without a reason",
                    self.seed
                ),
            }
        }
    }

    /// Checks that the scheduler agrees with the disk; a total needs all tasks.
    pub(super) fn compare(&self, scheduler: &Scheduler) {
        let seed = self.seed;
        if let Err(reason) = scheduler.snapshot().audit() {
            panic!("seed {seed}: {reason}");
        }
        for summary in scheduler.snapshot().runs() {
            let (run, done) = (summary.manifest.run, summary.tasks.done);
            let of_run = (run, TaskId(0))..=(run, TaskId(u64::MAX));
            let on_disk = self.durable.range(of_run).count() as u64;
            assert_eq!(done, on_disk, "seed {seed}: tasks done in memory and on disk");
            if let Some(total) = scheduler.snapshot().total(run) {
                assert_eq!(done, self.truth.plan.tasks(), "seed {seed}: an early total");
                let right = total == Ok(self.truth.total);
                assert!(right || self.has_errors, "seed {seed}: the total is {total:?}");
            }
        }
    }

    /// Returns the number of standing counts that are wrong.
    pub(super) fn wrong(&self) -> u64 {
        let is_wrong =
            |&(&(_, task), &count): &(&(RunId, TaskId), &u64)| count != self.truth.count(task);
        self.durable.iter().filter(is_wrong).count() as u64
    }

    pub(super) fn done(&self) -> usize {
        self.durable.len()
    }
}
