//! Updates of a run across restarts of the coordinator; the output of a status.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cli::exit::Exit;
use proto::v1::{self, RunState, WatchStatusRequest};
use tokio::time::sleep;
use tonic::{Code, Status, Streaming};
use view::text::stdout_width;

use super::{
    client::{Client, Connection, Unreachable},
    output::{print, print_json},
};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style {
    pub(super) json: bool,
    pub(super) verbose: bool,
}

/// Time between two attempts to reconnect.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) enum RunUpdate {
    Status(Box<v1::Status>),
    /// The message that the coordinator does not answer, valid until the next status.
    Disconnected(String),
}

/// Follows a run until it is finished, and returns its exit code.
pub(super) async fn follow(
    connection: &Connection,
    (mut client, mut run): (Client, Option<u64>),
    show: &mut dyn FnMut(RunUpdate) -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    let mut stream = stream_of(connection, &mut client, run).await?;
    loop {
        let lost = match stream.message().await {
            Ok(Some(status)) => {
                run = status.run.as_ref().map(|run| run.run);
                let ended = ended(&status);
                show(RunUpdate::Status(Box::new(status)))?;
                match ended {
                    Some(exit) => return Ok(exit),
                    None => continue,
                }
            }
            Ok(None) => Status::unavailable("the coordinator closed the connection"),
            Err(status) => status,
        };
        if !matches!(lost.code(), Code::Unavailable | Code::Unknown | Code::Cancelled) {
            return Err(connection.explain(&lost).await);
        }
        let url = connection.url();
        show(RunUpdate::Disconnected(format!("{url} does not answer; retrying every second")))?;
        stream = loop {
            sleep(RETRY_INTERVAL).await;
            let again = match connection.connect().await {
                Ok(mut client) => stream_of(connection, &mut client, run).await,
                Err(error) => Err(error),
            };
            match again {
                Err(error) if error.is::<Unreachable>() => {}
                Err(error) => return Err(error),
                Ok(stream) => break stream,
            }
        };
    }
}

async fn stream_of(
    connection: &Connection,
    client: &mut Client,
    run: Option<u64>,
) -> anyhow::Result<Streaming<v1::Status>> {
    let request = WatchStatusRequest { run, interval_ms: 1000 };
    connection.ask(client.watch_status(request)).await
}

/// Returns the exit code of a finished run.
pub(super) fn ended(status: &v1::Status) -> Option<Exit> {
    let run = status.run.as_ref()?;
    match run.state() {
        RunState::Complete => status.result.is_some().then_some(Exit::Success),
        RunState::Contradicted => status.result.is_some().then_some(Exit::Contradicted),
        RunState::Disputed => Some(Exit::Contradicted),
        RunState::Cancelled => Some(Exit::Error),
        RunState::Running | RunState::Paused | RunState::Unspecified => None,
    }
}

/// Returns the time in Unix milliseconds.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn show_status(status: &v1::Status, style: Style) -> anyhow::Result<()> {
    match style.json {
        true => print_json(view::status_json(status)?),
        false => print(&view::status_text(status, stdout_width(), style.verbose, unix_ms())?),
    }
}
