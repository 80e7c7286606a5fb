//! The gRPC and HTTP services of a coordinator: accepted and refused input,
//! and protection from clients that lie or do not read.

mod http;
mod volunteers;
mod wire;

use std::{collections::BTreeSet, fs};

use anyhow::Context as _;
use auth::Role;
use common::{
    messages::{limits, recheck::Recheck, run::WorkerId},
    method::Layout,
};
use kit::{count, plan};
use proto::{
    connect::AuthChannel,
    v1::{
        self, RunRequest, RunState, WatchStatusRequest, Worker, WorkerState, WorkersRequest,
        runs_client::RunsClient, set_request::Setting,
    },
};
use scheduler::ledger::Caller;
use serde_json::Value;
use tests::{
    cluster::{Cluster, named},
    load::resident_bytes,
    process::{Process, queensctl, within},
    service::{HandWorker, Service},
};
use tokio::task::block_in_place;
use tokio_stream::StreamExt as _;

/// The liar has an honest worker's token and its public data.
#[tokio::test]
async fn an_impersonator_is_barred_alone() -> anyhow::Result<()> {
    // About 200 tasks, of which the liar and the worker each get many.
    let cluster = Cluster::new(&["--n", "13", "--method", "rows", "--task-cost", "5"]);
    let coordinator = cluster.coordinator();
    let honest = cluster.worker("honest");
    let status = cluster.status(|status| named(status, "honest").is_some()).await;
    let victim = named(&status, "honest").expect("a worker").clone();
    let mut liar = HandWorker::in_dir(&cluster.data_dir(), 7).await?;
    liar.fake.info.name.clone_from(&victim.name);
    let mut message = v1::SyncRequest::from(liar.request(Vec::new(), 0.01));
    message.secret = [victim.id.clone(), victim.id.clone()].concat();
    let reply = liar.calls.sync(message).await?.into_inner();
    assert!(!reply.issued_secret.is_empty() && reply.grants.is_empty(), "{reply:?}");
    let mut partials = Vec::new();
    let lying = async {
        loop {
            let reply = liar.call(partials, 0.01).await?;
            if reply.reason.contains("no more work") {
                return anyhow::Ok(());
            }
            partials = reply.grants.iter().map(count).collect();
            partials.iter_mut().for_each(|partial| partial.count += 8);
        }
    };
    within("the liar is barred", lying).await?;
    assert_ne!(liar.worker().0.to_be_bytes().to_vec(), victim.id);
    let mut runs = RunsClient::new(cluster.connect().await?);
    let workers = runs.workers(WorkersRequest::default()).await?.into_inner().workers;
    let is_right =
        |worker: &Worker| (worker.state() == WorkerState::Barred) != (worker.id == victim.id);
    assert!(workers.iter().all(is_right), "{workers:#?}");
    cluster.check_exact(coordinator, "73712");
    let trust = fs::read_to_string(cluster.data_dir().join("trust.jsonl"))?;
    let facts = trust.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line"));
    let barred: Vec<_> = facts.filter(|fact| fact["trust"] == "barred").collect();
    assert_eq!(barred.len(), 1, "{trust}");
    assert!(barred[0]["reason"].as_str().is_some_and(|why| why.contains("referee")), "{trust}");
    honest.terminate().ok();
    Ok(())
}

/// Flow control window of a slow reader, in bytes: smaller than any answer.
const WINDOW: u32 = 8;

async fn slow_client(service: &Service) -> anyhow::Result<RunsClient<AuthChannel>> {
    let coordinator = service.endpoint(Role::Operator);
    let endpoint = coordinator.endpoints().remove(0).initial_stream_window_size(WINDOW);
    Ok(RunsClient::new(coordinator.authenticate(endpoint.connect().await?)))
}

#[tokio::test]
async fn slow_readers_do_not_delay_others() -> anyhow::Result<()> {
    let service = Service::start()?;
    let plan = plan(9, Layout::FirstRows, 1);
    let run = service.create(&plan).await?.run;
    let mut slow = Vec::new();
    for _ in 0..16 {
        let mut client = slow_client(&service).await?;
        for _ in 0..8 {
            let watch = WatchStatusRequest { run: Some(run.0), interval_ms: 50 };
            slow.push(client.watch_status(watch).await?);
        }
    }
    let mut worker = HandWorker::connect(&service, 7).await?;
    // Some tasks are counted twice: the first counts of a worker are rechecked.
    assert!(worker.count_all().await? >= plan.tasks());
    let mut late = Vec::new();
    for _ in 0..16 {
        late.push(slow_client(&service).await?.export(RunRequest { run: run.0 }).await?);
    }
    let runs = service.runs().await?.list(v1::ListRequest {}).await?;
    let listed = &runs.into_inner().runs[0];
    assert_eq!(listed.state(), RunState::Complete);
    // A client that reads later gets everything.
    let first = late.remove(0).into_inner().collect::<Result<Vec<_>, _>>();
    let records = within("the stream ends", first).await?.len() as u64;
    assert!(records >= plan.tasks(), "{records}");
    drop((slow, late));
    service.stop().await
}

/// Number of unread streams, and of workers.
const STREAMS: usize = 600;
const IDENTITIES: u32 = 8_400;

/// Maximum memory of the coordinator with these streams and workers.
const MEMORY_BYTES: u64 = 200_000_000;

/// `cargo test --test all unread_ -- --nocapture` prints the figures.
#[tokio::test]
async fn unread_streams_take_little_memory() -> anyhow::Result<()> {
    // The memory of the referee, which counts once nobody has delivered a task for a while, has its own limit.
    let cluster = Cluster::new(&["--n", "20", "--no-http", "--referee", "off"]);
    let process = cluster.start(&[]);
    let memory = || resident_bytes(process.id()).context("no /proc");
    let first = memory()?;

    let mut worker = HandWorker::in_dir(&cluster.data_dir(), 1).await?;
    for number in 1..=IDENTITIES {
        with_long_texts(&mut worker, number);
        worker.call(Vec::new(), 0.0).await?;
    }
    let known = memory()?;
    let mut unread = Vec::new();
    while unread.len() < STREAMS {
        let mut client = RunsClient::new(cluster.connect().await?);
        for _ in 0..50 {
            let watch = WatchStatusRequest { run: None, interval_ms: 50 };
            unread.push(client.watch_status(watch).await?);
        }
    }
    let mut most = 0;
    // Each call changes the status, which every stream would send.
    for _ in 0..3_000 {
        worker.call(Vec::new(), 0.0).await?;
        most = most.max(memory()?);
    }
    let megabytes = [first, known, most].map(|bytes| bytes / 1_000_000);
    println!(
        "resident, in MB: at the start, with {IDENTITIES} workers, with {STREAMS} unread streams: {megabytes:?}"
    );
    assert!(most < MEMORY_BYTES, "{most} bytes");
    drop(unread);
    Ok(())
}

/// Turns the worker into another one, with texts of maximum length.
fn with_long_texts(worker: &mut HandWorker, number: u32) {
    worker.secret = None;
    worker.fake.id = WorkerId(number.into());
    worker.fake.info.machine = number.into();
    worker.fake.info.name = format!("{number:0>width$}", width = common::text::NAME_BYTES);
    worker.fake.info.version = "9".repeat(limits::VERSION_BYTES);
}

/// A status and a page of workers fit a message, however many workers there are.
#[tokio::test(flavor = "multi_thread")]
async fn fifteen_thousand_workers_are_listed() -> anyhow::Result<()> {
    const WORKERS: u32 = 15_000;
    let service = Service::start()?;
    let run = service.create(&plan(9, Layout::FirstRows, 1)).await?.run;
    // Without rechecks a single worker can complete the run.
    let recheck = v1::SetRequest {
        run: run.0,
        setting: Some(Setting::Recheck(Recheck::Millionths(0).into())),
    };
    service.runs().await?.set(recheck).await?;
    let run = run.to_string();
    let mut worker = HandWorker::connect(&service, 1).await?;
    for number in 1..=WORKERS {
        with_long_texts(&mut worker, number);
        let mut request = worker.request(Vec::new(), 0.0);
        request.paused = "x".repeat(limits::REASON_BYTES);
        service.driver.sync(Caller::new(worker.fake.id, None), request).await?;
    }
    let join = service.join(Role::Operator).expose();
    let command = |arguments: &[&str]| {
        let mut command = queensctl(arguments);
        command.env("QUEENS_JOIN", &join);
        command
    };
    let run_queensctl =
        |arguments: &[&str]| block_in_place(|| Process::run(command(arguments))).ok().stdout;
    let status: Value = serde_json::from_str(&run_queensctl(&["status", "--json"]))?;
    assert_eq!(status["worker_totals"]["workers"], WORKERS);
    assert_eq!(status["workers"].as_array().map(Vec::len), Some(200));
    let more = "and 14,800 more: `queensctl workers` lists them all";
    assert!(run_queensctl(&["status"]).contains(more));
    let workers = run_queensctl(&["workers", "--json"]);
    let ids: BTreeSet<_> = workers
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).map(|worker| worker["id"].to_string()))
        .collect::<Result<_, _>>()?;
    assert_eq!(ids.len(), WORKERS as usize);
    assert!(run_queensctl(&["workers"]).lines().count() > WORKERS as usize);
    // `wait` and `status --watch` follow the run to its end.
    let following = [&["wait", &run][..], &["status", &run, "--watch"]];
    let following = following.map(|arguments| Process::start(command(arguments)));
    block_in_place(|| following[0].stderr_line("waiting for run"));
    block_in_place(|| following[1].stdout_line("N = 9"));
    HandWorker::connect(&service, u64::from(WORKERS) + 1).await?.count_all().await?;
    for process in following {
        block_in_place(|| process.end()).ok().prints(&["352 solutions"]);
    }
    service.stop().await
}
