//! The link against a coordinator in this process.

use std::{
    path::Path,
    sync::{Mutex, mpsc},
};

use common::{
    board,
    count::CounterConfig,
    messages::{
        run::Partial,
        sync::{Grant, Revocation, SelfTestReport, SyncRequest, Verdict},
    },
    plan::PlanHash,
};
use tokio::sync::{mpsc::unbounded_channel, oneshot};

use super::*;
use crate::{
    config::InProcess,
    engine::JobOutcome,
    pool::{MakeCounter, SelfTest, real_counter},
    testing::{
        acknowledge, budget, endless, grant, held, plan, quiet, result, sample_partial, settings,
        task_ref, wrong,
    },
};

/// A coordinator that is a closure; without a reply the call is lost.
struct Fake {
    coordinator: Coordinator,
    /// Every request, sent after its reply was created.
    calls: UnboundedReceiver<SyncRequest>,
}

fn serve(answer: impl FnMut(&SyncRequest) -> Option<SyncReply> + Send + 'static) -> Fake {
    let (sender, calls) = unbounded_channel();
    let answer = Mutex::new(answer);
    let answer = InProcess::new(move |request| {
        let reply = (answer.lock().unwrap())(&request);
        // Not every test receives all requests.
        let _ = sender.send(request);
        async {
            // As over a connection, other tasks run before the reply arrives.
            tokio::task::yield_now().await;
            reply
        }
    });
    Fake { coordinator: Coordinator::InProcess(answer), calls }
}

/// Starts a coordinator that grants `grants` in its first reply, and nothing more.
fn serve_once(grants: Vec<Grant>) -> Fake {
    let mut grants = Some(grants);
    serve(move |_| Some(SyncReply { grants: grants.take().unwrap_or_default(), ..quiet() }))
}

impl Fake {
    /// Waits for a call for which `fits` returns true.
    async fn call_where(&mut self, fits: impl Fn(&SyncRequest) -> bool) -> SyncRequest {
        loop {
            let request = self.calls.recv().await.unwrap();
            if fits(&request) {
                return request;
            }
        }
    }
}

/// A run of a fake coordinator, which leases its tasks, seven per call.
///
/// Tasks that a worker no longer lists are leased again.
struct FakeRun {
    plan: Plan,
    pending: BTreeSet<u64>,
    leased: BTreeSet<u64>,
    counts: BTreeMap<u64, u64>,
}

impl FakeRun {
    fn new(n: u8) -> Self {
        let plan = plan(n);
        let pending = (0..plan.tasks()).collect();
        Self { plan, pending, leased: BTreeSet::new(), counts: BTreeMap::new() }
    }

    /// Returns the sum of all counts, once every task has one.
    fn total(&self) -> Option<u64> {
        let is_done = self.counts.len() as u64 == self.plan.tasks();
        is_done.then(|| self.counts.values().sum())
    }

    fn answer(&mut self, request: &SyncRequest) -> SyncReply {
        let Self { plan, pending, leased, counts } = self;
        let mut reply = SyncReply { next_sync_ms: 30, ..quiet() };
        for partial in &request.partials {
            let task = partial.lease.task.task.0;
            assert_eq!(partial.lease.task, task_ref(plan, task));
            let before = counts.insert(task, partial.count);
            assert!(before.is_none_or(|before| before == partial.count));
            leased.remove(&task);
            pending.remove(&task);
            let verdict = before.map_or(Verdict::Accepted, |_| Verdict::Duplicate);
            reply.acknowledgements.push(acknowledge(&partial.lease, verdict));
        }
        let held = held(request);
        pending.extend(leased.extract_if(.., |task| !held.contains(task)));
        if request.seconds_wanted > 0.0 {
            let granted: Vec<u64> = pending.iter().take(7).copied().collect();
            for task in granted {
                pending.remove(&task);
                leased.insert(task);
                reply.grants.push(grant(plan, task));
            }
        }
        reply
    }
}

/// A running link; dropping `stop` starts the drain.
struct Running {
    stop: oneshot::Sender<()>,
    link: tokio::task::JoinHandle<LinkResult>,
}

fn link(
    fake: &Fake,
    settings: Settings,
    self_test: SelfTest,
    make: Arc<MakeCounter>,
    spool: Option<Spool>,
) -> CoordinatorLoop {
    let pool = Pool::start(budget(settings.info.threads), &[], self_test, make).unwrap();
    // A jitter of 0 removes the delay between attempts.
    CoordinatorLoop::new(fake.coordinator.clone(), settings, pool, spool, || 0.0)
}

impl Running {
    fn counting(fake: &Fake) -> Self {
        Self::start(fake, Arc::new(real_counter), None)
    }

    fn start(fake: &Fake, make: Arc<MakeCounter>, spool: Option<Spool>) -> Self {
        let link = link(fake, settings(None), |_| Ok(()), make, spool);
        let (stop, stopped) = oneshot::channel();
        let link = tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            link.run(shutdown).await
        });
        Self { stop, link }
    }

    async fn stop(self) -> LinkResult {
        drop(self.stop);
        self.link.await.unwrap()
    }
}

/// Waits until `number` tasks have started.
async fn wait_for_starts(started: mpsc::Receiver<CounterConfig>, number: usize) {
    let counted = tokio::task::spawn_blocking(move || started.iter().take(number).count());
    assert_eq!(counted.await.unwrap(), number);
}

fn open(home: &Path) -> Spool {
    Spool::open(home).unwrap()
}

/// Opens a spool in which an earlier process left these results.
fn spool_of(home: &Path, partials: &[Partial]) -> Option<Spool> {
    open(home).keep(partials, &[]).unwrap();
    Some(open(home))
}

#[tokio::test]
async fn a_board_is_counted_exactly_though_replies_are_lost_and_repeated() {
    let mut run = FakeRun::new(9);
    let tasks = run.plan.tasks();
    let (done, mut totals) = unbounded_channel();
    let mut call = 0;
    let mut last: Option<SyncReply> = None;
    let mut fake = serve({
        move |request| {
            call += 1;
            let reply = run.answer(request);
            // The test receives the first total only.
            let _ = run.total().map(|total| done.send(total));
            match call % 4 {
                // The call is carried out, but the reply is lost.
                1 => None,
                // An old reply arrives instead of this one.
                2 if call > 4 => Some(last.replace(reply).unwrap_or_else(quiet)),
                _ => {
                    last = Some(reply.clone());
                    Some(reply)
                }
            }
        }
    });
    let running = Running::counting(&fake);
    assert_eq!(totals.recv().await, Some(352));
    let LinkResult { reason, summary, lost } = running.stop().await;
    assert_eq!(reason, ExitReason::Requested);
    assert_eq!((summary.unacknowledged, lost), (0, 0));
    assert!(summary.counted >= tasks, "{summary}");
    assert!(summary.accepted + summary.duplicates <= summary.counted, "{summary}");
    let mut last = None;
    while let Ok(request) = fake.calls.try_recv() {
        assert_eq!(request.worker, settings(None).info);
        last = Some(request);
    }
    let last = last.unwrap();
    assert!(last.draining && last.held.is_empty());
    assert_eq!(last.seconds_wanted, 0.0);
}

#[tokio::test]
async fn revoked_tasks_stop_immediately_and_are_no_longer_held() {
    let plan = plan(10);
    let (make, started) = endless();
    let grants: Vec<_> = (0..4).map(|task| grant(&plan, task)).collect();
    let mut calls = 0;
    let mut fake = serve(move |request| {
        calls += 1;
        let mut reply = SyncReply { next_sync_ms: 25, ..quiet() };
        if calls == 1 {
            reply.grants.clone_from(&grants);
        }
        // Revokes one task that a thread has started, and one that waits.
        if request.held.iter().filter(|held| held.started).count() == 2 {
            let revoke = |task: usize| Revocation {
                lease: grants[task].lease,
                reason: "the run is cancelled".to_owned(),
            };
            reply.revoked = [0, 3].map(revoke).to_vec();
        }
        Some(reply)
    });
    let running = Running::start(&fake, make, None);
    let first = fake.call_where(|request| !request.held.is_empty()).await;
    assert_eq!(held(&first), [0, 1, 2, 3]);
    let second = fake.call_where(|request| request.held.len() < 4).await;
    assert_eq!(held(&second), [1, 2]);
    // The third task could start only because the first was stopped.
    wait_for_starts(started, 3).await;
    let all_started = |request: &SyncRequest| request.held.iter().all(|held| held.started);
    let third = fake.call_where(all_started).await;
    assert_eq!(held(&third), [1, 2]);
    running.link.abort();
}

#[tokio::test]
async fn a_task_of_another_plan_is_declined() {
    let plan = plan(10);
    let mut of_another_plan = grant(&plan, 0);
    of_another_plan.lease.task.plan = PlanHash::try_from([7; 32].as_slice()).unwrap();
    let mut fake = serve_once(vec![of_another_plan, grant(&plan, plan.tasks())]);
    let running = Running::counting(&fake);
    fake.calls.recv().await.unwrap();
    // Before the threads have passed, the worker requests no work anyway.
    let second = fake.call_where(|request| request.self_test.tests_passed > 0).await;
    assert_eq!(held(&second), [0; 0]);
    assert_eq!(second.seconds_wanted, 0.0, "a repeated request would get the same grants");
    assert_eq!(running.stop().await.summary.counted, 0);
}

#[tokio::test]
async fn a_worker_whose_threads_all_fail_their_self_test_ends() {
    let mut fake = serve_once(vec![grant(&plan(10), 0)]);
    let link = link(&fake, settings(None), |_| Err(wrong()), Arc::new(real_counter), None);
    let LinkResult { reason, summary, .. } = link.run(std::future::pending()).await;
    assert_eq!((reason, summary.counted), (ExitReason::SelfTest, 0));
    let last = fake.call_where(|request| request.draining && request.held.is_empty()).await;
    assert_eq!(last.self_test.failed_threads, 2);
}

#[tokio::test]
async fn results_of_an_earlier_process_are_submitted() {
    let home = tempfile::tempdir().unwrap();
    let spool = spool_of(home.path(), &[0, 1, 2].map(|task| sample_partial(task, 9)));
    FailureMark::of(home.path()).set();
    let mut fake = serve(|request| {
        let verdicts = [Verdict::Accepted, Verdict::Conflict, Verdict::Refused];
        let answered = request.partials.iter().zip(verdicts);
        let acknowledgements =
            answered.map(|(partial, verdict)| acknowledge(&partial.lease, verdict));
        Some(SyncReply { acknowledgements: acknowledgements.collect(), ..quiet() })
    });
    let running = Running::start(&fake, Arc::new(real_counter), spool);
    let first = fake.calls.recv().await.unwrap();
    assert_eq!(first.partials, [0, 1, 2].map(|task| sample_partial(task, 9)));
    let SelfTestReport { failed_threads, suspect_window_ms, .. } = first.self_test;
    assert_eq!((failed_threads, suspect_window_ms), (1, u64::MAX), "the earlier process failed");
    let LinkResult { summary, .. } = running.stop().await;
    assert_eq!((summary.accepted, summary.conflicts, summary.refused), (1, 1, 1));
    assert_eq!(open(home.path()).unacknowledged().count(), 0, "whatever the verdict");
    assert!(!FailureMark::of(home.path()).is_set());
}

#[tokio::test]
async fn results_are_on_disk_at_the_end_if_the_coordinator_is_away() {
    let mut run = FakeRun::new(8);
    let (submitted, mut submissions) = unbounded_channel();
    let fake = serve(move |request| {
        if request.partials.is_empty() {
            return Some(run.answer(request));
        }
        let _ = submitted.send(request.partials.len());
        None
    });
    let home = tempfile::tempdir().unwrap();
    let running = Running::start(&fake, Arc::new(real_counter), Some(open(home.path())));
    submissions.recv().await.unwrap();
    let LinkResult { summary, lost, .. } = running.stop().await;
    assert!(summary.unacknowledged > 0);
    assert_eq!(lost, 0);
    let spooled = open(home.path()).unacknowledged().count();
    assert_eq!(spooled as u64, summary.unacknowledged);
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn results_are_lost_if_the_coordinator_is_away_and_the_disk_full() {
    let fake = serve(|_| None);
    let home = tempfile::tempdir().unwrap();
    let mut spool = open(home.path());
    spool.fill_disk();
    let settings = Settings { drain_limit: Duration::from_millis(1), ..settings(None) };
    let mut link = link(&fake, settings, |_| Ok(()), Arc::new(real_counter), Some(spool));
    for task in 0..2 {
        let result = result(&plan(8), task, JobOutcome::Counted(1));
        link.engine.handle_job_finished(result, Instant::now());
    }
    let LinkResult { lost, summary, .. } = link.run(std::future::ready(())).await;
    assert_eq!((lost, summary.unacknowledged), (2, 2));
}

#[test]
fn the_status_line_begins_with_the_most_important_facts() {
    let now = Instant::now();
    let mut engine = WorkerEngine::new(settings(None), now);
    let tasks = vec![(board::Board::new(20).unwrap(), 1234, 0.561); 4];
    let line = |engine: &WorkerEngine, tasks: &[_], answered, at| {
        status_line(engine, (16, 12), tasks, answered, now + Duration::from_secs(at))
    };
    assert!(line(&engine, &tasks, None, 0).contains("| connecting |"));
    assert_eq!(
        line(&engine, &tasks, Some(now), 7),
        "16 threads, 4 tasks: N = 20 task 1234 56 % | contact 7 s ago | 0.00 reference cores | \
         0 done, 12 queued | 0 in spool"
    );
    engine.handle_job_finished(result(&plan(8), 0, JobOutcome::Counted(1)), now);
    let counted = line(&engine, &tasks, Some(now), 300);
    let [_, contact, cores, results, spool] = counted.split(" | ").collect::<Vec<_>>()[..] else {
        panic!("{counted}");
    };
    assert_eq!((contact, results, spool), ("contact 5 min ago", "1 done, 12 queued", "1 in spool"));
    assert_eq!(cores, format!("{:.2} reference cores", engine.cores()));
    engine.handle_pause(Some("on battery".to_owned()), now);
    for _ in 0..2 {
        engine.poll_call(now);
        engine.handle_lost_call(0.5, now);
    }
    let start = "16 threads, no task, paused: on battery | no answer, 2 attempts, next in 1 s |";
    let paused = line(&engine, &[], Some(now), 0);
    assert!(paused.starts_with(start), "{paused}");
    engine.handle_stop(now);
    let draining = line(&engine, &[], Some(now), 0);
    assert!(draining.starts_with("16 threads, no task, draining | no"), "{draining}");
}
