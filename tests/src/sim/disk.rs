//! The coordinator's disk, with injected faults.
//! A crash may lose unsynced changes or tear a group of changes; the disk may fill up or be lost.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{Seek as _, SeekFrom, Write as _},
    ops::ControlFlow,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use common::{
    messages::run::RunId,
    solutions::symmetric::{half_turn, quarter_turn},
};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use store::{
    Change, DiskStore, MemoryStore, Recheck, RunManifest, Store, StoreError, SymmetricCounts,
};
use tempfile::TempDir;

use super::{Fault, Tally, scenario::Scenario, shared::Checker};

/// A store with injected faults.
pub(super) struct Disk {
    pub(super) checker: Checker,
    pub(super) tally: Tally,
    backend: Backend,
    /// Changes that are not in the model yet.
    recent: Vec<Change>,
    /// An earlier state of the model.
    copy: Option<(Box<MemoryStore>, Checker)>,
    crash_in_write: f64,
    error: f64,
    seed: u64,
    rng: ChaCha8Rng,
}

enum Backend {
    Model(Box<MemoryStore>),
    /// Files, reopened after each crash.
    Files(Option<Box<DiskStore>>, Files),
}

impl Backend {
    fn store(&mut self) -> &mut dyn Store {
        match self {
            Self::Model(store) => store.as_mut(),
            Self::Files(store, _) => store.as_deref_mut().expect("an open store"),
        }
    }
}

/// Returns whether a change is a journal line, which `Store::apply` writes first.
fn is_journaled(change: &Change) -> bool {
    matches!(change, Change::Recorded(_))
}

/// Returns whether a change is synced to another file, after the journal.
fn is_file(change: &Change) -> bool {
    matches!(change, Change::State { .. } | Change::Settings { .. } | Change::Trust(_))
}

/// Returns the part of a group that is on disk after a crash during the write.
/// Lines are written first, then other files, then rows, of which the last ones may be missing.
fn torn(changes: &[Change], rng: &mut ChaCha8Rng) -> Vec<Change> {
    let (lines, others): (Vec<_>, Vec<_>) = changes.iter().cloned().partition(is_journaled);
    let (files, rows): (Vec<_>, Vec<_>) = others.into_iter().partition(is_file);
    let mut written = Vec::new();
    for part in [lines, files, rows] {
        let kept = rng.random_range(0..=part.len());
        let whole = kept == part.len();
        written.extend(part.into_iter().take(kept));
        if !whole {
            break;
        }
    }
    written
}

impl Disk {
    /// Returns the store with everything that was written.
    pub(super) fn store(&mut self) -> &mut dyn Store {
        self.flush();
        self.backend.store()
    }

    /// Writes a group of changes. An error ends the process.
    pub(super) fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        if self.rng.random_bool(self.error) && changes.iter().any(is_journaled) {
            self.tally.add(Fault::DiskError);
            return Err(self.full(changes));
        }
        if self.rng.random_bool(self.crash_in_write) {
            self.tally.add(Fault::CrashInWrite);
            self.tear(changes);
            return Err(StoreError::Poisoned("the power failed".to_owned()));
        }
        self.checker.stored(changes);
        match &mut self.backend {
            Backend::Files(store, _) => store.as_mut().expect("an open store").apply(changes),
            Backend::Model(_) => {
                self.recent.extend_from_slice(changes);
                if self.rng.random_bool(0.1) {
                    self.flush();
                }
                Ok(())
            }
        }
    }

    /// Returns a secret that depends only on the seed, so that replays are the same.
    pub(super) fn secret(&mut self) -> [u8; 32] {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ 0x5ec7e7);
        std::array::from_fn(|_| rng.random())
    }

    pub(super) fn new(scenario: &Scenario) -> Self {
        let seed = scenario.seed;
        let wrong = scenario.faults.liars > 0 || scenario.faults.referee_error > 0.0;
        let backend = if scenario.files {
            let files = Files::new();
            let store = files.open().expect("an empty directory");
            Backend::Files(Some(Box::new(store)), files)
        } else {
            Backend::Model(Box::default())
        };
        Self {
            checker: Checker::new(seed, scenario.truth, wrong),
            tally: Tally::default(),
            backend,
            recent: Vec::new(),
            copy: None,
            crash_in_write: scenario.faults.crash_in_write,
            error: scenario.faults.disk_error,
            seed,
            rng: ChaCha8Rng::seed_from_u64(seed ^ 0xd15c),
        }
    }

    pub(super) fn create(&mut self, manifest: &RunManifest, recheck: Recheck) {
        let run = manifest.run;
        let store = self.store();
        store.create(manifest, recheck).expect("there is no such run");
        let board = manifest.spec.board;
        let half_turn = half_turn(board, &|| ControlFlow::Continue(()));
        let half_turn = half_turn.expect("a small board");
        let symmetric = SymmetricCounts { half_turn, quarter_turn: quarter_turn(board) };
        store.keep_symmetric(run, symmetric).expect("a sound store");
    }

    fn flush(&mut self) {
        if self.recent.is_empty() {
            return;
        }
        let result = self.backend.store().apply(&self.recent);
        assert!(result.is_ok(), "seed {}: the store refused a group: {result:?}", self.seed);
        self.recent.clear();
    }

    /// Fails a write because the disk is full: nothing of the group is stored.
    fn full(&mut self, changes: &[Change]) -> StoreError {
        match &mut self.backend {
            Backend::Model(_) => StoreError::Poisoned("no space left".to_owned()),
            Backend::Files(store, files) => {
                let store = store.as_mut().expect("an open store");
                let run = store.runs().expect("a sound store")[0].manifest.run;
                let result = files.while_full(run, || store.apply(changes));
                result.expect_err("nothing fits on a full disk")
            }
        }
    }

    /// Writes a part of a group, as a power failure would.
    fn tear(&mut self, changes: &[Change]) {
        match &mut self.backend {
            Backend::Model(_) => {
                let written = torn(changes, &mut self.rng);
                self.checker.stored(&written);
                self.recent.extend(written);
            }
            Backend::Files(store, files) => {
                let before = files.contents();
                let mut open = store.take().expect("an open store");
                open.apply(changes).expect("a sound store");
                drop(open);
                let lines = files.tear(&before, &mut self.rng);
                let mut written: Vec<_> =
                    changes.iter().filter(|c| is_journaled(c)).cloned().collect();
                let is_whole = lines == written.len();
                written.truncate(lines);
                if is_whole && files.has_others {
                    written.extend(changes.iter().filter(|c| is_file(c)).cloned());
                }
                self.checker.stored(&written);
            }
        }
    }

    /// Restarts the store with all synced changes and some of the others.
    pub(super) fn crash(&mut self) {
        let kept = self.rng.random_range(0..=self.recent.len());
        let mut place = 0;
        self.recent.retain(|change| {
            place += 1;
            place <= kept || is_journaled(change) || is_file(change)
        });
        self.flush();
        match &mut self.backend {
            Backend::Model(store) => store.begin_term(),
            Backend::Files(store, files) => {
                drop(store.take());
                files.lose_unsynced(&mut self.rng);
                *store = Some(Box::new(files.open().expect("a sound store")));
            }
        }
    }

    /// Replaces a lost disk, or one without its journals, with an empty one.
    pub(super) fn lose(&mut self) {
        self.tally.add(Fault::DiskLost);
        self.recent.clear();
        self.copy = None;
        match &mut self.backend {
            Backend::Model(store) => **store = MemoryStore::new(),
            Backend::Files(store, files) => {
                drop(store.take());
                if files.lose_journals(&mut self.rng) {
                    let error = files.open().expect_err("a missing journal is noticed");
                    let text = error.to_string();
                    assert!(
                        text.contains("journal") && !text.contains('\n'),
                        "seed {}: {text}",
                        self.seed
                    );
                }
                *files = Files::new();
                *store = Some(Box::new(files.open().expect("an empty directory")));
            }
        }
        self.checker.forget();
    }

    /// Copies the model while the coordinator runs.
    pub(super) fn copy(&mut self) {
        self.flush();
        if let Backend::Model(store) = &self.backend {
            self.copy = Some((store.clone(), self.checker.clone()));
        }
    }

    pub(super) fn has_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// Replaces the disk with its copy: everything since then is lost, acknowledged or not.
    pub(super) fn restore_copy(&mut self) {
        if let Some((store, checker)) = self.copy.take() {
            self.tally.add(Fault::OlderCopy);
            self.recent.clear();
            (self.backend, self.checker) = (Backend::Model(store), checker);
            self.checker.is_older_copy = true;
        }
    }

    /// Returns the runs that the disk has.
    pub(super) fn runs(&mut self) -> Vec<RunId> {
        let runs = self.store().runs().expect("a sound store");
        runs.iter().map(|stored| stored.manifest.run).collect()
    }
}

/// A data directory whose files are cut, scrambled and removed under the store.
struct Files {
    directory: TempDir,
    /// Whether the last torn write included the files other than the journal.
    has_others: bool,
}

/// Contents of all files but sled's.
type Contents = BTreeMap<PathBuf, Vec<u8>>;

impl Files {
    fn new() -> Self {
        // In memory, syncing takes no time.
        let memory = Path::new("/dev/shm");
        let directory = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        Self { directory: directory.expect("a directory for temporary files"), has_others: false }
    }

    fn open(&self) -> Result<DiskStore, StoreError> {
        DiskStore::open(self.directory.path())
    }

    fn journal(&self, run: RunId) -> PathBuf {
        let runs = self.directory.path().join("runs");
        runs.join(run.to_string()).join("journal.jsonl")
    }

    /// Runs `act` while the journal's disk is full.
    fn while_full<T>(&self, run: RunId, act: impl FnOnce() -> T) -> T {
        let journal = self.journal(run);
        let aside = journal.with_extension("aside");
        fs::rename(&journal, &aside).expect("a journal");
        symlink("/dev/full", &journal).expect("a free path");
        let result = act();
        fs::remove_file(&journal).expect("a link");
        fs::rename(&aside, &journal).expect("a free path");
        result
    }

    fn contents(&self) -> Contents {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.directory.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() && !path.ends_with("db") {
                    folders.push(path);
                } else if path.is_file() {
                    let bytes = fs::read(&path).expect("a stored file");
                    files.insert(path, bytes);
                }
            }
        }
        files
    }

    /// Undoes a write from a random place on; returns the number of whole new lines.
    /// As in a power failure: the journal comes first, then other files, then rows.
    fn tear(&mut self, before: &Contents, rng: &mut ChaCha8Rng) -> usize {
        let after = self.contents();
        let (mut lines, mut journal_whole) = (0, true);
        for (path, now) in &after {
            if path.ends_with("journal.jsonl") {
                let old = before.get(path).map_or(0, Vec::len);
                let kept = rng.random_range(old..=now.len());
                journal_whole = kept == now.len();
                lines = now[old..kept].iter().filter(|byte| **byte == b'\n').count();
                cut(path, kept, rng);
            }
        }
        self.has_others = journal_whole && rng.random_bool(0.5);
        if !self.has_others {
            for (path, old) in before {
                if !path.ends_with("journal.jsonl") && after.get(path) != Some(old) {
                    fs::write(path, old).expect("a stored file");
                }
            }
            for path in after.keys().filter(|path| !before.contains_key(*path)) {
                fs::remove_file(path).expect("a stored file");
            }
        }
        self.lose_database();
        lines
    }

    /// Removes, cuts or leaves sled's files, as a power failure between two writes may.
    fn lose_unsynced(&self, rng: &mut ChaCha8Rng) {
        match rng.random_range(0..4) {
            0 => self.lose_database(),
            1 => {
                let path = self.directory.path().join("db").join("db");
                if let Ok(metadata) = fs::metadata(&path) {
                    let file = OpenOptions::new().write(true).open(&path);
                    let kept = rng.random_range(0..=metadata.len());
                    file.and_then(|file| file.set_len(kept)).expect("a stored file");
                }
            }
            _ => {}
        }
    }

    fn lose_database(&self) {
        let path = self.directory.path().join("db");
        if path.exists() {
            fs::remove_dir_all(path).expect("a stored directory");
        }
    }

    /// Removes the journals half of the time; returns whether it did.
    fn lose_journals(&self, rng: &mut ChaCha8Rng) -> bool {
        if rng.random_bool(0.5) {
            return false;
        }
        let mut lost = false;
        let runs = fs::read_dir(self.directory.path().join("runs"));
        for run in runs.expect("a stored directory").flatten() {
            lost |= fs::remove_file(run.path().join("journal.jsonl")).is_ok();
        }
        lost
    }
}

/// Truncates a file; may zero bytes after its last whole line.
fn cut(path: &Path, kept: usize, rng: &mut ChaCha8Rng) {
    let bytes = fs::read(path).expect("a stored file");
    let mut file = OpenOptions::new().write(true).open(path).expect("a stored file");
    file.set_len(kept as u64).expect("a stored file");
    let line = bytes[..kept].iter().rposition(|byte| *byte == b'\n');
    let tail = line.map_or(0, |end| end + 1);
    if tail < kept && rng.random_bool(0.5) {
        let from = rng.random_range(tail..kept);
        file.seek(SeekFrom::Start(from as u64))
            .and_then(|_| file.write_all(&vec![0; kept - from]))
            .expect("a stored file");
    }
}
