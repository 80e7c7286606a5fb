//! A group of changes, checked before anything of it is kept. Pure; both stores use it.

use std::collections::HashMap;

use common::{
    plan::{Plan, TaskId},
    run::RunId,
};

use super::StoreError;
use crate::ledger::{
    Change, JournalEntry, Recheck, RunState, TrustRecord,
    fold::{self, KeptTask},
};

/// What a store knows before a group of changes.
pub(crate) trait Known {
    /// The plan of a run and how many journal lines the run has.
    fn run(&self, run: RunId) -> Result<(&Plan, u64), StoreError>;

    /// What is kept of a task, if anything.
    fn row(&self, run: RunId, task: TaskId) -> Result<Option<KeptTask>, StoreError>;
}

/// A group of changes, checked: what to keep.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// Journal lines to append, with their sequence numbers, in order.
    pub(crate) lines: Vec<(u64, JournalEntry)>,
    /// The rows of all tasks touched, as they are after the group.
    pub(crate) rows: HashMap<(RunId, TaskId), KeptTask>,
    /// New states of runs, in order.
    pub(crate) states: Vec<(RunId, RunState)>,
    /// What is to be counted twice from now on.
    pub(crate) rechecks: Vec<(RunId, Recheck)>,
    /// What is thought of workers, in order.
    pub(crate) trust: Vec<TrustRecord>,
}

/// Checks a whole group before anything of it is kept.
pub(crate) fn stage(known: &impl Known, changes: &[Change]) -> Result<Staged, StoreError> {
    let mut staged = Staged::default();
    let mut next = HashMap::new();
    for change in changes {
        let (run, task) = match change {
            Change::State { run, state } => {
                known.run(*run)?;
                staged.states.push((*run, *state));
                continue;
            }
            Change::Recheck { run, recheck } => {
                known.run(*run)?;
                staged.rechecks.push((*run, *recheck));
                continue;
            }
            Change::Trust(record) => {
                staged.trust.push(record.bounded());
                continue;
            }
            other => other.task().expect("every other change is about a task"),
        };
        let (plan, lines) = known.run(run)?;
        fold::check_task(plan, run, task)?;
        let mut row = match staged.rows.remove(&(run, task)) {
            Some(row) => row,
            None => known.row(run, task)?.unwrap_or(KeptTask::new()),
        };
        if let Some(entry) = change.journal_entry() {
            fold::check_count(plan, entry.record())?;
            let sequence = next.entry(run).or_insert(lines);
            *sequence += 1;
            row.settle(&entry, *sequence)?;
            staged.lines.push((*sequence, entry));
        } else {
            row.change(change);
        }
        staged.rows.insert((run, task), row);
    }
    Ok(staged)
}
