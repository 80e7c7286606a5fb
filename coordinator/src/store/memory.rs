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
    SymmetricCounts, TaskRow,
    fold::{self, Known, Row},
    line::{Line, Link},
};

/// Keeps everything in memory; what [`super::DiskStore`] is compared with, and what simulations
/// crash and restart schedulers on (a clone is the disk after a crash).
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    /// In the order of the calls.
    runs: Vec<MemoryRun>,
    places: HashMap<RunId, usize>,
}

#[derive(Clone, Debug)]
struct MemoryRun {
    stored: StoredRun,
    plan: Plan,
    journal: Vec<Line>,
    /// What the next line names as the one before.
    head: Link,
    rows: BTreeMap<TaskId, Row>,
    symmetric: Option<SymmetricCounts>,
}

impl MemoryStore {
    /// A store without runs.
    pub fn new() -> Self {
        Self::default()
    }

    fn place(&self, run: RunId) -> Result<usize, StoreError> {
        self.places
            .get(&run)
            .copied()
            .ok_or(StoreError::NoSuchRun(run))
    }
}

impl Known for MemoryStore {
    fn run(&self, run: RunId) -> Result<(&Plan, u64), StoreError> {
        let run = &self.runs[self.place(run)?];
        Ok((&run.plan, run.journal.len() as u64))
    }

    fn row(&self, run: RunId, task: TaskId) -> Result<Option<Row>, StoreError> {
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

    fn keep_symmetric(&mut self, run: RunId, counts: SymmetricCounts) -> Result<(), StoreError> {
        let place = self.place(run)?;
        self.runs[place].symmetric = Some(counts);
        Ok(())
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let staged = fold::stage(self, changes)?;
        for (sequence, entry) in staged.lines {
            let place = self.place(entry.record().run)?;
            let run = &mut self.runs[place];
            let line = Line {
                sequence,
                plan: run.plan.hash(),
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
        for (run, state) in staged.states {
            let place = self.place(run)?;
            self.runs[place].stored.state = state;
        }
        Ok(())
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
