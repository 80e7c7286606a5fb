//! Plans of method `rows`: heads, and tails for the next few rows.
//!
//! A **head** places the queens of the first two rows or of the outermost ring, by layout. Heads
//! are stored, at most a few hundred thousand. A **unit** is a head and a **tail**: one column for
//! each of the next `tail_rows` unfilled rows, as a number with one base-N digit per row, lowest
//! for the top row. Units are computed: unit = head * N^tail_rows + tail. Most tails use attacked
//! squares and have no solutions. The tail is empty unless heads alone would take too long.

use std::ops::Range;

use super::{
    border::{self, Border},
    cost,
};
use crate::{
    board::Board,
    method::Layout,
    plan::spec::{MapPanel, MapSpan, PlanSpec, TaskId},
};

/// Queens shared by a group of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// Columns of the queens in the first rows.
    FirstRows { columns: [u8; 2], rows: u8 },
    /// One queen on each side.
    Border(Border),
    /// Placeholder for a board without heads; it has no solutions.
    Nothing,
}

/// A head with its weight and cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weighted {
    pub(super) head: Head,
    pub(super) weight: u8,
    /// Estimated microseconds for all its units, at least 1.
    pub(super) cost: u64,
}

/// Division of a board into units, for both layouts of method `rows`.
#[derive(Debug)]
pub struct Division {
    board: Board,
    heads: Vec<Weighted>,
    /// Cumulative cost before each head, and of all heads.
    cost_before: Vec<u64>,
    tail_rows: u8,
    /// N^tail_rows.
    tails: u64,
    tasks: u64,
}

impl Head {
    /// Returns [`cost::Model::size`] of the head's queens.
    fn size(self, board: Board) -> i64 {
        match self {
            Self::FirstRows { columns, rows } => {
                let queens: Vec<_> = (0..rows).zip(columns).collect();
                cost::FIRST_ROWS.size(board, &queens)
            }
            Self::Border(border) => {
                cost::BORDER.size(board, &border.queens(board).collect::<Vec<_>>())
            }
            Self::Nothing => 0,
        }
    }
}

impl Division {
    pub(crate) fn new(spec: &PlanSpec) -> Self {
        let board = spec.board;
        let (mut heads, model) = match spec.layout {
            Layout::FirstRows => (first_rows(board), cost::FIRST_ROWS),
            Layout::Border => (borders(board), cost::BORDER),
            Layout::Frames => unreachable!("a layout of method frames"),
        };
        if heads.is_empty() {
            heads.push(Weighted { head: Head::Nothing, weight: 0, cost: 0 });
        }
        let sizes: Vec<i64> = heads.iter().map(|head| head.head.size(board)).collect();
        for (head, cost) in heads.iter_mut().zip(model.shares(board, &sizes)) {
            head.cost = cost;
        }
        let mut cost_before = vec![0];
        cost_before.extend(heads.iter().scan(0, |sum, head| {
            *sum += head.cost;
            Some(*sum)
        }));
        let whole = cost_before[heads.len()];
        let tail_rows = tail_rows(board, whole, heads.len(), spec.task_cost);
        let tails = u64::from(board.n()).pow(u32::from(tail_rows));
        // Every task has a unit, because no task costs less than the most expensive unit.
        let max_unit_cost = heads.iter().map(|head| head.cost.div_ceil(tails)).max().unwrap_or(1);
        let wanted = whole.saturating_add(spec.task_cost / 2) / spec.task_cost;
        let tasks = wanted.clamp(1, (whole / max_unit_cost).max(1));
        Self { board, heads, cost_before, tail_rows, tails, tasks }
    }

    pub(crate) fn units(&self) -> u64 {
        self.heads.len() as u64 * self.tails
    }

    pub(crate) fn tasks(&self) -> u64 {
        self.tasks
    }

    pub(crate) fn task_units(&self, task: TaskId) -> Range<u64> {
        self.cut(task.0)..self.cut(task.0 + 1)
    }

    pub(crate) fn task_cost(&self, task: TaskId) -> u64 {
        (self.cost_at(task.0 + 1) - self.cost_at(task.0)).max(1)
    }

    pub(crate) fn task_limit(&self, task: TaskId) -> u64 {
        let units = self.task_units(task);
        let filled = match self.head_at(units.start).head {
            Head::FirstRows { rows, .. } => rows,
            Head::Border(_) => 2,
            Head::Nothing => return 0,
        };
        // The columns of the remaining rows have at most `rest`! orders, whatever the tail, and no
        // weight exceeds 8.
        let rest = u64::from(self.board.n().saturating_sub(filled + self.tail_rows));
        (1..=rest)
            .try_fold(8_u64, |product, k| product.checked_mul(k))
            .and_then(|orders| orders.checked_mul(units.end - units.start))
            .unwrap_or(u64::MAX)
    }

    pub(super) fn board(&self) -> Board {
        self.board
    }

    pub(super) fn tail_rows(&self) -> u8 {
        self.tail_rows
    }

    /// Returns the number of units per head.
    pub(super) fn tails(&self) -> u64 {
        self.tails
    }

    pub(super) fn head(&self, head: u64) -> Weighted {
        self.heads[usize::try_from(head).expect("heads are listed in memory")]
    }

    /// Returns one map panel, with the positions of two queens of a head as axes.
    pub(crate) fn panels(&self) -> Vec<MapPanel> {
        let side = u64::from(self.board.n());
        vec![MapPanel { name: String::new(), rows: side, columns: side }]
    }

    pub(crate) fn axes(&self) -> [&'static str; 2] {
        match self.heads.first().map(|head| head.head) {
            Some(Head::Border(_)) => {
                ["the column of the last row's queen", "the row of the first column's queen"]
            }
            Some(Head::FirstRows { .. } | Head::Nothing) | None => {
                ["the column of the first row's queen", "the column of the second row's queen"]
            }
        }
    }

    /// Visits the map positions of these units: one span per head.
    pub(crate) fn spans(&self, units: Range<u64>, visit: &mut dyn FnMut(MapSpan)) {
        let mut start = units.start;
        while start < units.end {
            let head = start / self.tails;
            let [row, column] = match self.head(head).head {
                Head::FirstRows { columns, .. } => columns,
                Head::Border(border) => [border.bottom, border.left],
                Head::Nothing => [0, 0],
            }
            .map(u64::from);
            visit(MapSpan { panel: 0, row, columns: column..column + 1 });
            start = ((head + 1) * self.tails).min(units.end);
        }
    }

    /// Returns the columns that a unit allows in each row, as bits.
    pub(crate) fn allowed(&self, unit: u64) -> Vec<u32> {
        let n = u64::from(self.board.n());
        let mut allowed = vec![0; usize::from(self.board.n())];
        let mut put = |row: u8, column: u8| allowed[usize::from(row)] = 1 << column;
        match self.head_at(unit).head {
            Head::FirstRows { columns, rows } => {
                (0..rows).zip(columns).for_each(|(row, column)| put(row, column));
            }
            Head::Border(border) => {
                border.queens(self.board).for_each(|(row, column)| put(row, column));
            }
            Head::Nothing => return allowed,
        }
        let mut tail = unit % self.tails;
        let unfilled = allowed.iter_mut().filter(|columns| **columns == 0);
        for (place, columns) in unfilled.enumerate() {
            *columns = match place < usize::from(self.tail_rows) {
                true => 1 << (tail % n),
                false => self.board.full_row(),
            };
            tail /= n;
        }
        allowed
    }

    fn head_at(&self, unit: u64) -> Weighted {
        self.head(unit / self.tails)
    }

    /// Returns the cost of all tasks before `task`.
    fn cost_at(&self, task: u64) -> u64 {
        let whole = self.cost_before[self.heads.len()];
        scale(whole, task, self.tasks)
    }

    /// Returns the first unit of `task`, or the number of units if past the last task.
    fn cut(&self, task: u64) -> u64 {
        let cost = self.cost_at(task);
        let head = self.cost_before.partition_point(|&before| before <= cost) - 1;
        let Some(Weighted { cost: of_head, .. }) = self.heads.get(head) else {
            return self.units();
        };
        let tail = scale(self.tails, cost - self.cost_before[head], *of_head);
        head as u64 * self.tails + tail
    }
}

/// Returns `number * part / whole`, rounded down, for `part <= whole`.
fn scale(number: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(number) * u128::from(part) / u128::from(whole);
    u64::try_from(scaled).expect("at most `number`")
}

/// Returns the first two rows (or one), one of each mirror pair.
///
/// The first queen off the middle column is in the left half.
fn first_rows(board: Board) -> Vec<Weighted> {
    let n = board.n();
    if n == 1 {
        let head = Head::FirstRows { columns: [0, 0], rows: 1 };
        return vec![Weighted { head, weight: 1, cost: 0 }];
    }
    let mirror = |column: u8| n - 1 - column;
    let mut heads = Vec::new();
    for first in 0..n {
        for second in (0..n).filter(|second| second.abs_diff(first) > 1) {
            if (first, second) < (mirror(first), mirror(second)) {
                let head = Head::FirstRows { columns: [first, second], rows: 2 };
                heads.push(Weighted { head, weight: 2, cost: 0 });
            }
        }
    }
    heads
}

fn borders(board: Board) -> Vec<Weighted> {
    let borders = border::representatives(board).into_iter();
    borders
        .map(|(border, weight)| Weighted { head: Head::Border(border), weight, cost: 0 })
        .collect()
}

/// Returns the tail length at which tasks have similar costs.
///
/// A task has several heads, or enough units of a head that attacked units, which cost nothing, are
/// spread evenly.
fn tail_rows(board: Board, whole: u64, heads: usize, task_cost: u64) -> u8 {
    let n = u64::from(board.n());
    let most = MAX_TAIL_ROWS.min(board.n().saturating_sub(4));
    let cost = whole / heads as u64;
    if cost.saturating_mul(8) <= task_cost {
        return 0;
    }
    (1..most).find(|&rows| cost / n.pow(u32::from(rows)) * 4 * n <= task_cost).unwrap_or(most)
}

/// Maximum tail length: N^4 times the number of heads fits in 64 bits.
const MAX_TAIL_ROWS: u8 = 4;
