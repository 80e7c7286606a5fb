//! Method `rows`: backtracking over bitmasks from a prefix of placed queens.

mod border;
mod classes;
mod cost;
mod counter;
mod division;
mod ground;
mod kernel;
mod prefix;
mod stream;

#[cfg(test)]
mod tests;

pub use classes::classes;
pub use counter::Counter;
pub(crate) use counter::memory_bytes;
pub use division::Division;
pub use prefix::completions;

use crate::board::Board;

pub(crate) const PLAN_VERSION: u16 = 2;

/// About a thousand tasks, but none of less than 5 milliseconds, so that handing them out stays
/// cheap, and none of more than 10 seconds, unless that would make more than a million tasks.
pub(crate) fn default_task_cost(board: Board) -> u64 {
    let whole = cost::BORDER.whole_microseconds(board);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // far from both ends
    let part = |tasks: f64| (whole / tasks) as u64;
    part(1e3).clamp(5_000, 10_000_000).max(part(1e6))
}
