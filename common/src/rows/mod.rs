//! Method `rows`: backtracking over bitmasks from a prefix of placed queens.

mod border;
mod cost;
mod counter;
mod division;
mod ground;
mod kernel;
mod lanes;
mod stream;

#[cfg(test)]
mod tests;

pub use counter::Counter;
pub use division::Division;

use crate::board::Board;

pub(crate) const PLAN_VERSION: u16 = 2;

pub(crate) fn default_task_cost(board: Board) -> u64 {
    match board.n() {
        0..=16 => 20_000,
        17 | 18 => 200_000,
        _ => 10_000_000,
    }
}
