//! The referee's threads, which recount disputed and randomly selected tasks.
//!
//! The scheduler selects the tasks. The threads run at idle priority, except for urgent counts, which interrupt
//! the others, and allocate memory only while they count.

use std::{
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use cli::{memory::MemorySize, priority};
use common::{
    compute::kernel::Kernel,
    count::{CountError, Counter, CounterConfig, ProgressSink, SetupError},
    plan::{Plan, TaskId},
    self_test,
};
use scheduler::Recount;
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::driver::{DriverHandle, Stopped};

/// Minimum interval between requests for a task.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum interval between requests for a task.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Interval between checks for urgent counts.
const URGENT_POLL_INTERVAL: Duration = Duration::from_secs(1);

const SELF_TEST_INTERVAL: Duration = Duration::from_secs(3600);

/// Number of referee threads; 0 for off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefereeThreads(pub u16);

impl FromStr for RefereeThreads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(threads @ 1..) => Ok(Self(threads)),
            _ if text == "off" => Ok(Self(0)),
            _ => Err(format!("invalid number of threads '{text}': expected off, or at least 1")),
        }
    }
}

/// Threads, memory and kernel of the referee.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefereeBudget {
    pub(super) threads: RefereeThreads,
    /// Memory of all threads together.
    pub(super) memory: MemorySize,
    pub(super) kernel: Kernel,
}

impl RefereeBudget {
    pub(super) fn bytes_per_thread(&self) -> u64 {
        self.memory.bytes() / u64::from(self.threads.0.max(1))
    }
}

/// Runs the referee until the driver stops or a self-test fails.
pub(super) async fn serve(driver: DriverHandle, budget: RefereeBudget) -> anyhow::Result<()> {
    let mut threads = JoinSet::new();
    for _ in 0..budget.threads.0 {
        let one = Thread { driver: driver.clone(), budget, tested: None, plan: None };
        threads.spawn(one.serve());
    }
    while let Some(ended) = threads.join_next().await {
        if let Err(Failure::Unfit(why)) = ended? {
            threads.shutdown().await;
            tracing::error!(
                "the referee stopped: {why}; disputed tasks wait for a worker whose token is trusted"
            );
            let _ = driver.set_referee(0, 0).await;
        }
    }
    // The coordinator continues without a referee.
    std::future::pending().await
}

/// The reason why a thread returned no count.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The machine failed a self-test, or cannot start a thread.
    #[error("{0}")]
    Unfit(String),
    #[error("an urgent count comes first")]
    Interrupted(Recount),
    #[error(transparent)]
    Memory(#[from] SetupError),
    #[error(transparent)]
    Ended(#[from] CountError),
}

struct Thread {
    driver: DriverHandle,
    budget: RefereeBudget,
    /// Time of the last passed self-test.
    tested: Option<Instant>,
    /// The plan of the last task, cached because making a large one takes seconds.
    plan: Option<Plan>,
}

impl Thread {
    async fn serve(mut self) -> Result<(), Failure> {
        let mut changes = self.driver.changes();
        // The first self-test takes a while, so it runs before any task is due.
        let mut next = match self.run_self_test(false).await {
            Err(Failure::Interrupted(urgent)) => Some(urgent),
            tested => tested.map(|()| None)?,
        };
        loop {
            changes.borrow_and_update();
            if next.is_none() {
                next = self.driver.next_recount(false).await?;
            }
            while let Some(recount) = next {
                next = self.recount(recount).await?;
            }
            if let Ok(Err(_)) = timeout(MAX_POLL_INTERVAL, changes.changed()).await {
                return Ok(());
            }
            sleep(MIN_POLL_INTERVAL).await;
        }
    }

    /// Recounts a task; returns the next one, if known.
    async fn recount(&mut self, recount: Recount) -> Result<Option<Recount>, Failure> {
        let Some(plan) = self.plan_of(&recount).await? else {
            self.driver.recount_abandoned(recount, false).await?;
            return Ok(None);
        };
        let kernel = if recount.again { another(self.budget.kernel) } else { self.budget.kernel };
        let failure = match self.count(plan, &recount, kernel).await {
            Ok((count, duration)) => {
                let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
                self.driver.recounted(recount, count, kernel.name(), micros).await?;
                return Ok(self.driver.next_recount(false).await?);
            }
            Err(failure) => failure,
        };
        let for_memory = matches!(failure, Failure::Memory(_));
        self.driver.recount_abandoned(recount, for_memory).await?;
        match failure {
            Failure::Interrupted(urgent) => Ok(Some(urgent)),
            Failure::Memory(_) | Failure::Ended(_) => {
                tracing::warn!("run {}, {}: recount failed: {failure}", recount.run, recount.task);
                Ok(None)
            }
            Failure::Stopped(_) | Failure::Unfit(_) => Err(failure),
        }
    }

    async fn plan_of(&mut self, recount: &Recount) -> Result<Option<Plan>, Stopped> {
        if self.plan.as_ref().is_none_or(|plan| plan.hash() != recount.plan) {
            self.plan = self.driver.plan(recount.run).await?;
        }
        Ok(self.plan.clone())
    }

    /// Runs a self-test if it is due, then counts a task; returns count and duration.
    async fn count(
        &mut self,
        plan: Plan,
        recount: &Recount,
        kernel: Kernel,
    ) -> Result<(u64, Duration), Failure> {
        self.run_self_test(recount.is_urgent).await?;
        let config = CounterConfig {
            memory_bytes: self.budget.bytes_per_thread(),
            orientation: recount.orientation,
            kernel,
            ..CounterConfig::best(0)
        };
        let task = recount.task;
        self.run(recount.is_urgent, move |stop| count(&plan, task, &config, stop)).await?
    }

    /// Runs a self-test if it is due.
    async fn run_self_test(&mut self, is_urgent: bool) -> Result<(), Failure> {
        if self.tested.is_some_and(|tested| tested.elapsed() < SELF_TEST_INTERVAL) {
            return Ok(());
        }
        let kernel = self.budget.kernel;
        let tested = self.run(is_urgent, move |_| self_test::run(kernel)).await?;
        tested.map_err(|wrong| {
            Failure::Unfit(format!("{wrong}; this machine's memory or CPU may be faulty"))
        })?;
        self.tested = Some(Instant::now());
        Ok(())
    }

    /// Runs `work` on a new thread, at idle priority and until an urgent count is due, unless it is urgent itself.
    async fn run<T: Send + 'static>(
        &self,
        is_urgent: bool,
        work: impl FnOnce(&Stop) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let stop = Stop::default();
        let (sender, mut outcome) = oneshot::channel();
        let watched = stop.clone();
        let started = thread::Builder::new().name("referee".to_owned()).spawn(move || {
            // A lowered priority cannot be raised again, so every count has its own thread. On systems other
            // than Linux, a priority applies to the whole process.
            if cfg!(target_os = "linux") && !is_urgent {
                for problem in priority::lower() {
                    tracing::debug!("the referee's priority: {problem}");
                }
            }
            if let Ok(done) = catch_unwind(AssertUnwindSafe(|| work(&watched))) {
                // The receiver is gone if the coordinator exits.
                let _ = sender.send(done);
            }
        });
        started.map_err(|error| Failure::Unfit(format!("a thread cannot be started: {error}")))?;
        loop {
            tokio::select! {
                done = &mut outcome => {
                    return done.map_err(|_| Failure::Unfit("a counting thread panicked".to_owned()));
                }
                () = sleep(URGENT_POLL_INTERVAL), if !is_urgent => {
                    if let Some(urgent) = self.driver.next_recount(true).await? {
                        return Err(Failure::Interrupted(urgent));
                    }
                }
            }
        }
    }
}

/// Returns another kernel of this CPU; the same if there is none.
fn another(kernel: Kernel) -> Kernel {
    Kernel::available().into_iter().find(|other| *other != kernel).unwrap_or(kernel)
}

fn count(
    plan: &Plan,
    task: TaskId,
    config: &CounterConfig,
    stop: &Stop,
) -> Result<(u64, Duration), Failure> {
    let begun = Instant::now();
    let count = Counter::new(plan, config)?.count(plan.task_units(task), stop)?;
    Ok((count, begun.elapsed()))
}

/// A flag that stops a count once one of its clones is dropped.
#[derive(Clone, Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl ProgressSink for Stop {
    fn advance(&self, _cost_done: u64) -> ControlFlow<()> {
        if self.0.load(Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use common::{messages::run::Partial, method::Layout};
    use kit::FakeWorker;
    use scheduler::{
        Config, Scheduler,
        ledger::{Caller, Recheck},
    };
    use store::{Clock, MemoryStore, Store as _};

    use super::*;
    use crate::driver::{Driver, Submission, new_manifest};

    fn thread(driver: DriverHandle) -> Thread {
        let memory = MemorySize::at_least(1 << 28);
        let budget = RefereeBudget { threads: RefereeThreads(1), memory, kernel: Kernel::best() };
        Thread { driver, budget, tested: None, plan: None }
    }

    #[test]
    fn a_count_stops_when_its_caller_is_dropped_and_fails_without_memory() {
        let plan = kit::plan(12, Layout::Frames, 1);
        let stop = Stop::default();
        let counted = |task, memory_bytes| {
            let config = CounterConfig::best(memory_bytes);
            count(&plan, TaskId(task), &config, &stop).map(|(count, _)| count)
        };
        let all: u64 = (0..plan.tasks()).map(|task| counted(task, 1 << 28).unwrap()).sum();
        assert_eq!(all, 14_200);
        assert!(matches!(counted(0, 1), Err(Failure::Memory(_))));
        drop(stop.clone());
        let stopped = counted(0, 1 << 28);
        assert!(matches!(stopped, Err(Failure::Ended(CountError::Cancelled))), "{stopped:?}");
    }

    #[tokio::test]
    async fn a_self_test_runs_before_the_first_count_and_then_when_it_is_due() {
        let (scheduler, clock) = (Scheduler::new(Config::default(), 1), Clock::start());
        let (driver, _end) = Driver::start(scheduler, Box::new(MemoryStore::new()), clock).unwrap();
        let mut thread = thread(driver);
        thread.run_self_test(true).await.unwrap();
        let first = thread.tested;
        assert!(first.is_some(), "it ran a self-test");
        thread.run_self_test(true).await.unwrap();
        assert_eq!(thread.tested, first, "the self-test was not due");
        thread.tested = Instant::now().checked_sub(SELF_TEST_INTERVAL);
        thread.run_self_test(true).await.unwrap();
        assert!(thread.tested > first);
        let panicked = thread.run(true, |_| panic!("a count that goes wrong")).await;
        let panicked: Result<(), Failure> = panicked;
        assert!(matches!(panicked, Err(Failure::Unfit(_))));
    }

    /// Starts a driver whose run has two disputed tasks.
    async fn disputed() -> DriverHandle {
        let (scheduler, store) = (Scheduler::new(Config::default(), 1), MemoryStore::new());
        let (secret, clock) = (store.secret(), Clock::start());
        let (driver, _end) = Driver::start(scheduler, Box::new(store), clock).unwrap();
        driver.set_referee(1, 1 << 28).await.unwrap();
        let plan = kit::plan(8, Layout::FirstRows, 1);
        let manifest = new_manifest(&plan, 0, clock.now());
        let recheck = Recheck::default();
        let submission = Submission { manifest, plan, new_run: false, recheck };
        driver.submit(submission, None).await.unwrap();
        let call = async |id: u64, partials: Vec<Partial>| {
            let worker = FakeWorker { seconds_wanted: 1000.0, ..FakeWorker::new(id) };
            let caller = Caller::new(worker.id, None);
            driver.sync(caller, worker.report(partials)).await.unwrap()
        };
        let granted = call(1, Vec::new()).await.grants;
        let counts: Vec<_> = granted.iter().take(2).map(kit::count).collect();
        let wrong = |of: &Partial| Partial { count: of.count + 1, ..*of };
        let other = counts.iter().map(|of| kit::as_if_leased(secret, 2, wrong(of))).collect();
        call(1, counts).await;
        call(2, other).await;
        driver
    }

    #[tokio::test]
    async fn an_urgent_count_interrupts_others_and_is_never_interrupted() {
        let driver = disputed().await;
        let referee = thread(driver.clone());
        let (end, ended) = mpsc::channel();
        let urgent = referee.run(true, move |_| ended.recv());
        // One dispute is always unassigned.
        let others = async {
            for _ in 0..3 {
                let stopped = |stop: &Stop| {
                    while stop.advance(0).is_continue() {
                        thread::yield_now();
                    }
                };
                let interrupted = referee.run(false, stopped).await;
                let Err(Failure::Interrupted(urgent)) = interrupted else {
                    panic!("{interrupted:?}");
                };
                driver.recount_abandoned(urgent, false).await.unwrap();
            }
            end.send(()).unwrap();
        };
        let (counted, ()) = tokio::join!(urgent, others);
        assert!(matches!(counted, Ok(Ok(()))), "{counted:?}");
    }
}
