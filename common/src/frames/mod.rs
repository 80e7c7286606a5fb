//! Method `frames`: the Parts Assembly Approach.
//!
//! The board is cut into four quadrants of n×n squares, P (top left), Q (top right), R (bottom
//! right) and S (bottom left); a board of odd side has a middle row and column between them. A
//! **quarter board** is a placement of queens in one quadrant, a **half board** a pair of
//! quarter boards side by side that fit (**QJoin**), a solution a pair of half boards that fit
//! (**HJoin**). The columns A of P and C of R decide which columns the top half uses: (A, C) is the
//! **frame**, the unit of work, within which every upper half board meets every lower one.
//!
//! Source: Kazuji Haginoya, a new approach to the N-Queens problem (部分解合成法, Parts Assembly
//! Approach). The joining of all middle queens of a frame at once (type II) is this project's.

mod cost;
mod counter;
mod frame;
mod geometry;
mod halves;
pub mod hjoin;
mod memory;
mod one;
mod parts;
mod plan;
mod progress;
mod qjoin;
mod quarter;
mod sets;
mod shelf;
mod split;
mod survey;
mod weight;

pub use counter::Counter;
pub(crate) use memory::FrameNeeds;
pub use plan::Division;
pub use survey::{Effort, Group, Lists, Survey};

use crate::board::Board;

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

#[cfg(test)]
mod tests;
