//! Plans of method `rows`: heads, each followed by every choice of columns for the next few rows.
//!
//! A **head** is what a layout enumerates: the first two rows, or the outermost ring. There are at
//! most some hundred thousand, and they are listed. A **unit** is a head and a **tail**: one column
//! for each of the next `tail_rows` unfilled rows, as a number with N digits a row, the highest row
//! first. Units are not listed: unit = head * N^tail_rows + tail. Most tails are attacked and count
//! nothing. The tail is empty until heads alone would be too long a wait.

use std::ops::Range;

use super::{
    border::{self, Border},
    cost,
};
use crate::{
    board::Board,
    method::Layout,
    plan::{BadSpec, PlanSpec, TaskId},
};

/// The queens that a group of units has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// Columns of the queens in the first rows.
    FirstRows { columns: [u8; 2], rows: u8 },
    /// One queen on each side.
    Border(Border),
    /// No placement: the only head of a board that has none.
    Nothing,
}

/// A head, how its solutions weigh, and its share of the work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weighted {
    pub(super) head: Head,
    pub(super) weight: u8,
    /// Estimated microseconds for all its units.
    pub(super) cost: u64,
}

/// Consecutive heads whose units make consecutive tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first_head: u64,
    heads: u64,
    first_task: u64,
    /// More than one only for a single head: its units are dealt evenly.
    tasks: u64,
}

/// How a board is divided, for both layouts.
#[derive(Debug)]
pub struct Division {
    board: Board,
    heads: Vec<Weighted>,
    tail_rows: u8,
    /// N^tail_rows.
    tails: u64,
    runs: Vec<Run>,
    tasks: u64,
}

impl Head {
    /// See [`cost::size`].
    fn size(self, board: Board) -> i64 {
        match self {
            Self::FirstRows { columns, rows } => {
                let queens: Vec<_> = (0..rows).zip(columns).collect();
                cost::size(board, &queens)
            }
            Self::Border(border) => cost::size(board, &border.queens(board).collect::<Vec<_>>()),
            Self::Nothing => 0,
        }
    }
}

impl Division {
    pub(crate) fn new(spec: &PlanSpec) -> Result<Self, BadSpec> {
        let board = spec.board;
        let mut heads = match spec.layout {
            Layout::FirstRows => first_rows(board),
            Layout::Border => borders(board),
            Layout::Frames => {
                return Err(BadSpec::Unsupported {
                    layout: spec.layout,
                    board,
                    reason: "method rows does not divide into frames".to_owned(),
                });
            }
        };
        if heads.is_empty() {
            heads.push(Weighted {
                head: Head::Nothing,
                weight: 0,
                cost: 1,
            });
        }
        let sizes: Vec<i64> = heads.iter().map(|head| head.head.size(board)).collect();
        cost::share(board, &mut heads, &sizes);
        let tail_rows = tail_rows(board, &heads, spec.task_cost);
        let tails = u64::from(board.n()).pow(u32::from(tail_rows));
        let (runs, tasks) = runs(&heads, tails, spec.task_cost);
        Ok(Self {
            board,
            heads,
            tail_rows,
            tails,
            runs,
            tasks,
        })
    }

    pub(crate) fn units(&self) -> u64 {
        self.heads.len() as u64 * self.tails
    }

    pub(crate) fn tasks(&self) -> u64 {
        self.tasks
    }

    pub(crate) fn task_units(&self, task: TaskId) -> Range<u64> {
        let run = self.run(task);
        let first = run.first_head * self.tails;
        let units = u128::from(run.heads * self.tails);
        let cut = |tasks: u64| {
            let units = u128::from(tasks) * units / u128::from(run.tasks);
            first + u64::try_from(units).expect("no more than the units of the run")
        };
        let nth = task.0 - run.first_task;
        cut(nth)..cut(nth + 1)
    }

    pub(crate) fn task_cost(&self, task: TaskId) -> u64 {
        let run = self.run(task);
        let heads = run.first_head..run.first_head + run.heads;
        (self.heads_cost(heads) / run.tasks).max(1)
    }

    pub(crate) fn task_limit(&self, task: TaskId) -> u64 {
        let units = self.task_units(task);
        let (first, last) = (self.head_at(units.start), self.head_at(units.end - 1));
        let filled = match first.head {
            Head::FirstRows { rows, .. } => rows,
            Head::Border(_) => 2,
            Head::Nothing => return 0,
        };
        // Fewer than the orders of the columns that the head leaves, whatever the tail.
        let rest =
            u64::from((self.board.n() - filled.min(self.board.n())).saturating_sub(self.tail_rows));
        let weight = u64::from(first.weight.max(last.weight).max(8));
        (1..=rest)
            .try_fold(weight, |product, k| product.checked_mul(k))
            .and_then(|orders| orders.checked_mul(units.end - units.start))
            .unwrap_or(u64::MAX)
    }

    pub(super) fn board(&self) -> Board {
        self.board
    }

    pub(super) fn tail_rows(&self) -> u8 {
        self.tail_rows
    }

    /// How many units share a head.
    pub(super) fn tails(&self) -> u64 {
        self.tails
    }

    pub(super) fn head(&self, head: u64) -> Weighted {
        self.heads[usize::try_from(head).expect("heads are listed in memory")]
    }

    fn head_at(&self, unit: u64) -> Weighted {
        self.head(unit / self.tails)
    }

    fn heads_cost(&self, heads: Range<u64>) -> u64 {
        heads
            .map(|head| self.head(head).cost)
            .fold(0, u64::saturating_add)
    }

    fn run(&self, task: TaskId) -> Run {
        let after = self.runs.partition_point(|run| run.first_task <= task.0);
        self.runs[after - 1]
    }
}

/// The first two rows (one where there is only one), of each mirror pair the one whose first queen
/// off the middle column is in the left half.
fn first_rows(board: Board) -> Vec<Weighted> {
    let n = board.n();
    if n == 1 {
        let head = Head::FirstRows {
            columns: [0, 0],
            rows: 1,
        };
        return vec![Weighted {
            head,
            weight: 1,
            cost: 0,
        }];
    }
    let mirror = |column: u8| n - 1 - column;
    let mut heads = Vec::new();
    for first in 0..n {
        for second in (0..n).filter(|second| second.abs_diff(first) > 1) {
            if (first, second) < (mirror(first), mirror(second)) {
                let head = Head::FirstRows {
                    columns: [first, second],
                    rows: 2,
                };
                heads.push(Weighted {
                    head,
                    weight: 2,
                    cost: 0,
                });
            }
        }
    }
    heads
}

fn borders(board: Board) -> Vec<Weighted> {
    let borders = border::representatives(board).into_iter();
    borders
        .map(|(border, weight)| Weighted {
            head: Head::Border(border),
            weight,
            cost: 0,
        })
        .collect()
}

/// As many rows as it takes for units to cost, on average, a small part of a task.
fn tail_rows(board: Board, heads: &[Weighted], task_cost: u64) -> u8 {
    let total: f64 = heads.iter().map(|head| as_float(head.cost)).sum();
    let free_rows = board.n().saturating_sub(4);
    let mut tail_rows = 0;
    let mut units = as_float(heads.len() as u64);
    while tail_rows < MOST_TAIL_ROWS.min(free_rows) && total / units * PARTS > as_float(task_cost) {
        tail_rows += 1;
        units *= f64::from(board.n());
    }
    tail_rows
}

/// N^4 times the number of heads fits 64 bits with room.
const MOST_TAIL_ROWS: u8 = 4;

/// Units a task should hold at least, so that tasks come out even.
const PARTS: f64 = 8.0;

#[allow(clippy::cast_precision_loss)]
fn as_float(number: u64) -> f64 {
    number as f64
}

/// Cuts the heads into tasks of about `task_cost`: several cheap heads make one task, a dear one
/// several.
fn runs(heads: &[Weighted], tails: u64, task_cost: u64) -> (Vec<Run>, u64) {
    let mut runs: Vec<Run> = Vec::new();
    let mut tasks = 0;
    let mut close = |first_head: usize, end: usize, count: u64| {
        let (first_head, end) = (first_head as u64, end as u64);
        runs.push(Run {
            first_head,
            heads: end - first_head,
            first_task: tasks,
            tasks: count,
        });
        tasks += count;
    };
    let (mut open, mut gathered) = (0, 0u64);
    for (at, head) in heads.iter().enumerate() {
        // Closing early where that leaves the task nearer to its size than going on would.
        if at > open && gathered.saturating_add(head.cost / 2) >= task_cost {
            close(open, at, 1);
            (open, gathered) = (at, 0);
        }
        if head.cost > task_cost {
            if at > open {
                close(open, at, 1);
            }
            let count = (head.cost.saturating_add(task_cost / 2) / task_cost).clamp(1, tails);
            close(at, at + 1, count);
            (open, gathered) = (at + 1, 0);
        } else {
            gathered = gathered.saturating_add(head.cost);
        }
    }
    if open < heads.len() {
        close(open, heads.len(), 1);
    }
    (runs, tasks)
}
