//! The directory in which finished partials wait for their acknowledgement.
//!
//! | file | holds |
//! |---|---|
//! | `lock` | nothing; locked as long as the process lives |
//! | `stop` | nothing; made by whoever asks the worker to stop |
//! | `worker-id` | the worker's identity, 32 hexadecimal digits |
//! | `outbox.jsonl` | finished partials and acknowledgements, see [`line`] |

#[doc(hidden)]
pub mod foreign;
mod line;
pub mod stop;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Seek, Write},
    path::{Path, PathBuf},
};

use common::run::{Partial, WorkerId};

use crate::{config::SpoolChoice, machine::LeaseKey};
use line::SpoolLine;
pub(crate) use writer::Writer;

/// Why there is no spool in a directory.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another process has it.
    #[error(
        "spool directory {} is in use by another worker: give every worker its own --spool",
        .0.display()
    )]
    InUse(PathBuf),
    /// The directory cannot be used.
    #[error(
        "spool directory {}: {error}; results that the coordinator has not acknowledged are kept \
         there over a restart: give a writable directory with --spool",
        path.display()
    )]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

/// An open, locked spool directory.
#[derive(Debug)]
pub(crate) struct Spool {
    directory: PathBuf,
    worker: WorkerId,
    /// Positioned at the end of the last whole line; `None` once a write failed, because nobody
    /// knows then what the file holds.
    file: Option<File>,
    /// Lines in the file that say nothing any more.
    dead_lines: usize,
    /// What must be sent again after a restart, as far as the file says.
    live: BTreeMap<LeaseKey, Partial>,
    _lock: File,
}

/// A file is rewritten without its dead lines once there are this many, and more than live ones.
const COMPACT_AFTER: usize = 4096;

/// The file that a living worker has locked.
const LOCK: &str = "lock";

/// Where the usual spool directories lie.
fn usual_base() -> PathBuf {
    std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .map_or_else(
            || PathBuf::from("queens-spool"),
            |path| path.join("queens-spool"),
        )
}

/// For people in another directory: the whole path.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Opens the spool that `choice` names for a worker called `name`. Beside it comes the number of
/// the usual directory that was free, counted from 1.
pub(crate) fn open(
    choice: &SpoolChoice,
    name: &str,
    new_id: WorkerId,
) -> Result<Option<(Spool, u32)>, SpoolError> {
    match choice {
        SpoolChoice::Memory => Ok(None),
        SpoolChoice::Directory(directory) => Ok(Some((Spool::open(directory, new_id)?, 1))),
        SpoolChoice::Usual => open_free(&usual_base(), name, new_id).map(Some),
    }
}

/// What the directory of a worker of this name is called.
fn directory_name(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_")
}

/// The first directory of `name`, `name-2`, … below `base` that no other worker has.
fn open_free(base: &Path, name: &str, new_id: WorkerId) -> Result<(Spool, u32), SpoolError> {
    let name = directory_name(name);
    let mut number = 1;
    loop {
        let directory = match number {
            1 => base.join(&name),
            _ => base.join(format!("{name}-{number}")),
        };
        match Spool::open(&directory, new_id) {
            Err(SpoolError::InUse(_)) if number < 10_000 => number += 1,
            other => return other.map(|spool| (spool, number)),
        }
    }
}

impl Spool {
    /// Opens or makes the spool in `directory`; a new one gets the identity `new_id`. Torn or
    /// damaged lines are dropped: their tasks will be counted again.
    pub(crate) fn open(directory: &Path, new_id: WorkerId) -> Result<Self, SpoolError> {
        let unusable = |error| SpoolError::Unusable {
            path: directory.to_owned(),
            error,
        };
        fs::create_dir_all(directory).map_err(unusable)?;
        let lock = File::create(directory.join(LOCK)).map_err(unusable)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => SpoolError::InUse(directory.to_owned()),
            TryLockError::Error(error) => unusable(error),
        })?;
        stop::clear(directory).map_err(unusable)?;
        let worker = identity(directory, new_id).map_err(unusable)?;
        let mut spool = Self {
            directory: directory.to_owned(),
            worker,
            file: None,
            dead_lines: 0,
            live: BTreeMap::new(),
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
        // Also proves that the directory can be written, before any result depends on it.
        spool.rewrite().map_err(unusable)?;
        Ok(spool)
    }

    /// The worker that this spool belongs to.
    pub(crate) fn worker(&self) -> WorkerId {
        self.worker
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// What was finished and never acknowledged, in order of tasks.
    pub(crate) fn unacknowledged(&self) -> impl Iterator<Item = &Partial> {
        self.live.values()
    }

    /// Keeps `finished` durably and forgets `acknowledged`. On error nothing is lost that was kept
    /// before, and the next call tries again to bring the file to the state it should have.
    pub(crate) fn keep(
        &mut self,
        finished: &[Partial],
        acknowledged: &[LeaseKey],
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        for partial in finished {
            SpoolLine::Finished(*partial).write(&mut bytes);
            self.live.insert(LeaseKey::of(partial), *partial);
        }
        for lease in acknowledged {
            if self.live.remove(lease).is_some() {
                SpoolLine::Acknowledged(*lease).write(&mut bytes);
                self.dead_lines += 2;
            }
        }
        let compact = self.dead_lines > COMPACT_AFTER && self.dead_lines > self.live.len();
        let Some(file) = self.file.as_mut().filter(|_| !compact) else {
            return self.rewrite();
        };
        if self.live.is_empty() && self.dead_lines > 0 {
            // The common case, and far cheaper than another file.
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
            // A lost acknowledgement costs one duplicate message, so only results wait for the disk.
            if finished.is_empty() {
                Ok(())
            } else {
                file.sync_data()
            }
        });
        if written.is_err() {
            // After a failed fsync the system may have dropped the pages: write everything anew.
            self.file = None;
        }
        written
    }

    /// From now on nothing can be written.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn fill_disk(&mut self) {
        let full = OpenOptions::new().write(true).open("/dev/full");
        self.file = Some(full.expect("Linux has /dev/full"));
        self.directory = PathBuf::from("/dev/full/spool");
    }

    fn path(&self) -> PathBuf {
        self.directory.join("outbox.jsonl")
    }

    /// Reads the file into `live`; how many lines were damaged.
    fn load(&mut self) -> io::Result<usize> {
        let bytes = match fs::read(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let mut damaged = 0;
        for line in bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            match SpoolLine::read(line) {
                Some(SpoolLine::Finished(partial)) => {
                    self.live.insert(LeaseKey::of(&partial), partial);
                }
                Some(SpoolLine::Acknowledged(lease)) => {
                    self.live.remove(&lease);
                }
                None => damaged += 1,
            }
        }
        Ok(damaged)
    }

    /// Replaces the file by one that holds the live partials alone.
    fn rewrite(&mut self) -> io::Result<()> {
        self.file = None;
        let mut bytes = Vec::new();
        for partial in self.live.values() {
            SpoolLine::Finished(*partial).write(&mut bytes);
        }
        let (path, new) = (self.path(), self.directory.join("outbox.new"));
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.directory)?.sync_all()?;
        self.file = Some(file);
        self.dead_lines = 0;
        Ok(())
    }
}

/// The identity in `directory`, written there first if it has none.
fn identity(directory: &Path, new_id: WorkerId) -> io::Result<WorkerId> {
    let path = directory.join("worker-id");
    match fs::read_to_string(&path) {
        Ok(text) => {
            if let Ok(worker) = text.trim_end().parse() {
                return Ok(worker);
            }
            tracing::warn!("{} holds no worker's id; a new one is made", path.display());
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let new = directory.join("worker-id.new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&new)?;
    writeln!(file, "{new_id}")?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    Ok(new_id)
}
