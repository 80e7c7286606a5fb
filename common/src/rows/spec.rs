//! What a plan of this method depends on beside the board.

use super::cost::BORDER;
use crate::board::Board;

/// The version of the rules by which boards are divided: any change of them raises it.
pub(crate) const PLAN_VERSION: u16 = 2;

/// About a thousand tasks, but none of less than 5 milliseconds, so that handing them out stays
/// cheap, and none of more than 10 seconds, unless that would make more than a million tasks.
pub(crate) fn default_task_cost(board: Board) -> u64 {
    let whole = BORDER.whole_microseconds(board);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // far from both ends
    let part = |tasks: f64| (whole / tasks) as u64;
    part(1e3).clamp(5_000, 10_000_000).max(part(1e6))
}
