//! Over real TCP: what the coordinator takes, what it refuses, and that refusing changes nothing.

use std::{io::ErrorKind, ops::ControlFlow};

use common::{
    known::known_counts,
    method::Layout,
    plan::{Plan, TaskId},
    run::{Epoch, Partial, RunId, SessionId},
    sync::{Grant, HeldLease, SyncReply, Verdict},
};
use coordinator::{
    driver::Known,
    sched::{Config, TaskNumbers},
    store::{
        Change, Fold, JournalCursor, JournalEntry, MemoryStore, RunManifest, RunState, Store,
        StoreError, StoredRun, SymmetricCounts, TaskRow, TrustRecord,
    },
};
use proto::{limits::MESSAGE_BYTES, v1};
use tests::face::{Face, HandWorker, count, plan};
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

/// A run with one worker that was granted its first tasks.
struct Scene {
    face: Face,
    plan: Plan,
    manifest: RunManifest,
    worker: HandWorker,
    grants: Vec<Grant>,
}

impl Scene {
    async fn new() -> anyhow::Result<Self> {
        let face = Face::start(Box::new(MemoryStore::default()), Config::default())?;
        let plan = plan(10, Layout::FirstRows, 1);
        let manifest = face.create(&plan).await?;
        let mut worker = HandWorker::connect(&face, 7).await?;
        let grants = worker.sync(worker.request(Vec::new(), 1.0)).await?.grants;
        assert!(
            grants.len() > 1 && (grants.len() as u64) < plan.tasks(),
            "{grants:?}"
        );
        Ok(Self {
            face,
            plan,
            manifest,
            worker,
            grants,
        })
    }

    async fn tasks(&self) -> anyhow::Result<(TaskNumbers, u128)> {
        let report = self.face.driver.status(Some(self.manifest.run)).await?;
        let status = report.expect("the run is there").status;
        Ok((status.tasks, status.solutions_so_far))
    }

    /// One call that keeps all leases and reports one partial.
    async fn report(&mut self, partial: Partial) -> Result<SyncReply, tonic::Status> {
        let mut request = self.worker.request(vec![partial], 0.0);
        request.held = self.grants.iter().map(held).collect();
        self.worker.sync(request).await
    }

    /// A partial that must be refused with a reason that holds `why`, changing nothing.
    async fn refused(&mut self, partial: Partial, why: &str) -> anyhow::Result<()> {
        let before = self.tasks().await?;
        let reply = self.report(partial).await?;
        let [answer] = reply.acknowledgements.as_slice() else {
            panic!("one answer to one partial: {reply:#?}");
        };
        assert_eq!(answer.verdict, Verdict::Refused, "{answer:#?}");
        assert!(answer.reason.contains(why), "{why}: {}", answer.reason);
        assert_eq!(self.tasks().await?, before, "{why}");
        Ok(())
    }
}

fn held(grant: &Grant) -> HeldLease {
    HeldLease {
        task: grant.task,
        epoch: grant.epoch,
        cost_done: 0,
        started: true,
    }
}

#[tokio::test]
async fn a_worker_written_by_hand_completes_a_run() -> anyhow::Result<()> {
    let face = Face::start(Box::new(MemoryStore::default()), Config::default())?;
    let plan = plan(10, Layout::FirstRows, 100);
    let manifest = face.create(&plan).await?;
    let mut worker = HandWorker::connect(&face, 7).await?;
    // Each task, and some of them twice: the first counts of a worker are compared.
    assert!(worker.count_all().await? >= plan.tasks());

    let mut outcomes = face.driver.outcomes();
    let outcome = outcomes
        .wait_for(|outcomes| outcomes.contains_key(&manifest.run))
        .await?[&manifest.run]
        .clone();
    assert_eq!(Some(outcome.counts?), known_counts(plan.spec().board));
    assert_eq!(outcome.known, Known::Matches);
    let report = face.driver.status(Some(manifest.run)).await?;
    assert_eq!(report.unwrap().status.state, RunState::Complete);
    face.stop().await
}

#[tokio::test]
async fn partials_that_cannot_be_are_refused_with_the_reason() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let good = count(&scene.grants[0]);
    let ours = scene.plan.hash().to_string();

    let mut unknown_run = good;
    unknown_run.task.run = RunId(0xdead);
    scene
        .refused(unknown_run, "no run 000000000000dead")
        .await?;

    let mut other_plan = good;
    other_plan.task.plan = plan(11, Layout::FirstRows, 100).hash();
    scene.refused(other_plan, &ours).await?;
    let theirs = other_plan.task.plan.to_string();
    scene.refused(other_plan, &theirs).await?;

    let mut no_task = good;
    no_task.task.task = TaskId(scene.plan.tasks());
    let last = format!("tasks 0 to {}", scene.plan.tasks() - 1);
    scene.refused(no_task, &last).await?;

    let mut impossible = good;
    impossible.count = scene.plan.task_limit(good.task.task) + 1;
    scene.refused(impossible, "cannot have").await?;

    let mut never_leased = good;
    never_leased.epoch = Epoch(u64::MAX);
    scene
        .refused(never_leased, "never leased under epoch")
        .await?;

    // After all that, the right one is taken, and taken once.
    for verdict in [Verdict::Accepted, Verdict::Duplicate] {
        let reply = scene.report(good).await?;
        assert_eq!(reply.acknowledgements[0].verdict, verdict);
        let (tasks, solutions) = scene.tasks().await?;
        assert_eq!((tasks.done, solutions), (1, u128::from(good.count)));
    }
    scene.face.stop().await
}

/// A store whose disk fills up once its run is created.
struct FullDisk(MemoryStore);

impl Store for FullDisk {
    fn runs(&self) -> Result<Vec<StoredRun>, StoreError> {
        self.0.runs()
    }

    fn create(&mut self, manifest: &RunManifest) -> Result<(), StoreError> {
        self.0.create(manifest)
    }

    fn delete(&mut self, run: RunId) -> Result<(), StoreError> {
        self.0.delete(run)
    }

    fn symmetric(&self, run: RunId) -> Result<Option<SymmetricCounts>, StoreError> {
        self.0.symmetric(run)
    }

    fn trust(&self) -> Result<Vec<TrustRecord>, StoreError> {
        self.0.trust()
    }

    fn secret(&self) -> [u8; 32] {
        self.0.secret()
    }

    fn term(&self) -> u64 {
        self.0.term()
    }

    fn keep_symmetric(&mut self, run: RunId, counts: SymmetricCounts) -> Result<(), StoreError> {
        self.0.keep_symmetric(run, counts)
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let record = |change: &Change| matches!(change, Change::Accepted(_));
        if changes.iter().any(record) {
            return Err(StoreError::Io {
                action: "write",
                path: "journal.jsonl".into(),
                source: ErrorKind::StorageFull.into(),
            });
        }
        self.0.apply(changes)
    }

    fn refold(&self, run: RunId) -> Result<Fold, StoreError> {
        self.0.refold(run)
    }

    fn scan(&self, run: RunId, visit: &mut dyn FnMut(TaskRow)) -> Result<(), StoreError> {
        self.0.scan(run, visit)
    }

    fn journal(
        &self,
        run: RunId,
        from: JournalCursor,
        visit: &mut dyn FnMut(u64, &JournalEntry, &str) -> ControlFlow<()>,
    ) -> Result<JournalCursor, StoreError> {
        self.0.journal(run, from, visit)
    }
}

#[tokio::test]
async fn what_cannot_be_kept_is_never_acknowledged() -> anyhow::Result<()> {
    let store = FullDisk(MemoryStore::default());
    let mut face = Face::start(Box::new(store), Config::default())?;
    face.create(&plan(10, Layout::FirstRows, 1)).await?;
    let mut worker = HandWorker::connect(&face, 7).await?;
    let grants = worker.sync(worker.request(Vec::new(), 1.0)).await?.grants;
    let lost = worker
        .sync(worker.request(vec![count(&grants[0])], 0.0))
        .await
        .unwrap_err();
    assert_eq!(lost.code(), Code::Unavailable, "{lost}");
    let end = (&mut face.end).await?.unwrap_err().to_string();
    assert!(end.contains("journal.jsonl"), "{end}");
    // The driver is gone: nothing is decided any more.
    let refused = worker
        .sync(worker.request(Vec::new(), 0.0))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("shutting down"), "{refused}");
    Ok(())
}

/// The coordinator takes a late result of any lease that it gave; a lease that it never gave, or
/// that another worker's count has ended, is not renewed.
#[tokio::test]
async fn leases_that_are_not_the_workers_are_taken_back() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let mut invented = held(&scene.grants[0]);
    invented.epoch = Epoch(scene.grants[0].epoch.0 + 1_000_000);
    let ended = held(&scene.grants[1]);
    let mut other = HandWorker::connect(&scene.face, 8).await?;
    let late = other.request(vec![count(&scene.grants[1])], 0.0);
    let answer = other.sync(late).await?.acknowledgements.remove(0);
    assert_eq!(answer.verdict, Verdict::Accepted, "{answer:#?}");

    for (lease, why) in [(invented, "never leased"), (ended, "")] {
        let mut request = scene.worker.request(Vec::new(), 0.0);
        request.held = vec![lease];
        let reply = scene.worker.sync(request).await?;
        let [revoked] = reply.revoked.as_slice() else {
            panic!("one lease is taken back: {reply:#?}");
        };
        assert_eq!((revoked.task, revoked.epoch), (lease.task, lease.epoch));
        assert!(
            !revoked.reason.is_empty() && revoked.reason.contains(why),
            "{revoked:#?}"
        );
    }
    scene.face.stop().await
}

/// Makes a sound message unsound.
type Bend = fn(&mut v1::SyncRequest);

#[tokio::test]
async fn malformed_messages_name_the_field() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let before = scene.tasks().await?;
    let sound = v1::SyncRequest::from(scene.worker.request(vec![count(&scene.grants[0])], 0.0));
    let protocol = |message: &mut v1::SyncRequest| message.protocol = 99;
    let no_worker = |message: &mut v1::SyncRequest| message.worker = None;
    let short_id = |message: &mut v1::SyncRequest| {
        message.worker.as_mut().unwrap().id = vec![1, 2, 3];
    };
    let short_hash = |message: &mut v1::SyncRequest| {
        message.partials[0].task.as_mut().unwrap().plan_hash = vec![0; 31];
    };
    let no_kernel = |message: &mut v1::SyncRequest| message.partials[0].kernel = 0;
    let not_a_number = |message: &mut v1::SyncRequest| message.seconds_wanted = f64::NAN;
    let cases: [(Bend, Code, &str); 6] = [
        (protocol, Code::FailedPrecondition, "protocol version 99"),
        (no_worker, Code::InvalidArgument, "worker"),
        (short_id, Code::InvalidArgument, "worker.id"),
        (
            short_hash,
            Code::InvalidArgument,
            "partials[0].task.plan_hash",
        ),
        (no_kernel, Code::InvalidArgument, "partials[0].kernel"),
        (not_a_number, Code::InvalidArgument, "seconds_wanted"),
    ];
    for (bend, code, field) in cases {
        let mut message = sound.clone();
        bend(&mut message);
        let status = scene.worker.client.sync(message).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(field), "{field}: {status}");
    }
    assert_eq!(scene.tasks().await?, before);
    scene.face.stop().await
}

#[tokio::test]
async fn an_oversize_message_is_refused() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let before = scene.tasks().await?;
    let mut message = v1::SyncRequest::from(scene.worker.request(Vec::new(), 0.0));
    message.worker.as_mut().unwrap().name = "x".repeat(MESSAGE_BYTES + 1);
    let status = scene.worker.client.sync(message).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    assert!(status.message().contains("too large"), "{status}");
    assert_eq!(scene.tasks().await?, before);
    scene.face.stop().await
}

#[tokio::test]
async fn operators_are_told_what_is_wrong() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let mut runs = scene.face.runs().await?;
    let unknown = v1::RunRequest { run: 0xdead };
    for status in [
        runs.pause(unknown).await.unwrap_err(),
        runs.cancel(unknown).await.unwrap_err(),
        runs.export(unknown).await.unwrap_err(),
    ] {
        assert_eq!(status.code(), Code::NotFound);
        assert!(status.message().contains("000000000000dead"), "{status}");
    }
    let spec = |n, layout: v1::Layout, task_cost| v1::SubmitRequest {
        spec: Some(v1::PlanSpec {
            n,
            layout: layout.into(),
            task_cost,
        }),
        ..v1::SubmitRequest::default()
    };
    for (request, field) in [
        (spec(0, v1::Layout::Border, 0), "spec.n"),
        (spec(33, v1::Layout::Border, 0), "spec.n"),
        (spec(8, v1::Layout::Unspecified, 0), "spec.layout"),
        (spec(32, v1::Layout::FirstRows, 1), "spec"),
        (v1::SubmitRequest::default(), "spec"),
    ] {
        let status = runs.submit(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().starts_with(field), "{field}: {status}");
    }
    assert_eq!(scene.face.driver.runs().await?.len(), 1);
    scene.face.stop().await
}

#[tokio::test]
async fn runs_are_submitted_paused_resumed_cancelled_and_exported() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let mut runs = scene.face.runs().await?;
    scene.report(count(&scene.grants[0])).await?;

    let request = v1::RunRequest {
        run: scene.manifest.run.0,
    };
    let paused = runs.pause(request).await?.into_inner();
    assert_eq!(paused.state(), v1::RunState::Paused);
    let mut second = HandWorker::connect(&scene.face, 8).await?;
    let reply = second.sync(second.request(Vec::new(), 10.0)).await?;
    assert!(
        reply.grants.is_empty() && !reply.reason.is_empty(),
        "{reply:#?}"
    );
    let resumed = runs.resume(request).await?.into_inner();
    assert_eq!(resumed.state(), v1::RunState::Running);
    let reply = second.sync(second.request(Vec::new(), 10.0)).await?;
    assert!(!reply.grants.is_empty());

    let submitted = runs
        .submit(v1::SubmitRequest {
            spec: Some(v1::PlanSpec {
                n: 8,
                layout: v1::Layout::Border.into(),
                task_cost: 0,
            }),
            priority: 3,
            ..v1::SubmitRequest::default()
        })
        .await?
        .into_inner();
    let listed = runs.list(v1::ListRequest {}).await?.into_inner().runs;
    assert_eq!(listed.len(), 2);
    assert!(listed.contains(&submitted));

    let mut records = runs.export(request).await?.into_inner();
    let record = records.message().await?.expect("one record was accepted");
    assert_eq!(record.task, scene.grants[0].task.task.0);
    assert!(record.line.contains("\"count\""), "{}", record.line);
    assert_eq!(records.message().await?, None);

    let cancelled = runs.cancel(request).await?.into_inner();
    assert_eq!(cancelled.state(), v1::RunState::Cancelled);
    let status = runs.resume(request).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    scene.face.stop().await
}

/// A machine that lies about everything, found out afterwards by two others that are asked to look.
#[tokio::test]
async fn a_complete_run_is_rechecked_corrected_and_its_liar_trusted_again() -> anyhow::Result<()> {
    let face = Face::start(Box::new(MemoryStore::default()), Config::default())?;
    let plan = plan(8, Layout::FirstRows, 10);
    let manifest = face.create(&plan).await?;
    let run = manifest.run.0;
    let mut runs = face.runs().await?;
    let none = v1::RecheckRequest {
        run,
        recheck: "0".to_owned(),
    };
    runs.recheck(none).await?;
    let mut liar = HandWorker::connect(&face, 7).await?;
    let mut grants = liar.sync(liar.request(Vec::new(), 1000.0)).await?.grants;
    while !grants.is_empty() {
        let lie = |grant: &Grant| Partial {
            count: count(grant).count + 8,
            ..count(grant)
        };
        let partials = grants.iter().map(lie).collect();
        grants = liar.sync(liar.request(partials, 1000.0)).await?.grants;
    }
    let mut outcomes = face.driver.outcomes();
    let wrong = outcomes
        .wait_for(|outcomes| outcomes.contains_key(&manifest.run))
        .await?[&manifest.run]
        .clone();
    assert_eq!(wrong.known, Known::Differs);
    let bad = runs.recheck(v1::RecheckRequest {
        run,
        recheck: "some".to_owned(),
    });
    assert_eq!(bad.await.unwrap_err().code(), Code::InvalidArgument);
    let all = v1::RecheckRequest {
        run,
        recheck: "all".to_owned(),
    };
    let again = runs.recheck(all).await?.into_inner();
    assert_eq!(again.state(), v1::RunState::Running);
    let mut honest = [
        HandWorker::connect(&face, 8).await?,
        HandWorker::connect(&face, 9).await?,
    ];
    let right = |outcome: &coordinator::driver::Outcome| outcome.known == Known::Matches;
    while !outcomes.borrow().get(&manifest.run).is_some_and(right) {
        for worker in &mut honest {
            worker.count_all().await?;
        }
    }
    let status = runs
        .get_status(v1::GetStatusRequest { run: Some(run) })
        .await?;
    let result = status.into_inner().result.expect("the run is over");
    let reason = |name: &str| {
        let check = result.checks.iter().find(|check| check.name == name);
        check.map(|check| (check.outcome.as_str(), check.reason.as_str()))
    };
    let (bound, text) = reason("bound").expect("a bound");
    assert!(bound == "passed" && text.contains("every count"), "{text}");
    assert!(
        reason("disagreements")
            .expect("disagreements")
            .1
            .contains("disagreed")
    );
    let reply = liar.sync(liar.request(Vec::new(), 10.0)).await?;
    assert!(reply.reason.contains("wrong"), "{}", reply.reason);
    for (name, code) in [("nobody", Code::NotFound), ("by hand", Code::NotFound)] {
        let worker = name.to_owned();
        let answer = runs.trust(v1::TrustRequest { worker }).await;
        assert_eq!(answer.unwrap_err().code(), code, "{name}");
    }
    let worker = "by hand 7".to_owned();
    let trusted = runs.trust(v1::TrustRequest { worker }).await?.into_inner();
    assert!(trusted.worker.contains("by hand 7"), "{}", trusted.worker);
    let reply = liar.sync(liar.request(Vec::new(), 10.0)).await?;
    assert!(!reply.reason.contains("wrong"), "{}", reply.reason);
    face.stop().await
}

/// Five machines take one task each after the other, begin it, and start anew without it.
#[tokio::test]
async fn a_parked_task_is_freed_by_retry() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let poison = scene.grants[0];
    let mut give_all_back = scene.worker.request(Vec::new(), 0.0);
    give_all_back.draining = true;
    scene.worker.sync(give_all_back).await?;
    for id in 10..15 {
        let mut worker = HandWorker::connect(&scene.face, id).await?;
        let grants = worker.sync(worker.request(Vec::new(), 1.0)).await?.grants;
        let grant = grants.iter().find(|grant| grant.task == poison.task);
        let mut begun = worker.request(Vec::new(), 0.0);
        begun.held = vec![held(grant.expect("what came back goes out first"))];
        worker.sync(begun).await?;
        worker.info.session = SessionId(2);
        worker.sync(worker.request(Vec::new(), 0.0)).await?;
    }
    assert_eq!(scene.tasks().await?.0.parked, 1);
    let request = v1::RunRequest {
        run: scene.manifest.run.0,
    };
    let mut runs = scene.face.runs().await?;
    runs.retry(request).await?;
    assert_eq!(scene.tasks().await?.0.parked, 0);
    scene.face.stop().await
}

#[tokio::test]
async fn a_watched_run_is_told_to_its_end() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let mut runs = scene.face.runs().await?;
    let request = v1::WatchStatusRequest {
        run: None,
        interval_ms: 50,
    };
    let mut statuses = runs.watch_status(request).await?.into_inner();
    let first = statuses.message().await?.expect("the status now");
    assert_eq!((first.tasks_done, first.result), (0, None));
    scene.worker.count_all().await?;
    let mut last = None;
    while let Some(status) = statuses.message().await? {
        last = Some(status);
    }
    let last = last.expect("the run changed");
    // Once every task is done, the estimate is the total and its interval is that point.
    let estimate = last
        .estimate
        .as_ref()
        .expect("enough tasks for an estimate");
    assert_eq!(estimate.solutions, "724");
    assert_eq!(
        (&estimate.low, &estimate.high),
        (&estimate.solutions, &estimate.solutions)
    );
    assert_eq!(last.tasks_done, scene.plan.tasks());
    assert_eq!(last.run.unwrap().state(), v1::RunState::Complete);
    assert_eq!(last.result.unwrap().solutions, "724");
    scene.face.stop().await
}

#[tokio::test]
async fn health_and_reflection_are_served() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let mut health = HealthClient::new(scene.face.connect().await?);
    for service in ["", "queens.v1.WorkQueue", "queens.v1.Runs"] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = health.check(request).await?.into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }

    let mut reflection = ServerReflectionClient::new(scene.face.connect().await?);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let requests = tokio_stream::iter([request]);
    let mut answers = reflection
        .server_reflection_info(requests)
        .await?
        .into_inner();
    let answer = answers
        .message()
        .await?
        .and_then(|answer| answer.message_response);
    let Some(MessageResponse::ListServicesResponse(list)) = answer else {
        panic!("no list of services: {answer:#?}");
    };
    let names: Vec<_> = list
        .service
        .iter()
        .map(|service| service.name.as_str())
        .collect();
    for service in [
        "queens.v1.WorkQueue",
        "queens.v1.Runs",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(&service), "{service} in {names:?}");
    }
    scene.face.stop().await
}

#[tokio::test]
async fn asking_twice_for_a_board_starts_one_run() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let mut runs = scene.face.runs().await?;
    let request = |n, key: &str| v1::SubmitRequest {
        spec: Some(v1::PlanSpec {
            n,
            layout: v1::Layout::Border.into(),
            task_cost: 0,
        }),
        idempotency_key: key.to_owned(),
        ..v1::SubmitRequest::default()
    };
    let first = runs.submit(request(9, "")).await?.into_inner();
    let name = RunId(first.run).to_string();
    for again in [request(9, ""), request(9, "key")] {
        let status = runs.submit(again).await.unwrap_err();
        assert_eq!(status.code(), Code::AlreadyExists, "{status}");
        let message = status.message();
        assert!(
            message.contains(&name) && message.contains("--again"),
            "{message}"
        );
    }
    // A lost answer: the same key gives the same run, whether it is there before or not.
    let keyed = |n, key| v1::SubmitRequest {
        again: true,
        ..request(n, key)
    };
    let second = runs.submit(keyed(9, "k1")).await?.into_inner();
    assert_ne!(first.run, second.run);
    for repeated in [keyed(9, "k1"), request(9, "k1")] {
        assert_eq!(runs.submit(repeated).await?.into_inner(), second);
    }
    let third = runs.submit(keyed(9, "k2")).await?.into_inner();
    assert_ne!(second.run, third.run);
    let status = runs.submit(request(10, "k1")).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert!(status.message().contains("'k1'"), "{status}");
    let status = runs.submit(request(10, "no key")).await.unwrap_err();
    assert!(status.message().starts_with("idempotency_key"), "{status}");
    // What was given up may be asked for like anything new.
    for run in [first.run, second.run, third.run] {
        runs.cancel(v1::RunRequest { run }).await?;
    }
    let fourth = runs.submit(request(9, "")).await?.into_inner();
    assert_eq!(fourth.state(), v1::RunState::Running);
    scene.face.stop().await
}
