//! The program `queensctl`: asks, and prints what it is told.

mod client;
mod ladder;
mod options;
mod show;

use std::{
    io::{self, IsTerminal as _, Write},
    time::Duration,
};

use anyhow::Context as _;
use common::{choice::choose, plan::PlanSpec};
use proto::v1::{
    self, GetStatusRequest, ListRequest, RunRequest, RunState, SubmitRequest, WatchStatusRequest,
    WorkersRequest,
};
use tokio::time::sleep;
use tonic::Code;

pub use self::options::{Command, Options};
use self::{
    client::{Client, connect, plain},
    options::{StatusOptions, SubmitOptions},
};
use crate::{
    exit::Exit,
    store::{self, VerifyError},
    text::one_line,
};

/// Between two attempts of `status --watch` to reach a coordinator that was there before.
const RETRY: Duration = Duration::from_secs(1);

/// Runs the program and says what went wrong, if something did.
pub async fn main(options: Options) -> Exit {
    let url = &options.coordinator;
    let done = match options.command {
        Command::Status(status) => self::status(url, &status).await,
        Command::Workers(format) => workers(url, format.json).await,
        Command::Runs(format) => runs(url, format.json).await,
        Command::Submit(run) => submit(url, &run).await,
        Command::Pause(run) => control(url, Control::Pause, run.run.0).await,
        Command::Resume(run) => control(url, Control::Resume, run.run.0).await,
        Command::Cancel(run) => control(url, Control::Cancel, run.run.0).await,
        Command::Export(run) => export(url, run.run.0).await,
        Command::Verify(verify) => self::verify(&verify.dir),
        Command::Ladder(ladder) => ladder::climb(&ladder),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {}", one_line(&error));
        Exit::Error
    })
}

/// Writes lines to stdout; a reader that has seen enough (`| head`) is no error.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.context("cannot write to standard output"),
    }
}

async fn status(url: &str, options: &StatusOptions) -> anyhow::Result<Exit> {
    let mut client = connect(url).await?;
    let run = options.run.map(|run| run.0);
    if options.watch {
        return watch(url, client, options).await;
    }
    let request = GetStatusRequest { run };
    let status = client.get_status(request).await.map_err(plain)?;
    show_status(status.get_ref(), options.json)?;
    Ok(Exit::Success)
}

fn show_status(status: &v1::Status, json: bool) -> anyhow::Result<()> {
    match json {
        true => print(&show::status_json(status)?.to_string()),
        false => print(&show::status_text(status)?),
    }
}

/// Follows a run over restarts of the coordinator.
async fn watch(url: &str, mut client: Client, options: &StatusOptions) -> anyhow::Result<Exit> {
    let mut run = options.run.map(|run| run.0);
    let redraw = !options.json && io::stdout().is_terminal();
    loop {
        let request = WatchStatusRequest {
            run,
            interval_ms: 1000,
        };
        let lost = match client.watch_status(request).await {
            Err(status) => status,
            Ok(stream) => {
                let mut stream = stream.into_inner();
                loop {
                    match stream.message().await {
                        Ok(Some(status)) => {
                            if redraw {
                                // Clears the terminal and goes to its top left corner.
                                print!("\x1b[2J\x1b[H");
                            }
                            show_status(&status, options.json)?;
                            run = status.run.as_ref().map(|run| run.run);
                            if let Some(exit) = ended(&status) {
                                return Ok(exit);
                            }
                        }
                        Ok(None) => break tonic::Status::unavailable("the coordinator went away"),
                        Err(status) => break status,
                    }
                }
            }
        };
        if !matches!(
            lost.code(),
            Code::Unavailable | Code::Unknown | Code::Cancelled
        ) {
            return Err(plain(lost));
        }
        eprintln!("{url} does not answer; trying again every second");
        client = loop {
            sleep(RETRY).await;
            if let Ok(client) = connect(url).await {
                break client;
            }
        };
    }
}

/// How to exit when nothing more will change.
fn ended(status: &v1::Status) -> Option<Exit> {
    let run = status.run.as_ref()?;
    match run.state() {
        RunState::Complete => status.result.is_some().then_some(Exit::Success),
        RunState::Contradicted => status.result.is_some().then_some(Exit::Contradicted),
        RunState::Cancelled => Some(Exit::Error),
        RunState::Running | RunState::Paused | RunState::Unspecified => None,
    }
}

async fn workers(url: &str, json: bool) -> anyhow::Result<Exit> {
    let mut client = connect(url).await?;
    let workers = client.workers(WorkersRequest {}).await.map_err(plain)?;
    let workers = workers.into_inner().workers;
    match json {
        true => {
            for worker in &workers {
                print(&show::worker_json(worker).to_string())?;
            }
        }
        false if workers.is_empty() => print("no worker has called since the coordinator started")?,
        false => print(&show::workers_table(&workers))?,
    }
    Ok(Exit::Success)
}

async fn runs(url: &str, json: bool) -> anyhow::Result<Exit> {
    let mut client = connect(url).await?;
    let runs = client.list(ListRequest {}).await.map_err(plain)?;
    let runs = runs.into_inner().runs;
    match json {
        true => {
            for run in &runs {
                print(&show::run_json(run).to_string())?;
            }
        }
        false if runs.is_empty() => print("there are no runs; start one with `queensctl submit`")?,
        false => print(&show::runs_table(&runs))?,
    }
    Ok(Exit::Success)
}

async fn submit(url: &str, options: &SubmitOptions) -> anyhow::Result<Exit> {
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
    let mut client = connect(url).await?;
    let run = client.submit(request).await.map_err(plain)?;
    show_run(run.get_ref(), options.json)
}

fn show_run(run: &v1::Run, json: bool) -> anyhow::Result<Exit> {
    match json {
        true => print(&show::run_json(run).to_string())?,
        false => print(&show::run_text(run))?,
    }
    Ok(Exit::Success)
}

enum Control {
    Pause,
    Resume,
    Cancel,
}

async fn control(url: &str, control: Control, run: u64) -> anyhow::Result<Exit> {
    let mut client = connect(url).await?;
    let request = RunRequest { run };
    let run = match control {
        Control::Pause => client.pause(request).await,
        Control::Resume => client.resume(request).await,
        Control::Cancel => client.cancel(request).await,
    };
    show_run(run.map_err(plain)?.get_ref(), false)
}

async fn export(url: &str, run: u64) -> anyhow::Result<Exit> {
    let mut client = connect(url).await?;
    let records = client.export(RunRequest { run }).await.map_err(plain)?;
    let mut records = records.into_inner();
    while let Some(record) = records.message().await.map_err(plain)? {
        print(&record.line)?;
    }
    Ok(Exit::Success)
}

fn verify(dir: &std::path::Path) -> anyhow::Result<Exit> {
    match store::verify(dir) {
        Ok(report) => {
            print(&report.to_string())?;
            Ok(Exit::Success)
        }
        Err(flawed @ VerifyError::Flawed(_)) => {
            eprintln!("error: {flawed}");
            Ok(Exit::Contradicted)
        }
        Err(other) => Err(other.into()),
    }
}
