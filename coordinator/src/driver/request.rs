//! Requests to the driver, and the errors of their answers.

use std::sync::Arc;

use common::messages::run::{RunId, SubmitKey};
use scheduler::ControlError;
use store::{Outage, RunState, StoreError};
use tokio::sync::{mpsc, oneshot};

use super::{Driver, DriverError};
use crate::message::outage_text;

/// Name of the caller's token or certificate; `None` without authentication.
pub type By = Option<Arc<str>>;

/// Work for the driver's thread.
pub(super) struct Request {
    /// Whether a status may differ afterwards.
    pub(super) changes_status: bool,
    pub(super) work: Work,
}

type Work = Box<dyn FnOnce(&mut Driver) -> Result<(), DriverError> + Send>;

impl Request {
    /// Creates a request, and the receiver of its answer.
    /// The answer is sent once all changes are durable; an error of `work` stops the driver.
    pub(super) fn new<T: Send + 'static>(
        changes_status: bool,
        work: impl FnOnce(&mut Driver) -> Result<T, DriverError> + Send + 'static,
    ) -> (Self, oneshot::Receiver<T>) {
        let (sender, answer) = oneshot::channel();
        let work = Box::new(move |driver: &mut Driver| {
            let answer = work(driver)?;
            // The caller may be gone.
            driver.replies.push(Box::new(move || drop(sender.send(answer))));
            Ok(())
        });
        (Self { changes_status, work }, answer)
    }
}

/// Maximum number of queued requests of each kind; further callers wait.
const CAPACITY: usize = 256;

/// The queues of all callers.
#[derive(Clone, Debug)]
pub(super) struct Senders {
    pub(super) workers: mpsc::Sender<Request>,
    pub(super) others: mpsc::Sender<Request>,
}

/// The queued requests, in turn a call of a worker and another one: many workers delay no operator.
#[derive(Debug)]
pub(super) struct Requests {
    workers: mpsc::Receiver<Request>,
    others: mpsc::Receiver<Request>,
    is_turn_of_workers: bool,
}

impl Requests {
    pub(super) fn new() -> (Senders, Self) {
        let ((workers, from_workers), (others, from_others)) =
            (mpsc::channel(CAPACITY), mpsc::channel(CAPACITY));
        let requests =
            Self { workers: from_workers, others: from_others, is_turn_of_workers: false };
        (Senders { workers, others }, requests)
    }

    pub(super) fn try_next(&mut self) -> Option<Request> {
        let Self { workers, others, is_turn_of_workers } = self;
        let (first, second) = match is_turn_of_workers {
            true => (workers, others),
            false => (others, workers),
        };
        let next = first.try_recv();
        *is_turn_of_workers = next.is_ok() != *is_turn_of_workers;
        next.or_else(|_| second.try_recv()).ok()
    }

    /// Waits for a request; `None` once all callers are gone.
    pub(super) async fn next(&mut self) -> Option<Request> {
        if let Some(request) = self.try_next() {
            return Some(request);
        }
        tokio::select! {
            Some(request) = self.others.recv() => Some(request),
            Some(request) = self.workers.recv() => Some(request),
            else => None,
        }
    }
}

/// The coordinator is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator is shutting down")]
pub struct Stopped;

/// The answer to a reader while the store is away.
#[derive(Debug, thiserror::Error)]
#[error("{}", outage_text(.0))]
pub struct OutageError(pub(super) Outage);

/// A request that failed and changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Stopped(#[from] Stopped),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("run {run} already exists (N = {n}, method {method}, {state})", state = state.name())]
    RunExists { run: RunId, n: u8, method: String, state: RunState },
    #[error("key '{key}' was used for run {run} with other parameters; give another key")]
    KeyUsed { key: SubmitKey, run: RunId },
    #[error("no worker '{0}' (see `queensctl workers`)")]
    NoWorker(String),
    #[error(
        "'{name}' matches {workers} workers; give more of the identity (see `queensctl workers`)"
    )]
    AmbiguousWorker { name: String, workers: usize },
    #[error("worker {0} is not connected (see `queensctl workers`)")]
    NotConnected(String),
    #[error("{0} is not barred: there is nothing to readmit")]
    NotBarred(String),
    #[error("this is the worker in the coordinator itself (--local): stop the coordinator")]
    LocalWorker,
    #[error(transparent)]
    Store(#[from] StoreError),
}
