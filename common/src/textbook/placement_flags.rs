//! Backtracking with a flag for each column and each diagonal.

use super::patience::{Columns, Count, Patience, Stop};
use crate::board::Board;

/// Which lines hold a queen.
struct Flags {
    n: usize,
    down: [bool; 32],
    /// By row - column + N - 1.
    right: [bool; 63],
    /// By row + column.
    left: [bool; 63],
}

impl Flags {
    fn new(board: Board) -> Self {
        let n = usize::from(board.n());
        Self {
            n,
            down: [false; 32],
            right: [false; 63],
            left: [false; 63],
        }
    }

    fn is_free(&self, row: usize, column: usize) -> bool {
        !self.down[column] && !self.right[row + self.n - 1 - column] && !self.left[row + column]
    }

    fn set(&mut self, row: usize, column: usize, taken: bool) {
        self.down[column] = taken;
        self.right[row + self.n - 1 - column] = taken;
        self.left[row + column] = taken;
    }
}

/// Flags by recursion: "placement flags, recursive" of `001_86e98d93edfc3b6c.txt`.
pub fn placement_flags(board: Board, stop: &Stop<'_>) -> Option<Count> {
    let mut patience = Patience::new(stop);
    let solutions = fill(&mut Flags::new(board), 0, &mut patience)?;
    Some(patience.count(solutions))
}

fn fill(flags: &mut Flags, row: usize, patience: &mut Patience<'_>) -> Option<u64> {
    patience.visit(1)?;
    if row == flags.n {
        return Some(1);
    }
    let mut solutions = 0;
    for column in 0..flags.n {
        if flags.is_free(row, column) {
            flags.set(row, column, true);
            solutions += fill(flags, row + 1, patience)?;
            flags.set(row, column, false);
        }
    }
    Some(solutions)
}

/// Flags without recursion, the board itself being the stack: "placement flags, non-recursive" of
/// `001_86e98d93edfc3b6c.txt`.
pub fn placement_flags_loop(board: Board, stop: &Stop<'_>) -> Option<Count> {
    let mut flags = Flags::new(board);
    let mut patience = Patience::new(stop);
    // In each row the first column not tried yet: one more than that of the queen, if one stands.
    let mut next: Columns = [0; 32];
    let mut row = 0;
    let mut solutions = 0;
    patience.visit(1)?;
    loop {
        let tried = usize::from(next[row]);
        if tried > 0 {
            flags.set(row, tried - 1, false);
        }
        match (tried..flags.n).find(|&column| flags.is_free(row, column)) {
            Some(column) if row + 1 == flags.n => {
                // Complete: the queen is counted and taken up again at once.
                solutions += 1;
                patience.visit(1)?;
                flags.set(row, column, true);
                next[row] = after(column);
            }
            Some(column) => {
                patience.visit(1)?;
                flags.set(row, column, true);
                next[row] = after(column);
                row += 1;
                next[row] = 0;
            }
            None if row == 0 => return Some(patience.count(solutions)),
            None => row -= 1,
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // at most 32
fn after(column: usize) -> u8 {
    column as u8 + 1
}
