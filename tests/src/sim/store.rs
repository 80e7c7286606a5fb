//! The store that the driver is given: the disk, which the simulation looks at too.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use common::run::RunId;
use coordinator::store::{
    Change, Fold, JournalCursor, JournalEntry, RunManifest, Store, StoreError, StoredRun,
    SymmetricCounts, TaskRow, TrustRecord,
};

use super::disk::Disk;

/// A disk that a driver and the world share.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<Disk>>);

impl Shared {
    pub(super) fn new(disk: Disk) -> Self {
        Self(Arc::new(Mutex::new(disk)))
    }

    /// The disk. After a failed assertion nothing more is done with it.
    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Shared {
    fn runs(&self) -> Result<Vec<StoredRun>, StoreError> {
        self.disk().settled().runs()
    }

    fn create(&mut self, manifest: &RunManifest) -> Result<(), StoreError> {
        self.disk().settled().create(manifest)
    }

    fn delete(&mut self, run: RunId) -> Result<(), StoreError> {
        self.disk().settled().delete(run)
    }

    fn symmetric(&self, run: RunId) -> Result<Option<SymmetricCounts>, StoreError> {
        self.disk().settled().symmetric(run)
    }

    fn trust(&self) -> Result<Vec<TrustRecord>, StoreError> {
        self.disk().settled().trust()
    }

    /// Drawn by the seed: a store's own would make each replay another story.
    fn secret(&self) -> [u8; 32] {
        self.disk().secret()
    }

    fn term(&self) -> u64 {
        self.disk().settled().term()
    }

    fn keep_symmetric(&mut self, run: RunId, counts: SymmetricCounts) -> Result<(), StoreError> {
        self.disk().settled().keep_symmetric(run, counts)
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.disk().apply(changes)
    }

    fn refold(&self, run: RunId) -> Result<Fold, StoreError> {
        self.disk().settled().refold(run)
    }

    fn scan(&self, run: RunId, visit: &mut dyn FnMut(TaskRow)) -> Result<(), StoreError> {
        self.disk().settled().scan(run, visit)
    }

    fn journal(
        &self,
        run: RunId,
        from: JournalCursor,
        visit: &mut dyn FnMut(u64, &JournalEntry, &str) -> ControlFlow<()>,
    ) -> Result<JournalCursor, StoreError> {
        self.disk().settled().journal(run, from, visit)
    }
}
