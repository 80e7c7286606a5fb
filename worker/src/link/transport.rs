//! Calls to the coordinator, over HTTP/2 with reconnection or within the process.

use std::{error::Error, io, pin::Pin, sync::Arc, time::Duration};

use common::{
    messages::{
        limits,
        sync::{SyncReply, SyncRequest},
    },
    text::Escaped,
};
use proto::{
    BadMessage, CallId,
    connect::{AuthChannel, CoordinatorEndpoint, explain_io, explain_tls, io_error},
    issued_secret,
    v1::{self, work_queue_client::WorkQueueClient},
};
use tokio::{
    sync::Mutex,
    time::{error::Elapsed, timeout},
};
use tonic::{Code, Request, Status};
use tracing::Instrument as _;

use crate::{config::Coordinator, spool::Identity};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A call in progress.
pub(crate) type Call = Pin<Box<dyn Future<Output = Result<SyncReply, CallError>> + Send>>;

/// Reason why a call has no reply; the request may have been carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The coordinator was not reached, or the reply was lost.
    #[error("cannot be reached ({0})")]
    Unreachable(String),
    /// The server speaks another protocol, or the connection broke within a message.
    #[error("does not speak the queens protocol ({0})")]
    Garbled(String),
    #[error("refuses this worker's calls ({code:?}: {message})")]
    Refused { code: Code, message: String },
    #[error("sent an invalid reply ({0}); install the same release on both sides")]
    BadReply(#[from] BadMessage),
}

/// The message of a connection that closed before the call was sent.
const CLOSED: &str = "connection closed";

impl CallError {
    /// Returns whether the server may not be a coordinator.
    ///
    /// If a server sends first, the connection closes. The error describes the server's bytes only if
    /// the call was already sent.
    pub(super) fn may_be_another_server(&self) -> bool {
        match self {
            Self::Garbled(_) => true,
            Self::Unreachable(why) => why == CLOSED,
            Self::Refused { .. } | Self::BadReply(_) => false,
        }
    }
}

/// A client of one coordinator; connects on demand and after a lost connection.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    pub(crate) coordinator: Coordinator,
    /// The client of a remote coordinator; `None` before the first call and after a failure.
    client: Arc<Mutex<Option<WorkQueueClient<AuthChannel>>>>,
    identity: Identity,
}

impl Transport {
    pub(crate) fn new(coordinator: Coordinator, identity: Identity) -> Self {
        Self { coordinator, client: Arc::default(), identity }
    }

    /// Creates a call, sent when it is polled; the coordinator logs the same ID.
    pub(crate) fn sync(&self, id: CallId, request: SyncRequest) -> Call {
        let transport = self.clone();
        let call = async move {
            let reply = match transport.coordinator.clone() {
                Coordinator::Remote(remote) => transport.sync_remote(&remote, id, request).await,
                Coordinator::InProcess(calls) => {
                    let stopped = || CallError::Unreachable("it has stopped".to_owned());
                    calls.sync(request).await.ok_or_else(stopped)
                }
            };
            match &reply {
                Ok(_) => tracing::debug!("answered"),
                Err(error) => tracing::debug!("no answer: the coordinator {error}"),
            }
            reply
        };
        Box::pin(call.instrument(tracing::debug_span!("call", %id)))
    }

    async fn sync_remote(
        self,
        remote: &CoordinatorEndpoint,
        id: CallId,
        request: SyncRequest,
    ) -> Result<SyncReply, CallError> {
        let mut kept = self.client.lock().await;
        let client = match &*kept {
            Some(client) => client.clone(),
            None => kept.insert(connect(remote).await?).clone(),
        };
        drop(kept);
        let reply = self.authenticated(client, id, request).await;
        if let Err(CallError::Unreachable(_) | CallError::Garbled(_)) = reply {
            // The coordinator may be at another address by now.
            *self.client.lock().await = None;
        }
        reply
    }

    /// Makes a call with the worker's secret; repeats it with a newly issued one.
    async fn authenticated(
        &self,
        mut client: WorkQueueClient<AuthChannel>,
        id: CallId,
        request: SyncRequest,
    ) -> Result<SyncReply, CallError> {
        let mut was_issued = false;
        loop {
            let mut message = v1::SyncRequest::from(request.clone());
            if let Some(secret) = self.identity.secret() {
                message.secret = secret.as_bytes().to_vec();
            }
            let mut message = Request::new(message);
            id.write(message.metadata_mut());
            let reply = timeout(CALL_TIMEOUT, client.sync(message)).await.map_err(late)?;
            let reply = reply.map_err(|status| failure(&status))?.into_inner();
            match issued_secret(&reply)? {
                None => return Ok(SyncReply::try_from(reply)?),
                Some(_) if self.identity.is_fixed() => {
                    let message =
                        "it did not issue this identity to this token: use the coordinator and \
                                   the token with which the package was checked out"
                            .to_owned();
                    return Err(CallError::Refused { code: Code::Unauthenticated, message });
                }
                Some(issued) if !was_issued => self.identity.store(issued).await,
                Some(_) => {
                    let message = "it rejects the secret that it has just issued".to_owned();
                    return Err(CallError::Refused { code: Code::Internal, message });
                }
            }
            was_issued = true;
        }
    }
}

async fn connect(remote: &CoordinatorEndpoint) -> Result<WorkQueueClient<AuthChannel>, CallError> {
    match timeout(CONNECT_TIMEOUT, remote.connect()).await.map_err(late)? {
        Ok(channel) => Ok(WorkQueueClient::new(channel)
            .max_decoding_message_size(limits::MESSAGE_BYTES)
            .max_encoding_message_size(limits::MESSAGE_BYTES)),
        Err(error) => Err(CallError::Unreachable(error.explain())),
    }
}

fn late(_: Elapsed) -> CallError {
    CallError::Unreachable(explain_io(&io::ErrorKind::TimedOut.into()))
}

fn failure(status: &Status) -> CallError {
    if let Some(why) = explain_tls(status) {
        return CallError::Unreachable(why.to_owned());
    }
    if let Some(error) = status.source().and_then(io_error) {
        return CallError::Unreachable(explain_io(error));
    }
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
            CallError::Unreachable(innermost(status))
        }
        Code::Unknown => CallError::Garbled(innermost(status)),
        // Errors of a coordinator have no source.
        _ if status.source().is_some() => CallError::Garbled(innermost(status)),
        code => CallError::Refused { code, message: Escaped(status.message()).to_string() },
    }
}

/// Returns the innermost cause, such as the error of a socket, escaped.
fn innermost(status: &Status) -> String {
    let mut cause: Option<&dyn Error> = status.source();
    let mut text = status.message().to_owned();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    Escaped(&text).to_string()
}
