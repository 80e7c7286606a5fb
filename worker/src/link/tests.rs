//! The link against a coordinator in this process, over real connections on loopback.

mod fake;

use std::sync::Arc;

use common::{
    board::Board as Side,
    kernel::Kernel,
    method::Layout,
    plan::{PlanHash, PlanSpec},
    run::{Partial, SessionId, WorkerId},
    sync::{Acknowledgement, Revocation, SyncRequest, Verdict, WorkerInfo},
};
use tokio::sync::{mpsc::unbounded_channel, oneshot};
use tonic::Status;

use super::*;
use crate::{
    machine::{Left, Outcome, Settings},
    pool::{MakeCounter, PoolConfig, real_counter},
    spool::Spool,
    testing::{endless, grant, panicking, plan, sample_partial, work, wrong},
};
use fake::{Board, Fake, accept, quiet, serve};

fn info() -> WorkerInfo {
    WorkerInfo {
        id: WorkerId(5),
        session: SessionId(6),
        name: "tester".to_owned(),
        version: "0".to_owned(),
        kernel: Kernel::SCALAR.name(),
        threads: 2,
        memory_bytes_per_thread: 1 << 24,
        machine: 0,
    }
}

/// A running link; dropping `stop` or sending to it begins the drain.
struct Running {
    stop: oneshot::Sender<()>,
    link: tokio::task::JoinHandle<End>,
}

/// How long a planned stop may take.
const LIMIT: Duration = Duration::from_secs(25);

/// A link that counts on the threads of `config`.
fn link(
    fake: &Fake,
    config: PoolConfig,
    make: Arc<MakeCounter>,
    spool: Option<Spool>,
    (idle_timeout, drain_limit): (Option<Duration>, Duration),
) -> Link {
    let settings = Settings {
        info: info(),
        idle_timeout,
        drain_limit,
        kept: spool
            .as_ref()
            .map(|spool| spool.unacknowledged().copied().collect()),
    };
    let spool = spool.map(|spool| Writer::start(spool).unwrap());
    let (sender, events) = unbounded_channel();
    let pool = Pool::start(config, make, &sender).unwrap();
    let machine = Machine::new(settings, Instant::now());
    // No waiting between attempts: the jitter takes nothing of the back-off.
    Link::new(fake.address.clone(), machine, (pool, events), spool, || 0.0)
}

fn threads() -> PoolConfig {
    PoolConfig {
        threads: info().threads,
        kernel: Kernel::SCALAR,
        memory_bytes: info().memory_bytes_per_thread * u64::from(info().threads),
        crews: None,
        prove: |_| Ok(()),
    }
}

impl Running {
    fn start(fake: &Fake, make: Arc<MakeCounter>, spool: Option<Spool>) -> Self {
        Self::with_idle_timeout(fake, make, spool, None)
    }

    fn with_idle_timeout(
        fake: &Fake,
        make: Arc<MakeCounter>,
        spool: Option<Spool>,
        idle_timeout: Option<Duration>,
    ) -> Self {
        let link = link(fake, threads(), make, spool, (idle_timeout, LIMIT));
        let (stop, stopped) = oneshot::channel();
        let link = tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            link.run(shutdown).await
        });
        Self { stop, link }
    }

    async fn stop(self) -> End {
        drop(self.stop);
        self.link.await.unwrap()
    }
}

fn open(home: &std::path::Path) -> Spool {
    Spool::open(home, WorkerId(5)).unwrap()
}

/// A spool in which an earlier life left these.
fn kept(home: &std::path::Path, partials: &[Partial]) -> Option<Spool> {
    open(home).keep(partials, &[]).unwrap();
    Some(open(home))
}

fn held(request: &SyncRequest) -> Vec<u64> {
    request.held.iter().map(|held| held.task.task.0).collect()
}

/// Waits for the call that fits.
async fn call_where(fake: &mut Fake, fits: impl Fn(&SyncRequest) -> bool) -> SyncRequest {
    loop {
        let request = fake.calls.recv().await.unwrap();
        if fits(&request) {
            return request;
        }
    }
}

#[tokio::test]
async fn a_board_is_counted_exactly_though_replies_are_lost_and_repeated() {
    let plan = plan(9);
    let board = Board::new(plan.clone(), 7);
    let done = board.done();
    let mut call = 0;
    let mut last: Option<SyncReply> = None;
    let mut fake = serve({
        let board = board.clone();
        move |request| {
            call += 1;
            let reply = board.answer(request);
            match call % 4 {
                // Carried out, and the answer is lost.
                1 => Err(Status::unavailable("lost")),
                // An old answer comes instead of this one.
                2 if call > 4 => Ok(last.replace(reply).unwrap_or_else(quiet)),
                _ => {
                    last = Some(reply.clone());
                    Ok(reply)
                }
            }
        }
    })
    .await;
    let running = Running::start(&fake, Arc::new(real_counter), None);
    done.await;
    let End {
        ended,
        summary,
        lost,
    } = running.stop().await;
    assert_eq!(ended, Ended::Told);
    assert_eq!(board.total(), 352);
    assert_eq!((summary.unacknowledged, lost), (0, 0));
    assert!(summary.counted >= plan.tasks(), "{summary}");
    assert!(
        summary.accepted + summary.duplicates <= summary.counted,
        "{summary}"
    );
    let mut last = None;
    while let Ok(request) = fake.calls.try_recv() {
        assert_eq!(request.worker, info());
        last = Some(request);
    }
    let last = last.unwrap();
    assert!(last.draining && last.held.is_empty());
    assert_eq!(last.seconds_wanted, 0.0);
}

#[tokio::test]
async fn a_worker_ends_once_every_run_is_over_though_the_coordinator_has_ended_too() {
    let plan = plan(8);
    let board = Board::new(plan.clone(), 7);
    let mut away = false;
    let fake = serve({
        let board = board.clone();
        move |request| {
            if away {
                return Err(Status::unavailable("it has ended"));
            }
            let mut reply = board.answer(request);
            reply.all_runs_over = board.is_done();
            away = reply.all_runs_over;
            Ok(reply)
        }
    })
    .await;
    let timeout = Some(Duration::from_millis(50));
    let running = Running::with_idle_timeout(&fake, Arc::new(real_counter), None, timeout);
    let End { ended, summary, .. } = running.link.await.unwrap();
    assert_eq!(ended, Ended::Idle);
    assert_eq!(board.total(), 92);
    assert_eq!(summary.unacknowledged, 0);
}

#[tokio::test]
async fn a_worker_that_has_not_heard_that_the_run_is_over_waits_for_the_coordinator() {
    let plan = plan(8);
    let board = Board::new(plan.clone(), 7);
    let mut calls_after_the_end = 0;
    let (back, mut is_back) = unbounded_channel();
    let fake = serve({
        let board = board.clone();
        move |request| {
            if !board.is_done() {
                return Ok(board.answer(request));
            }
            // Restarting for far longer than the timeout, with every result but not the word.
            calls_after_the_end += 1;
            if calls_after_the_end < 20 {
                return Err(Status::unavailable("restarting"));
            }
            let _ = back.send(());
            Ok(quiet())
        }
    })
    .await;
    let timeout = Some(Duration::from_millis(1));
    let running = Running::with_idle_timeout(&fake, Arc::new(real_counter), None, timeout);
    is_back.recv().await.unwrap();
    let End { ended, .. } = running.stop().await;
    assert_eq!(ended, Ended::Told);
}

#[tokio::test]
async fn a_coordinator_that_is_not_there_yet_is_called_until_it_is() {
    let mut calls = 0;
    let mut fake = serve(move |_| {
        calls += 1;
        match calls {
            1 => Err(Status::unavailable("starting")),
            2 => Err(Status::internal("still starting")),
            3 => Err(Status::deadline_exceeded("slow")),
            _ => Ok(quiet()),
        }
    })
    .await;
    let running = Running::start(&fake, Arc::new(real_counter), None);
    for _ in 0..4 {
        let request = fake.calls.recv().await.unwrap();
        assert!(request.seconds_wanted > 0.0);
    }
    let End { ended, .. } = running.stop().await;
    assert_eq!(ended, Ended::Told);
}

#[tokio::test]
async fn what_is_taken_back_stops_at_once_and_is_not_held_any_more() {
    let plan = plan(10);
    let (make, begins) = endless();
    let grants: Vec<_> = (0..4).map(|task| grant(&plan, task)).collect();
    let mut calls = 0;
    let mut fake = serve(move |request| {
        calls += 1;
        let mut reply = quiet();
        reply.next_sync_ms = 25;
        if calls == 1 {
            reply.grants.clone_from(&grants);
        }
        // One that a thread has begun, and one that waits.
        if request.held.iter().filter(|held| held.started).count() == 2 {
            reply.revoked = [0, 3]
                .map(|task: usize| Revocation {
                    task: grants[task].task,
                    epoch: grants[task].epoch,
                    reason: "the run is cancelled".to_owned(),
                })
                .to_vec();
        }
        Ok(reply)
    })
    .await;
    let running = Running::start(&fake, make, None);
    let first = call_where(&mut fake, |request| !request.held.is_empty()).await;
    assert_eq!(held(&first), [0, 1, 2, 3]);
    let second = call_where(&mut fake, |request| request.held.len() < 4).await;
    assert_eq!(held(&second), [1, 2]);
    // Two threads began two jobs; a third could begin only because the first was stopped.
    let begun = tokio::task::spawn_blocking(move || begins.iter().take(3).count());
    assert_eq!(begun.await.unwrap(), 3);
    let both = |request: &SyncRequest| request.held.iter().all(|held| held.started);
    let third = call_where(&mut fake, both).await;
    assert_eq!(held(&third), [1, 2]);
    running.link.abort();
}

#[tokio::test]
async fn another_plan_is_not_counted_and_its_lease_is_given_back() {
    let plan = plan(10);
    let mut strange = grant(&plan, 0);
    strange.task.plan = PlanHash::try_from([7; 32].as_slice()).unwrap();
    let beyond = grant(&plan, plan.tasks());
    let mut calls = 0;
    let mut fake = serve(move |_| {
        calls += 1;
        let mut reply = quiet();
        if calls == 1 {
            reply.grants = vec![strange, beyond];
        }
        Ok(reply)
    })
    .await;
    let running = Running::start(&fake, Arc::new(real_counter), None);
    assert!(fake.calls.recv().await.unwrap().seconds_wanted > 0.0);
    let second = fake.calls.recv().await.unwrap();
    assert_eq!(held(&second), [0; 0]);
    assert_eq!(second.seconds_wanted, 0.0, "it would be the same again");
    let End { summary, .. } = running.stop().await;
    assert_eq!(summary.counted, 0);
}

#[tokio::test]
async fn a_drain_gives_back_what_waits_and_what_would_take_too_long() {
    // Tasks of a quarter of an hour each.
    let spec = PlanSpec {
        task_cost: 1_000_000_000,
        ..PlanSpec::new(Side::new(24).unwrap(), Layout::FirstRows)
    };
    let plan = Plan::new(spec).unwrap();
    let (make, begins) = endless();
    let grants: Vec<_> = (0..5).map(|task| grant(&plan, task)).collect();
    let mut granted = false;
    let mut fake = serve(move |_| {
        let mut reply = quiet();
        if !std::mem::replace(&mut granted, true) {
            reply.grants.clone_from(&grants);
        }
        Ok(reply)
    })
    .await;
    let running = Running::start(&fake, make, None);
    let begun = tokio::task::spawn_blocking(move || begins.iter().take(2).count());
    assert_eq!(begun.await.unwrap(), 2);
    let End { ended, summary, .. } = running.stop().await;
    assert_eq!(ended, Ended::Told);
    assert_eq!((summary.counted, summary.abandoned), (0, 5));
    let last = call_where(&mut fake, |request| request.draining).await;
    assert_eq!(held(&last), [0; 0]);
}

#[tokio::test]
async fn after_several_panics_the_worker_ends_and_says_so() {
    let plan = plan(10);
    let mut task = 0;
    let mut fake = serve(move |request| {
        let mut reply = quiet();
        if request.seconds_wanted > 0.0 {
            reply.grants.push(grant(&plan, task));
            task += 1;
        }
        Ok(reply)
    })
    .await;
    let running = Running::start(&fake, panicking(), None);
    let End { ended, summary, .. } = running.link.await.unwrap();
    assert_eq!(ended, Ended::Faulty { panics: 3 });
    assert_eq!(summary.counted, 0);
    call_where(&mut fake, |request| {
        request.draining && request.held.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_worker_whose_threads_all_fail_their_canaries_says_so_and_ends() {
    let plan = plan(10);
    let mut fake = serve(move |request| {
        let mut reply = quiet();
        if request.seconds_wanted > 0.0 {
            reply.grants.push(grant(&plan, 0));
        }
        Ok(reply)
    })
    .await;
    let config = PoolConfig {
        prove: |_| Err(wrong()),
        ..threads()
    };
    let link = link(&fake, config, Arc::new(real_counter), None, (None, LIMIT));
    let End { ended, summary, .. } = link.run(std::future::pending()).await;
    assert_eq!(ended, Ended::Unproven);
    assert_eq!(summary.counted, 0);
    let last = call_where(&mut fake, |request| {
        request.draining && request.held.is_empty()
    })
    .await;
    assert_eq!(last.failed_canaries.threads, 2);
}

#[tokio::test]
async fn results_of_an_earlier_life_are_handed_in() {
    let home = tempfile::tempdir().unwrap();
    let spool = kept(home.path(), &[0, 1, 2].map(|task| sample_partial(task, 9)));
    let mut fake = serve(|request| {
        let mut reply = quiet();
        let verdicts = [Verdict::Accepted, Verdict::Conflict, Verdict::Refused];
        for (partial, verdict) in request.partials.iter().zip(verdicts) {
            reply.acknowledgements.push(Acknowledgement {
                verdict,
                reason: "a reason".to_owned(),
                ..accept(partial)
            });
        }
        Ok(reply)
    })
    .await;
    let running = Running::start(&fake, Arc::new(real_counter), spool);
    let first = fake.calls.recv().await.unwrap();
    assert_eq!(
        first.partials,
        [0, 1, 2].map(|task| sample_partial(task, 9))
    );
    let End { summary, .. } = running.stop().await;
    let verdicts = (summary.accepted, summary.conflicts, summary.refused);
    assert_eq!(verdicts, (1, 1, 1));
    let left = open(home.path()).unacknowledged().count();
    assert_eq!(left, 0, "whatever the verdict, none is kept");
}

#[tokio::test]
async fn a_worker_without_a_coordinator_stops_and_keeps_its_results_on_disk() {
    let home = tempfile::tempdir().unwrap();
    let spool = kept(home.path(), &[sample_partial(1, 9)]);
    let mut fake = serve(|_| Err(Status::unavailable("away"))).await;
    let running = Running::start(&fake, Arc::new(real_counter), spool);
    fake.calls.recv().await.unwrap();
    let End { ended, lost, .. } = running.stop().await;
    assert_eq!((ended, lost), (Ended::Told, 0));
    assert_eq!(open(home.path()).unacknowledged().count(), 1);
}

#[tokio::test]
async fn what_is_counted_while_the_coordinator_is_away_is_on_disk_at_the_end() {
    let plan = plan(8);
    let board = Board::new(plan.clone(), 7);
    let (counted, mut is_counted) = unbounded_channel();
    let fake = serve(move |request| {
        if request.partials.is_empty() {
            return Ok(board.answer(request));
        }
        let _ = counted.send(request.partials.len());
        Err(Status::unavailable("away"))
    })
    .await;
    let home = tempfile::tempdir().unwrap();
    let running = Running::start(&fake, Arc::new(real_counter), Some(open(home.path())));
    is_counted.recv().await.unwrap();
    let End { summary, lost, .. } = running.stop().await;
    assert!(summary.unacknowledged > 0);
    assert_eq!(lost, 0);
    let kept = open(home.path()).unacknowledged().count();
    assert_eq!(kept as u64, summary.unacknowledged);
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn what_a_full_disk_did_not_take_is_lost_and_told() {
    let fake = serve(|_| Err(Status::unavailable("away"))).await;
    let home = tempfile::tempdir().unwrap();
    let mut spool = open(home.path());
    spool.fill_disk();
    let limits = (None, Duration::from_millis(1));
    let mut link = link(
        &fake,
        threads(),
        Arc::new(real_counter),
        Some(spool),
        limits,
    );
    for task in 0..2 {
        let left = Left {
            work: work(&plan(8), task),
            outcome: Outcome::Counted(1),
            duration: Duration::from_secs(1),
            threads: std::num::NonZeroU16::MIN,
        };
        link.machine.handle_left(left, Instant::now());
    }
    let End { lost, summary, .. } = link.run(std::future::ready(())).await;
    assert_eq!((lost, summary.unacknowledged), (2, 2));
}
