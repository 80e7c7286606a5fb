//! One solution of a board, however large, by minimising conflicts: local search among permutations.
//!
//! Sources: R. Sosič and J. Gu, "A polynomial time algorithm for the N-Queens problem" (1990),
//! figures 1 and 2, as `004_df925f861df725bd.txt` programs them ([`sweeps`]); the same authors,
//! "Efficient local search with conflict minimization: a case study of the n-queens problem" (1994)
//! ([`linear`]).
//!
//! Random numbers come from the caller: `random_below(k)` must answer a uniform one in `0..k`.

mod linear;
mod solvable;
mod sweeps;

pub use linear::{Placed, linear};
pub use solvable::is_solvable;
pub use sweeps::{Figure, Swept, sweeps};

#[cfg(test)]
mod tests {
    /// SplitMix64, a seeded stream of random numbers.
    pub(super) fn random_from(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (word ^ word >> 31) % below
        }
    }
}
