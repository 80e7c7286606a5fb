//! Method `rows`: backtracking over bitmasks from a prefix of placed queens.

use std::{ops::Range, sync::Arc};

use crate::{
    board::Board,
    count::{CountError, Setup, SetupError, Watch},
    plan::{BadSpec, PlanSpec, TaskId},
};

pub(crate) const PLAN_VERSION: u16 = 1;

/// First rows: a unit is a mixed-radix number of `depth` columns, most significant row first;
/// the first row runs over the left half (the middle included for odd N).
#[derive(Debug)]
pub struct Division {
    board: Board,
    depth: u8,
    units: u64,
    per_task: u64,
    unit_cost: u64,
}

pub(crate) fn default_task_cost(board: Board) -> u64 {
    match board.n() {
        0..=16 => 20_000,
        17 | 18 => 200_000,
        _ => 10_000_000,
    }
}

impl Division {
    pub(crate) fn new(spec: &PlanSpec) -> Result<Self, BadSpec> {
        let n = u64::from(spec.board.n());
        let depth = match spec.board.n() {
            1 => 1,
            2..=12 => 2,
            13..=18 => 3,
            _ => 4,
        };
        let units = n.div_ceil(2) * n.pow(depth - 1);
        let whole = 3.0e6 * 8f64.powi(i32::from(spec.board.n()) - 16);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let unit_cost = ((whole / units as f64) as u64).max(1);
        let per_task = (spec.task_cost / unit_cost).clamp(1, units);
        Ok(Self {
            board: spec.board,
            depth: depth as u8,
            units,
            per_task,
            unit_cost,
        })
    }

    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    pub(crate) fn tasks(&self) -> u64 {
        self.units.div_ceil(self.per_task)
    }

    pub(crate) fn task_units(&self, task: TaskId) -> Range<u64> {
        let start = task.0 * self.per_task;
        start..(start + self.per_task).min(self.units)
    }

    pub(crate) fn task_cost(&self, task: TaskId) -> u64 {
        let units = self.task_units(task);
        (units.end - units.start) * self.unit_cost
    }

    pub(crate) fn task_limit(&self, task: TaskId) -> u64 {
        let rest = u64::from(self.board.n() - self.depth);
        let orders = (1..=rest).try_fold(2u64, |product, k| product.checked_mul(k));
        let units = self.task_units(task);
        orders
            .and_then(|orders| orders.checked_mul(units.end - units.start))
            .unwrap_or(u64::MAX)
    }
}

/// Counts prefixes on one thread.
#[derive(Debug)]
pub struct Counter {
    division: Arc<Division>,
}

impl Counter {
    pub(crate) fn new(division: Arc<Division>, _setup: &Setup) -> Result<Self, SetupError> {
        Ok(Self { division })
    }

    pub(crate) fn count(
        &mut self,
        units: Range<u64>,
        watch: &dyn Watch,
    ) -> Result<u64, CountError> {
        let mut sum = 0u64;
        for unit in units {
            let count = self.unit(unit);
            sum = sum.checked_add(count).ok_or(CountError::Overflow)?;
            if watch.advance(self.division.unit_cost).is_break() {
                return Err(CountError::Cancelled);
            }
        }
        Ok(sum)
    }

    fn unit(&self, unit: u64) -> u64 {
        let Division { board, depth, .. } = *self.division;
        let n = u64::from(board.n());
        let full = u64::from(board.full_row());
        let (mut cols, mut left, mut right) = (0u64, 0u64, 0u64);
        let mut weight = 2;
        let mut rest = unit;
        for row in 0..u32::from(depth) {
            let place = n.pow(u32::from(depth) - 1 - row);
            let column = rest / place;
            rest %= place;
            let queen = 1u64 << column;
            if queen & (cols | left | right) != 0 {
                return 0;
            }
            if row == 0 && 2 * column + 1 == n {
                weight = 1;
            }
            cols |= queen;
            left = (left | queen) << 1;
            right = (right | queen) >> 1;
        }
        weight * descend(full, cols, left, right)
    }
}

fn descend(full: u64, cols: u64, left: u64, right: u64) -> u64 {
    let mut free = full & !(cols | left | right);
    if cols == full {
        return 1;
    }
    let mut solutions = 0;
    while free != 0 {
        let queen = free & free.wrapping_neg();
        free ^= queen;
        solutions += descend(
            full,
            cols | queen,
            (left | queen) << 1,
            (right | queen) >> 1,
        );
    }
    solutions
}

#[cfg(test)]
mod tests {
    use crate::{
        board::Board,
        count::{Counter, Orientation, Setup, Unwatched},
        kernel::Kernel,
        known::known_counts,
        method::Layout,
        plan::{Plan, PlanSpec},
    };

    #[test]
    fn first_rows_exact() {
        for n in 1..=13 {
            let board = Board::new(n).unwrap();
            let plan = Plan::new(PlanSpec::new(board, Layout::FirstRows)).unwrap();
            let setup = Setup {
                kernel: Kernel::SCALAR,
                memory_bytes: 1 << 20,
                orientation: Orientation::Upright,
            };
            let mut counter = Counter::new(&plan, &setup).unwrap();
            let total: u64 = plan
                .handing_out_order()
                .map(|task| counter.count(plan.task_units(task), &Unwatched).unwrap())
                .sum();
            assert_eq!(
                u128::from(total),
                known_counts(board).unwrap().all(),
                "N = {n}"
            );
        }
    }
}
