//! The connection to the coordinator: time limits, and errors with advice.

use std::{error::Error as _, io, time::Duration};

use anyhow::anyhow;
use auth::Role;
use clap::Args;
use cli::{duration::duration, exit::BadUsage};
use common::{messages::limits::MESSAGE_BYTES, text::Escaped};
use proto::{
    connect::{AuthChannel, ConnectionOptions, CoordinatorEndpoint, dial, explain_tls, io_error},
    v1::{self, ListRequest, RunRequest, runs_client::RunsClient},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};
use tonic::{Code, Response, Status};
use view::{RunSelector, SelectableRun, text::eprint_line};

pub(super) type Client = RunsClient<AuthChannel>;

const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection error that may be temporary.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreachable {
    /// No connection, or no answer in time.
    #[error("{0}")]
    NoAnswer(String),
    /// The connection broke before the answer.
    #[error("{0}")]
    Lost(String),
}

/// An error status from the coordinator.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Refused {
    pub(super) code: Code,
    pub(super) message: String,
}

/// A command about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Pause,
    Resume,
    Cancel,
    Retry,
    Delete,
}

/// Options of the connection to the coordinator.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection", mut_args(|option| option.global(true)))]
pub(super) struct Connection {
    #[command(flatten)]
    options: ConnectionOptions,

    /// Time limit for the connection and for each answer, such as 30s or 2m [default: 10s; for submit
    /// 2m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
}

impl Control {
    /// Returns the verb of a question.
    pub(super) const fn verb(self) -> &'static str {
        match self {
            Self::Pause => "Pause",
            Self::Resume => "Resume",
            Self::Cancel => "Cancel",
            Self::Retry => "Retry all parked tasks of",
            Self::Delete => "Delete all results of",
        }
    }
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit of a submission: planning a large board may take many seconds.
const SUBMIT_TIMEOUT: Duration = Duration::from_secs(120);

impl Connection {
    /// Returns the coordinator's address for messages.
    pub(super) fn url(&self) -> String {
        match self.address() {
            Ok(address) => address.to_string(),
            Err(_) => self.options.coordinator.clone().unwrap_or_default(),
        }
    }

    fn address(&self) -> Result<CoordinatorEndpoint, BadUsage> {
        self.options.endpoint(Role::Operator.as_str()).map_err(BadUsage::of)
    }

    /// Connects to the service for runs.
    pub(super) async fn connect(&self) -> anyhow::Result<Client> {
        let channel = self.open_channel().await?;
        Ok(RunsClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES))
    }

    /// Connects and returns the client and the run that a selector matches.
    pub(super) async fn connect_to_run(
        &self,
        selector: &RunSelector,
    ) -> anyhow::Result<(Client, u64)> {
        let mut client = self.connect().await?;
        if let RunSelector::Id(run) = selector {
            return Ok((client, run.0));
        }
        let runs = self.ask(client.list(ListRequest {})).await?.runs;
        let runs: Vec<_> = runs.iter().map(SelectableRun::from).collect();
        Ok((client, selector.among(&runs)?.0))
    }

    /// Connects and returns the client, and the run that an optional selector matches.
    pub(super) async fn connect_to(
        &self,
        selector: Option<&RunSelector>,
    ) -> anyhow::Result<(Client, Option<u64>)> {
        let Some(selector) = selector else { return Ok((self.connect().await?, None)) };
        let (client, run) = self.connect_to_run(selector).await?;
        Ok((client, Some(run)))
    }

    /// Sends a command about a run; returns the run.
    pub(super) async fn control(
        &self,
        client: &mut Client,
        run: u64,
        control: Control,
    ) -> anyhow::Result<v1::Run> {
        let request = RunRequest { run };
        match control {
            Control::Pause => self.ask(client.pause(request)).await,
            Control::Resume => self.ask(client.resume(request)).await,
            Control::Cancel => self.ask(client.cancel(request)).await,
            Control::Retry => self.ask(client.retry(request)).await,
            Control::Delete => self.ask(client.delete(request)).await,
        }
    }

    /// Opens a channel for any service.
    pub(super) async fn open_channel(&self) -> anyhow::Result<AuthChannel> {
        let address = self.address()?;
        if address.is_unprotected() {
            eprint_line(&format!(
                "warning: --insecure: traffic to {address} is unencrypted and unauthenticated"
            ));
        }
        let channel = self.in_time(address.connect()).await?;
        channel.map_err(|error| {
            let url = self.url();
            match explain_tls(&error) {
                Some(why) => anyhow!("{url}: {why}"),
                None => Unreachable::NoAnswer(format!(
                    "no coordinator answers at {url}: {} (--join and --data-dir select another one)",
                    error.explain()
                ))
                .into(),
            }
        })
    }

    /// Returns a connection with the time limit of slow requests.
    pub(super) fn with_long_timeout(&self) -> Self {
        Self { timeout: self.timeout.or(Some(SUBMIT_TIMEOUT)), ..self.clone() }
    }

    /// Returns the answer to a call.
    pub(super) async fn ask<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> anyhow::Result<T> {
        match self.in_time(call).await? {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => Err(self.explain(&status).await),
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Unreachable> {
        let limit = self.timeout.unwrap_or(DEFAULT_TIMEOUT);
        let late = |_| {
            Unreachable::NoAnswer(format!(
                "{} does not answer within {:?}; check that it is a coordinator's port and that no \
                 firewall drops packets, or raise --timeout",
                self.url(),
                limit
            ))
        };
        timeout(limit, work).await.map_err(late)
    }

    /// Returns whether an HTTP/1 server answers at the address.
    async fn speaks_http(&self) -> bool {
        let Some(CoordinatorEndpoint::Plain(uri)) = self.address().ok() else {
            return false;
        };
        let probe = async {
            let mut stream = dial(&uri).await.map_err(io::Error::other)?;
            stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await?;
            let mut start = [0; 5];
            stream.read_exact(&mut start).await?;
            Ok::<_, io::Error>(&start == b"HTTP/")
        };
        matches!(timeout(PROBE_TIMEOUT, probe).await, Ok(Ok(true)))
    }

    /// Converts an error status into a message of one line, without gRPC terms.
    pub(super) async fn explain(&self, status: &Status) -> anyhow::Error {
        let url = self.url();
        // A server checks the client's certificate after the client's handshake has finished.
        if let Some(why) = explain_tls(status) {
            return anyhow!("{url}: {why}");
        }
        if status.source().is_some()
            && let Ok(address) = self.address()
            && let Some(why) = address.rejection_reason().await
        {
            return anyhow!("{url}: {why}");
        }
        if status.source().is_some() && self.speaks_http().await {
            return anyhow!(
                "{url} is an HTTP port, such as the dashboard's; give the coordinator's gRPC port \
                 (7171 by default)"
            );
        }
        // The connection broke, so that the request can be repeated.
        if status.source().and_then(io_error).is_some() {
            return Unreachable::Lost(format!(
                "{url}: the connection was lost; try again, and check that this is a coordinator's \
                 address"
            ))
            .into();
        }
        // An error from a coordinator has no source.
        if status.source().is_some() {
            return anyhow!(
                "{url} does not speak the queens protocol; give the address that the coordinator \
                 prints at its start (port 7171 by default)"
            );
        }
        let code = status.code();
        let message = match (code, status.message()) {
            (Code::Unimplemented, _) => format!(
                "{url} does not support this request; check the address, and install the same \
                 release on both sides"
            ),
            (code, "") => format!("the coordinator answered {code:?}"),
            (_, message) => Escaped(message).to_string(),
        };
        Refused { code, message }.into()
    }
}
