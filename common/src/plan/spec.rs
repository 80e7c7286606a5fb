//! What a plan is a function of.

use std::fmt;

use crate::{board::Board, frames::spec as frames, method::Layout, rows::spec as rows};

/// The most tasks a plan may have: the coordinator keeps a row for each.
pub(crate) const MAX_TASKS: u64 = 4_000_000;

/// What a plan is a function of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlanSpec {
    /// The board to count.
    pub board: Board,
    /// How it is divided into units.
    pub layout: Layout,
    /// How much work a task should hold, in estimated microseconds on one core of the reference
    /// machine (see [`Plan::task_cost`](super::Plan::task_cost)).
    pub task_cost: u64,
}

/// A task's place in the plan's natural order, `0..plan.tasks()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// A spec that no plan exists for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSpec {
    /// The layout does not cover this board.
    #[error("method {} has no plan for N = {board}: {reason}", layout.method())]
    Unsupported {
        /// The layout asked for.
        layout: Layout,
        /// The board asked for.
        board: Board,
        /// What stands in the way.
        reason: String,
    },
    /// Tasks would be so small that their number passes [`Plan::MAX_TASKS`](super::Plan::MAX_TASKS).
    #[error("N = {board} by method {} makes {tasks} tasks of cost {task_cost}, more than {max}; \
             give a larger task cost", layout.method(), max = MAX_TASKS)]
    TooManyTasks {
        /// The layout asked for.
        layout: Layout,
        /// The board asked for.
        board: Board,
        /// The task cost asked for.
        task_cost: u64,
        /// How many tasks that makes.
        tasks: u64,
    },
    /// A task cost of zero.
    #[error("the task cost must be at least 1 microsecond")]
    ZeroTaskCost,
}

impl PlanSpec {
    /// The spec that a run uses when its user says nothing about the size of tasks.
    pub fn new(board: Board, layout: Layout) -> Self {
        let task_cost = match layout {
            Layout::FirstRows | Layout::Border => rows::default_task_cost(board),
            Layout::Frames => frames::default_task_cost(board),
        };
        Self {
            board,
            layout,
            task_cost,
        }
    }

    /// The version of the rules by which this spec becomes a plan; any change of them must raise it.
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
