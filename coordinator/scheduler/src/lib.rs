//! Facts about runs and what follows from them: the ledger, the scheduler and the checks of a total.
//!
//! Nothing here does I/O or reads a clock: time arrives as an argument, and decisions leave as values.

pub mod checks;
pub mod ledger;
mod scheduling;

pub use scheduling::*;
