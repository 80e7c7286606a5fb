//! What a change makes of a task: the one place that knows. Pure; both stores use it.
//!
//! The journal's grammar, task by task: an accepted count may be confirmed by equal ones. A count
//! that contradicts it quarantines the task, further counts may join, and the next accepted record
//! resolves it. The tasks' counts are the last accepted ones of tasks that are not quarantined.

use std::collections::HashMap;

use common::{
    kernel::KernelName,
    plan::{Plan, TaskId},
    run::{Epoch, RunId, WorkerId},
};

use super::{
    Change, JournalEntry, PlanMismatch, Record, Refusal, RunManifest, RunState, StoreError,
    TaskRow, TaskState,
};

/// The most bytes of a worker's version that are kept: it comes from outside.
pub(crate) const MAX_VERSION_BYTES: usize = 64;

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
        let open = match self.standing {
            Standing::Pending | Standing::Leased { .. } | Standing::Parked => true,
            Standing::Done { .. } | Standing::Quarantined(_) => false,
        };
        if open && !self.failed.contains(&worker) {
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
}

/// What a store knows before a group of changes.
pub(crate) trait Known {
    /// The plan of a run and how many journal lines the run has.
    fn run(&self, run: RunId) -> Result<(&Plan, u64), StoreError>;

    /// What is kept of a task, if anything.
    fn row(&self, run: RunId, task: TaskId) -> Result<Option<Row>, StoreError>;
}

/// A group of changes, checked: what to keep.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// Journal lines to append, with their sequence numbers, in order.
    pub(crate) lines: Vec<(u64, JournalEntry)>,
    /// The rows of all tasks touched, as they are after the group.
    pub(crate) rows: HashMap<(RunId, TaskId), Row>,
    /// New states of runs, in order.
    pub(crate) states: Vec<(RunId, RunState)>,
}

/// Checks a whole group before anything of it is kept.
pub(crate) fn stage(known: &impl Known, changes: &[Change]) -> Result<Staged, StoreError> {
    let mut staged = Staged::default();
    let mut next = HashMap::new();
    for change in changes {
        if let Change::State { run, state } = *change {
            known.run(run)?;
            staged.states.push((run, state));
            continue;
        }
        let (run, task) = change.task().expect("only a run's state names no task");
        let (plan, lines) = known.run(run)?;
        check_task(plan, run, task)?;
        let mut row = match staged.rows.remove(&(run, task)) {
            Some(row) => row,
            None => known.row(run, task)?.unwrap_or(Row::new()),
        };
        if let Some(entry) = change.journal_entry() {
            check_count(plan, entry.record())?;
            let sequence = next.entry(run).or_insert(lines);
            *sequence += 1;
            row.settle(&entry, *sequence)?;
            staged.lines.push((*sequence, entry));
        } else {
            lease_change(&mut row, change);
        }
        staged.rows.insert((run, task), row);
    }
    Ok(staged)
}

fn lease_change(row: &mut Row, change: &Change) {
    match *change {
        Change::Leased {
            worker,
            epoch,
            until_unix_ms,
            ..
        } => row.lease(worker, epoch, until_unix_ms),
        Change::Released { epoch, .. } => row.end_lease(epoch),
        Change::Expired { epoch, worker, .. } => {
            row.fail(worker);
            row.end_lease(epoch);
        }
        Change::Parked { .. } => row.park(),
        Change::Unparked { .. } => row.unpark(),
        Change::Accepted(_)
        | Change::Confirmed(_)
        | Change::Quarantined { .. }
        | Change::State { .. } => {}
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
    /// The run and task that a change is about; none for a run's state.
    fn task(&self) -> Option<(RunId, TaskId)> {
        match self {
            Self::Leased { run, task, .. }
            | Self::Released { run, task, .. }
            | Self::Expired { run, task, .. }
            | Self::Parked { run, task }
            | Self::Unparked { run, task } => Some((*run, *task)),
            Self::Accepted(record)
            | Self::Confirmed(record)
            | Self::Quarantined { second: record } => Some((record.run, record.task)),
            Self::State { .. } => None,
        }
    }

    /// The journal line that a change makes, if it makes one.
    fn journal_entry(&self) -> Option<JournalEntry> {
        match self {
            Self::Accepted(record) => Some(JournalEntry::Accepted(bounded(record))),
            Self::Confirmed(record) => Some(JournalEntry::Confirmed(bounded(record))),
            Self::Quarantined { second } => Some(JournalEntry::Quarantined(bounded(second))),
            Self::Leased { .. }
            | Self::Released { .. }
            | Self::Expired { .. }
            | Self::Parked { .. }
            | Self::Unparked { .. }
            | Self::State { .. } => None,
        }
    }
}

fn bounded(record: &Record) -> Record {
    let mut record = record.clone();
    record
        .version
        .truncate(record.version.floor_char_boundary(MAX_VERSION_BYTES));
    record
}
