//! `queensctl status`: once, or again and again.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use clap::Args;
use common::run::RunId;
use proto::v1::{self, GetStatusRequest, RunState, WatchStatusRequest};
use tokio::time::sleep;
use tonic::Code;

use super::{
    client::{Client, Connection, plain},
    output::print,
    render,
};
use crate::exit::Exit;

/// Between two attempts of `status --watch` to reach a coordinator that was there before.
const RETRY: Duration = Duration::from_secs(1);

/// Options of `status`.
#[derive(Clone, Debug, Args)]
pub(super) struct StatusOptions {
    /// The run [default: the one served first]
    run: Option<RunId>,

    /// Shows it again whenever it changes, until the run is done
    #[arg(long)]
    watch: bool,

    /// Prints one JSON object; with --watch one a line
    #[arg(long)]
    json: bool,
}

pub(super) async fn status(
    connection: &Connection,
    options: &StatusOptions,
) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    if options.watch {
        return watch(connection, client, options).await;
    }
    let run = options.run.map(|run| run.0);
    let request = GetStatusRequest { run };
    let status = client.get_status(request).await.map_err(plain)?;
    show_status(status.get_ref(), options.json)?;
    Ok(Exit::Success)
}

fn show_status(status: &v1::Status, json: bool) -> anyhow::Result<()> {
    match json {
        true => print(&render::status_json(status)?.to_string()),
        false => print(&render::status_text(status)?),
    }
}

/// Follows a run over restarts of the coordinator.
async fn watch(
    connection: &Connection,
    mut client: Client,
    options: &StatusOptions,
) -> anyhow::Result<Exit> {
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
        eprintln!(
            "{} does not answer; trying again every second",
            connection.url()
        );
        client = loop {
            sleep(RETRY).await;
            if let Ok(client) = connection.connect().await {
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
