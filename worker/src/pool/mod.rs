//! Counting threads: plain OS threads beside the async runtime, fed from one queue. Where memory is too
//! short for a task a thread, some of them lead crews, whose other members the leader starts.

mod counters;
mod job;
#[cfg(test)]
mod tests;
mod thread;

use std::{
    collections::{HashMap, VecDeque},
    io,
    num::NonZeroU16,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use common::{
    canary::Wrong,
    count::SetupError,
    crews::{Crew, Crews, Machine},
    kernel::Kernel,
    plan::{Plan, PlanHash},
    sync::FailedCanaries,
};
use tokio::sync::mpsc::UnboundedSender;

#[cfg(test)]
pub(crate) use counters::CountTask;
pub(crate) use counters::{MakeCounter, real_counter};
pub(crate) use job::Job;
pub(crate) use thread::ThreadTimes;

use crate::{lease::LeaseKey, memory::MemorySize};

/// What a pool is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolConfig {
    pub(crate) threads: u32,
    pub(crate) kernel: Kernel,
    /// What all threads together may hold.
    pub(crate) memory_bytes: u64,
    /// How many crews the threads make; as many as the memory holds where nobody says.
    pub(crate) crews: Option<NonZeroU16>,
    /// By which a thread proves that it counts right, before its first job and hourly.
    pub(crate) prove: Prove,
}

impl PoolConfig {
    /// The crews that count tasks of `plan`.
    fn crews(&self, plan: &Plan) -> Result<Crews, SetupError> {
        let threads = u16::try_from(self.threads).unwrap_or(u16::MAX);
        let machine = Machine {
            threads: NonZeroU16::new(threads).unwrap_or(NonZeroU16::MIN),
            memory_bytes: self.memory_bytes,
            crews: self.crews,
        };
        let crews = Crews::new(plan, machine)?;
        let size = MemorySize::new(self.memory_bytes);
        let size = size.map_or_else(|| "no memory".to_owned(), |size| size.to_string());
        let spec = plan.spec();
        tracing::info!(
            "N = {} by method {}: {threads} threads, {size}: {crews}",
            spec.board,
            spec.layout.method()
        );
        Ok(crews)
    }
}

/// Counts what is known; why it came out wrong.
pub(crate) type Prove = fn(Kernel) -> Result<(), Wrong>;

/// A job left its thread. Every job that a thread began leaves it exactly once.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) job: Arc<Job>,
    pub(crate) outcome: Outcome,
    /// How long its threads had it, added up.
    pub(crate) duration: Duration,
    /// How many they were.
    pub(crate) threads: NonZeroU16,
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
    config: PoolConfig,
    queue: Mutex<Queue>,
    /// Signalled when `queue` gained jobs or was closed.
    changed: Condvar,
    times: Vec<thread::Times>,
    /// Threads that counted what is known wrong.
    failed: Mutex<Vec<FailedThread>>,
}

/// A thread that failed its canaries, and since when nothing that it counted is proven.
#[derive(Clone, Copy, Debug)]
struct FailedThread {
    index: usize,
    proven: Instant,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Arc<Job>>,
    closed: bool,
    /// Of the plans of the jobs that wait or did so last.
    crews: HashMap<PlanHash, Result<Crews, SetupError>>,
    /// How many threads are busy with jobs, as leaders or beside one.
    busy: u32,
}

/// The plans whose crews are remembered when no job of theirs waits.
const MOST_PLANS: usize = 64;

/// What there is to do for a thread.
enum Next {
    /// To lead a crew, after so much waiting.
    Count(Arc<Job>, Crew, Duration),
    /// To give memory back: what waits is counted by crews that this thread does not lead.
    StandBy,
    /// To end.
    Closed,
}

impl Queue {
    /// The crew with which the thread in this place leads the first job, if it does and there are threads enough
    /// now; `Err` where it never does.
    fn crew(&self, index: usize, config: &PoolConfig) -> Result<Option<Crew>, NotThisOne> {
        let Some(job) = self.waiting.front() else {
            return Ok(None);
        };
        let crew = match self.crews.get(&job.plan.hash()) {
            Some(Ok(crews)) => match u16::try_from(index) {
                Ok(index) if index < crews.number() => crews.crew(index),
                _ => return Err(NotThisOne),
            },
            // Counting says what is wrong.
            Some(Err(_)) | None => Crew {
                threads: NonZeroU16::MIN,
                memory_bytes: config.memory_bytes / u64::from(config.threads.max(1)),
            },
        };
        let enough = self.busy + u32::from(crew.threads.get()) <= config.threads;
        Ok(enough.then_some(crew))
    }
}

/// Another thread leads.
struct NotThisOne;

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

    /// No thread panics while it holds this lock.
    fn failed(&self) -> MutexGuard<'_, Vec<FailedThread>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread does not count right and ends: the others take its place.
    fn fail(&self, thread: FailedThread) {
        self.failed().push(thread);
        // Whoever leads now may be waiting; the lock keeps it from missing this.
        drop(self.queue());
        self.changed.notify_all();
    }

    /// The place of thread `index` among those that count right.
    fn place(&self, index: usize) -> usize {
        let failed = self.failed();
        index - failed.iter().filter(|thread| thread.index < index).count()
    }

    /// What there is to do for thread `index`, as soon as there is something; `keeps` counters or not.
    fn next(&self, index: usize, keeps: bool) -> Next {
        let mut queue = self.queue();
        let mut since = None;
        loop {
            match queue.crew(self.place(index), &self.config) {
                Ok(Some(crew)) => {
                    let job = queue.waiting.pop_front().expect("there is a crew for it");
                    queue.busy += u32::from(crew.threads.get());
                    let waited = since.map_or(Duration::ZERO, |since: Instant| since.elapsed());
                    return Next::Count(job, crew, waited);
                }
                Err(NotThisOne) if keeps => return Next::StandBy,
                Ok(None) | Err(NotThisOne) if queue.closed => return Next::Closed,
                Ok(None) | Err(NotThisOne) => {
                    since.get_or_insert_with(Instant::now);
                    let woken = self.changed.wait(queue);
                    queue = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// A crew is done with its job.
    fn disband(&self, crew: Crew) {
        self.queue().busy -= u32::from(crew.threads.get());
        self.changed.notify_all();
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
            config,
            queue: Mutex::default(),
            changed: Condvar::new(),
            times: (0..config.threads)
                .map(|_| thread::Times::default())
                .collect(),
            failed: Mutex::default(),
        });
        let pool = Self { shared };
        for index in 0..pool.shared.times.len() {
            let (shared, make, left) = (pool.shared.clone(), make.clone(), left.clone());
            std::thread::Builder::new()
                .name(format!("count-{index}"))
                .spawn(move || thread::work(&shared, index, &*make, &left))?;
        }
        Ok(pool)
    }

    /// Queues jobs behind those that wait.
    pub(crate) fn push(&self, jobs: impl IntoIterator<Item = Arc<Job>>) {
        let mut queue = self.shared.queue();
        for job in jobs {
            let crews = || self.shared.config.crews(&job.plan);
            queue.crews.entry(job.plan.hash()).or_insert_with(crews);
            queue.waiting.push_back(job);
        }
        if queue.crews.len() > MOST_PLANS {
            let Queue { waiting, crews, .. } = &mut *queue;
            crews.retain(|plan, _| waiting.iter().any(|job| job.plan.hash() == *plan));
        }
        drop(queue);
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

    /// The threads that failed their canaries and have ended.
    pub(crate) fn failed_canaries(&self, now: Instant) -> FailedCanaries {
        let failed = self.shared.failed();
        let unproven = failed
            .iter()
            .map(|thread| now.saturating_duration_since(thread.proven))
            .max()
            .unwrap_or_default();
        FailedCanaries {
            threads: u32::try_from(failed.len()).unwrap_or(u32::MAX),
            unproven_ms: u64::try_from(unproven.as_millis()).unwrap_or(u64::MAX),
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
