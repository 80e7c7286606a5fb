//! A client in Rust: submits a run, follows it and prints the result.
//!
//! `cargo run -p submit-and-follow -- queens-data/auth/operator.join 14`
//!
//! Exit codes follow `docs/api.md`: 0 complete, 1 error, 3 contradicted or disputed, 4 not verified.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use proto::{
    connect::{AuthChannel, CoordinatorEndpoint},
    v1::{
        Layout, PlanSpec, RunState, Status, SubmitRequest, WatchStatusRequest,
        runs_client::RunsClient,
    },
};
use tonic::Code;

/// Interval between attempts to reconnect.
const RETRY: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run().await.unwrap_or_else(|error| {
        // Returned from `main`, it would be followed by a stack backtrace if RUST_BACKTRACE is set.
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Submits and follows the run of the command line; returns the exit code.
async fn run() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(n)) = (arguments.next(), arguments.next()) else {
        bail!("usage: submit-and-follow JOIN_FILE N");
    };
    let n = n.parse().with_context(|| format!("invalid number of queens '{n}'"))?;
    let join = std::fs::read_to_string(&file).with_context(|| file.clone())?;
    let coordinator = CoordinatorEndpoint::Token(join.parse().with_context(|| file)?);
    let run = submit(&coordinator, n).await?;
    println!("run {run:016x}");
    let status = follow(&coordinator, run).await?;
    let result = status.result.clone().unwrap_or_default();
    match status.run.context("a status has a run")?.state() {
        RunState::Complete => {
            println!("{} solutions, {} fundamental", result.solutions, result.fundamental);
            Ok(if result.verified { ExitCode::SUCCESS } else { ExitCode::from(4) })
        }
        RunState::Contradicted | RunState::Disputed => {
            println!("do not trust {}: a check contradicts it", result.solutions);
            Ok(ExitCode::from(3))
        }
        state => bail!("the run ended as {}", state.as_str_name()),
    }
}

/// Connects over TLS to the join string's coordinator; each call carries the token.
async fn connect(coordinator: &CoordinatorEndpoint) -> anyhow::Result<RunsClient<AuthChannel>> {
    let channel = coordinator.connect().await;
    let channel = channel.with_context(|| format!("no coordinator answers at {coordinator}"))?;
    Ok(RunsClient::new(channel))
}

/// Starts a run; repeated requests with the same idempotency key start only one.
async fn submit(coordinator: &CoordinatorEndpoint, n: u32) -> anyhow::Result<u64> {
    let request = SubmitRequest {
        spec: Some(PlanSpec {
            n,
            layout: Layout::Border.into(),
            // The default task cost of the plan.
            task_cost: 0,
        }),
        idempotency_key: format!("submit-and-follow-{n}"),
        ..SubmitRequest::default()
    };
    Ok(connect(coordinator).await?.submit(request).await?.into_inner().run)
}

/// Prints the progress until the run is finished; reconnects if necessary.
async fn follow(coordinator: &CoordinatorEndpoint, run: u64) -> anyhow::Result<Status> {
    loop {
        match follow_once(coordinator, run).await {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => match error.downcast_ref::<tonic::Status>().map(tonic::Status::code) {
                None | Some(Code::Unavailable | Code::Unknown | Code::Cancelled) => {
                    eprintln!("{error:#}; trying again");
                }
                Some(_) => return Err(error),
            },
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Returns the status of the finished run; `None` if the stream ended earlier.
async fn follow_once(
    coordinator: &CoordinatorEndpoint,
    run: u64,
) -> anyhow::Result<Option<Status>> {
    let request = WatchStatusRequest { run: Some(run), interval_ms: 200 };
    let mut statuses = connect(coordinator).await?.watch_status(request).await?.into_inner();
    while let Some(status) = statuses.message().await? {
        // The reason why the run makes no progress, for example that no worker is connected.
        let reason = match status.reason.as_str() {
            "" => String::new(),
            reason => format!("; {reason}"),
        };
        eprintln!(
            "{} of {} tasks, {:.1} %, {} solutions so far{reason}",
            status.tasks_done,
            status.tasks_total,
            status.fraction_done * 100.0,
            status.solutions_so_far,
        );
        let state = status.run.as_ref().map(proto::v1::Run::state);
        let is_finished = match state {
            Some(RunState::Complete | RunState::Contradicted) => status.result.is_some(),
            Some(RunState::Cancelled | RunState::Disputed) => true,
            Some(
                RunState::Running | RunState::Verifying | RunState::Paused | RunState::Unspecified,
            )
            | None => false,
        };
        if is_finished {
            return Ok(Some(status));
        }
    }
    Ok(None)
}
