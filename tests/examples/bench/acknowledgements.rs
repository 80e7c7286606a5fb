//! Durable acknowledgements per second, through the driver and through gRPC.
//! Rechecks are journaled and acknowledged like first counts: "results" are both.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use auth::{Authenticator, NewToken, Role};
use common::messages::sync::Verdict;
use coordinator::driver::DriverHandle;
use proto::connect::CoordinatorEndpoint;
use scheduler::{Config, ledger::Caller};
use store::DiskStore;
use tests::{
    load::{idle_worker, plan_of, quantile, report},
    service::{HandWorker, Service, bind_port},
};
use tokio::task::JoinSet;

const TASKS: u64 = 1_000_000;

/// Interfaces that workers call: the driver, or a server without or with TLS.
const DRIVER: &str = "driver";
const GRPC: &str = "gRPC";
const TLS: &str = "TLS";

/// The called interface, the number of workers, and the number of results per call.
type Load = (&'static str, u32, usize);

/// TLS and plain text alternately, so that other load on the machine affects both.
const ALTERNATING: [Load; 6] =
    [(GRPC, 64, 1), (TLS, 64, 1), (GRPC, 64, 1), (TLS, 64, 1), (GRPC, 64, 16), (TLS, 64, 16)];

const DEFAULT_LOADS: [Load; 8] = [
    (DRIVER, 1, 1),
    (DRIVER, 64, 1),
    (DRIVER, 256, 1),
    (DRIVER, 64, 16),
    (GRPC, 1, 1),
    (GRPC, 64, 1),
    (GRPC, 256, 1),
    (GRPC, 64, 16),
];

/// Durable acknowledgements per second, through the driver and through gRPC; TMPDIR names another disk.
#[derive(clap::Args)]
pub(super) struct Options {
    /// Seconds of each measurement.
    #[arg(default_value_t = 5)]
    seconds: u64,
    /// Alternate between plain text and TLS with a token per worker, as calls are limited per token.
    #[arg(long)]
    tls: bool,
}

pub(super) async fn run(options: &Options) -> anyhow::Result<()> {
    let loads = if options.tls { &ALTERNATING[..] } else { &DEFAULT_LOADS };
    let span = Duration::from_secs(options.seconds);
    println!(
        "{:>8} {:>8} {:>12} {:>12} {:>12} {:>10} {:>10} {:>10}",
        "via", "workers", "tasks/call", "calls/s", "results/s", "rechecks", "median", "99 %"
    );
    for load in loads {
        measure(span, *load).await?;
    }
    Ok(())
}

async fn measure(span: Duration, (called, workers, batch): Load) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let store = DiskStore::open(&dir.path().join("data"))?;
    let config = Config { grants_per_sync: batch, ..Config::default() };
    let (service, endpoints) = serve(Box::new(store), config, (called, workers))?;
    service.create(&plan_of(TASKS)).await?;
    let mut all = JoinSet::new();
    let end = Instant::now() + span;
    for (number, coordinator) in (0..).zip(&endpoints) {
        let client = match called {
            DRIVER => None,
            _ => Some(HandWorker::at(coordinator, 0).await?),
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
        "{called:>8} {workers:>8} {batch:>12} {:>12.0} {:>12.0} {:>10.0} {:>10.2?} {:>10.2?}",
        per_second(calls.len()),
        per_second(results),
        per_second(rechecks),
        quantile(&calls, 0.5),
        quantile(&calls, 0.99),
    );
    service.stop().await
}

/// Starts the server; returns the endpoint for each worker.
fn serve(
    store: Box<DiskStore>,
    config: Config,
    (called, workers): (&str, u32),
) -> anyhow::Result<(Service, Vec<CoordinatorEndpoint>)> {
    let host = Ipv4Addr::LOCALHOST;
    if called != TLS {
        let service = Service::with_auth(store, config, bind_port(host)?, Authenticator::Open)?;
        let coordinator =
            CoordinatorEndpoint::Plain(format!("http://{}", service.address).parse()?);
        return Ok((service, vec![coordinator; workers as usize]));
    }
    let service = Service::with(store, config, host)?;
    let create = |number| {
        let name = format!("worker-{number}");
        service.tokens().create(NewToken::new(Role::Worker, &name)).map(CoordinatorEndpoint::Token)
    };
    let endpoints = (0..workers).map(create).collect::<Result<_, _>>()?;
    Ok((service, endpoints))
}

/// Calls the driver until `end`, through a client if there is one.
///
/// Returns the verdicts on all results and the duration of each call.
async fn report_until(
    end: Instant,
    (driver, mut client): (DriverHandle, Option<HandWorker>),
    (number, batch): (u32, usize),
) -> anyhow::Result<(Vec<Verdict>, Vec<Duration>)> {
    let mut worker = idle_worker(number);
    let (mut verdicts, mut calls) = (Vec::new(), Vec::new());
    while Instant::now() < end {
        let request = report(&mut worker, batch);
        let start = Instant::now();
        let reply = match &mut client {
            None => {
                let caller = Caller::new(worker.id, None);
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
