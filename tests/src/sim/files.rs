//! A data directory on a disk that fails: what a store wrote is cut, mixed up and taken away below it.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{Seek as _, SeekFrom, Write as _},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use common::run::RunId;
use coordinator::store::{DiskStore, StoreError};
use rand::{RngExt, rngs::ChaCha8Rng};
use tempfile::TempDir;

/// A data directory.
pub(super) struct Files {
    directory: TempDir,
    kept_others: bool,
}

/// What was on the disk before a write.
pub(super) struct Before(BTreeMap<PathBuf, Vec<u8>>);

impl Files {
    pub(super) fn new() -> Self {
        // Syncing is what takes time, and memory needs none.
        let memory = Path::new("/dev/shm");
        let directory = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        Self {
            directory: directory.expect("a directory for temporary files"),
            kept_others: false,
        }
    }

    pub(super) fn open(&self) -> Result<DiskStore, StoreError> {
        DiskStore::open(self.directory.path())
    }

    fn journal(&self, run: RunId) -> PathBuf {
        let runs = self.directory.path().join("runs");
        runs.join(run.to_string()).join("journal.jsonl")
    }

    /// Does something while no line fits on the disk.
    pub(super) fn while_full<T>(&self, run: RunId, act: impl FnOnce() -> T) -> T {
        let journal = self.journal(run);
        let aside = journal.with_extension("aside");
        fs::rename(&journal, &aside).expect("it is there");
        symlink("/dev/full", &journal).expect("its place is free");
        let result = act();
        fs::remove_file(&journal).expect("a link");
        fs::rename(&aside, &journal).expect("its place is free");
        result
    }

    /// Everything but sled's files.
    pub(super) fn remember(&self) -> Before {
        let mut files = BTreeMap::new();
        let mut rooms = vec![self.directory.path().to_owned()];
        while let Some(room) = rooms.pop() {
            for entry in fs::read_dir(room).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() && !path.ends_with("db") {
                    rooms.push(path);
                } else if path.is_file() {
                    let bytes = fs::read(&path).expect("its own file");
                    files.insert(path, bytes);
                }
            }
        }
        Before(files)
    }

    /// Undoes a write from some place on, as if the power had failed there: the journal comes first,
    /// then the other files, then rows. Returns how many new lines of the journal are whole.
    pub(super) fn tear(&mut self, before: &Before, rng: &mut ChaCha8Rng) -> usize {
        let after = self.remember();
        let (mut lines, mut journal_whole) = (0, true);
        for (path, now) in &after.0 {
            if path.ends_with("journal.jsonl") {
                let old = before.0.get(path).map_or(0, Vec::len);
                let kept = rng.random_range(old..=now.len());
                journal_whole = kept == now.len();
                lines = now[old..kept].iter().filter(|byte| **byte == b'\n').count();
                cut(path, kept, rng);
            }
        }
        self.kept_others = journal_whole && rng.random_bool(0.5);
        if !self.kept_others {
            for (path, old) in &before.0 {
                if !path.ends_with("journal.jsonl") && after.0.get(path) != Some(old) {
                    fs::write(path, old).expect("its own file");
                }
            }
            for path in after.0.keys().filter(|path| !before.0.contains_key(*path)) {
                fs::remove_file(path).expect("its own file");
            }
        }
        self.lose_database();
        lines
    }

    /// Whether the last write that was torn had come as far as the files beside the journal.
    pub(super) fn kept_others(&self) -> bool {
        self.kept_others
    }

    /// The power fails between two writes: what sled had not synced may be gone, or half there.
    pub(super) fn lose_unsynced(&self, rng: &mut ChaCha8Rng) {
        match rng.random_range(0..4) {
            0 => self.lose_database(),
            1 => {
                let path = self.directory.path().join("db").join("db");
                if let Ok(metadata) = fs::metadata(&path) {
                    let file = OpenOptions::new().write(true).open(&path);
                    let kept = rng.random_range(0..=metadata.len());
                    file.and_then(|file| file.set_len(kept))
                        .expect("its own file");
                }
            }
            _ => {}
        }
    }

    fn lose_database(&self) {
        let path = self.directory.path().join("db");
        if path.exists() {
            fs::remove_dir_all(path).expect("its own directory");
        }
    }

    /// Half of the time only journals are gone, of runs that are there: then true.
    pub(super) fn lose_journals(&self, rng: &mut ChaCha8Rng) -> bool {
        if rng.random_bool(0.5) {
            return false;
        }
        let mut lost = false;
        let runs = fs::read_dir(self.directory.path().join("runs"));
        for run in runs.expect("its own directory").flatten() {
            lost |= fs::remove_file(run.path().join("journal.jsonl")).is_ok();
        }
        lost
    }
}

/// Cuts a file; of what is left after its last whole line some bytes may be anything.
fn cut(path: &Path, kept: usize, rng: &mut ChaCha8Rng) {
    let bytes = fs::read(path).expect("its own file");
    let mut file = OpenOptions::new()
        .write(true)
        .open(path)
        .expect("its own file");
    file.set_len(kept as u64).expect("its own file");
    let line = bytes[..kept].iter().rposition(|byte| *byte == b'\n');
    let tail = line.map_or(0, |end| end + 1);
    if tail < kept && rng.random_bool(0.5) {
        let from = rng.random_range(tail..kept);
        zero(&mut file, from, kept - from);
    }
}

fn zero(file: &mut File, from: usize, bytes: usize) {
    file.seek(SeekFrom::Start(from as u64))
        .and_then(|_| file.write_all(&vec![0; bytes]))
        .expect("its own file");
}
