//! Updates of a run across restarts of the coordinator; the output of a status.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cli::exit::Exit;
use proto::v1::{self, RunState, WatchStatusRequest};
use tokio::time::sleep;
use tonic::{Code, Streaming};
use view::text::stdout_width;

use super::{
    client::{Client, Connection, Refused, Unreachable},
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
        let open = async |mut client| stream_of(connection, &mut client, run).await;
        let lost = &mut |line| show(RunUpdate::Disconnected(line));
        let status = next_message(connection, &mut stream, open, lost).await?;
        run = status.run.as_ref().map(|run| run.run);
        let ended = ended(&status);
        show(RunUpdate::Status(Box::new(status)))?;
        if let Some(exit) = ended {
            return Ok(exit);
        }
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

/// Returns the next message of a stream, which is opened again after a lost connection.
/// Fails only if the coordinator refuses it.
pub(super) async fn next_message<T>(
    connection: &Connection,
    stream: &mut Streaming<T>,
    open: impl AsyncFn(Client) -> anyhow::Result<Streaming<T>>,
    show_lost: &mut dyn FnMut(String) -> anyhow::Result<()>,
) -> anyhow::Result<T> {
    let mut shown = String::new();
    loop {
        let mut error = match stream.message().await {
            Ok(Some(message)) => return Ok(message),
            Ok(None) => Unreachable::Lost(String::new()).into(),
            Err(status) => match connection.explain(&status).await {
                error if is_final(&error) => return Err(error),
                _ => Unreachable::Lost(String::new()).into(),
            },
        };
        loop {
            if is_final(&error) {
                return Err(error);
            }
            let line = match error.downcast_ref() {
                Some(Unreachable::NoAnswer(_) | Unreachable::Lost(_)) => {
                    format!("{} does not answer; retrying every second", connection.url())
                }
                None => format!("{}; retrying every second", view::text::one_line(&error)),
            };
            if line != shown {
                show_lost(line.clone())?;
                shown = line;
            }
            sleep(RETRY_INTERVAL).await;
            let opened = async { open(connection.connect().await?).await };
            match opened.await {
                Ok(opened) => break *stream = opened,
                Err(again) => error = again,
            }
        }
    }
}

/// Returns whether an error is the coordinator's answer, which a later attempt does not change.
fn is_final(error: &anyhow::Error) -> bool {
    // While a coordinator stops or starts, connections fail in many ways.
    use Code::{Cancelled, ResourceExhausted, Unavailable, Unknown};
    let refused = error.downcast_ref::<Refused>();
    refused.is_some_and(|refused| {
        !matches!(refused.code, Cancelled | ResourceExhausted | Unavailable | Unknown)
    })
}

/// Returns the exit code of a finished run.
pub(super) fn ended(status: &v1::Status) -> Option<Exit> {
    let run = status.run.as_ref()?;
    match run.state() {
        // An operator asked for more rechecks.
        RunState::Complete if !status.reason.is_empty() => None,
        RunState::Complete => status.result.as_ref().map(|result| match result.verified {
            true => Exit::Success,
            false => Exit::Unverified,
        }),
        RunState::Contradicted => status.result.is_some().then_some(Exit::Contradicted),
        RunState::Disputed => Some(Exit::Contradicted),
        RunState::Cancelled => Some(Exit::Error),
        RunState::Running | RunState::Verifying | RunState::Paused | RunState::Unspecified => None,
    }
}

/// Returns the time in Unix milliseconds.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn show_status(status: &v1::Status, style: Style) -> anyhow::Result<()> {
    match style.json {
        true => print_json(&view::json::Status::try_from(status)?),
        false => print(&view::status_text(status, stdout_width(), style.verbose, unix_ms())?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_verified_result_is_a_success() {
        let exit = |state: RunState, verified| {
            let run = Some(v1::Run { state: state.into(), ..v1::Run::default() });
            let result = Some(v1::Result { verified, ..v1::Result::default() });
            ended(&v1::Status { run, result, ..v1::Status::default() })
        };
        assert_eq!(exit(RunState::Complete, true), Some(Exit::Success));
        assert_eq!(exit(RunState::Complete, false), Some(Exit::Unverified));
        assert_eq!(exit(RunState::Contradicted, false), Some(Exit::Contradicted));
        assert_eq!(exit(RunState::Verifying, false), None);
        let rechecked = v1::Status {
            run: Some(v1::Run { state: RunState::Complete.into(), ..v1::Run::default() }),
            result: Some(v1::Result { verified: true, ..v1::Result::default() }),
            reason: "complete, rechecking 43 of 87".to_owned(),
            ..v1::Status::default()
        };
        assert_eq!(ended(&rechecked), None);
    }
}
