//! Ledger of runs, scheduler, and checks of totals.
//!
//! Nothing here does I/O or reads a clock: time arrives as an argument, and decisions leave as values.

pub mod checks;
pub mod ledger;
mod scheduling;

pub use scheduling::*;
