//! Counting threads: plain OS threads beside the async runtime, fed from one queue.

mod counters;
mod job;
#[cfg(test)]
mod tests;
mod thread;

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use common::{count::SetupError, kernel::Kernel};
use tokio::sync::mpsc::UnboundedSender;

#[cfg(test)]
pub(crate) use counters::CountTask;
pub(crate) use counters::{MakeCounter, real_counter};
pub(crate) use job::Job;
pub(crate) use thread::ThreadTimes;

use crate::lease::LeaseKey;

/// What a pool is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolConfig {
    pub(crate) threads: u32,
    pub(crate) kernel: Kernel,
    pub(crate) memory_bytes_per_thread: u64,
}

/// A job left its thread. Every job that a thread began leaves it exactly once.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) job: Arc<Job>,
    pub(crate) outcome: Outcome,
    /// How long the thread had it.
    pub(crate) duration: Duration,
}

/// How a job left its thread.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// With the weighted count of its task.
    Counted(u64),
    /// Because it was cancelled.
    Cancelled,
    /// Without a count.
    Failed(Failure),
}

/// Why a task has no count.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// This worker cannot count tasks of this plan.
    #[error("{0}")]
    Setup(#[from] SetupError),
    /// The count does not fit.
    #[error("the weighted count passes 64 bits")]
    Overflow,
    /// The program has a fault.
    #[error("the counting thread panicked: {0}")]
    Panic(String),
}

/// The queue and the threads that empty it.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Signalled when `queue` gained jobs or was closed.
    changed: Condvar,
    times: Vec<thread::Times>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Arc<Job>>,
    closed: bool,
}

/// What waits for a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    pub(crate) jobs: usize,
    pub(crate) cost: u64,
}

impl Shared {
    /// No thread panics while it holds this lock; even then the queue would be whole.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job, as soon as there is one, and how long there was none; `None` once the pool is
    /// closed.
    fn next(&self) -> Option<(Arc<Job>, Duration)> {
        let mut queue = self.queue();
        let mut waited = Duration::ZERO;
        if queue.waiting.is_empty() && !queue.closed {
            let since = Instant::now();
            queue = self
                .changed
                .wait_while(queue, |queue| queue.waiting.is_empty() && !queue.closed)
                .unwrap_or_else(PoisonError::into_inner);
            waited = since.elapsed();
        }
        let job = queue.waiting.pop_front()?;
        Some((job, waited))
    }
}

impl Pool {
    /// Starts the threads. Each job that one of them began is reported to `left`; the channel
    /// closes when all threads have ended. It is bounded by the number of leases held.
    pub(crate) fn start(
        config: PoolConfig,
        make: Arc<MakeCounter>,
        left: &UnboundedSender<Left>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            times: (0..config.threads)
                .map(|_| thread::Times::default())
                .collect(),
        });
        let pool = Self { shared };
        for index in 0..pool.shared.times.len() {
            let (shared, make, left) = (pool.shared.clone(), make.clone(), left.clone());
            std::thread::Builder::new()
                .name(format!("count-{index}"))
                .spawn(move || thread::work(&shared, index, config, &*make, &left))?;
        }
        Ok(pool)
    }

    /// Queues jobs behind those that wait.
    pub(crate) fn push(&self, jobs: impl IntoIterator<Item = Arc<Job>>) {
        self.shared.queue().waiting.extend(jobs);
        self.shared.changed.notify_all();
    }

    /// Takes a waiting job back. Whether it was still waiting.
    pub(crate) fn take_back(&self, lease: LeaseKey) -> bool {
        let mut queue = self.shared.queue();
        let before = queue.waiting.len();
        queue.waiting.retain(|job| job.lease != lease);
        queue.waiting.len() < before
    }

    /// Takes back every job that no thread began.
    pub(crate) fn take_all_back(&self) -> Vec<Arc<Job>> {
        self.shared.queue().waiting.drain(..).collect()
    }

    /// What waits for a thread.
    pub(crate) fn backlog(&self) -> Backlog {
        let queue = self.shared.queue();
        Backlog {
            jobs: queue.waiting.len(),
            cost: queue
                .waiting
                .iter()
                .fold(0, |sum: u64, job| sum.saturating_add(job.cost)),
        }
    }

    /// How each thread has spent its time so far.
    pub(crate) fn times(&self) -> Vec<ThreadTimes> {
        let read = |times: &thread::Times| ThreadTimes {
            busy: Duration::from_nanos(times.busy_ns.load(Relaxed)),
            idle: Duration::from_nanos(times.idle_ns.load(Relaxed)),
        };
        self.shared.times.iter().map(read).collect()
    }
}

impl Drop for Pool {
    /// Forgets what waits and ends every thread that is between two jobs; the others end with their
    /// job. Deliberately no join: whoever must know waits for the `left` channel to close.
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.closed = true;
        queue.waiting.clear();
        drop(queue);
        self.shared.changed.notify_all();
    }
}
