//! What one counting thread does.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use common::{count::CountError, crews::Crew};
use tokio::sync::mpsc::UnboundedSender;

use super::{Event, Job, MakeCounter, Next, Shared, counters::Counters};
use crate::machine::{Failure, Left, Outcome};

/// How often a thread proves that it counts right.
const PROVE_EVERY: Duration = Duration::from_secs(3600);

/// How one thread has spent its time, times the size of the crews it led; written by that thread alone.
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
    make: &MakeCounter,
    events: &UnboundedSender<Event>,
) {
    let times = &shared.times[index];
    let mut counters = Counters::new(make, shared.config.kernel);
    let mut is_first = true;
    let mut last_proof = None;
    loop {
        if last_proof.is_none_or(|proof: Instant| proof.elapsed() >= PROVE_EVERY) {
            // What it counts with would be beside what this takes.
            counters.clear();
            match prove(shared, index, last_proof) {
                None => return,
                Some(Ok(proof)) => {
                    last_proof = Some(proof);
                    // Nobody may be interested any more.
                    let _ = events.send(Event::Proven);
                }
                Some(Err(proven)) => {
                    shared.fail(index);
                    // Nobody may be interested any more.
                    let _ = events.send(Event::Unproven(proven));
                    return;
                }
            }
        }
        let (job, crew, waited) = match shared.next(index, counters.keeps_any()) {
            Next::Count(job, crew, waited) => (job, crew, waited),
            Next::StandBy => {
                counters.clear();
                continue;
            }
            Next::Closed => return,
        };
        let members = u32::from(crew.threads.get());
        if !std::mem::replace(&mut is_first, false) {
            add(&times.idle_ns, waited * members);
        }
        let begun = Instant::now();
        // Whether anybody is still interested shows when the job is done.
        let _ = events.send(Event::Begun(job.work.lease, begun));
        // A counter that panicked is thrown away, so that nothing half-changed is seen again.
        let counted = catch_unwind(AssertUnwindSafe(|| count(&mut counters, &job, crew)));
        let outcome = counted.unwrap_or_else(|panic| {
            counters.clear();
            Outcome::Failed(Failure::Panic(message(&*panic)))
        });
        shared.disband(crew);
        let duration = begun.elapsed() * members;
        add(&times.busy_ns, duration);
        let told = events.send(Event::Left(Left {
            work: job.work.clone(),
            outcome,
            duration,
            threads: crew.threads,
        }));
        if told.is_err() {
            // Nobody is interested any more.
            return;
        }
    }
}

/// Counts what is known. When it was done; where the thread must not go on, when it last was. Nothing once the
/// pool is closed.
fn prove(
    shared: &Shared,
    index: usize,
    last_proof: Option<Instant>,
) -> Option<Result<Instant, Option<Instant>>> {
    let begun = Instant::now();
    Some(match shared.prove()? {
        Ok(()) => {
            tracing::debug!(
                "counting thread {index} proved itself in {:?}",
                begun.elapsed()
            );
            Ok(Instant::now())
        }
        Err(wrong) => {
            tracing::error!(
                "counting thread {index} failed its canaries and stops: {wrong}; check this \
                 machine's memory and processor"
            );
            Err(last_proof)
        }
    })
}

fn add(total_ns: &AtomicU64, part: Duration) {
    let nanoseconds = u64::try_from(part.as_nanos()).unwrap_or(u64::MAX);
    total_ns.fetch_add(nanoseconds, Relaxed);
}

fn count(counters: &mut Counters<'_>, job: &Job, crew: Crew) -> Outcome {
    if job.is_cancelled() {
        return Outcome::Cancelled;
    }
    let counter = match counters.get(job, crew) {
        Ok(counter) => counter,
        Err(error) => return Outcome::Failed(Failure::Setup(error)),
    };
    match counter.count(job) {
        Ok(count) => Outcome::Counted(count),
        Err(CountError::Cancelled) => Outcome::Cancelled,
        Err(CountError::Overflow) => Outcome::Failed(Failure::Overflow),
    }
}

pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
