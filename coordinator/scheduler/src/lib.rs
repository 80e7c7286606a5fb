//! Ledger of runs, scheduler, and checks of totals.
//!
//! Nothing here does I/O or reads a clock: time arrives as an argument, and decisions leave as values.

pub mod checks;
mod choosing;
mod clock;
mod config;
mod fleet;
mod judging;
pub mod ledger;
mod run;
mod scheduling;
mod snapshot;
mod status;

pub use choosing::{Recount, RecountPurpose, Verifying};
pub use clock::Millis;
pub use config::{Config, DEFAULT_RECOUNTS};
pub use fleet::{REFEREE, RefereeStatus};
pub use scheduling::*;
pub use snapshot::Snapshot;
pub use status::*;
