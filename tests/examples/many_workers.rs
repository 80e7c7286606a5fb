//! A coordinator under many workers, each with a connection of its own on loopback; then a million
//! results, a kill, and how long it takes to serve again.
//!
//! `cargo run --release -p tests --example many_workers -- [--tls] [WORKERS] [SECONDS] [RESULTS] [DIR]`
//!
//! With MANY_WORKERS_HTTP=HOST:PORT in the environment the coordinator serves its pages there.
//! With `--tls` every worker has TLS and a token.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use common::sync::{SyncReply, SyncRequest};
use proto::{
    door::{Door, Way},
    v1::{GetStatusRequest, Status, runs_client::RunsClient, work_queue_client::WorkQueueClient},
};
use tests::{
    binaries::binaries,
    load::{IdleWorker, core_seconds, plan_of, quantile, resident_bytes},
    process::Process,
};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant as Tick, sleep_until},
};

/// Every worker calls once in this time: 30 times as often as a coordinator of 10,000 workers asks.
const PERIOD: Duration = Duration::from_secs(7);

/// Connections opened at the same time.
const OPENING: usize = 256;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    let tls = arguments.first().is_some_and(|first| first == "--tls");
    if tls {
        arguments.remove(0);
    }
    let argument = |place: usize, usual: &str| {
        let given = arguments.get(place);
        given.cloned().unwrap_or_else(|| usual.to_owned())
    };
    let workers: u32 = argument(0, "10000").parse().context("WORKERS")?;
    let span = Duration::from_secs(argument(1, "30").parse().context("SECONDS")?);
    let results: u64 = argument(2, "1000000").parse().context("RESULTS")?;
    let base = arguments.get(3).map_or_else(env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(base)?;

    let (process, ways) = coordinator(dir.path(), results, tls)?;
    let mut fleet = connect(&ways.worker, workers, &process).await?;
    renew(&mut fleet, span).await?;
    println!("  coordinator memory: {}", memory(&process));
    report(fleet, &ways.operator, results).await?;
    println!("  coordinator memory: {}", memory(&process));
    drop(process);

    let start = Instant::now();
    let (process, ways) = coordinator(dir.path(), results, tls)?;
    println!(
        "served again {:.2?} after a kill -9, {:.2} s of one core",
        start.elapsed(),
        core_seconds(process.id()).map_or(f64::NAN, |(own, _)| own)
    );
    let status = status(&ways.operator).await?;
    println!(
        "  {} of {} tasks done; coordinator memory: {}",
        status.tasks_done,
        status.tasks_total,
        memory(&process)
    );
    Ok(())
}

/// How workers and operators reach the coordinator.
struct Ways {
    worker: Way,
    operator: Way,
}

fn coordinator(dir: &Path, results: u64, tls: bool) -> anyhow::Result<(Process, Ways)> {
    let spec = *plan_of(results + results / 10).spec();
    let mut command = Command::new(&binaries().coordinator);
    command
        .args([
            "--n",
            &spec.board.to_string(),
            "--prefix",
            spec.layout.name(),
        ])
        .args(["--task-cost", &spec.task_cost.to_string()])
        .args(["--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir.join("data"));
    // For whoever looks at the pages meanwhile, such as tests/browser/viewers.js.
    let pages = env::var("MANY_WORKERS_HTTP").ok();
    match &pages {
        Some(address) => command.args(["--http", address]),
        None => command.arg("--no-http"),
    };
    if tls {
        command.args(["--advertise", "127.0.0.1", "--require-token"]);
    }
    let process = Process::start("the coordinator", &mut command);
    let line = process.stderr_line("listening on");
    if pages.is_some() {
        let at = process.stderr_line("dashboard at ");
        println!("{}, process {}", at.trim(), process.id());
    }
    if tls {
        process.stderr_line("QUEENS_JOIN");
        let joined = |role: &str| -> anyhow::Result<Way> {
            let text = fs::read_to_string(dir.join(format!("data/doors/{role}.join")))?;
            Ok(Way::Joined(text.parse()?))
        };
        let (worker, operator) = (joined("worker")?, joined("operator")?);
        return Ok((process, Ways { worker, operator }));
    }
    let address = line.split("listening on ").nth(1).unwrap_or_default();
    let address = address.split(": ").next().unwrap_or_default();
    let way = Way::Plain(format!("http://{address}").parse()?);
    let ways = Ways {
        worker: way.clone(),
        operator: way,
    };
    Ok((process, ways))
}

fn memory(process: &Process) -> String {
    match resident_bytes(process.id()) {
        Some(bytes) => format!("{} MB", bytes / 1_000_000),
        None => "unknown".to_owned(),
    }
}

struct Member {
    worker: IdleWorker,
    client: WorkQueueClient<Door>,
}

impl Member {
    async fn call(&mut self, request: SyncRequest) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let reply = self
            .client
            .sync(proto::v1::SyncRequest::from(request))
            .await?;
        let took = start.elapsed();
        self.worker.take(&SyncReply::try_from(reply.into_inner())?);
        Ok(took)
    }
}

/// Opens every connection and makes the first call on it.
async fn connect(way: &Way, workers: u32, process: &Process) -> anyhow::Result<Vec<Member>> {
    let start = Instant::now();
    let opening = Arc::new(Semaphore::new(OPENING));
    let mut joining = JoinSet::new();
    for number in 0..workers {
        let endpoint = way.endpoints().remove(0);
        let way = way.clone();
        let opening = Arc::clone(&opening);
        joining.spawn(async move {
            let _turn = opening.acquire().await?;
            let client = WorkQueueClient::new(way.door(endpoint.connect().await?));
            let worker = IdleWorker::new(number);
            let mut member = Member { worker, client };
            let request = member.worker.renew();
            member.call(request).await?;
            anyhow::Ok(member)
        });
    }
    let fleet: anyhow::Result<Vec<_>> = joining.join_all().await.into_iter().collect();
    println!(
        "{workers} workers connected and leased in {:.2?}",
        start.elapsed()
    );
    println!("  coordinator memory: {}", memory(process));
    fleet
}

/// Every worker renews its leases once in a period.
async fn renew(fleet: &mut Vec<Member>, span: Duration) -> anyhow::Result<()> {
    let workers = u32::try_from(fleet.len()).context("workers")?;
    let (start, mut calling) = (Tick::now(), JoinSet::new());
    for (number, mut member) in (0u32..).zip(fleet.drain(..)) {
        calling.spawn(async move {
            let mut calls = Vec::new();
            let mut next = start + PERIOD * number / workers;
            while next < start + span {
                sleep_until(next).await;
                calls.push(member.call(member.worker.renew()).await?);
                next += PERIOD;
            }
            anyhow::Ok((member, calls))
        });
    }
    let mut calls = Vec::new();
    while let Some(done) = calling.join_next().await {
        let (member, mut took) = done??;
        fleet.push(member);
        calls.append(&mut took);
    }
    calls.sort();
    println!(
        "{:.0} calls a second: median {:.2?}, 99 % {:.2?}, longest {:.2?}",
        calls.len() as f64 / start.elapsed().as_secs_f64(),
        quantile(&calls, 0.5),
        quantile(&calls, 0.99),
        quantile(&calls, 1.0),
    );
    Ok(())
}

/// Every worker reports what it holds as fast as it can, until so many results are on disk.
async fn report(fleet: Vec<Member>, way: &Way, results: u64) -> anyhow::Result<()> {
    let before = status(way).await?.tasks_done;
    let start = Instant::now();
    let mut reporting = JoinSet::new();
    for mut member in fleet {
        reporting.spawn(async move {
            loop {
                let request = member.worker.report(64);
                member.call(request).await?;
            }
            #[expect(unreachable_code)]
            anyhow::Ok(())
        });
    }
    let done = loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let done = status(way).await?.tasks_done;
        if done >= results {
            break done;
        }
    };
    let took = start.elapsed();
    reporting.abort_all();
    println!(
        "{done} results on disk, {:.0} a second",
        (done - before) as f64 / took.as_secs_f64()
    );
    Ok(())
}

async fn status(way: &Way) -> anyhow::Result<Status> {
    let channel = way.endpoints().remove(0).connect().await?;
    let request = GetStatusRequest { run: None };
    Ok(RunsClient::new(way.door(channel))
        .max_decoding_message_size(64 << 20)
        .get_status(request)
        .await?
        .into_inner())
}
