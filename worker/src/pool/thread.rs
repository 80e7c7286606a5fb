//! What one counting thread does.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use common::count::CountError;
use tokio::sync::mpsc::UnboundedSender;

use super::{Failure, Job, Left, MakeCounter, Outcome, PoolConfig, Shared, counters::Counters};

/// How one thread has spent its time; written by that thread alone.
#[derive(Debug, Default)]
pub(super) struct Times {
    pub(super) busy_ns: AtomicU64,
    pub(super) idle_ns: AtomicU64,
}

/// How one thread has spent its time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadTimes {
    /// With jobs.
    pub(crate) busy: Duration,
    /// Without one, between two jobs: before the first and after the last does not count.
    pub(crate) idle: Duration,
}

/// Counts jobs until the pool is closed.
pub(super) fn work(
    shared: &Shared,
    index: usize,
    config: PoolConfig,
    make: &MakeCounter,
    left: &UnboundedSender<Left>,
) {
    let times = &shared.times[index];
    let mut counters = Counters::new(make, config.kernel, config.memory_bytes_per_thread);
    let mut is_first = true;
    while let Some((job, waited)) = shared.next() {
        if !std::mem::replace(&mut is_first, false) {
            add(&times.idle_ns, waited);
        }
        let begun = Instant::now();
        job.start(begun);
        // A counter that panicked is thrown away, so that nothing half-changed is seen again.
        let counted = catch_unwind(AssertUnwindSafe(|| count(&mut counters, &job)));
        let outcome = counted.unwrap_or_else(|panic| {
            counters.clear();
            Outcome::Failed(Failure::Panic(message(&*panic)))
        });
        let duration = begun.elapsed();
        add(&times.busy_ns, duration);
        let told = left.send(Left {
            job,
            outcome,
            duration,
        });
        if told.is_err() {
            // Nobody is interested any more.
            return;
        }
    }
}

fn add(total_ns: &AtomicU64, part: Duration) {
    let nanoseconds = u64::try_from(part.as_nanos()).unwrap_or(u64::MAX);
    total_ns.fetch_add(nanoseconds, Relaxed);
}

fn count(counters: &mut Counters<'_>, job: &Job) -> Outcome {
    if job.is_cancelled() {
        return Outcome::Cancelled;
    }
    let counter = match counters.get(job) {
        Ok(counter) => counter,
        Err(error) => return Outcome::Failed(Failure::Setup(error)),
    };
    match counter.count(job) {
        Ok(count) => Outcome::Counted(count),
        Err(CountError::Cancelled) => Outcome::Cancelled,
        Err(CountError::Overflow) => Outcome::Failed(Failure::Overflow),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
