//! Durable acknowledgements a second: through the driver, and through gRPC on loopback.
//!
//! `cargo run --release -p tests --example acknowledgements -- [SECONDS] [DIR]`

use std::{
    env,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use common::sync::{SyncReply, Verdict};
use coordinator::{driver::DriverHandle, sched::Config, store::DiskStore};
use proto::v1::work_queue_client::WorkQueueClient;
use tests::{
    face::Face,
    load::{IdleWorker, plan_of, quantile},
};
use tokio::task::JoinSet;
use tonic::transport::Channel;

const TASKS: u64 = 1_000_000;

/// How a worker reaches the driver.
enum Way {
    Driver(DriverHandle),
    Grpc(WorkQueueClient<Channel>),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let seconds = arguments.next().unwrap_or_else(|| "5".to_owned());
    let span = Duration::from_secs(seconds.parse().context("SECONDS")?);
    let dir = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    println!(
        "{:>8} {:>8} {:>12} {:>12} {:>12} {:>10} {:>10}",
        "way", "workers", "tasks/call", "calls/s", "results/s", "median", "99 %"
    );
    for (grpc, workers, batch) in [
        (false, 1, 1),
        (false, 64, 1),
        (false, 256, 1),
        (false, 64, 16),
        (true, 1, 1),
        (true, 64, 1),
        (true, 256, 1),
        (true, 64, 16),
    ] {
        measure(&dir, span, (grpc, workers, batch)).await?;
    }
    Ok(())
}

async fn measure(
    dir: &PathBuf,
    span: Duration,
    (grpc, workers, batch): (bool, u32, usize),
) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(dir)?;
    let store = DiskStore::open(&dir.path().join("data"))?;
    let config = Config {
        grants_per_sync: batch,
        ..Config::default()
    };
    let face = Face::start(Box::new(store), config)?;
    face.create(&plan_of(TASKS)).await?;
    let mut all = JoinSet::new();
    let end = Instant::now() + span;
    for number in 0..workers {
        let way = match grpc {
            true => Way::Grpc(WorkQueueClient::new(face.connect().await?)),
            false => Way::Driver(face.driver.clone()),
        };
        all.spawn(report_until(end, way, (number, batch)));
    }
    let (mut accepted, mut calls) = (0, Vec::new());
    while let Some(done) = all.join_next().await {
        let (by_one, mut took) = done??;
        accepted += by_one;
        calls.append(&mut took);
    }
    calls.sort();
    let per_second = |number: usize| number as f64 / span.as_secs_f64();
    println!(
        "{:>8} {workers:>8} {batch:>12} {:>12.0} {:>12.0} {:>10.2?} {:>10.2?}",
        if grpc { "gRPC" } else { "driver" },
        per_second(calls.len()),
        per_second(accepted),
        quantile(&calls, 0.5),
        quantile(&calls, 0.99),
    );
    face.stop().await
}

/// How many results were accepted, and how long each call took.
async fn report_until(
    end: Instant,
    mut way: Way,
    (number, batch): (u32, usize),
) -> anyhow::Result<(usize, Vec<Duration>)> {
    let mut worker = IdleWorker::new(number);
    let (mut accepted, mut calls) = (0, Vec::new());
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
        calls.push(start.elapsed());
        let verdicts = reply.acknowledgements.iter();
        accepted += verdicts
            .filter(|answer| answer.verdict == Verdict::Accepted)
            .count();
        worker.take(&reply);
    }
    Ok((accepted, calls))
}
