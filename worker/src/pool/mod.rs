//! Counting threads: OS threads outside the async runtime, fed from one queue.
//!
//! If the memory is too small for one task per thread, some threads lead crews, whose other members
//! the leader starts.

#[cfg(test)]
mod tests;

use std::{
    any::Any,
    collections::{BTreeSet, HashMap, VecDeque},
    io, iter,
    ops::{ControlFlow, Range},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use accelerator::{Device, DeviceError};
use cli::{
    memory::{MemorySize, end_reservation, reserve},
    threads::TooLittleMemory,
};
use common::{
    compute::kernel::{Kernel, KernelName},
    count::{CountError, Counter, CounterConfig, Orientation, ProgressSink, SetupError},
    crew_layout::{CrewResources, Crews},
    messages::run::LeaseKey,
    method::Method,
    plan::{Plan, PlanHash},
    self_test::{PEAK_BYTES, SelfTestError},
    text::plural,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{
    config::ComputeBudget,
    engine::{Failure, JobOutcome, JobResult, Work},
};

/// A function that counts known boards with a kernel.
pub(crate) type SelfTest = fn(Kernel) -> Result<(), SelfTestError>;

#[derive(Debug)]
pub(crate) enum PoolEvent {
    /// A thread started this job.
    Started(LeaseKey, Instant),
    /// A job left its thread; follows every [`Self::Started`] exactly once.
    Finished(JobResult),
    SelfTestPassed,
    /// A thread ended after a failed self-test; when it last passed one, if ever.
    SelfTestFailed(Option<Instant>),
}

/// Time of one thread, multiplied by the size of the crews it led.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadTimes {
    pub(crate) busy: Duration,
    /// Time between two jobs, excluding the time before the first and after the last.
    pub(crate) idle: Duration,
}

/// The queue and the threads that empty it.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    budget: ComputeBudget,
    self_test: SelfTest,
    queue: Mutex<Queue>,
    /// Signal that [`Self::queue`] has new jobs, idle or failed threads, or is closed.
    changed: Condvar,
    times: Mutex<Vec<ThreadTimes>>,
    /// Number of self-tests in progress, and a signal at the end of each.
    tests: (Mutex<u32>, Condvar),
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Arc<Job>>,
    closed: bool,
    /// Crews for the plans of the waiting and the most recent jobs.
    crews: HashMap<PlanHash, Result<Crews, TooLittleMemory>>,
    /// Whether a thread makes the crews of the first waiting job.
    is_dividing: bool,
    /// Number of threads that count, leaders and members.
    busy: u32,
    /// Threads that failed their self-test.
    failed: Vec<usize>,
}

/// Maximum number of plans whose crews are cached without a waiting job.
const MAX_PLANS: usize = 64;

/// Divisor of the memory for concurrent self-tests; one self-test may always run.
const SELF_TEST_SHARE: u64 = 16;

/// Time without a job after which a thread frees its counters: a paused or idle worker needs no memory.
const KEEP_COUNTERS: Duration = Duration::from_secs(10);

/// Maximum time until memory that was too little is reserved again.
///
/// Processes wait for a random part of it, so that they do not all reserve at the same moment again.
const MAX_PAUSE: Duration = Duration::from_secs(3);

/// The next step of a thread.
enum Next {
    /// Lead a crew, after waiting this long.
    Count(Arc<Job>, CrewResources, Duration),
    /// Free memory: this thread leads no crew of the first waiting job, or has been idle.
    FreeCounters,
    Closed,
}

/// Error for a thread that leads no crew of the first waiting job.
struct NotLeader;

impl Queue {
    /// Returns the plan of the first waiting job, unless it has crews or gets them.
    fn undivided(&self) -> Option<Plan> {
        let plan = &self.waiting.front()?.work.plan;
        let has_crews = self.is_dividing || self.crews.contains_key(&plan.hash());
        (!has_crews).then(|| plan.clone())
    }

    /// Returns the crew that thread `index` leads, if enough threads are idle.
    fn crew(
        &self,
        index: usize,
        budget: &ComputeBudget,
    ) -> Result<Option<CrewResources>, NotLeader> {
        let Some(job) = self.waiting.front() else {
            return Ok(None);
        };
        let crew = match self.crews.get(&job.work.plan.hash()) {
            Some(Ok(crews)) => {
                // The next threads replace those that failed.
                let rank = index - self.failed.iter().filter(|&&other| other < index).count();
                match u16::try_from(rank) {
                    Ok(rank) if rank < crews.number() => crews.crew(rank),
                    _ => return Err(NotLeader),
                }
            }
            // The counter returns the error.
            Some(Err(too_little)) => CrewResources {
                threads: std::num::NonZeroU16::MIN,
                memory_bytes: too_little.given.bytes() / u64::from(budget.threads.get()),
            },
            // Another thread makes them.
            None => return Err(NotLeader),
        };
        let enough = self.busy + u32::from(crew.threads.get()) <= budget.threads.get();
        Ok(enough.then_some(crew))
    }
}

/// Locks `mutex`; holders leave its value in a valid state, even if they panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Runs this thread's self-test once memory is free; `None` if the pool is closed.
    fn self_test(&self) -> Option<Result<(), String>> {
        let (running, finished) = &self.tests;
        let limit = self.budget.memory.bytes() / SELF_TEST_SHARE / PEAK_BYTES;
        let is_full = |running: &mut u32| u64::from(*running) >= limit.max(1);
        let waited = finished.wait_while(lock(running), is_full);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
        let test = || (self.self_test)(self.budget.kernel);
        let is_closed = lock(&self.queue).closed;
        let tested = (!is_closed).then(|| catch_unwind(AssertUnwindSafe(test)));
        release_to_os();
        *lock(running) -= 1;
        finished.notify_one();
        Some(match tested? {
            Ok(tested) => tested.map_err(|wrong| wrong.to_string()),
            Err(panic) => Err(format!("panic: {}", message(&*panic))),
        })
    }

    /// Removes a thread that failed its self-test.
    fn fail(&self, index: usize) {
        lock(&self.queue).failed.push(index);
        // Another thread may lead a crew in place of this one.
        self.changed.notify_all();
    }

    /// Waits for the next step of thread `index`, which may hold memory in counters.
    fn next(&self, index: usize, has_counters: bool) -> Next {
        let mut queue = lock(&self.queue);
        let mut since = None;
        loop {
            if let Some(plan) = queue.undivided() {
                queue.is_dividing = true;
                drop(queue);
                let crews = self.divide(&plan);
                queue = lock(&self.queue);
                queue.is_dividing = false;
                queue.crews.insert(plan.hash(), crews);
                self.changed.notify_all();
            }
            match queue.crew(index, &self.budget) {
                Ok(Some(crew)) => {
                    let job = queue.waiting.pop_front().expect("there is a crew for it");
                    queue.busy += u32::from(crew.threads.get());
                    let waited = since.map_or(Duration::ZERO, |since: Instant| since.elapsed());
                    return Next::Count(job, crew, waited);
                }
                Err(NotLeader) if has_counters => return Next::FreeCounters,
                Ok(None) | Err(NotLeader) if queue.closed => return Next::Closed,
                Ok(None) | Err(NotLeader) => {
                    let idle = since.get_or_insert_with(Instant::now).elapsed();
                    if has_counters && idle >= KEEP_COUNTERS {
                        if queue.busy == 0 && queue.waiting.is_empty() {
                            // The next task finds other memory.
                            queue.crews.clear();
                            end_reservation();
                        }
                        return Next::FreeCounters;
                    }
                    let woken = self.changed.wait_timeout(queue, KEEP_COUNTERS);
                    queue = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Reserves memory for tasks of a plan, and divides the threads into crews.
    fn divide(&self, plan: &Plan) -> Result<Crews, TooLittleMemory> {
        let budget = &self.budget;
        let crews = budget.reserved_crews(plan, reserve, || {
            end_reservation();
            release_to_os();
            std::thread::sleep(MAX_PAUSE.mul_f64(rand::random()));
        })?;
        let (spec, threads) = (plan.spec(), plural(budget.threads.get(), "thread"));
        tracing::info!(
            "N = {} by method {}: {threads}, {}: {crews}",
            spec.board,
            spec.layout.method(),
            MemorySize::at_least(crews.memory_bytes())
        );
        Ok(crews)
    }

    /// Frees the threads of a crew that finished its job.
    fn disband(&self, crew: CrewResources) {
        lock(&self.queue).busy -= u32::from(crew.threads.get());
        self.changed.notify_all();
    }
}

impl Pool {
    /// Starts the threads; the event channel closes when all have ended.
    ///
    /// The number of jobs bounds the length of the channel.
    pub(crate) fn start(
        budget: ComputeBudget,
        devices: &[Arc<Device>],
        self_test: SelfTest,
        make: Arc<MakeCounter>,
    ) -> io::Result<(Self, UnboundedReceiver<PoolEvent>)> {
        let (sender, events) = unbounded_channel();
        let threads = budget.threads.get() as usize;
        let shared = Arc::new(Shared {
            budget,
            self_test,
            queue: Mutex::default(),
            changed: Condvar::new(),
            times: Mutex::new(vec![ThreadTimes::default(); threads]),
            tests: Default::default(),
        });
        let pool = Self { shared };
        let feeds = |device: &Arc<Device>| iter::repeat_n(device.clone(), device.joins());
        let mut devices = devices.iter().flat_map(feeds);
        for index in 0..threads {
            let (shared, make, events) = (pool.shared.clone(), make.clone(), sender.clone());
            let device = devices.next();
            std::thread::Builder::new()
                .name(format!("count-{index}"))
                .spawn(move || work(&shared, index, device, &*make, &events))?;
        }
        Ok((pool, events))
    }

    /// Appends jobs to the queue.
    pub(crate) fn push(&self, jobs: impl IntoIterator<Item = Arc<Job>>) {
        let mut queue = lock(&self.shared.queue);
        if queue.waiting.is_empty() {
            // Memory that was missing may be free by now.
            queue.crews.retain(|_, crews| crews.is_ok());
        }
        queue.waiting.extend(jobs);
        if queue.crews.len() > MAX_PLANS {
            let Queue { waiting, crews, .. } = &mut *queue;
            crews.retain(|plan, _| waiting.iter().any(|job| job.work.plan.hash() == *plan));
        }
        drop(queue);
        self.shared.changed.notify_all();
    }

    /// Removes the waiting jobs of `leases`, and returns the leases of removed jobs.
    pub(crate) fn remove_waiting(&self, leases: &BTreeSet<LeaseKey>) -> Vec<LeaseKey> {
        let mut queue = lock(&self.shared.queue);
        let (removed, remaining) = queue
            .waiting
            .drain(..)
            .partition::<VecDeque<_>, _>(|job| leases.contains(&job.work.lease));
        queue.waiting = remaining;
        removed.iter().map(|job| job.work.lease).collect()
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.shared.queue).waiting.len()
    }

    /// Returns the number of threads, including those that failed their self-test.
    pub(crate) fn threads(&self) -> u32 {
        self.shared.budget.threads.get()
    }

    pub(crate) fn times(&self) -> Vec<ThreadTimes> {
        lock(&self.shared.times).clone()
    }
}

impl Drop for Pool {
    /// Drops the waiting jobs and ends every thread after its job.
    ///
    /// Deliberately no join: the event channel closes when all threads have ended.
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        queue.waiting.clear();
        drop(queue);
        self.shared.changed.notify_all();
    }
}

const SELF_TEST_INTERVAL: Duration = Duration::from_secs(3600);

/// Work with its progress.
///
/// The counting thread writes and the link reads. All orderings are relaxed: the values are
/// independent of each other, and a late read is harmless.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    cost_done: AtomicU64,
    cancelled: AtomicBool,
    /// Whether a device counted.
    on_device: AtomicBool,
}

impl Job {
    pub(crate) fn new(work: Work) -> Self {
        let (cancelled, on_device) = Default::default();
        Self { work, cost_done: AtomicU64::new(0), cancelled, on_device }
    }

    pub(crate) fn units(&self) -> Range<u64> {
        self.work.plan.task_units(self.work.lease.task.task)
    }

    /// Returns the finished part of the cost, at most all of it.
    pub(crate) fn cost_done(&self) -> u64 {
        self.cost_done.load(Relaxed).min(self.work.cost)
    }

    /// Asks the counting thread to stop.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }
}

impl ProgressSink for Job {
    fn advance(&self, cost_done: u64) -> ControlFlow<()> {
        self.cost_done.fetch_add(cost_done, Relaxed);
        if self.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// A function that counts tasks of one plan.
pub(crate) type CountTask = Box<dyn FnMut(&Job) -> Result<u64, CountError>>;

/// A function that creates counters for the tasks of a plan, on a device if there is one.
pub(crate) type MakeCounter = dyn Fn(&Plan, &CounterConfig, Option<&Arc<Device>>) -> Result<CountTask, SetupError>
    + Send
    + Sync;

/// Creates the counters of the real pool.
pub(crate) fn real_counter(
    plan: &Plan,
    setup: &CounterConfig,
    device: Option<&Arc<Device>>,
) -> Result<CountTask, SetupError> {
    let mut counter = counter_on(device, plan, setup)?;
    Ok(Box::new(move |job: &Job| {
        let count = counter.count(job.units(), job)?;
        job.on_device.store(counter.take_accelerated(), Relaxed);
        Ok(count)
    }))
}

/// Creates a counter that joins on the device, or on the CPU if there is none or it fails.
pub(crate) fn counter_on(
    device: Option<&Arc<Device>>,
    plan: &Plan,
    setup: &CounterConfig,
) -> Result<Counter, SetupError> {
    let counter = Counter::new(plan, setup)?;
    let Some(device) = device else { return Ok(counter) };
    Ok(match device.accelerator() {
        Ok(accelerator) => counter.with_accelerator(accelerator),
        Err(error) => {
            device.fail(error);
            counter
        }
    })
}

/// The counters of the most recent plans, newest last.
struct Counters<'a> {
    make: &'a MakeCounter,
    /// Device that this thread makes work for.
    device: Option<Arc<Device>>,
    /// The device that failed, until that is reported.
    failed: Option<Arc<Device>>,
    kernel: Kernel,
    cached: Vec<(PlanHash, Orientation, CountTask)>,
}

impl Counters<'_> {
    /// Returns the counter of `crew` for `job`; creates it if necessary.
    fn get(&mut self, job: &Job, crew: CrewResources) -> Result<&mut CountTask, SetupError> {
        let (plan, orientation) = (job.work.plan.hash(), job.work.orientation);
        let index = self.cached.iter().position(|entry| (entry.0, entry.1) == (plan, orientation));
        let entry = match index {
            Some(index) => self.cached.remove(index),
            None => {
                // A counter may use all memory of its crew, except with method `rows`.
                let others = match job.work.plan.spec().layout.method() {
                    Method::Rows => 3,
                    Method::Frames => 0,
                };
                self.cached.drain(..self.cached.len().saturating_sub(others));
                let setup = CounterConfig {
                    kernel: self.kernel,
                    threads: crew.threads,
                    memory_bytes: crew.memory_bytes,
                    orientation,
                };
                let counter = (self.make)(&job.work.plan, &setup, self.device.as_ref())?;
                (plan, orientation, counter)
            }
        };
        Ok(&mut self.cached.push_mut(entry).2)
    }

    fn count(&mut self, job: &Job, crew: CrewResources) -> JobOutcome {
        if job.is_cancelled() {
            return JobOutcome::Cancelled;
        }
        if self.device.as_ref().is_some_and(|device| device.failure().is_some()) {
            self.cached.clear();
            self.failed = self.device.take();
        }
        let counter = match self.get(job, crew) {
            Ok(counter) => counter,
            Err(error) => return JobOutcome::Failed(Failure::Setup(error)),
        };
        match counter(job) {
            Ok(count) => JobOutcome::Counted(count),
            Err(CountError::Cancelled) => JobOutcome::Cancelled,
            Err(CountError::Overflow) => JobOutcome::Failed(Failure::Overflow),
            // The device has failed, so that the CPU counts.
            Err(CountError::Device) => self.count(job, crew),
        }
    }
}

/// Counts jobs until the pool is closed.
///
/// Failed sends are ignored: the receiver may be closed, which ends the thread after its job.
fn work(
    shared: &Shared,
    index: usize,
    device: Option<Arc<Device>>,
    make: &MakeCounter,
    events: &UnboundedSender<PoolEvent>,
) {
    let kernel = shared.budget.kernel;
    let mut counters = Counters { make, device, failed: None, kernel, cached: Vec::new() };
    let mut is_first = true;
    let mut passed: Option<Instant> = None;
    loop {
        if passed.is_none_or(|passed| passed.elapsed() >= SELF_TEST_INTERVAL) {
            // The test needs the memory of the counters.
            counters.cached.clear();
            let started = Instant::now();
            match shared.self_test() {
                None => return,
                Some(Ok(())) => {
                    // A device is also tested when it is opened.
                    if passed.is_some()
                        && let Some(device) = &counters.device
                        && let Err(error) = device.self_test()
                    {
                        device.fail(error);
                        counters.failed = counters.device.take();
                        if end_of_device(index, &mut counters) {
                            shared.fail(index);
                            let _ = events.send(PoolEvent::SelfTestFailed(passed));
                            return;
                        }
                    }
                    tracing::debug!(
                        "thread {index} passed its self-test in {:?}",
                        started.elapsed()
                    );
                    passed = Some(Instant::now());
                    let _ = events.send(PoolEvent::SelfTestPassed);
                }
                Some(Err(wrong)) => {
                    tracing::error!(
                        "thread {index} failed its self-test and was stopped: {wrong}; check this \
                         machine's memory and processor"
                    );
                    shared.fail(index);
                    let _ = events.send(PoolEvent::SelfTestFailed(passed));
                    return;
                }
            }
        }
        let (job, crew, waited) = match shared.next(index, !counters.cached.is_empty()) {
            Next::Count(job, crew, waited) => (job, crew, waited),
            Next::FreeCounters => {
                counters.cached.clear();
                release_to_os();
                continue;
            }
            Next::Closed => return,
        };
        let members = u32::from(crew.threads.get());
        let started = Instant::now();
        let _ = events.send(PoolEvent::Started(job.work.lease, started));
        let counted = catch_unwind(AssertUnwindSafe(|| counters.count(&job, crew)));
        let outcome = counted.unwrap_or_else(|panic| {
            // The panic may have left a counter in an invalid state.
            counters.cached.clear();
            JobOutcome::Failed(Failure::Panic(message(&*panic)))
        });
        shared.disband(crew);
        let duration = started.elapsed() * members;
        {
            let times = &mut lock(&shared.times)[index];
            times.busy += duration;
            times.idle += if is_first { Duration::ZERO } else { waited * members };
        }
        is_first = false;
        let on_device = job.on_device.load(Relaxed);
        let kernel = if on_device { KernelName::OpenCl } else { kernel.name() };
        let (work, threads) = (job.work.clone(), crew.threads);
        let result = JobResult { work, outcome, kernel, duration, threads };
        if events.send(PoolEvent::Finished(result)).is_err() {
            return;
        }
        if end_of_device(index, &mut counters) {
            shared.fail(index);
            let _ = events.send(PoolEvent::SelfTestFailed(passed));
            return;
        }
    }
}

/// Logs why a device is not used any more; returns whether its earlier counts are suspect, as it counts wrongly.
fn end_of_device(index: usize, counters: &mut Counters<'_>) -> bool {
    let Some(device) = counters.failed.take() else { return false };
    let Some(error) = device.failure() else { return false };
    let is_wrong = matches!(error, DeviceError::Wrong(_));
    let next = if is_wrong { "the thread ends" } else { "the CPU counts on" };
    tracing::error!("thread {index}: {device} failed and is not used any more: {error}; {next}");
    is_wrong
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

/// Threshold of free bytes for trimming an arena after a self-test.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_BYTES: libc::c_int = 1 << 20;

/// The threshold while counting, which allocates and frees lists all the time.
///
/// glibc itself sets this value after long lists are freed; half of it is then the minimum length of
/// blocks that are mapped separately.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const COUNTING_TRIM_BYTES: libc::c_int = 64 << 20;

/// Returns freed memory to the system: glibc keeps some for every thread.
fn release_to_os() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: any thread may call these at any time, and the block is freed once, as it was allocated.
    unsafe {
        libc::malloc_trim(0);
        // The free end of this thread's arena remains. It is trimmed when a block is freed there and the
        // end is longer than the threshold.
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_BYTES);
        libc::free(std::hint::black_box(libc::malloc(1 << 16)));
        libc::mallopt(libc::M_TRIM_THRESHOLD, COUNTING_TRIM_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, COUNTING_TRIM_BYTES / 2);
    }
}
