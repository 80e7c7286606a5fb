//! Configuration of a worker, validated once.

use std::{fmt, fs, num::NonZeroU16, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use accelerator::Device;
use cli::{
    memory::{self, MemorySize},
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
    /// Time without work after which a worker exits if it has counted; `None`: never.
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
    pub(crate) fn reserved_crews(&self, plan: &Plan) -> Result<Crews, TooLittleMemory> {
        let crews = self.crews(plan)?;
        let wanted = crews.memory_bytes();
        match memory::reserve(wanted) {
            given if given < wanted => {
                Self { memory: MemorySize::at_least(given), ..*self }.crews(plan)
            }
            _ => Ok(crews),
        }
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
    use super::*;

    #[test]
    fn hashes_are_stable_and_differ_by_name() {
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(hash("node-1"), hash("node-2"));
    }
}
