//! Counting threads: plain OS threads beside the async runtime, fed from one queue. Where memory is too
//! short for a task a thread, some of them lead crews, whose other members the leader starts.

mod counters;
mod job;
#[cfg(test)]
mod tests;
mod thread;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    io,
    num::NonZeroU16,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use common::{
    canary::{self, Wrong},
    count::SetupError,
    crews::{Crew, Crews, Machine},
    kernel::Kernel,
    plan::{Plan, PlanHash},
};
use tokio::sync::mpsc::UnboundedSender;

use crate::summary::plural;

#[cfg(test)]
pub(crate) use counters::CountTask;
pub(crate) use counters::{MakeCounter, real_counter};
pub(crate) use job::Job;
pub(crate) use thread::ThreadTimes;

use crate::{
    machine::{LeaseKey, Left},
    memory::{self, MemorySize},
};

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
    /// How many threads may prove themselves at a time: what that takes is beside what counting may hold, which
    /// it is to be little of.
    fn most_proofs(&self) -> u32 {
        let proofs = self.memory_bytes / PROOFS_PART / canary::PEAK_BYTES;
        u32::try_from(proofs).unwrap_or(u32::MAX).max(1)
    }

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
            "N = {} by method {}: {}, {size}: {crews}",
            spec.board,
            spec.layout.method(),
            plural(u64::from(threads), "thread")
        );
        Ok(crews)
    }
}

/// Threads that prove themselves take this part of the memory at most, all together, or what one takes.
const PROOFS_PART: u64 = 16;

/// Counts what is known; why it came out wrong.
pub(crate) type Prove = fn(Kernel) -> Result<(), Wrong>;

/// What happens in a pool.
#[derive(Debug)]
pub(crate) enum Event {
    /// A thread began this job.
    Begun(LeaseKey, Instant),
    /// And this one left its thread. Every job that was begun does so exactly once.
    Left(Left),
    /// A thread has counted what is known right.
    Proven,
    /// A thread that was last proven then, or never, failed its canaries, and has ended.
    Unproven(Option<Instant>),
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
    /// How many threads prove themselves just now, and when one is done with it.
    proofs: (Mutex<u32>, Condvar),
    /// Threads that counted what is known wrong.
    failed: Mutex<Vec<usize>>,
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
        let crew = match self.crews.get(&job.work.plan.hash()) {
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

impl Shared {
    /// No thread panics while it holds this lock; even then the queue would be whole.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Proves that this thread counts right, as soon as there is memory for it; `Err` says what went wrong, be it
    /// a panic. Nothing once the pool is closed.
    fn prove(&self) -> Option<Result<(), String>> {
        let (proofs, done) = &self.proofs;
        let under_way = || proofs.lock().unwrap_or_else(PoisonError::into_inner);
        let most = self.config.most_proofs();
        let mut now = done
            .wait_while(under_way(), |now| *now >= most)
            .unwrap_or_else(PoisonError::into_inner);
        *now += 1;
        drop(now);
        let prove = || (self.config.prove)(self.config.kernel);
        let is_closed = self.queue().closed;
        let proven = (!is_closed).then(|| catch_unwind(AssertUnwindSafe(prove)));
        memory::give_back();
        *under_way() -= 1;
        done.notify_one();
        Some(match proven? {
            Ok(proven) => proven.map_err(|wrong| wrong.to_string()),
            Err(panic) => Err(format!("panic: {}", thread::message(&*panic))),
        })
    }

    /// No thread panics while it holds this lock.
    fn failed(&self) -> MutexGuard<'_, Vec<usize>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread does not count right and ends: the others take its place.
    fn fail(&self, index: usize) {
        self.failed().push(index);
        // Whoever leads now may be waiting; the lock keeps it from missing this.
        drop(self.queue());
        self.changed.notify_all();
    }

    /// The place of thread `index` among those that count right.
    fn place(&self, index: usize) -> usize {
        let failed = self.failed();
        index - failed.iter().filter(|other| **other < index).count()
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
    /// Starts the threads. What happens to jobs and threads is told to `events`; the channel closes
    /// when all threads have ended. It is bounded by the number of leases held.
    pub(crate) fn start(
        config: PoolConfig,
        make: Arc<MakeCounter>,
        events: &UnboundedSender<Event>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            config,
            queue: Mutex::default(),
            changed: Condvar::new(),
            times: (0..config.threads)
                .map(|_| thread::Times::default())
                .collect(),
            proofs: Default::default(),
            failed: Mutex::default(),
        });
        let pool = Self { shared };
        for index in 0..pool.shared.times.len() {
            let (shared, make, events) = (pool.shared.clone(), make.clone(), events.clone());
            std::thread::Builder::new()
                .name(format!("count-{index}"))
                .spawn(move || thread::work(&shared, index, &*make, &events))?;
        }
        Ok(pool)
    }

    /// Queues jobs behind those that wait.
    pub(crate) fn push(&self, jobs: impl IntoIterator<Item = Arc<Job>>) {
        let mut queue = self.shared.queue();
        for job in jobs {
            let crews = || self.shared.config.crews(&job.work.plan);
            queue
                .crews
                .entry(job.work.plan.hash())
                .or_insert_with(crews);
            queue.waiting.push_back(job);
        }
        if queue.crews.len() > MOST_PLANS {
            let Queue { waiting, crews, .. } = &mut *queue;
            crews.retain(|plan, _| waiting.iter().any(|job| job.work.plan.hash() == *plan));
        }
        drop(queue);
        self.shared.changed.notify_all();
    }

    /// Takes these jobs back where they still wait. The leases of those that did.
    pub(crate) fn take_back(&self, leases: &BTreeSet<LeaseKey>) -> Vec<LeaseKey> {
        let mut queue = self.shared.queue();
        let (taken, stay) = queue
            .waiting
            .drain(..)
            .partition::<VecDeque<_>, _>(|job| leases.contains(&job.work.lease));
        queue.waiting = stay;
        taken.iter().map(|job| job.work.lease).collect()
    }

    /// How many jobs wait for a thread.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.shared.queue().waiting.len()
    }

    /// How many threads there are, those that failed their canaries among them.
    pub(crate) fn threads(&self) -> u32 {
        self.shared.config.threads
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
    /// job. Deliberately no join: whoever must know waits for the channel of events to close.
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.closed = true;
        queue.waiting.clear();
        drop(queue);
        self.shared.changed.notify_all();
    }
}
