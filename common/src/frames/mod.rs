//! Method `frames`: the Parts Assembly Approach.
//!
//! The board is cut into four quadrants of n×n squares, P (top left), Q (top right), R (bottom
//! right) and S (bottom left); a board of odd side has a middle row and column between them. A
//! **quarter board** is a placement of queens in one quadrant, a **half board** a pair of
//! quarter boards side by side that fit (**QJoin**), a solution a pair of half boards that fit
//! (**HJoin**). The columns A of P and C of R decide which columns the top half uses: (A, C) is the
//! **frame**, the unit of work, in which every upper half board is joined with every lower one.
//!
//! Source: Kazuji Haginoya, a new approach to the N-Queens problem (部分解合成法, Parts Assembly
//! Approach). Joining all middle queens of a frame at once (type II) is new here.
//!
//! The mathematics: `docs/method.md`, “Four quadrants”.

pub(crate) mod cost;
mod counter;
mod frame_counter;
mod geometry;
mod halves;
mod memory;
mod parts;
mod plan;
mod qjoin;
mod quarter;
mod survey;
mod weight;

pub use counter::Counter;
pub(crate) use memory::FrameNeeds;
pub use plan::Division;
pub use survey::{Effort, Group, Lists, Survey};

#[cfg(test)]
mod tests;
