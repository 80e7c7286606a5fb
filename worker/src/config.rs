//! Configuration of a worker, validated once.

use std::{fmt, fs, num::NonZeroU16, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use accelerator::Device;
use cli::{
    memory::MemorySize,
    terminal::StatusBar,
    threads::{self, Threads, TooLittleMemory},
};
use common::{
    board::Board,
    compute::kernel::Kernel,
    crew_layout::{Crews, Machine},
    messages::sync::{SyncReply, SyncRequest},
    method::Layout,
    plan::{Plan, PlanSpec},
};
use proto::connect::CoordinatorEndpoint;

use crate::availability::Rules;

/// Configuration for [`crate::run`].
#[derive(Debug)]
pub struct WorkerConfig {
    pub coordinator: Coordinator,
    pub budget: ComputeBudget,
    pub devices: Vec<Arc<Device>>,
    pub name: String,
    pub spool: SpoolChoice,
    /// Maximum duration of a drain.
    ///
    /// The last 15 s, but at most three fifths, are reserved for submitting results.
    pub drain_limit: Duration,
    /// Time without work after which a worker exits if it has tried a task; `None`: never.
    ///
    /// The time starts once every run is finished.
    pub idle_timeout: Option<Duration>,
    /// Times and loads at which this machine may count.
    pub rules: Rules,
    /// The status line, which changes twice per second.
    pub status_bar: Option<StatusBar>,
}

/// Storage of results that are not acknowledged yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolChoice {
    /// A directory named after the worker below `$XDG_STATE_HOME/queens-spool` or
    /// `./queens-spool`, with a number appended if another worker uses it.
    Default,
    /// This directory; an error if another worker uses it.
    Directory(PathBuf),
    /// Memory only, for a worker that exits with its coordinator.
    Memory,
}

/// Number of attempts to reserve memory for a plan.
const ATTEMPTS: u32 = 4;

/// Threads, memory and kernel for counting.
#[derive(Clone, Copy, Debug)]
pub struct ComputeBudget {
    pub threads: Threads,
    /// Memory limit for all threads together.
    pub memory: MemorySize,
    /// Number of crews; as many as the memory allows if not set.
    pub crews: Option<NonZeroU16>,
    pub kernel: Kernel,
}

impl ComputeBudget {
    pub fn machine(&self) -> Machine {
        threads::machine(self.memory, self.threads, self.crews)
    }

    /// Divides the threads into crews for tasks of `plan`.
    pub fn crews(&self, plan: &Plan) -> Result<Crews, TooLittleMemory> {
        threads::crews(plan, self.memory, self.threads, self.crews)
    }

    /// Reserves memory for tasks of `plan`, and divides the threads into as many crews as it allows.
    ///
    /// `reserve` takes the wanted bytes and returns the reserved ones. If they are too few, `give_back` frees them
    /// and waits: processes that reserve at the same moment may each hold a part that is too small.
    pub(crate) fn reserved_crews(
        &self,
        plan: &Plan,
        reserve: impl Fn(u64) -> u64,
        give_back: impl Fn(),
    ) -> Result<Crews, TooLittleMemory> {
        let full = self.crews(plan)?;
        let wanted = full.memory_bytes();
        let attempt = || match reserve(wanted) {
            given if given < wanted => {
                let less = Self { memory: MemorySize::at_least(given), ..*self };
                less.crews(plan).inspect_err(|_| give_back())
            }
            _ => Ok(full),
        };
        let mut crews = attempt();
        for _ in 1..ATTEMPTS {
            crews = crews.or_else(|_| attempt());
        }
        crews
    }

    /// Checks that the memory suffices for at least one board.
    pub fn check_memory(&self) -> Result<(), TooLittleMemory> {
        // Method `rows` needs the same memory for every board, and always less than method `frames`.
        let smallest = Board::new(1).map(|board| PlanSpec::new(board, Layout::FirstRows));
        let Some(plan) = smallest.ok().and_then(|spec| Plan::new(spec).ok()) else {
            return Ok(());
        };
        let checked = self.crews(&plan).map(|_| ());
        checked.map_err(|error| TooLittleMemory { board: None, ..error })
    }

    pub fn memory_bytes_per_thread(&self) -> u64 {
        self.memory.bytes() / u64::from(self.threads.get())
    }
}

#[derive(Clone, Debug)]
pub enum Coordinator {
    /// Reached over the network.
    Remote(CoordinatorEndpoint),
    /// In the same process.
    InProcess(InProcess),
}

impl fmt::Display for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(address) => address.fmt(f),
            Self::InProcess(_) => f.write_str("in this process"),
        }
    }
}

/// Client of a coordinator in the same process; needs no connection or credentials.
#[derive(Clone)]
pub struct InProcess(Arc<InProcessCall>);

type InProcessCall =
    dyn Fn(SyncRequest) -> Pin<Box<dyn Future<Output = Option<SyncReply>> + Send>> + Send + Sync;

impl InProcess {
    /// Creates a client of `answer`, which returns `None` after the coordinator stops.
    pub fn new<A>(answer: impl Fn(SyncRequest) -> A + Send + Sync + 'static) -> Self
    where
        A: Future<Output = Option<SyncReply>> + Send + 'static,
    {
        Self(Arc::new(move |request| Box::pin(answer(request))))
    }

    pub(crate) async fn sync(self, request: SyncRequest) -> Option<SyncReply> {
        (self.0)(request).await
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InProcess")
    }
}

/// Returns a number that only the workers on this machine share; 0 if unknown.
///
/// On Linux it is derived from the kernel's boot ID: containers share it, and the nodes of a cluster
/// differ even if they share one disk image. Elsewhere it is derived from the variable `HOSTNAME`.
pub(crate) fn machine_number() -> u64 {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map_or(0, |name| hash(name.trim()))
}

/// Computes the FNV-1a hash, which is the same in every build of this program.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::testing::{budget, plan};

    #[test]
    fn memory_that_is_too_little_is_given_back_before_the_next_attempt() {
        let (budget, plan) = (budget(2), plan(10));
        let crews = budget.crews(&plan);
        let wanted = crews.as_ref().unwrap().memory_bytes();
        for failures in [0, 1, ATTEMPTS - 1, ATTEMPTS] {
            let (attempts, held) = (Cell::new(0_u32), Cell::new(0_u64));
            let reserve = |bytes: u64| {
                assert_eq!((bytes, held.get()), (wanted, 0));
                attempts.set(attempts.get() + 1);
                held.set(if attempts.get() > failures { wanted } else { 1 });
                held.get()
            };
            let reserved = budget.reserved_crews(&plan, reserve, || held.set(0));
            if failures < ATTEMPTS {
                assert_eq!((&reserved, held.get()), (&crews, wanted), "after {failures}");
            } else {
                assert_eq!((reserved.is_err(), held.get()), (true, 0), "others need the memory");
            }
            assert_eq!(attempts.get(), ATTEMPTS.min(failures + 1));
        }
    }

    #[test]
    fn hashes_are_stable_and_differ_by_name() {
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(hash("node-1"), hash("node-2"));
    }
}
