//! Solutions that a rotation maps to themselves, counted by separate enumerations.
//!
//! With all(N) these counts give the number of classes (Burnside): fundamental = (all + half + 2 quarter) / 8.
//!
//! Both enumerations place a whole orbit of queens at once and keep the occupied diagonals in masks
//! that do not move with the row: bit `row + column` of `antis`, bit `column - row + N - 1` of
//! `mains`. A half turn maps bit s of either mask to bit 2N - 2 - s, so the masks stay palindromes,
//! and bit N - 1 (a diagonal through the center, where a queen would attack its own image) is
//! never free.

use std::ops::ControlFlow;

use crate::{
    board::Board,
    compute::setup::{CountError, go_on},
};

/// Occupied lines; `columns` is a palindrome of N bits.
#[derive(Clone, Copy)]
struct Lines {
    columns: u64,
    antis: u64,
    mains: u64,
}

/// Returns half(N), the number of solutions fixed by a half turn (OEIS A032522).
///
/// Sums all branches, each of which calls `go_on` every few milliseconds.
pub fn half_turn(board: Board, go_on: &dyn Fn() -> ControlFlow<()>) -> Result<u64, CountError> {
    (0..half_turn_branches(board)).try_fold(0u64, |sum, branch| {
        sum.checked_add(half_turn_branch(board, branch, go_on)?).ok_or(CountError::Overflow)
    })
}

pub fn half_turn_branches(board: Board) -> u64 {
    u64::from(board.n()).pow(2)
}

/// Counts the solutions of a branch of [`half_turn`].
///
/// The queens of the first two rows are in columns `branch / N` and `branch % N`. Reflection pairs
/// the branches, so counts of the left half are doubled and the right half is skipped.
///
/// # Panics
/// If `branch` is not below [`half_turn_branches`].
pub fn half_turn_branch(
    board: Board,
    branch: u64,
    go_on: &dyn Fn() -> ControlFlow<()>,
) -> Result<u64, CountError> {
    let branches = half_turn_branches(board);
    assert!(branch < branches, "branch {branch} of {branches}");
    let n = u64::from(board.n());
    let rows = board.n() / 2;
    let (first, second) = (branch / n, branch % n);
    let start = Lines::of_center(board);
    match rows {
        // N = 1: the only queen stands in the center.
        0 => Ok(1),
        // N = 2, 3: there is only one row to fill, so both columns are that of its queen.
        1 if first == second => Ok(u64::from(start.place(board, 0, first).is_some())),
        1 => Ok(0),
        _ if 2 * first >= n => Ok(0),
        _ => {
            let placed = start.place(board, 0, first);
            let placed = placed.and_then(|lines| lines.place(board, 1, second));
            let Some(lines) = placed else { return Ok(0) };
            let mut walk = HalfWalk { board, go_on, until_call: NODES_PER_CALL };
            walk.rows_from(2, rows, lines)?.checked_mul(2).ok_or(CountError::Overflow)
        }
    }
}

/// Nodes between two calls of `go_on`: some milliseconds.
const NODES_PER_CALL: u32 = 1 << 20;

struct HalfWalk<'a> {
    board: Board,
    go_on: &'a dyn Fn() -> ControlFlow<()>,
    until_call: u32,
}

impl HalfWalk<'_> {
    /// Counts the ways to place the queens of rows `row..rows` and their images.
    fn rows_from(&mut self, row: u8, rows: u8, lines: Lines) -> Result<u64, CountError> {
        if row == rows {
            return Ok(1);
        }
        let mut free = lines.free(self.board, row);
        if row + 1 == rows {
            return Ok(u64::from(free.count_ones()));
        }
        self.until_call -= 1;
        if self.until_call == 0 {
            self.until_call = NODES_PER_CALL;
            go_on((self.go_on)())?;
        }
        let mut solutions = 0u64;
        while free != 0 {
            let column = free.trailing_zeros();
            free &= free - 1;
            let next = lines.with(self.board, row, column);
            solutions += self.rows_from(row + 1, rows, next)?;
        }
        Ok(solutions)
    }
}

impl Lines {
    /// Occupies the center diagonals, and for odd N the center column.
    fn of_center(board: Board) -> Self {
        let n = u32::from(board.n());
        let columns = if n.is_multiple_of(2) { 0 } else { 1 << (n / 2) };
        Self { columns, antis: 1 << (n - 1), mains: 1 << (n - 1) }
    }

    fn free(self, board: Board, row: u8) -> u64 {
        let n = board.n();
        let taken = self.columns | self.antis >> row | self.mains >> (n - 1 - row);
        u64::from(board.full_row()) & !taken
    }

    /// Returns the lines after placing a queen and its image under the half turn.
    fn with(self, board: Board, row: u8, column: u32) -> Self {
        let (last, row) = (u32::from(board.n()) - 1, u32::from(row));
        let (anti, main) = (row + column, column + last - row);
        Self {
            columns: self.columns | 1 << column | 1 << (last - column),
            antis: self.antis | 1 << anti | 1 << (2 * last - anti),
            mains: self.mains | 1 << main | 1 << (2 * last - main),
        }
    }

    fn place(self, board: Board, row: u8, column: u64) -> Option<Self> {
        let column = u32::try_from(column).ok()?;
        (self.free(board, row) >> column & 1 == 1).then(|| self.with(board, row, column))
    }
}

/// Returns quarter(N), the number of solutions fixed by a quarter turn (A033148).
///
/// An orbit of four queens fills two rows and their images, so N is 4k or 4k + 1. A quarter turn
/// maps antidiagonal s to main diagonal s, so one mask holds both.
pub fn quarter_turn(board: Board) -> u64 {
    let n = u32::from(board.n());
    match n % 4 {
        0 => quarter_walk(board, 0, 1 << (n - 1)),
        1 => quarter_walk(board, 1 << (n / 2), 1 << (n - 1)),
        _ => 0,
    }
}

/// Counts the ways to fill the remaining rows.
///
/// `lines`: filled rows, which are also the filled columns; bit s of `diagonals`: antidiagonal s
/// and main diagonal s.
fn quarter_walk(board: Board, lines: u64, diagonals: u64) -> u64 {
    let (last, full) = (u32::from(board.n()) - 1, u64::from(board.full_row()));
    if lines == full {
        return 1;
    }
    let row = (!lines).trailing_zeros();
    let taken = lines | 1 << row | 1 << (last - row) | diagonals >> row | diagonals >> (last - row);
    let mut free = full & !taken;
    let mut solutions = 0;
    while free != 0 {
        let column = free.trailing_zeros();
        free &= free - 1;
        let (anti, main) = (row + column, column + last - row);
        let lines = lines | 1 << row | 1 << column | 1 << (last - row) | 1 << (last - column);
        let taken = 1 << anti | 1 << main | 1 << (2 * last - anti) | 1 << (2 * last - main);
        solutions += quarter_walk(board, lines, diagonals | taken);
    }
    solutions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solutions::published::published_counts;

    #[test]
    fn half_turn_is_exact_and_stops_on_request() {
        for n in 1..=22 {
            let board = Board::new(n).unwrap();
            let known = published_counts(board).unwrap().half_turn();
            assert_eq!(half_turn(board, &|| ControlFlow::Continue(())), Ok(known), "N = {n}");
        }
        let board = Board::new(26).unwrap();
        let stop = || ControlFlow::Break(());
        assert_eq!(half_turn(board, &stop), Err(CountError::Cancelled));
    }

    #[test]
    fn quarter_turn_is_exact() {
        for n in 1..=27 {
            let board = Board::new(n).unwrap();
            assert_eq!(
                quarter_turn(board),
                published_counts(board).unwrap().quarter_turn(),
                "N = {n}"
            );
        }
        assert_eq!(quarter_turn(Board::new(28).unwrap()), 32_896);
        assert_eq!(quarter_turn(Board::new(29).unwrap()), 43_776);
    }
}
