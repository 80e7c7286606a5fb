//! Why durable state cannot be read or kept.

use std::{
    io,
    path::{Path, PathBuf},
};

use common::run::RunId;

use crate::ledger::{PlanMismatch, Refusal};

/// Why durable state cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A run of this name exists.
    #[error("run {0} exists already")]
    RunExists(RunId),
    /// No run has this name.
    #[error("there is no run {0}")]
    NoSuchRun(RunId),
    /// A change breaks the rules of the journal: nothing of its group was kept. The store goes on.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A manifest whose plan is not the one that this program makes of its spec.
    #[error(transparent)]
    Plan(#[from] PlanMismatch),
    /// The directory holds something else.
    #[error(
        "{dir} is no data directory of this program: it holds '{found}'; give an empty or a new \
         directory"
    )]
    ForeignDirectory {
        /// The directory given.
        dir: PathBuf,
        /// Something in it that is not ours.
        found: String,
    },
    /// The directory was written by another version of this program.
    #[error(
        "{dir} has format {found}, this program knows format {ours}: use the program that made it, \
         or another data directory"
    )]
    FormatVersion {
        /// The directory given.
        dir: PathBuf,
        /// Its format.
        found: u32,
        /// The format of this program.
        ours: u32,
    },
    /// Another process has the directory.
    #[error("{dir} is in use by another process{holder}: stop it first, or use another directory")]
    InUse {
        /// The directory given.
        dir: PathBuf,
        /// Who holds it, if it said so.
        holder: String,
    },
    /// The operating system refused. If it was a write of results, the store is poisoned.
    #[error("cannot {action} {path}: {source}{}", advice(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file does not hold what was written to it. Never skipped silently.
    #[error("{path}{} is damaged: {what}; {remedy}", line.map(|l| format!(", line {l},")).unwrap_or_default())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1, in a file of lines.
        line: Option<u64>,
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// sled cannot read or write rows. A restart makes them again from the journals.
    #[error("the database of tasks failed: {0}; start again: it is made anew from the journals")]
    Database(String),
    /// A database server or an archive cannot, or what it holds is not for this program.
    #[error("{place}: {what}; {advice}")]
    Server {
        /// Which one, without a password.
        place: String,
        /// What is wrong.
        what: String,
        /// What to do.
        advice: &'static str,
    },
    /// Another coordinator has taken over: this one keeps nothing any more.
    #[error("{by}: this coordinator was replaced, and has kept nothing since")]
    Replaced {
        /// Who leads now.
        by: String,
    },
    /// Something could not be kept, and everything is as it was before. The store goes on.
    #[error("{0}; nothing was changed")]
    Unkept(Box<StoreError>),
    /// A write failed before: nothing more is kept, so nothing more may be acknowledged.
    #[error(
        "nothing is kept any more since a write failed ({0}): remove the cause and start again"
    )]
    Poisoned(String),
}

impl StoreError {
    /// Whether what was to be kept is as if it had never been tried, and the store goes on.
    pub fn kept_nothing(&self) -> bool {
        match self {
            Self::Unkept(_) | Self::Refused(_) | Self::NoSuchRun(_) | Self::RunExists(_) => true,
            Self::Plan(_)
            | Self::ForeignDirectory { .. }
            | Self::FormatVersion { .. }
            | Self::InUse { .. }
            | Self::Io { .. }
            | Self::Damaged { .. }
            | Self::Database(_)
            | Self::Server { .. }
            | Self::Replaced { .. }
            | Self::Poisoned(_) => false,
        }
    }

    /// An error before anything was changed.
    pub(crate) fn unkept(self) -> Self {
        Self::Unkept(Box::new(self))
    }

    /// A damaged file that only a copy can mend.
    pub(crate) fn damaged(path: &Path, line: Option<u64>, what: impl ToString) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            line,
            what: what.to_string(),
            remedy: "restore it from a copy".to_owned(),
        }
    }
}

/// The same on every Unix.
const EIO: i32 = 5;

/// What to do about an error of the operating system, where its words do not say.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; make it readable and writable for this user, or use another data directory"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space on its file system and start again; `queensctl verify` writes nothing, and \
             shows meanwhile what is counted"
        }
        // Text that is no UTF-8: this program writes none such.
        io::ErrorKind::InvalidData => "; bytes of it have changed: restore it from a copy",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; give the path of a directory"
        }
        _ if crate::descriptors::exhausted(error) => {
            "; raise the limit of open files (ulimit -n, or LimitNOFILE of the service) and start \
             again"
        }
        _ if error.raw_os_error() == Some(EIO) => {
            "; the disk fails: look at the system's log, copy the directory to another disk and \
             start again there"
        }
        _ => "; remove the cause and start again",
    }
}
