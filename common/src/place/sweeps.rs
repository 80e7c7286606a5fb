//! Sweeps over all pairs of queens, exchanging columns wherever that leaves fewer conflicts.

use super::solvable::is_solvable;
use crate::boards::Solution;

/// Which of the two procedures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// One sweep over each random permutation.
    One,
    /// Sweeps go on as long as they exchange anything.
    Two,
}

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Sweeps made: the "tries" of the document.
    pub tries: u64,
    /// What the program takes for a solution; `None` if it gave up.
    pub columns: Option<Vec<u32>>,
}

impl Swept {
    /// What was found, if it is a solution indeed: see [`sweeps`].
    pub fn solution(self) -> Option<Solution> {
        Solution::new(self.columns?).ok()
    }
}

/// Searches with at most `limit` random permutations. The number of conflicts is that of pairs of
/// queens on one line, as in `004_df925f861df725bd.txt`; kept up to date by counters, so that a sweep
/// takes N² steps instead of N⁴.
///
/// `as_written` repeats a slip of the programs there: the column that queen i had before the inner
/// loop is put back, although an exchange has given it another since. From the first exchange of a row
/// on the board is no permutation any more, which costs most tries, and what is taken for a
/// solution in the end need not be one.
pub fn sweeps(
    n: u32,
    figure: Figure,
    as_written: bool,
    limit: u64,
    random_below: &mut dyn FnMut(u64) -> u64,
) -> Swept {
    let mut tries = 0;
    let limit = if is_solvable(n) { limit } else { 0 };
    for _ in 0..limit {
        let mut board = Board::shuffled(n, random_below);
        let mut conflicts = board.conflicts;
        loop {
            tries += 1;
            let exchanged = board.sweep(as_written, &mut conflicts);
            if figure == Figure::One || !exchanged || conflicts == 0 {
                break;
            }
        }
        if conflicts == 0 {
            let columns = Some(board.columns);
            return Swept { tries, columns };
        }
    }
    let columns = None;
    Swept { tries, columns }
}

/// One queen a row, and how many pairs of them share a line.
struct Board {
    columns: Vec<u32>,
    conflicts: u64,
    /// Queens by column, row + column, and row - column + N - 1.
    on_lines: [Vec<u32>; 3],
}

impl Board {
    fn shuffled(n: u32, random_below: &mut dyn FnMut(u64) -> u64) -> Self {
        let mut columns: Vec<u32> = (0..n).collect();
        for left in (2..=columns.len()).rev() {
            let chosen = random_below(left as u64);
            columns.swap(left - 1, usize::try_from(chosen).unwrap_or(0));
        }
        let side = columns.len();
        let mut board = Self {
            columns,
            conflicts: 0,
            on_lines: [vec![0; side], vec![0; 2 * side], vec![0; 2 * side]],
        };
        for row in 0..side {
            board.add(row, board.columns[row]);
        }
        board
    }

    fn lines(&self, row: usize, column: u32) -> [usize; 3] {
        let column = column as usize;
        [column, row + column, row + self.columns.len() - 1 - column]
    }

    fn add(&mut self, row: usize, column: u32) {
        for (lines, at) in self.lines(row, column).into_iter().enumerate() {
            let queens = &mut self.on_lines[lines][at];
            self.conflicts += u64::from(*queens);
            *queens += 1;
        }
    }

    /// Moves the queen of a row.
    fn set(&mut self, row: usize, column: u32) {
        for (lines, at) in self.lines(row, self.columns[row]).into_iter().enumerate() {
            let queens = &mut self.on_lines[lines][at];
            *queens -= 1;
            self.conflicts -= u64::from(*queens);
        }
        self.columns[row] = column;
        self.add(row, column);
    }

    /// Tries to exchange the columns of all pairs of queens; `conflicts` is what the program believes
    /// them to be. True if any pair was exchanged.
    fn sweep(&mut self, as_written: bool, conflicts: &mut u64) -> bool {
        let n = self.columns.len();
        let mut exchanged = false;
        for i in 0..n.saturating_sub(1) {
            let mut kept = self.columns[i];
            for j in i + 1..n {
                let other = self.columns[j];
                self.set(i, other);
                self.set(j, kept);
                if self.conflicts < *conflicts {
                    *conflicts = self.conflicts;
                    exchanged = true;
                    if !as_written {
                        kept = other;
                    }
                } else {
                    self.set(j, other);
                    self.set(i, kept);
                }
            }
        }
        exchanged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::tests::random_from;

    #[test]
    fn both_figures_find_solutions() {
        for n in [1, 4, 5, 6, 7, 8, 10, 12] {
            for figure in [Figure::One, Figure::Two] {
                let swept = sweeps(n, figure, false, 1_000_000, &mut random_from(n.into()));
                let solution = swept.solution().expect("a million permutations suffice");
                assert_eq!(solution.n(), n, "{figure:?}");
            }
        }
        for n in [0, 2, 3] {
            let swept = sweeps(n, Figure::Two, false, 10, &mut random_from(1));
            assert_eq!(swept.solution(), None);
        }
    }

    #[test]
    fn conflicts_are_counted_in_pairs_whatever_moves() {
        let mut random = random_from(3);
        let mut board = Board::shuffled(9, &mut random);
        for _ in 0..500 {
            let (row, column) = (random(9), random(9));
            board.set(
                usize::try_from(row).unwrap(),
                u32::try_from(column).unwrap(),
            );
            let queens = &board.columns;
            let attack = |i: usize, j: usize| {
                queens[i] == queens[j] || queens[i].abs_diff(queens[j]) as usize == j - i
            };
            let pairs = (0..9).flat_map(|j| (0..j).map(move |i| (i, j)));
            let counted = pairs.filter(|&(i, j)| attack(i, j)).count();
            assert_eq!(board.conflicts, counted as u64, "{queens:?}");
        }
    }

    /// The answer to the question at the end of the document: "what was different?"
    #[test]
    fn the_slip_costs_tries_and_loses_queens() {
        let (mut written, mut mended, mut wrong) = (0, 0, 0);
        for seed in 0..40 {
            let search = |as_written| {
                sweeps(
                    12,
                    Figure::Two,
                    as_written,
                    1_000_000,
                    &mut random_from(seed),
                )
            };
            let (slip, sound) = (search(true), search(false));
            written += slip.tries;
            mended += sound.tries;
            wrong += u32::from(slip.solution().is_none());
            assert!(sound.solution().is_some());
        }
        assert!(written > 5 * mended, "{written} tries and {mended}");
        assert!(
            wrong > 0,
            "some boards found with the slip are no solutions"
        );
    }
}
