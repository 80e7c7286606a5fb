//! A simulated cluster whose faults follow from a seed.
//!
//! Worker engine, driver, scheduler and store are those of the programs in the default configuration;
//! network, clocks, disks and processors are simulated. Without threads, sockets and sleeps, a day takes
//! milliseconds. [`run`] checks that each task is counted once, that the total is exact unless the scenario
//! has wrong counts, and that the invariants of its `Checker` hold at every write of the store.

mod disk;
mod package;
mod scenario;
mod shared;
mod worker;
mod world;

use std::{fmt, ops::AddAssign};

pub use self::worker::Share;
pub use scenario::{
    ATTACKS, Attack, Conduct, DISTURBANCES, Disturbance, Faults, Machine, Scenario,
};
pub use world::{SimOutcome, run};

/// Milliseconds of true time since the simulation began.
type Time = u64;

const SECOND: Time = 1_000;
const MINUTE: Time = 60 * SECOND;
const HOUR: Time = 60 * MINUTE;

macro_rules! faults {
    ($($fault:ident $name:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $(#[doc = $name] $fault,)*
        }

        /// All kinds with their names; those of workers and messages first.
        const FAULTS: [(Fault, &str); [$($name),*].len()] = [$((Fault::$fault, $name)),*];
    };
}

faults! {
    MessageLost "messages or replies lost",
    MessageRepeated "messages repeated",
    MessageLate "messages late",
    Partition "workers partitioned",
    WorkerCrash "workers crashed",
    SpoolLost "spools lost",
    SpoolError "spools not written",
    WorkerFrozen "workers frozen",
    WorkerStopped "workers drained",
    WorkerPaused "workers paused",
    WorkerClock "clock jumps of workers",
    CountFailed "counts failed",
    CountWrong "counts wrong",
    SelfTest "self-tests failed",
    Ghost "workers that leased tasks and vanished",
    Package "packages checked out",
    PackageReturned "packages returned, some of them late, twice or in part",
    PackageRevoked "packages revoked by an operator",
    CoordinatorCrash "coordinators crashed between groups",
    CrashInWrite "coordinators crashed in a write",
    DiskError "disks full or failing",
    DiskLost "disks lost",
    OlderCopy "older copies of the disk restored",
    CoordinatorClock "clock jumps of coordinators",
    RunPaused "runs paused by an operator",
}

/// Number of occurrences of each fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally([u64; FAULTS.len()]);

impl Tally {
    pub fn add(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// Returns the number of faults of workers and their messages.
    pub fn of_workers(&self) -> u64 {
        self.0[..Fault::CoordinatorCrash as usize].iter().sum()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, number)| *sum += number);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (fault, name) in FAULTS {
            writeln!(f, "{:>10}  {name}", self.0[fault as usize])?;
        }
        write!(f, "{:>10}  faults of workers in all", self.of_workers())
    }
}
