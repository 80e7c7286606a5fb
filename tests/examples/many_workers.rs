//! A coordinator with many workers, each with a connection of its own on loopback; then a million results, a
//! kill, and the time until it serves again.
//!
//! `cargo run --release -p tests --example many_workers -- [--tls] [WORKERS] [SECONDS] [RESULTS]`
//!
//! TMPDIR names another disk for its data.
//! With MANY_WORKERS_HTTP=HOST:PORT in the environment the coordinator serves its pages there.
//! With `--tls` every worker has TLS and a token; without it the coordinator is `--insecure`.

use std::{
    env,
    sync::Arc,
    time::{Duration, Instant},
};

use auth::Role;
use proto::{
    connect::CoordinatorEndpoint,
    v1::{GetStatusRequest, Status, runs_client::RunsClient},
};
use tests::{
    cluster::Cluster,
    load::{
        argument, arguments_of, call_regularly, core_seconds, has_option, plan_of, print_memory,
    },
    process::Process,
    service::{HandWorker, connect, find_join},
};
use tokio::{sync::Semaphore, task::JoinSet};

/// Interval between the calls of a worker: a coordinator of 10,000 workers asks for 30 times as long.
const PERIOD: Duration = Duration::from_secs(7);

/// Number of connections that are opened at the same time.
const OPENING: usize = 256;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let tls = has_option("--tls");
    let (workers, span) = (argument(0, 10_000)?, Duration::from_secs(argument(1, 30)?));
    let results = argument(2, 1_000_000)?;
    let run = arguments_of(&plan_of(results + results / 10));
    let run: Vec<_> = run.iter().map(String::as_str).collect();
    // For viewers such as tests/browser/viewers.js.
    let pages = env::var("MANY_WORKERS_HTTP").ok();
    let http = pages.as_ref().map_or(vec!["--no-http"], |address| vec!["--http", address]);
    let open = if tls { &[][..] } else { &["--insecure"] };
    let cluster = Cluster::new(&[&run, &http, open].concat());

    let process = cluster.start(&[]);
    if pages.is_some() {
        let at = process.stderr_line("dashboard at ");
        println!("{}, process {}", at.trim(), process.id());
    }
    let [worker, operator] = ways(&cluster, tls)?;
    let mut fleet = connect_all(&worker, workers, &process).await?;
    call_regularly(&mut fleet, 0, (PERIOD, span)).await?;
    print_memory(&process);
    submit_all(fleet, &operator, results).await?;
    print_memory(&process);
    drop(process);

    let start = Instant::now();
    let process = cluster.start(&[]);
    println!(
        "served again {:.2?} after a kill -9, {:.2} s of one core",
        start.elapsed(),
        core_seconds(process.id()).map_or(f64::NAN, |(own, _)| own)
    );
    let status = status(&operator).await?;
    println!("  {} of {} tasks done", status.tasks_done, status.tasks_total);
    print_memory(&process);
    Ok(())
}

/// Returns how workers and operators reach the coordinator.
fn ways(cluster: &Cluster, tls: bool) -> anyhow::Result<[CoordinatorEndpoint; 2]> {
    if tls {
        let joined = |role| find_join(&cluster.data_dir(), role).map(CoordinatorEndpoint::Token);
        return Ok([joined(Role::Worker)?, joined(Role::Operator)?]);
    }
    let way = CoordinatorEndpoint::Plain(format!("http://{}", cluster.address()).parse()?);
    Ok([way.clone(), way])
}

/// Opens every connection and makes the first call on it.
async fn connect_all(
    way: &CoordinatorEndpoint,
    workers: u32,
    process: &Process,
) -> anyhow::Result<Vec<HandWorker>> {
    let start = Instant::now();
    let opening = Arc::new(Semaphore::new(OPENING));
    let mut joining = JoinSet::new();
    for number in 0..workers {
        let way = way.clone();
        let opening = Arc::clone(&opening);
        joining.spawn(async move {
            let _turn = opening.acquire().await?;
            let mut member = HandWorker::idle(&way, number).await?;
            member.report(0).await?;
            anyhow::Ok(member)
        });
    }
    let fleet: anyhow::Result<Vec<_>> = joining.join_all().await.into_iter().collect();
    println!("{workers} workers connected and leased in {:.2?}", start.elapsed());
    print_memory(process);
    fleet
}

/// Lets every worker submit what it holds as fast as it can, until `results` are on disk.
async fn submit_all(
    fleet: Vec<HandWorker>,
    way: &CoordinatorEndpoint,
    results: u64,
) -> anyhow::Result<()> {
    let before = status(way).await?.tasks_done;
    let start = Instant::now();
    let mut reporting = JoinSet::new();
    for mut member in fleet {
        reporting.spawn(async move {
            loop {
                member.report(64).await?;
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
        "{done} results on disk, {:.0} per second",
        (done - before) as f64 / took.as_secs_f64()
    );
    Ok(())
}

async fn status(way: &CoordinatorEndpoint) -> anyhow::Result<Status> {
    let request = GetStatusRequest { run: None };
    Ok(RunsClient::new(connect(way).await?)
        .max_decoding_message_size(64 << 20)
        .get_status(request)
        .await?
        .into_inner())
}
