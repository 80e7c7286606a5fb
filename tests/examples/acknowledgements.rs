//! Durable acknowledgements a second: through the driver, and through gRPC on loopback; with `--tls`
//! with and without TLS and tokens, in turn. A token's calls are limited (`doors::limits`), so each
//! worker has a token of its own there.
//!
//! Second counts, which the run asks for, are journalled and acknowledged like the first ones: results
//! are both, and how many of them were second ones stands beside.
//!
//! `cargo run --release -p tests --example acknowledgements -- [--tls] [SECONDS] [DIR]`

use std::{
    env,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use common::sync::{SyncReply, Verdict};
use coordinator::{
    doors::{Gate, Keys, Locks, Role, Vault},
    driver::{Clock, DriverHandle},
    sched::Config,
    store::DiskStore,
};
use mimalloc::MiMalloc;
use proto::{
    door::{Door, Way as DoorWay, install_crypto},
    v1::work_queue_client::WorkQueueClient,
};
use tests::{
    face::Face,
    load::{IdleWorker, plan_of, quantile},
};
use tokio::task::JoinSet;

/// The programs' allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const TASKS: u64 = 1_000_000;

/// How a worker reaches the driver.
enum Way {
    Driver(DriverHandle),
    Grpc(WorkQueueClient<Door>),
}

/// By what.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    Driver,
    Grpc,
    Tls,
}

/// How many workers, and how many results each reports at once.
type Load = (Through, u32, usize);

/// TLS and plain text in turn, so that whatever else the machine does befalls both.
const IN_TURN: [Load; 6] = [
    (Through::Grpc, 64, 1),
    (Through::Tls, 64, 1),
    (Through::Grpc, 64, 1),
    (Through::Tls, 64, 1),
    (Through::Grpc, 64, 16),
    (Through::Tls, 64, 16),
];

const USUAL: [Load; 8] = [
    (Through::Driver, 1, 1),
    (Through::Driver, 64, 1),
    (Through::Driver, 256, 1),
    (Through::Driver, 64, 16),
    (Through::Grpc, 1, 1),
    (Through::Grpc, 64, 1),
    (Through::Grpc, 256, 1),
    (Through::Grpc, 64, 16),
];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1).peekable();
    let loads = match arguments.next_if(|first| first == "--tls") {
        Some(_) => IN_TURN.as_slice(),
        None => USUAL.as_slice(),
    };
    let seconds = arguments.next().unwrap_or_else(|| "5".to_owned());
    let span = Duration::from_secs(seconds.parse().context("SECONDS")?);
    let dir = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    println!(
        "{:>8} {:>8} {:>12} {:>12} {:>12} {:>10} {:>10} {:>10}",
        "way", "workers", "tasks/call", "calls/s", "results/s", "of second", "median", "99 %"
    );
    for load in loads {
        measure(&dir, span, *load).await?;
    }
    Ok(())
}

async fn measure(
    dir: &PathBuf,
    span: Duration,
    (through, workers, batch): Load,
) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(dir)?;
    let store = DiskStore::open(&dir.path().join("data"))?;
    let config = Config {
        grants_per_sync: batch,
        ..Config::default()
    };
    let (face, doors) = serve(Box::new(store), (config, through, workers), dir.path())?;
    face.create(&plan_of(TASKS)).await?;
    let mut all = JoinSet::new();
    let end = Instant::now() + span;
    for (number, door) in (0..).zip(&doors) {
        let way = match through {
            Through::Driver => Way::Driver(face.driver.clone()),
            Through::Grpc | Through::Tls => {
                let channel = door.endpoints().remove(0).connect().await?;
                Way::Grpc(WorkQueueClient::new(door.door(channel)))
            }
        };
        all.spawn(report_until(end, way, (number, batch)));
    }
    let mut sum = Reported::default();
    while let Some(done) = all.join_next().await {
        let mut by_one = done??;
        sum.first += by_one.first;
        sum.second += by_one.second;
        sum.calls.append(&mut by_one.calls);
    }
    let Reported {
        first,
        second,
        mut calls,
    } = sum;
    calls.sort();
    let per_second = |number: usize| number as f64 / span.as_secs_f64();
    println!(
        "{:>8} {workers:>8} {batch:>12} {:>12.0} {:>12.0} {:>10.0} {:>10.2?} {:>10.2?}",
        match through {
            Through::Driver => "driver",
            Through::Grpc => "gRPC",
            Through::Tls => "TLS",
        },
        per_second(calls.len()),
        per_second(first + second),
        per_second(second),
        quantile(&calls, 0.5),
        quantile(&calls, 0.99),
    );
    face.stop().await
}

/// The server, and each worker's way to it.
fn serve(
    store: Box<DiskStore>,
    (config, through, workers): (Config, Through, u32),
    dir: &Path,
) -> anyhow::Result<(Face, Vec<DoorWay>)> {
    if through != Through::Tls {
        let face = Face::start(store, config)?;
        let way = DoorWay::Plain(format!("http://{}", face.address).parse()?);
        return Ok((face, vec![way; workers as usize]));
    }
    install_crypto();
    let mut doors = Vec::new();
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let face = Face::behind(store, config, loopback, |address| {
        let keys = Keys::open(Vault::of(dir), vec![address.to_string()], Clock::start())?;
        for number in 0..workers {
            let join = keys.create((Role::Worker, &format!("worker-{number}")), None)?;
            doors.push(DoorWay::Joined(join));
        }
        Ok(Gate::Guarded {
            locks: Locks::Tokens(Arc::new(keys)),
            require_token: true,
        })
    })?;
    Ok((face, doors))
}

/// What came of a worker's calls.
#[derive(Default)]
struct Reported {
    /// Tasks whose count was accepted.
    first: usize,
    /// Tasks whose second count agreed.
    second: usize,
    /// How long each call took.
    calls: Vec<Duration>,
}

async fn report_until(
    end: Instant,
    mut way: Way,
    (number, batch): (u32, usize),
) -> anyhow::Result<Reported> {
    let mut worker = IdleWorker::new(number);
    let mut reported = Reported::default();
    while Instant::now() < end {
        let request = worker.report(batch);
        let start = Instant::now();
        let reply = match &mut way {
            Way::Driver(driver) => driver.sync(None, request).await?,
            Way::Grpc(client) => {
                let reply = client.sync(proto::v1::SyncRequest::from(request)).await?;
                SyncReply::try_from(reply.into_inner())?
            }
        };
        reported.calls.push(start.elapsed());
        for answer in &reply.acknowledgements {
            match answer.verdict {
                Verdict::Accepted => reported.first += 1,
                Verdict::Duplicate => reported.second += 1,
                Verdict::Conflict | Verdict::Refused => {}
            }
        }
        worker.take(&reply);
    }
    Ok(reported)
}
