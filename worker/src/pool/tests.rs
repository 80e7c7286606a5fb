//! Results, cancelled jobs, panics, crews and self-tests.

use std::{
    io::Write as _,
    num::NonZeroU16,
    sync::{atomic::AtomicU32, mpsc},
};

use accelerator::Tuning;
use common::{board::Board, method::Layout, plan::PlanSpec};

use super::*;
use crate::testing::{budget, counters, endless, plan, work, wrong};
use cli::memory::MemorySize;

/// A pool of one test and its events.
struct Bench {
    pool: Pool,
    events: UnboundedReceiver<PoolEvent>,
}

impl Bench {
    fn new(threads: u32, make: Arc<MakeCounter>) -> Self {
        Self::with(budget(threads), |_| Ok(()), make)
    }

    fn with(budget: ComputeBudget, self_test: SelfTest, make: Arc<MakeCounter>) -> Self {
        let (pool, events) = Pool::start(budget, &[], self_test, make).unwrap();
        Self { pool, events }
    }

    /// Starts a thread that feeds the first OpenCL device, which joins all lists; `None` if there is none.
    fn on_device(options: &'static str) -> Option<Self> {
        if accelerator::devices().is_empty() {
            let loud = "!! NOT TESTED: counts on OpenCL devices (apt-get install pocl-opencl-icd)";
            // The output of `eprintln!` is shown only if the test fails.
            let _ = writeln!(std::io::stderr(), "{loud}");
            return None;
        }
        let limit = Duration::from_secs(3_600);
        let tuning = Tuning { min_pairs: 0, build_cycles: 0, options, limit, ..Tuning::default() };
        let device = Device::open(0, None, tuning);
        let (pool, events) =
            Pool::start(budget(1), &[device.unwrap()], |_| Ok(()), Arc::new(real_counter)).unwrap();
        Some(Self { pool, events })
    }

    fn push(&self, plan: &Plan, tasks: std::ops::Range<u64>) -> Vec<Arc<Job>> {
        let jobs: Vec<_> = tasks.map(|task| Arc::new(Job::new(work(plan, task)))).collect();
        self.pool.push(jobs.clone());
        jobs
    }

    /// Waits for the next job that leaves its thread; returns its task and outcome.
    fn finished(&mut self) -> (u64, JobOutcome) {
        loop {
            if let PoolEvent::Finished(result) = self.events.blocking_recv().unwrap() {
                return (result.work.lease.task.task.0, result.outcome);
            }
        }
    }

    /// Closes the pool and returns the remaining results.
    fn close(self) -> Vec<PoolEvent> {
        self.close_and(|| {})
    }

    /// Closes the pool, calls `then`, and returns the remaining results.
    fn close_and(mut self, then: impl FnOnce()) -> Vec<PoolEvent> {
        drop(self.pool);
        then();
        let events = std::iter::from_fn(|| self.events.blocking_recv());
        events.filter(|event| matches!(event, PoolEvent::Finished(_))).collect()
    }
}

#[test]
fn every_task_is_counted_once_and_exactly() {
    let plan = plan(10);
    let mut bench = Bench::new(3, Arc::new(real_counter));
    let jobs = bench.push(&plan, 0..plan.tasks());
    let mut jobs: HashMap<_, _> =
        jobs.into_iter().map(|job| (job.work.lease.task.task.0, job)).collect();
    let mut sum = 0;
    for _ in 0..plan.tasks() {
        let (task, outcome) = bench.finished();
        let JobOutcome::Counted(count) = outcome else { panic!("{outcome:?}") };
        let job = jobs.remove(&task).unwrap();
        assert_eq!(job.cost_done(), job.work.cost);
        sum += count;
    }
    assert_eq!((sum, bench.pool.waiting()), (724, 0));
    let times = bench.pool.times();
    assert_eq!(times.len(), 3);
    assert!(times.iter().any(|times| times.busy > Duration::ZERO));
    assert!(bench.close().is_empty());
}

#[test]
fn a_job_cancelled_while_it_waits_is_never_counted() {
    let (plan, (make, started)) = (plan(10), endless());
    let mut bench = Bench::new(1, make);
    let jobs: Vec<_> = (0..3).map(|task| Arc::new(Job::new(work(&plan, task)))).collect();
    jobs[1].cancel();
    bench.pool.push(jobs.clone());
    started.recv().unwrap();
    let leases = BTreeSet::from([jobs[0].work.lease, jobs[2].work.lease]);
    assert_eq!(bench.pool.remove_waiting(&leases), [jobs[2].work.lease], "the other has started");
    assert_eq!(bench.pool.remove_waiting(&leases), []);
    jobs[0].cancel();
    assert!(matches!(bench.finished(), (0, JobOutcome::Cancelled)));
    assert!(matches!(bench.finished(), (1, JobOutcome::Cancelled)));
    assert!(bench.close().is_empty());
    assert!(started.recv().is_err(), "only the first one was counted");
}

#[test]
fn a_closed_pool_drops_waiting_jobs() {
    let (make, started) = endless();
    let bench = Bench::new(1, make);
    let jobs = bench.push(&plan(10), 0..3);
    started.recv().unwrap();
    assert_eq!(bench.pool.waiting(), 2);
    let finished = bench.close_and(|| jobs[0].cancel());
    assert_eq!(finished.len(), 1);
}

/// Returns the kernel and the count of the first result, and whether the thread ends with a failed self-test.
fn on_device(options: &'static str) -> Option<(KernelName, u64, bool)> {
    let Bench { pool, mut events } = Bench::on_device(options)?;
    let plan = Plan::new(PlanSpec::new(Board::new(8).unwrap(), Layout::Frames)).unwrap();
    pool.push([Arc::new(Job::new(work(&plan, 0)))]);
    let result = loop {
        match events.blocking_recv().unwrap() {
            PoolEvent::Finished(result) => break result,
            PoolEvent::Started(..) | PoolEvent::SelfTestPassed => {}
            PoolEvent::SelfTestFailed(_) => panic!("before the result"),
        }
    };
    drop(pool);
    let failed = matches!(events.blocking_recv(), Some(PoolEvent::SelfTestFailed(_)));
    let JobOutcome::Counted(count) = result.outcome else { panic!("{:?}", result.outcome) };
    Some((result.kernel, count, failed))
}

#[test]
fn a_device_counts_and_its_results_name_it() {
    let Some(on_device) = on_device("") else { return };
    assert_eq!(on_device, (KernelName::OpenCl, 92, false));
}

#[test]
fn the_cpu_counts_for_a_wrong_device_whose_thread_ends() {
    let Some((kernel, count, failed)) = on_device("-DWEIGHT_OF_FOURS=5") else { return };
    assert_eq!((kernel, count, failed), (Kernel::SCALAR.name(), 92, true));
}

/// A counter that says when it is dropped.
struct Dropped(mpsc::Sender<()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn an_idle_thread_frees_its_counters() {
    let (sender, dropped) = mpsc::channel();
    let make = move |_: &Plan, _: &CounterConfig, _: Option<&_>| -> Result<CountTask, SetupError> {
        let counter = Dropped(sender.clone());
        Ok(Box::new(move |_| {
            let _held = &counter;
            Ok(1)
        }))
    };
    let mut bench = Bench::new(1, Arc::new(make));
    bench.push(&plan(10), 0..1);
    bench.finished();
    dropped.recv_timeout(6 * KEEP_COUNTERS).expect("the pool is idle");
}

#[test]
fn a_panic_costs_one_task_and_not_the_thread() {
    let mut bench = Bench::new(
        1,
        counters(|_, job| match job.work.lease.task.task.0 {
            1 => panic!("a fault in task {}", 1),
            2 => Err(CountError::Overflow),
            task => Ok(task),
        }),
    );
    bench.push(&plan(10), 0..4);
    let outcomes = [(); 4].map(|()| match bench.finished().1 {
        JobOutcome::Counted(count) => count.to_string(),
        JobOutcome::Cancelled => "cancelled".to_owned(),
        JobOutcome::Failed(failure) => failure.to_string(),
    });
    let panicked = "the counting thread panicked: a fault in task 1";
    assert_eq!(outcomes, ["0", panicked, "the weighted count exceeds 64 bits", "3"]);
}

#[test]
fn a_plan_that_cannot_be_set_up_fails_each_of_its_jobs() {
    let make = |_: &Plan, setup: &CounterConfig, _: Option<&_>| -> Result<CountTask, SetupError> {
        Err(SetupError::Memory { given: setup.memory_bytes, least: 1 << 40 })
    };
    let mut bench = Bench::new(1, Arc::new(make));
    bench.push(&plan(10), 0..2);
    for _ in 0..2 {
        let outcome = bench.finished().1;
        let JobOutcome::Failed(Failure::Setup(SetupError::Memory { given, .. })) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(given, budget(1).crews(&plan(10)).unwrap().memory_bytes());
    }
}

#[test]
fn counters_are_reused_for_tasks_of_one_plan() {
    let (sender, calls) = mpsc::channel();
    let make = move |plan: &Plan,
                     setup: &CounterConfig,
                     device: Option<&_>|
          -> Result<CountTask, SetupError> {
        sender.send((plan.hash(), setup.orientation)).unwrap();
        real_counter(plan, setup, device)
    };
    let mut bench = Bench::new(1, Arc::new(make));
    let (eight, nine) = (plan(8), plan(9));
    for task in 0..2 {
        bench.push(&eight, task..task + 1);
        bench.push(&nine, task..task + 1);
    }
    (0..4).for_each(|_| drop(bench.finished()));
    assert!(bench.close().is_empty());
    let calls: Vec<_> = calls.iter().collect();
    assert_eq!(calls, [(eight.hash(), Orientation::Upright), (nine.hash(), Orientation::Upright)]);
}

#[test]
fn crews_share_threads_and_memory_and_no_other_thread_counts() {
    let (make, started) = endless();
    let memory = MemorySize::new(8 << 20).unwrap();
    let crews = ComputeBudget { memory, crews: NonZeroU16::new(2), ..budget(5) };
    let mut bench = Bench::with(crews, |_| Ok(()), make);
    let jobs = bench.push(&plan(10), 0..3);
    let mut setups =
        [(); 2].map(|()| started.recv().unwrap()).map(|s| (s.threads.get(), s.memory_bytes));
    // The remaining three threads lead no crew, so the third job waits.
    assert_eq!(bench.pool.waiting(), 1);
    setups.sort_unstable();
    let each = crews.crews(&plan(10)).unwrap().memory_bytes() / 2;
    assert_eq!(setups, [(2, each), (3, each)]);
    jobs[0].cancel();
    started.recv().unwrap();
    assert_eq!(bench.pool.waiting(), 0);
    jobs.iter().for_each(|job| job.cancel());
    let mut finished = 0;
    while finished < 3 {
        if let PoolEvent::Finished(result) = bench.events.blocking_recv().unwrap() {
            assert!(result.threads.get() >= 2, "{result:?}");
            finished += 1;
        }
    }
    assert!(bench.close().is_empty());
}

#[test]
fn a_thread_that_fails_its_self_test_takes_no_job_and_another_leads_in_its_place() {
    // The first thread leads the only crew, or one of three.
    for crews in [None, NonZeroU16::new(1)] {
        let self_test: SelfTest = |_| match std::thread::current().name() {
            Some("count-0") => Err(wrong()),
            _ => Ok(()),
        };
        let budget = ComputeBudget { crews, ..budget(3) };
        let mut bench = Bench::with(budget, self_test, Arc::new(real_counter));
        let plan = plan(9);
        bench.push(&plan, 0..plan.tasks());
        let (mut sum, mut started, mut finished, mut failed) = (0, 0, 0, Vec::new());
        while finished < plan.tasks() || failed.is_empty() {
            match bench.events.blocking_recv().unwrap() {
                PoolEvent::Started(..) => started += 1,
                PoolEvent::SelfTestPassed => {}
                PoolEvent::Finished(result) => {
                    finished += 1;
                    if let JobOutcome::Counted(count) = result.outcome {
                        sum += count;
                    }
                }
                PoolEvent::SelfTestFailed(passed) => failed.push(passed),
            }
        }
        assert_eq!((sum, started), (352, plan.tasks()), "the others count");
        assert_eq!(failed, [None], "the thread never passed a self-test");
    }
}

#[test]
fn the_memory_limits_concurrent_self_tests() {
    static RUNNING: AtomicU32 = AtomicU32::new(0);
    static MOST: AtomicU32 = AtomicU32::new(0);
    fn self_test(_kernel: Kernel) -> Result<(), SelfTestError> {
        MOST.fetch_max(RUNNING.fetch_add(1, Relaxed) + 1, Relaxed);
        // Long enough for other tests to start, unless the limit stops them.
        (0..1000).for_each(|_| std::thread::yield_now());
        RUNNING.fetch_sub(1, Relaxed);
        Ok(())
    }
    for (bytes, limit) in [(1 << 20, 1), (3 * 16 * PEAK_BYTES, 3)] {
        MOST.store(0, Relaxed);
        let budget = ComputeBudget { memory: MemorySize::new(bytes).unwrap(), ..budget(8) };
        let mut bench = Bench::with(budget, self_test, Arc::new(real_counter));
        for _ in 0..8 {
            let event = bench.events.blocking_recv().unwrap();
            assert!(matches!(event, PoolEvent::SelfTestPassed), "{event:?}");
        }
        assert!(bench.close().is_empty());
        assert!(MOST.load(Relaxed) <= limit, "{MOST:?} at a time");
    }
}

#[test]
fn a_self_test_that_panics_has_failed() {
    let mut bench = Bench::with(budget(2), |_| panic!("a bad core"), Arc::new(real_counter));
    for _ in 0..2 {
        let event = bench.events.blocking_recv().unwrap();
        assert!(matches!(event, PoolEvent::SelfTestFailed(None)), "{event:?}");
    }
    assert!(bench.close().is_empty());
}

#[test]
fn self_tests_that_wait_for_memory_are_skipped_when_the_pool_is_closed() {
    static TESTS: AtomicU32 = AtomicU32::new(0);
    static CLOSED: AtomicBool = AtomicBool::new(false);
    let self_test: SelfTest = |_| {
        TESTS.fetch_add(1, Relaxed);
        while !CLOSED.load(Relaxed) {
            std::thread::yield_now();
        }
        Ok(())
    };
    let Bench { pool, mut events } = Bench::with(budget(8), self_test, Arc::new(real_counter));
    while TESTS.load(Relaxed) == 0 {
        std::thread::yield_now();
    }
    drop(pool);
    CLOSED.store(true, Relaxed);
    while events.blocking_recv().is_some() {}
    assert_eq!(TESTS.load(Relaxed), 1);
}
