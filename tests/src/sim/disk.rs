//! A disk that keeps journalled changes and may lose the others in a crash, as the store's contract
//! allows.

use common::run::RunId;
use coordinator::store::{
    Change, DiskStore, MemoryStore, RunManifest, Store, StoredRun, TaskRow, TrustRecord,
};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

/// A store, and changes that it was given since the last flush.
pub(super) struct Disk {
    flushed: Flushed,
    recent: Vec<Change>,
    seed: u64,
}

/// Where flushed changes are.
enum Flushed {
    Model(MemoryStore),
    /// Files, opened anew after each crash.
    Files(DiskStore, TempDir),
}

impl Flushed {
    fn store(&mut self) -> &mut dyn Store {
        match self {
            Self::Model(store) => store,
            Self::Files(store, _) => store,
        }
    }

    fn reopen(self) -> Self {
        match self {
            Self::Model(store) => Self::Model(store),
            Self::Files(store, directory) => {
                drop(store);
                let store = DiskStore::open(directory.path()).expect("its own files");
                Self::Files(store, directory)
            }
        }
    }
}

fn is_durable(change: &Change) -> bool {
    match change {
        Change::Accepted(_)
        | Change::Confirmed(_)
        | Change::Quarantined { .. }
        | Change::State { .. }
        | Change::Recheck { .. }
        | Change::Trust(_) => true,
        Change::Leased { .. }
        | Change::Released { .. }
        | Change::Expired { .. }
        | Change::Parked { .. }
        | Change::Unparked { .. } => false,
    }
}

impl Disk {
    pub(super) fn new(manifest: &RunManifest, seed: u64, files: bool) -> Self {
        let mut flushed = if files {
            let directory = tempfile::tempdir().expect("a directory for temporary files");
            let store = DiskStore::open(directory.path()).expect("an empty directory");
            Flushed::Files(store, directory)
        } else {
            Flushed::Model(MemoryStore::new())
        };
        flushed.store().create(manifest).expect("an empty store");
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
        let result = self.flushed.store().apply(&self.recent);
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
        let before = std::mem::replace(&mut self.flushed, Flushed::Model(MemoryStore::new()));
        self.flushed = before.reopen();
    }

    pub(super) fn load(&mut self, run: RunId) -> (StoredRun, Vec<TaskRow>) {
        let store = self.flushed.store();
        let mut runs = store.runs().expect("a sound store");
        let mut rows = Vec::new();
        store
            .scan(run, &mut |row| rows.push(row))
            .expect("a sound store");
        (runs.remove(0), rows)
    }

    /// What is thought of workers.
    pub(super) fn trust(&mut self) -> Vec<TrustRecord> {
        self.flushed.store().trust().expect("a sound store")
    }

    /// The store with everything flushed.
    pub(super) fn settled(&mut self) -> &dyn Store {
        self.flush();
        self.flushed.store()
    }
}
