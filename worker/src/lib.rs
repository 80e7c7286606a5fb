//! The worker: pulls tasks, counts them on all local cores, and reports partial counts.
//!
//! ```text
//! coordinator ◄── Sync ──► link (async) ──jobs──► pool (one OS thread a core)
//!                           │  │  ▲                  │
//!                           │  │  └──counts──────────┘
//!                           │  └──results──► spool (its own thread: append, fdatasync)
//!                           ▼
//!                          machine (decides everything; no I/O, no clock)
//! ```
//!
//! Deliberately absent: any knowledge of how a run is stored or scheduled. What a worker must not
//! lose are finished partials; leases it may forget at any time.

pub mod config;
pub mod count;
mod cpu;
mod documents;
pub mod environment;
pub mod estimate;
mod glance;
mod host;
mod link;
pub mod log;
pub mod machine;
pub mod memory;
mod pool;
pub mod priority;
pub mod rules;
pub mod signals;
mod spool;
mod summary;
pub mod terminal;
#[cfg(test)]
mod testing;

use std::{io, sync::Arc, time::Instant};

use common::{
    run::{SessionId, WorkerId},
    sync::WorkerInfo,
};
use tokio::sync::{mpsc::unbounded_channel, watch};

pub use glance::Glance;
#[doc(hidden)]
pub use spool::foreign;
pub use spool::{SpoolError, stop};
pub use summary::Summary;

use config::{TooLittleMemory, WorkerConfig};
use link::{End, Link};
use machine::{Ended, Machine, Settings};
use pool::{Pool, PoolConfig};
use rules::Watchman;
use spool::Writer;

/// Why a worker ended otherwise than by a planned stop.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// There is no spool.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// No board could be counted.
    #[error(transparent)]
    Memory(#[from] TooLittleMemory),
    /// No thread counts right.
    #[error(
        "every counting thread counted known boards wrong: check this machine's memory and \
         processor ({summary})"
    )]
    Unproven {
        /// What was done until then.
        summary: Summary,
    },
    /// Finished results could neither be handed in nor kept.
    #[error(
        "{results} finished results are lost: the coordinator was not reached and they could not be \
         written to the spool; their tasks will be counted again ({summary})"
    )]
    Lost {
        /// How many.
        results: usize,
        /// What was done.
        summary: Summary,
    },
    /// Threads cannot be started.
    #[error("cannot start {threads} counting threads: {error}; give fewer with --threads")]
    Threads {
        /// How many were asked for.
        threads: u32,
        /// What the system says.
        error: io::Error,
    },
    /// This program has a fault.
    #[error(
        "counting threads panicked {panics} times: this is a fault of the program or of the \
         machine's memory; its leases were given back ({summary})"
    )]
    Faulty {
        /// How often.
        panics: u32,
        /// What was done until then.
        summary: Summary,
    },
}

/// Serves a coordinator until `shutdown` resolves, or until every run is over and nothing was to do
/// for the idle timeout, then drains: finishes what takes a few seconds,
/// gives the rest back and hands in every result, within the drain limit. A coordinator that cannot
/// be reached is no error: the worker counts on and tries again for ever.
///
/// Needs a Tokio runtime with I/O and time.
pub async fn run(
    config: WorkerConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, WorkerError> {
    config.check_memory()?;
    let mut name = config::display_name(config.name.as_deref());
    let spool = spool::open(&config.spool, &name, new_worker_id())?;
    if let Some((_, number @ 2..)) = &spool {
        name = format!("{name}-{number}");
    }
    let info = WorkerInfo {
        id: spool.as_ref().map_or_else(
            || config.id.unwrap_or_else(new_worker_id),
            |(s, _)| s.worker(),
        ),
        session: SessionId(rand::random()),
        name: config::display_name(Some(&name)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: config.kernel.name(),
        threads: config.threads.get(),
        memory_bytes_per_thread: config.memory_bytes_per_thread(),
        machine: host::number(),
    };
    announce(&config, &info, spool.as_ref().map(|(spool, _)| spool));
    let settings = Settings {
        info,
        idle_timeout: config.idle_timeout,
        drain_limit: config.drain_limit,
        kept: spool
            .as_ref()
            .map(|(spool, _)| spool.unacknowledged().copied().collect()),
    };
    let threads = |error| WorkerError::Threads {
        threads: config.threads.get(),
        error,
    };
    let directory = spool
        .as_ref()
        .map(|(spool, _)| spool.directory().to_owned());
    let spool = spool.map(|(spool, _)| Writer::start(spool)).transpose();
    let spool = spool.map_err(threads)?;
    let (sender, events) = unbounded_channel();
    let pool_config = PoolConfig {
        threads: config.threads.get(),
        kernel: config.kernel,
        memory_bytes: config.memory.bytes(),
        crews: config.crews,
        prove: common::canary::prove,
    };
    let pool = Pool::start(pool_config, Arc::new(pool::real_counter), &sender).map_err(threads)?;
    drop(sender);
    let machine = Machine::new(settings, Instant::now());
    let link = Link::new(
        config.coordinator,
        machine,
        (pool, events),
        spool,
        rand::random,
    )
    .watched(config.glances);
    let shutdown = async {
        tokio::select! {
            () = shutdown => {}
            () = stop::asked(directory) => {}
        }
    };
    let (pauses, paused) = watch::channel(None);
    let mut watchman = Watchman::new(config.rules, pauses);
    let End {
        ended,
        summary,
        lost,
    } = tokio::select! {
        end = link.pausing(paused).run(shutdown) => end,
        never = watchman.watch() => never,
    };
    tracing::info!("stopped: {summary}");
    match (ended, lost) {
        (Ended::Faulty { panics }, _) => Err(WorkerError::Faulty { panics, summary }),
        (Ended::Unproven, _) => Err(WorkerError::Unproven { summary }),
        (Ended::Told | Ended::Drained | Ended::Idle, 0) => Ok(summary),
        (Ended::Told | Ended::Drained | Ended::Idle, results) => {
            Err(WorkerError::Lost { results, summary })
        }
    }
}

fn new_worker_id() -> WorkerId {
    WorkerId(rand::random())
}

fn announce(config: &WorkerConfig, info: &WorkerInfo, spool: Option<&spool::Spool>) {
    let spool = spool.map_or_else(
        || "none".to_owned(),
        |spool| spool::absolute(spool.directory()).display().to_string(),
    );
    tracing::info!(
        "queens worker {} '{}': coordinator {}, kernel {} of {}, {} with {} each, spool {}",
        info.version,
        info.name,
        config.coordinator,
        info.kernel,
        config::available_kernels(),
        summary::plural(u64::from(info.threads), "thread"),
        memory::MemorySize::new(info.memory_bytes_per_thread)
            .map_or_else(|| "no memory".to_owned(), |size| size.to_string()),
        spool,
    );
}
