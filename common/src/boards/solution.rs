//! Queens that do not attack each other, and why others do.

use std::fmt;

/// One queen in each row and each column and no two on a diagonal: checked when it is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Solution {
    columns: Vec<u32>,
}

/// A square, both coordinates counted from 0 at the top left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Square {
    /// Its row.
    pub row: u32,
    /// Its column.
    pub column: u32,
}

/// What two queens share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The same row.
    Row,
    /// The same column.
    Column,
    /// Row + column is the same.
    Rising,
    /// Row - column is the same.
    Falling,
}

/// Why queens are no solution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Two queens attack each other.
    #[error("the queens in {first} and {second} attack each other along {line}")]
    Attack {
        /// The one further up.
        first: Square,
        /// The other.
        second: Square,
        /// What they share.
        line: Line,
    },
    /// No two attack each other, but there are too few.
    #[error(
        "no queens attack each other, but there are only {queens} queens on a board of {n} rows"
    )]
    TooFew {
        /// How many there are.
        queens: usize,
        /// How many there should be.
        n: u32,
    },
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

/// For each line of one kind the queen seen on it, if any.
struct Seen(Vec<u32>);

impl Seen {
    const NOBODY: u32 = u32::MAX;

    fn new(lines: usize) -> Self {
        Self(vec![Self::NOBODY; lines])
    }

    /// The queen that was seen on the line before this one.
    fn see(&mut self, line: u32, queen: u32) -> Option<u32> {
        let seen = &mut self.0[line as usize];
        if *seen == Self::NOBODY {
            *seen = queen;
            return None;
        }
        Some(*seen)
    }
}

impl Solution {
    /// The queens of row 0, 1, … in these columns, if none attacks another: linear time.
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

    /// Only for columns that were searched so that no queen attacks another.
    pub(super) fn trusted(columns: Vec<u32>) -> Self {
        debug_assert!(Self::new(columns.clone()).is_ok(), "{columns:?}");
        Self { columns }
    }

    /// N.
    pub fn n(&self) -> u32 {
        u32::try_from(self.columns.len()).expect("rows are counted with 32 bits")
    }

    /// The column of the queen of each row, from 0.
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// Whether a queen stands there.
    pub fn has(&self, row: u32, column: u32) -> bool {
        self.columns[row as usize] == column
    }
}

/// Whether no line has two queens: the same answer as [`check`]'s with a bit a line, for boards of
/// millions of rows.
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

/// The first queen, in this order, that attacks one before it.
pub(super) fn check(n: u32, queens: impl Iterator<Item = Square>) -> Result<(), Flaw> {
    let (side, diagonals) = (n as usize, (2 * n as usize).saturating_sub(1));
    let mut seen = [
        (Line::Row, Seen::new(side)),
        (Line::Column, Seen::new(side)),
        (Line::Rising, Seen::new(diagonals)),
        (Line::Falling, Seen::new(diagonals)),
    ];
    let mut before: Vec<Square> = Vec::with_capacity(side);
    for (number, second) in (0..).zip(queens) {
        let Square { row, column } = second;
        assert!(row < n && column < n, "{second} of a board of {n}");
        let lines = [row, column, row + column, row + n - 1 - column];
        for ((line, seen), at) in seen.iter_mut().zip(lines) {
            if let Some(queen) = seen.see(at, number) {
                let (first, line) = (before[queen as usize], *line);
                return Err(Flaw::Attack {
                    first,
                    second,
                    line,
                });
            }
        }
        before.push(second);
    }
    if before.len() < side {
        let queens = before.len();
        return Err(Flaw::TooFew { queens, n });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_permutation_of_six_is_judged_as_by_comparing_all_pairs() {
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

    #[test]
    fn the_attacking_pair_and_its_line_are_named() {
        for (columns, text) in [
            (
                vec![0, 0, 1, 2],
                "row 1, column 1 and row 2, column 1 attack each other along the column",
            ),
            (
                vec![0, 3, 2, 1],
                "row 2, column 4 and row 3, column 3 attack each other along a rising diagonal",
            ),
            (
                vec![2, 0, 1, 3],
                "row 2, column 1 and row 3, column 2 attack each other along a falling diagonal",
            ),
        ] {
            let flaw = Solution::new(columns).unwrap_err().to_string();
            assert!(flaw.contains(text), "{flaw}");
        }
    }
}
