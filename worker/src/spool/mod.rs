//! The directory in which finished results wait for their acknowledgement.
//!
//! | file | content |
//! |---|---|
//! | `lock` | empty; locked while the process lives |
//! | `stop` | empty; created to ask the worker to stop |
//! | `secret` | identifies the worker to the coordinator, 64 hexadecimal digits |
//! | `outbox.jsonl` | results and acknowledgements, see [`line`] |
//! | `self-test-failed` | empty; see `FailureMark` |

pub(crate) mod identity;
pub(crate) mod line;
pub mod stop;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io::{self, Seek, Write},
    path::{Path, PathBuf},
};

use common::messages::run::{LeaseKey, Partial};
use proto::connect::claim_folder;
use tokio::task::{JoinHandle, spawn_blocking};

pub(crate) use identity::Identity;
use line::{SealedLine as _, SpoolLine};

use crate::{config::SpoolChoice, engine::SpoolWrite};

/// Reason why a spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error(
        "spool directory {} is in use by another worker: give every worker its own --spool",
        .0.display()
    )]
    InUse(PathBuf),
    #[error(
        "spool directory {}: {error}; it keeps results that the coordinator has not acknowledged: give \
         a directory that only this user can write with --spool",
        path.display()
    )]
    Unusable { path: PathBuf, error: io::Error },
}

impl SpoolError {
    fn unusable(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |error| Self::Unusable { path: path.to_owned(), error }
    }
}

/// An open, locked spool directory.
#[derive(Debug)]
pub(crate) struct Spool {
    pub(crate) directory: PathBuf,
    /// Number of the first free default directory, from 1.
    pub(crate) number: u32,
    pub(crate) identity: Identity,
    /// The spool file, positioned at the end of the last whole line.
    ///
    /// `None` after a failed write, which leaves the content of the file unknown.
    file: Option<File>,
    /// Number of obsolete lines in the file.
    dead_lines: usize,
    /// Results without an acknowledgement, according to the file.
    live: BTreeMap<LeaseKey, Partial>,
    /// Whether the last write failed.
    is_failing: bool,
    _lock: File,
}

/// Number of dead lines above which the file is rewritten, if fewer are live.
const COMPACT_AFTER: usize = 4096;

/// The file that a running worker has locked.
const LOCK: &str = "lock";

/// Returns the parent of the default spool directories.
fn default_base() -> PathBuf {
    std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .map_or_else(|| PathBuf::from("queens-spool"), |path| path.join("queens-spool"))
}

/// Returns the absolute path for messages.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Opens the spool of a worker called `name`; `None` for a worker without one.
pub(crate) fn open(choice: &SpoolChoice, name: &str) -> Result<Option<Spool>, SpoolError> {
    match choice {
        SpoolChoice::Memory => Ok(None),
        SpoolChoice::Directory(directory) => Spool::open(directory).map(Some),
        SpoolChoice::Default => {
            let base = default_base();
            claim_folder(&base).map_err(SpoolError::unusable(&base))?;
            open_free(&base, name).map(Some)
        }
    }
}

fn directory_name(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_")
}

/// Opens the first of `name`, `name-2`, … below `base` that no other worker uses.
fn open_free(base: &Path, name: &str) -> Result<Spool, SpoolError> {
    let name = directory_name(name);
    let mut number = 1;
    loop {
        let directory = match number {
            1 => base.join(&name),
            _ => base.join(format!("{name}-{number}")),
        };
        match Spool::open(&directory) {
            Err(SpoolError::InUse(_)) if number < 10_000 => number += 1,
            opened => return opened.map(|spool| Spool { number, ..spool }),
        }
    }
}

impl Spool {
    /// Opens or creates the spool in `directory`.
    ///
    /// Drops torn or damaged lines, whose tasks will be counted again.
    pub(crate) fn open(directory: &Path) -> Result<Self, SpoolError> {
        let unusable = SpoolError::unusable(directory);
        claim_folder(directory).map_err(unusable)?;
        let lock = File::create(directory.join(LOCK)).map_err(unusable)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => SpoolError::InUse(directory.to_owned()),
            TryLockError::Error(error) => unusable(error),
        })?;
        stop::clear(directory).map_err(unusable)?;
        let identity = Identity::open(directory).map_err(unusable)?;
        let mut spool = Self {
            directory: directory.to_owned(),
            number: 1,
            identity,
            file: None,
            dead_lines: 0,
            live: BTreeMap::new(),
            is_failing: false,
            _lock: lock,
        };
        let damaged = spool.load().map_err(unusable)?;
        if damaged > 0 {
            tracing::warn!(
                "{} held {damaged} torn or damaged lines, which were dropped; their tasks will be \
                 counted again",
                spool.path().display()
            );
        }
        // Also checks that the directory is writable, before any result depends on it.
        spool.rewrite().map_err(unusable)?;
        Ok(spool)
    }

    /// Returns the results without an acknowledgement, in order of tasks.
    pub(crate) fn unacknowledged(&self) -> impl Iterator<Item = &Partial> {
        self.live.values()
    }

    /// Stores `finished` durably and removes `acknowledged`.
    ///
    /// On error everything stored earlier remains, and the next call rewrites the file.
    pub(crate) fn keep(
        &mut self,
        finished: &[Partial],
        acknowledged: &[LeaseKey],
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        for partial in finished {
            SpoolLine::finished(partial).write(&mut bytes);
            self.live.insert(partial.lease, *partial);
        }
        for lease in acknowledged {
            if self.live.remove(lease).is_some() {
                SpoolLine::acknowledged(*lease).write(&mut bytes);
                self.dead_lines += 2;
            }
        }
        let compact = self.dead_lines > COMPACT_AFTER && self.dead_lines > self.live.len();
        let Some(file) = self.file.as_mut().filter(|_| !compact) else {
            return self.rewrite();
        };
        if self.live.is_empty() && self.dead_lines > 0 {
            // The common case, and far cheaper than a new file.
            bytes.clear();
            self.dead_lines = 0;
            if file.set_len(0).and_then(|()| file.rewind()).is_err() {
                return self.rewrite();
            }
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let written = file.write_all(&bytes).and_then(|()| {
            // A lost acknowledgement costs one duplicate, so only results wait for the disk.
            if finished.is_empty() { Ok(()) } else { file.sync_data() }
        });
        if written.is_err() {
            // After a failed fsync the system may have dropped the pages: rewrite everything.
            self.file = None;
        }
        written
    }

    /// Carries out a write and returns whether it succeeded; logs the first failure.
    fn write(&mut self, SpoolWrite { keep, forget }: &SpoolWrite) -> bool {
        let written = self.keep(keep, forget);
        let (directory, succeeded) = (self.directory.display(), written.is_ok());
        match written {
            Ok(()) if self.is_failing => {
                tracing::info!("spool {directory} can be written again; every result is on disk")
            }
            Err(error) if !self.is_failing => tracing::error!(
                "spool {directory}: {error}; results are kept in memory until they are acknowledged or \
                 the disk has space: stop this worker gracefully, do not kill it"
            ),
            Ok(()) | Err(_) => {}
        }
        self.is_failing = !succeeded;
        succeeded
    }

    /// Makes every further write fail.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn fill_disk(&mut self) {
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        self.file = Some(full.expect("Linux has /dev/full"));
        self.directory = PathBuf::from("/dev/full/spool");
    }

    fn path(&self) -> PathBuf {
        self.directory.join("outbox.jsonl")
    }

    /// Reads the file into `live` and returns the number of damaged lines.
    fn load(&mut self) -> io::Result<usize> {
        let bytes = match fs::read(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let mut damaged = 0;
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match SpoolLine::read(line).map(SpoolLine::content) {
                Some((lease, Some(partial))) => {
                    self.live.insert(lease, partial);
                }
                Some((lease, None)) => {
                    self.live.remove(&lease);
                }
                None => damaged += 1,
            }
        }
        Ok(damaged)
    }

    /// Replaces the file with one that contains only the live results.
    fn rewrite(&mut self) -> io::Result<()> {
        self.file = None;
        let mut bytes = Vec::new();
        for partial in self.live.values() {
            SpoolLine::finished(partial).write(&mut bytes);
        }
        self.file = Some(replace(&self.path(), &bytes)?);
        self.dead_lines = 0;
        Ok(())
    }
}

/// Replaces a file durably; returns it, positioned at its end.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    sync_folder(folder.unwrap_or(Path::new(".")))?;
    Ok(file)
}

/// Makes the entries of a folder durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        // Elsewhere folders cannot be opened as files.
        return Ok(());
    }
    File::open(folder)?.sync_all()
}

/// A file that exists from a failed self-test until the coordinator knows of it and has all results.
/// Otherwise it would believe the results that the next process submits.
#[derive(Debug)]
pub(crate) struct FailureMark {
    path: PathBuf,
    is_set: bool,
}

impl FailureMark {
    pub(crate) fn of(directory: &Path) -> Self {
        let path = directory.join("self-test-failed");
        Self { is_set: path.exists(), path }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set
    }

    /// Notes a failure. An error is only logged: this process reports the failure itself.
    pub(crate) fn set(&mut self) {
        self.is_set = true;
        let directory = self.path.parent().unwrap_or(&self.path);
        let created = File::create(&self.path).and_then(|_| sync_folder(directory));
        if let Err(error) = created {
            tracing::error!("cannot create {}: {error}", self.path.display());
        }
    }

    /// Notes that the coordinator knows of the failure and has all results from before it.
    pub(crate) fn remove(&mut self) {
        if self.is_set {
            self.is_set = fs::remove_file(&self.path).is_err();
        }
    }
}

/// Writer of a spool on another thread, so that the disk never delays the link.
#[derive(Debug)]
pub(crate) struct Writer {
    /// `None` during a write, and after one that panicked.
    spool: Option<Spool>,
    write: Option<JoinHandle<(Spool, bool)>>,
}

impl Writer {
    pub(crate) fn new(spool: Spool) -> Self {
        Self { spool: Some(spool), write: None }
    }

    /// Starts a write; the previous one must have ended, without a panic.
    pub(crate) fn start(&mut self, write: SpoolWrite) {
        let mut spool = self.spool.take().expect("the previous write has ended");
        self.write = Some(spawn_blocking(move || {
            let succeeded = spool.write(&write);
            (spool, succeeded)
        }));
    }

    /// Returns whether a write is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        self.write.is_some()
    }

    /// Waits for the write and returns whether it succeeded; `None` after a panic.
    pub(crate) async fn ended(&mut self) -> Option<bool> {
        let ended = self.write.as_mut()?.await;
        self.write = None;
        let (spool, succeeded) = ended.ok()?;
        self.spool = Some(spool);
        Some(succeeded)
    }
}
