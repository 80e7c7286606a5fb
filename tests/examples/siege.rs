//! A coordinator with honest workers under attack by silent connections and clients that send garbage:
//! response times of the workers, and memory.
//!
//! `cargo run --release -p tests --example siege -- [SECONDS] [SILENT] [GARBAGE] [WORKERS]`

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
use proto::connect::CoordinatorEndpoint;
use rand::RngExt as _;
use tests::{
    cluster::Cluster,
    load::{argument, arguments_of, call_regularly, plan_of, print_memory},
    service::{HandWorker, find_join},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

/// Interval between the calls of an honest worker.
const PERIOD: Duration = Duration::from_millis(500);

/// Delay before an attacker connects again.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);

/// Variable with the address that the process attacks.
const ATTACKED: &str = "QUEENS_ATTACKED";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if let Ok(address) = env::var(ATTACKED) {
        return attack(address.parse()?, argument(1, 0)?, argument(2, 0)?).await;
    }
    let seconds = argument(0, 60)?;
    let span = Duration::from_secs(seconds);
    let (silent, garbage): (u64, u64) = (argument(1, 2000)?, argument(2, 200)?);
    let workers: u32 = argument(3, 64)?;
    let run = arguments_of(&plan_of(100_000));
    let run: Vec<_> = run.iter().map(String::as_str).chain(["--no-http"]).collect();
    let cluster = Cluster::public(&run);
    let process = cluster.start(&[]);
    let way = CoordinatorEndpoint::Token(find_join(&cluster.data_dir(), Role::Worker)?);

    let mut fleet = Vec::new();
    for worker in 0..workers {
        fleet.push(HandWorker::idle(&way, worker).await?);
    }
    let quiet = (span / 4).max(PERIOD * 4);
    println!("before:");
    call_regularly(&mut fleet, 1, (PERIOD, quiet)).await?;
    let before = print_memory(&process);

    let mut attacker = Command::new(env::current_exe()?)
        .args([seconds, silent, garbage].map(|number| number.to_string()))
        .env(ATTACKED, cluster.address())
        .spawn()?;
    println!("under attack:");
    call_regularly(&mut fleet, 1, (PERIOD, span)).await?;
    print_memory(&process);
    attacker.kill()?;
    attacker.wait()?;

    // Half-open connections of a host that is gone end with the time limit for handshakes.
    sleep(quiet.max(Duration::from_secs(12))).await;
    println!("after:");
    call_regularly(&mut fleet, 1, (PERIOD, quiet)).await?;
    let after = print_memory(&process);
    println!("  {:+.1} % of before", (after as f64 / before as f64 - 1.0) * 100.0);
    Ok(())
}

/// Attacks until it is killed.
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

/// Sends the start of a handshake, and then nothing until the coordinator closes the connection.
async fn stay_silent(mut stream: TcpStream) {
    let _ = stream.write_all(&[0x16, 3, 1]).await;
    let _ = stream.read_u8().await;
}

/// Sends random bytes after the start of no protocol, of a handshake, of HTTP/2, and of an HTTP/2 frame of
/// great length.
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
