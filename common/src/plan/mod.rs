//! The ordered list of units that a run consists of, and the tasks it is leased in.
//!
//! A [`Plan`] is a pure function of its [`PlanSpec`]; [`PlanHash`] names both, so that two programs
//! that divide a board differently can never mix their counts.

mod identity;
mod order;
pub(crate) mod sheet;
mod sheets;
pub(crate) mod spec;

use std::{ops::Range, sync::Arc};

pub use identity::{BadHash, PlanHash};
pub use sheet::{Sheet, Strip};
pub use spec::{BadSpec, PlanSpec, TaskId};

use crate::{frames, method::Layout, rows};

/// The plan of a run. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Plan {
    spec: PlanSpec,
    hash: PlanHash,
    division: Division,
}

/// How each method divides its board. Matched in full wherever the methods differ.
#[derive(Clone, Debug)]
pub(crate) enum Division {
    Rows(Arc<rows::Division>),
    Frames(Arc<frames::Division>),
}

impl Plan {
    /// The most tasks a plan may have: the coordinator keeps a row for each.
    pub const MAX_TASKS: u64 = spec::MAX_TASKS;

    /// The plan of `spec`.
    ///
    /// ```
    /// use common::{board::Board, method::Layout, plan::{Plan, PlanSpec}};
    ///
    /// let plan = Plan::new(PlanSpec::new(Board::new(14)?, Layout::Frames))?;
    /// let tasks = plan.handing_out_order().map(|task| plan.task_units(task));
    /// assert_eq!(tasks.map(|units| units.end - units.start).sum::<u64>(), plan.units());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(spec: PlanSpec) -> Result<Self, BadSpec> {
        if spec.task_cost == 0 {
            return Err(BadSpec::ZeroTaskCost);
        }
        let division = match spec.layout {
            Layout::FirstRows | Layout::Border => {
                Division::Rows(Arc::new(rows::Division::new(&spec)?))
            }
            Layout::Frames => Division::Frames(Arc::new(frames::Division::new(&spec)?)),
        };
        let plan = Self {
            spec,
            hash: PlanHash::of(&spec),
            division,
        };
        if plan.tasks() > Self::MAX_TASKS {
            let PlanSpec {
                board,
                layout,
                task_cost,
            } = spec;
            return Err(BadSpec::TooManyTasks {
                layout,
                board,
                task_cost,
                tasks: plan.tasks(),
            });
        }
        Ok(plan)
    }

    /// What this plan was made from.
    pub fn spec(&self) -> &PlanSpec {
        &self.spec
    }

    /// The name of this plan: equal hashes mean equal units and tasks.
    pub fn hash(&self) -> PlanHash {
        self.hash
    }

    /// How many units there are.
    pub fn units(&self) -> u64 {
        match &self.division {
            Division::Rows(rows) => rows.units(),
            Division::Frames(frames) => frames.units(),
        }
    }

    /// How many tasks there are.
    pub fn tasks(&self) -> u64 {
        match &self.division {
            Division::Rows(rows) => rows.tasks(),
            Division::Frames(frames) => frames.tasks(),
        }
    }

    /// Whether `task` belongs to this plan.
    pub fn contains(&self, task: TaskId) -> bool {
        task.0 < self.tasks()
    }

    /// The units of a task: consecutive, never empty; the tasks in natural order cover all units.
    ///
    /// # Panics
    /// If the plan has no such task.
    pub fn task_units(&self, task: TaskId) -> Range<u64> {
        assert!(self.contains(task), "task {task} of {}", self.tasks());
        match &self.division {
            Division::Rows(rows) => rows.task_units(task),
            Division::Frames(frames) => frames.task_units(task),
        }
    }

    /// The estimated work of a task, at least 1, in microseconds on one core of the reference
    /// machine with its best kernel. Only ratios matter: a worker's own speed is measured.
    ///
    /// # Panics
    /// If the plan has no such task.
    pub fn task_cost(&self, task: TaskId) -> u64 {
        assert!(self.contains(task), "task {task} of {}", self.tasks());
        match &self.division {
            Division::Rows(rows) => rows.task_cost(task),
            Division::Frames(frames) => frames.task_cost(task),
        }
    }

    /// [`Self::task_cost`] of every task, in natural order.
    pub fn task_costs(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.tasks()).map(|task| self.task_cost(TaskId(task)))
    }

    /// A weighted count that no correct worker can pass for this task.
    ///
    /// # Panics
    /// If the plan has no such task.
    pub fn task_limit(&self, task: TaskId) -> u64 {
        assert!(self.contains(task), "task {task} of {}", self.tasks());
        match &self.division {
            Division::Rows(rows) => rows.task_limit(task),
            Division::Frames(frames) => frames.task_limit(task),
        }
    }

    /// The task handed out at `position` of the plan's fixed pseudo-random order: a permutation of
    /// all tasks, so that whatever is done at any moment is a random sample.
    ///
    /// # Panics
    /// If `position` is not below the number of tasks.
    pub fn task_at(&self, position: u64) -> TaskId {
        TaskId(order::permute(
            self.hash.order_key(),
            self.tasks(),
            position,
        ))
    }

    /// All tasks in the order in which they are handed out.
    pub fn handing_out_order(&self) -> impl Iterator<Item = TaskId> + '_ {
        (0..self.tasks()).map(|position| self.task_at(position))
    }

    pub(crate) fn division(&self) -> &Division {
        &self.division
    }
}
