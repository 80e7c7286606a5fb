//! The driver's own thread, one request at a time.

use common::{
    board::Board,
    count::{Counter, Orientation, Setup, Unwatched},
    kernel::{Kernel, KernelName},
    method::Layout,
    plan::{Plan, PlanSpec},
    run::{Partial, SessionId, WorkerId},
    sync::{FailedCanaries, Grant, SyncReply, SyncRequest, Verdict, WorkerInfo},
};

use super::*;
use crate::{checks::CheckOutcome, ledger::Recheck};
use crate::{sched::Config, store::MemoryStore};

/// A driver that is not started, with one small run.
struct Bench {
    driver: Driver,
    handle: DriverHandle,
    run: RunId,
    /// What workers say of theirs.
    canaries: FailedCanaries,
}

impl Bench {
    fn new() -> Self {
        let scheduler = Scheduler::new(Config::default(), 1);
        let store = Box::new(MemoryStore::new());
        let (mut driver, handle) = Driver::new(scheduler, store, Clock::start()).unwrap();
        let spec = PlanSpec {
            board: Board::new(8).unwrap(),
            layout: Layout::FirstRows,
            task_cost: 1,
        };
        let plan = Plan::new(spec).unwrap();
        let manifest = new_manifest(&plan, 0, Millis(1));
        driver.create(&manifest, plan, Recheck::default()).unwrap();
        driver.commit().unwrap();
        Self {
            driver,
            handle,
            run: manifest.run,
            canaries: FailedCanaries::default(),
        }
    }

    /// Handles one call of worker `id`, without committing it.
    fn call(&mut self, id: u128, partials: Vec<Partial>) -> oneshot::Receiver<SyncReply> {
        let request = SyncRequest {
            worker: WorkerInfo {
                id: WorkerId(id),
                session: SessionId(1),
                name: format!("worker {id}"),
                version: String::new(),
                kernel: KernelName::Scalar,
                threads: 1,
                memory_bytes_per_thread: 1 << 30,
                machine: u64::try_from(id).unwrap(),
            },
            held: Vec::new(),
            partials,
            seconds_wanted: 1000.0,
            draining: false,
            paused: String::new(),
            failed_canaries: self.canaries,
        };
        let (reply, answer) = oneshot::channel();
        let request = Request::Sync(None, Box::new(request), reply);
        self.driver.handle(request).unwrap();
        answer
    }

    fn sync(&mut self, id: u128, partials: Vec<Partial>) -> SyncReply {
        let mut answer = self.call(id, partials);
        self.driver.commit().unwrap();
        answer.try_recv().unwrap()
    }

    /// Worker 1 counts everything; returns the last partial.
    fn count_all(&mut self) -> Partial {
        let mut grants = self.sync(1, Vec::new()).grants;
        let mut last = None;
        while !grants.is_empty() {
            let partials: Vec<_> = grants.iter().map(count).collect();
            last = partials.last().copied().or(last);
            grants = self.sync(1, partials).grants;
        }
        last.expect("the run has tasks")
    }

    /// Waits for the thread that counts the symmetric solutions and handles what it says.
    fn finished(&mut self) {
        let finished = self.driver.requests.blocking_recv().unwrap();
        assert!(matches!(finished, Request::Finished(..)));
        self.driver.handle(finished).unwrap();
    }

    fn outcome(&self) -> Option<Outcome> {
        self.handle.outcomes().borrow().get(&self.run).cloned()
    }

    fn state(&self) -> RunState {
        self.driver.summary(self.run).unwrap().state
    }
}

fn count(grant: &Grant) -> Partial {
    let plan = Plan::new(grant.spec).unwrap();
    let setup = Setup {
        kernel: Kernel::SCALAR,
        threads: std::num::NonZeroU16::MIN,
        memory_bytes: 1 << 20,
        orientation: Orientation::Upright,
    };
    let mut counter = Counter::new(&plan, &setup).unwrap();
    let units = plan.task_units(grant.task.task);
    Partial {
        task: grant.task,
        epoch: grant.epoch,
        count: counter.count(units, &Unwatched).unwrap(),
        kernel: KernelName::Scalar,
        orientation: Orientation::Upright,
        duration_us: 1,
    }
}

#[test]
fn an_end_and_a_contradiction_in_one_group_leave_no_outcome() {
    let mut bench = Bench::new();
    let last = bench.count_all();
    bench.finished();
    // Not committed yet: the same group takes a count that contradicts.
    let wrong = Partial {
        count: last.count + 1,
        ..last
    };
    let mut answer = bench.call(2, vec![wrong]);
    bench.driver.commit().unwrap();
    let reply = answer.try_recv().unwrap();
    assert_eq!(reply.acknowledgements[0].verdict, Verdict::Conflict);
    assert_eq!(bench.outcome(), None);
    assert_eq!(bench.state(), RunState::Running);
    // A third count decides, and the run comes to its end again.
    let reply = bench.sync(3, vec![last]);
    assert_eq!(reply.acknowledgements[0].verdict, Verdict::Accepted);
    assert_eq!(bench.outcome().map(|outcome| outcome.solutions), Some(92));
    assert_eq!(bench.state(), RunState::Complete);
}

#[test]
fn a_failed_canary_reopens_a_run_and_the_result_says_what_became_of_it() {
    let mut bench = Bench::new();
    bench.canaries.passed = 2;
    bench.count_all();
    bench.finished();
    bench.driver.commit().unwrap();
    let said = |bench: &Bench| {
        let checks = bench.outcome().expect("the run has ended").checks;
        let canaries = checks.into_iter().find(|check| check.name == "canaries");
        let canaries = canaries.expect("it is always said");
        (canaries.outcome, canaries.reason)
    };
    let (outcome, reason) = said(&bench);
    assert_eq!(outcome, CheckOutcome::Passed);
    assert!(
        reason.contains("1 worker") && reason.contains("2 proofs"),
        "{reason}"
    );
    // One of its threads then counts known boards wrong: the run goes on, for somebody else.
    bench.sync(2, Vec::new());
    bench.canaries = FailedCanaries {
        threads: 1,
        unproven_ms: 3_600_000,
        passed: 3,
    };
    bench.sync(1, Vec::new());
    assert_eq!((bench.outcome(), bench.state()), (None, RunState::Running));
    // Another machine finds nothing wrong.
    bench.canaries = FailedCanaries {
        passed: 1,
        ..FailedCanaries::default()
    };
    let mut grants = bench.sync(2, Vec::new()).grants;
    assert!(!grants.is_empty());
    while !grants.is_empty() {
        let partials = grants.iter().map(count).collect();
        grants = bench.sync(2, partials).grants;
    }
    let (outcome, reason) = said(&bench);
    assert_eq!(outcome, CheckOutcome::Passed);
    assert!(reason.contains("another machine has confirmed"), "{reason}");
    // The directory alone says the same.
    let fold = bench.driver.store.refold(bench.run).unwrap();
    let trust = bench.driver.store.trust().unwrap();
    assert_eq!(crate::checks::of_canaries(&fold, &trust).reason, reason);
    // Had it said nothing of proofs, nobody could tell; without the second counts it fails.
    let silent = crate::checks::of_canaries(&fold, &[]);
    assert_eq!(silent.outcome, CheckOutcome::NotPossible);
}

#[test]
fn being_asked_is_no_news() {
    let mut bench = Bench::new();
    let changes = bench.handle.changes();
    let version = *changes.borrow();
    for _ in 0..3 {
        let (reply, mut answer) = oneshot::channel();
        let request = Request::Status(Some(bench.run), reply);
        bench.driver.handle(request).unwrap();
        bench.driver.commit().unwrap();
        assert!(answer.try_recv().unwrap().is_some());
    }
    assert_eq!(*changes.borrow(), version);
    bench.sync(1, Vec::new());
    assert!(*changes.borrow() > version);
}

#[test]
fn symmetric_solutions_are_counted_once() {
    let mut bench = Bench::new();
    bench.count_all();
    bench.finished();
    bench.driver.commit().unwrap();
    let first = bench.outcome().expect("the run has ended");
    // What the next process does, on the same store.
    let scheduler = Scheduler::new(Config::default(), 2);
    let (mut driver, handle) = Driver::new(scheduler, bench.driver.store, Clock::start()).unwrap();
    driver.finish_restored_runs().unwrap();
    driver.commit().unwrap();
    assert_eq!(handle.outcomes().borrow().get(&bench.run), Some(&first));
    assert!(driver.finishing.is_empty());
}

#[test]
fn only_runs_that_are_over_are_deleted() {
    let mut bench = Bench::new();
    let run = bench.run;
    let live = bench.driver.delete(run).unwrap_err();
    assert!(live.to_string().contains("cancel it first"), "{live}");
    bench.count_all();
    bench.finished();
    bench.driver.commit().unwrap();
    assert_eq!(bench.driver.delete(run).unwrap().state, RunState::Complete);
    assert_eq!(bench.outcome(), None);
    assert!(bench.driver.scheduler.runs().is_empty());
    bench.driver.scheduler.audit().unwrap();
    let gone = bench.driver.delete(run).unwrap_err();
    assert!(gone.to_string().contains("no run"), "{gone}");
    // Whoever still speaks of it is told.
    let reply = bench.sync(1, Vec::new());
    assert!(reply.grants.is_empty(), "{reply:?}");
}
