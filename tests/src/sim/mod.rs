//! A simulated cluster: the real scheduler and store, and workers, network, clock and disk that
//! misbehave as a seed says. No threads, no sockets, no sleeping: a faulty day takes milliseconds.
//!
//! Whatever happens, a run ends in the exact total with each task counted once; [`run`] asserts that
//! and, after every message, the invariants of `ledger`.

mod coordinator;
mod disk;
mod ledger;
mod scenario;
mod truth;
mod worker;
mod world;

pub use scenario::{Faults, Scenario};
pub use truth::Truth;
pub use world::{Outcome, run};

/// Milliseconds of true time since the simulation began.
type Time = u64;

const SECOND: Time = 1_000;
const MINUTE: Time = 60 * SECOND;
const HOUR: Time = 60 * MINUTE;
