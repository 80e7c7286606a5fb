//! What a change makes of a task: the one place that knows.
//!
//! The journal's grammar, task by task: an accepted count may be confirmed by equal ones. A count
//! that contradicts it quarantines the task, further counts may join, and the next accepted record
//! resolves it. The tasks' counts are the last accepted ones of tasks that are not quarantined.

use common::{
    kernel::KernelName,
    plan::{Plan, TaskId},
    run::{Epoch, RunId, WorkerId},
    tally::{self, BadTally},
};

use super::{
    Change, Elapsed, JournalEntry, PlanMismatch, Record, Refusal, RunManifest, TaskRow, TaskState,
};

/// The most bytes of a worker's version that are kept: it comes from outside.
pub(crate) const MAX_VERSION_BYTES: usize = 64;

/// The most bytes of a principal's name that are kept.
pub(crate) const MAX_PRINCIPAL_BYTES: usize = 64;

/// What is kept of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The highest epoch ever leased or reported.
    pub(crate) epoch: Epoch,
    /// The sequence number of the last journal line about the task; 0 for none.
    pub(crate) sequence: u64,
    pub(crate) standing: Standing,
    /// Workers whose lease ended without a result, each once; emptied when the task is settled.
    pub(crate) failed: Vec<WorkerId>,
}

/// [`TaskState`] with what a later contradiction needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Pending,
    Leased {
        worker: WorkerId,
        until_unix_ms: u64,
    },
    /// Whether another lease gave the same count, or this one resolved a quarantine.
    Done {
        vote: Vote,
        confirmed: bool,
    },
    Quarantined(Vec<Vote>),
    Parked,
}

/// One count and where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vote {
    pub(crate) count: u64,
    pub(crate) worker: WorkerId,
    pub(crate) kernel: KernelName,
}

impl Row {
    /// A task that nothing happened to.
    pub(crate) const fn new() -> Self {
        Self {
            epoch: Epoch(0),
            sequence: 0,
            standing: Standing::Pending,
            failed: Vec::new(),
        }
    }

    /// Whether no count of it is known.
    pub(crate) const fn is_open(&self) -> bool {
        match self.standing {
            Standing::Pending | Standing::Leased { .. } | Standing::Parked => true,
            Standing::Done { .. } | Standing::Quarantined(_) => false,
        }
    }

    pub(crate) fn task_row(self, task: TaskId) -> TaskRow {
        let state = match self.standing {
            Standing::Pending => TaskState::Pending,
            Standing::Leased {
                worker,
                until_unix_ms,
            } => TaskState::Leased {
                worker,
                until_unix_ms,
            },
            Standing::Done { vote, confirmed } => TaskState::Done {
                count: vote.count,
                worker: vote.worker,
                confirmed,
            },
            Standing::Quarantined(votes) => TaskState::Quarantined {
                counts: votes
                    .into_iter()
                    .map(|vote| (vote.count, vote.worker, vote.kernel))
                    .collect(),
            },
            Standing::Parked => TaskState::Parked,
        };
        TaskRow {
            task,
            epoch: self.epoch,
            state,
            failed: self.failed,
        }
    }

    /// A lease of a settled task (a recheck, a third count) leaves its standing alone, and a parked
    /// task is unparked first. The epoch may be lower than the highest: an old lease taken up again.
    fn lease(&mut self, worker: WorkerId, epoch: Epoch, until_unix_ms: u64) {
        self.epoch = self.epoch.max(epoch);
        match self.standing {
            Standing::Pending | Standing::Leased { .. } => {
                self.standing = Standing::Leased {
                    worker,
                    until_unix_ms,
                };
            }
            Standing::Parked | Standing::Done { .. } | Standing::Quarantined(_) => {}
        }
    }

    /// Only the newest lease's end makes the task pending: older ones were replaced.
    fn end_lease(&mut self, epoch: Epoch) {
        if matches!(self.standing, Standing::Leased { .. }) && epoch >= self.epoch {
            self.standing = Standing::Pending;
        }
    }

    fn fail(&mut self, worker: WorkerId) {
        if self.is_open() && !self.failed.contains(&worker) {
            self.failed.push(worker);
        }
    }

    fn park(&mut self) {
        match self.standing {
            Standing::Pending | Standing::Leased { .. } => self.standing = Standing::Parked,
            Standing::Parked | Standing::Done { .. } | Standing::Quarantined(_) => {}
        }
    }

    /// The failures that parked it are forgiven, or it would be parked again at once.
    fn unpark(&mut self) {
        if self.standing == Standing::Parked {
            self.standing = Standing::Pending;
            self.failed.clear();
        }
    }

    /// Applies a journal line.
    pub(crate) fn settle(&mut self, entry: &JournalEntry, sequence: u64) -> Result<(), Refusal> {
        let record = entry.record();
        let Record {
            run, task, count, ..
        } = *record;
        let vote = Vote {
            count,
            worker: record.worker,
            kernel: record.kernel,
        };
        match (entry, &mut self.standing) {
            (JournalEntry::Accepted(_), Standing::Done { vote: first, .. }) => {
                return Err(Refusal::AcceptedTwice {
                    run,
                    task,
                    count: first.count,
                    worker: first.worker,
                });
            }
            (JournalEntry::Accepted(_), standing) => {
                let confirmed = matches!(standing, Standing::Quarantined(_));
                *standing = Standing::Done { vote, confirmed };
            }
            (
                JournalEntry::Confirmed(_),
                Standing::Done {
                    vote: first,
                    confirmed,
                },
            ) if first.count == count => *confirmed = true,
            (JournalEntry::Confirmed(_), _) => {
                return Err(Refusal::NothingToConfirm { run, task, count });
            }
            (JournalEntry::Quarantined(_), Standing::Done { vote: first, .. })
                if first.count != count =>
            {
                self.standing = Standing::Quarantined(vec![*first, vote]);
            }
            (JournalEntry::Quarantined(_), Standing::Quarantined(votes)) => votes.push(vote),
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

/// The fold of a run's records: what its journal, line by line, makes of its tasks. The total is
/// nothing but this.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    run: RunId,
    /// By task; boxed, since most tasks of a long run have no record yet.
    rows: Vec<Option<Box<Row>>>,
    confirmed: u64,
    elapsed: Elapsed,
}

impl Fold {
    pub(crate) fn new(manifest: &RunManifest, plan: &Plan) -> Self {
        let tasks = usize::try_from(plan.tasks()).expect("tasks fit memory");
        Self {
            run: manifest.run,
            rows: vec![None; tasks],
            confirmed: 0,
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
        let row = self.rows[index].get_or_insert_with(|| Box::new(Row::new()));
        row.settle(entry, sequence)?;
        self.confirmed += u64::from(matches!(entry, JournalEntry::Confirmed(_)));
        self.elapsed.see(record);
        Ok(())
    }

    /// Every task with a record, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (TaskId, &Row)> {
        let rows = (0..).map(TaskId).zip(&self.rows);
        rows.filter_map(|(task, row)| row.as_deref().map(|row| (task, row)))
    }

    /// What the records make of a task; none without any.
    pub(crate) fn row(&self, task: TaskId) -> Option<&Row> {
        self.rows.get(usize::try_from(task.0).ok()?)?.as_deref()
    }

    /// The accepted counts.
    pub(crate) fn counts(&self) -> impl Iterator<Item = u64> {
        self.rows().filter_map(|(_, row)| match &row.standing {
            Standing::Done { vote, .. } => Some(vote.count),
            Standing::Pending
            | Standing::Leased { .. }
            | Standing::Quarantined(_)
            | Standing::Parked => None,
        })
    }

    /// Tasks whose counts contradict each other, undecided.
    pub(crate) fn quarantined(&self) -> Vec<TaskId> {
        self.rows()
            .filter(|(_, row)| matches!(row.standing, Standing::Quarantined(_)))
            .map(|(task, _)| task)
            .collect()
    }

    /// Records that confirm an accepted count.
    pub(crate) const fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// See [`super::StoredRun::elapsed_ms`].
    pub(crate) const fn elapsed_ms(&self) -> u64 {
        self.elapsed.ms()
    }

    /// The sum of the accepted counts.
    pub(crate) fn total(&self) -> Result<u128, BadTally> {
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
    cut(&mut record.principal, MAX_PRINCIPAL_BYTES);
    record
}

/// Cuts a text that comes from outside to at most `bytes`.
pub(crate) fn cut(text: &mut String, bytes: usize) {
    text.truncate(text.floor_char_boundary(bytes));
}
