//! The only owner of the scheduler and the store: event, decide, persist, reply.
//!
//! It runs on a thread of its own, because the store blocks. Requests that wait while one group is
//! written to disk make up the next group, so that one `fdatasync` serves many workers; when nothing
//! waits, a request is committed at once. A simulation drives the same groups without the thread.

mod clock;
mod complete;
mod handle;
mod open;
mod outcome;
mod status;
mod submit;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use common::{
    count::CountError,
    plan::Plan,
    run::{RunId, WorkerId},
    tally::BadTally,
};
use tokio::{
    runtime::{self, Runtime},
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

pub use self::{
    clock::Clock,
    handle::{DriverHandle, RequestError, Serving, Stopped, WorkerError},
    outcome::{Known, Outcome},
    status::{JournalPage, StatusReport},
    submit::{Submission, SubmitError},
};
use self::{handle::Request, outcome::Symmetric};
use crate::{
    sched::{Millis, Scheduler},
    store::{Change, RunManifest, RunState, Store, StoreError},
};

/// A group is written once it holds this many records …
const GROUP_RECORDS: usize = 128;

/// … or once so many milliseconds were spent on collecting it.
const GROUP_MS: u64 = 5;

/// Requests that may wait for the driver; callers beyond wait for a place.
const QUEUE: usize = 256;

/// The thread that decides.
pub struct Driver {
    scheduler: Scheduler,
    store: Box<dyn Store>,
    clock: Clock,
    requests: mpsc::Receiver<Request>,
    /// For the threads that count symmetric solutions.
    loopback: mpsc::Sender<Request>,
    changed: watch::Sender<u64>,
    outcomes: watch::Sender<BTreeMap<RunId, Outcome>>,
    /// Runs whose symmetric solutions are being counted.
    finishing: BTreeMap<RunId, Arc<Symmetric>>,
    stop_counting: Arc<AtomicBool>,
    /// Decided, not yet kept.
    changes: Vec<Change>,
    /// How many of the changes are journalled.
    records: usize,
    /// To be sent once all changes are kept.
    replies: Vec<Reply>,
    /// Outcomes to be announced once the states that follow from them are kept.
    concluded: Vec<Outcome>,
    /// Something happened that a status shows. Being asked for one is nothing: else a watcher would
    /// wake itself.
    news: bool,
    stopping: bool,
}

type Reply = Box<dyn FnOnce() + Send>;

/// Why the driver cannot go on. Nothing that was not kept has been acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A run's partial counts do not add up.
    #[error("run {run}: {why}")]
    Tally {
        /// The run.
        run: RunId,
        /// What is wrong with the sum.
        why: BadTally,
    },
    /// The scheduler and the store disagree about a total: a defect of this program.
    #[error(
        "run {run}: the journal's records add up to {stored}, those in memory to {scheduled}: a defect \
         of this program or of this machine's memory; the journal is right, start again to go on from \
         it"
    )]
    Total {
        /// The run.
        run: RunId,
        /// The fold of the journal, read anew from the disk.
        stored: u128,
        /// What the scheduler holds.
        scheduled: u128,
    },
    /// The symmetric solutions of a board cannot be counted.
    #[error("run {run}: counting the symmetric solutions: {why}")]
    Symmetric {
        /// The run.
        run: RunId,
        /// What went wrong.
        why: CountError,
    },
    /// A thread or a runtime could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl Driver {
    /// A driver with every run of `store`, not yet started: for [`Driver::start`], and for who drives
    /// it by hand with [`Driver::begin`] and [`Driver::step`].
    pub fn new(
        scheduler: Scheduler,
        store: Box<dyn Store>,
        clock: Clock,
    ) -> Result<(Self, DriverHandle), DriverError> {
        let (loopback, requests) = mpsc::channel(QUEUE);
        let (changed, changes_seen) = watch::channel(0);
        let (outcomes, outcomes_seen) = watch::channel(BTreeMap::new());
        let handle = DriverHandle::new(loopback.clone(), changes_seen, outcomes_seen);
        let mut driver = Self {
            scheduler,
            store,
            clock,
            requests,
            loopback,
            changed,
            outcomes,
            finishing: BTreeMap::new(),
            stop_counting: Arc::default(),
            changes: Vec::new(),
            records: 0,
            replies: Vec::new(),
            concluded: Vec::new(),
            news: false,
            stopping: false,
        };
        driver.restore()?;
        Ok((driver, handle))
    }

    /// Restores every run of `store` and starts the thread. The receiver yields its end.
    pub fn start(
        scheduler: Scheduler,
        store: Box<dyn Store>,
        clock: Clock,
    ) -> Result<(DriverHandle, oneshot::Receiver<Result<(), DriverError>>), DriverError> {
        let (driver, handle) = Self::new(scheduler, store, clock)?;
        let (ended, end) = oneshot::channel();
        thread::Builder::new()
            .name("driver".to_owned())
            .spawn(move || {
                // Nobody waits for the end when the process is on its way out.
                let _ = ended.send(driver.serve());
            })
            .map_err(DriverError::Thread)?;
        Ok((handle, end))
    }

    fn serve(mut self) -> Result<(), DriverError> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        self.begin()?;
        while !self.stopping {
            let first = self.wait(&runtime);
            self.group(first)?;
        }
        self.stop_counting.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Derives the outcomes of runs that an earlier process completed: to be called first.
    pub fn begin(&mut self) -> Result<(), DriverError> {
        self.finish_restored_runs()?;
        self.commit()
    }

    /// What the thread does again and again: one group of the requests that wait, decided, kept and
    /// answered together. Does not wait for requests.
    pub fn step(&mut self) -> Result<(), DriverError> {
        let first = self.requests.try_recv().ok();
        self.group(first)
    }

    /// When [`Driver::step`] wants to be called though no request waits.
    pub fn next_timeout(&self) -> Option<Millis> {
        self.scheduler.next_timeout()
    }

    /// What it decides with, to be looked at.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    fn group(&mut self, first: Option<Request>) -> Result<(), DriverError> {
        let started = self.clock.now();
        self.scheduler.advance(started);
        match first {
            Some(request) => self.handle(request)?,
            // Time has passed for somebody.
            None => self.news = true,
        }
        self.collect_changes();
        while !self.stopping && !self.group_is_full(started) {
            let Ok(request) = self.requests.try_recv() else {
                break;
            };
            self.handle(request)?;
            self.collect_changes();
        }
        self.commit()
    }

    /// The next request, or `None` when the scheduler has something to do first.
    fn wait(&mut self, runtime: &Runtime) -> Option<Request> {
        let now = self.clock.now();
        match self.scheduler.next_timeout() {
            None => self.requests.blocking_recv(),
            Some(at) => {
                let sleep = Duration::from_millis(at.0.saturating_sub(now.0));
                let next = async { timeout(sleep, self.requests.recv()).await };
                runtime.block_on(next).ok().flatten()
            }
        }
    }

    fn group_is_full(&self, started: Millis) -> bool {
        let spent_ms = self.clock.now().0.saturating_sub(started.0);
        self.records >= GROUP_RECORDS || spent_ms >= GROUP_MS
    }

    fn collect_changes(&mut self) {
        while let Some(change) = self.scheduler.poll_change() {
            self.records += usize::from(is_record(&change));
            if let Some(run) = reopened(&change) {
                // Concluded in this very group, before the count that contradicts it.
                self.concluded.retain(|outcome| outcome.run != run);
            }
            self.changes.push(change);
        }
    }

    /// Makes everything decided so far durable, then tells those who asked; and so on, while that
    /// brings runs to their ends.
    fn commit(&mut self) -> Result<(), DriverError> {
        loop {
            self.collect_changes();
            if !self.changes.is_empty() {
                self.store.apply(&self.changes)?;
            }
            let kept = std::mem::take(&mut self.changes);
            self.announce(&kept);
            if !self.finish_counted_runs()? {
                return Ok(());
            }
        }
    }

    /// Tells of what is kept by now, and sends every reply that waited for it.
    fn announce(&mut self, kept: &[Change]) {
        for run in kept.iter().filter_map(reopened) {
            self.outcomes
                .send_if_modified(|outcomes| outcomes.remove(&run).is_some());
        }
        let news =
            std::mem::take(&mut self.news) || !(kept.is_empty() && self.concluded.is_empty());
        self.records = 0;
        for reply in self.replies.drain(..) {
            reply();
        }
        for outcome in self.concluded.drain(..) {
            self.outcomes.send_modify(|outcomes| {
                outcomes.insert(outcome.run, outcome);
            });
        }
        if news {
            self.changed.send_modify(|version| *version += 1);
        }
    }

    fn handle(&mut self, request: Request) -> Result<(), DriverError> {
        let now = self.clock.now();
        self.news |= request.is_news();
        match request {
            Request::Sync(token, request, reply) => {
                let answer = self.scheduler.sync_by(token.as_ref(), &request, now);
                self.reply(reply, answer);
            }
            Request::Submit(submission, reply) => {
                let answer = self.submit(*submission);
                self.reply(reply, answer);
            }
            Request::Control(run, command, reply) => {
                let answer = self.control(run, command)?;
                self.reply(reply, answer);
            }
            Request::Trust(name, reply) => {
                let answer = self.trust(&name);
                self.reply(reply, answer);
            }
            Request::Drain(name, reply) => {
                let answer = self.drain(&name);
                self.reply(reply, answer);
            }
            Request::Delete(run, reply) => {
                let answer = self.delete(run);
                self.reply(reply, answer);
            }
            Request::Status(run, reply) => {
                let answer = self.status(run);
                self.reply(reply, answer);
            }
            Request::Runs(reply) => {
                let answer = self.scheduler.runs();
                self.reply(reply, answer);
            }
            Request::Map(run, tasks, cells, reply) => {
                let answer = self.scheduler.task_map(run, tasks, cells);
                self.reply(reply, answer);
            }
            Request::Standings(run, reply) => {
                let answer = self.scheduler.standings(run);
                self.reply(reply, answer);
            }
            Request::Task(run, task, reply) => {
                let answer = self.scheduler.task_view(run, task);
                self.reply(reply, answer);
            }
            Request::Workers(reply) => {
                let answer = self.scheduler.workers(now);
                self.reply(reply, answer);
            }
            Request::Journal(run, from, reply) => {
                let answer = self.journal_page(run, from);
                self.reply(reply, answer);
            }
            Request::Finished(run, symmetric) => self.symmetric_counted(run, symmetric)?,
            Request::Stop => self.stopping = true,
        }
        Ok(())
    }

    /// Whoever asked may have gone away: nobody to tell then.
    fn reply<T: Send + 'static>(&mut self, way: oneshot::Sender<T>, answer: T) {
        self.replies.push(Box::new(move || drop(way.send(answer))));
    }
}

/// The worker in the coordinator's own process, the same after every start: the leases that it lost when the process
/// was killed are then its own again at once. A data directory has one such worker at a time.
pub const LOCAL_WORKER: WorkerId = WorkerId(0x6c6f_6361_6c00_0000_0000_0000_0000_0000);

/// A new run of `plan` with a name drawn at random.
pub fn new_manifest(plan: &Plan, priority: i32, now: Millis) -> RunManifest {
    RunManifest {
        run: RunId(rand::random()),
        spec: *plan.spec(),
        plan: plan.hash(),
        plan_version: plan.spec().version(),
        priority,
        created_unix_ms: now.0,
        key: None,
    }
}

/// The run that a late contradiction has opened again: what it came to is void.
fn reopened(change: &Change) -> Option<RunId> {
    match *change {
        Change::State {
            run,
            state: RunState::Running,
        } => Some(run),
        _ => None,
    }
}

fn is_record(change: &Change) -> bool {
    match change {
        Change::Accepted(_) | Change::Confirmed(_) | Change::Quarantined { .. } => true,
        Change::Leased { .. }
        | Change::Released { .. }
        | Change::Expired { .. }
        | Change::Parked { .. }
        | Change::Unparked { .. }
        | Change::State { .. }
        | Change::Recheck { .. }
        | Change::Trust(_) => false,
    }
}
