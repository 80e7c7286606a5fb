//! The index in memory: every run with its plan, journal's end and tasks' rows.
//! It decides whether a group of changes is valid; media make the group durable.

use std::collections::{BTreeMap, HashMap};

use common::{
    plan::{Plan, TaskId},
    run::RunId,
};
use scheduler::ledger::{Elapsed, TaskRow, fold};

use crate::{
    Change, JournalEntry, RunState, Settings, StoreError, StoredRun, TrustRecord, journal::End,
};

/// The rows of a run, by task.
pub(crate) type TaskRows = BTreeMap<TaskId, TaskRow>;

#[derive(Clone, Debug)]
pub(crate) struct IndexedRun {
    pub(crate) stored: StoredRun,
    pub(crate) plan: Plan,
    pub(crate) end: End,
    pub(crate) rows: TaskRows,
}

/// A validated group of changes.
#[derive(Debug, Default)]
pub(crate) struct ValidatedBatch {
    /// Journal entries to append, in order.
    pub(crate) entries: BTreeMap<RunId, Vec<JournalEntry>>,
    /// The rows of all tasks touched, after the group.
    pub(crate) rows: HashMap<(RunId, TaskId), TaskRow>,
    /// New states of runs, in order.
    pub(crate) states: Vec<(RunId, RunState)>,
    /// New settings of runs, in order.
    pub(crate) settings: Vec<(RunId, Settings)>,
    pub(crate) trust: Vec<TrustRecord>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    runs: HashMap<RunId, IndexedRun>,
}

impl Index {
    /// Returns every run, ordered by creation time, then by ID.
    pub(crate) fn runs(&self) -> Vec<StoredRun> {
        let mut runs: Vec<_> = self.runs.values().map(|run| run.stored.clone()).collect();
        runs.sort_by_key(|run| run.manifest.age());
        runs
    }

    pub(crate) fn run(&self, run: RunId) -> Result<&IndexedRun, StoreError> {
        self.runs.get(&run).ok_or(StoreError::NoSuchRun(run))
    }

    /// Returns the end of every run's journal.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (RunId, End)> {
        self.runs.iter().map(|(run, indexed)| (*run, indexed.end))
    }

    /// Creates the entry of a new run, without inserting it.
    pub(crate) fn new_run(&self, stored: StoredRun) -> Result<IndexedRun, StoreError> {
        let manifest = &stored.manifest;
        if self.runs.contains_key(&manifest.run) {
            return Err(StoreError::RunExists(manifest.run));
        }
        let (plan, end) = (fold::plan_of(manifest)?, End::empty(manifest));
        Ok(IndexedRun { stored, plan, end, rows: TaskRows::new() })
    }

    pub(crate) fn insert(&mut self, run: IndexedRun) {
        self.runs.insert(run.stored.manifest.run, run);
    }

    pub(crate) fn remove(&mut self, run: RunId) {
        self.runs.remove(&run);
    }

    /// Validates a whole group, without changing anything.
    pub(crate) fn validate(&self, changes: &[Change]) -> Result<ValidatedBatch, StoreError> {
        let mut batch = ValidatedBatch::default();
        for change in changes {
            let (run, task) = match change {
                Change::State { run, state } => {
                    self.run(*run)?;
                    batch.states.push((*run, *state));
                    continue;
                }
                Change::Settings { run, settings } => {
                    self.run(*run)?;
                    batch.settings.push((*run, *settings));
                    continue;
                }
                Change::Trust(record) => {
                    batch.trust.push(record.bounded());
                    continue;
                }
                other => other.task().expect("every other change is about a task"),
            };
            let IndexedRun { plan, end, rows, .. } = self.run(run)?;
            fold::check_task(plan, run, task)?;
            let mut row = match batch.rows.remove(&(run, task)) {
                Some(row) => row,
                None => rows.get(&task).cloned().unwrap_or_default(),
            };
            if let Some(entry) = change.journal_entry() {
                fold::check_count(plan, &entry.record)?;
                let entries = batch.entries.entry(run).or_default();
                row.apply(&entry, end.lines + entries.len() as u64 + 1)?;
                entries.push(entry);
            } else {
                row.change(change);
            }
            batch.rows.insert((run, task), row);
        }
        Ok(batch)
    }

    /// Applies a durable batch, after which journals end at `ends`.
    pub(crate) fn commit(
        &mut self,
        batch: ValidatedBatch,
        ends: impl IntoIterator<Item = (RunId, End)>,
    ) {
        for (run, end) in ends {
            self.known(run).end = end;
        }
        for (run, entries) in batch.entries {
            let stored = &mut self.known(run).stored;
            let mut elapsed = Elapsed::of(&stored.manifest);
            entries.iter().for_each(|entry| elapsed.apply(&entry.record));
            stored.elapsed_ms = stored.elapsed_ms.max(elapsed.ms());
        }
        for ((run, task), row) in batch.rows {
            self.known(run).rows.insert(task, row);
        }
        for (run, settings) in batch.settings {
            self.known(run).stored.settings = settings;
        }
        for (run, state) in batch.states {
            self.known(run).stored.state = state;
        }
    }

    /// Returns a run of a validated batch.
    fn known(&mut self, run: RunId) -> &mut IndexedRun {
        self.runs.get_mut(&run).expect("batches are about known runs")
    }

    #[cfg(test)]
    pub(crate) fn runs_mut(&mut self) -> impl Iterator<Item = &mut IndexedRun> {
        self.runs.values_mut()
    }
}
