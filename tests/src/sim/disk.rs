//! A disk that keeps journalled changes and may lose the others in a crash, as the store's contract
//! allows.

use common::run::RunId;
use coordinator::store::{Change, MemoryStore, RunManifest, Store, StoredRun, TaskRow};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// The model store, and changes that it was given since the last flush.
#[derive(Debug)]
pub(super) struct Disk {
    flushed: MemoryStore,
    recent: Vec<Change>,
    seed: u64,
}

fn is_durable(change: &Change) -> bool {
    match change {
        Change::Accepted(_)
        | Change::Confirmed(_)
        | Change::Quarantined { .. }
        | Change::State { .. } => true,
        Change::Leased { .. }
        | Change::Released { .. }
        | Change::Expired { .. }
        | Change::Parked { .. }
        | Change::Unparked { .. } => false,
    }
}

impl Disk {
    pub(super) fn new(manifest: &RunManifest, seed: u64) -> Self {
        let mut flushed = MemoryStore::new();
        flushed.create(manifest).expect("an empty store");
        Self {
            flushed,
            recent: Vec::new(),
            seed,
        }
    }

    /// Keeps changes; `flush` makes all of them survive a crash.
    pub(super) fn apply(&mut self, changes: Vec<Change>, flush: bool) {
        self.recent.extend(changes);
        if flush {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let result = self.flushed.apply(&self.recent);
        assert!(
            result.is_ok(),
            "seed {}: the store refused a group: {result:?}",
            self.seed
        );
        self.recent.clear();
    }

    /// What is left after a crash: every journalled change, the others up to some moment.
    pub(super) fn crash(&mut self, rng: &mut ChaCha8Rng) {
        let kept = rng.random_range(0..=self.recent.len());
        let mut place = 0;
        self.recent.retain(|change| {
            place += 1;
            place <= kept || is_durable(change)
        });
        self.flush();
    }

    pub(super) fn load(&self, run: RunId) -> (StoredRun, Vec<TaskRow>) {
        let mut runs = self.flushed.runs().expect("in memory");
        let mut rows = Vec::new();
        self.flushed
            .scan(run, &mut |row| rows.push(row))
            .expect("in memory");
        (runs.remove(0), rows)
    }

    /// The store with everything flushed.
    pub(super) fn settled(&mut self) -> &MemoryStore {
        self.flush();
        &self.flushed
    }
}
