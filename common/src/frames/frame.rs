//! Frames, one by one and by A.
//!
//! The mathematics: `docs/method.md`, “The frame”.

use super::geometry::Kind;

/// A unit: the columns that the top half (and so the bottom half) of the board uses on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The board's middle.
    pub(crate) kind: Kind,
    /// #C, the number of queens in quadrant R; as many as in P, or one more for type II.
    pub(crate) queens: u32,
    /// Rank of A, the columns of P, among the sets of their size.
    pub(crate) a: usize,
    /// Rank of C, the columns of R, among the sets of their size.
    pub(crate) c: usize,
}

impl Frame {
    /// #A, the number of queens in quadrant P.
    pub(crate) fn top_queens(&self) -> u32 {
        top_queens(self.kind, self.queens)
    }
}

fn top_queens(kind: Kind, queens: u32) -> u32 {
    match kind {
        Kind::Even | Kind::TypeOne => queens,
        Kind::TypeTwo => queens - 1,
    }
}

/// All frames of one A: consecutive ranks of C.
#[derive(Clone, Debug)]
pub(super) struct FramesOfA {
    pub(super) kind: Kind,
    pub(super) queens: u32,
    pub(super) a: usize,
    /// The rank of the first C.
    pub(super) first_c: usize,
    /// The index of the first unit.
    pub(super) first_unit: u64,
}

impl FramesOfA {
    /// What decides the sizes of a frame's lists but for the columns themselves.
    pub(super) fn class(&self) -> (Kind, u32) {
        (self.kind, self.queens)
    }

    /// #A, the number of queens in quadrant P.
    pub(super) fn top_queens(&self) -> u32 {
        top_queens(self.kind, self.queens)
    }
}
