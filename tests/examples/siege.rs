//! A coordinator under honest workers and a siege: connections that are opened and say nothing, and
//! clients that send garbage. How long the honest ones wait, and what memory it takes.
//!
//! `cargo run --release -p tests --example siege -- [SECONDS] [SILENT] [GARBAGE] [WORKERS]`

use std::{
    env, fs,
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use common::sync::SyncReply;
use proto::{
    door::{Door, JoinString, Way},
    v1::work_queue_client::WorkQueueClient,
};
use rand::RngExt as _;
use tests::{
    binaries::binaries,
    load::{IdleWorker, plan_of, quantile, resident_bytes},
    process::Process,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{Instant as Tick, sleep, sleep_until, timeout},
};

/// Every honest worker calls so often.
const PERIOD: Duration = Duration::from_millis(500);

/// A garbage client begins anew after this time.
const AGAIN: Duration = Duration::from_millis(100);

/// The word that makes this program the besieger.
const BESIEGE: &str = "besiege";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == BESIEGE) {
        return besiege(&arguments[1..]).await;
    }
    let number = |place: usize, usual: u64| match arguments.get(place) {
        Some(given) => given.parse().context("a number"),
        None => Ok(usual),
    };
    let span = Duration::from_secs(number(0, 60)?);
    let (silent, garbage, workers) = (number(1, 2000)?, number(2, 200)?, number(3, 64)?);
    let dir = tempfile::tempdir()?;
    let (process, join) = coordinator(dir.path())?;
    let way = Way::Joined(join.clone());
    let memory = || resident_bytes(process.id()).unwrap_or_default();

    let mut fleet = Vec::new();
    for worker in 0..u32::try_from(workers)? {
        let channel = way.endpoints().remove(0).connect().await?;
        let client = WorkQueueClient::new(way.door(channel));
        fleet.push((IdleWorker::new(worker), client));
    }
    let quiet = (span / 4).max(PERIOD * 4);
    fleet = honest("before", fleet, quiet).await?;
    let before = memory();
    println!("  coordinator memory: {} MB", before / 1_000_000);

    let address = join.addresses()[0].clone();
    let mut besieger = Command::new(env::current_exe()?)
        .args([BESIEGE, &address])
        .args([silent.to_string(), garbage.to_string()])
        .spawn()?;
    fleet = honest("under siege", fleet, span).await?;
    println!("  coordinator memory: {} MB", memory() / 1_000_000);
    besieger.kill()?;
    besieger.wait()?;

    // Half-open connections of a host that is gone end with the time limit for handshakes.
    sleep(quiet.max(Duration::from_secs(12))).await;
    honest("after", fleet, quiet).await?;
    let after = memory();
    println!(
        "  coordinator memory: {} MB, {:+.1} % of before",
        after / 1_000_000,
        (after as f64 / before as f64 - 1.0) * 100.0
    );
    Ok(())
}

fn coordinator(dir: &Path) -> anyhow::Result<(Process, JoinString)> {
    let spec = *plan_of(100_000).spec();
    let mut command = Command::new(&binaries().coordinator);
    command
        .args(["--n", &spec.board.to_string()])
        .args(["--prefix", spec.layout.name()])
        .args(["--task-cost", &spec.task_cost.to_string()])
        .args(["--listen", "0.0.0.0:0", "--advertise", "127.0.0.1"])
        .args(["--no-http", "--data-dir"])
        .arg(dir.join("data"));
    let process = Process::start("the coordinator", &mut command);
    process.stderr_line("QUEENS_JOIN");
    let join = fs::read_to_string(dir.join("data/doors/worker.join"))?;
    Ok((process, join.parse()?))
}

type Fleet = Vec<(IdleWorker, WorkQueueClient<Door>)>;

/// Every worker calls regularly for a while; says how long that took.
async fn honest(when: &str, fleet: Fleet, span: Duration) -> anyhow::Result<Fleet> {
    let number = u32::try_from(fleet.len())?.max(1);
    let (start, mut calling) = (Tick::now(), JoinSet::new());
    for (place, (mut worker, mut client)) in (0u32..).zip(fleet) {
        calling.spawn(async move {
            let mut calls = Vec::new();
            let mut next = start + PERIOD * place / number;
            while next < start + span {
                sleep_until(next).await;
                let request = proto::v1::SyncRequest::from(worker.report(1));
                // Counted from when it was due: a slow answer delays no measurement.
                let reply = client.sync(request).await?;
                calls.push(next.elapsed());
                worker.take(&SyncReply::try_from(reply.into_inner())?);
                next = (next + PERIOD).max(Tick::now());
            }
            anyhow::Ok((worker, client, calls))
        });
    }
    let (mut fleet, mut all) = (Vec::new(), Vec::new());
    while let Some(done) = calling.join_next().await {
        let (worker, client, mut calls) = done??;
        fleet.push((worker, client));
        all.append(&mut calls);
    }
    all.sort();
    println!(
        "{when}: {} calls of honest workers, median {:.2?}, 99 % {:.2?}, longest {:.2?}",
        all.len(),
        quantile(&all, 0.5),
        quantile(&all, 0.99),
        quantile(&all, 1.0)
    );
    Ok(fleet)
}

/// Until it is killed.
async fn besiege(arguments: &[String]) -> anyhow::Result<()> {
    let [address, silent, garbage] = arguments else {
        anyhow::bail!("ADDRESS SILENT GARBAGE");
    };
    let address: SocketAddr = address.parse()?;
    let (silent, garbage): (u64, u64) = (silent.parse()?, garbage.parse()?);
    let connected = Arc::new(AtomicU64::new(0));
    for _ in 0..silent {
        let connected = connected.clone();
        tokio::spawn(async move {
            loop {
                if let Ok(mut stream) = TcpStream::connect(address).await {
                    connected.fetch_add(1, Relaxed);
                    // Half a handshake's head, and then nothing, until the other side has enough.
                    let _ = stream.write_all(&[0x16, 3, 1]).await;
                    let _ = stream.read_u8().await;
                }
                sleep(AGAIN).await;
            }
        });
    }
    let sent = Arc::new(AtomicU64::new(0));
    for number in 0..garbage {
        let (connected, sent) = (connected.clone(), sent.clone());
        tokio::spawn(async move {
            loop {
                connected.fetch_add(1, Relaxed);
                let _ = timeout(Duration::from_secs(1), throw(address, number, &sent)).await;
                sleep(AGAIN).await;
            }
        });
    }
    let start = Instant::now();

    loop {
        sleep(Duration::from_secs(10)).await;
        println!(
            "  besieger, after {:.0?}: {} connections made, {} kB of garbage sent",
            start.elapsed(),
            connected.load(Relaxed),
            sent.load(Relaxed) / 1000
        );
    }
}

/// Garbage of four kinds: bytes of no protocol, a handshake's head with bytes after it, HTTP/2 that
/// begins well, and frames of great length.
async fn throw(address: SocketAddr, number: u64, sent: &AtomicU64) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
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
