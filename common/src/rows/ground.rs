//! What a kernel counts from: the rows still to fill and the states it starts in.

use crate::board::Board;

/// The rows that a search fills, in order, with what the queens placed outside the search attack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ground {
    rows: usize,
    allowed: [u32; ROWS],
    step: [u8; ROWS],
    /// The board row of each row to fill.
    row: [u8; ROWS],
}

/// Entries of the tables of a [`Ground`].
const ROWS: usize = Board::MAX as usize;

/// A state of the search at its first row. Bit c of a mask is column c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root {
    /// Columns without a queen.
    pub(super) columns: u32,
    /// Squares of the row attacked along diagonals on which the column grows with the row.
    pub(super) left: u32,
    /// Squares of the row attacked along diagonals on which the column falls with the row.
    pub(super) right: u32,
}

impl Ground {
    /// All rows but those of `filled`, with the diagonals of `fixed` taken out of each.
    pub(super) fn new(board: Board, filled: impl Fn(u8) -> bool, fixed: &[(u8, u8)]) -> Self {
        let mut ground = Self {
            rows: 0,
            allowed: [0; ROWS],
            step: [0; ROWS],
            row: [0; ROWS],
        };
        for row in (0..board.n()).filter(|&row| !filled(row)) {
            let attacked = fixed.iter().fold(0, |attacked, &(from, column)| {
                let far = row.abs_diff(from);
                attacked | along_left(column, far) | along_right(column, far)
            });
            let at = ground.rows;
            ground.allowed[at] = board.full_row() & !attacked;
            ground.row[at] = row;
            if at > 0 {
                ground.step[at - 1] = row - ground.row[at - 1];
            }
            ground.rows += 1;
        }
        ground
    }

    /// This ground without its first `count` rows.
    pub(super) fn skip(&self, count: usize) -> Self {
        let count = count.min(self.rows);
        let mut rest = self.clone();
        rest.allowed.rotate_left(count);
        rest.step.rotate_left(count);
        rest.row.rotate_left(count);
        rest.rows -= count;
        rest
    }

    /// How many rows there are to fill.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// For each row to fill, the columns that no queen placed outside the search attacks along a
    /// diagonal.
    pub(super) fn allowed(&self) -> &[u32] {
        &self.allowed[..self.rows]
    }

    /// For each row to fill, how many rows further down the board the next one lies.
    pub(super) fn steps(&self) -> &[u8] {
        &self.step[..self.rows]
    }

    /// For each row to fill, its place on the board.
    pub(super) fn places(&self) -> &[u8] {
        &self.row[..self.rows]
    }
}

impl Root {
    /// The state at board row `row` below `queens`, which take their columns too.
    pub(super) fn below(board: Board, row: u8, queens: impl Iterator<Item = (u8, u8)>) -> Self {
        let mut root = Self {
            columns: board.full_row(),
            left: 0,
            right: 0,
        };
        for (from, column) in queens {
            root.columns &= !(1 << column);
            root.left |= along_left(column, row - from);
            root.right |= along_right(column, row - from);
        }
        root
    }

    /// The same state with more columns taken.
    pub(super) fn without_columns(self, taken: [u8; 3]) -> Self {
        let taken = taken.into_iter().fold(0, |mask, column| mask | 1 << column);
        Self {
            columns: self.columns & !taken,
            ..self
        }
    }

    /// The state `step` rows on after a queen in `column`; `None` if that square is attacked or
    /// not among `allowed`.
    pub(super) fn place(self, column: u8, allowed: u32, step: u8) -> Option<Self> {
        let queen = 1 << column;
        if self.columns & !(self.left | self.right) & allowed & queen == 0 {
            return None;
        }
        Some(Self {
            columns: self.columns ^ queen,
            left: (self.left | queen)
                .checked_shl(u32::from(step))
                .unwrap_or(0),
            right: (self.right | queen)
                .checked_shr(u32::from(step))
                .unwrap_or(0),
        })
    }
}

/// The column that a diagonal through `column` meets `far` rows on, going to higher columns.
fn along_left(column: u8, far: u8) -> u32 {
    1u32.checked_shl(u32::from(column) + u32::from(far))
        .unwrap_or(0)
}

/// The column that a diagonal through `column` meets `far` rows on, going to lower columns.
fn along_right(column: u8, far: u8) -> u32 {
    column.checked_sub(far).map_or(0, |column| 1 << column)
}
