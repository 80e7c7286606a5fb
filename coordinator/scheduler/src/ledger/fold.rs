//! Fold of a run's journal into the states of its tasks and its total.

use std::collections::BTreeSet;

use common::{
    plan::{BadSpec, Plan, PlanHash, TaskId},
    run::RunId,
    tally::{self, BadTally},
};

use super::{EntryKind, JournalEntry, Record, RunManifest, TaskRow, TaskState};

/// A change that the rules of the journal forbid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("run {run} has tasks 0 to {last}, not {task}", last = tasks.saturating_sub(1))]
    NoSuchTask { run: RunId, task: TaskId, tasks: u64 },
    #[error("task {task} of run {run}: {count} solutions exceed its limit of {limit}")]
    ImpossibleCount { run: RunId, task: TaskId, count: u64, limit: u64 },
    #[error(
        "task {task} of run {run}: a count of {count} cannot be {kind:?} while {}",
        stands.map_or("no count stands".to_owned(), |stands| format!("{stands} stands"))
    )]
    DoesNotFollow { run: RunId, task: TaskId, kind: EntryKind, count: u64, stands: Option<u64> },
}

/// A run whose plan differs from the plan that this program builds from its spec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanMismatch {
    #[error(
        "run {run} was created with plan version {theirs} (hash {their_hash}), but this program uses \
         version {ours} (hash {our_hash}): finish it with the program it was started with, or use \
         another data directory"
    )]
    Version { run: RunId, theirs: u16, ours: u16, their_hash: PlanHash, our_hash: PlanHash },
    #[error(
        "run {run} names plan {theirs}, but its spec yields plan {ours}: the manifest was altered \
         or the program differs; use the program it was started with, or another data directory"
    )]
    Hash { run: RunId, theirs: PlanHash, ours: PlanHash },
    #[error("run {run} has a spec without a plan: {reason}")]
    NoPlan { run: RunId, reason: BadSpec },
}

/// Tasks and tallies of a run, derived line by line from its journal.
#[derive(Clone, Debug)]
pub struct Fold {
    run: RunId,
    /// Rows by task; boxed, since most tasks of a long run have no record yet.
    rows: Vec<Option<Box<TaskRow>>>,
    pub lines: u64,
    /// Number of counts that differed from a standing one.
    pub(crate) disagreements: u64,
    /// Tasks whose standing count a recount found wrong.
    pub(crate) found_wrong: BTreeSet<TaskId>,
    pub(crate) voided: u64,
    pub elapsed: Elapsed,
}

impl Fold {
    pub fn new(manifest: &RunManifest, plan: &Plan) -> Self {
        let tasks = usize::try_from(plan.tasks()).expect("tasks fit memory");
        Self {
            run: manifest.run,
            rows: vec![None; tasks],
            lines: 0,
            disagreements: 0,
            found_wrong: BTreeSet::new(),
            voided: 0,
            elapsed: Elapsed::of(manifest),
        }
    }

    /// Applies the next line of the journal.
    pub fn take(
        &mut self,
        plan: &Plan,
        entry: &JournalEntry,
        sequence: u64,
    ) -> Result<(), Refusal> {
        let record = &entry.record;
        check_task(plan, self.run, record.task)?;
        check_count(plan, record)?;
        let index = usize::try_from(record.task.0).expect("checked against the plan");
        let row = self.rows[index].get_or_insert_with(|| Box::new(TaskRow::default()));
        let was_counted = row.state.standing().is_some();
        row.apply(entry, sequence)?;
        self.lines = sequence;
        match entry.kind {
            EntryKind::Accepted | EntryKind::Confirmed | EntryKind::Settled => {}
            EntryKind::Disputed => self.disagreements += u64::from(was_counted),
            EntryKind::Recounted if was_counted => {
                self.disagreements += 1;
                self.found_wrong.insert(record.task);
            }
            EntryKind::Recounted => {}
            EntryKind::Voided => self.voided += 1,
        }
        self.elapsed.apply(record);
        Ok(())
    }

    /// Returns every task with a record, in order.
    pub fn rows(&self) -> impl Iterator<Item = (TaskId, &TaskRow)> {
        let rows = (0..).map(TaskId).zip(&self.rows);
        rows.filter_map(|(task, row)| row.as_deref().map(|row| (task, row)))
    }

    /// Returns a task; `None` if it has no record.
    pub fn row(&self, task: TaskId) -> Option<&TaskRow> {
        self.rows.get(usize::try_from(task.0).ok()?)?.as_deref()
    }

    fn counts(&self) -> impl Iterator<Item = u64> {
        self.rows().filter_map(|(_, row)| row.state.standing())
    }

    pub fn tasks(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Returns the number of tasks with a standing count.
    pub fn tasks_done(&self) -> u64 {
        self.counts().count() as u64
    }

    pub fn disputed(&self) -> Vec<TaskId> {
        let disputed = |row: &TaskRow| matches!(row.state, TaskState::Disputed { .. });
        self.rows().filter(|(_, row)| disputed(row)).map(|(task, _)| task).collect()
    }

    /// Returns the sum of the standing counts.
    pub fn total(&self) -> Result<u128, BadTally> {
        tally::total(self.counts())
    }
}

/// Time during which the tasks of a run were being counted.
/// It ends with the last record.
#[derive(Clone, Copy, Debug)]
pub struct Elapsed {
    created_unix_ms: u64,
    last_unix_ms: u64,
    ms: u64,
}

impl Elapsed {
    pub fn of(manifest: &RunManifest) -> Self {
        Self { created_unix_ms: manifest.created_unix_ms, last_unix_ms: 0, ms: 0 }
    }

    /// Applies the next record of the journal.
    pub fn apply(&mut self, record: &Record) {
        self.ms = self.ms.max(record.elapsed_ms);
        self.last_unix_ms = self.last_unix_ms.max(record.accepted_unix_ms);
    }

    /// Returns the time in milliseconds, see [`super::StoredRun::elapsed_ms`].
    pub const fn ms(&self) -> u64 {
        self.ms
    }

    /// Returns the time from the run's creation to its last record, less [`Self::ms`].
    pub const fn waiting_ms(&self) -> u64 {
        self.last_unix_ms.saturating_sub(self.created_unix_ms).saturating_sub(self.ms)
    }
}

/// Checks that the plan has the task.
pub fn check_task(plan: &Plan, run: RunId, task: TaskId) -> Result<(), Refusal> {
    let refusal = Refusal::NoSuchTask { run, task, tasks: plan.tasks() };
    if plan.contains(task) { Ok(()) } else { Err(refusal) }
}

/// Checks a count against the limit of its task, which must be in the plan.
pub fn check_count(plan: &Plan, record: &Record) -> Result<(), Refusal> {
    let Record { run, task, count, .. } = *record;
    let limit = plan.task_limit(task);
    let refusal = Refusal::ImpossibleCount { run, task, count, limit };
    if count <= limit { Ok(()) } else { Err(refusal) }
}

/// Returns a run's plan if this program builds the same plan from its spec.
pub fn plan_of(manifest: &RunManifest) -> Result<Plan, PlanMismatch> {
    let RunManifest { run, spec, plan: their_hash, plan_version: theirs, .. } = *manifest;
    let plan = Plan::new(spec).map_err(|reason| PlanMismatch::NoPlan { run, reason })?;
    let (ours, our_hash) = (spec.version(), plan.hash());
    if theirs != ours {
        return Err(PlanMismatch::Version { run, theirs, ours, their_hash, our_hash });
    }
    if their_hash != our_hash {
        return Err(PlanMismatch::Hash { run, theirs: their_hash, ours: our_hash });
    }
    Ok(plan)
}

/// Cuts untrusted text to at most `bytes`, between two characters.
pub fn cut(text: &mut String, bytes: usize) {
    text.truncate(text.floor_char_boundary(bytes));
}
