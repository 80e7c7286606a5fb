//! The pure domain of the queens cluster: boards, plans, counting methods and tallies.
//!
//! Nothing here opens a file or a socket, reads a clock or draws random numbers: whoever needs one of
//! those passes its result in. Threads are started for nothing but a count that was asked for on
//! several of them, and have ended when it returns.
//!
//! A board counted:
//!
//! ```
//! use common::{board::Board, count::*, method::Layout, plan::*};
//!
//! let plan = Plan::new(PlanSpec::new(Board::new(12)?, Layout::Frames))?;
//! let count = Counter::new(&plan, &Setup::best(1 << 30))?.count(0..plan.units(), &Unwatched)?;
//! assert_eq!(count, 14_200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod board;
pub mod boards;
pub mod canary;
pub mod choice;
pub mod count;
mod crew;
pub mod crews;
pub mod forecast;
pub mod frames;
pub mod kernel;
pub mod known;
pub mod method;
pub mod place;
pub mod plan;
pub mod rows;
pub mod run;
pub mod sample;
pub mod sealed;
mod setup;
mod simd;
pub mod symmetric;
pub mod sync;
pub mod tally;
pub mod textbook;
#[doc(hidden)]
pub mod truth;
