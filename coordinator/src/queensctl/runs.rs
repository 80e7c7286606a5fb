//! The commands about runs.

use std::num::NonZeroU64;

use clap::Args;
use common::{
    board::Board,
    choice::{MethodChoice, Prefix, choose},
    plan::PlanSpec,
    run::RunId,
};
use proto::v1::{self, ListRequest, RunRequest, SubmitRequest};

use super::{
    client::{Connection, plain},
    output::print,
    render,
};
use crate::{app::task_cost, exit::Exit};

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
    /// The run: 16 hexadecimal digits, see `queensctl runs`
    run: RunId,
}

/// Options of `export`.
#[derive(Clone, Debug, Args)]
pub(super) struct ExportOptions {
    /// The run: 16 hexadecimal digits, see `queensctl runs`
    run: RunId,
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
    let runs = client.list(ListRequest {}).await.map_err(plain)?;
    let runs = runs.into_inner().runs;
    match options.json {
        true => {
            for run in &runs {
                print(&render::run_json(run).to_string())?;
            }
        }
        false if runs.is_empty() => print("there are no runs; start one with `queensctl submit`")?,
        false => print(&render::runs_table(&runs))?,
    }
    Ok(Exit::Success)
}

pub(super) async fn submit(
    connection: &Connection,
    options: &SubmitOptions,
) -> anyhow::Result<Exit> {
    let layout = match choose(options.n, options.method, options.prefix, u64::MAX) {
        Ok(choice) => choice.layout,
        Err(bad) => {
            eprintln!("error: {bad}");
            return Ok(Exit::Usage);
        }
    };
    let usual = PlanSpec::new(options.n, layout);
    let spec = PlanSpec {
        task_cost: options.task_cost.map_or(usual.task_cost, |cost| cost.get()),
        ..usual
    };
    let request = SubmitRequest {
        spec: Some(spec.into()),
        priority: options.priority,
    };
    let mut client = connection.connect().await?;
    let run = client.submit(request).await.map_err(plain)?;
    show_run(run.get_ref(), options.json)
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
    let request = RunRequest { run: options.run.0 };
    let run = match control {
        Control::Pause => client.pause(request).await,
        Control::Resume => client.resume(request).await,
        Control::Cancel => client.cancel(request).await,
        Control::Retry => client.retry(request).await,
    };
    show_run(run.map_err(plain)?.get_ref(), false)
}

pub(super) async fn delete(
    connection: &Connection,
    options: &ControlOptions,
) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let request = RunRequest { run: options.run.0 };
    let run = client.delete(request).await.map_err(plain)?;
    print(&format!("deleted {}", render::run_text(run.get_ref())))?;
    Ok(Exit::Success)
}

pub(super) async fn export(
    connection: &Connection,
    options: &ExportOptions,
) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let request = RunRequest { run: options.run.0 };
    let records = client.export(request).await.map_err(plain)?;
    let mut records = records.into_inner();
    while let Some(record) = records.message().await.map_err(plain)? {
        print(&record.line)?;
    }
    Ok(Exit::Success)
}
