//! The coordinator's disk: it keeps what was synced, may lose the rest in a crash, tears the group
//! that is being written, fills up, and is lost whole.

use common::run::RunId;
use coordinator::store::{Change, DiskStore, MemoryStore, RunManifest, Store, StoreError};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

use super::{
    files::Files,
    ledger::Ledger,
    scenario::Scenario,
    tally::{Fault, Tally},
    truth::Truth,
};

/// A store, what watches it, and how it fails.
pub(super) struct Disk {
    pub(super) ledger: Ledger,
    pub(super) tally: Tally,
    kept: Kept,
    /// Changes that the model was given since the last flush.
    recent: Vec<Change>,
    crash_in_write: f64,
    error: f64,
    seed: u64,
    rng: ChaCha8Rng,
}

/// Where changes are.
enum Kept {
    Model(MemoryStore),
    /// Files, opened anew after each crash.
    Files(Option<Box<DiskStore>>, Files),
}

impl Kept {
    fn store(&mut self) -> &mut dyn Store {
        match self {
            Self::Model(store) => store,
            Self::Files(store, _) => store.as_deref_mut().expect("it is open"),
        }
    }
}

/// A journalled change: what `Store::apply` writes first, in this order.
fn is_line(change: &Change) -> bool {
    matches!(
        change,
        Change::Accepted(_) | Change::Confirmed(_) | Change::Quarantined { .. }
    )
}

/// A change that is synced, too, after the journal.
fn is_file(change: &Change) -> bool {
    matches!(
        change,
        Change::State { .. } | Change::Recheck { .. } | Change::Trust(_)
    )
}

/// What a crash in the middle of a write leaves of a group: lines up to some place; where those are
/// whole, other files up to some place; where those are too, rows.
fn torn(changes: &[Change], rng: &mut ChaCha8Rng) -> Vec<Change> {
    let (lines, others): (Vec<_>, Vec<_>) = changes.iter().cloned().partition(is_line);
    let (files, rows): (Vec<_>, Vec<_>) = others.into_iter().partition(is_file);
    let mut left = Vec::new();
    for part in [lines, files, rows] {
        let kept = rng.random_range(0..=part.len());
        let whole = kept == part.len();
        left.extend(part.into_iter().take(kept));
        if !whole {
            break;
        }
    }
    left
}

impl Disk {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let seed = scenario.seed;
        let wrong = scenario.faults.liars > 0 || scenario.faults.planted > 0;
        let kept = if scenario.files {
            let files = Files::new();
            let store = files.open().expect("an empty directory");
            Kept::Files(Some(Box::new(store)), files)
        } else {
            Kept::Model(MemoryStore::new())
        };
        Self {
            ledger: Ledger::new(seed, scenario.truth, wrong),
            tally: Tally::default(),
            kept,
            recent: Vec::new(),
            crash_in_write: scenario.faults.crash_in_write,
            error: scenario.faults.disk_error,
            seed,
            rng: ChaCha8Rng::seed_from_u64(seed ^ 0xd15c),
        }
    }

    pub(super) fn secret(&self) -> [u8; 32] {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ 0x5ec7e7);
        std::array::from_fn(|_| rng.random())
    }

    /// A new run, as an operator starts one.
    pub(super) fn create(&mut self, manifest: &RunManifest, scenario: &Scenario) {
        let run = manifest.run;
        let recheck = scenario.recheck;
        let store = self.settled();
        store.create(manifest).expect("there is no such run");
        let truth: &Truth = scenario.truth;
        store
            .keep_symmetric(run, truth.symmetric)
            .and_then(|()| store.apply(&[Change::Recheck { run, recheck }]))
            .expect("a sound store");
    }

    /// The store with everything flushed.
    pub(super) fn settled(&mut self) -> &mut dyn Store {
        self.flush();
        self.kept.store()
    }

    fn flush(&mut self) {
        if self.recent.is_empty() {
            return;
        }
        let result = self.kept.store().apply(&self.recent);
        assert!(
            result.is_ok(),
            "seed {}: the store refused a group: {result:?}",
            self.seed
        );
        self.recent.clear();
    }

    /// One group of the driver's; the process dies of an error.
    pub(super) fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.ledger.decided(changes);
        if self.rng.random_bool(self.error) && changes.iter().any(is_line) {
            self.tally.add(Fault::DiskError);
            return Err(self.full(changes));
        }
        if self.rng.random_bool(self.crash_in_write) {
            self.tally.add(Fault::CrashInWrite);
            self.tear(changes);
            return Err(StoreError::Poisoned("the power failed".to_owned()));
        }
        self.ledger.kept(changes);
        match &mut self.kept {
            Kept::Files(store, _) => store.as_mut().expect("it is open").apply(changes),
            Kept::Model(_) => {
                self.recent.extend_from_slice(changes);
                if self.rng.random_bool(0.1) {
                    self.flush();
                }
                Ok(())
            }
        }
    }

    /// A write that finds no room: nothing of the group is kept.
    fn full(&mut self, changes: &[Change]) -> StoreError {
        match &mut self.kept {
            Kept::Model(_) => StoreError::Poisoned("no space left".to_owned()),
            Kept::Files(store, files) => {
                let store = store.as_mut().expect("it is open");
                let run = store.runs().expect("a sound store")[0].manifest.run;
                let result = files.while_full(run, || store.apply(changes));
                result.expect_err("nothing fits on a full disk")
            }
        }
    }

    /// A write that the power fails in.
    fn tear(&mut self, changes: &[Change]) {
        match &mut self.kept {
            Kept::Model(_) => {
                let left = torn(changes, &mut self.rng);
                self.ledger.kept(&left);
                self.recent.extend(left);
            }
            Kept::Files(store, files) => {
                let before = files.remember();
                let mut open = store.take().expect("it is open");
                open.apply(changes).expect("a sound store");
                drop(open);
                let lines = files.tear(&before, &mut self.rng);
                let whole = changes.iter().filter(|change| is_line(change)).count();
                let mut left: Vec<Change> =
                    changes.iter().filter(|c| is_line(c)).cloned().collect();
                left.truncate(lines);
                if lines == whole && files.kept_others() {
                    left.extend(changes.iter().filter(|c| is_file(c)).cloned());
                }
                self.ledger.kept(&left);
            }
        }
    }

    /// What is left after a crash: every synced change, the others up to some moment.
    pub(super) fn crash(&mut self) {
        let kept = self.rng.random_range(0..=self.recent.len());
        let mut place = 0;
        self.recent.retain(|change| {
            place += 1;
            place <= kept || is_line(change) || is_file(change)
        });
        self.flush();
        match &mut self.kept {
            Kept::Model(store) => store.begin_term(),
            Kept::Files(store, files) => {
                drop(store.take());
                files.lose_unsynced(&mut self.rng);
                *store = Some(Box::new(files.open().expect("its own files")));
            }
        }
    }

    /// The disk is gone, or a part without which the rest is refused: a new one takes its place, with
    /// nothing on it.
    pub(super) fn lose(&mut self) {
        self.tally.add(Fault::DiskLost);
        self.recent.clear();
        match &mut self.kept {
            Kept::Model(store) => *store = MemoryStore::new(),
            Kept::Files(store, files) => {
                drop(store.take());
                if files.lose_journals(&mut self.rng) {
                    let error = files.open().expect_err("a journal that is gone is missed");
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
        self.ledger.forget();
    }

    /// The only run, if the disk has it.
    pub(super) fn run(&mut self) -> Option<RunId> {
        let runs = self.settled().runs().expect("a sound store");
        runs.first().map(|stored| stored.manifest.run)
    }
}
