//! Solutions in lexicographic order: all of them, or the K-th.

use super::solution::Solution;
use common::{
    board::Board,
    compute::kernel::Kernel,
    count::{CountError, ProgressSink},
    rows,
};

/// Iterator over all solutions in lexicographic order of their columns.
#[derive(Clone, Debug)]
pub struct Solutions {
    board: Board,
    /// Columns of the placed queens.
    columns: Vec<u32>,
    /// Untried columns of each row down to the current one.
    free: Vec<u64>,
    /// Occupied columns, and diagonals by row + column and by row - column + N - 1.
    taken: [u64; 3],
}

impl Solutions {
    pub fn new(board: Board) -> Self {
        Self { board, columns: Vec::new(), free: vec![u64::from(board.full_row())], taken: [0; 3] }
    }

    /// Places a queen on a square, or removes it.
    fn flip(&mut self, row: usize, column: u32) {
        let n = usize::from(self.board.n());
        let column = column as usize;
        for (taken, line) in self.taken.iter_mut().zip([column, row + column, row + n - 1 - column])
        {
            *taken ^= 1 << line;
        }
    }

    fn free(&self, row: usize) -> u64 {
        let n = usize::from(self.board.n());
        let [columns, rising, falling] = self.taken;
        // Falling diagonals are numbered from the right, so a row's bits are reversed.
        let falling = (falling >> row).reverse_bits() >> (64 - n);
        u64::from(self.board.full_row()) & !(columns | rising >> row | falling)
    }
}

impl Iterator for Solutions {
    type Item = Solution;

    fn next(&mut self) -> Option<Solution> {
        let n = usize::from(self.board.n());
        loop {
            let free = self.free.last_mut()?;
            if *free == 0 {
                self.free.pop();
                if let Some(column) = self.columns.pop() {
                    self.flip(self.columns.len(), column);
                }
                continue;
            }
            let column = free.trailing_zeros();
            *free &= *free - 1;
            let row = self.columns.len();
            if row + 1 == n {
                let mut columns = self.columns.clone();
                columns.push(column);
                return Some(Solution::trusted(columns));
            }
            self.flip(row, column);
            self.columns.push(column);
            self.free.push(self.free(row + 1));
        }
    }
}

/// Returns the solution with this number in lexicographic order, from 0.
///
/// `None` if there are fewer. Earlier solutions are not listed: whole prefixes are counted and
/// skipped, and a first queen in the right half reuses the count of its mirror image.
///
/// # Errors
/// [`CountError::Cancelled`] if `progress` breaks.
pub fn nth(
    board: Board,
    number: u64,
    kernel: Kernel,
    progress: &dyn ProgressSink,
) -> Result<Option<Solution>, CountError> {
    let n = board.n();
    let mut remaining = number;
    let mut prefix = Vec::new();
    let mut first_row = Vec::new();
    while prefix.len() < usize::from(n) {
        let mut found = false;
        for column in 0..n {
            let mirror = first_row.get(usize::from(n - 1 - column));
            let count = match (prefix.is_empty(), mirror) {
                (true, Some(&count)) => count,
                _ => {
                    prefix.push(column);
                    let count = rows::completions(board, &prefix, kernel, progress);
                    prefix.pop();
                    count?
                }
            };
            if prefix.is_empty() {
                first_row.push(count);
            }
            if remaining < count {
                prefix.push(column);
                found = true;
                break;
            }
            remaining -= count;
        }
        if !found {
            return Ok(None);
        }
    }
    let columns = prefix.into_iter().map(u32::from).collect();
    Ok(Some(Solution::trusted(columns)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::{count::NoProgress, test_fixture::published};

    #[test]
    fn all_solutions_come_in_order() {
        for n in 1..=10 {
            let board = Board::new(n).unwrap();
            let all: Vec<_> = Solutions::new(board).collect();
            assert!(all.is_sorted_by(|a, b| a < b), "N = {n}");
            assert_eq!(all.len() as u128, published(n), "N = {n}");
            for solution in &all {
                Solution::new(solution.columns().to_vec()).unwrap();
            }
        }
    }

    #[test]
    fn the_kth_is_the_kth_of_the_list() {
        for n in 1..=9 {
            let board = Board::new(n).unwrap();
            let kth = |k| nth(board, k, Kernel::best(), &NoProgress).unwrap();
            let mut listed = 0;
            for (k, solution) in (0..).zip(Solutions::new(board)) {
                assert_eq!(kth(k), Some(solution), "N = {n}, K = {k}");
                listed = k + 1;
            }
            assert_eq!(kth(listed), None, "N = {n}");
        }
    }

    #[test]
    fn the_last_of_fourteen_is_the_first_mirrored() {
        let board = Board::new(14).unwrap();
        let kth = |k| nth(board, k, Kernel::best(), &NoProgress).unwrap().unwrap();
        assert_eq!(kth(0).images()[4], kth(365_595));
    }
}
