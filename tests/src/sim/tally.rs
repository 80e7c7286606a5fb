//! What went wrong, by kind.

use std::{fmt, ops::AddAssign};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A message, or its answer, never arrived.
    MessageLost,
    /// A request arrived twice.
    MessageRepeated,
    /// A message was overtaken by later ones.
    MessageLate,
    /// A worker was cut off for a while.
    Partition,
    /// A worker's process died.
    WorkerCrash,
    /// It came back without its spool.
    SpoolLost,
    /// A write of a spool failed.
    SpoolError,
    /// A worker stood still for a while.
    WorkerFrozen,
    /// A worker was stopped as planned.
    WorkerStopped,
    /// A worker's machine was wanted by others for a while.
    WorkerPaused,
    /// A worker's clock leapt.
    WorkerClock,
    /// A task had no count: its thread panicked, or could not begin.
    CountFailed,
    /// A count was wrong.
    CountWrong,
    /// A slot failed its canaries.
    Canary,
    /// A machine asked for work and vanished.
    Ghost,
    /// The coordinator's process died between two groups.
    CoordinatorCrash,
    /// It died while it wrote a group.
    CrashInWrite,
    /// Its disk was full, or failed.
    DiskError,
    /// Its disk was lost.
    DiskLost,
    /// Its clock leapt.
    CoordinatorClock,
}

impl Fault {
    /// All of them; those of workers first.
    pub const ALL: [Self; 20] = [
        Self::MessageLost,
        Self::MessageRepeated,
        Self::MessageLate,
        Self::Partition,
        Self::WorkerCrash,
        Self::SpoolLost,
        Self::SpoolError,
        Self::WorkerFrozen,
        Self::WorkerStopped,
        Self::WorkerPaused,
        Self::WorkerClock,
        Self::CountFailed,
        Self::CountWrong,
        Self::Canary,
        Self::Ghost,
        Self::CoordinatorCrash,
        Self::CrashInWrite,
        Self::DiskError,
        Self::DiskLost,
        Self::CoordinatorClock,
    ];

    /// Whether it befalls a worker or what it says.
    pub fn is_workers(self) -> bool {
        self < Self::CoordinatorCrash
    }

    const fn name(self) -> &'static str {
        match self {
            Self::MessageLost => "messages lost",
            Self::MessageRepeated => "messages repeated",
            Self::MessageLate => "messages late",
            Self::Partition => "workers cut off",
            Self::WorkerCrash => "workers crashed",
            Self::SpoolLost => "spools lost",
            Self::SpoolError => "spools not written",
            Self::WorkerFrozen => "workers frozen",
            Self::WorkerStopped => "workers stopped",
            Self::WorkerPaused => "workers paused",
            Self::WorkerClock => "workers' clocks leapt",
            Self::CountFailed => "counts failed",
            Self::CountWrong => "counts wrong",
            Self::Canary => "canaries failed",
            Self::Ghost => "ghosts",
            Self::CoordinatorCrash => "coordinators crashed",
            Self::CrashInWrite => "crashed in a write",
            Self::DiskError => "disks full or failing",
            Self::DiskLost => "disks lost",
            Self::CoordinatorClock => "coordinators' clocks leapt",
        }
    }
}

/// How often each fault happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally([u64; Fault::ALL.len()]);

impl Tally {
    /// It happened once more.
    pub fn add(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// How often it happened.
    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// How often something befell a worker or what it says.
    pub fn of_workers(&self) -> u64 {
        let workers = Fault::ALL.into_iter().filter(|fault| fault.is_workers());
        workers.map(|fault| self.of(fault)).sum()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        for fault in Fault::ALL {
            self.0[fault as usize] += other.of(fault);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in Fault::ALL {
            writeln!(f, "{:>10}  {}", self.of(fault), fault.name())?;
        }
        write!(f, "{:>10}  faults of workers in all", self.of_workers())
    }
}
