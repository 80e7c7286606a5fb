//! Tests of the driver, one request at a time.

use common::{
    compute::kernel::KernelName,
    messages::{
        run::Partial,
        sync::{SelfTestReport, SyncReply, SyncRequest, Verdict},
    },
    method::Layout,
};
use kit::FakeWorker;
use scheduler::{
    Command, Config,
    checks::CheckOutcome,
    ledger::{Caller, Recheck},
};
use store::MemoryStore;

use super::*;

/// A driver that is not started, with one small run.
struct Bench {
    driver: Driver,
    handle: DriverHandle,
    run: RunId,
    /// The report that every worker sends.
    self_test: SelfTestReport,
}

impl Bench {
    fn new() -> Self {
        let scheduler = Scheduler::new(Config::default(), 1);
        let store = Box::new(MemoryStore::new());
        let (mut driver, handle) = Driver::new(scheduler, store, Clock::start()).unwrap();
        let plan = kit::plan(8, Layout::FirstRows, 1);
        let manifest = new_manifest(&plan, 0, Millis(1));
        driver.create(&manifest, plan, Recheck::default(), &None).unwrap();
        driver.commit().unwrap();
        Self { driver, handle, run: manifest.run, self_test: SelfTestReport::default() }
    }

    /// Handles one call of worker `id`, without committing it.
    fn call(&mut self, id: u64, partials: Vec<Partial>) -> oneshot::Receiver<SyncReply> {
        let worker = FakeWorker { seconds_wanted: 1000.0, ..FakeWorker::new(id) };
        let request = SyncRequest { self_test: self.self_test, ..worker.report(partials) };
        let caller = Caller::new(worker.id, None);
        let (request, answer) = Request::new(true, move |driver| {
            Ok(driver.scheduler.sync_by(&caller, &request, driver.clock.now()))
        });
        self.driver.handle(request).unwrap();
        answer
    }

    fn sync(&mut self, id: u64, partials: Vec<Partial>) -> SyncReply {
        let mut answer = self.call(id, partials);
        self.driver.commit().unwrap();
        answer.try_recv().unwrap()
    }

    /// Returns the partial of another worker that had leased the task.
    fn leased(&self, id: u64, partial: Partial) -> Partial {
        kit::as_if_leased(self.driver.store.secret(), id, partial)
    }

    /// Counts all tasks as worker 1; returns the last partial.
    fn count_all(&mut self) -> Partial {
        let mut grants = self.sync(1, Vec::new()).grants;
        let mut last = None;
        while !grants.is_empty() {
            let partials: Vec<_> = grants.iter().map(kit::count).collect();
            last = partials.last().copied().or(last);
            grants = self.sync(1, partials).grants;
        }
        last.expect("the run has tasks")
    }

    /// Waits for the request with the symmetric counts, and handles it.
    fn finish_symmetric(&mut self) {
        assert!(self.driver.finishing.contains_key(&self.run));
        let runtime = runtime::Builder::new_current_thread().build().unwrap();
        let finished = runtime.block_on(self.driver.requests.next()).unwrap();
        self.driver.handle(finished).unwrap();
        assert!(self.driver.finishing.is_empty());
    }

    /// Counts all tasks as worker 1 and finishes the run.
    fn finish(&mut self) {
        self.count_all();
        self.finish_symmetric();
        self.driver.commit().unwrap();
    }

    fn outcome(&self) -> Option<Outcome> {
        self.handle.outcomes().borrow().get(&self.run).cloned()
    }

    fn state(&self) -> RunState {
        self.driver.summary(self.run).unwrap().state
    }
}

#[test]
fn a_completion_and_a_conflict_in_one_group_leave_no_outcome() {
    let mut bench = Bench::new();
    let last = bench.count_all();
    bench.finish_symmetric();
    // Not committed yet: the same group contains a conflicting count.
    let wrong = bench.leased(2, Partial { count: last.count + 1, ..last });
    let mut answer = bench.call(2, vec![wrong]);
    bench.driver.commit().unwrap();
    let reply = answer.try_recv().unwrap();
    assert_eq!(reply.acknowledgements[0].verdict, Verdict::Conflict);
    assert_eq!(bench.outcome(), None);
    assert_eq!(bench.state(), RunState::Running);
    // A third count does not settle the dispute; the referee's does, and the run finishes again.
    let third = bench.leased(3, last);
    let reply = bench.sync(3, vec![third]);
    assert_eq!(reply.acknowledgements[0].verdict, Verdict::Conflict);
    assert_eq!(bench.state(), RunState::Running);
    bench.driver.scheduler.set_referee(1, 1 << 30);
    let now = bench.driver.clock.now();
    let recount = bench.driver.scheduler.next_recount(false, now).expect("a dispute");
    bench.driver.scheduler.recounted(&recount, last.count, KernelName::Scalar, 1, now);
    // Do not wait for random recounts.
    bench.driver.scheduler.set_referee(0, 0);
    bench.driver.commit().unwrap();
    bench.sync(1, Vec::new());
    assert_eq!(bench.outcome().map(|outcome| outcome.solutions), Some(92));
    assert_eq!(bench.state(), RunState::Complete);
}

#[test]
fn a_complete_run_keeps_its_result_while_it_is_rechecked() {
    let mut bench = Bench::new();
    bench.finish();
    let before = bench.outcome().expect("the run has ended");
    let recheck = Command::Recheck(Recheck::All);
    bench.driver.control(bench.run, recheck, None).unwrap().unwrap();
    let mut grants = bench.sync(2, Vec::new()).grants;
    assert!(!grants.is_empty());
    while !grants.is_empty() {
        assert_eq!((bench.outcome().as_ref(), bench.state()), (Some(&before), RunState::Complete));
        let reason = bench.driver.status(Some(bench.run)).expect("a run").status.reason;
        assert!(reason.starts_with("complete, rechecking "), "{reason}");
        grants = bench.sync(2, grants.iter().map(kit::count).collect()).grants;
    }
    let after = bench.outcome().expect("a result");
    assert_eq!((after.solutions, bench.state()), (before.solutions, RunState::Complete));
    assert_ne!(after.checks, before.checks, "the checks include the rechecks");
    assert_eq!(bench.driver.status(Some(bench.run)).expect("a run").status.reason, "");
}

#[test]
fn a_failed_self_test_reopens_a_run_and_is_named_in_the_result() {
    let mut bench = Bench::new();
    bench.self_test.tests_passed = 2;
    bench.finish();
    let check = |bench: &Bench| {
        let checks = bench.outcome().expect("the run has ended").checks;
        let self_tests = checks.into_iter().find(|check| check.name == "self_tests");
        let self_tests = self_tests.expect("every result has this check");
        (self_tests.outcome, self_tests.reason)
    };
    let (outcome, reason) = check(&bench);
    assert_eq!(outcome, CheckOutcome::Passed);
    assert!(reason.contains("1 worker") && reason.contains("2 passed self-tests"), "{reason}");
    // Then a thread of worker 1 fails: the run is reopened for other workers.
    bench.sync(2, Vec::new());
    bench.self_test =
        SelfTestReport { failed_threads: 1, suspect_window_ms: 3_600_000, tests_passed: 3 };
    bench.sync(1, Vec::new());
    assert_eq!((bench.outcome(), bench.state()), (None, RunState::Running));
    // Another machine finds nothing wrong.
    bench.self_test = SelfTestReport { tests_passed: 1, ..SelfTestReport::default() };
    let mut grants = bench.sync(2, Vec::new()).grants;
    assert!(!grants.is_empty());
    while !grants.is_empty() {
        let partials = grants.iter().map(kit::count).collect();
        grants = bench.sync(2, partials).grants;
    }
    let (outcome, reason) = check(&bench);
    assert_eq!(outcome, CheckOutcome::Passed);
    assert!(reason.contains("other machines have since confirmed"), "{reason}");
    // The stored records give the same text.
    let fold = bench.driver.store.refold(bench.run).unwrap();
    let trust = bench.driver.store.trust().unwrap();
    assert_eq!(scheduler::checks::of_self_tests(&fold, &trust).reason, reason);
    // Without reported self-tests the check is not possible.
    let silent = scheduler::checks::of_self_tests(&fold, &[]);
    assert_eq!(silent.outcome, CheckOutcome::NotPossible);
}

#[test]
fn a_status_request_changes_no_version() {
    let mut bench = Bench::new();
    let changes = bench.handle.changes();
    let version = *changes.borrow();
    for _ in 0..3 {
        let run = bench.run;
        let (request, mut answer) = Request::new(false, move |driver| Ok(driver.status(Some(run))));
        bench.driver.handle(request).unwrap();
        bench.driver.commit().unwrap();
        assert!(answer.try_recv().unwrap().is_some());
    }
    assert_eq!(*changes.borrow(), version);
    bench.sync(1, Vec::new());
    assert!(*changes.borrow() > version);
}

#[tokio::test]
async fn the_status_of_an_idle_coordinator_is_renewed() {
    let scheduler = Scheduler::new(Config::default(), 1);
    let started = Driver::start(scheduler, Box::new(MemoryStore::new()), Clock::start());
    let (handle, end) = started.unwrap();
    let mut changes = handle.changes();
    let version = *changes.borrow();
    // Without workers and requests, nothing else changes; a frozen status never does.
    changes.wait_for(|now| *now > version).await.unwrap();
    handle.stop().await;
    end.await.unwrap().unwrap();
}

#[test]
fn symmetric_solutions_are_counted_once() {
    let mut bench = Bench::new();
    bench.finish();
    let first = bench.outcome().expect("the run has ended");
    // The next process starts another driver on the same store.
    let scheduler = Scheduler::new(Config::default(), 2);
    let (mut driver, handle) = Driver::new(scheduler, bench.driver.store, Clock::start()).unwrap();
    driver.finish_restored_runs().unwrap();
    driver.commit().unwrap();
    assert_eq!(handle.outcomes().borrow().get(&bench.run), Some(&first));
    assert!(driver.finishing.is_empty());
}

#[test]
fn counts_in_the_group_of_a_deletion_are_stored_before_it() {
    let mut bench = Bench::new();
    let last = bench.count_all();
    bench.finish_symmetric();
    bench.driver.commit().unwrap();
    // Not committed yet: a call that confirms a count of the finished run.
    let equal = bench.leased(2, last);
    let mut answer = bench.call(2, vec![equal]);
    bench.driver.delete(bench.run, None).unwrap().unwrap();
    bench.driver.commit().unwrap();
    assert_eq!(answer.try_recv().unwrap().acknowledgements[0].verdict, Verdict::Duplicate);
    assert_eq!((bench.outcome(), bench.driver.scheduler.snapshot().runs().len()), (None, 0));
    bench.driver.scheduler.snapshot().audit().unwrap();
    // A worker of the deleted run gets no more of its tasks.
    let reply = bench.sync(1, Vec::new());
    assert!(reply.grants.is_empty(), "{reply:?}");
}

#[test]
fn a_cancellation_and_a_deletion_name_their_token() {
    let mut bench = Bench::new();
    let run = bench.run;
    for name in ["anna", "otto"] {
        let cancelled = bench.driver.control(run, Command::Cancel, Some(Arc::from(name)));
        let cancelled_by = cancelled.unwrap().unwrap().cancelled_by;
        assert_eq!(cancelled_by.as_deref(), Some("anna"), "the first counts");
    }
    let report = bench.driver.status(Some(run)).unwrap();
    let text = view::status_text(&crate::message::status(&report), None, false, 0).unwrap();
    assert!(text.contains("cancelled by anna"), "{text}");
    let events = bench.driver.events(Some(run), 0).into_iter().map(|(_, event)| event);
    let events: Vec<_> = events.map(|event| (event.kind, event.by)).collect();
    let [submitted, cancelled] = [("submitted", ""), ("cancelled", "anna")]
        .map(|(kind, by)| (kind.to_owned(), by.to_owned()));
    assert_eq!(events, [submitted, cancelled]);
    bench.driver.delete(run, Some(Arc::from("otto"))).unwrap().unwrap();
    let (_, deleted) = bench.driver.events(None, 0).pop().unwrap();
    assert_eq!((deleted.kind.as_str(), deleted.by.as_str()), ("deleted", "otto"));
}

#[tokio::test]
async fn calls_of_workers_and_other_requests_take_turns() {
    let (senders, mut requests) = Requests::new();
    let (names, mut handled) = tokio::sync::mpsc::unbounded_channel();
    let request = |name: String| {
        let names = names.clone();
        let work = move |_: &mut Driver| {
            names.send(name).unwrap();
            Ok(())
        };
        Request::new(false, work).0
    };
    for number in 0..4 {
        senders.workers.send(request(format!("worker {number}"))).await.unwrap();
    }
    for number in 0..2 {
        senders.others.send(request(format!("other {number}"))).await.unwrap();
    }
    let mut bench = Bench::new();
    while let Some(request) = requests.try_next() {
        bench.driver.handle(request).unwrap();
    }
    let mut order = Vec::new();
    while let Ok(name) = handled.try_recv() {
        order.push(name);
    }
    let expected = ["other 0", "worker 0", "other 1", "worker 1", "worker 2", "worker 3"];
    assert_eq!(order, expected);
}

#[test]
fn machines_that_come_and_go_are_events_and_many_are_one() {
    let mut bench = Bench::new();
    let time: &'static _ = Box::leak(Box::new(std::sync::atomic::AtomicU64::new(1_000_000)));
    bench.driver.clock = Clock::Simulated(time);
    let events = |bench: &mut Bench, seconds: u64| {
        let last = bench.driver.last_event();
        for _ in 0..seconds / 5 {
            time.fetch_add(5_000, Ordering::Relaxed);
            bench.driver.step().unwrap();
        }
        let new = bench.driver.events(None, last).into_iter();
        let of_fleet = new.filter(|(run, _)| run.is_none());
        of_fleet.map(|(_, event)| format!("{}: {}", event.kind, event.text)).collect::<Vec<_>>()
    };
    bench.sync(1, Vec::new());
    assert_eq!(events(&mut bench, 5), ["joined: worker-1 joined"]);
    for id in 2..=40 {
        bench.sync(id, Vec::new());
    }
    let joined = "joined: 39 machines joined: worker-10, worker-11, worker-12 and 36 more";
    assert_eq!(events(&mut bench, 5), [joined]);
    // They were due at different times.
    let silent = events(&mut bench, 60);
    assert!(silent.len() < 5, "{silent:?}");
    assert!(silent.iter().all(|text| text.starts_with("silent: ")), "{silent:?}");
    bench.sync(7, Vec::new());
    assert_eq!(events(&mut bench, 5), ["back: worker-7 came back"]);
    let later = events(&mut bench, 400);
    assert!(later.contains(&"silent: worker-7 fell silent".to_owned()), "{later:?}");
    assert!(later.contains(&"lost: worker-7 stayed silent and lost the leases".to_owned()));
    assert!(later.len() < 6, "{later:?}");
    let (worker, _) = bench.driver.known_workers().find(|(_, name)| name == "worker-7").unwrap();
    let now = bench.driver.activity(&[worker]);
    assert_eq!((now.strips[0].len(), now.gone.len()), (96, 0));
    let [counting, waiting] = now.strips[0][95];
    assert!(counting > 0.0 && counting < 0.5 && waiting == 0.0, "{:?}", now.strips[0][95]);
    // The scheduler forgets lost machines after an hour; a day later nothing is known of them.
    events(&mut bench, 4_000);
    let later = bench.driver.activity(&[worker]);
    assert_eq!((later.gone.len(), later.gone[0].1.as_str()), (40, "worker-1"));
    assert!(later.strips[0].iter().any(|[counting, _]| *counting > 0.0));
    events(&mut bench, 86_400);
    assert_eq!(bench.driver.activity(&[]).gone.len(), 0);
    // The log is stored like any other.
    let stored = bench.driver.store.note(None, store::Note::Events).unwrap();
    assert!(stored.is_some_and(|text| text.contains("worker-7 came back")));
}
