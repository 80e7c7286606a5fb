//! Ledger of runs, scheduler, and checks of totals.
//!
//! Nothing here does I/O or reads a clock: time arrives as an argument, and decisions leave as values.

pub mod checks;
mod clock;
mod fleet;
pub mod ledger;
mod run;
mod scheduling;

pub use clock::Millis;
pub use fleet::REFEREE;
pub use scheduling::*;
