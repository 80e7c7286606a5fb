//! Durable state behind one trait, in the terms of [`scheduler::ledger`].
//!
//! The journal is the authoritative record of results. Everything else (leases, attempts, parked tasks)
//! may be lost without changing a total.

mod address;
mod archive;
pub mod certify;
mod clock;
#[cfg(test)]
mod conformance;
pub mod descriptors;
mod directory;
mod error;
#[doc(hidden)]
pub mod fuzz_targets;
mod journal;
mod journal_store;
mod monitoring;
mod postgres;
mod secrets;
mod verify;

use std::ops::ControlFlow;

use common::messages::run::RunId;

pub use address::{BadStoreUrl, StoreUrl};
pub use archive::{Archive, ArchivePlace, Archiver, restore};
pub use clock::Clock;
pub use directory::DiskStore;
pub use error::StoreError;
pub use journal::notes::{Event, EventLog, Note};
pub use journal_store::memory::MemoryStore;
pub use monitoring::{ArchiveLag, Leader, Observed, Outage, Outages, SyncTimes};
pub use postgres::{PgStore, copy_to_database, copy_to_directory, verify_database};
pub use scheduler::ledger::{
    Change, Confirmation, Contribution, EntryKind, Fold, JournalEntry, LeaseEvent, OpenState,
    OpenTask, PlanMismatch, Principal, Recheck, Record, Refusal, RunManifest, RunState, Settings,
    StoredRun, StoredTasks, SymmetricCounts, Trust, TrustRecord,
};
pub use secrets::SecretStore;
pub use verify::{
    Checks, Examined, Flaw, RunReport, VerifyError, VerifyReport, runs_in, signing_key, verify,
    verify_run, verify_watched,
};

/// Durable state of all runs of one coordinator, used by one thread.
pub trait Store: Send {
    /// Returns every run, ordered by creation time, then by ID.
    fn runs(&self) -> Result<Vec<StoredRun>, StoreError>;

    /// Creates a run durably; fails if a run with this ID exists.
    fn create(&mut self, manifest: &RunManifest, recheck: Recheck) -> Result<(), StoreError>;

    /// Removes a run and all its data.
    fn delete(&mut self, run: RunId) -> Result<(), StoreError>;

    /// Returns the symmetric solutions of a run's board, if they were stored.
    fn symmetric(&self, run: RunId) -> Result<Option<SymmetricCounts>, StoreError>;

    /// Returns the trust log: all records since the store was created.
    fn trust(&self) -> Result<Vec<TrustRecord>, StoreError>;

    /// Returns the store's secret, from which unpredictable values are derived.
    fn secret(&self) -> [u8; 32];

    /// Returns the coordinator's term: higher at every start.
    fn term(&self) -> u64;

    /// Returns the commit latencies of groups; none for a store without a disk.
    fn sync_times(&self) -> SyncTimes {
        SyncTimes::default()
    }

    /// Stores the symmetric solutions of a run's board.
    fn keep_symmetric(&mut self, run: RunId, counts: SymmetricCounts) -> Result<(), StoreError>;

    /// Replaces a note of a run or of the cluster.
    fn keep_note(&mut self, _: Option<RunId>, _: Note, _text: &str) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns a note, if it was stored.
    fn note(&self, _: Option<RunId>, _: Note) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// Stores changes in this order.
    /// On return every journaled change is on disk (one `fdatasync` for all); leases and attempts may
    /// follow later. After an error that [changed nothing](StoreError::changed_nothing), none is stored.
    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError>;

    /// Folds the journal of `run` as read back from the disk, checking every line.
    fn refold(&self, run: RunId) -> Result<Fold, StoreError>;

    /// Returns the tasks of `run`, to go on with. Those that were read when the store was opened are moved.
    fn take_tasks(&mut self, run: RunId) -> Result<StoredTasks, StoreError>;

    /// Passes the journal lines of `run` after `from` to `visit`, until `visit` breaks.
    /// Lines have no line ends and are numbered from 1. Returns the position after the last line passed.
    fn journal(
        &self,
        run: RunId,
        from: JournalCursor,
        visit: &mut dyn FnMut(u64, &JournalEntry, &str) -> ControlFlow<()>,
    ) -> Result<JournalCursor, StoreError>;
}

/// A position between two lines of a journal in one store; by default the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalCursor {
    bytes: u64,
    lines: u64,
}

/// Runs `work`, which starts an async runtime, on a new thread, and waits for it.
pub fn run_off_runtime<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let done = scope.spawn(work).join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
