//! How everybody else talks to the driver: bounded, asynchronous, answered only when durable.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use common::{
    count::CountError,
    plan::{Plan, TaskId},
    run::RunId,
    sync::{SyncReply, SyncRequest},
};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    outcome::Outcome,
    status::{JournalPage, StatusReport},
    submit::{Submission, SubmitError},
};
use crate::{
    room::SeenRoom,
    sched::{Command, ControlError, RunSummary, Standing, TaskMap, TaskView, WorkerStatus},
    store::{Copied, JournalCursor, Leader, StoreError, SymmetricCounts},
};

/// A request with the way back for its answer.
pub(super) enum Request {
    /// With the name of the token that vouches for the worker, if there is one.
    Sync(
        Option<Arc<str>>,
        Box<SyncRequest>,
        oneshot::Sender<SyncReply>,
    ),
    Submit(
        Box<Submission>,
        oneshot::Sender<Result<RunSummary, RequestError>>,
    ),
    Control(
        RunId,
        Command,
        oneshot::Sender<Result<RunSummary, RequestError>>,
    ),
    /// A worker's name, or the start of its identity.
    Trust(String, oneshot::Sender<Result<String, RequestError>>),
    /// The same.
    Drain(String, oneshot::Sender<Result<String, RequestError>>),
    Delete(RunId, oneshot::Sender<Result<RunSummary, RequestError>>),
    Status(Option<RunId>, oneshot::Sender<Option<StatusReport>>),
    Runs(oneshot::Sender<Vec<RunSummary>>),
    /// Which tasks, in how many cells.
    Map(RunId, Range<u64>, u64, oneshot::Sender<Option<TaskMap>>),
    Standings(RunId, oneshot::Sender<Option<(Plan, Vec<Standing>)>>),
    Task(RunId, TaskId, oneshot::Sender<Option<TaskView>>),
    Workers(oneshot::Sender<Vec<WorkerStatus>>),
    Journal(
        RunId,
        JournalCursor,
        oneshot::Sender<Result<Option<JournalPage>, StoreError>>,
    ),
    /// From the driver's own thread that counts symmetric solutions.
    Finished(RunId, Result<SymmetricCounts, CountError>),
    Stop,
}

impl Request {
    /// Whether a status may be another one afterwards.
    pub(super) const fn is_news(&self) -> bool {
        match self {
            Self::Sync(..)
            | Self::Submit(..)
            | Self::Control(..)
            | Self::Trust(..)
            | Self::Drain(..)
            | Self::Delete(..)
            | Self::Finished(..)
            | Self::Stop => true,
            Self::Status(..)
            | Self::Runs(..)
            | Self::Map(..)
            | Self::Standings(..)
            | Self::Task(..)
            | Self::Workers(..)
            | Self::Journal(..) => false,
        }
    }
}

/// The driver answers no more: the coordinator is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator is shutting down")]
pub struct Stopped;

/// Why a request was not followed. Nothing has changed, and the coordinator goes on.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The driver answers no more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The run cannot follow.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The run that is asked for is not started.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The worker that is meant cannot be told, or cannot follow.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The store cannot read or keep what the request needs.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A name that means no worker, or several, or one that cannot follow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// Nobody has it.
    #[error("there is no worker '{0}'; `queensctl workers` names them")]
    NoSuchWorker(String),
    /// More than one has it.
    #[error("'{name}' means {workers} workers; give more of the identity, see `queensctl workers`")]
    Ambiguous {
        /// The name.
        name: String,
        /// How many have it.
        workers: usize,
    },
    /// It has left or is lost, or has not called since the coordinator started.
    #[error("{0} is not there to be told; `queensctl workers` says who is")]
    Gone(String),
    /// It ends with its coordinator, and its coordinator with it.
    #[error("this is the worker in the coordinator itself (--local): stop the coordinator")]
    Local,
}

/// Who serves the runs, and how safe they are with it.
#[derive(Clone, Debug)]
pub struct Serving {
    /// This coordinator.
    pub leader: Leader,
    /// Up to when its data directory is in its archive, if it has one.
    pub copied: Option<Copied>,
    /// The disk of its data directory, if it has one.
    pub disk: Option<SeenRoom>,
}

/// A cloneable way to the driver. Every answer is sent after all that it tells of is durable.
#[derive(Clone, Debug)]
pub struct DriverHandle {
    requests: mpsc::Sender<Request>,
    changed: watch::Receiver<u64>,
    outcomes: watch::Receiver<BTreeMap<RunId, Outcome>>,
    serving: Option<Arc<Serving>>,
}

impl DriverHandle {
    pub(super) fn new(
        requests: mpsc::Sender<Request>,
        changed: watch::Receiver<u64>,
        outcomes: watch::Receiver<BTreeMap<RunId, Outcome>>,
    ) -> Self {
        Self {
            requests,
            changed,
            outcomes,
            serving: None,
        }
    }

    /// With that of who serves, which every status then tells.
    pub fn of(mut self, serving: Serving) -> Self {
        self.serving = Some(Arc::new(serving));
        self
    }

    /// Who serves, where that was said.
    pub fn serving(&self) -> Option<&Serving> {
        self.serving.as_deref()
    }

    /// One call of a worker, for which the token of this name vouches, if there is one.
    pub async fn sync(
        &self,
        token: Option<Arc<str>>,
        request: SyncRequest,
    ) -> Result<SyncReply, Stopped> {
        self.ask(|reply| Request::Sync(token, Box::new(request), reply))
            .await
    }

    /// Starts a run, or finds the one that a request with the same key has started.
    pub async fn submit(&self, submission: Submission) -> Result<RunSummary, RequestError> {
        self.ask(|reply| Request::Submit(Box::new(submission), reply))
            .await?
    }

    /// An operator's command.
    pub async fn control(&self, run: RunId, command: Command) -> Result<RunSummary, RequestError> {
        self.ask(|reply| Request::Control(run, command, reply))
            .await?
    }

    /// Removes a run that is over, with its records. Returns what it was.
    pub async fn delete(&self, run: RunId) -> Result<RunSummary, RequestError> {
        self.ask(|reply| Request::Delete(run, reply)).await?
    }

    /// Trusts a worker again, by its name or the start of its identity; returns both.
    pub async fn trust(&self, name: String) -> Result<String, RequestError> {
        self.ask(|reply| Request::Trust(name, reply)).await?
    }

    /// Has a worker stop in good order, by its name or the start of its identity; returns both.
    pub async fn drain(&self, name: String) -> Result<String, RequestError> {
        self.ask(|reply| Request::Drain(name, reply)).await?
    }

    /// The status of a run; of the one served first if none is named. `None` if there is none.
    pub async fn status(&self, run: Option<RunId>) -> Result<Option<StatusReport>, Stopped> {
        let report = self.ask(|reply| Request::Status(run, reply)).await?;
        Ok(report.map(|report| StatusReport {
            serving: self.serving.clone(),
            ..report
        }))
    }

    /// Every run, in the order in which they are served.
    pub async fn runs(&self) -> Result<Vec<RunSummary>, Stopped> {
        self.ask(Request::Runs).await
    }

    /// These tasks of a run in at most so many cells; `None` if there is no such run.
    pub async fn task_map(
        &self,
        run: RunId,
        tasks: Range<u64>,
        cells: u64,
    ) -> Result<Option<TaskMap>, Stopped> {
        self.ask(|reply| Request::Map(run, tasks, cells, reply))
            .await
    }

    /// The plan of a run and where each of its tasks stands; `None` if there is no such run.
    pub async fn standings(&self, run: RunId) -> Result<Option<(Plan, Vec<Standing>)>, Stopped> {
        self.ask(|reply| Request::Standings(run, reply)).await
    }

    /// One task of a run; `None` if there is no such run or task.
    pub async fn task(&self, run: RunId, task: TaskId) -> Result<Option<TaskView>, Stopped> {
        self.ask(|reply| Request::Task(run, task, reply)).await
    }

    /// Every worker that called since the coordinator started.
    pub async fn workers(&self) -> Result<Vec<WorkerStatus>, Stopped> {
        self.ask(Request::Workers).await
    }

    /// The journal lines of a run from `from` on, a page at a time; `None` if there is no such run.
    pub async fn journal(
        &self,
        run: RunId,
        from: JournalCursor,
    ) -> Result<Option<JournalPage>, RequestError> {
        Ok(self
            .ask(|reply| Request::Journal(run, from, reply))
            .await??)
    }

    /// A number that changes whenever a status may have changed; closed when the driver stops.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.clone()
    }

    /// The outcomes of all runs that have one; closed when the driver stops.
    pub fn outcomes(&self) -> watch::Receiver<BTreeMap<RunId, Outcome>> {
        self.outcomes.clone()
    }

    /// Ends the driver after the requests before this one; those after it find it [`Stopped`].
    pub async fn stop(&self) {
        // A driver that is gone already is what was asked for.
        let _ = self.requests.send(Request::Stop).await;
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, Stopped> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(request(reply))
            .await
            .map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)
    }
}
