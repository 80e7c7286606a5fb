//! Solutions, and reasons why queens are not a solution.

use std::fmt;

/// Queens, one per row and column, none attacked; checked at construction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Solution {
    columns: Vec<u32>,
}

/// A square, counted from 0 at the top left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Square {
    pub row: u32,
    pub column: u32,
}

/// A line shared by two queens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Row,
    Column,
    /// Equal row + column.
    Rising,
    /// Equal row - column.
    Falling,
}

/// Reason why queens are not a solution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    #[error("the queens in {first} and {second} attack each other along {line}")]
    Attack {
        /// The earlier queen, by row or by position in a list.
        first: Square,
        second: Square,
        line: Line,
    },
    /// No attacks, but too few queens.
    #[error(
        "no queens attack each other, but there are only {queens} queens on a board of {n} rows"
    )]
    TooFew { queens: usize, n: u32 },
}

impl fmt::Display for Square {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {}, column {}", self.row + 1, self.column + 1)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Row => "the row",
            Self::Column => "the column",
            Self::Rising => "a rising diagonal",
            Self::Falling => "a falling diagonal",
        })
    }
}

impl Solution {
    /// Creates a solution from the columns of rows 0, 1, …; checks it in linear time.
    ///
    /// # Panics
    /// If a column is not below the number of rows.
    pub fn new(columns: Vec<u32>) -> Result<Self, Flaw> {
        let n = u32::try_from(columns.len()).expect("rows are counted with 32 bits");
        if !is_safe(n, &columns) {
            let rows = (0..n).zip(&columns);
            let squares = rows.map(|(row, &column)| Square { row, column });
            check(n, squares)?;
        }
        Ok(Self { columns })
    }

    /// Creates a solution without the check, for columns from a search.
    pub(super) fn trusted(columns: Vec<u32>) -> Self {
        debug_assert!(Self::new(columns.clone()).is_ok(), "{columns:?}");
        Self { columns }
    }

    pub fn n(&self) -> u32 {
        u32::try_from(self.columns.len()).expect("rows are counted with 32 bits")
    }

    /// Returns the column of each row's queen, from 0.
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// Returns whether a queen stands on this square.
    pub fn has(&self, row: u32, column: u32) -> bool {
        self.columns[row as usize] == column
    }
}

/// Returns whether no line has two queens, with one bit per line for huge boards.
fn is_safe(n: u32, columns: &[u32]) -> bool {
    let words = |lines: usize| vec![0u64; lines.div_ceil(64)];
    let diagonals = 2 * columns.len();
    let mut seen = [words(columns.len()), words(diagonals), words(diagonals)];
    (0..n).zip(columns).all(|(row, &column)| {
        assert!(column < n, "column {column} of a board of {n}");
        let lines = [column, row + column, row + n - 1 - column];
        seen.iter_mut().zip(lines).all(|(seen, line)| {
            let (word, bit) = (&mut seen[line as usize / 64], 1 << (line % 64));
            let free = *word & bit == 0;
            *word |= bit;
            free
        })
    })
}

/// Checks queens in this order; fails at the first that attacks an earlier one.
pub(super) fn check(n: u32, queens: impl Iterator<Item = Square>) -> Result<(), Flaw> {
    let (side, diagonals) = (n as usize, 2 * n as usize);
    // The queen on each line of each kind.
    let mut seen = [
        (Line::Row, vec![None; side]),
        (Line::Column, vec![None; side]),
        (Line::Rising, vec![None; diagonals]),
        (Line::Falling, vec![None; diagonals]),
    ];
    let mut placed = 0;
    for second in queens {
        let Square { row, column } = second;
        assert!(row < n && column < n, "{second} of a board of {n}");
        let lines = [row, column, row + column, row + n - 1 - column];
        for ((line, seen), at) in seen.iter_mut().zip(lines) {
            if let Some(first) = seen[at as usize].replace(second) {
                return Err(Flaw::Attack { first, second, line: *line });
            }
        }
        placed += 1;
    }
    if placed < side {
        return Err(Flaw::TooFew { queens: placed, n });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_queens_are_checked_like_all_their_pairs() {
        let mut columns: Vec<u32> = vec![0; 6];
        let mut solutions = 0;
        for code in 0..6u32.pow(6) {
            for (place, column) in (0..).zip(&mut columns) {
                *column = code / 6u32.pow(place) % 6;
            }
            let pair = |i: usize, j: usize| {
                let (a, b) = (columns[i], columns[j]);
                a == b || a.abs_diff(b) as usize == j - i
            };
            let attacked = (0..6).any(|j| (0..j).any(|i| pair(i, j)));
            let judged = Solution::new(columns.clone());
            assert_eq!(judged.is_err(), attacked, "{columns:?}");
            if let Err(Flaw::Attack { first, second, .. }) = judged {
                assert!(pair(first.row as usize, second.row as usize), "{columns:?}");
            }
            solutions += u32::from(!attacked);
        }
        assert_eq!(solutions, 4);
    }
}
