//! Spec, hash, task ids and map positions of a plan.

use std::{fmt, ops::Range, str::FromStr};

use sha2::{Digest, Sha256};

use crate::{
    board::Board, frames::cost as frames, messages::hex, method::Layout, rows::cost as rows,
};

/// Maximum number of tasks; the coordinator stores a row for each.
pub(crate) const MAX_TASKS: u64 = 4_000_000;

/// Inputs that determine a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlanSpec {
    pub board: Board,
    pub layout: Layout,
    /// Intended [`Plan::task_cost`](super::Plan::task_cost), in microseconds.
    pub task_cost: u64,
}

/// Place of a task in the plan's natural order, `0..plan.tasks()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSpec {
    /// The layout does not cover this board.
    #[error("method {} has no plan for N = {board}: {reason}", layout.method())]
    Unsupported { layout: Layout, board: Board, reason: String },
    /// More tasks than [`Plan::MAX_TASKS`](super::Plan::MAX_TASKS).
    #[error("N = {board} by method {} has {tasks} tasks of cost {task_cost}, more than {max}; \
             choose a larger task cost", layout.method(), max = MAX_TASKS)]
    TooManyTasks { layout: Layout, board: Board, task_cost: u64, tasks: u64 },
    #[error("the task cost must be at least 1 microsecond")]
    ZeroTaskCost,
}

impl PlanSpec {
    /// Returns the spec with the default task cost.
    pub fn new(board: Board, layout: Layout) -> Self {
        let task_cost = match layout {
            Layout::FirstRows | Layout::Border => rows::default_task_cost(board),
            Layout::Frames => frames::default_task_cost(board),
        };
        Self { board, layout, task_cost }
    }

    /// Returns the version of the division rules; a change to the rules must raise it.
    pub fn version(&self) -> u16 {
        match self.layout {
            Layout::FirstRows | Layout::Border => rows::PLAN_VERSION,
            Layout::Frames => frames::PLAN_VERSION,
        }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// SHA-256 of a plan's spec and rule version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanHash([u8; 32]);

/// Bytes or text that are not a valid plan hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid plan hash: expected 32 bytes, or 64 lower-case hexadecimal digits as text")]
pub struct BadHash;

/// Tag of the hashed bytes, which are frozen.
///
/// The tag is followed by, big-endian: plan version (2 bytes), N (1), layout (1: 0 first-rows, 1 border, 2
/// frames), task cost (8).
const TAG: &[u8; 12] = b"queens plan\n";

impl PlanHash {
    pub(super) fn of(spec: &PlanSpec) -> Self {
        let layout = match spec.layout {
            Layout::FirstRows => 0u8,
            Layout::Border => 1,
            Layout::Frames => 2,
        };
        let mut hasher = Sha256::new();
        hasher.update(TAG);
        hasher.update(spec.version().to_be_bytes());
        hasher.update([spec.board.n(), layout]);
        hasher.update(spec.task_cost.to_be_bytes());
        Self(hasher.finalize().into())
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the first 12 hexadecimal digits, for display.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }

    pub(super) fn order_key(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        u64::from_be_bytes(first)
    }
}

impl TryFrom<&[u8]> for PlanHash {
    type Error = BadHash;

    fn try_from(bytes: &[u8]) -> Result<Self, BadHash> {
        bytes.try_into().map(Self).map_err(|_| BadHash)
    }
}

impl FromStr for PlanHash {
    type Err = BadHash;

    fn from_str(text: &str) -> Result<Self, BadHash> {
        hex::decode(text).map(Self).ok_or(BadHash)
    }
}

impl fmt::Display for PlanHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", hex::display(&self.0))
    }
}

impl fmt::Debug for PlanHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanHash({self})")
    }
}

/// A panel of the task map: a grid of units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapPanel {
    /// Common property of its units; empty if there is only one panel.
    pub name: String,
    pub rows: u64,
    pub columns: u64,
}

/// Consecutive units in one row of a panel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSpan {
    pub panel: usize,
    /// Row, below [`MapPanel::rows`].
    pub row: u64,
    /// Columns, below [`MapPanel::columns`]; never empty.
    pub columns: Range<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_round_trip() {
        let spec = PlanSpec {
            board: crate::board::Board::new(8).unwrap(),
            layout: Layout::FirstRows,
            task_cost: 1000,
        };
        let hash = PlanHash::of(&spec);
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(PlanHash::try_from(hash.as_bytes().as_slice()), Ok(hash));
        assert_eq!("é".repeat(32).parse::<PlanHash>(), Err(BadHash));
        assert_eq!("AB".repeat(32).parse::<PlanHash>(), Err(BadHash));
        assert_eq!(PlanHash::try_from([0u8; 31].as_slice()), Err(BadHash));
    }
}
