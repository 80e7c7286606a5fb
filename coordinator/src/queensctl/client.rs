//! The way to the coordinator.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use proto::{limits::MESSAGE_BYTES, v1::runs_client::RunsClient};
use tonic::transport::{Channel, Endpoint};

pub(super) type Client = RunsClient<Channel>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Where the coordinator is.
#[derive(Clone, Debug, Args)]
pub(super) struct Connection {
    /// Where the coordinator serves
    #[arg(
        long,
        global = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:7171"
    )]
    coordinator: String,
}

impl Connection {
    /// As it was given.
    pub(super) fn url(&self) -> &str {
        &self.coordinator
    }

    /// Connects, or says in one line why not.
    pub(super) async fn connect(&self) -> anyhow::Result<Client> {
        connect(&self.coordinator).await
    }
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let endpoint = Endpoint::from_shared(url.to_owned())
        .ok()
        .filter(|endpoint| endpoint.uri().host().is_some())
        .with_context(|| format!("'{url}' is no address; give one such as http://HOST:7171"))?;
    match endpoint.uri().scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(anyhow!(
                "{url}: this version speaks plain text only; give http://"
            ));
        }
        Some(_) | None => {
            return Err(anyhow!(
                "'{url}' is no address; give one such as http://HOST:7171"
            ));
        }
    }
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    let channel = endpoint.connect().await.map_err(|_| {
        anyhow!(
            "no coordinator answers at {url}; is it running? (give its address with --coordinator)"
        )
    })?;
    Ok(RunsClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES))
}

/// What the coordinator said, without the words of the transport.
pub(super) fn plain(status: tonic::Status) -> anyhow::Error {
    match status.message() {
        "" => anyhow!("the coordinator answered {:?}", status.code()),
        message => anyhow!("{message}"),
    }
}
