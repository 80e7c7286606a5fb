//! Which boards have a solution.

/// Whether a board of this side has a solution: all but 2 and 3 have.
pub const fn is_solvable(n: u32) -> bool {
    !matches!(n, 0 | 2 | 3)
}
