//! A coordinator with many workers, undisturbed and under attack.

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
    load::{arguments_of, call_regularly, core_seconds, memory_bytes, plan_of, print_memory},
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

/// Number of connections that are opened at the same time.
const OPENING: usize = 256;

/// A coordinator with many workers, each with its own connection on loopback. They submit a million results;
/// then the coordinator is killed, and the time until it serves again is measured. TMPDIR names another disk for the
/// data.
#[derive(clap::Args)]
pub(super) struct Options {
    #[arg(default_value_t = 10_000)]
    workers: u32,
    /// Seconds in which the workers only call.
    #[arg(default_value_t = 30)]
    seconds: u64,
    #[arg(default_value_t = 1_000_000)]
    results: u64,
    /// Give every worker TLS and a token; without it the coordinator is `--insecure`.
    #[arg(long)]
    tls: bool,
    /// Let the referee of the restarted coordinator bar the workers one by one, which voids their counts: all are
    /// wrong.
    #[arg(long)]
    void: bool,
    /// HOST:PORT of the coordinator's pages, for viewers such as tests/browser/viewers.js.
    #[arg(long)]
    http: Option<String>,
}

/// Returns a coordinator's directory for a run of this many results.
fn cluster(results: u64, more: &[&str]) -> Cluster {
    let run = arguments_of(&plan_of(results + results / 10));
    let run: Vec<_> = run.iter().map(String::as_str).collect();
    Cluster::new(&[&run, more].concat())
}

pub(super) async fn run(options: &Options) -> anyhow::Result<()> {
    let http = options.http.as_ref().map_or(vec!["--no-http"], |address| vec!["--http", address]);
    let open = if options.tls { &[][..] } else { &["--insecure"] };
    let cluster = cluster(options.results, &[&http, open].concat());
    let process = cluster.start(&["--referee", "off"]);
    if options.http.is_some() {
        let at = process.stderr_line("dashboard at ");
        println!("{}, process {}", at.trim(), process.id());
    }
    let [worker, operator] = endpoints(&cluster, options.tls)?;
    let mut fleet = connect_all(&worker, options.workers, &process).await?;
    let span = Duration::from_secs(options.seconds);
    call_regularly(&mut fleet, 0, (PERIOD, span)).await?;
    print_memory(&process);
    submit_all(fleet, &operator, options.results).await?;
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
    if options.void {
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

/// Response times of workers, and memory, before, during and after an attack.
#[derive(clap::Args)]
pub(super) struct AttackOptions {
    #[arg(default_value_t = 64)]
    workers: u32,
    /// Seconds of the attack.
    #[arg(default_value_t = 60)]
    seconds: u64,
    /// Connections without a handshake.
    #[arg(default_value_t = 2_000)]
    silent: u64,
    /// Clients that send random bytes.
    #[arg(default_value_t = 200)]
    garbage: u64,
}

pub(super) async fn under_attack(options: &AttackOptions) -> anyhow::Result<()> {
    let cluster = cluster(100_000, &["--no-http"]);
    let process = &cluster.start(&["--referee", "off"]);
    let [worker, _] = endpoints(&cluster, true)?;
    let mut fleet = connect_all(&worker, options.workers, process).await?;
    let span = Duration::from_secs(options.seconds);
    let quiet = (span / 4).max(ATTACK_PERIOD * 4);
    println!("before:");
    call_regularly(&mut fleet, 1, (ATTACK_PERIOD, quiet)).await?;
    let before = print_memory(process);

    let numbers = [options.silent, options.garbage].map(|number| number.to_string());
    let mut attacker = Command::new(env::current_exe()?)
        .args(["attacker", &cluster.address()])
        .args(numbers)
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

/// An attack until the process is killed.
#[derive(clap::Args)]
pub(super) struct Attacker {
    address: SocketAddr,
    silent: u64,
    garbage: u64,
}

pub(super) async fn attack(options: &Attacker) -> anyhow::Result<()> {
    let &Attacker { address, silent, garbage } = options;
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
