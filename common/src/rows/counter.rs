//! From ranges of units to weighted counts.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use super::{
    cost,
    division::{Division, Head, Weighted},
    ground::{Ground, Root},
    kernel,
    stream::{MOST_ROOTS, Stacks},
};
use crate::{
    board::Board,
    kernel::Kernel,
    setup::{CountError, Orientation, Setup, SetupError, Watch},
};

/// Counts units on one thread.
#[derive(Debug)]
pub struct Counter {
    division: Arc<Division>,
    kernel: Kernel,
    orientation: Orientation,
    stacks: Stacks,
    roots: Vec<Root>,
}

/// What units must have in common to be counted in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Family {
    /// The rows to fill.
    ground: Key,
    weight: u8,
}

/// What a ground is made from. Of a border the top queen is not part of it: that queen lies above
/// all rows to fill and so can be part of the state, which lets borders that differ in it alone be
/// counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    FirstRows { rows: u8 },
    Border { bottom: u8, left: u8, right: u8 },
}

/// A run of units of one family.
struct Batch {
    family: Family,
    /// From the first unfilled row on.
    whole: Ground,
    /// From the row after the tail on.
    rest: Ground,
    /// Estimated cost of the units not reported yet.
    cost: u64,
}

/// What counting takes, in bytes.
pub(crate) fn memory_bytes() -> u64 {
    Stacks::BYTES + (MOST_ROOTS * size_of::<Root>()) as u64
}

impl Counter {
    pub(crate) fn new(division: Arc<Division>, setup: &Setup) -> Result<Self, SetupError> {
        let (stacks, roots) = (Stacks::new(), Vec::with_capacity(MOST_ROOTS));
        let least = memory_bytes();
        if setup.memory_bytes < least {
            return Err(SetupError::Memory {
                given: setup.memory_bytes,
                least,
            });
        }
        let Setup {
            kernel,
            orientation,
            ..
        } = *setup;
        Ok(Self {
            division,
            kernel,
            orientation,
            stacks,
            roots,
        })
    }

    pub(crate) fn count(
        &mut self,
        units: Range<u64>,
        watch: &dyn Watch,
    ) -> Result<u64, CountError> {
        let division = Arc::clone(&self.division);
        let tails = division.tails();
        self.roots.clear();
        let mut sum = 0;
        let mut batch: Option<Batch> = None;
        let mut at = units.start;
        while at < units.end {
            let Weighted { head, weight, cost } = division.head(at / tails);
            let range = at % tails..tails.min(at % tails + (units.end - at));
            at += range.end - range.start;
            let Some(ground) = Key::of(head) else {
                continue;
            };
            let family = Family { ground, weight };
            if let Some(mut done) = batch.take_if(|batch| batch.family != family) {
                self.run(&mut done, &mut sum, watch)?;
            }
            let batch = batch.get_or_insert_with(|| self.batch(family));
            let share = u128::from(cost) * u128::from(range.end - range.start) / u128::from(tails);
            batch.cost = batch
                .cost
                .saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
            let root = self.root(head, &batch.whole);
            for tail in range {
                if self.roots.len() == MOST_ROOTS {
                    self.run(batch, &mut sum, watch)?;
                }
                let placed = place_tail(&division, &batch.whole, root, self.turn(), tail);
                self.roots.extend(placed);
            }
        }
        if let Some(mut batch) = batch {
            self.run(&mut batch, &mut sum, watch)?;
        }
        Ok(sum)
    }

    /// Counts the waiting roots and adds what they weigh to `sum`.
    fn run(
        &mut self,
        batch: &mut Batch,
        sum: &mut u64,
        watch: &dyn Watch,
    ) -> Result<(), CountError> {
        let mut cost = std::mem::take(&mut batch.cost);
        let mut tick = |placed| {
            let done = cost::of_placements(placed).min(cost);
            cost -= done;
            watch.advance(done)
        };
        let counted = kernel::count(
            self.kernel,
            &mut self.stacks,
            &batch.rest,
            &self.roots,
            &mut tick,
        );
        self.roots.clear();
        let ControlFlow::Continue(solutions) = counted else {
            return Err(CountError::Cancelled);
        };
        if watch.advance(cost).is_break() {
            return Err(CountError::Cancelled);
        }
        let weighted = solutions.checked_mul(u64::from(batch.family.weight));
        *sum = weighted
            .and_then(|more| sum.checked_add(more))
            .ok_or(CountError::Overflow)?;
        Ok(())
    }

    fn batch(&self, family: Family) -> Batch {
        let board = self.division.board();
        let whole = family.ground.ground(board, self.turn());
        let rest = whole.skip(usize::from(self.division.tail_rows()));
        Batch {
            family,
            whole,
            rest,
            cost: 0,
        }
    }

    /// The state in the first unfilled row below a head.
    fn root(&self, head: Head, ground: &Ground) -> Root {
        let board = self.division.board();
        let turn = self.turn();
        let row = ground.places().first().copied().unwrap_or(board.n());
        match head {
            Head::FirstRows { columns, rows } => {
                let queens = (0..rows)
                    .zip(columns)
                    .map(|(row, column)| (row, turn.column(column)));
                Root::below(board, row, queens)
            }
            Head::Border(border) => {
                let root = Root::below(board, row, [(0, turn.column(border.top))].into_iter());
                let others = [0, board.n() - 1, turn.column(border.bottom)];
                root.without_columns(others)
            }
            Head::Nothing => unreachable!("an empty head has no key, so it makes no batch"),
        }
    }

    fn turn(&self) -> Turn {
        Turn {
            last: self.division.board().n() - 1,
            mirrored: self.orientation == Orientation::Turned,
        }
    }
}

/// Whether columns are counted from the right instead of from the left.
#[derive(Clone, Copy, Debug)]
struct Turn {
    last: u8,
    mirrored: bool,
}

impl Turn {
    fn column(self, column: u8) -> u8 {
        if self.mirrored {
            self.last - column
        } else {
            column
        }
    }
}

impl Key {
    fn of(head: Head) -> Option<Self> {
        match head {
            Head::FirstRows { rows, .. } => Some(Self::FirstRows { rows }),
            Head::Border(border) => Some(Self::Border {
                bottom: border.bottom,
                left: border.left,
                right: border.right,
            }),
            Head::Nothing => None,
        }
    }

    fn ground(self, board: Board, turn: Turn) -> Ground {
        let last = board.n() - 1;
        match self {
            Self::FirstRows { rows } => Ground::new(board, |row| row < rows, &[]),
            Self::Border {
                bottom,
                left,
                right,
            } => {
                let fixed = [(last, bottom), (left, 0), (right, last)]
                    .map(|(row, column)| (row, turn.column(column)));
                Ground::new(board, |row| [0, last, left, right].contains(&row), &fixed)
            }
        }
    }
}

/// The state after the tail, or `None` where the tail puts a queen on an attacked square.
fn place_tail(
    division: &Division,
    ground: &Ground,
    mut root: Root,
    turn: Turn,
    tail: u64,
) -> Option<Root> {
    let n = u64::from(division.board().n());
    let mut digits = tail;
    let rows = ground.allowed().iter().zip(ground.steps());
    for (&allowed, &step) in rows.take(usize::from(division.tail_rows())) {
        #[allow(clippy::cast_possible_truncation)] // below N
        let column = (digits % n) as u8;
        digits /= n;
        root = root.place(turn.column(column), allowed, step)?;
    }
    Some(root)
}
