//! The worker: pulls tasks, counts them on all local cores, and reports partial counts.
//!
//! ```text
//! coordinator ◄── Sync ──► link (async, owns the leases) ──jobs──► pool (one OS thread a core)
//!                           │ outbox ◄──partials──────────────────────┘
//!                           ▼ spool (its own thread: append, fdatasync)
//! ```
//!
//! Deliberately absent: any knowledge of how a run is stored or scheduled. What a worker must not
//! lose are finished partials; leases it may forget at any time.

pub mod config;
pub mod count;
mod lease;
mod link;
pub mod memory;
mod outbox;
mod pool;
mod spool;
mod summary;
#[cfg(test)]
mod testing;

use std::{io, sync::Arc};

use common::{
    run::{SessionId, WorkerId},
    sync::WorkerInfo,
};
use tokio::sync::mpsc::unbounded_channel;

pub use spool::SpoolError;
pub use summary::Summary;

use config::WorkerConfig;
use link::{Ended, Link};
use outbox::Outbox;
use pool::{Pool, PoolConfig};

/// Why a worker ended otherwise than by a planned stop.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Another worker has the spool directory.
    #[error(transparent)]
    Spool(#[from] SpoolError),
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

/// Serves a coordinator until `shutdown` resolves, then drains: finishes what takes a few seconds,
/// gives the rest back and hands in every result, within the drain limit. A coordinator that cannot
/// be reached is no error: the worker counts on and tries again for ever.
///
/// Needs a Tokio runtime with I/O and time.
pub async fn run(
    config: WorkerConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, WorkerError> {
    let mut name = config::display_name(config.name.as_deref());
    let spool = open_spool(&config, &name)?;
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
    };
    announce(&config, &info, spool.as_ref().map(|(spool, _)| spool));
    let outbox = Outbox::new(spool.map(|(spool, _)| spool));
    let pool = outbox.and_then(|outbox| {
        let (sender, left) = unbounded_channel();
        let pool_config = PoolConfig {
            threads: info.threads,
            kernel: config.kernel,
            memory_bytes_per_thread: info.memory_bytes_per_thread,
        };
        let pool = Pool::start(pool_config, Arc::new(pool::real_counter), &sender)?;
        Ok((outbox, (pool, left)))
    });
    let (outbox, pool) = pool.map_err(|error| WorkerError::Threads {
        threads: config.threads.get(),
        error,
    })?;
    let link = Link::new(config.coordinator, info, outbox, pool, rand::random);
    let (ended, outbox, summary) = link.run(shutdown, config.drain_limit).await;
    // Cannot fail: the closure does not panic.
    let _ = tokio::task::spawn_blocking(move || outbox.close()).await;
    tracing::info!("stopped: {summary}");
    match ended {
        Ended::Told => Ok(summary),
        Ended::Faulty { panics } => Err(WorkerError::Faulty { panics, summary }),
    }
}

fn new_worker_id() -> WorkerId {
    WorkerId(rand::random())
}

/// The spool; `None` where there is none to be, or where the directory cannot be used: counting
/// goes on without it, which is said once.
fn open_spool(
    config: &WorkerConfig,
    name: &str,
) -> Result<Option<(spool::Spool, u32)>, SpoolError> {
    match spool::open(&config.spool, name, new_worker_id()) {
        Err(error @ SpoolError::Unusable { .. }) => {
            tracing::error!("{error}; until then results are kept in memory alone");
            Ok(None)
        }
        other => other,
    }
}

fn announce(config: &WorkerConfig, info: &WorkerInfo, spool: Option<&spool::Spool>) {
    let spool = spool.map_or_else(
        || "none".to_owned(),
        |spool| spool.directory().display().to_string(),
    );
    tracing::info!(
        "queens worker {} '{}': coordinator {}, kernel {} of {}, {} threads with {} each, spool {}",
        info.version,
        info.name,
        config.coordinator,
        info.kernel,
        config::available_kernels(),
        info.threads,
        memory::MemorySize::new(info.memory_bytes_per_thread)
            .map_or_else(|| "no memory".to_owned(), |size| size.to_string()),
        spool,
    );
}
