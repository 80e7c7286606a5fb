//! Fold of a run's journal into the states of its tasks and its total.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use common::{
    messages::run::{RunId, WorkerId},
    plan::{BadSpec, Plan, PlanHash, TaskId},
    solutions::tally::{self, BadTally},
};

use super::{
    AuthorIx, Confirmation, EntryKind, JournalEntry, OpenTask, Principal, Record, RunManifest,
    TaskCount,
    tasks::{self, Done, Stage, TaskIx, Tasks},
};

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
    pub tasks: Tasks,
    authors: Authors,
    pub lines: u64,
    /// Number of counts that differed from a standing one.
    pub(crate) disagreements: u64,
    /// Tasks whose standing count a recount found wrong.
    pub(crate) found_wrong: BTreeSet<TaskIx>,
    /// Tasks whose standing count a void one changed: workers know that the referee had not recounted them.
    pub(crate) replaced: BTreeSet<TaskIx>,
    pub(crate) voided: u64,
    pub elapsed: Elapsed,
}

/// A run's tasks as they were stored: the fold of its journal, and the leases and attempts of tasks without a count.
#[derive(Clone, Debug)]
pub struct StoredTasks {
    pub fold: Fold,
    pub open: Vec<(TaskId, OpenTask)>,
}

/// Part of a principal in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contribution {
    /// A worker of the principal.
    pub worker: WorkerId,
    /// Tasks whose standing count is the principal's.
    pub tasks: u64,
    /// Sum of these counts.
    pub solutions: u128,
    /// Tasks in which a count of the principal and another one agree.
    pub confirmed: u64,
}

/// The authors of a run's counts, each a worker with a principal.
#[derive(Clone, Debug, Default)]
struct Authors {
    all: Vec<(WorkerId, Principal)>,
    numbers: HashMap<(WorkerId, Principal), AuthorIx>,
}

impl Authors {
    fn number(&mut self, record: &Record) -> AuthorIx {
        let author = (record.worker, record.principal.clone());
        *self.numbers.entry(author).or_insert_with_key(|author| {
            self.all.push(author.clone());
            AuthorIx::try_from(self.all.len() - 1).expect("fewer authors than lines")
        })
    }
}

impl Fold {
    pub fn new(manifest: &RunManifest, plan: &Plan) -> Self {
        Self {
            tasks: Tasks::new(plan),
            authors: Authors::default(),
            lines: 0,
            disagreements: 0,
            found_wrong: BTreeSet::new(),
            replaced: BTreeSet::new(),
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
        check_count(plan, record)?;
        let task = tasks::index(record.task);
        let author = self.authors.number(record);
        let count = TaskCount {
            count: record.count,
            author,
            kernel: record.kernel,
            orientation: record.orientation,
        };
        let before = self.tasks.state(task);
        let stood = before.standing();
        let after = before.after(entry.kind, count, |first, other| {
            self.author(first).1.confirmed_by(&self.author(other).1)
        });
        let after = after.ok_or(Refusal::DoesNotFollow {
            run: record.run,
            task: record.task,
            kind: entry.kind,
            count: record.count,
            stands: stood,
        })?;
        let changes = after.standing() != stood;
        let accepted_s = tasks::accepted_s(entry.kind, record.accepted_unix_ms);
        self.tasks.set(task, plan.task_cost(record.task), after, accepted_s);
        self.lines = sequence;
        match entry.kind {
            EntryKind::Accepted | EntryKind::Confirmed | EntryKind::Settled => {}
            EntryKind::Disputed => self.disagreements += u64::from(stood.is_some()),
            EntryKind::Recounted if stood.is_some() => {
                self.disagreements += 1;
                self.found_wrong.insert(task);
            }
            EntryKind::Recounted => {}
            EntryKind::Voided => {
                self.voided += 1;
                if changes {
                    self.replaced.insert(task);
                }
            }
        }
        self.elapsed.apply(record);
        Ok(())
    }

    /// Returns the author of a count.
    pub fn author(&self, author: AuthorIx) -> &(WorkerId, Principal) {
        &self.authors.all[author as usize]
    }

    pub(crate) fn authors(&self) -> &[(WorkerId, Principal)] {
        &self.authors.all
    }

    /// Moves the tasks out; the fold is left without any.
    pub(crate) fn take_tasks(&mut self) -> Tasks {
        std::mem::take(&mut self.tasks)
    }

    /// Returns every task with a standing count, in order.
    pub fn done(&self) -> impl Iterator<Item = (TaskId, Done)> {
        let done = |task| Some((tasks::id(task), self.tasks.done(task)?));
        self.tasks.all().filter_map(done)
    }

    /// Returns the part of each principal in the standing counts and in their confirmation.
    pub fn contributions(&self) -> BTreeMap<&Principal, Contribution> {
        let mut all = BTreeMap::new();
        let mut add = |author, counts: Option<u64>, is_confirmed| {
            let (worker, principal) = self.author(author);
            let none = Contribution { worker: *worker, tasks: 0, solutions: 0, confirmed: 0 };
            let own: &mut Contribution = all.entry(principal).or_insert(none);
            own.tasks += u64::from(counts.is_some());
            own.solutions += u128::from(counts.unwrap_or(0));
            own.confirmed += u64::from(is_confirmed);
        };
        for (_, Done { first, second, confirmed, .. }) in self.done() {
            add(first.author, Some(first.count), confirmed != Confirmation::None);
            // A principal's second count of a task adds nothing.
            let other = second.map(|(author, ..)| author);
            let is_other = |of: &AuthorIx| self.author(*of).1 != self.author(first.author).1;
            if let Some(other) = other.filter(is_other) {
                add(other, None, true);
            }
        }
        all
    }

    /// Returns the standing count of a task that the plan has.
    pub fn count(&self, task: TaskId) -> Option<u64> {
        self.tasks.done(tasks::index(task)).map(|done| done.first.count)
    }

    /// Returns the number of tasks with a standing count.
    pub fn tasks_done(&self) -> u64 {
        self.tasks.number(Stage::Done)
    }

    /// Returns the sum of the standing counts.
    pub fn total(&self) -> Result<u128, BadTally> {
        tally::total(self.tasks.counts())
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

    /// Returns the time in milliseconds.
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

/// Checks that the plan has a record's task, and the count against the task's limit.
pub fn check_count(plan: &Plan, record: &Record) -> Result<(), Refusal> {
    let Record { run, task, count, .. } = *record;
    check_task(plan, run, task)?;
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
