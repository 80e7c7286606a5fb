//! Durable acknowledgements per second: through the driver, and through gRPC on loopback; with `--tls`
//! with and without TLS and tokens, in turn. The calls of a token are limited, so each worker has a token
//! of its own there.
//!
//! Rechecks, which the run asks for, are journalled and acknowledged like first counts: "results" are both.
//!
//! `cargo run --release -p tests --example acknowledgements -- [--tls] [SECONDS]`; TMPDIR names another disk.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use auth::{Authenticator, NewToken, Role};
use common::{run::WorkerId, sync::Verdict};
use coordinator::driver::DriverHandle;
use mimalloc::MiMalloc;
use proto::connect::CoordinatorEndpoint;
use scheduler::{Config, ledger::Caller};
use store::DiskStore;
use tests::{
    load::{argument, has_option, idle_worker, plan_of, quantile, report},
    service::{QueueClient, Service, connect, free_port},
};
use tokio::task::JoinSet;

/// The programs' allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const TASKS: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    Driver,
    Grpc,
    Tls,
}

/// Number of workers, and of results per call.
type Load = (Through, u32, usize);

/// TLS and plain text in turn, so that other load of the machine affects both.
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
    let loads = if has_option("--tls") { &IN_TURN[..] } else { &USUAL };
    let span = Duration::from_secs(argument(0, 5)?);
    println!(
        "{:>8} {:>8} {:>12} {:>12} {:>12} {:>10} {:>10} {:>10}",
        "way", "workers", "tasks/call", "calls/s", "results/s", "rechecks", "median", "99 %"
    );
    for load in loads {
        measure(span, *load).await?;
    }
    Ok(())
}

async fn measure(span: Duration, (through, workers, batch): Load) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let store = DiskStore::open(&dir.path().join("data"))?;
    let config = Config { grants_per_sync: batch, ..Config::default() };
    let (service, ways) = serve(Box::new(store), config, (through, workers))?;
    service.create(&plan_of(TASKS)).await?;
    let mut all = JoinSet::new();
    let end = Instant::now() + span;
    for (number, way) in (0..).zip(&ways) {
        let client = match through {
            Through::Driver => None,
            Through::Grpc | Through::Tls => Some(QueueClient::new(connect(way).await?)),
        };
        all.spawn(report_until(end, (service.driver.clone(), client), (number, batch)));
    }
    let (mut rechecks, mut results, mut calls) = (0, 0, Vec::new());
    for reported in all.join_all().await {
        let (verdicts, mut of_one) = reported?;
        let number = |verdict| verdicts.iter().filter(|known| **known == verdict).count();
        rechecks += number(Verdict::Duplicate);
        results += number(Verdict::Duplicate) + number(Verdict::Accepted);
        calls.append(&mut of_one);
    }
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
        per_second(results),
        per_second(rechecks),
        quantile(&calls, 0.5),
        quantile(&calls, 0.99),
    );
    service.stop().await
}

/// Starts the server; returns each worker's way to it.
fn serve(
    store: Box<DiskStore>,
    config: Config,
    (through, workers): (Through, u32),
) -> anyhow::Result<(Service, Vec<CoordinatorEndpoint>)> {
    let host = Ipv4Addr::LOCALHOST;
    if through != Through::Tls {
        let service = Service::behind(store, config, free_port(host)?, Authenticator::Open)?;
        let way = CoordinatorEndpoint::Plain(format!("http://{}", service.address).parse()?);
        return Ok((service, vec![way; workers as usize]));
    }
    let service = Service::with(store, config, host)?;
    let create = |number| {
        let name = format!("worker-{number}");
        service.tokens().create(NewToken::new(Role::Worker, &name)).map(CoordinatorEndpoint::Token)
    };
    let ways = (0..workers).map(create).collect::<Result<_, _>>()?;
    Ok((service, ways))
}

/// Calls the driver until `end`, through a client if there is one; returns the verdicts on all results, and the duration of each call.
async fn report_until(
    end: Instant,
    (driver, mut client): (DriverHandle, Option<QueueClient>),
    (number, batch): (u32, usize),
) -> anyhow::Result<(Vec<Verdict>, Vec<Duration>)> {
    let mut worker = idle_worker(number);
    let (mut verdicts, mut calls) = (Vec::new(), Vec::new());
    while Instant::now() < end {
        let request = report(&mut worker, batch);
        let start = Instant::now();
        let reply = match &mut client {
            None => {
                let caller = Caller::new(WorkerId(request.worker.id.0 << 64), None);
                driver.sync(caller, request).await?
            }
            Some(client) => client.sync(request).await?,
        };
        calls.push(start.elapsed());
        verdicts.extend(reply.acknowledgements.iter().map(|answer| answer.verdict));
        worker.take(&reply);
    }
    Ok((verdicts, calls))
}
