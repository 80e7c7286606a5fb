//! The calls themselves: one HTTP/2 connection that comes and goes.

use std::{
    error::Error,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::sync::{SyncReply, SyncRequest};
use proto::{
    BadMessage, CallId,
    door::{Door, explain_tls},
    limits, v1,
    v1::work_queue_client::WorkQueueClient,
};
use tonic::{Code, Request, Status, transport::Endpoint};
use tracing::Instrument as _;

use crate::config::Address;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// A call on its way.
pub(crate) type Call = Pin<Box<dyn Future<Output = Result<SyncReply, LostCall>> + Send>>;

/// A call that brought no reply.
#[derive(Debug)]
pub(crate) struct LostCall {
    /// Its name in the coordinator's log.
    pub(crate) id: CallId,
    /// Why.
    pub(crate) error: CallError,
}

/// Why a call brought no reply. What was sent may have been carried out or not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The coordinator was not reached, or the answer was lost.
    #[error("cannot be reached ({0})")]
    Unreachable(String),
    /// What answered speaks something else, or the connection broke in the middle of a word.
    #[error("answers in another language ({0})")]
    Garbled(String),
    /// The coordinator answered with an error.
    #[error("refuses this worker's calls ({code:?}: {message})")]
    Refused {
        /// The gRPC code.
        code: Code,
        /// What the coordinator says.
        message: String,
    },
    /// The coordinator answered something else.
    #[error("sent a reply that makes no sense ({0}); install the same release on both sides")]
    BadReply(#[from] BadMessage),
}

/// What is said of a call on a connection that ended before the call was under way.
const CLOSED: &str = "connection closed";

impl CallError {
    /// Whether what answers may be no coordinator. What it says first, unasked, ends the connection, and
    /// is known only if the call was under way by then.
    pub(super) fn may_be_a_strangers(&self) -> bool {
        match self {
            Self::Garbled(_) => true,
            Self::Unreachable(why) => why == CLOSED,
            Self::Refused { .. } | Self::BadReply(_) => false,
        }
    }
}

/// Calls one coordinator; connects on the first call and again whenever the connection is lost.
#[derive(Debug)]
pub(crate) struct Transport {
    /// One a address of the coordinator.
    clients: Vec<WorkQueueClient<Door>>,
    /// Which of them answered last; the next one once it does not.
    current: Arc<AtomicUsize>,
}

impl Transport {
    pub(crate) fn new(coordinator: &Address) -> Self {
        let way = coordinator.way();
        let client = |endpoint: Endpoint| {
            let channel = endpoint
                .connect_timeout(CONNECT_TIMEOUT)
                .timeout(CALL_TIMEOUT)
                .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
                .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
                .keep_alive_while_idle(true)
                .connect_lazy();
            WorkQueueClient::new(way.door(channel))
                .max_decoding_message_size(limits::MESSAGE_BYTES)
                .max_encoding_message_size(limits::MESSAGE_BYTES)
        };
        Self {
            clients: way.endpoints().into_iter().map(client).collect(),
            current: Arc::default(),
        }
    }

    /// One call; nothing is sent before it is polled.
    pub(crate) fn sync(&self, request: SyncRequest) -> Call {
        let number = self.current.load(Ordering::Relaxed) % self.clients.len();
        let mut client = self.clients[number].clone();
        let current = Arc::clone(&self.current);
        let id = CallId(rand::random());
        let call = async move {
            let mut message = Request::new(v1::SyncRequest::from(request));
            id.write(message.metadata_mut());
            let reply = client.sync(message).await;
            let reply = reply.map_err(|status| failure(&status));
            if let Err(CallError::Unreachable(_) | CallError::Garbled(_)) = reply {
                current.store(number + 1, Ordering::Relaxed);
            }
            let reply = reply.and_then(|reply| Ok(SyncReply::try_from(reply.into_inner())?));
            match &reply {
                Ok(_) => tracing::debug!("answered"),
                Err(error) => tracing::debug!("no answer: the coordinator {error}"),
            }
            reply.map_err(|error| LostCall { id, error })
        };
        // The coordinator's log has it too.
        Box::pin(call.instrument(tracing::debug_span!("call", %id)))
    }
}

fn failure(status: &Status) -> CallError {
    if let Some(why) = explain_tls(status) {
        return CallError::Unreachable(why.to_owned());
    }
    if let Some(error) = status.source().and_then(io_error) {
        return CallError::Unreachable(hint(error));
    }
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
            CallError::Unreachable(innermost(status))
        }
        // What a coordinator says comes without a source.
        Code::Unknown => CallError::Garbled(innermost(status)),
        _ if status.source().is_some() => CallError::Garbled(innermost(status)),
        code => CallError::Refused {
            code,
            message: status.message().to_owned(),
        },
    }
}

/// The operating system's word among the causes of an error.
fn io_error<'a>(mut cause: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    loop {
        match cause.downcast_ref::<io::Error>() {
            // HTTP/2 wraps what it does not understand.
            Some(error) if error.kind() == io::ErrorKind::InvalidData => return None,
            Some(error) => return Some(error),
            None => cause = cause.source()?,
        }
    }
}

/// What the system says, and what to look at.
fn hint(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            ": nothing listens there; is the coordinator running, and is this its --listen address?"
        }
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable => {
            ": check the address, and whether a firewall is in between"
        }
        // The name's look-up has no kind of its own.
        _ if error.to_string().contains("lookup address") => {
            ": there is no host of this name; check it, or give the address"
        }
        _ => "",
    };
    format!("{error}{advice}")
}

/// The cause at the bottom, which says what happened to the socket.
fn innermost(status: &Status) -> String {
    let mut cause: Option<&dyn Error> = status.source();
    let mut text = status.message().to_owned();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}
