//! The asynchronous interface to the driver: a bounded queue of requests.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use auth::identity::Identities;
use common::{
    compute::kernel::KernelName,
    messages::{
        run::{RunId, WorkerId},
        sync::{SyncReply, SyncRequest},
    },
    plan::{Plan, TaskId},
};
use scheduler::{
    Command, MapState, Recount, RunSummary, TaskView, WorkersPage, WorkersPart, ledger::Caller,
};
use store::{JournalCursor, Note, Outage};
use tokio::{sync::watch, time::timeout};

use super::{
    Driver, DriverError,
    fleet::Activity,
    notes::RunEvent,
    outcome::Outcome,
    request::{By, OutageError, Request, RequestError, Senders, Stopped},
    runs::{JournalPage, StatusReport, Submission},
    serving::Serving,
};

/// Identity of the worker in the coordinator's own process.
///
/// It is the same after every start, so that the worker keeps its leases even if the process was killed.
/// A data directory has only one local worker at a time. The identity is never issued to callers over the
/// network.
pub const LOCAL_WORKER: WorkerId = WorkerId(0x6c6f_6361_6c00_0000_0000_0000_0000_0000);

/// A cloneable handle to the driver, which replies only after a change is durable.
#[derive(Clone, Debug)]
pub struct DriverHandle {
    pub(super) requests: Senders,
    pub(super) changed: watch::Receiver<u64>,
    pub(super) outcomes: watch::Receiver<BTreeMap<RunId, Outcome>>,
    pub(crate) serving: Option<Arc<Serving>>,
    /// The issued identities of the store.
    pub(crate) identities: Identities,
    pub(super) memory: Arc<Mutex<Memory>>,
}

/// The last answers to readers, for those that ask while an outage of the store blocks the driver.
#[derive(Debug, Default)]
pub(super) struct Memory {
    runs: Option<Vec<RunSummary>>,
    statuses: BTreeMap<Option<RunId>, Option<Option<StatusReport>>>,
    /// A page without workers.
    worker_totals: Option<WorkersPage>,
}

/// The interval at which a waiting reader looks for an outage.
const OUTAGE_POLL: Duration = Duration::from_millis(100);

/// The time for which a reader waits before an outage is its answer.
const OUTAGE_PATIENCE: Duration = Duration::from_secs(1);

impl DriverHandle {
    /// Adds the coordinator's description to every status.
    pub fn with_serving(mut self, serving: Serving) -> Self {
        self.serving = Some(Arc::new(serving));
        self
    }
}

/// Defines methods of [`DriverHandle`] that send work and await its answer.
///
/// `read` and `try_read` send work that changes no status, `change` and `try_change` any other work, and `call` that of
/// a worker. The work of `try_…` can fail.
macro_rules! requests {
    ($(
        $(#[$doc:meta])+
        $send:ident $name:ident($($argument:ident: $type:ty),*) -> $answer:ty = |$driver:ident| $work:expr;
    )+) => {
        impl DriverHandle {
            $(
                $(#[$doc])+
                pub async fn $name(&self, $($argument: $type),*) -> $answer {
                    self.$send(move |$driver| $work).await
                }
            )+
        }
    };
}

requests! {
    /// Handles one call of an identified worker.
    call sync(caller: Caller, request: SyncRequest) -> Result<SyncReply, Stopped> =
        |driver| driver.scheduler.sync_by(&caller, &request, driver.clock.now());
    /// Returns later events of one run, or of all runs and the cluster, oldest first.
    read events(run: Option<RunId>, after: u64) -> Result<Vec<RunEvent>, Stopped> =
        |driver| driver.events(run, after);
    /// Returns what these machines did in the last 24 hours, and the machines that are forgotten.
    read activity(of: Vec<WorkerId>) -> Result<Activity, Stopped> = |driver| driver.activity(&of);
    /// Returns the sequence number of the newest event; 0 without events.
    read last_event() -> Result<u64, Stopped> = |driver| driver.last_event();
    /// Records an event of the cluster.
    change note_event(kind: &'static str, text: String) -> Result<(), Stopped> =
        |driver| driver.note(None, (kind, &text), &None);
    /// Returns a stored note of a run.
    try_read note(run: RunId, note: Note) -> Result<Option<String>, RequestError> =
        |driver| driver.store.note(Some(run), note);
    /// Replaces a note of a run.
    try_read keep_note(run: RunId, note: Note, text: String) -> Result<(), RequestError> =
        |driver| match driver.summary(run) {
            Some(_) => driver.store.keep_note(Some(run), note, &text),
            None => Ok(()),
        };
    /// Starts a run, or returns the one that a request with the same key started.
    try_change submit(submission: Submission, by: By) -> Result<RunSummary, RequestError> =
        |driver| driver.submit(submission, &by);
    /// Readmits a worker, by its name or a prefix of its identity; returns both.
    try_change trust(name: String, by: By) -> Result<String, RequestError> =
        |driver| driver.trust(&name, &by);
    /// Drains a worker, by its name or a prefix of its identity; returns both.
    try_change drain(name: String, by: By) -> Result<String, RequestError> =
        |driver| driver.drain(&name, &by);
    /// Returns a run's plan and the state of each task; `None` if there is no such run.
    read map_states(run: RunId) -> Result<Option<(Plan, Vec<MapState>)>, Stopped> =
        |driver| driver.scheduler.snapshot().map_states(run);
    /// Returns one task of a run; `None` if there is no such run or task.
    read task(run: RunId, task: TaskId) -> Result<Option<TaskView>, Stopped> =
        |driver| driver.scheduler.snapshot().task_view(run, task, driver.clock.now());
    /// Returns a page of a run's journal; `None` if there is no such run.
    try_read journal(run: RunId, from: JournalCursor) -> Result<Option<JournalPage>, RequestError> =
        |driver| driver.journal_page(run, from);
    /// Sets the number of referee threads and the memory of each.
    change set_referee(threads: u32, memory_bytes: u64) -> Result<(), Stopped> =
        |driver| driver.scheduler.set_referee(threads, memory_bytes);
    /// Returns the plan of a run; `None` if there is no such run.
    read plan(run: RunId) -> Result<Option<Plan>, Stopped> =
        |driver| driver.scheduler.snapshot().plan(run).cloned();
    /// Returns the referee's next task, or next urgent one; `None` if there is none.
    read next_recount(urgent_only: bool) -> Result<Option<Recount>, Stopped> =
        |driver| driver.scheduler.next_recount(urgent_only, driver.clock.now());
    /// Submits the referee's count of a task, and its core time.
    change recounted(recount: Recount, count: u64, kernel: KernelName, duration_us: u64) -> Result<(), Stopped> =
        |driver| {
            let now = driver.clock.now();
            driver.scheduler.recounted(&recount, count, kernel, duration_us, now);
        };
    /// Ends a recount without a count; `for_memory` excludes the run from further ones.
    change recount_abandoned(recount: Recount, for_memory: bool) -> Result<(), Stopped> =
        |driver| driver.scheduler.recount_abandoned(&recount, for_memory);
}

impl DriverHandle {
    /// Deletes a finished run and its records; returns its last summary.
    pub async fn delete(&self, run: RunId, by: By) -> Result<RunSummary, RequestError> {
        self.ask(true, move |driver| driver.delete(run, by)).await?
    }

    /// Applies an operator's command.
    pub async fn control(
        &self,
        run: RunId,
        command: Command,
        by: By,
    ) -> Result<RunSummary, RequestError> {
        self.ask(true, move |driver| driver.control(run, command, by)).await?
    }

    /// Returns all runs in the order in which they are served.
    pub async fn runs(&self) -> Result<Vec<RunSummary>, Stopped> {
        self.remembered(self.read(|driver| driver.runs()), |memory| &mut memory.runs).await
    }

    /// Returns a page of the workers since the coordinator's start, with totals.
    pub async fn workers(&self, part: WorkersPart) -> Result<WorkersPage, Stopped> {
        let only_totals = matches!(&part, WorkersPart::ByAttention(places) if places.is_empty());
        let read =
            self.read(move |driver| driver.scheduler.snapshot().workers(&part, driver.clock.now()));
        match only_totals {
            true => self.remembered(read, |memory| &mut memory.worker_totals).await,
            false => read.await,
        }
    }

    /// Returns the current outage of the store's database.
    pub fn outage(&self) -> Option<Outage> {
        self.serving.as_ref()?.outages.current()
    }

    /// Waits for a read; while the store is away, for a second. Changes wait, since they may still be stored.
    pub async fn in_time<T>(&self, read: impl Future<Output = T>) -> Result<T, OutageError> {
        let mut read = pin!(read);
        loop {
            if let Ok(answer) = timeout(OUTAGE_PATIENCE, &mut read).await {
                return Ok(answer);
            }
            if let Some(outage) = self.outage() {
                return Err(OutageError(outage));
            }
        }
    }

    /// Waits for a read and remembers its answer in `place`; during an outage repeats the answer there.
    async fn remembered<T: Clone>(
        &self,
        read: impl Future<Output = Result<T, Stopped>>,
        place: impl Fn(&mut Memory) -> &mut Option<T>,
    ) -> Result<T, Stopped> {
        let memory = || self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut read = pin!(read);
        loop {
            if let Ok(answer) = timeout(OUTAGE_POLL, &mut read).await {
                if let Ok(answer) = &answer {
                    *place(&mut memory()) = Some(answer.clone());
                }
                return answer;
            }
            if self.outage().is_some()
                && let Some(last) = place(&mut memory()).clone()
            {
                return Ok(last);
            }
        }
    }

    /// Returns the status of a run, by default of the one served first.
    pub async fn status(&self, run: Option<RunId>) -> Result<Option<StatusReport>, Stopped> {
        let read = self.read(move |driver| driver.status(run));
        let report = self
            .remembered(read, |memory| {
                // Unknown and deleted runs need no memory.
                memory.statuses.retain(|_, report| matches!(report, Some(Some(_))));
                memory.statuses.entry(run).or_default()
            })
            .await?;
        Ok(report.map(|report| StatusReport { serving: self.serving.clone(), ..report }))
    }

    /// Returns a channel that counts status changes and closes when the driver stops.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.clone()
    }

    /// Returns a channel of all finished runs' outcomes that closes with the driver.
    pub fn outcomes(&self) -> watch::Receiver<BTreeMap<RunId, Outcome>> {
        self.outcomes.clone()
    }

    /// Stops the driver after earlier calls of workers; later ones fail with [`Stopped`].
    pub async fn stop(&self) {
        let stop = |driver: &mut Driver| driver.stopping = true;
        // An error means that the driver has already stopped.
        let _ = self.call(stop).await;
    }

    /// Runs `work` that may change a status.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Driver) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (request, answer) = Request::new(true, |driver| Ok(work(driver)));
        self.requests.workers.send(request).await.map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)
    }

    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Driver) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        self.ask(true, |driver| Ok(work(driver))).await
    }

    /// Runs `work` that changes no status.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Driver) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        self.ask(false, |driver| Ok(work(driver))).await
    }

    async fn try_change<T: Send + 'static, E: Into<RequestError> + Send + 'static>(
        &self,
        work: impl FnOnce(&mut Driver) -> Result<T, E> + Send + 'static,
    ) -> Result<T, RequestError> {
        self.change(work).await?.map_err(Into::into)
    }

    async fn try_read<T: Send + 'static, E: Into<RequestError> + Send + 'static>(
        &self,
        work: impl FnOnce(&mut Driver) -> Result<T, E> + Send + 'static,
    ) -> Result<T, RequestError> {
        self.read(work).await?.map_err(Into::into)
    }

    async fn ask<T: Send + 'static>(
        &self,
        changes_status: bool,
        work: impl FnOnce(&mut Driver) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, Stopped> {
        let (request, answer) = Request::new(changes_status, work);
        self.requests.others.send(request).await.map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)
    }
}
