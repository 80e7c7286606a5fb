//! Pure domain of the queens cluster: boards, plans, counting methods and tallies.
//!
//! Nothing here opens a file or a socket, reads a clock or generates random numbers; callers pass
//! these inputs in. Only a counter configured with several threads starts any; they end with it.
//!
//! Counting a board:
//!
//! ```
//! use common::{board::Board, count::*, method::Layout, plan::*};
//!
//! let plan = Plan::new(PlanSpec::new(Board::new(12)?, Layout::Frames))?;
//! let count = Counter::new(&plan, &CounterConfig::best(1 << 30))?.count(0..plan.units(), &NoProgress)?;
//! assert_eq!(count, 14_200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod board;
pub mod choice;
pub mod count;
pub mod crew_layout;
pub mod frames;
pub mod join;
pub mod method;
pub mod plan;
pub mod rows;
pub mod self_test;
mod simd;
#[doc(hidden)]
pub mod test_fixture;
#[cfg(test)]
mod tests;
pub mod text;

/// Configuration, kernel and threads of a count.
pub mod compute {
    pub(crate) mod crew;
    pub mod kernel;
    pub(crate) mod setup;
}

/// Estimates from a random sample of tasks: solutions, and the time of a run.
pub mod estimate {
    pub mod forecast;
    pub mod sample;
}

/// Identifiers, results and calls that workers and the coordinator exchange.
pub mod messages {
    pub mod hex;
    pub mod limits;
    pub mod recheck;
    pub mod run;
    pub mod sealed;
    pub mod sync;
}

/// Numbers of solutions: published counts, totals, symmetry classes.
pub mod solutions {
    pub mod published;
    pub mod symmetric;
    pub mod tally;
}
