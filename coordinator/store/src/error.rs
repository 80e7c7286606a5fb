//! Errors of stores.

use std::{
    io,
    path::{Path, PathBuf},
};

use common::{messages::run::RunId, text::Escaped};
use scheduler::ledger::{PlanMismatch, Refusal};

/// A failure to read or write durable state.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("run {0} already exists")]
    RunExists(RunId),
    #[error("there is no run {0}")]
    NoSuchRun(RunId),
    /// A change breaks the rules of the journal. Nothing of its group was stored.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A manifest's plan differs from the plan that this version makes of its spec.
    #[error(transparent)]
    Plan(#[from] PlanMismatch),
    #[error(
        "{dir} is not a data directory of this program: it holds '{found}'; give an empty or a new \
         directory"
    )]
    ForeignDirectory { dir: PathBuf, found: String },
    #[error(
        "{dir} has format {found}, this version supports format {ours}: use the version that \
         created it, or another data directory"
    )]
    FormatVersion { dir: PathBuf, found: u32, ours: u32 },
    #[error("{dir} is in use by another process{holder}: stop it first, or use another directory")]
    InUse {
        dir: PathBuf,
        /// A remark about the holder, or empty.
        holder: String,
    },
    #[error("cannot {action} {path}: {source}{}", advice(source))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// A file's content differs from what was written to it.
    #[error(
        "{path}{} is damaged: {}; {remedy}",
        line.map(|l| format!(", line {l},")).unwrap_or_default(),
        Escaped(what)
    )]
    Damaged {
        path: PathBuf,
        /// The line, counted from 1, in a file of lines.
        line: Option<u64>,
        what: String,
        remedy: String,
    },
    /// The rows of tasks cannot be used.
    #[error(
        "the database of tasks failed: {0}; it will be rebuilt from the journals on the next start"
    )]
    Database(String),
    /// A database, an archive or a directory to copy cannot be used.
    #[error("{place}: {what}; {advice}")]
    Server {
        /// The path, or the address without its password.
        place: String,
        what: String,
        advice: &'static str,
    },
    /// Another coordinator leads.
    #[error("this coordinator lost leadership: {by}; nothing has been written since")]
    LostLeadership { by: String },
    /// A write failed without changing anything.
    #[error("{0}; nothing was changed")]
    RolledBack(Box<StoreError>),
    /// An earlier write failed and may have changed something.
    #[error(
        "the store stopped accepting writes after an I/O error ({0}); fix the cause and restart"
    )]
    Poisoned(String),
}

impl StoreError {
    /// Returns whether a failed write changed nothing, so the store remains usable.
    pub fn changed_nothing(&self) -> bool {
        match self {
            Self::RolledBack(_) | Self::Refused(_) | Self::NoSuchRun(_) | Self::RunExists(_) => {
                true
            }
            Self::Plan(_)
            | Self::ForeignDirectory { .. }
            | Self::FormatVersion { .. }
            | Self::InUse { .. }
            | Self::Io { .. }
            | Self::Damaged { .. }
            | Self::Database(_)
            | Self::Server { .. }
            | Self::LostLeadership { .. }
            | Self::Poisoned(_) => false,
        }
    }

    /// Marks an error of a write that changed nothing.
    pub fn rolled_back(self) -> Self {
        Self::RolledBack(Box::new(self))
    }

    /// Reports a place that cannot be used.
    pub(crate) fn unusable(
        place: impl ToString,
        what: impl Into<String>,
        advice: &'static str,
    ) -> Self {
        Self::Server { place: place.to_string(), what: what.into(), advice }
    }

    /// Reports a damaged file that only a copy can replace.
    pub(crate) fn damaged(path: &Path, line: Option<u64>, what: impl ToString) -> Self {
        Self::repairable(path, line, what, "restore it from a copy")
    }

    /// Reports a damaged file with a remedy.
    pub(crate) fn repairable(
        path: &Path,
        line: Option<u64>,
        what: impl ToString,
        remedy: &str,
    ) -> Self {
        let (path, what, remedy) = (path.to_owned(), what.to_string(), remedy.to_owned());
        Self::Damaged { path, line, what, remedy }
    }
}

/// The code of an I/O error, the same on every Unix.
const EIO: i32 = 5;

/// Returns advice about an error of the operating system.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        // An error of this program, which gives its own advice.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => "",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; make it readable and writable for this user, or use another data directory"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space on its file system and start again; meanwhile `queensctl verify`, which \
             writes nothing, shows the counts so far"
        }
        // All texts of this program are UTF-8.
        io::ErrorKind::InvalidData => "; its bytes have changed: restore it from a copy",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; give the path of a directory"
        }
        _ if crate::descriptors::exhausted(error) => {
            "; raise the limit of open files (ulimit -n, or LimitNOFILE of the service) and start \
             again"
        }
        _ if error.raw_os_error() == Some(EIO) => {
            "; the disk is failing: check the system's log, copy the directory to another disk and \
             start again there"
        }
        _ => "; fix the cause and start again",
    }
}
