//! Plans with their true counts, counted once.

use std::{fmt, ops::ControlFlow, sync::LazyLock};

use common::{
    board::Board,
    count::{Counter, Orientation, Setup, Unwatched},
    kernel::Kernel,
    known::known_counts,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
    symmetric::{HalfTurn, quarter_turn},
};
use coordinator::store::SymmetricCounts;

/// A plan and the count of each of its tasks.
pub struct Truth {
    /// The plan, in the smallest tasks there are.
    pub plan: Plan,
    /// The weighted count of every task, by number.
    pub counts: Vec<u64>,
    /// all(N).
    pub total: u128,
    /// The symmetric ones among them.
    pub symmetric: SymmetricCounts,
}

static TRUTHS: LazyLock<Vec<Truth>> = LazyLock::new(|| {
    let plans = [
        (8, Layout::Border),
        (9, Layout::Frames),
        (9, Layout::Border),
        (10, Layout::Border),
        (11, Layout::Frames),
        (13, Layout::FirstRows),
        (12, Layout::Border),
    ];
    plans.map(|(n, layout)| Truth::new(n, layout)).into()
});

impl fmt::Debug for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanSpec { board, layout, .. } = self.plan.spec();
        write!(f, "N = {board} in {layout}, {} tasks", self.counts.len())
    }
}

impl Truth {
    /// Some plans of 78 to 730 tasks, smaller ones first.
    pub fn all() -> &'static [Self] {
        &TRUTHS
    }

    fn new(n: u8, layout: Layout) -> Self {
        let board = Board::new(n).expect("a board");
        let spec = PlanSpec {
            board,
            layout,
            task_cost: 1,
        };
        let plan = Plan::new(spec).expect("a plan");
        let setup = Setup {
            kernel: Kernel::SCALAR,
            threads: std::num::NonZeroU16::MIN,
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
        let half_turn = HalfTurn::new(board).count(&|| ControlFlow::Continue(()));
        Self {
            plan,
            counts,
            total,
            symmetric: SymmetricCounts {
                half_turn: half_turn.expect("a small board"),
                quarter_turn: quarter_turn(board),
            },
        }
    }

    /// The true count of a task.
    pub fn count(&self, task: TaskId) -> u64 {
        self.counts[usize::try_from(task.0).expect("a small plan")]
    }
}
