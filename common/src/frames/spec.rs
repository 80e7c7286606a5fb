//! What a plan of this method depends on beside the board.

use crate::board::Board;

/// The version of the rules by which boards are divided: any change of them raises it.
pub(crate) const PLAN_VERSION: u16 = 2;

/// The cost of a task in microseconds unless the user says otherwise: thousands of tasks where
/// that does not make them smaller than a few milliseconds, and at most some minutes each.
pub(crate) fn default_task_cost(board: Board) -> u64 {
    match board.n() {
        0..=14 => 500,
        15..=16 => 2_000,
        17..=18 => 10_000,
        19..=20 => 100_000,
        21..=22 => 1_000_000,
        23 => 5_000_000,
        24..=26 => 20_000_000,
        27 => 120_000_000,
        28 => 300_000_000,
        29 => 10_000_000_000,
        30 => 100_000_000_000,
        31 => 1_000_000_000_000,
        _ => 10_000_000_000_000,
    }
}
