//! One solution of any board by local search among permutations (min-conflicts).
//!
//! Sources: R. Sosič and J. Gu, "A polynomial time algorithm for the N-Queens problem" (1990),
//! figures 1 and 2, as the textbook article with list comprehensions implements them ([`sweeps`]); the
//! same authors, "Efficient local search with conflict minimization: a case study of the n-queens problem" (1994)
//! ([`linear`]).
//!
//! Random numbers come from the caller: `random_below(k)` returns a uniform one in `0..k`.

use crate::boards::Solution;

/// Returns whether a board of `n` rows has a solution; 0, 2 and 3 have none.
pub const fn is_solvable(n: u32) -> bool {
    !matches!(n, 0 | 2 | 3)
}

/// A solution and the effort of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub solution: Solution,
    /// Columns tried while most queens were placed without a conflict.
    pub samples: u64,
    /// Pairs of queens tried while the other conflicts were removed.
    pub pairs: u64,
    pub starts: u64,
}

/// Maximum average tries per queen before the others are placed with conflicts.
///
/// Sosič and Gu measured that 3.08 N tries suffice for all but some tens of queens.
const SAMPLES: f64 = 3.08;

/// Returns the maximum pairs tried per queen before a restart.
fn max_pairs(n: u32) -> u64 {
    u64::from(n).saturating_mul(8).min(7000)
}

/// Returns a solution for `n` rows in linear time, or `None` if there is none.
///
/// Uses 8 bytes per row.
///
/// All but the last queens are placed without conflicts: for each queen, random unused columns are
/// tried until one has free diagonals. The last queens are placed at random; then each attacked one
/// swaps columns with random other queens until neither is attacked.
///
/// ```
/// let mut state = 1_u64;
/// let mut random_below = |below: u64| {
///     state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
///     (state >> 33) % below
/// };
/// let placed = textbook::local_search::linear(1_000, &mut random_below).expect("N = 1000 is solvable");
/// assert_eq!(placed.solution.n(), 1_000);
/// assert!(textbook::local_search::linear(3, &mut random_below).is_none());
/// ```
pub fn linear(n: u32, random_below: &mut dyn FnMut(u64) -> u64) -> Option<Placed> {
    if !is_solvable(n) {
        return None;
    }
    let (mut samples, mut pairs, mut starts) = (0, 0, 0);
    loop {
        starts += 1;
        let mut search = Search::new(n);
        let safe = search.place_safely(&mut samples, random_below);
        search.place_rest(safe, random_below);
        if search.repair(safe, &mut pairs, random_below) {
            drop((search.rising, search.falling));
            let solution =
                Solution::new(search.columns).expect("the counters of all diagonals are 1 at most");
            return Some(Placed { solution, samples, pairs, starts });
        }
    }
}

/// Returns the number of queens placed without regard to conflicts.
fn rest(n: u32) -> u32 {
    match n {
        0..10 => n,
        10..100 => 10,
        100..1_000 => 30,
        1_000..10_000 => 50,
        10_000..100_000 => 80,
        _ => 100,
    }
}

struct Search {
    n: u32,
    columns: Vec<u32>,
    /// Queens by row + column, and by row - column + N - 1.
    ///
    /// Each is at most 1 plus the queens placed with conflicts (about 100) or swapped with these.
    rising: Vec<u8>,
    falling: Vec<u8>,
}

impl Search {
    fn new(n: u32) -> Self {
        Self {
            n,
            columns: (0..n).collect(),
            rising: vec![0; 2 * n as usize],
            falling: vec![0; 2 * n as usize],
        }
    }

    fn lines(&self, row: u32, column: u32) -> (usize, usize) {
        ((row + column) as usize, (row + self.n - 1 - column) as usize)
    }

    fn is_free(&self, row: u32, column: u32) -> bool {
        let (rising, falling) = self.lines(row, column);
        self.rising[rising] == 0 && self.falling[falling] == 0
    }

    /// Adds `change` to the counters of the diagonals of a row's queen.
    fn count(&mut self, row: u32, change: i8) {
        let (rising, falling) = self.lines(row, self.columns[row as usize]);
        for queens in [&mut self.rising[rising], &mut self.falling[falling]] {
            *queens = queens.checked_add_signed(change).expect("a line has few queens");
        }
    }

    /// Places queens in the first rows without attacks, and returns how many.
    fn place_safely(&mut self, samples: &mut u64, random_below: &mut dyn FnMut(u64) -> u64) -> u32 {
        let wanted = self.n - rest(self.n);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
        let mut remaining = (SAMPLES * f64::from(self.n)) as u64;
        for row in 0..wanted {
            loop {
                if remaining == 0 {
                    return row;
                }
                remaining -= 1;
                *samples += 1;
                let other = row + below(self.n - row, random_below);
                if self.is_free(row, self.columns[other as usize]) {
                    self.columns.swap(row as usize, other as usize);
                    self.count(row, 1);
                    break;
                }
            }
        }
        wanted
    }

    fn place_rest(&mut self, safe: u32, random_below: &mut dyn FnMut(u64) -> u64) {
        for row in safe..self.n {
            let other = row + below(self.n - row, random_below);
            self.columns.swap(row as usize, other as usize);
            self.count(row, 1);
        }
    }

    /// Removes the conflicts of the rows from `safe` on; false if this failed.
    fn repair(
        &mut self,
        safe: u32,
        pairs: &mut u64,
        random_below: &mut dyn FnMut(u64) -> u64,
    ) -> bool {
        for row in safe..self.n {
            let mut tried = 0;
            while self.is_attacked(row) {
                if tried == max_pairs(self.n) {
                    return false;
                }
                tried += 1;
                *pairs += 1;
                let other = below(self.n, random_below);
                if other != row {
                    self.swap_if_safe(row, other);
                }
            }
        }
        true
    }

    fn is_attacked(&self, row: u32) -> bool {
        let (rising, falling) = self.lines(row, self.columns[row as usize]);
        self.rising[rising] > 1 || self.falling[falling] > 1
    }

    /// Swaps the columns of two queens if neither is attacked afterwards.
    fn swap_if_safe(&mut self, row: u32, other: u32) {
        let rows = [row, other];
        let swap = |search: &mut Self| {
            rows.iter().for_each(|&row| search.count(row, -1));
            search.columns.swap(row as usize, other as usize);
            rows.iter().for_each(|&row| search.count(row, 1));
        };
        swap(self);
        if rows.iter().any(|&row| self.is_attacked(row)) {
            swap(self);
        }
    }
}

fn below(bound: u32, random_below: &mut dyn FnMut(u64) -> u64) -> u32 {
    u32::try_from(random_below(u64::from(bound))).expect("the number is below the bound")
}

/// Procedure of the 1990 paper, by its figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// One sweep per random permutation.
    One,
    /// Sweeps of a permutation until one swaps nothing.
    Two,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Number of sweeps: the "tries" of the textbook article with list comprehensions.
    pub tries: u64,
    /// Result of the search; `None` if it gave up.
    pub columns: Option<Vec<u32>>,
}

impl Swept {
    /// Returns the result if it is really a solution; see [`sweeps`].
    pub fn solution(self) -> Option<Solution> {
        Solution::new(self.columns?).ok()
    }
}

/// Searches with at most `limit` random permutations.
///
/// Conflicts are pairs of queens on a line, as in the textbook article with list comprehensions, but
/// counters keep
/// their number up to date, so that a sweep takes N² steps instead of N⁴.
///
/// `as_written` reproduces a bug of the programs there: they restore the column that queen i had
/// before the inner loop, although a swap has changed it. After the first swap of a row, the board
/// may not be a permutation. This wastes most tries, and the result may not be a solution.
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
        let mut board = Placement::shuffled(n, random_below);
        let mut conflicts = board.conflicts;
        loop {
            tries += 1;
            let exchanged = board.sweep(as_written, &mut conflicts);
            if figure == Figure::One || !exchanged || conflicts == 0 {
                break;
            }
        }
        if conflicts == 0 {
            return Swept { tries, columns: Some(board.columns) };
        }
    }
    Swept { tries, columns: None }
}

/// One queen per row, and the number of pairs on a line.
struct Placement {
    columns: Vec<u32>,
    conflicts: u64,
    /// Queens by column, row + column, and row - column + N - 1.
    on_lines: [Vec<u32>; 3],
}

impl Placement {
    fn shuffled(n: u32, random_below: &mut dyn FnMut(u64) -> u64) -> Self {
        let mut columns: Vec<u32> = (0..n).collect();
        for remaining in (2..=columns.len()).rev() {
            let chosen = random_below(remaining as u64);
            columns.swap(remaining - 1, usize::try_from(chosen).unwrap_or(0));
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

    /// Tries to swap all pairs; returns whether any was swapped.
    ///
    /// `conflicts` is the count after the last swap; with `as_written`, the board's may differ.
    fn sweep(&mut self, as_written: bool, conflicts: &mut u64) -> bool {
        let n = self.columns.len();
        let mut exchanged = false;
        for i in 0..n.saturating_sub(1) {
            let mut saved = self.columns[i];
            for j in i + 1..n {
                let other = self.columns[j];
                self.set(i, other);
                self.set(j, saved);
                if self.conflicts < *conflicts {
                    *conflicts = self.conflicts;
                    exchanged = true;
                    if !as_written {
                        saved = other;
                    }
                } else {
                    self.set(j, other);
                    self.set(i, saved);
                }
            }
        }
        exchanged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::test_fixture::random_from;

    #[test]
    fn finds_a_solution_of_each_solvable_board() {
        for n in (0..=60).chain([99, 100, 101, 999, 1_000, 10_000, 100_000]) {
            for seed in 0..3 {
                // `Solution` checks the queens.
                let placed = linear(n, &mut random_from(seed));
                assert_eq!(placed.is_some(), !matches!(n, 0 | 2 | 3), "N = {n}");
                if let Some(placed) = placed {
                    assert_eq!(placed.solution.n(), n);
                }
            }
        }
    }

    #[test]
    fn solutions_depend_on_the_seed_alone() {
        let found = |seed| linear(200, &mut random_from(seed)).unwrap();
        assert_eq!(found(1), found(1));
        assert_ne!(found(1).solution, found(2).solution);
    }

    #[test]
    fn the_work_is_linear_in_the_side() {
        for n in [10_000, 100_000, 400_000] {
            let placed = linear(n, &mut random_from(5)).unwrap();
            assert_eq!(placed.starts, 1, "N = {n}");
            assert!(placed.samples <= 4 * u64::from(n), "{placed:?}");
            assert!(placed.pairs <= 400_000, "{}", placed.pairs);
        }
    }

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
    fn conflicts_are_counted_in_pairs_after_every_move() {
        let mut random = random_from(3);
        let mut board = Placement::shuffled(9, &mut random);
        for _ in 0..500 {
            let (row, column) = (random(9), random(9));
            board.set(usize::try_from(row).unwrap(), u32::try_from(column).unwrap());
            let queens = &board.columns;
            let attack = |i: usize, j: usize| {
                queens[i] == queens[j] || queens[i].abs_diff(queens[j]) as usize == j - i
            };
            let pairs = (0..9).flat_map(|j| (0..j).map(move |i| (i, j)));
            let counted = pairs.filter(|&(i, j)| attack(i, j)).count();
            assert_eq!(board.conflicts, counted as u64, "{queens:?}");
        }
    }

    /// Answers the last question of the textbook article with list comprehensions: "what was different?"
    #[test]
    fn the_bug_costs_tries_and_loses_solutions() {
        let (mut written, mut fixed, mut wrong) = (0, 0, 0);
        for seed in 0..40 {
            let search =
                |as_written| sweeps(12, Figure::Two, as_written, 1_000_000, &mut random_from(seed));
            let (flawed, sound) = (search(true), search(false));
            written += flawed.tries;
            fixed += sound.tries;
            wrong += u32::from(flawed.solution().is_none());
            assert!(sound.solution().is_some());
        }
        assert!(written > 5 * fixed, "{written} tries and {fixed}");
        assert!(wrong > 0, "some boards found with the bug are not solutions");
    }
}
