//! Permutations by swapping, cut short by the diagonals.

use super::patience::{Columns, Count, Patience, Stop};
use crate::board::Board;

/// A permutation grown by swapping unused columns into place, with an array for each direction of
/// diagonals: "swapped permutation with diagonal arrays" of `000_a1ee00c4f40ae057.txt`. No used
/// column is ever looked at.
pub fn swapped_permutation(board: Board, stop: &Stop<'_>) -> Option<Count> {
    let mut columns: Columns = [0; 32];
    for (slot, column) in columns.iter_mut().zip(0..board.n()) {
        *slot = column;
    }
    let n = usize::from(board.n());
    let mut search = Search {
        n,
        columns,
        rising: [false; 63],
        falling: [false; 63],
    };
    let mut patience = Patience::new(stop);
    let solutions = search.fill(0, &mut patience)?;
    Some(patience.count(solutions))
}

struct Search {
    n: usize,
    /// Up to the row in work the columns of the queens, from there on the unused columns.
    columns: Columns,
    /// By column + row.
    rising: [bool; 63],
    /// By column - row + N - 1.
    falling: [bool; 63],
}

impl Search {
    fn fill(&mut self, row: usize, patience: &mut Patience<'_>) -> Option<u64> {
        patience.visit(1)?;
        if row == self.n {
            return Some(1);
        }
        let mut solutions = 0;
        for from in row..self.n {
            let column = usize::from(self.columns[from]);
            let (rising, falling) = (column + row, column + self.n - 1 - row);
            if !self.rising[rising] && !self.falling[falling] {
                self.columns.swap(row, from);
                (self.rising[rising], self.falling[falling]) = (true, true);
                solutions += self.fill(row + 1, patience)?;
                (self.rising[rising], self.falling[falling]) = (false, false);
                self.columns.swap(row, from);
            }
        }
        Some(solutions)
    }
}
