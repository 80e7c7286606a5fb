//! Textbook solvers: checks of full boards, and backtracking queen by queen.

use common::board::Board;

use super::{Columns, Stop, VisitCounter};

/// Counts with "attack scan" of M. Hiroi's article (2022).
///
/// The document I. Suzuki's article also starts with this solver.
pub(super) fn attack_scan(board: Board, visits: &mut VisitCounter<'_>) -> Option<u64> {
    let is_open =
        |used: u32, above: &[u8], column| used >> column & 1 == 0 && !is_attacked(above, column);
    fill::<false>(board.n(), 0, &mut [0; 32], 0, &is_open, visits)
}

/// Counts with the brute force of I. Suzuki's article: N^N placements.
pub(super) fn brute_force(board: Board, visits: &mut VisitCounter<'_>) -> Option<u64> {
    fill::<true>(board.n(), 0, &mut [0; 32], 0, &|_, _, _| true, visits)
}

/// Counts with "permutations with a final check" of M. Hiroi's article (2022).
pub(super) fn all_permutations(board: Board, visits: &mut VisitCounter<'_>) -> Option<u64> {
    let is_open = |used: u32, _: &[u8], column: u8| used >> column & 1 == 0;
    fill::<true>(board.n(), 0, &mut [0; 32], 0, &is_open, visits)
}

/// Fills the rows from `row` on with open columns, and counts the solutions.
///
/// `is_open` takes the used columns, the columns of the queens above, and the column to test. Every board
/// counts as a visit, or only full boards if they are checked at the end.
fn fill<const CHECKED_AT_END: bool>(
    n: u8,
    row: u8,
    columns: &mut Columns,
    used: u32,
    is_open: &impl Fn(u32, &[u8], u8) -> bool,
    visits: &mut VisitCounter<'_>,
) -> Option<u64> {
    let above = usize::from(row);
    if row == n || !CHECKED_AT_END {
        visits.visit(1)?;
    }
    if row == n {
        let is_solution = !CHECKED_AT_END || no_line_is_shared(&columns[..above], used);
        return Some(u64::from(is_solution));
    }
    let mut solutions = 0;
    for column in 0..n {
        if is_open(used, &columns[..above], column) {
            columns[above] = column;
            solutions +=
                fill::<CHECKED_AT_END>(n, row + 1, columns, used | 1 << column, is_open, visits)?;
        }
    }
    Some(solutions)
}

/// Returns whether no two queens share a column or a diagonal.
fn no_line_is_shared(columns: &[u8], used: u32) -> bool {
    used.count_ones() as usize == columns.len()
        && columns.iter().enumerate().all(|(row, &column)| !is_attacked(&columns[..row], column))
}

/// Returns whether a queen above attacks `column` diagonally; nearest first.
fn is_attacked(above: &[u8], column: u8) -> bool {
    above.iter().rev().zip(1..).any(|(&at, distance)| at.abs_diff(column) == distance)
}

/// Occupied lines.
struct Flags {
    n: usize,
    down: [bool; 32],
    /// Index: row - column + N - 1.
    right: [bool; 63],
    /// Index: row + column.
    left: [bool; 63],
}

impl Flags {
    fn new(board: Board) -> Self {
        let n = usize::from(board.n());
        Self { n, down: [false; 32], right: [false; 63], left: [false; 63] }
    }

    fn is_free(&self, row: usize, column: usize) -> bool {
        !self.down[column] && self.has_free_diagonals(row, column)
    }

    fn has_free_diagonals(&self, row: usize, column: usize) -> bool {
        !self.right[row + self.n - 1 - column] && !self.left[row + column]
    }

    fn set(&mut self, row: usize, column: usize, taken: bool) {
        self.down[column] = taken;
        self.right[row + self.n - 1 - column] = taken;
        self.left[row + column] = taken;
    }
}

/// Counts with "placement flags, recursive" of I. Suzuki's article.
pub(super) fn placement_flags(board: Board, visits: &mut VisitCounter<'_>) -> Option<u64> {
    flag_row(&mut Flags::new(board), 0, visits)
}

fn flag_row(flags: &mut Flags, row: usize, visits: &mut VisitCounter<'_>) -> Option<u64> {
    visits.visit(1)?;
    if row == flags.n {
        return Some(1);
    }
    let mut solutions = 0;
    for column in 0..flags.n {
        if flags.is_free(row, column) {
            flags.set(row, column, true);
            solutions += flag_row(flags, row + 1, visits)?;
            flags.set(row, column, false);
        }
    }
    Some(solutions)
}

/// Counts with "placement flags, non-recursive" of I. Suzuki's article.
pub(super) fn placement_flags_loop(board: Board, visits: &mut VisitCounter<'_>) -> Option<u64> {
    let mut flags = Flags::new(board);
    // First untried column of each row: one more than that of its queen.
    let mut next: Columns = [0; 32];
    let mut row = 0;
    let mut solutions = 0;
    visits.visit(1)?;
    loop {
        let tried = usize::from(next[row]);
        if tried > 0 {
            flags.set(row, tried - 1, false);
        }
        match (tried..flags.n).find(|&column| flags.is_free(row, column)) {
            Some(column) => {
                visits.visit(1)?;
                flags.set(row, column, true);
                next[row] = after(column);
                if row + 1 == flags.n {
                    solutions += 1;
                } else {
                    row += 1;
                    next[row] = 0;
                }
            }
            None if row == 0 => return Some(solutions),
            None => row -= 1,
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // at most 32
fn after(column: usize) -> u8 {
    column as u8 + 1
}

/// Counts with "swapped permutation" of M. Hiroi's article (2022).
///
/// Marks diagonals in arrays and extends a permutation by swapping unused columns into place, so no
/// used column is tried.
pub(super) fn swapped_permutation(board: Board, visits: &mut VisitCounter<'_>) -> Option<u64> {
    let mut columns: Columns = [0; 32];
    for (slot, column) in columns.iter_mut().zip(0..board.n()) {
        *slot = column;
    }
    swap_row(&mut columns, &mut Flags::new(board), 0, visits)
}

/// Fills the rows from `row` on; `columns` holds the used columns, then the others.
fn swap_row(
    columns: &mut Columns,
    flags: &mut Flags,
    row: usize,
    visits: &mut VisitCounter<'_>,
) -> Option<u64> {
    visits.visit(1)?;
    if row == flags.n {
        return Some(1);
    }
    let mut solutions = 0;
    for from in row..flags.n {
        let column = usize::from(columns[from]);
        if flags.has_free_diagonals(row, column) {
            columns.swap(row, from);
            flags.set(row, column, true);
            solutions += swap_row(columns, flags, row + 1, visits)?;
            flags.set(row, column, false);
            columns.swap(row, from);
        }
    }
    Some(solutions)
}

/// Counts with "bitmask recursion" of M. Hiroi's article (2022).
pub(super) fn bitmask_recursion(board: Board, visits: &mut VisitCounter<'_>) -> Option<u64> {
    mask_row(u64::from(board.full_row()), 0, 0, visits)
}

fn mask_row(columns: u64, left: u64, right: u64, visits: &mut VisitCounter<'_>) -> Option<u64> {
    visits.visit(1)?;
    if columns == 0 {
        return Some(1);
    }
    let mut solutions = 0;
    let mut free = columns & !(left | right);
    while free != 0 {
        let queen = free & free.wrapping_neg();
        free ^= queen;
        solutions += mask_row(columns ^ queen, (left | queen) << 1, (right | queen) >> 1, visits)?;
    }
    Some(solutions)
}

/// Counts with the program of the textbook program with `next_permutation`: permutations in order.
pub(super) fn next_permutation(board: Board, visits: &mut VisitCounter<'_>) -> Option<u64> {
    let mut columns: Vec<u8> = (0..board.n()).collect();
    let mut solutions = 0;
    loop {
        visits.visit(1)?;
        solutions += u64::from(stands_on_free_squares(&columns));
        if !advance(&mut columns) {
            return Some(solutions);
        }
    }
}

/// Returns whether each queen stands on a square that no earlier queen attacks.
fn stands_on_free_squares(columns: &[u8]) -> bool {
    let n = columns.len();
    let mut attacked = [[false; 32]; 32];
    columns.iter().enumerate().all(|(row, &column)| {
        let column = usize::from(column);
        let free = !attacked[row][column];
        for (other, squares) in attacked[..n].iter_mut().enumerate() {
            let rows = other.abs_diff(row);
            squares[column] = true;
            for at in [column.checked_add(rows), column.checked_sub(rows)].into_iter().flatten() {
                if at < n {
                    squares[at] = true;
                }
            }
        }
        free
    })
}

/// Advances to the next permutation; false after the last.
fn advance(columns: &mut [u8]) -> bool {
    let Some(at) = columns.windows(2).rposition(|pair| pair[0] < pair[1]) else {
        return false;
    };
    let larger = columns.iter().rposition(|&column| column > columns[at]);
    columns.swap(at, larger.expect("the next element is larger"));
    columns[at + 1..].reverse();
    true
}

/// A list of columns, latest queen first, that shares its tail.
struct List<'a> {
    column: u8,
    rest: Option<&'a List<'a>>,
}

/// Counts the lists of the list comprehension in the textbook article with list comprehensions.
pub(super) fn list_comprehension(board: Board, visits: &mut VisitCounter<'_>) -> Option<u64> {
    let mut solutions = 0;
    extend(board.n(), board.n(), None, &mut |_| solutions += 1, visits)?;
    Some(solutions)
}

/// Passes solutions to `show` in the order of the textbook article with list comprehensions.
///
/// A solution is the list of columns, last placed queen first; earlier queens vary slowest, columns
/// ascend. Returns `None` if stopped.
pub fn list_comprehension_order(
    board: Board,
    stop: &Stop<'_>,
    show: &mut dyn FnMut(&[u8]),
) -> Option<()> {
    extend(board.n(), board.n(), None, show, &mut VisitCounter::new(stop))
}

/// Extends `queens` by `missing` safe columns in all ways.
fn extend(
    n: u8,
    missing: u8,
    queens: Option<&List<'_>>,
    show: &mut dyn FnMut(&[u8]),
    visits: &mut VisitCounter<'_>,
) -> Option<()> {
    if missing == 0 {
        show(&columns(queens).collect::<Vec<_>>());
        return Some(());
    }
    for column in 0..n {
        if !is_safe(column, queens, visits)? {
            continue;
        }
        extend(n, missing - 1, Some(&List { column, rest: queens }), show, visits)?;
    }
    Some(())
}

fn columns<'a>(list: Option<&'a List<'a>>) -> impl Iterator<Item = u8> + 'a {
    std::iter::successors(list, |list| list.rest).map(|list| list.column)
}

/// Compares `column` with the queens one by one, up to the first that attacks it.
fn is_safe(column: u8, queens: Option<&List<'_>>, visits: &mut VisitCounter<'_>) -> Option<bool> {
    let mut compared = 0;
    let safe = columns(queens).zip(1..).all(|(at, distance)| {
        compared += 1;
        at != column && at.abs_diff(column) != distance
    });
    visits.visit(compared)?;
    Some(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reversed_lists_ascend() {
        let mut all = Vec::new();
        let board = Board::new(8).unwrap();
        list_comprehension_order(board, &|| false, &mut |list| all.push(list.to_vec())).unwrap();
        all.iter_mut().for_each(|list| list.reverse());
        assert_eq!(all.len(), 92);
        assert!(all.is_sorted());
        assert_eq!(all[91], [7, 3, 0, 2, 5, 1, 6, 4]);
    }
}
