//! What a change makes of a task: the one place that knows.
//!
//! The journal's grammar, task by task: an accepted count may be confirmed by equal ones. A count
//! that contradicts it quarantines the task, further counts may join, and the next accepted record
//! resolves it. The tasks' counts are the last accepted ones of tasks that are not quarantined.

use common::{
    plan::{Plan, TaskId},
    run::{Epoch, RunId, WorkerId},
    tally::{self, BadTally},
};

use super::{
    Change, Confirmed, Elapsed, JournalEntry, PlanMismatch, Record, Refusal, RunManifest, TaskRow,
    TaskState, Vote,
};

/// The most bytes of a worker's version that are kept: it comes from outside.
pub(crate) const MAX_VERSION_BYTES: usize = proto::limits::VERSION_BYTES;

/// What is kept of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptTask {
    /// The highest epoch ever leased or reported.
    pub(crate) epoch: Epoch,
    /// The sequence number of the last journal line about the task; 0 for none.
    pub(crate) sequence: u64,
    pub(crate) state: TaskState,
    /// Workers whose lease ended without a result, each once; emptied when the task is settled.
    pub(crate) failed: Vec<WorkerId>,
}

impl KeptTask {
    /// A task that nothing happened to.
    pub(crate) const fn new() -> Self {
        Self {
            epoch: Epoch(0),
            sequence: 0,
            state: TaskState::Pending,
            failed: Vec::new(),
        }
    }

    /// Whether no count of it is known.
    pub(crate) const fn is_open(&self) -> bool {
        match self.state {
            TaskState::Pending | TaskState::Leased { .. } | TaskState::Parked => true,
            TaskState::Done { .. } | TaskState::Quarantined { .. } => false,
        }
    }

    pub(crate) fn task_row(self, task: TaskId) -> TaskRow {
        TaskRow {
            task,
            epoch: self.epoch,
            state: self.state,
            failed: self.failed,
        }
    }

    /// A lease of a settled task (a recheck, a third count) leaves its standing alone, and a parked
    /// task is unparked first. The epoch may be lower than the highest: an old lease taken up again.
    fn lease(&mut self, worker: WorkerId, epoch: Epoch, until_unix_ms: u64) {
        self.epoch = self.epoch.max(epoch);
        match self.state {
            TaskState::Pending | TaskState::Leased { .. } => {
                self.state = TaskState::Leased {
                    worker,
                    until_unix_ms,
                };
            }
            TaskState::Parked | TaskState::Done { .. } | TaskState::Quarantined { .. } => {}
        }
    }

    /// Only the newest lease's end makes the task pending: older ones were replaced.
    fn end_lease(&mut self, epoch: Epoch) {
        if matches!(self.state, TaskState::Leased { .. }) && epoch >= self.epoch {
            self.state = TaskState::Pending;
        }
    }

    fn fail(&mut self, worker: WorkerId) {
        if self.is_open() && !self.failed.contains(&worker) {
            self.failed.push(worker);
        }
    }

    fn park(&mut self) {
        match self.state {
            TaskState::Pending | TaskState::Leased { .. } => self.state = TaskState::Parked,
            TaskState::Parked | TaskState::Done { .. } | TaskState::Quarantined { .. } => {}
        }
    }

    /// The failures that parked it are forgiven, or it would be parked again at once.
    fn unpark(&mut self) {
        if self.state == TaskState::Parked {
            self.state = TaskState::Pending;
            self.failed.clear();
        }
    }

    /// Applies a journal line.
    pub(crate) fn settle(&mut self, entry: &JournalEntry, sequence: u64) -> Result<(), Refusal> {
        let record = entry.record();
        let Record {
            run, task, count, ..
        } = *record;
        let vote = Vote::from(record);
        match (entry, &mut self.state) {
            (JournalEntry::Accepted(_), TaskState::Done { vote: first, .. }) => {
                return Err(Refusal::AcceptedTwice {
                    run,
                    task,
                    count: first.count,
                    worker: first.worker,
                });
            }
            (JournalEntry::Accepted(_), state) => {
                let confirmed = match state {
                    TaskState::Quarantined { votes, .. } => agreement(&vote, votes),
                    TaskState::Pending
                    | TaskState::Leased { .. }
                    | TaskState::Parked
                    | TaskState::Done { .. } => Confirmed::No,
                };
                *state = TaskState::Done { vote, confirmed };
            }
            (
                JournalEntry::Confirmed(_),
                TaskState::Done {
                    vote: first,
                    confirmed,
                },
            ) if first.count == count => {
                let by = first.principal.confirmed_by(&vote.principal);
                *confirmed = by.max(*confirmed);
            }
            (JournalEntry::Confirmed(_), _) => {
                return Err(Refusal::NothingToConfirm { run, task, count });
            }
            (
                JournalEntry::Quarantined(_),
                TaskState::Done {
                    vote: first,
                    confirmed,
                },
            ) if first.count != count => {
                self.state = TaskState::Quarantined {
                    votes: vec![first.clone(), vote],
                    confirmed: *confirmed,
                };
            }
            (JournalEntry::Quarantined(_), TaskState::Quarantined { votes, .. }) => {
                votes.push(vote);
            }
            (JournalEntry::Quarantined(_), _) => {
                return Err(Refusal::NothingToContradict { run, task, count });
            }
        }
        self.epoch = self.epoch.max(record.epoch);
        self.sequence = sequence;
        self.failed.clear();
        Ok(())
    }

    /// Applies a change that is not journalled.
    pub(crate) fn change(&mut self, change: &Change) {
        match *change {
            Change::Leased {
                worker,
                epoch,
                until_unix_ms,
                ..
            } => self.lease(worker, epoch, until_unix_ms),
            Change::Released { epoch, .. } => self.end_lease(epoch),
            Change::Expired { epoch, worker, .. } => {
                self.fail(worker);
                self.end_lease(epoch);
            }
            Change::Parked { .. } => self.park(),
            Change::Unparked { .. } => self.unpark(),
            Change::Accepted(_)
            | Change::Confirmed(_)
            | Change::Quarantined { .. }
            | Change::State { .. }
            | Change::Recheck { .. }
            | Change::Trust(_) => {}
        }
    }
}

/// The most that the others say for a count which decides between them.
fn agreement(vote: &Vote, others: &[Vote]) -> Confirmed {
    let equal = others.iter().filter(|other| other.count == vote.count);
    equal
        .map(|other| vote.principal.confirmed_by(&other.principal))
        .filter(|by| by.elsewhere())
        .max()
        .unwrap_or_default()
}

/// The fold of a run's records: what its journal, line by line, makes of its tasks. The total is
/// nothing but this.
#[derive(Clone, Debug)]
pub struct Fold {
    run: RunId,
    /// By task; boxed, since most tasks of a long run have no record yet.
    rows: Vec<Option<Box<KeptTask>>>,
    lines: u64,
    confirmed: u64,
    disagreements: u64,
    tokens: bool,
    elapsed: Elapsed,
}

impl Fold {
    pub(crate) fn new(manifest: &RunManifest, plan: &Plan) -> Self {
        let tasks = usize::try_from(plan.tasks()).expect("tasks fit memory");
        Self {
            run: manifest.run,
            rows: vec![None; tasks],
            lines: 0,
            confirmed: 0,
            disagreements: 0,
            tokens: false,
            elapsed: Elapsed::of(manifest),
        }
    }

    /// Takes the next line of the journal.
    pub(crate) fn take(
        &mut self,
        plan: &Plan,
        entry: &JournalEntry,
        sequence: u64,
    ) -> Result<(), Refusal> {
        let record = entry.record();
        check_task(plan, self.run, record.task)?;
        check_count(plan, record)?;
        let index = usize::try_from(record.task.0).expect("checked against the plan");
        let row = self.rows[index].get_or_insert_with(|| Box::new(KeptTask::new()));
        let was_counted = matches!(row.state, TaskState::Done { .. });
        row.settle(entry, sequence)?;
        let contradicts = matches!(entry, JournalEntry::Quarantined(_));
        self.lines = sequence;
        self.confirmed += u64::from(matches!(entry, JournalEntry::Confirmed(_)));
        self.disagreements += u64::from(was_counted && contradicts);
        self.tokens |= record.principal.token().is_some();
        self.elapsed.see(record);
        Ok(())
    }

    /// Every task with a record, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (TaskId, &KeptTask)> {
        let rows = (0..).map(TaskId).zip(&self.rows);
        rows.filter_map(|(task, row)| row.as_deref().map(|row| (task, row)))
    }

    /// What the records make of a task; none without any.
    pub(crate) fn row(&self, task: TaskId) -> Option<&KeptTask> {
        self.rows.get(usize::try_from(task.0).ok()?)?.as_deref()
    }

    /// The accepted counts.
    fn counts(&self) -> impl Iterator<Item = u64> {
        self.rows().filter_map(|(_, row)| match &row.state {
            TaskState::Done { vote, .. } => Some(vote.count),
            TaskState::Pending
            | TaskState::Leased { .. }
            | TaskState::Quarantined { .. }
            | TaskState::Parked => None,
        })
    }

    /// How many tasks have an accepted count.
    pub fn tasks_done(&self) -> u64 {
        self.counts().count() as u64
    }

    /// The journal's lines.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// How often a count contradicted an accepted one.
    pub fn disagreements(&self) -> u64 {
        self.disagreements
    }

    /// Whether any count came with a token.
    pub fn has_tokens(&self) -> bool {
        self.tokens
    }

    /// Tasks whose counts contradict each other, undecided.
    pub(crate) fn quarantined(&self) -> Vec<TaskId> {
        self.rows()
            .filter(|(_, row)| matches!(row.state, TaskState::Quarantined { .. }))
            .map(|(task, _)| task)
            .collect()
    }

    /// Records that confirm an accepted count.
    pub(crate) const fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// See [`super::StoredRun::elapsed_ms`].
    pub const fn elapsed_ms(&self) -> u64 {
        self.elapsed.ms()
    }

    /// The sum of the accepted counts.
    pub fn total(&self) -> Result<u128, BadTally> {
        tally::total(self.counts())
    }
}

/// Whether the plan has the task.
pub(crate) fn check_task(plan: &Plan, run: RunId, task: TaskId) -> Result<(), Refusal> {
    if plan.contains(task) {
        Ok(())
    } else {
        Err(Refusal::NoSuchTask {
            run,
            task,
            tasks: plan.tasks(),
        })
    }
}

/// Whether a task that the plan has can have this count.
pub(crate) fn check_count(plan: &Plan, record: &Record) -> Result<(), Refusal> {
    let limit = plan.task_limit(record.task);
    if record.count <= limit {
        return Ok(());
    }
    Err(Refusal::ImpossibleCount {
        run: record.run,
        task: record.task,
        count: record.count,
        limit,
    })
}

/// The plan of a run, if this program makes the same plan of the run's spec.
pub(crate) fn plan_of(manifest: &RunManifest) -> Result<Plan, PlanMismatch> {
    let run = manifest.run;
    let plan = Plan::new(manifest.spec).map_err(|reason| PlanMismatch::NoPlan { run, reason })?;
    if manifest.plan_version != manifest.spec.version() {
        return Err(PlanMismatch::Version {
            run,
            theirs: manifest.plan_version,
            ours: manifest.spec.version(),
            their_hash: manifest.plan,
            our_hash: plan.hash(),
        });
    }
    if manifest.plan != plan.hash() {
        return Err(PlanMismatch::Hash {
            run,
            theirs: manifest.plan,
            ours: plan.hash(),
        });
    }
    Ok(plan)
}

impl Change {
    /// The run and task that a change is about; none if it is about a whole run or a worker.
    pub(crate) fn task(&self) -> Option<(RunId, TaskId)> {
        match self {
            Self::Leased { run, task, .. }
            | Self::Released { run, task, .. }
            | Self::Expired { run, task, .. }
            | Self::Parked { run, task }
            | Self::Unparked { run, task } => Some((*run, *task)),
            Self::Accepted(record)
            | Self::Confirmed(record)
            | Self::Quarantined { second: record } => Some((record.run, record.task)),
            Self::State { .. } | Self::Recheck { .. } | Self::Trust(_) => None,
        }
    }

    /// The journal line that a change makes, if it makes one.
    pub(crate) fn journal_entry(&self) -> Option<JournalEntry> {
        match self {
            Self::Accepted(record) => Some(JournalEntry::Accepted(bounded(record))),
            Self::Confirmed(record) => Some(JournalEntry::Confirmed(bounded(record))),
            Self::Quarantined { second } => Some(JournalEntry::Quarantined(bounded(second))),
            Self::Leased { .. }
            | Self::Released { .. }
            | Self::Expired { .. }
            | Self::Parked { .. }
            | Self::Unparked { .. }
            | Self::State { .. }
            | Self::Recheck { .. }
            | Self::Trust(_) => None,
        }
    }
}

fn bounded(record: &Record) -> Record {
    let mut record = record.clone();
    cut(&mut record.version, MAX_VERSION_BYTES);
    record
}

/// Cuts a text that comes from outside to at most `bytes`.
pub(crate) fn cut(text: &mut String, bytes: usize) {
    text.truncate(text.floor_char_boundary(bytes));
}
