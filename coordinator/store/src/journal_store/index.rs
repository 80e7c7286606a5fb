//! The index in memory: every run with its plan and the end of its journal.
//! It checks that a group of changes is about known runs and tasks; media make the group durable.

use std::collections::{BTreeMap, HashMap};

use common::{
    messages::run::RunId,
    plan::{Plan, TaskId},
};
use scheduler::ledger::fold;

use crate::{
    Change, JournalEntry, RunState, Settings, StoreError, StoredRun, TrustRecord,
    journal::JournalEnd,
};

use super::rows::TaskRow;

#[derive(Clone, Debug)]
pub(crate) struct IndexedRun {
    pub(crate) stored: StoredRun,
    pub(crate) plan: Plan,
    pub(crate) end: JournalEnd,
}

/// A group of changes, sorted by where they are stored.
#[derive(Debug, Default)]
pub(crate) struct Batch {
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
    pub(crate) fn ends(&self) -> impl Iterator<Item = (RunId, JournalEnd)> {
        self.runs.iter().map(|(run, indexed)| (*run, indexed.end))
    }

    /// Creates the entry of a new run, without inserting it.
    pub(crate) fn new_run(&self, stored: StoredRun) -> Result<IndexedRun, StoreError> {
        let manifest = &stored.manifest;
        if self.runs.contains_key(&manifest.run) {
            return Err(StoreError::RunExists(manifest.run));
        }
        let (plan, end) = (fold::plan_of(manifest)?, JournalEnd::empty(manifest));
        Ok(IndexedRun { stored, plan, end })
    }

    pub(crate) fn insert(&mut self, run: IndexedRun) {
        self.runs.insert(run.stored.manifest.run, run);
    }

    pub(crate) fn remove(&mut self, run: RunId) {
        self.runs.remove(&run);
    }

    /// Sorts a whole group, without changing anything.
    pub(crate) fn sort(&self, changes: &[Change]) -> Result<Batch, StoreError> {
        let mut batch = Batch::default();
        for change in changes {
            match change {
                Change::State { run, state } => {
                    self.run(*run)?;
                    batch.states.push((*run, *state));
                }
                Change::Settings { run, settings } => {
                    self.run(*run)?;
                    batch.settings.push((*run, *settings));
                }
                Change::Trust(record) => batch.trust.push(record.bounded()),
                Change::Lease { run, task, after, .. } => {
                    fold::check_task(&self.run(*run)?.plan, *run, *task)?;
                    batch.rows.insert((*run, *task), TaskRow::Open(after.clone()));
                }
                Change::Recorded(entry) => {
                    let entry = entry.bounded();
                    let (run, task) = (entry.record.run, entry.record.task);
                    let IndexedRun { plan, end, .. } = self.run(run)?;
                    fold::check_count(plan, &entry.record)?;
                    let entries = batch.entries.entry(run).or_default();
                    entries.push(entry);
                    let sequence = end.lines + entries.len() as u64;
                    batch.rows.insert((run, task), TaskRow::Counted { sequence });
                }
            }
        }
        Ok(batch)
    }

    /// Applies a durable batch, after which journals end at `ends`.
    pub(crate) fn commit(
        &mut self,
        batch: Batch,
        ends: impl IntoIterator<Item = (RunId, JournalEnd)>,
    ) {
        for (run, end) in ends {
            self.known(run).end = end;
        }
        for (run, settings) in batch.settings {
            self.known(run).stored.settings = settings;
        }
        for (run, state) in batch.states {
            self.known(run).stored.state = state;
        }
    }

    /// Returns a run of a sorted batch.
    fn known(&mut self, run: RunId) -> &mut IndexedRun {
        self.runs.get_mut(&run).expect("batches are about known runs")
    }
}
