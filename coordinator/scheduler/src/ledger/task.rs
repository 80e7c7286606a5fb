//! States of a task, and the effect of each count and each lease on them.
//!
//! The counts of a task decide its state: it is open without counts, done if they agree, and disputed if they
//! differ. The referee's final count ends a dispute; void counts are removed.

use common::{
    count::Orientation,
    kernel::KernelName,
    run::{Epoch, WorkerId},
};

use super::{Change, Confirmation, EntryKind, JournalEntry, Principal, Record, Refusal};

/// State of a task; `C` is [`TaskCount`] or the scheduler's compact form of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TaskState<C = TaskCount> {
    #[default]
    Pending,
    /// Leased to a worker until a time.
    Leased { worker: WorkerId, until_unix_ms: u64 },
    /// Counted: `first` stands, and `second` is the equal count that confirms it best.
    Done { first: C, second: Option<Box<C>>, confirmed: Confirmation },
    /// The task's counts, in order of arrival, differ, and none of them stands.
    Disputed { counts: Vec<C> },
    /// In backoff after too many failed attempts.
    Parked,
}

/// A count of a task, without the fields that are only displayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCount {
    /// The weighted number of solutions.
    pub count: u64,
    pub worker: WorkerId,
    pub principal: Principal,
    pub kernel: KernelName,
    pub orientation: Orientation,
    pub accepted_unix_ms: u64,
}

impl From<&Record> for TaskCount {
    fn from(record: &Record) -> Self {
        Self {
            count: record.count,
            worker: record.worker,
            principal: record.principal.clone(),
            kernel: record.kernel,
            orientation: record.orientation,
            accepted_unix_ms: record.accepted_unix_ms,
        }
    }
}

/// The properties of a count that the rules use.
pub trait AnyCount: Clone {
    fn count(&self) -> u64;

    /// Returns whether both counts were made by the same worker.
    fn same_worker(&self, other: &Self) -> bool;
}

impl AnyCount for TaskCount {
    fn count(&self) -> u64 {
        self.count
    }

    fn same_worker(&self, other: &Self) -> bool {
        self.worker == other.worker
    }
}

impl TaskState {
    pub fn of(counts: Vec<TaskCount>) -> Self {
        Self::of_counts(counts, confirmed_by)
    }
}

/// Returns how `other` confirms `first`, by their principals.
fn confirmed_by(first: &TaskCount, other: &TaskCount) -> Confirmation {
    first.principal.confirmed_by(&other.principal)
}

impl<C: AnyCount> TaskState<C> {
    /// Returns the state of a task with these counts; `level` compares two.
    pub fn of_counts(mut counts: Vec<C>, level: impl Fn(&C, &C) -> Confirmation) -> Self {
        if counts.is_empty() {
            return Self::Pending;
        }
        if counts.iter().any(|other| other.count() != counts[0].count()) {
            return Self::Disputed { counts };
        }
        let first = counts.remove(0);
        let second = counts.into_iter().rev().max_by_key(|other| level(&first, other));
        let confirmed = second.as_ref().map_or(Confirmation::None, |second| level(&first, second));
        Self::Done { first, second: second.map(Box::new), confirmed }
    }

    /// Returns the task's counts, in order of arrival.
    pub fn counts(&self) -> Vec<C> {
        match self {
            Self::Pending | Self::Leased { .. } | Self::Parked => Vec::new(),
            Self::Done { first, second, .. } => {
                [first.clone()].into_iter().chain(second.as_deref().cloned()).collect()
            }
            Self::Disputed { counts } => counts.clone(),
        }
    }

    /// Returns the count that stands.
    pub fn standing(&self) -> Option<u64> {
        match self {
            Self::Done { first, .. } => Some(first.count()),
            Self::Pending | Self::Leased { .. } | Self::Parked | Self::Disputed { .. } => None,
        }
    }

    /// Returns whether the task has no count.
    pub const fn is_open(&self) -> bool {
        match self {
            Self::Pending | Self::Leased { .. } | Self::Parked => true,
            Self::Done { .. } | Self::Disputed { .. } => false,
        }
    }

    /// Returns whether the referee has counted the task, which makes its count final.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Done { confirmed: Confirmation::Referee, .. })
    }

    /// Returns the state after a journaled count; `None` if the count cannot follow.
    pub fn after(
        &self,
        kind: EntryKind,
        count: C,
        level: impl Fn(&C, &C) -> Confirmation,
    ) -> Option<Self> {
        let mut counts = self.counts();
        let stands = self.standing();
        let is_disputed = matches!(self, Self::Disputed { .. });
        let follows = match kind {
            EntryKind::Accepted => counts.is_empty(),
            EntryKind::Confirmed => stands == Some(count.count()),
            EntryKind::Disputed | EntryKind::Recounted => {
                is_disputed || stands.is_some_and(|stands| stands != count.count())
            }
            // A different count of the referee is journaled as a recount first.
            EntryKind::Settled => is_disputed || stands == Some(count.count()),
            EntryKind::Voided => counts.iter().any(|other| other.same_worker(&count)),
        };
        if self.is_final() || !follows {
            return None;
        }
        match kind {
            EntryKind::Accepted
            | EntryKind::Confirmed
            | EntryKind::Disputed
            | EntryKind::Recounted => counts.push(count),
            EntryKind::Voided => counts.retain(|other| !other.same_worker(&count)),
            EntryKind::Settled => {
                let equal = counts.into_iter().find(|other| other.count() == count.count());
                let (first, second) = match equal {
                    Some(first) => (first, Some(Box::new(count))),
                    None => (count, None),
                };
                return Some(Self::Done { first, second, confirmed: Confirmation::Referee });
            }
        }
        Some(Self::of_counts(counts, level))
    }
}

/// Stored state of a task. An untouched task has no row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskRow {
    /// The highest epoch ever leased or reported.
    pub epoch: Epoch,
    /// The sequence number of the task's last journal line; 0 for none.
    pub sequence: u64,
    pub state: TaskState,
    /// Workers whose lease ended without a result, each once; cleared by a count.
    pub failed: Vec<WorkerId>,
    /// Whether a void count changed the standing one: workers know that the referee had not recounted it.
    /// It follows from the journal and is not stored.
    pub replaced: bool,
    /// Counts that differed from the standing one, settled since or not; not stored either.
    pub conflicts: u32,
}

impl TaskRow {
    /// Returns whether a stored row agrees with the journal's fold.
    /// The journal records neither leases nor parked tasks, so these may differ.
    pub fn agrees_with(&self, folded: &Self) -> bool {
        let both_open = self.state.is_open() && folded.state.is_open();
        self.sequence == folded.sequence && (both_open || self.state == folded.state)
    }

    /// Applies the journal line with this sequence number.
    pub fn apply(&mut self, entry: &JournalEntry, sequence: u64) -> Result<(), Refusal> {
        let record = &entry.record;
        let stood = self.state.standing();
        let after = self.state.after(entry.kind, record.into(), confirmed_by);
        self.state = after.ok_or(Refusal::DoesNotFollow {
            run: record.run,
            task: record.task,
            kind: entry.kind,
            count: record.count,
            stands: stood,
        })?;
        let differed = matches!(entry.kind, EntryKind::Disputed | EntryKind::Recounted);
        self.conflicts += u32::from(differed && stood.is_some());
        self.replaced |= entry.kind == EntryKind::Voided && self.state.standing() != stood;
        self.epoch = self.epoch.max(record.epoch);
        self.sequence = sequence;
        self.failed.clear();
        Ok(())
    }

    /// Applies a change that is not journaled.
    pub fn change(&mut self, change: &Change) {
        let is_leased = matches!(self.state, TaskState::Leased { .. });
        let is_leasable = is_leased || self.state == TaskState::Pending;
        match *change {
            // The lease of a recheck or recount leaves the state alone, and a parked task is unparked
            // first. The epoch may be lower than the highest: an old lease may be adopted.
            Change::Leased { worker, epoch, until_unix_ms, .. } => {
                self.epoch = self.epoch.max(epoch);
                if is_leasable {
                    self.state = TaskState::Leased { worker, until_unix_ms };
                }
            }
            Change::Released { epoch, .. } => self.end_lease(epoch),
            Change::Expired { epoch, worker, .. } => {
                if self.state.is_open() && !self.failed.contains(&worker) {
                    self.failed.push(worker);
                }
                self.end_lease(epoch);
            }
            Change::Parked { .. } if is_leasable => self.state = TaskState::Parked,
            Change::Unparked { .. } if self.state == TaskState::Parked => {
                self.state = TaskState::Pending;
                self.failed.clear();
            }
            Change::Parked { .. }
            | Change::Unparked { .. }
            | Change::Recorded(_)
            | Change::State { .. }
            | Change::Settings { .. }
            | Change::Trust(_) => {}
        }
    }

    /// Makes the task pending if this is its newest lease: older leases were replaced.
    fn end_lease(&mut self, epoch: Epoch) {
        if matches!(self.state, TaskState::Leased { .. }) && epoch >= self.epoch {
            self.state = TaskState::Pending;
        }
    }
}
