//! The way to the coordinator: within a time limit, and with a next step where it ends.

use std::{error::Error as _, fs, io, path::PathBuf, time::Duration};

use anyhow::anyhow;
use clap::Args;
use proto::{
    door::{Door, JoinString, Way, explain_tls},
    limits::MESSAGE_BYTES,
    v1::runs_client::RunsClient,
};
use tokio::{net::lookup_host, time::timeout};
use tonic::{
    Code, Response, Status,
    transport::{Channel, Endpoint},
};
use worker::config::{Address, BadAddress, TlsFiles, duration, join_string};

use coordinator::{doors::Vault, text::tell};

pub(super) type Client = RunsClient<Door>;

const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// A mistake on the command line that only shows later.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct BadUsage(pub(super) String);

/// Nobody answers now, but somebody may later.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreachable {
    /// No connection, or no answer in time.
    #[error("{0}")]
    Silent(String),
    /// The connection broke while an answer was awaited.
    #[error("{0}")]
    Lost(String),
}

/// Where the coordinator is, and how long to wait for it.
#[derive(Clone, Debug, Args)]
pub(super) struct Connection {
    /// Where the coordinator serves: http://HOST:PORT, or https:// with --tls-ca [default: what the
    /// join string in --data-dir says, if one is there, or else http://127.0.0.1:7171]
    #[arg(long, global = true, value_name = "URL", conflicts_with = "join")]
    coordinator: Option<String>,

    /// The coordinator's data directory, on its own machine: its operator's join string is found
    /// there
    #[arg(long, global = true, value_name = "DIR", default_value = "queens-data")]
    data_dir: PathBuf,

    /// The coordinator's join string, or @FILE with it; better as QUEENS_JOIN: everybody on this
    /// machine can read command lines
    #[arg(long, global = true, value_name = "STRING|@FILE")]
    join: Option<String>,

    /// The certificates of the authority that signed the coordinator's, where it has --client-ca
    #[arg(long, global = true, value_name = "FILE", requires_all = ["tls_cert", "tls_key", "coordinator"], conflicts_with = "insecure")]
    tls_ca: Option<PathBuf>,

    /// The caller's certificate; a name in it says its role
    #[arg(long, global = true, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The certificate's key
    #[arg(long, global = true, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Allow plain text to a coordinator on another machine
    #[arg(long, global = true)]
    insecure: bool,

    /// How long to wait for the connection, and for an answer, such as 30s or 2m [default: 10s;
    /// for the answer to submit 2m]
    #[arg(long, global = true, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
}

/// Where a coordinator is looked for when nobody says.
const USUAL_URL: &str = "http://127.0.0.1:7171";

const USUAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Dividing a large board into tasks takes seconds, many of them on a busy machine.
const SUBMIT_TIMEOUT: Duration = Duration::from_secs(120);

impl Connection {
    /// For people: where the coordinator is.
    pub(super) fn url(&self) -> String {
        match self.addresses() {
            Ok(addresses) => addresses[0].to_string(),
            Err(_) => self.coordinator.clone().unwrap_or_default(),
        }
    }

    /// What the command line names, at least one: the next is tried where one does not answer.
    fn addresses(&self) -> Result<Vec<Address>, BadUsage> {
        if let Some(join) = &self.join {
            // What cannot be used is not shown: it may be a secret with a typing error.
            return join_string(join)
                .map(|join| vec![Address::joined(join)])
                .map_err(|bad| BadUsage(format!("--join: {bad}")));
        }
        let usual = || Address::new(USUAL_URL, false).expect("loopback in plain text");
        let Some(url) = &self.coordinator else {
            return Ok(self.found().into_iter().chain([usual()]).collect());
        };
        let files = TlsFiles::of(
            self.tls_ca.as_ref(),
            self.tls_cert.as_ref(),
            self.tls_key.as_ref(),
        );
        let address = match &files {
            Some(files) => Address::certified(url, files),
            None => Address::new(url, self.insecure),
        };
        address.map(|address| vec![address]).map_err(|bad| {
            BadUsage(match bad {
                BadAddress::File(why) => why,
                _ => format!("--coordinator {bad}"),
            })
        })
    }

    /// The coordinator whose data directory is here, if its operator's string can be read: whoever
    /// may read it is meant to.
    fn found(&self) -> Option<Address> {
        let path = Vault::of(&self.data_dir).path("operator.join");
        let join: JoinString = fs::read_to_string(path).ok()?.parse().ok()?;
        // The last is the one that this machine reaches, whatever others see.
        let addresses = join.addresses().iter().rev().cloned().collect();
        let join = JoinString::new(addresses, join.ca(), join.token().clone()).ok()?;
        Some(Address::joined(join))
    }

    /// Connects, or says in one line why not.
    pub(super) async fn connect(&self) -> anyhow::Result<Client> {
        let door = self.door().await?;
        Ok(RunsClient::new(door)
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES))
    }

    /// A connection for any service.
    pub(super) async fn door(&self) -> anyhow::Result<Door> {
        let mut why = None;
        for address in self.addresses()? {
            if address.is_open_to_others() {
                tell(&format!(
                    "warning: --insecure: whoever is between here and {address} reads and changes \
                     what is said"
                ));
            }
            let way = address.way();
            match self.in_time(self.channel(way)).await? {
                Ok(channel) => return Ok(way.door(channel)),
                Err(error) => why = Some(error),
            }
        }
        Err(why.expect("there is an address").into())
    }

    /// A connection to the first of the coordinator's addresses that answers.
    async fn channel(&self, way: &Way) -> Result<Channel, Unreachable> {
        let mut why = None;
        for endpoint in way.endpoints() {
            match self.try_endpoint(endpoint).await {
                Ok(channel) => return Ok(channel),
                Err(error) => why = why.or(Some(error)),
            }
        }
        Err(why.expect("there is an address"))
    }

    async fn try_endpoint(&self, endpoint: Endpoint) -> Result<Channel, Unreachable> {
        let uri = endpoint.uri().clone();
        let host = uri.host().unwrap_or_default();
        let name = host.trim_start_matches('[').trim_end_matches(']');
        // The transport would look it up too, but its error does not tell a wrong name from a
        // coordinator that is down.
        if let Err(error) = lookup_host((name, uri.port_u16().unwrap_or_default())).await {
            return Err(Unreachable::Silent(format!(
                "{}: there is no host '{host}' ({error}); check the name, or give its address",
                self.url()
            )));
        }
        let endpoint = endpoint
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true);
        endpoint.connect().await.map_err(|error| {
            let url = self.url();
            if let Some(why) = explain_tls(&error) {
                return Unreachable::Silent(format!("{url}: {why}"));
            }
            let why = io_error(&error).map_or_else(String::new, |why| format!(" ({why})"));
            Unreachable::Silent(format!(
                "no coordinator answers at {url}{why}; is it running, and is this its --listen \
                 address? (--coordinator gives another one)"
            ))
        })
    }

    /// The same way for a request that takes long.
    pub(super) fn patient(&self) -> Self {
        Self {
            timeout: self.timeout.or(Some(SUBMIT_TIMEOUT)),
            ..self.clone()
        }
    }

    /// The answer to one call, or in one line why there is none.
    pub(super) async fn ask<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> anyhow::Result<T> {
        match self.in_time(call).await? {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => Err(self.plain(&status).await),
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Unreachable> {
        let limit = self.timeout.unwrap_or(USUAL_TIMEOUT);
        let late = |_| {
            Unreachable::Silent(format!(
                "{} does not answer within {:?}; is that a coordinator's port, and does nothing on \
                 the way swallow packets? (--timeout waits longer)",
                self.url(),
                limit
            ))
        };
        timeout(limit, work).await.map_err(late)
    }

    /// What is wrong with the certificate that is shown, if that is what a call failed for.
    async fn why_refused(&self) -> Option<&'static str> {
        for address in self.addresses().ok()? {
            if let Some(why) = address.way().why_refused().await {
                return Some(why);
            }
        }
        None
    }

    /// What the coordinator said, without the words of the transport.
    pub(super) async fn plain(&self, status: &Status) -> anyhow::Error {
        let url = self.url();
        // A server looks at a client's certificate only after the client thinks that it is in.
        if let Some(why) = explain_tls(status) {
            return anyhow!("{url}: {why}");
        }
        if status.source().is_some()
            && let Some(why) = self.why_refused().await
        {
            return anyhow!("{url}: {why}");
        }
        if is_lost(status) {
            return Unreachable::Lost(format!("{url}: the connection was lost; ask again, and if that does not help, check that this is \
                 a coordinator's address")).into();
        }
        // What a coordinator says comes without a source.
        if status.source().is_some() {
            return anyhow!(
                "{url} answers, but not as a coordinator does; give the address that the \
                 coordinator prints when it starts (port 7171, unless --listen says otherwise)"
            );
        }
        match (status.code(), status.message()) {
            (Code::Unimplemented, _) => anyhow!(
                "{url} does not know this request; is it a coordinator's address, and are both \
                 programs of the same release?"
            ),
            (code, "") => anyhow!("the coordinator answered {code:?}"),
            (_, message) => anyhow!("{message}"),
        }
    }
}

/// Whether the connection broke, so that the same question may have an answer later.
fn is_lost(status: &Status) -> bool {
    let broken = |error: io::Error| error.kind() != io::ErrorKind::InvalidData;
    status.source().and_then(io_error).is_some_and(broken)
}

/// The operating system's word among the causes of an error.
fn io_error(error: &(dyn std::error::Error + 'static)) -> Option<io::Error> {
    let mut cause = error;
    let cause = loop {
        match cause.downcast_ref::<io::Error>() {
            Some(found) => break found,
            None => cause = cause.source()?,
        }
    };
    Some(match cause.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::from(cause.kind()),
    })
}
