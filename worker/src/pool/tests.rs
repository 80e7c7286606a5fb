//! What a pool does with results, cancelled jobs and panicking counters.

use std::{
    collections::HashMap,
    sync::{
        atomic::{AtomicBool, AtomicU32},
        mpsc,
    },
};

use common::{
    count::{CountError, Orientation, Setup},
    plan::Plan,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::{
    machine::{Failure, Outcome},
    testing::{endless, plan, work, wrong},
};

fn config(threads: u32) -> PoolConfig {
    PoolConfig {
        threads,
        kernel: Kernel::SCALAR,
        memory_bytes: u64::from(threads) << 20,
        crews: None,
        prove: |_| Ok(()),
    }
}

/// What leaves the threads, and what else they tell.
struct Leaving(UnboundedReceiver<Event>);

impl Leaving {
    fn blocking_recv(&mut self) -> Option<Left> {
        loop {
            match self.0.blocking_recv()? {
                Event::Left(left) => return Some(left),
                Event::Begun(..) | Event::Proven | Event::Unproven(_) => {}
            }
        }
    }
}

fn start(threads: u32, make: Arc<MakeCounter>) -> (Pool, Leaving) {
    start_with(config(threads), make)
}

fn start_with(config: PoolConfig, make: Arc<MakeCounter>) -> (Pool, Leaving) {
    let (sender, events) = unbounded_channel();
    let pool = Pool::start(config, make, &sender).unwrap();
    (pool, Leaving(events))
}

fn job(plan: &Plan, task: u64) -> Arc<Job> {
    Arc::new(Job::new(work(plan, task)))
}

fn task_of(left: &Left) -> u64 {
    left.work.lease.task.task.0
}

/// Panics on task 1, finds task 2 too large, and counts every other as its number.
struct Moody;

impl CountTask for Moody {
    fn count(&mut self, job: &Job) -> Result<u64, CountError> {
        match job.work.lease.task.task.0 {
            1 => panic!("a fault in task {}", 1),
            2 => Err(CountError::Overflow),
            task => Ok(task),
        }
    }
}

#[test]
fn every_task_is_counted_once_and_exactly() {
    let plan = plan(10);
    let (pool, mut left) = start(3, Arc::new(real_counter));
    let mut jobs: HashMap<_, _> = (0..plan.tasks())
        .map(|task| job(&plan, task))
        .map(|job| (job.work.lease, job))
        .collect();
    pool.push(jobs.values().cloned());
    let mut sum = 0;
    for _ in 0..plan.tasks() {
        let Left { work, outcome, .. } = left.blocking_recv().unwrap();
        let Outcome::Counted(count) = outcome else {
            panic!("{outcome:?}");
        };
        let job = jobs.remove(&work.lease).unwrap();
        assert_eq!(job.cost_done(), work.cost);
        sum += count;
    }
    assert_eq!(sum, 724);
    assert_eq!(pool.waiting(), 0);
    let times = pool.times();
    assert_eq!(times.len(), 3);
    assert!(times.iter().any(|times| times.busy > Duration::ZERO));
    drop(pool);
    assert!(left.blocking_recv().is_none(), "all threads end");
}

#[test]
fn a_cancelled_job_leaves_its_thread_to_the_next_one() {
    let plan = plan(10);
    let (make, begins) = endless();
    let (pool, mut left) = start(1, make);
    let (first, second) = (job(&plan, 0), job(&plan, 1));
    pool.push([first.clone(), second.clone()]);
    begins.recv().unwrap();
    assert_eq!(pool.waiting(), 1);
    first.cancel();
    let gone = left.blocking_recv().unwrap();
    assert!(matches!(gone.outcome, Outcome::Cancelled));
    assert_eq!(task_of(&gone), 0);
    begins.recv().unwrap();
    second.cancel();
    assert_eq!(task_of(&left.blocking_recv().unwrap()), 1);
}

#[test]
fn a_job_cancelled_while_it_waits_is_never_counted() {
    let plan = plan(10);
    let (make, begins) = endless();
    let (pool, mut left) = start(1, make);
    let (first, second, third) = (job(&plan, 0), job(&plan, 1), job(&plan, 2));
    second.cancel();
    pool.push([first.clone(), second, third.clone()]);
    begins.recv().unwrap();
    let leases = BTreeSet::from([first.work.lease, third.work.lease]);
    assert_eq!(pool.take_back(&leases), [third.work.lease], "one has begun");
    assert_eq!(pool.take_back(&leases), []);
    first.cancel();
    let order: Vec<_> = (0..2)
        .map(|_| task_of(&left.blocking_recv().unwrap()))
        .collect();
    assert_eq!(order, [0, 1]);
    drop(pool);
    assert!(left.blocking_recv().is_none());
    assert!(begins.recv().is_err(), "only the first one was begun");
}

#[test]
fn a_closed_pool_forgets_what_waits() {
    let plan = plan(10);
    let (make, begins) = endless();
    let (pool, mut left) = start(1, make);
    let first = job(&plan, 0);
    pool.push([first.clone(), job(&plan, 1), job(&plan, 2)]);
    begins.recv().unwrap();
    assert_eq!(pool.waiting(), 2);
    drop(pool);
    first.cancel();
    assert_eq!(task_of(&left.blocking_recv().unwrap()), 0);
    assert!(left.blocking_recv().is_none());
}

#[test]
fn a_panic_costs_one_task_and_not_the_thread() {
    let plan = plan(10);
    let make =
        |_: &Plan, _: &Setup| -> Result<Box<dyn CountTask>, SetupError> { Ok(Box::new(Moody)) };
    let (pool, mut left) = start(1, Arc::new(make));
    pool.push((0..4).map(|task| job(&plan, task)));
    let outcomes: Vec<_> = (0..4)
        .map(|_| match left.blocking_recv().unwrap().outcome {
            Outcome::Counted(count) => count.to_string(),
            Outcome::Cancelled => "cancelled".to_owned(),
            Outcome::Failed(failure) => failure.to_string(),
        })
        .collect();
    assert_eq!(
        outcomes,
        [
            "0",
            "the counting thread panicked: a fault in task 1",
            "the weighted count passes 64 bits",
            "3"
        ]
    );
}

#[test]
fn a_plan_that_cannot_be_set_up_fails_each_of_its_jobs() {
    let plan = plan(10);
    let make = |_: &Plan, setup: &Setup| -> Result<Box<dyn CountTask>, SetupError> {
        Err(SetupError::Memory {
            given: setup.memory_bytes,
            least: 1 << 40,
        })
    };
    let (pool, mut left) = start(1, Arc::new(make));
    pool.push([job(&plan, 0), job(&plan, 1)]);
    for _ in 0..2 {
        let outcome = left.blocking_recv().unwrap().outcome;
        let Outcome::Failed(Failure::Setup(SetupError::Memory { given, .. })) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(given, 1 << 20);
    }
}

#[test]
fn counters_are_kept_between_tasks_of_one_plan() {
    let (made, makes) = mpsc::channel();
    let make = move |plan: &Plan, setup: &Setup| -> Result<Box<dyn CountTask>, SetupError> {
        made.send((plan.hash(), setup.orientation)).unwrap();
        real_counter(plan, setup)
    };
    let (pool, mut left) = start(1, Arc::new(make));
    let (eight, nine) = (plan(8), plan(9));
    pool.push([job(&eight, 0), job(&nine, 0), job(&eight, 1), job(&nine, 1)]);
    for _ in 0..4 {
        left.blocking_recv().unwrap();
    }
    drop(pool);
    assert!(left.blocking_recv().is_none());
    let makes: Vec<_> = makes.iter().collect();
    assert_eq!(
        makes,
        [
            (eight.hash(), Orientation::Upright),
            (nine.hash(), Orientation::Upright)
        ]
    );
}

/// Says which crew counts, then waits for the end of the test.
struct Member(mpsc::Sender<()>);

impl CountTask for Member {
    fn count(&mut self, job: &Job) -> Result<u64, CountError> {
        self.0.send(()).unwrap();
        while !job.is_cancelled() {
            std::thread::yield_now();
        }
        Err(CountError::Cancelled)
    }
}

#[test]
fn crews_share_threads_and_memory_and_no_thread_counts_beside_them() {
    let (begun, begins) = mpsc::channel();
    let (made, makes) = mpsc::channel();
    let make = move |_: &Plan, setup: &Setup| -> Result<Box<dyn CountTask>, SetupError> {
        made.send((setup.threads.get(), setup.memory_bytes))
            .unwrap();
        Ok(Box::new(Member(begun.clone())))
    };
    let crews = NonZeroU16::new(2);
    let config = PoolConfig {
        memory_bytes: 8 << 20,
        crews,
        ..config(5)
    };
    let (pool, mut left) = start_with(config, Arc::new(make));
    let plan = plan(10);
    let jobs: Vec<_> = (0..3).map(|task| job(&plan, task)).collect();
    pool.push(jobs.clone());
    for _ in 0..2 {
        begins.recv().unwrap();
    }
    // Three threads are left that lead no crew: the third job waits.
    assert_eq!(pool.waiting(), 1);
    let mut setups: Vec<_> = makes.try_iter().collect();
    setups.sort_unstable();
    assert_eq!(setups, [(2, 4 << 20), (3, 4 << 20)]);
    jobs[0].cancel();
    begins.recv().unwrap();
    assert_eq!(pool.waiting(), 0);
    jobs.iter().for_each(|job| job.cancel());
    for _ in 0..3 {
        let left = left.blocking_recv().unwrap();
        assert!(left.threads.get() >= 2, "{left:?}");
    }
    drop(pool);
    assert!(left.blocking_recv().is_none());
}

#[test]
fn a_thread_that_fails_its_canaries_takes_no_job_and_another_leads_in_its_place() {
    // The first thread leads the only crew, or one of three.
    for crews in [None, NonZeroU16::new(1)] {
        let config = PoolConfig {
            crews,
            prove: |_| match std::thread::current().name() {
                Some("count-0") => Err(wrong()),
                _ => Ok(()),
            },
            ..config(3)
        };
        let (pool, mut events) = start_with(config, Arc::new(real_counter));
        let plan = plan(9);
        pool.push((0..plan.tasks()).map(|task| job(&plan, task)));
        let (mut sum, mut begun, mut left, mut failed) = (0, 0, 0, Vec::new());
        while left < plan.tasks() || failed.is_empty() {
            match events.0.blocking_recv().unwrap() {
                Event::Begun(..) => begun += 1,
                Event::Proven => {}
                Event::Left(gone) => {
                    left += 1;
                    if let Outcome::Counted(count) = gone.outcome {
                        sum += count;
                    }
                }
                Event::Unproven(proven) => failed.push(proven),
            }
        }
        assert_eq!(sum, 352, "the others count");
        assert_eq!(begun, plan.tasks());
        assert_eq!(failed, [None], "it never was proven");
    }
}

#[test]
fn as_many_threads_prove_themselves_at_a_time_as_the_memory_is_for() {
    static NOW: AtomicU32 = AtomicU32::new(0);
    static MOST: AtomicU32 = AtomicU32::new(0);
    fn prove(_kernel: Kernel) -> Result<(), Wrong> {
        MOST.fetch_max(NOW.fetch_add(1, Relaxed) + 1, Relaxed);
        // Long enough for the others to get here, if anything lets them.
        (0..1000).for_each(|_| std::thread::yield_now());
        NOW.fetch_sub(1, Relaxed);
        Ok(())
    }
    for (memory_bytes, most) in [(1 << 20, 1), (3 * 16 * canary::PEAK_BYTES, 3)] {
        MOST.store(0, Relaxed);
        let config = PoolConfig {
            memory_bytes,
            prove,
            ..config(8)
        };
        let (pool, mut events) = start_with(config, Arc::new(real_counter));
        for _ in 0..8 {
            let event = events.0.blocking_recv().unwrap();
            assert!(matches!(event, Event::Proven), "{event:?}");
        }
        drop(pool);
        assert!(MOST.load(Relaxed) <= most, "{MOST:?} at a time");
    }
}

#[test]
fn a_canary_that_panics_has_failed() {
    let config = PoolConfig {
        prove: |_| panic!("a bad core"),
        ..config(2)
    };
    let (pool, mut events) = start_with(config, Arc::new(real_counter));
    for _ in 0..2 {
        let event = events.0.blocking_recv().unwrap();
        assert!(matches!(event, Event::Unproven(None)), "{event:?}");
    }
    drop(pool);
    assert!(events.0.blocking_recv().is_none());
}

#[test]
fn who_waits_to_prove_itself_when_the_pool_is_closed_does_not() {
    static PROOFS: AtomicU32 = AtomicU32::new(0);
    static CLOSED: AtomicBool = AtomicBool::new(false);
    let config = PoolConfig {
        prove: |_| {
            PROOFS.fetch_add(1, Relaxed);
            while !CLOSED.load(Relaxed) {
                std::thread::yield_now();
            }
            Ok(())
        },
        ..config(8)
    };
    let (pool, mut events) = start_with(config, Arc::new(real_counter));
    while PROOFS.load(Relaxed) == 0 {
        std::thread::yield_now();
    }
    drop(pool);
    CLOSED.store(true, Relaxed);
    while events.0.blocking_recv().is_some() {}
    assert_eq!(PROOFS.load(Relaxed), 1, "of those who waited none did");
}
