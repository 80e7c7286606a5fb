//! Plans with their true counts, counted once.

use std::{
    fmt,
    ops::{ControlFlow, Deref},
    sync::LazyLock,
};

use common::{
    board::Board,
    method::Layout,
    plan::PlanSpec,
    symmetric::{HalfTurn, quarter_turn},
    truth::Truth as Counted,
};
use coordinator::store::SymmetricCounts;

/// A plan and the count of each of its tasks.
pub struct Truth {
    counted: Counted,
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
        let half_turn = HalfTurn::new(board).count(&|| ControlFlow::Continue(()));
        Self {
            counted: Counted::new(n, layout),
            symmetric: SymmetricCounts {
                half_turn: half_turn.expect("a small board"),
                quarter_turn: quarter_turn(board),
            },
        }
    }
}

impl Deref for Truth {
    type Target = Counted;

    fn deref(&self) -> &Counted {
        &self.counted
    }
}
