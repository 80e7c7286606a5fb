//! A coordinator with many workers, each with its own connection on loopback.
//! `cargo run --release -p tests --example many_workers -- [--tls] [--void] [WORKERS] [SECONDS] [RESULTS]`
//!
//! The workers submit a million results; then the coordinator is killed, and the time until it serves again is
//! measured. With `--tls` every worker has TLS and a token; without it the coordinator is `--insecure`.
//! All results are wrong: with `--void` the referee of the restarted coordinator bars the workers one by one, which
//! voids their counts, and memory is measured.
//!
//! `cargo run --release -p tests --example many_workers -- --attack [WORKERS] [SECONDS] [SILENT] [GARBAGE]`
//!
//! Response times of the workers, and memory, under attack by SILENT connections without a handshake and by
//! GARBAGE clients that send random bytes.
//!
//! TMPDIR names another disk for the data. With MANY_WORKERS_HTTP=HOST:PORT in the environment the coordinator
//! serves its pages there.

use std::{
    env,
    net::SocketAddr,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use auth::Role;
use proto::{
    connect::CoordinatorEndpoint,
    v1::{GetStatusRequest, Status, runs_client::RunsClient},
};
use rand::RngExt as _;
use tests::{
    cluster::Cluster,
    load::{
        argument, arguments_of, call_regularly, core_seconds, has_option, memory_bytes, plan_of,
        print_memory,
    },
    process::Process,
    service::{HandWorker, find_join},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

/// Interval between a worker's calls: 1/30 of the real one for 10,000 workers.
const PERIOD: Duration = Duration::from_secs(7);

/// Interval between the calls of a worker while the coordinator is under attack.
const ATTACK_PERIOD: Duration = Duration::from_millis(500);

/// Delay before an attacker connects again.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);

/// Environment variable with the address that the process attacks.
const ATTACKED: &str = "QUEENS_ATTACKED";

/// Number of connections that are opened at the same time.
const OPENING: usize = 256;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if let Ok(address) = env::var(ATTACKED) {
        return attack(address.parse()?, argument(0, 0)?, argument(1, 0)?).await;
    }
    let is_attack = has_option("--attack");
    let tls = is_attack || has_option("--tls");
    let (workers, seconds, tasks) =
        if is_attack { (64, 60, 100_000) } else { (10_000, 30, 1_000_000) };
    let (workers, span) = (argument(0, workers)?, Duration::from_secs(argument(1, seconds)?));
    let results = if is_attack { tasks } else { argument(2, tasks)? };
    let run = arguments_of(&plan_of(results + results / 10));
    let run: Vec<_> = run.iter().map(String::as_str).collect();
    // For viewers such as tests/browser/viewers.js.
    let pages = env::var("MANY_WORKERS_HTTP").ok();
    let http = pages.as_ref().map_or(vec!["--no-http"], |address| vec!["--http", address]);
    let open = if tls { &[][..] } else { &["--insecure"] };
    let cluster = Cluster::new(&[&run, &http, open].concat());

    let process = cluster.start(&["--referee", "off"]);
    if pages.is_some() {
        let at = process.stderr_line("dashboard at ");
        println!("{}, process {}", at.trim(), process.id());
    }
    let [worker, operator] = endpoints(&cluster, tls)?;
    let mut fleet = connect_all(&worker, workers, &process).await?;
    if is_attack {
        return under_attack(fleet, &cluster, &process, span).await;
    }
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
    if has_option("--void") {
        void_all(&operator, &process).await?;
    }
    Ok(())
}

/// Waits until the referee has barred all workers.
async fn void_all(coordinator: &CoordinatorEndpoint, process: &Process) -> anyhow::Result<()> {
    let mut done = status(coordinator).await?.tasks_done;
    while done > 1_000 {
        sleep(Duration::from_millis(250)).await;
        let remaining = status(coordinator).await?.tasks_done;
        if done - remaining.min(done) > 1_000 {
            println!("{} counts are void", done - remaining);
            print_memory(process);
        }
        done = remaining;
    }
    let peak = memory_bytes(process.id(), "VmHWM:").unwrap_or_default();
    println!("  at most {} MB", peak / 1_000_000);
    Ok(())
}

/// Returns the endpoints for workers and operators.
fn endpoints(cluster: &Cluster, tls: bool) -> anyhow::Result<[CoordinatorEndpoint; 2]> {
    if tls {
        let joined = |role| find_join(&cluster.data_dir(), role).map(CoordinatorEndpoint::Token);
        return Ok([joined(Role::Worker)?, joined(Role::Operator)?]);
    }
    let coordinator = CoordinatorEndpoint::Plain(format!("http://{}", cluster.address()).parse()?);
    Ok([coordinator.clone(), coordinator])
}

/// Opens every connection and makes the first call on it.
async fn connect_all(
    coordinator: &CoordinatorEndpoint,
    workers: u32,
    process: &Process,
) -> anyhow::Result<Vec<HandWorker>> {
    let start = Instant::now();
    let opening = Arc::new(Semaphore::new(OPENING));
    let mut joining = JoinSet::new();
    for number in 0..workers {
        let coordinator = coordinator.clone();
        let opening = Arc::clone(&opening);
        joining.spawn(async move {
            let _turn = opening.acquire().await?;
            let mut member = HandWorker::idle(&coordinator, number).await?;
            member.report(0).await?;
            anyhow::Ok(member)
        });
    }
    let fleet: anyhow::Result<Vec<_>> = joining.join_all().await.into_iter().collect();
    println!("{workers} workers connected and leased in {:.2?}", start.elapsed());
    print_memory(process);
    fleet
}

/// Submits tasks of all workers as fast as possible, until `results` are on disk.
async fn submit_all(
    fleet: Vec<HandWorker>,
    coordinator: &CoordinatorEndpoint,
    results: u64,
) -> anyhow::Result<()> {
    let before = status(coordinator).await?.tasks_done;
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
        sleep(Duration::from_millis(250)).await;
        let done = status(coordinator).await?.tasks_done;
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

async fn status(coordinator: &CoordinatorEndpoint) -> anyhow::Result<Status> {
    let request = GetStatusRequest { run: None };
    Ok(RunsClient::new(coordinator.connect().await?)
        .max_decoding_message_size(64 << 20)
        .get_status(request)
        .await?
        .into_inner())
}

/// Measures response times and memory before, during and after an attack.
async fn under_attack(
    mut fleet: Vec<HandWorker>,
    cluster: &Cluster,
    process: &Process,
    span: Duration,
) -> anyhow::Result<()> {
    let quiet = (span / 4).max(ATTACK_PERIOD * 4);
    println!("before:");
    call_regularly(&mut fleet, 1, (ATTACK_PERIOD, quiet)).await?;
    let before = print_memory(process);

    let numbers: [u64; 2] = [argument(2, 2_000)?, argument(3, 200)?];
    let mut attacker = Command::new(env::current_exe()?)
        .args(numbers.map(|number| number.to_string()))
        .env(ATTACKED, cluster.address())
        .spawn()?;
    println!("under attack:");
    call_regularly(&mut fleet, 1, (ATTACK_PERIOD, span)).await?;
    print_memory(process);
    attacker.kill()?;
    attacker.wait()?;

    // Half-open connections of a host that is gone end with the time limit for handshakes.
    sleep(quiet.max(Duration::from_secs(12))).await;
    println!("after:");
    call_regularly(&mut fleet, 1, (ATTACK_PERIOD, quiet)).await?;
    let after = print_memory(process);
    println!("  {:+.1} % of before", (after as f64 / before as f64 - 1.0) * 100.0);
    Ok(())
}

/// Runs the attack until the process is killed.
async fn attack(address: SocketAddr, silent: u64, garbage: u64) -> anyhow::Result<()> {
    let [connected, sent] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    for number in 0..silent + garbage {
        let (connected, sent) = (connected.clone(), sent.clone());
        tokio::spawn(async move {
            loop {
                if let Ok(stream) = TcpStream::connect(address).await {
                    connected.fetch_add(1, Relaxed);
                    if number < silent {
                        stay_silent(stream).await;
                    } else {
                        let garbage = send_garbage(stream, number, &sent);
                        let _ = timeout(Duration::from_secs(1), garbage).await;
                    }
                }
                sleep(RECONNECT_DELAY).await;
            }
        });
    }
    let start = Instant::now();

    loop {
        sleep(Duration::from_secs(10)).await;
        println!(
            "  attacker, after {:.0?}: {} connections made, {} kB of garbage sent",
            start.elapsed(),
            connected.load(Relaxed),
            sent.load(Relaxed) / 1000
        );
    }
}

/// Starts a handshake, then sends nothing until the coordinator disconnects.
async fn stay_silent(mut stream: TcpStream) {
    let _ = stream.write_all(&[0x16, 3, 1]).await;
    let _ = stream.read_u8().await;
}

/// Sends random bytes: alone, or after the start of TLS, HTTP/2 or a long frame.
async fn send_garbage(mut stream: TcpStream, number: u64, sent: &AtomicU64) -> anyhow::Result<()> {
    let head: &[u8] = match number % 4 {
        0 => &[],
        1 => &[0x16, 3, 1, 0xff, 0xff, 1],
        2 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        _ => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x01\x04\0\0\0\x01",
    };
    stream.write_all(head).await?;
    let mut bytes = [0; 4096];
    loop {
        rand::rng().fill(&mut bytes);
        stream.write_all(&bytes).await?;
        sent.fetch_add(bytes.len() as u64, Relaxed);
        tokio::task::yield_now().await;
    }
}
