//! A simulated cluster: the worker's machine, the driver with its groups, the scheduler and the store
//! as they run in the programs, at the configuration that is shipped; and a network, clocks, disks and
//! processors that misbehave as a seed says. No threads, no sockets, no sleeping: a faulty day takes
//! milliseconds.
//!
//! Whatever happens, a run ends in the exact total with each task counted once; [`run`] asserts that
//! and, at every write of the store, the invariants of `ledger`.

mod coordinator;
mod disk;
mod fate;
mod files;
mod ledger;
mod scenario;
mod store;
mod tally;
mod truth;
mod worker;
mod world;

pub use self::worker::Share;
pub use scenario::{Faults, Make, Scenario};
pub use tally::{Fault, Tally};
pub use truth::Truth;
pub use world::{Outcome, run};

/// Milliseconds of true time since the simulation began.
type Time = u64;

const SECOND: Time = 1_000;
const MINUTE: Time = 60 * SECOND;
const HOUR: Time = 60 * MINUTE;
