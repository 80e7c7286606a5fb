//! The worker: counts a coordinator's tasks on all local cores.
//!
//! ```text
//! coordinator ◄── Sync ──► link (async) ──jobs──► pool (one OS thread per core)
//!                           │  │  ▲                  │
//!                           │  │  └──counts──────────┘
//!                           │  └──results──► spool (a blocking thread: append, fdatasync)
//!                           ▼
//!                          engine (decides everything; no I/O, no clock)
//! ```
//!
//! Deliberately absent: any knowledge of how a run is stored or scheduled. A worker must not lose
//! finished partials; leases may be lost at any time.

pub mod availability;
pub mod config;
pub mod devices;
pub mod engine;
mod link;
pub mod local;
pub mod package;
mod pool;
pub mod spool;
mod summary;
#[cfg(test)]
mod testing;

use std::{io, sync::Arc};

use cli::{
    duration::format_duration, memory::MemorySize, memory::numbered, threads::TooLittleMemory,
};
use common::{
    compute::kernel::{Kernel, KernelName},
    messages::{run::SessionId, sync::WorkerInfo},
    text::plural,
};
use tokio::sync::watch;

pub use spool::SpoolError;
pub use summary::Summary;

use availability::PauseMonitor;
use config::WorkerConfig;
use engine::{ExitReason, Settings};
use link::{CoordinatorLoop, LinkResult};
use pool::Pool;

/// Reason why a worker did not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error(transparent)]
    Memory(#[from] TooLittleMemory),
    #[error(
        "every counting thread failed its self-test: check this machine's memory and processor \
         ({summary})"
    )]
    SelfTest { summary: Summary },
    /// Results were neither submitted nor written to the spool.
    #[error(
        "{results} finished results are lost: the coordinator was not reached and they could not be \
         written to the spool; their tasks will be counted again ({summary})"
    )]
    Lost { results: usize, summary: Summary },
    #[error("cannot start {threads} counting threads: {error}; lower --threads")]
    Threads { threads: u32, error: io::Error },
    #[error(
        "counting threads panicked {panics} times: this is a bug in the program or a memory fault of the \
         machine; the leases were released ({summary})"
    )]
    Panics { panics: u32, summary: Summary },
}

/// Checks for fuzzing that any bytes are either rejected as a line of a spool or package, or survive a round trip.
///
/// Tests the bytes as they are, and with a corrected checksum.
#[doc(hidden)]
pub fn spool_line(bytes: &[u8]) {
    for text in [bytes, &common::messages::sealed::resealed(bytes)] {
        spool::line::round_trip::<spool::line::SpoolLine>(text);
        package::round_trip_of_line(text);
    }
}

/// Serves a coordinator until `shutdown` resolves or the worker is idle.
///
/// A worker that has tried a task is idle once every run is finished and the idle timeout has passed without
/// work. Before each exit the worker drains: it completes tasks that will finish within the drain limit,
/// releases the others and submits every result. If the coordinator cannot be reached, the worker continues
/// to count and retries forever. Needs a Tokio runtime with I/O and time.
pub async fn run(
    config: WorkerConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, WorkerError> {
    let budget = config.budget;
    budget.check_memory()?;
    let spool = spool::open(&config.spool, &config.name)?;
    let info = WorkerInfo {
        session: SessionId(rand::random()),
        name: numbered(&config.name, spool.as_ref().map_or(1, |spool| spool.number)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        // A recheck prefers another worker's kernel, and most of this one's counts are its devices'.
        kernel: match config.devices[..] {
            [] => budget.kernel.name(),
            [..] => KernelName::OpenCl,
        },
        device: devices::list(&config.devices),
        threads: budget.threads.get(),
        memory_bytes_per_thread: budget.memory_bytes_per_thread(),
        machine: config::machine_number(),
    };
    announce(&config, &info, spool.as_ref());
    let settings = Settings {
        info,
        idle_timeout: config.idle_timeout,
        drain_limit: config.drain_limit,
        unacknowledged: None,
        failed_before: false,
    };
    let no_threads = |error| WorkerError::Threads { threads: budget.threads.get(), error };
    let stop_requested =
        spool::stop::requested(spool.as_ref().map(|spool| spool.directory.clone()));
    let shutdown = async {
        tokio::select! {
            () = shutdown => {}
            () = stop_requested => {}
        }
    };
    let make = Arc::new(pool::real_counter);
    let pool =
        Pool::start(budget, &config.devices, common::self_test::run, make).map_err(no_threads)?;
    let (pauses, pause) = watch::channel(None);
    let mut monitor = PauseMonitor::new(config.rules, pauses);
    let mut link = CoordinatorLoop::new(config.coordinator, settings, pool, spool, rand::random);
    link.status_bar = config.status_bar;
    link.pause = Some(pause);
    let LinkResult { reason, summary, lost } = tokio::select! {
        end = link.run(shutdown) => end,
        never = monitor.run() => never,
    };
    match (reason, config.idle_timeout) {
        (ExitReason::Idle, Some(timeout)) if !timeout.is_zero() => tracing::info!(
            "stopped: {summary}; all runs finished and no work for {} (--idle-timeout)",
            format_duration(timeout)
        ),
        _ => tracing::info!("stopped: {summary}"),
    }
    match (reason, lost) {
        (ExitReason::Panics(panics), _) => Err(WorkerError::Panics { panics, summary }),
        (ExitReason::SelfTest, _) => Err(WorkerError::SelfTest { summary }),
        (ExitReason::Requested | ExitReason::Drained | ExitReason::Idle, 0) => Ok(summary),
        (ExitReason::Requested | ExitReason::Drained | ExitReason::Idle, results) => {
            Err(WorkerError::Lost { results, summary })
        }
    }
}

/// Logs the worker's configuration.
fn announce(config: &WorkerConfig, info: &WorkerInfo, spool: Option<&spool::Spool>) {
    let spool = spool.map_or_else(
        || "none".to_owned(),
        |spool| spool::absolute(&spool.directory).display().to_string(),
    );
    let kernels: Vec<_> = Kernel::available().iter().map(Kernel::to_string).collect();
    tracing::info!(
        "queens worker {} '{}': coordinator {}, kernel {} of {}, {}{} with {} each, spool {spool}",
        info.version,
        info.name,
        config.coordinator,
        config.budget.kernel,
        kernels.join(", "),
        if info.device.is_empty() { String::new() } else { format!("device {}, ", info.device) },
        plural(info.threads, "thread"),
        MemorySize::at_least(info.memory_bytes_per_thread),
    );
    if let Some(timeout) = config.idle_timeout.filter(|timeout| !timeout.is_zero()) {
        tracing::info!(
            "exits after {} without work, once it has counted and all runs are finished (--idle-timeout; 0: \
             never)",
            format_duration(timeout)
        );
    }
}
