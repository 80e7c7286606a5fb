//! The model: a store that forgets everything when it is dropped.

use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
};

use common::{
    plan::{Plan, TaskId},
    run::RunId,
};

use super::{
    Change, JournalCursor, JournalEntry, RunManifest, RunState, Store, StoreError, StoredRun,
    SymmetricCounts, TaskRow, TrustRecord,
    line::{JournalLine, Link, Stamp},
    stage::{self, Known},
};
use crate::ledger::{
    Elapsed,
    fold::{self, Fold, KeptTask},
};

/// It has no disk to keep a secret on, and nobody to keep it from.
const SECRET: [u8; 32] = [7; 32];

/// Keeps everything in memory; what [`super::DiskStore`] is compared with, and what simulations
/// crash and restart schedulers on (a clone is the disk after a crash).
#[derive(Clone, Debug)]
pub struct MemoryStore {
    /// In the order of the calls.
    runs: Vec<MemoryRun>,
    places: HashMap<RunId, usize>,
    trust: Vec<TrustRecord>,
    term: u64,
}

#[derive(Clone, Debug)]
struct MemoryRun {
    stored: StoredRun,
    plan: Plan,
    journal: Vec<JournalLine>,
    /// What the next line names as the one before.
    head: Link,
    rows: BTreeMap<TaskId, KeptTask>,
    symmetric: Option<SymmetricCounts>,
}

impl MemoryStore {
    /// A store without runs, in its first term.
    pub fn new() -> Self {
        Self {
            runs: Vec::new(),
            places: HashMap::new(),
            trust: Vec::new(),
            term: 1,
        }
    }

    /// The coordinator starts again.
    pub fn begin_term(&mut self) {
        self.term += 1;
    }

    /// Forgets everything that is not journalled.
    #[cfg(test)]
    pub(super) fn lose_rows(&mut self) {
        for run in &mut self.runs {
            let mut fold = Fold::new(&run.stored.manifest, &run.plan);
            for line in &run.journal {
                fold.take(&run.plan, &line.entry, line.sequence).unwrap();
            }
            run.rows = fold.rows().map(|(task, row)| (task, row.clone())).collect();
        }
    }

    fn place(&self, run: RunId) -> Result<usize, StoreError> {
        self.places
            .get(&run)
            .copied()
            .ok_or(StoreError::NoSuchRun(run))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Known for MemoryStore {
    fn run(&self, run: RunId) -> Result<(&Plan, u64), StoreError> {
        let run = &self.runs[self.place(run)?];
        Ok((&run.plan, run.journal.len() as u64))
    }

    fn row(&self, run: RunId, task: TaskId) -> Result<Option<KeptTask>, StoreError> {
        Ok(self.runs[self.place(run)?].rows.get(&task).cloned())
    }
}

impl Store for MemoryStore {
    fn runs(&self) -> Result<Vec<StoredRun>, StoreError> {
        let mut runs: Vec<_> = self.runs.iter().map(|run| run.stored.clone()).collect();
        runs.sort_by_key(|run| run.manifest.age());
        Ok(runs)
    }

    fn create(&mut self, manifest: &RunManifest) -> Result<(), StoreError> {
        if self.places.contains_key(&manifest.run) {
            return Err(StoreError::RunExists(manifest.run));
        }
        let run = MemoryRun {
            stored: StoredRun {
                manifest: manifest.clone(),
                state: RunState::Running,
                recheck: None,
                elapsed_ms: 0,
            },
            plan: fold::plan_of(manifest)?,
            journal: Vec::new(),
            head: Link::first(manifest),
            rows: BTreeMap::new(),
            symmetric: None,
        };
        self.places.insert(manifest.run, self.runs.len());
        self.runs.push(run);
        Ok(())
    }

    fn delete(&mut self, run: RunId) -> Result<(), StoreError> {
        let place = self.place(run)?;
        self.runs.remove(place);
        let names = self.runs.iter().map(|run| run.stored.manifest.run);
        self.places = names.zip(0..).collect();
        Ok(())
    }

    fn symmetric(&self, run: RunId) -> Result<Option<SymmetricCounts>, StoreError> {
        Ok(self.runs[self.place(run)?].symmetric)
    }

    fn trust(&self) -> Result<Vec<TrustRecord>, StoreError> {
        Ok(self.trust.clone())
    }

    fn secret(&self) -> [u8; 32] {
        SECRET
    }

    fn term(&self) -> u64 {
        self.term
    }

    fn keep_symmetric(&mut self, run: RunId, counts: SymmetricCounts) -> Result<(), StoreError> {
        let place = self.place(run)?;
        self.runs[place].symmetric = Some(counts);
        Ok(())
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let staged = stage::stage(self, changes)?;
        let fence = self.term;
        for (sequence, entry) in staged.lines {
            let place = self.place(entry.record().run)?;
            let run = &mut self.runs[place];
            let record = entry.record();
            let mut elapsed = Elapsed::of(&run.stored.manifest);
            elapsed.see(record);
            run.stored.elapsed_ms = run.stored.elapsed_ms.max(elapsed.ms());
            let line = JournalLine {
                sequence,
                plan: run.plan.hash(),
                stamp: Some(Stamp {
                    units: run.plan.task_units(record.task),
                    fence,
                }),
                entry,
                prev: run.head,
            };
            run.head = Link::after(line.encode().as_bytes());
            run.journal.push(line);
        }
        for ((run, task), row) in staged.rows {
            let place = self.place(run)?;
            self.runs[place].rows.insert(task, row);
        }
        self.trust.extend(staged.trust);
        for (run, recheck) in staged.rechecks {
            let place = self.place(run)?;
            self.runs[place].stored.recheck = Some(recheck);
        }
        for (run, state) in staged.states {
            let place = self.place(run)?;
            self.runs[place].stored.state = state;
        }
        Ok(())
    }

    fn refold(&self, run: RunId) -> Result<Fold, StoreError> {
        let run = &self.runs[self.place(run)?];
        let mut fold = Fold::new(&run.stored.manifest, &run.plan);
        for line in &run.journal {
            fold.take(&run.plan, &line.entry, line.sequence)?;
        }
        Ok(fold)
    }

    fn scan(&self, run: RunId, visit: &mut dyn FnMut(TaskRow)) -> Result<(), StoreError> {
        let run = &self.runs[self.place(run)?];
        for (task, row) in &run.rows {
            visit(row.clone().task_row(*task));
        }
        Ok(())
    }

    fn journal(
        &self,
        run: RunId,
        from: JournalCursor,
        visit: &mut dyn FnMut(u64, &JournalEntry, &str) -> ControlFlow<()>,
    ) -> Result<JournalCursor, StoreError> {
        let run = &self.runs[self.place(run)?];
        let mut place = from.0;
        let lines = run
            .journal
            .iter()
            .zip(1..)
            .skip_while(|(_, next)| *next <= from.0);
        for (line, next) in lines {
            place = next;
            if visit(line.sequence, &line.entry, &line.encode()).is_break() {
                break;
            }
        }
        Ok(JournalCursor(place))
    }
}
