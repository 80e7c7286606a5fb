//! A run as it goes on, over restarts of its coordinator.

use std::time::Duration;

use proto::v1::{self, RunState, WatchStatusRequest};
use tokio::time::sleep;
use tonic::{Code, Status, Streaming};

use super::client::{Client, Connection, Unreachable};
use coordinator::exit::Exit;

/// Between two attempts to reach a coordinator that was there before.
const RETRY: Duration = Duration::from_secs(1);

/// What happens while a run is followed.
#[derive(Clone, Debug)]
pub(super) enum News {
    /// Something of the run changed.
    Status(Box<v1::Status>),
    /// The coordinator is gone, in a sentence, and tried again until there is a status.
    Lost(String),
}

/// Follows a run over restarts of the coordinator until it is over.
pub(super) async fn follow(
    connection: &Connection,
    (mut client, mut run): (Client, Option<u64>),
    tell: &mut dyn FnMut(News) -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    let mut stream = watch(connection, &mut client, run).await?;
    loop {
        let lost = match stream.message().await {
            Ok(Some(status)) => {
                run = status.run.as_ref().map(|run| run.run);
                let ended = ended(&status);
                tell(News::Status(Box::new(status)))?;
                match ended {
                    Some(exit) => return Ok(exit),
                    None => continue,
                }
            }
            Ok(None) => Status::unavailable("the coordinator went away"),
            Err(status) => status,
        };
        if !matches!(
            lost.code(),
            Code::Unavailable | Code::Unknown | Code::Cancelled
        ) {
            return Err(connection.plain(&lost).await);
        }
        let where_it_was = connection.url();
        tell(News::Lost(format!(
            "{where_it_was} does not answer; trying again every second"
        )))?;
        stream = loop {
            sleep(RETRY).await;
            let again = match connection.connect().await {
                Ok(mut client) => watch(connection, &mut client, run).await,
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

async fn watch(
    connection: &Connection,
    client: &mut Client,
    run: Option<u64>,
) -> anyhow::Result<Streaming<v1::Status>> {
    let request = WatchStatusRequest {
        run,
        interval_ms: 1000,
    };
    connection.ask(client.watch_status(request)).await
}

/// How to exit when nothing more will change.
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
