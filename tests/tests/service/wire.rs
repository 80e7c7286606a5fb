//! gRPC over real TCP: accepted input, and refused input, which changes nothing.

use std::{fs, net::Ipv4Addr, os::unix::fs::symlink};

use common::{
    compute::kernel::KernelName,
    messages::{
        limits::MESSAGE_BYTES,
        recheck::Recheck,
        run::{Epoch, LeaseKey, Partial, RunId, SessionId},
        sync::{Grant, HeldLease, SyncReply, Verdict},
    },
    method::Layout,
    plan::Plan,
};
use kit::{count, held, plan};
use proto::v1::{self, set_request::Setting};
use scheduler::{Config, TaskNumbers, WorkersPart};
use store::{DiskStore, JournalCursor, MemoryStore, RunManifest};
use tests::{
    process::within,
    service::{HandWorker, Service},
};
use tokio_stream::StreamExt as _;
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
    service: Service,
    plan: Plan,
    manifest: RunManifest,
    worker: HandWorker,
    grants: Vec<Grant>,
}

impl Scene {
    async fn new() -> anyhow::Result<Self> {
        let service = Service::start()?;
        let plan = plan(10, Layout::FirstRows, 1);
        let manifest = service.create(&plan).await?;
        let mut worker = HandWorker::connect(&service, 7).await?;
        let grants = worker.call(Vec::new(), 1.0).await?.grants;
        assert!(grants.len() > 1 && (grants.len() as u64) < plan.tasks(), "{grants:?}");
        Ok(Self { service, plan, manifest, worker, grants })
    }

    async fn tasks(&self) -> anyhow::Result<(TaskNumbers, u128)> {
        let report = self.service.driver.status(Some(self.manifest.run)).await?;
        let status = report.expect("the run is there").status;
        Ok((status.run.tasks, status.solutions_so_far))
    }

    /// Makes a call that keeps all leases and submits one partial.
    async fn report(&mut self, partial: Partial) -> Result<SyncReply, tonic::Status> {
        let mut request = self.worker.request(vec![partial], 0.0);
        request.held = self.grants.iter().map(held).collect();
        self.worker.sync(request).await
    }
}

/// The scheduler's scripts test the other reasons.
#[tokio::test]
async fn partials_are_refused_with_the_reason_or_accepted_once() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let good = count(&scene.grants[0]);
    let before = scene.tasks().await?;
    let lease = LeaseKey { epoch: Epoch(u64::MAX), ..good.lease };
    let reply = scene.report(Partial { lease, ..good }).await?;
    let [answer] = reply.acknowledgements.as_slice() else {
        panic!("one answer to one partial: {reply:#?}");
    };
    assert_eq!(answer.verdict, Verdict::RefusedKeep, "{answer:#?}");
    assert!(answer.reason.contains("did not grant this lease"), "{answer:#?}");
    assert_eq!(scene.tasks().await?, before);
    for verdict in [Verdict::Accepted, Verdict::Duplicate] {
        let reply = scene.report(good).await?;
        assert_eq!(reply.acknowledgements[0].verdict, verdict);
        let (tasks, solutions) = scene.tasks().await?;
        assert_eq!((tasks.done, solutions), (1, u128::from(good.count)));
    }
    let run = v1::RunRequest { run: scene.manifest.run.0 };
    let mut records = scene.service.runs().await?.export(run).await?.into_inner();
    let record = records.message().await?.expect("one record was accepted");
    assert_eq!((record.task, record.count), (good.lease.task.task.0, good.count));
    assert!(record.line.contains("\"count\""), "{}", record.line);
    assert_eq!(records.message().await?, None);

    scene.service.stop().await
}

#[tokio::test]
async fn a_result_that_cannot_be_stored_is_never_acknowledged() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let store = DiskStore::open(dir.path())?;
    let mut service = Service::with(Box::new(store), Config::default(), Ipv4Addr::LOCALHOST)?;
    let run = service.create(&plan(10, Layout::FirstRows, 1)).await?.run;
    // The kernel's always-full device stands in for the disk.
    let journal = dir.path().join(format!("runs/{run}/journal.jsonl"));
    fs::remove_file(&journal)?;
    symlink("/dev/full", &journal)?;
    let mut worker = HandWorker::connect(&service, 7).await?;
    let grants = worker.call(Vec::new(), 1.0).await?.grants;
    let lost = worker.call(vec![count(&grants[0])], 0.0).await.unwrap_err();
    assert_eq!(lost.code(), Code::Unavailable, "{lost}");
    let end = (&mut service.end).await?.unwrap_err().to_string();
    assert!(end.contains("journal.jsonl"), "{end}");
    // The driver has ended.
    let refused = worker.call(Vec::new(), 0.0).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("shutting down"), "{refused}");
    Ok(())
}

/// `proto` tests the other fields.
#[tokio::test]
async fn invalid_and_oversize_messages_are_refused() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let before = scene.tasks().await?;
    let mut short = v1::SyncRequest::from(scene.worker.request(vec![count(&scene.grants[0])], 0.0));
    let mut large = short.clone();
    short.secret = vec![1, 2, 3];
    large.worker.as_mut().unwrap().name = "x".repeat(MESSAGE_BYTES + 1);
    let old = v1::SyncRequest { protocol: 99, ..v1::SyncRequest::default() };
    for (message, code, why) in [
        (short, Code::InvalidArgument, "secret"),
        (large, Code::OutOfRange, "too large"),
        (old, Code::FailedPrecondition, "protocol version 99"),
    ] {
        let status = scene.worker.calls.sync(message).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(why), "{why}: {status}");
    }
    assert_eq!(scene.tasks().await?, before);
    scene.service.stop().await
}

#[tokio::test]
async fn bad_requests_of_operators_are_refused_with_the_reason() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let mut runs = scene.service.runs().await?;
    let unknown = v1::RunRequest { run: 0xdead };
    for status in [
        runs.pause(unknown).await.unwrap_err(),
        runs.cancel(unknown).await.unwrap_err(),
        runs.export(unknown).await.unwrap_err(),
    ] {
        assert_eq!(status.code(), Code::NotFound);
        assert!(status.message().contains("000000000000dead"), "{status}");
    }
    let spec = v1::PlanSpec { n: 32, layout: v1::Layout::FirstRows.into(), task_cost: 1 };
    let large = v1::SubmitRequest { spec: Some(spec), ..v1::SubmitRequest::default() };
    for request in [large, v1::SubmitRequest::default()] {
        let status = runs.submit(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().starts_with("spec"), "{status}");
    }
    assert_eq!(scene.service.driver.runs().await?.len(), 1);
    scene.service.stop().await
}

/// Two other workers expose a liar after the run; it is barred and readmitted.
#[tokio::test]
async fn a_complete_run_is_rechecked_corrected_and_its_liar_readmitted() -> anyhow::Result<()> {
    // With random recounts the referee would find the liar before the run ends.
    let config = Config { recounts: 0, ..Config::default() };
    let store = Box::new(MemoryStore::default());
    let service = Service::with(store, config, Ipv4Addr::LOCALHOST)?;
    let plan = plan(8, Layout::FirstRows, 10);
    let manifest = service.create(&plan).await?;
    let run = manifest.run.0;
    let mut runs = service.runs().await?;
    let none =
        v1::SetRequest { run, setting: Some(Setting::Recheck(Recheck::Millionths(0).into())) };
    runs.set(none).await?;
    let mut liar = HandWorker::connect(&service, 7).await?;
    liar.count_wrong(|_| 8).await?;
    let mut outcomes = service.driver.outcomes();
    let wrong = outcomes.wait_for(|outcomes| outcomes.contains_key(&manifest.run)).await?
        [&manifest.run]
        .clone();
    assert_eq!(wrong.matches_published, Some(false));
    let bad = v1::Recheck { part: Some(v1::recheck::Part::Millionths(1_000_001)) };
    let bad =
        runs.set(v1::SetRequest { run, setting: Some(Setting::Recheck(bad)) }).await.unwrap_err();
    assert_eq!(bad.code(), Code::InvalidArgument);
    let unset = runs.set(v1::SetRequest { run, setting: None }).await.unwrap_err();
    assert_eq!(unset.code(), Code::InvalidArgument);
    let all = v1::SetRequest { run, setting: Some(Setting::Recheck(Recheck::All.into())) };
    let again = runs.set(all).await?.into_inner();
    assert_eq!(again.state(), v1::RunState::Running);
    let mut honest =
        [HandWorker::connect(&service, 8).await?, HandWorker::connect(&service, 9).await?];
    let right = |outcome: &coordinator::driver::Outcome| outcome.matches_published == Some(true);
    let corrected = async {
        while !outcomes.borrow().get(&manifest.run).is_some_and(right) {
            for worker in &mut honest {
                worker.count_all().await?;
            }
            // The referee counts what is disputed.
            while let Some(recount) = service.driver.next_recount(false).await? {
                let grant = kit::grant(manifest.run, &plan, recount.task.0);
                let count = count(&Grant { orientation: recount.orientation, ..grant }).count;
                service.driver.recounted(recount, count, KernelName::Scalar, 1).await?;
            }
        }
        anyhow::Ok(())
    };
    within("the total is right", corrected).await?;
    let status = runs.get_status(v1::GetStatusRequest { run: Some(run) }).await?;
    let result = status.into_inner().result.expect("the run is finished");
    let check = |name: &str| {
        let check = result.checks.iter().find(|check| check.name == name);
        check.map(|check| (check.outcome(), check.reason.as_str()))
    };
    let (_, text) = check("rechecks").expect("rechecks");
    assert!(text.contains("by the same token only"), "{text}");
    let (disputes, text) = check("disputes").expect("disputes");
    assert!(disputes == v1::CheckOutcome::Passed && text.contains("all ended"), "{text}");
    let reply = liar.call(Vec::new(), 10.0).await?;
    assert!(reply.reason.contains("barred"), "{}", reply.reason);
    for (name, code) in [("nobody", Code::NotFound), ("worker", Code::NotFound)] {
        let worker = name.to_owned();
        let answer = runs.trust(v1::TrustRequest { worker }).await;
        assert_eq!(answer.unwrap_err().code(), code, "{name}");
    }
    let worker = "worker-7".to_owned();
    let trusted = runs.trust(v1::TrustRequest { worker }).await?.into_inner();
    assert!(trusted.worker.contains("worker-7"), "{}", trusted.worker);
    let again = runs.trust(v1::TrustRequest { worker: "worker-7".to_owned() }).await.unwrap_err();
    assert!(again.message().contains("is not barred: there is nothing to readmit"), "{again}");
    let reply = liar.call(Vec::new(), 10.0).await?;
    assert!(!reply.reason.contains("barred"), "{}", reply.reason);
    service.stop().await
}

/// Five machines that have counted, one after another, start a task and restart without it.
#[tokio::test]
async fn a_parked_task_is_freed_by_retry() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let poison = scene.grants[0];
    let mut workers = Vec::new();
    for id in 10..15 {
        // Failures of workers that have not delivered a first count do not count.
        let mut worker = HandWorker::connect(&scene.service, id).await?;
        let first_count = async {
            loop {
                let grants = worker.call(Vec::new(), 1.0).await?.grants;
                let reply = worker.call(grants.iter().map(count).collect(), 0.0).await?;
                let mut verdicts = reply.acknowledgements.iter().map(|answer| answer.verdict);
                if verdicts.any(|verdict| verdict == Verdict::Accepted) {
                    return anyhow::Ok(());
                }
            }
        };
        within("a first count is accepted", first_count).await?;
        workers.push(worker);
    }
    let mut release_all = scene.worker.request(Vec::new(), 0.0);
    release_all.draining = true;
    scene.worker.sync(release_all).await?;
    for mut worker in workers {
        let mut partials = Vec::new();
        let granted = async {
            loop {
                let grants = worker.call(partials, 1.0).await?.grants;
                assert!(!grants.is_empty(), "the task is granted before the others are done");
                match grants.iter().find(|grant| grant.lease.task == poison.lease.task) {
                    Some(grant) => return anyhow::Ok(held(grant)),
                    None => partials = grants.iter().map(count).collect(),
                }
            }
        };
        let lease = within("the task is granted", granted).await?;
        let mut begun = worker.request(Vec::new(), 0.0);
        begun.held = vec![HeldLease { started: true, ..lease }];
        worker.sync(begun).await?;
        worker.fake.info.session = SessionId(2);
        worker.call(Vec::new(), 0.0).await?;
    }
    assert_eq!(scene.tasks().await?.0.parked, 1);
    let request = v1::RunRequest { run: scene.manifest.run.0 };
    let mut runs = scene.service.runs().await?;
    runs.retry(request).await?;
    assert_eq!(scene.tasks().await?.0.parked, 0);
    scene.service.stop().await
}

#[tokio::test]
async fn a_watched_run_is_reported_to_its_end() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let mut runs = scene.service.runs().await?;
    let request = v1::WatchStatusRequest { run: None, interval_ms: 50 };
    let mut statuses = runs.watch_status(request).await?.into_inner();
    let first = statuses.message().await?.expect("the status now");
    assert_eq!((first.tasks_done, first.result), (0, None));
    scene.worker.count_all().await?;
    let watched = within("the run ends", statuses.collect::<Result<Vec<_>, _>>()).await?;
    let last = watched.into_iter().next_back().expect("the run changed");
    // Once every task is done, the estimate is the total, and its interval is that one value.
    let estimate = last.estimate.as_ref().expect("enough tasks for an estimate");
    assert_eq!(estimate.solutions, "724");
    assert_eq!((&estimate.low, &estimate.high), (&estimate.solutions, &estimate.solutions));
    assert_eq!(last.tasks_done, scene.plan.tasks());
    assert_eq!(last.run.unwrap().state(), v1::RunState::Complete);
    assert_eq!(last.result.unwrap().solutions, "724");

    // An operator asks for rechecks of the complete run.
    let setting = Some(Setting::Recheck(Recheck::All.into()));
    runs.set(v1::SetRequest { run: scene.manifest.run.0, setting }).await?;
    let mut statuses = runs.watch_status(request).await?.into_inner();
    let first = statuses.message().await?.expect("the status now");
    assert!(first.result.is_some() && first.reason.contains("rechecking 0 of"), "{first:?}");
    HandWorker::connect(&scene.service, 8).await?.count_all().await?;
    let watched = within("the rechecks end", statuses.collect::<Result<Vec<_>, _>>()).await?;
    let last = watched.into_iter().next_back().expect("the rechecks were reported");
    assert_eq!((last.result.unwrap().verified, last.reason.as_str()), (true, ""));
    scene.service.stop().await
}

#[tokio::test]
async fn health_and_reflection_are_served() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let mut health = HealthClient::new(scene.service.connect().await?);
    for service in ["", "queens.v1.WorkQueue", "queens.v1.Runs"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = health.check(request).await?.into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }

    let mut reflection = ServerReflectionClient::new(scene.service.connect().await?);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let requests = tokio_stream::iter([request]);
    let mut answers = reflection.server_reflection_info(requests).await?.into_inner();
    let answer = answers.message().await?.and_then(|answer| answer.message_response);
    let Some(MessageResponse::ListServicesResponse(list)) = answer else {
        panic!("no list of services: {answer:#?}");
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    for service in ["queens.v1.WorkQueue", "queens.v1.Runs", "grpc.health.v1.Health"] {
        assert!(names.contains(&service), "{service} in {names:?}");
    }
    scene.service.stop().await
}

#[tokio::test]
async fn asking_twice_for_a_board_starts_one_run() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let mut runs = scene.service.runs().await?;
    let request = |n, key: &str| v1::SubmitRequest {
        spec: Some(v1::PlanSpec { n, layout: v1::Layout::Border.into(), task_cost: 0 }),
        idempotency_key: key.to_owned(),
        ..v1::SubmitRequest::default()
    };
    let first = runs.submit(request(9, "")).await?.into_inner();
    let name = RunId(first.run).to_string();
    for again in [request(9, ""), request(9, "key")] {
        let status = runs.submit(again).await.unwrap_err();
        assert_eq!(status.code(), Code::AlreadyExists, "{status}");
        let message = status.message();
        assert!(message.contains(&name) && !message.contains("--"), "{message}");
    }
    // A retry with the same key returns the same run, with or without `new_run`.
    let keyed = |n, key| v1::SubmitRequest { new_run: true, ..request(n, key) };
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
    // A cancelled board may be submitted again.
    for run in [first.run, second.run, third.run] {
        runs.cancel(v1::RunRequest { run }).await?;
    }
    let status = runs.resume(v1::RunRequest { run: third.run }).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    let fourth = runs.submit(request(9, "")).await?.into_inner();
    assert_eq!(fourth.state(), v1::RunState::Running);
    scene.service.stop().await
}

/// The name, id and leases of a worker are public, and do not authenticate it.
#[tokio::test]
async fn a_worker_is_known_only_by_its_secret() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let partial = count(&scene.grants[0]);
    let honest = scene.worker.worker();
    let shown = scene.service.driver.workers(WorkersPart::ByAttention(0..9)).await?.workers;
    assert_eq!(shown.iter().map(|worker| worker.id).collect::<Vec<_>>(), [honest]);
    let mut liar = HandWorker::connect(&scene.service, 8).await?;
    let mut message = v1::SyncRequest::from(liar.request(vec![partial], 0.0));
    message.worker = Some(scene.worker.fake.info.clone().into());
    // The bytes that exports show, and bytes that were never issued.
    let id = honest.0.to_be_bytes();
    for forged in [[id, id].concat(), vec![0; 32]] {
        message.secret = forged;
        let reply = liar.calls.sync(message.clone()).await?.into_inner();
        assert_eq!(reply.issued_secret.len(), 32, "{reply:?}");
        assert!(reply.acknowledgements.is_empty() && reply.grants.is_empty(), "{reply:?}");
    }
    // With its own secret the liar calls as itself, and the proof of the lease is not its own.
    let wrong = Partial { count: partial.count + 8, ..partial };
    let mut request = liar.request(vec![wrong], 0.0);
    request.worker = scene.worker.fake.info.clone();
    let reply = liar.sync(request).await?;
    assert_eq!(reply.acknowledgements[0].verdict, Verdict::RefusedKeep, "{reply:?}");
    assert_ne!(liar.worker(), honest);
    let reply = scene.report(partial).await?;
    assert_eq!(reply.acknowledgements[0].verdict, Verdict::Accepted, "{reply:?}");
    let page = scene.service.driver.journal(scene.manifest.run, JournalCursor::default()).await?;
    let page = page.expect("the run is there");
    assert_eq!(page.lines.len(), 1);
    for (_, entry, line) in &page.lines {
        assert_eq!(entry.record.worker, honest);
        let secret = common::messages::hex::encode(&scene.worker.secret());
        assert!(!line.contains(&secret[..8]), "{line}");
    }
    scene.service.stop().await
}
