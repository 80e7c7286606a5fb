//! A client in Rust: submits a run, follows it until it is over, and prints the result.
//!
//! `cargo run -p submit-and-follow -- http://127.0.0.1:7171 14`
//!
//! Exit codes are those of the programs: 0 complete, 1 error, 3 contradicted or disputed.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use proto::v1::{
    Layout, PlanSpec, RunState, Status, SubmitRequest, WatchStatusRequest, runs_client::RunsClient,
};
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};

/// Between two attempts to reach a coordinator that went away.
const RETRY: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(n)) = (arguments.next(), arguments.next()) else {
        bail!("usage: submit-and-follow URL N");
    };
    let n = n
        .parse()
        .with_context(|| format!("'{n}' is no number of queens"))?;
    let run = submit(&url, n).await?;
    println!("run {run:016x}");
    let status = follow(&url, run).await?;
    let result = status.result.clone().unwrap_or_default();
    match status.run.context("a status has a run")?.state() {
        RunState::Complete => {
            println!("{} solutions, {} unique", result.solutions, result.unique);
            Ok(ExitCode::SUCCESS)
        }
        RunState::Contradicted | RunState::Disputed => {
            println!("do not trust {}: a check contradicts it", result.solutions);
            Ok(ExitCode::from(3))
        }
        state => bail!("the run ended as {}", state.as_str_name()),
    }
}

async fn connect(url: &str) -> anyhow::Result<RunsClient<Channel>> {
    let endpoint = Endpoint::from_shared(url.to_owned())?;
    let connected = endpoint.connect().await;
    let channel = connected.with_context(|| format!("no coordinator answers at {url}"))?;
    Ok(RunsClient::new(channel))
}

/// Starts a run. The key makes repeating the request harmless: it starts one run, however often it
/// arrives.
async fn submit(url: &str, n: u32) -> anyhow::Result<u64> {
    let request = SubmitRequest {
        spec: Some(PlanSpec {
            n,
            layout: Layout::Border.into(),
            // The plan's usual one.
            task_cost: 0,
        }),
        idempotency_key: format!("submit-and-follow-{n}"),
        ..SubmitRequest::default()
    };
    Ok(connect(url).await?.submit(request).await?.into_inner().run)
}

/// Prints the progress until the run is over; goes on when the coordinator was away.
async fn follow(url: &str, run: u64) -> anyhow::Result<Status> {
    loop {
        match follow_once(url, run).await {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => match error
                .downcast_ref::<tonic::Status>()
                .map(tonic::Status::code)
            {
                None | Some(Code::Unavailable | Code::Unknown | Code::Cancelled) => {
                    eprintln!("{error:#}; trying again");
                }
                Some(_) => return Err(error),
            },
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The status at the end of the run; `None` if the stream ended before.
async fn follow_once(url: &str, run: u64) -> anyhow::Result<Option<Status>> {
    let request = WatchStatusRequest {
        run: Some(run),
        interval_ms: 200,
    };
    let mut statuses = connect(url)
        .await?
        .watch_status(request)
        .await?
        .into_inner();
    while let Some(status) = statuses.message().await? {
        eprintln!(
            "{} of {} tasks, {:.1} %, {} solutions so far",
            status.tasks_done,
            status.tasks_total,
            status.fraction_done * 100.0,
            status.solutions_so_far,
        );
        let state = status.run.as_ref().map(proto::v1::Run::state);
        let over = match state {
            Some(RunState::Complete | RunState::Contradicted) => status.result.is_some(),
            Some(RunState::Cancelled | RunState::Disputed) => true,
            Some(RunState::Running | RunState::Paused | RunState::Unspecified) | None => false,
        };
        if over {
            return Ok(Some(status));
        }
    }
    Ok(None)
}
