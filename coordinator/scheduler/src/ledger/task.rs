//! States of a task, and the effect of each count on them.
//!
//! The counts of a task decide its state: it is open without counts, done if they agree, and disputed if they
//! differ. The referee's final count ends a dispute; void counts are removed.

use common::{
    compute::kernel::KernelName,
    count::Orientation,
    messages::run::{Epoch, WorkerId},
};

use super::{Confirmation, EntryKind};

/// Index of an author: of [`super::Fold::author`], or among the scheduler's workers.
pub type AuthorIx = u32;

/// A count of a task, without the fields that no rule uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCount {
    /// The weighted number of solutions.
    pub count: u64,
    pub author: AuthorIx,
    pub kernel: KernelName,
    pub orientation: Orientation,
}

/// State of a task that its counts decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TaskState {
    /// Without a count.
    #[default]
    Open,
    /// Counted: `first` stands, and `second` is the equal count that confirms it best.
    Done { first: TaskCount, second: Option<TaskCount>, confirmed: Confirmation },
    /// The task's counts, in order of arrival, differ, and none of them stands.
    Disputed { counts: Vec<TaskCount> },
}

/// A task without a count, as it is stored beside the journal. Losing it loses no count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenTask {
    pub state: OpenState,
    /// The workers of the failed attempts, in order.
    pub failed: Vec<WorkerId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenState {
    #[default]
    Pending,
    /// Leased to a worker until a time, unless renewed. Of several leases, the newest.
    Leased { worker: WorkerId, epoch: Epoch, until_unix_ms: u64 },
    /// In backoff after too many failed attempts.
    Parked,
}

impl TaskState {
    /// Returns the state of a task with these counts; `level` says how one author confirms another's count.
    fn of_counts(
        mut counts: Vec<TaskCount>,
        level: impl Fn(AuthorIx, AuthorIx) -> Confirmation,
    ) -> Self {
        if counts.is_empty() {
            return Self::Open;
        }
        if counts.iter().any(|other| other.count != counts[0].count) {
            return Self::Disputed { counts };
        }
        let first = counts.remove(0);
        let confirms = |other: &TaskCount| level(first.author, other.author);
        let second = counts.into_iter().rev().max_by_key(confirms);
        let confirmed = second.as_ref().map_or(Confirmation::None, confirms);
        Self::Done { first, second, confirmed }
    }

    /// Returns the task's counts, in order of arrival.
    pub fn counts(&self) -> Vec<TaskCount> {
        match self {
            Self::Open => Vec::new(),
            Self::Done { first, second, .. } => [*first].into_iter().chain(*second).collect(),
            Self::Disputed { counts } => counts.clone(),
        }
    }

    /// Returns the count that stands.
    pub const fn standing(&self) -> Option<u64> {
        match self {
            Self::Done { first, .. } => Some(first.count),
            Self::Open | Self::Disputed { .. } => None,
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
        count: TaskCount,
        level: impl Fn(AuthorIx, AuthorIx) -> Confirmation,
    ) -> Option<Self> {
        let mut counts = self.counts();
        let stands = self.standing();
        let is_disputed = matches!(self, Self::Disputed { .. });
        let follows = match kind {
            EntryKind::Accepted => counts.is_empty(),
            EntryKind::Confirmed => stands == Some(count.count),
            EntryKind::Disputed | EntryKind::Recounted => {
                is_disputed || stands.is_some_and(|stands| stands != count.count)
            }
            // A different count of the referee is journaled as a recount first.
            EntryKind::Settled => is_disputed || stands == Some(count.count),
            EntryKind::Voided => counts.iter().any(|other| other.author == count.author),
        };
        if self.is_final() || !follows {
            return None;
        }
        match kind {
            EntryKind::Accepted
            | EntryKind::Confirmed
            | EntryKind::Disputed
            | EntryKind::Recounted => counts.push(count),
            EntryKind::Voided => counts.retain(|other| other.author != count.author),
            EntryKind::Settled => {
                let equal = counts.into_iter().find(|other| other.count == count.count);
                let (first, second) = match equal {
                    Some(first) => (first, Some(count)),
                    None => (count, None),
                };
                return Some(Self::Done { first, second, confirmed: Confirmation::Referee });
            }
        }
        Some(Self::of_counts(counts, level))
    }
}
