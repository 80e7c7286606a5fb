//! Durable state behind one trait, in the words of [`crate::ledger`].
//!
//! The truth about results is the journal of accepted records; everything else (leases, attempts,
//! parked tasks) may be lost without changing a total.

mod address;
#[cfg(feature = "archive")]
mod archive;
#[cfg(test)]
mod conformance;
mod copied;
mod disk;
#[cfg(test)]
mod disk_tests;
mod error;
mod files;
#[doc(hidden)]
pub mod foreign;
mod journal;
mod leader;
mod line;
mod manifest;
mod memory;
mod meter;
#[cfg(feature = "postgres")]
mod postgres;
mod recover;
mod rows;
mod segments;
mod stage;
mod sync_times;
mod text;
mod total;
mod trust;
mod verify;
#[cfg(test)]
mod verify_tests;

pub(crate) use crate::ledger::fold::plan_of;
pub use crate::ledger::{
    Change, Confirmed, Fold, JournalEntry, PlanMismatch, Principal, Recheck, Record, Refusal,
    RunManifest, RunState, StoredRun, SymmetricCounts, TaskRow, TaskState, Trust, TrustRecord,
    Vote,
};
pub use address::{BadStoreUrl, StoreUrl};
#[cfg(feature = "archive")]
pub use archive::{ArchivePlace, Archiver, restore};
pub use copied::Copied;
pub use disk::DiskStore;
pub use error::StoreError;
pub use leader::Leader;
pub use memory::MemoryStore;
pub use meter::Examined;
#[cfg(feature = "postgres")]
pub use postgres::{PgStore, PgVault, copy_to_database, copy_to_directory, verify_database};
pub use sync_times::SyncTimes;
pub use total::Checks;
pub use verify::{
    Flaw, RunReport, VerifyError, VerifyReport, kept_symmetric, runs_in, signing_key, verify,
    verify_run, verify_watched,
};

use std::ops::ControlFlow;

use common::run::RunId;

/// Durable state of all runs of one coordinator. One owner, one thread.
pub trait Store: Send {
    /// Every run, in order of creation time, then of name.
    fn runs(&self) -> Result<Vec<StoredRun>, StoreError>;

    /// Creates a run, durably. A run of the same name is an error.
    fn create(&mut self, manifest: &RunManifest) -> Result<(), StoreError>;

    /// Removes a run with all that is kept of it. After an error it is as it was.
    fn delete(&mut self, run: RunId) -> Result<(), StoreError>;

    /// The symmetric solutions of a run's board, if they were kept.
    fn symmetric(&self, run: RunId) -> Result<Option<SymmetricCounts>, StoreError>;

    /// What was thought of workers, in order, since the directory was made.
    fn trust(&self) -> Result<Vec<TrustRecord>, StoreError>;

    /// A secret of the data directory, never told: what is derived from it nobody can foresee.
    fn secret(&self) -> [u8; 32];

    /// The coordinator's term: higher at every start than at all before.
    fn term(&self) -> u64;

    /// How long groups took to become durable; nothing is told of a store without a disk.
    fn sync_times(&self) -> SyncTimes {
        SyncTimes::default()
    }

    /// Keeps the symmetric solutions of a run's board.
    fn keep_symmetric(&mut self, run: RunId, counts: SymmetricCounts) -> Result<(), StoreError>;

    /// Keeps what happened, in this order; nothing of it after an error that
    /// [kept nothing](StoreError::kept_nothing). On return every journalled change is on disk (one
    /// `fdatasync` for all of them); leases and attempts may reach the disk later.
    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError>;

    /// What the records of `run` make of its tasks: folded from the journal as it stands on the disk,
    /// read anew, every line checked.
    fn refold(&self, run: RunId) -> Result<Fold, StoreError>;

    /// Every task of `run` that something happened to, in any order, each once.
    fn scan(&self, run: RunId, visit: &mut dyn FnMut(TaskRow)) -> Result<(), StoreError>;

    /// The journal lines of `run` (accepted, confirmed, quarantined) in journal order from a place
    /// on, without line ends, with their sequence numbers (1, 2, …), until `visit` breaks or the
    /// journal ends. Returns the place after the last line visited.
    fn journal(
        &self,
        run: RunId,
        from: JournalCursor,
        visit: &mut dyn FnMut(u64, &JournalEntry, &str) -> ControlFlow<()>,
    ) -> Result<JournalCursor, StoreError>;
}

/// A place between two lines of a run's journal, good for the store it came from; the default is
/// the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalCursor(u64);
