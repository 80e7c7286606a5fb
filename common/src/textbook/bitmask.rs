//! Columns and diagonals as bits, shifted from row to row.

use super::patience::{Count, Patience, Stop};
use crate::board::Board;

/// Unused columns and attacked diagonals as masks: "bitmask recursion" of
/// `000_a1ee00c4f40ae057.txt`.
///
/// ```
/// use common::{board::Board, textbook::bitmask_recursion};
///
/// let count = bitmask_recursion(Board::new(8)?, &|| false).expect("nobody stops it");
/// assert_eq!(count.solutions, 92);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bitmask_recursion(board: Board, stop: &Stop<'_>) -> Option<Count> {
    let mut patience = Patience::new(stop);
    let solutions = fill(u64::from(board.full_row()), 0, 0, &mut patience)?;
    Some(patience.count(solutions))
}

fn fill(columns: u64, left: u64, right: u64, patience: &mut Patience<'_>) -> Option<u64> {
    patience.visit(1)?;
    if columns == 0 {
        return Some(1);
    }
    let mut solutions = 0;
    let mut free = columns & !(left | right);
    while free != 0 {
        let queen = free & free.wrapping_neg();
        free ^= queen;
        solutions += fill(
            columns ^ queen,
            (left | queen) << 1,
            (right | queen) >> 1,
            patience,
        )?;
    }
    Some(solutions)
}
