//! Small boards counted task by task: what tests of those who hand tasks out compare with.

use std::num::NonZeroU16;

use crate::{
    board::Board,
    count::{Counter, Orientation, Setup, Unwatched},
    kernel::Kernel,
    known::known_counts,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
};

/// A plan with its true counts.
#[derive(Debug)]
pub struct Truth {
    /// The plan, in the smallest tasks there are.
    pub plan: Plan,
    /// The weighted count of every task, by number.
    pub counts: Vec<u64>,
    /// all(N).
    pub total: u128,
}

impl Truth {
    /// Counts a whole small board.
    ///
    /// # Panics
    /// If there is no such board or plan, or its tasks do not add up to the known count.
    pub fn new(n: u8, layout: Layout) -> Self {
        let board = Board::new(n).expect("a board");
        let spec = PlanSpec {
            board,
            layout,
            task_cost: 1,
        };
        let plan = Plan::new(spec).expect("a plan");
        let setup = Setup {
            kernel: Kernel::SCALAR,
            threads: NonZeroU16::MIN,
            memory_bytes: 1 << 30,
            orientation: Orientation::Upright,
        };
        let mut counter = Counter::new(&plan, &setup).expect("a counter");
        let counts: Vec<_> = (0..plan.tasks())
            .map(|task| {
                let units = plan.task_units(TaskId(task));
                counter.count(units, &Unwatched).expect("a small count")
            })
            .collect();
        let total = counts.iter().copied().map(u128::from).sum();
        let known = known_counts(board).expect("a small board").all();
        assert_eq!(total, known, "N = {n} in {layout}");
        Self {
            plan,
            counts,
            total,
        }
    }

    /// The true count of a task.
    pub fn count(&self, task: TaskId) -> u64 {
        self.counts[usize::try_from(task.0).expect("a small plan")]
    }
}
