//! The commands about runs.

use std::{
    io::{self, IsTerminal as _},
    num::NonZeroU64,
};

use clap::Args;
use common::{
    board::Board,
    choice::{MethodChoice, Prefix, choose},
    plan::PlanSpec,
    run::SubmitKey,
};
use proto::v1::{self, GetStatusRequest, ListRequest, RecheckRequest, RunRequest, SubmitRequest};

use super::{
    bar::Bar,
    client::{BadUsage, Connection, Unreachable},
    name::find,
    output::print,
};
use coordinator::{
    app::task_cost, exit::Exit, ledger::Recheck, name::RunName, render, text::stdout_width,
};

/// Options of `runs`.
#[derive(Clone, Debug, Args)]
pub(super) struct RunsOptions {
    /// Prints one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Options of `pause`, `resume`, `cancel`, `retry` and `delete`.
#[derive(Clone, Debug, Args)]
pub(super) struct ControlOptions {
    /// The run: the first digits of its name, see `queensctl runs`, or last
    run: RunName,
}

/// Options of `recheck`.
#[derive(Clone, Debug, Args)]
pub(super) struct RecheckOptions {
    /// The run: the first digits of its name, see `queensctl runs`, or last
    run: RunName,

    /// How much: a fraction of the tasks such as 0.1, auto, or all
    #[arg(value_name = "PART")]
    recheck: Recheck,
}

/// Options of `export`.
#[derive(Clone, Debug, Args)]
pub(super) struct ExportOptions {
    /// The run: the first digits of its name, see `queensctl runs`, or last
    run: RunName,
}

/// Options of `submit`.
#[derive(Clone, Debug, Args)]
pub(super) struct SubmitOptions {
    /// The board's side, 1 to 32
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    n: Board,

    /// How to count: auto, rows or frames
    #[arg(long, default_value = "auto")]
    method: MethodChoice,

    /// How method rows divides the board: first-rows or border
    #[arg(long, value_name = "LAYOUT")]
    prefix: Option<Prefix>,

    /// How much work a task holds, in microseconds of one core [default: by N]
    #[arg(long, value_name = "MICROSECONDS", value_parser = task_cost)]
    task_cost: Option<NonZeroU64>,

    /// Runs of higher priority are served first
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    priority: i32,

    /// How much is counted a second time, by another machine where there is one: auto (2 % of the
    /// tasks, and every worker's first counts), all, or a fraction such as 0.1
    #[arg(long, value_name = "PART", default_value = "auto")]
    recheck: Recheck,

    /// Starts another run of a board of which there is one
    #[arg(long)]
    again: bool,

    /// Names the wish: submitting again with the same key starts nothing new and prints the run
    /// that the key started [default: drawn at random]
    #[arg(long, value_name = "KEY")]
    key: Option<SubmitKey>,

    /// Prints the run as a JSON object
    #[arg(long)]
    json: bool,
}

/// An operator's word on a run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Control {
    Pause,
    Resume,
    Cancel,
    Retry,
}

pub(super) async fn runs(connection: &Connection, options: &RunsOptions) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let runs = connection.ask(client.list(ListRequest {})).await?.runs;
    match options.json {
        true => {
            for run in &runs {
                print(&render::run_json(run).to_string())?;
            }
        }
        false if runs.is_empty() => print("there are no runs; start one with `queensctl submit`")?,
        false => print(&render::runs_table(&runs, stdout_width()))?,
    }
    Ok(Exit::Success)
}

pub(super) async fn submit(
    connection: &Connection,
    options: &SubmitOptions,
) -> anyhow::Result<Exit> {
    let layout = match choose(options.n, options.method, options.prefix, None) {
        Ok(choice) => choice.layout,
        Err(bad) => return Err(BadUsage(bad.to_string()).into()),
    };
    let usual = PlanSpec::new(options.n, layout);
    let spec = PlanSpec {
        task_cost: options.task_cost.map_or(usual.task_cost, |cost| cost.get()),
        ..usual
    };
    let request = SubmitRequest {
        spec: Some(spec.into()),
        priority: options.priority,
        again: options.again,
        recheck: options.recheck.to_string(),
        idempotency_key: match &options.key {
            Some(key) => key.to_string(),
            None => format!("{:032x}", rand::random::<u128>()),
        },
    };
    let run = match submit_once(connection, request.clone()).await {
        // Nobody knows whether it was taken. The key makes sure that it is taken once.
        Err(error) if matches!(error.downcast_ref(), Some(Unreachable::Lost(_))) => {
            submit_once(connection, request).await
        }
        answered => answered,
    };
    show_run(&run?, options.json)
}

async fn submit_once(connection: &Connection, request: SubmitRequest) -> anyhow::Result<v1::Run> {
    let mut client = connection.connect().await?;
    let patient = connection.patient();
    patient.ask(client.submit(request)).await
}

fn show_run(run: &v1::Run, json: bool) -> anyhow::Result<Exit> {
    match json {
        true => print(&render::run_json(run).to_string())?,
        false => print(&render::run_text(run))?,
    }
    Ok(Exit::Success)
}

pub(super) async fn control(
    connection: &Connection,
    options: &ControlOptions,
    control: Control,
) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let run = find(&options.run, connection, &mut client).await?;
    let request = RunRequest { run };
    let run = match control {
        Control::Pause => connection.ask(client.pause(request)).await,
        Control::Resume => connection.ask(client.resume(request)).await,
        Control::Cancel => connection.ask(client.cancel(request)).await,
        Control::Retry => connection.ask(client.retry(request)).await,
    };
    show_run(&run?, false)
}

pub(super) async fn recheck(
    connection: &Connection,
    options: &RecheckOptions,
) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let run = find(&options.run, connection, &mut client).await?;
    let request = RecheckRequest {
        run,
        recheck: options.recheck.to_string(),
    };
    let run = connection.ask(client.recheck(request)).await?;
    // The answer's own words do not tell a run that is rechecked from one that is not.
    let (run, recheck) = (render::run_text(&run), options.recheck);
    print(&format!("{run}, recheck {recheck}"))?;
    Ok(Exit::Success)
}

pub(super) async fn delete(
    connection: &Connection,
    options: &ControlOptions,
) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let run = find(&options.run, connection, &mut client).await?;
    let run = connection.ask(client.delete(RunRequest { run })).await?;
    print(&format!("deleted {}", render::run_text(&run)))?;
    Ok(Exit::Success)
}

pub(super) async fn export(
    connection: &Connection,
    options: &ExportOptions,
) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let run = find(&options.run, connection, &mut client).await?;
    // Lines on a terminal are progress enough.
    let bar = match io::stdout().is_terminal() {
        true => Bar::hidden("records"),
        false => Bar::start("records"),
    };
    let request = GetStatusRequest { run: Some(run) };
    let all = match bar.is_seen() {
        true => connection.ask(client.get_status(request)).await?.tasks_done,
        false => 0,
    };
    let mut records = connection.ask(client.export(RunRequest { run })).await?;
    let mut number = 0u64;
    loop {
        match records.message().await {
            Ok(Some(record)) => {
                print(&record.line)?;
                number += 1;
                // There may be more records than tasks that are done.
                bar.show(number, number as f64 / all.max(number) as f64);
            }
            Ok(None) => return Ok(Exit::Success),
            Err(status) => return Err(connection.plain(&status).await),
        }
    }
}
