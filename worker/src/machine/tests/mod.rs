//! The machine as a whole: what it tells, asks for, keeps and gives back.

mod leases;
mod pauses;
mod results;
mod stops;

use std::{
    collections::BTreeMap,
    io,
    num::NonZeroU16,
    sync::{Arc, Mutex},
};

use common::{
    count::SetupError,
    kernel::KernelName,
    run::{Epoch, SessionId, TaskRef, WorkerId},
};

use proto::limits;

use super::*;
use crate::testing::{grant, lease, plan, sample_partial, work};

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(25);

fn settings() -> Settings {
    Settings {
        info: WorkerInfo {
            id: WorkerId(5),
            session: SessionId(6),
            name: "tester".to_owned(),
            version: "0".to_owned(),
            kernel: KernelName::Scalar,
            threads: 2,
            memory_bytes_per_thread: 1 << 24,
            machine: 0,
        },
        idle_timeout: Some(60 * SECOND),
        drain_limit: LIMIT,
        kept: None,
    }
}

/// A machine, its time, and what it has ordered.
struct Bench {
    machine: Machine,
    plan: Plan,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self::with(settings())
    }

    fn with(settings: Settings) -> Self {
        let now = Instant::now();
        Self {
            machine: Machine::new(settings, now),
            plan: plan(10),
            now,
        }
    }

    /// One that was granted these tasks, and has ordered them.
    fn holding(tasks: impl IntoIterator<Item = u64>) -> Self {
        let mut bench = Self::new();
        bench.grant(tasks);
        bench
    }

    fn grant(&mut self, tasks: impl IntoIterator<Item = u64>) {
        let grants = tasks.into_iter().map(|task| grant(&self.plan, task));
        let reply = SyncReply {
            grants: grants.collect(),
            ..quiet()
        };
        self.exchange(reply);
        let made = Ok(self.plan.clone());
        self.machine.handle_plan(*self.plan.spec(), made, self.now);
        self.orders();
    }

    /// The next call, when it is due.
    fn call(&mut self) -> SyncRequest {
        loop {
            if let Some(request) = self.machine.poll_call(self.now) {
                return request;
            }
            if self.machine.poll_spool(self.now).is_some() {
                self.machine.handle_spooled(true, self.now);
            }
            let next = self.machine.poll_timeout(self.now).unwrap();
            assert!(next > self.now, "nothing happens");
            self.now = next;
            self.machine.handle_timeout(self.now);
        }
    }

    fn exchange(&mut self, reply: SyncReply) -> SyncRequest {
        let request = self.call();
        self.machine.handle_reply(reply, self.now);
        request
    }

    fn orders(&mut self) -> Vec<String> {
        let told = |order| match order {
            Order::Count(work) => format!("count {}", work.lease.task.task),
            Order::Stop(lease) => format!("stop {}", lease.task.task),
            Order::MakePlan(spec) => format!("plan {}", spec.board),
        };
        std::iter::from_fn(|| self.machine.poll_order())
            .map(told)
            .collect()
    }

    fn begin(&mut self, task: u64) {
        self.machine.handle_begun(lease(&self.plan, task), self.now);
    }

    fn leave(&mut self, task: u64, outcome: Outcome) {
        let left = Left {
            work: work(&self.plan, task),
            outcome,
            duration: Duration::from_millis(1500),
            threads: NonZeroU16::MIN,
        };
        self.machine.handle_left(left, self.now);
    }

    fn count(&mut self, task: u64) {
        self.leave(task, Outcome::Counted(task + 100));
    }

    fn accept(&self, tasks: impl IntoIterator<Item = u64>) -> SyncReply {
        let of = |task| acknowledge(&lease(&self.plan, task), Verdict::Accepted);
        SyncReply {
            acknowledgements: tasks.into_iter().map(of).collect(),
            ..quiet()
        }
    }
}

/// Nothing new; call again in 10 s.
fn quiet() -> SyncReply {
    SyncReply {
        next_sync_ms: 10_000,
        lease_ms: 60_000,
        ..SyncReply::default()
    }
}

fn acknowledge(lease: &LeaseKey, verdict: Verdict) -> Acknowledgement {
    Acknowledgement {
        task: lease.task,
        epoch: lease.epoch,
        verdict,
        reason: "a reason".to_owned(),
    }
}

/// The lines of the log that are written meanwhile.
fn said(work: impl FnOnce()) -> String {
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let lines = Arc::default();
    let log = Arc::clone(&lines);
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || Log(Arc::clone(&log)))
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    String::from_utf8(std::mem::take(&mut *lines.lock().unwrap())).unwrap()
}

fn held(request: &SyncRequest) -> Vec<u64> {
    request.held.iter().map(|held| held.task.task.0).collect()
}

fn partials(request: &SyncRequest) -> Vec<u64> {
    let tasks = request.partials.iter();
    tasks.map(|partial| partial.task.task.0).collect()
}
#[test]
fn the_first_call_is_at_once_and_asks_for_work() {
    let mut bench = Bench::new();
    let start = bench.now;
    assert!(bench.machine.is_call_due(start));
    let request = bench.call();
    assert_eq!(bench.now, start);
    assert_eq!(request.worker, settings().info);
    assert!(request.seconds_wanted > 0.0 && !request.draining);
    assert_eq!((held(&request), partials(&request)), (vec![], vec![]));
    assert!(
        !bench.machine.is_call_due(start + 60 * SECOND),
        "one at a time"
    );
    assert_eq!(
        bench.machine.poll_timeout(start),
        None,
        "it waits for the answer"
    );
}

#[test]
fn lost_calls_back_off_and_are_no_urgent_matter_then() {
    let mut bench = Bench::holding(0..2);
    bench.count(0);
    for (failures, seconds) in [(1, 1), (2, 2), (3, 4)] {
        bench.call();
        let wait = bench.machine.handle_lost_call(1.0, bench.now);
        assert_eq!(
            (bench.machine.failures(), wait),
            (failures, seconds * SECOND)
        );
        assert_eq!(
            bench.machine.poll_timeout(bench.now),
            Some(bench.now + wait)
        );
    }
    bench.exchange(quiet());
    assert_eq!(bench.machine.failures(), 0);
}

#[test]
fn a_starved_worker_waits_for_the_coordinators_time() {
    let mut bench = Bench::new();
    bench.exchange(quiet());
    let before = bench.now;
    assert!(bench.call().seconds_wanted > 0.0);
    assert_eq!(bench.now - before, 10 * SECOND);
}

#[test]
fn who_has_nothing_to_do_says_why_once_a_minute() {
    let starving = SyncReply {
        reason: "every task is counted".to_owned(),
        ..quiet()
    };
    let starve = |mut bench: Bench, calls: u32| {
        let lines = said(|| {
            for _ in 0..calls {
                assert!(bench.exchange(starving.clone()).seconds_wanted > 0.0);
            }
        });
        lines
            .matches("waiting for work: every task is counted")
            .count()
    };
    // Every ten seconds: at once, after one minute, and after two.
    assert_eq!(starve(Bench::new(), 13), 3);
    assert_eq!(starve(Bench::holding([0]), 13), 0, "it has something to do");
}

#[test]
fn three_panics_are_a_fault_of_the_program() {
    let mut bench = Bench::holding(0..4);
    for task in 0..3 {
        assert_eq!(bench.machine.poll_end(bench.now), None);
        assert!(!bench.call().draining);
        bench.machine.handle_reply(quiet(), bench.now);
        bench.leave(
            task,
            Outcome::Failed(Failure::Panic("at the disco".to_owned())),
        );
    }
    assert_eq!(bench.orders(), ["stop 3"]);
    let request = bench.exchange(quiet());
    assert!(request.draining);
    assert_eq!(request.seconds_wanted, 0.0);
    assert_eq!(
        bench.machine.poll_end(bench.now),
        Some(Ended::Faulty { panics: 3 })
    );
}

#[test]
fn slots_that_fail_their_canaries_are_told_and_the_last_one_ends_the_worker() {
    let mut bench = Bench::new();
    let proven = bench.now;
    bench.now += 7 * SECOND;
    bench
        .machine
        .handle_failed_canaries(Some(proven), bench.now);
    let request = bench.exchange(quiet());
    assert!(!request.draining);
    assert_eq!(request.failed_canaries.threads, 1);
    assert_eq!(request.failed_canaries.unproven_ms, 7_000);
    let now = Some(bench.now);
    bench.machine.handle_failed_canaries(now, bench.now);
    let request = bench.exchange(quiet());
    assert!(request.draining);
    assert_eq!(request.failed_canaries.threads, 2);
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Unproven));
}

#[test]
fn proofs_are_told() {
    let mut bench = Bench::new();
    bench.machine.handle_proof();
    bench.machine.handle_proof();
    assert_eq!(bench.exchange(quiet()).failed_canaries.passed, 2);
}

#[test]
fn who_asked_for_nothing_is_not_starved_by_getting_nothing() {
    let mut bench = Bench::new();
    bench.exchange(SyncReply {
        grants: vec![grant(&bench.plan, 0)],
        ..quiet()
    });
    // Nothing is asked for while the plan is made.
    assert_eq!(bench.exchange(quiet()).seconds_wanted, 0.0);
    let made = Ok(bench.plan.clone());
    bench
        .machine
        .handle_plan(*bench.plan.spec(), made, bench.now);
    let before = bench.now;
    assert!(bench.call().seconds_wanted > 0.0);
    assert!(bench.now - before < SECOND, "{:?}", bench.now - before);
}

#[test]
fn a_failed_slot_is_not_asked_for() {
    let asks = |failed: u32| {
        let mut bench = Bench::holding(0..20);
        for task in 0..20 {
            bench.begin(task);
            bench.count(task);
        }
        (0..failed).for_each(|_| bench.machine.handle_failed_canaries(None, bench.now));
        bench.grant(20..30);
        bench.call().seconds_wanted
    };
    // The same stock lasts longer for half the slots.
    assert!(asks(1) < asks(0), "{} and {}", asks(1), asks(0));
}
