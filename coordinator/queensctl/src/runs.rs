//! Commands about runs.

use std::{
    io::{self, IsTerminal as _},
    num::NonZeroU64,
};

use anyhow::anyhow;
use clap::Args;
use cli::{
    duration::task_cost,
    exit::{BadUsage, Exit},
    terminal::eprint_info,
};
use common::{
    board::Board,
    choice::{MethodChoice, RowsLayout, choose},
    messages::run::{RunId, SubmitKey},
    plan::{Plan, PlanSpec},
};
use proto::v1::{
    self, GetStatusRequest, ListRequest, RunRequest, SetRequest, SubmitRequest, WorkersRequest,
    set_request::Setting,
};
use scheduler::ledger::Recheck;
use tonic::Code;
use view::{
    RunSelector,
    text::{eprint_line, plural, stdout_width, thousands},
};

use super::{
    client::{Client, Connection, Control, Refused, Unreachable},
    output::{Bar, print, print_json, print_json_line, print_objects},
};

#[derive(Clone, Debug, Args)]
pub(super) struct RunsOptions {
    /// List cancelled runs too
    #[arg(long)]
    all: bool,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub(super) struct RunOptions {
    /// Run: at least four digits of its id (see `queensctl runs`), N=22 for the newest of that
    /// board, or last
    run: RunSelector,
}

/// Options of `cancel` and `delete`.
#[derive(Clone, Debug, Args)]
pub(super) struct EndOptions {
    #[command(flatten)]
    target: RunOptions,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

#[derive(Clone, Debug, Args)]
pub(super) struct RecheckOptions {
    #[command(flatten)]
    target: RunOptions,

    /// Fraction of the tasks such as 0.1, auto, or all
    #[arg(value_name = "FRACTION")]
    recheck: Recheck,
}

#[derive(Clone, Debug, Args)]
pub(super) struct PriorityOptions {
    #[command(flatten)]
    target: RunOptions,

    /// Priority; runs of higher priority are served first
    #[arg(allow_hyphen_values = true, value_parser = priority)]
    priority: i32,
}

#[derive(Clone, Debug, Args)]
pub(super) struct SubmitOptions {
    /// Board size, 1 to 32
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    n: Board,

    /// Counting method: auto, rows or frames
    #[arg(long, default_value = "auto")]
    method: MethodChoice,

    /// Division of the board by method rows: first-rows or border
    #[arg(long)]
    layout: Option<RowsLayout>,

    /// Estimated cost of a task in microseconds of one core [default: by N]
    #[arg(long, value_name = "MICROSECONDS", value_parser = task_cost)]
    task_cost: Option<NonZeroU64>,

    /// Priority; runs of higher priority are served first
    #[arg(long, default_value_t = 0, allow_hyphen_values = true, value_parser = priority)]
    priority: i32,

    /// Fraction of tasks to recheck, on another machine if possible: auto (2 %, plus the first results
    /// of each worker), all, or a number such as 0.1
    #[arg(long, value_name = "FRACTION", default_value = "auto")]
    recheck: Recheck,

    /// Start a new run even if one for this board exists
    #[arg(long)]
    new_run: bool,

    /// Idempotency key: a repeated submit with the same key returns the existing run [default: random]
    #[arg(long, value_name = "KEY")]
    key: Option<SubmitKey>,

    /// Print the run as a JSON object
    #[arg(long)]
    json: bool,
}

fn priority(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| "expected a whole number, such as -2 or 10".to_owned())
}

pub(super) async fn runs(connection: &Connection, options: &RunsOptions) -> anyhow::Result<()> {
    let mut client = connection.connect().await?;
    let runs = connection.ask(client.list(ListRequest {})).await?.runs;
    match options.json {
        true => print_objects(view::listed(runs, options.all).iter().map(view::json::Run::from)),
        false if runs.is_empty() => print("there are no runs; start one with `queensctl submit`"),
        false => print(&view::runs_table(runs, options.all, stdout_width())),
    }
}

pub(super) async fn submit(connection: &Connection, options: &SubmitOptions) -> anyhow::Result<()> {
    let choice = choose(options.n, options.method, options.layout, None);
    let defaults = PlanSpec::new(options.n, choice.map_err(BadUsage::of)?.layout);
    let spec = PlanSpec {
        task_cost: options.task_cost.map_or(defaults.task_cost, |cost| cost.get()),
        ..defaults
    };
    // The user learns of a run of a million tasks before it exists.
    let plan = Plan::new(spec).map_err(BadUsage::of)?;
    eprint_info(&estimate(connection, &plan).await?);
    let request = SubmitRequest {
        spec: Some(spec.into()),
        priority: options.priority,
        new_run: options.new_run,
        recheck: Some(options.recheck.into()),
        idempotency_key: match &options.key {
            Some(key) => key.to_string(),
            None => format!("{:032x}", rand::random::<u128>()),
        },
    };
    let run = match submit_once(connection, request.clone()).await {
        // The submission may have been accepted; the key prevents a second run.
        Err(error) if matches!(error.downcast_ref(), Some(Unreachable::Lost(_))) => {
            submit_once(connection, request).await
        }
        answered => answered,
    };
    let run = run.map_err(|error| match error.downcast_ref() {
        Some(Refused { code: Code::AlreadyExists, message }) => {
            anyhow!("{message}: `queensctl status` shows it; --new-run starts another one")
        }
        _ => error,
    });
    show_run(&run?, options.json)
}

/// Describes the work of a plan, and its time on the connected threads.
async fn estimate(connection: &Connection, plan: &Plan) -> anyhow::Result<String> {
    let mut client = connection.connect().await?;
    let request = WorkersRequest { limit: 1, ..WorkersRequest::default() };
    let totals = connection.ask(client.workers(request)).await?.totals;
    Ok(view::cost_text(plan, totals.map_or(0, |totals| totals.threads)))
}

async fn submit_once(connection: &Connection, request: SubmitRequest) -> anyhow::Result<v1::Run> {
    let mut client = connection.connect().await?;
    let patient = connection.with_long_timeout();
    patient.ask(client.submit(request)).await
}

fn show_run(run: &v1::Run, json: bool) -> anyhow::Result<()> {
    if json { print_json(&view::json::Run::from(run)) } else { print(&view::run_text(run)) }
}

pub(super) async fn control(
    connection: &Connection,
    options: &RunOptions,
    control: Control,
) -> anyhow::Result<()> {
    let (mut client, run) = connection.connect_to_run(&options.run).await?;
    let parked = match control {
        Control::Retry => {
            let request = GetStatusRequest { run: Some(run) };
            Some(connection.ask(client.get_status(request)).await?.tasks_parked)
        }
        _ => None,
    };
    let text = view::run_text(&connection.control(&mut client, run, control).await?);
    print(&match parked {
        None => text,
        Some(0) => format!("{text}: no task was parked, nothing to retry"),
        Some(parked) => format!("{text}, {} retried", plural(parked, "task")),
    })
}

pub(super) async fn recheck(
    connection: &Connection,
    options: &RecheckOptions,
) -> anyhow::Result<()> {
    let setting = Setting::Recheck(options.recheck.into());
    let run = set(connection, &options.target, setting).await?;
    // The answer itself does not contain the fraction.
    print(&format!("{}, recheck {}", view::run_text(&run), options.recheck))
}

pub(super) async fn prioritize(
    connection: &Connection,
    options: &PriorityOptions,
) -> anyhow::Result<()> {
    let setting = Setting::Priority(options.priority);
    print(&view::run_text(&set(connection, &options.target, setting).await?))
}

async fn set(
    connection: &Connection,
    target: &RunOptions,
    setting: Setting,
) -> anyhow::Result<v1::Run> {
    let (mut client, run) = connection.connect_to_run(&target.run).await?;
    connection.ask(client.set(SetRequest { run, setting: Some(setting) })).await
}

/// Cancels a run, or deletes it with its results.
pub(super) async fn end(
    connection: &Connection,
    options: &EndOptions,
    control: Control,
) -> anyhow::Result<Exit> {
    let (mut client, run) = connection.connect_to_run(&options.target.run).await?;
    let prefix = if control == Control::Delete { "deleted " } else { "" };
    if !options.yes && !confirm(control.verb(), run, connection, &mut client).await? {
        return Ok(Exit::Error);
    }
    let run = connection.control(&mut client, run, control).await?;
    print(&format!("{prefix}{}", view::run_text(&run)))?;
    Ok(Exit::Success)
}

/// Asks for confirmation on the terminal, with the run's description and progress.
async fn confirm(
    verb: &str,
    run: u64,
    connection: &Connection,
    client: &mut Client,
) -> anyhow::Result<bool> {
    let runs = connection.ask(client.list(ListRequest {})).await?.runs;
    let listed = runs.iter().find(|listed| listed.run == run);
    let status = connection.ask(client.get_status(GetStatusRequest { run: Some(run) })).await?;
    let about = format!(
        "{}, {} of {} done",
        listed.map_or_else(|| format!("run {}", RunId(run)), view::run_text),
        thousands(status.tasks_done.into()),
        plural(status.tasks_total, "task")
    );
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(BadUsage(format!("{verb} {about}? Confirm with --yes")).into());
    }
    let digits = RunId(run).confirmation();
    eprint_line(&format!("{verb} {about}? Type {digits} to confirm:"));
    let (send, answer) = tokio::sync::oneshot::channel();
    // A separate thread: at shutdown, the runtime would wait for a blocking task.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line).is_ok();
        // The receiver is gone after Ctrl-C.
        let _ = send.send(read && line.trim() == digits);
    });
    let confirmed = answer.await.unwrap_or(false);
    if !confirmed {
        eprint_line("nothing was changed");
    }
    Ok(confirmed)
}

#[derive(Clone, Debug, Args)]
pub(super) struct CreditsOptions {
    #[command(flatten)]
    target: RunOptions,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(super) async fn credits(
    connection: &Connection,
    options: &CreditsOptions,
) -> anyhow::Result<()> {
    let (mut client, run) = connection.connect_to_run(&options.target.run).await?;
    let mut stream = connection.ask(client.credits(RunRequest { run })).await?;
    let mut credits = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(credit)) => credits.push(credit),
            Ok(None) => break,
            Err(status) => return Err(connection.explain(&status).await),
        }
    }
    match options.json {
        true => print_objects(credits.iter().map(view::json::Credit::from)),
        false if credits.is_empty() => print("no counts yet"),
        false => print(&view::credits_table(&credits, stdout_width())),
    }
}

pub(super) async fn export(connection: &Connection, options: &RunOptions) -> anyhow::Result<()> {
    let (mut client, run) = connection.connect_to_run(&options.run).await?;
    // Lines on a terminal already show the progress.
    let bar = Bar::start("records", !io::stdout().is_terminal());
    let request = GetStatusRequest { run: Some(run) };
    let total = match bar.is_visible() {
        true => connection.ask(client.get_status(request)).await?.tasks_done,
        false => 0,
    };
    let mut records = connection.ask(client.export(RunRequest { run })).await?;
    let mut number = 0u64;
    loop {
        match records.message().await {
            Ok(Some(record)) => {
                print_json_line(&record.line)?;
                number += 1;
                // Rechecks are records too.
                bar.show(number, number as f64 / total.max(number) as f64);
            }
            Ok(None) => return Ok(()),
            Err(status) => return Err(connection.explain(&status).await),
        }
    }
}
