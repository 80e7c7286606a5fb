//! How long the units of a head take, estimated.

use super::division::Weighted;
use crate::board::Board;

/// Gives every head its share of the estimated time for the whole board.
pub(super) fn share(board: Board, heads: &mut [Weighted]) {
    let whole = 3.0e5 * 8.3f64.powi(i32::from(board.n()) - 16);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    let each = ((whole / heads.len() as f64) as u64).max(1);
    for head in heads {
        head.cost = each;
    }
}

/// Estimated microseconds for so many placements.
pub(super) fn of_placements(placed: usize) -> u64 {
    placed as u64 / 2000
}
