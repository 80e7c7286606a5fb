//! Small boards counted task by task, for tests of all packages.

use std::fmt;

use crate::{
    board::Board,
    compute::kernel::Kernel,
    count::{Counter, CounterConfig, NoProgress},
    method::Layout,
    plan::{self, Plan, PlanSpec, TaskId},
    solutions::published::published_counts,
};

/// Returns the plan of a board, with the default task cost.
pub fn plan(n: u8, layout: Layout) -> Plan {
    Plan::new(PlanSpec::new(board(n), layout)).expect("a plan")
}

/// Returns the plan of a board with tasks of this cost.
pub fn plan_of_cost(n: u8, layout: Layout, task_cost: u64) -> Plan {
    Plan::new(PlanSpec { board: board(n), layout, task_cost }).expect("a plan")
}

pub fn published(n: u8) -> u128 {
    published_counts(board(n)).expect("a published count").all()
}

/// Returns the weighted count of every task, counted in lease order.
pub fn task_counts(plan: &Plan, config: &CounterConfig) -> Vec<u64> {
    let mut counter = Counter::new(plan, config).expect("a counter");
    let mut counts = vec![0; plan.task_costs().count()];
    for task in plan.lease_order() {
        let count = counter.count(plan.task_units(task), &NoProgress);
        counts[index(task)] = count.expect("a small count");
    }
    counts
}

/// A plan with exact counts.
pub struct ExactCounts {
    pub plan: Plan,
    /// Weighted count of every task.
    pub counts: Vec<u64>,
    pub total: u128,
}

impl fmt::Debug for ExactCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanSpec { board, layout, .. } = self.plan.spec();
        write!(f, "N = {board} in {layout}, {} tasks", self.counts.len())
    }
}

impl ExactCounts {
    /// Counts a small board in the smallest possible tasks.
    ///
    /// # Panics
    /// If there is no such board or plan, or its tasks do not add up to the published count.
    pub fn new(n: u8, layout: Layout) -> Self {
        let plan = plan_of_cost(n, layout, 1);
        let config = CounterConfig { kernel: Kernel::SCALAR, ..CounterConfig::best(1 << 30) };
        Self::of(plan, &config)
    }

    /// Counts the tasks of a plan.
    ///
    /// # Panics
    /// If the counts do not add up to the published count.
    pub fn of(plan: Plan, config: &CounterConfig) -> Self {
        let counts = task_counts(&plan, config);
        let total = counts.iter().copied().map(u128::from).sum();
        assert_eq!(total, published(plan.spec().board.n()), "{:?}", plan.spec());
        Self { plan, counts, total }
    }

    pub fn count(&self, task: TaskId) -> u64 {
        self.counts[index(task)]
    }
}

/// Returns a seeded stream of random numbers below a bound (SplitMix64).
pub fn random_from(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        plan::mix(state) % below
    }
}

fn board(n: u8) -> Board {
    Board::new(n).expect("a board")
}

fn index(task: TaskId) -> usize {
    usize::try_from(task.0).expect("a small plan")
}
