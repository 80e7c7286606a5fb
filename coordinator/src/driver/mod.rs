//! The driver, the only owner of the scheduler and the store.
//!
//! It decides, persists, then replies, on its own thread, because the store blocks. Requests that arrive
//! while one group is written to disk form the next group, so that one `fdatasync` serves many workers; a
//! single request is committed immediately. The simulation drives the same groups without the thread.

mod fleet;
mod handle;
mod notes;
mod outcome;
mod request;
mod runs;
mod serving;
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

use auth::identity::Identities;
use cli::memory::MemorySize;
use common::{count::CountError, messages::run::RunId, plan::Plan, solutions::tally::BadTally};
use scheduler::{Millis, Scheduler, ledger::fold::plan_of};
use store::{Change, Clock, RunManifest, RunState, Store, StoreError};
use tokio::{
    runtime::{self, Runtime},
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

pub use self::{
    fleet::{Activity, SLOT_MS, Strip},
    handle::{DriverHandle, LOCAL_WORKER},
    notes::RunEvent,
    outcome::Outcome,
    request::{By, OutageError, RequestError, Stopped},
    runs::{JournalPage, StatusReport, Submission, served_first},
    serving::{DiskSpaceMonitor, Serving},
};

use self::{
    fleet::Fleet,
    notes::Notes,
    outcome::Symmetric,
    request::{Request, Requests},
};

const GROUP_RECORDS: usize = 128;

/// Maximum number of changes that the store gets at once.
const STORED_AT_ONCE: usize = 10_000;

/// Maximum time for which a group is collected.
const GROUP_MS: u64 = 5;

/// Maximum time between two versions of the status: ages, the lag of the archive and the free space change
/// without a request.
const STATUS_LIFETIME: Duration = Duration::from_secs(2);

/// The state of the driver's thread.
pub struct Driver {
    scheduler: Scheduler,
    store: Box<dyn Store>,
    clock: Clock,
    requests: Requests,
    /// Sender for threads that count symmetric solutions.
    loopback: mpsc::Sender<Request>,
    changed: watch::Sender<u64>,
    outcomes: watch::Sender<BTreeMap<RunId, Outcome>>,
    /// Names of the tokens that cancelled runs.
    cancelled_by: BTreeMap<RunId, Arc<str>>,
    notes: Notes,
    fleet: Fleet,
    /// Runs whose symmetric solutions are being counted.
    finishing: BTreeMap<RunId, Arc<Symmetric>>,
    stop_counting: Arc<AtomicBool>,
    /// Decided changes that are not yet durable.
    changes: Vec<Change>,
    /// Number of records among these changes.
    records: usize,
    /// Replies to send once all changes are durable.
    replies: Vec<Reply>,
    /// Outcomes to announce once the resulting states are durable.
    concluded: Vec<Outcome>,
    /// Whether a status may have changed. Reads must not set this: watchers would loop.
    status_changed: bool,
    stopping: bool,
}

type Reply = Box<dyn FnOnce() + Send>;

/// An error that stops the driver. Only durable changes have been acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("run {run}: {why}")]
    Tally { run: RunId, why: BadTally },
    /// The scheduler's sum differs from the journal's.
    #[error(
        "run {run}: the journal's records sum to {stored}, those in memory to {scheduled}: a bug, or \
         faulty memory of this machine; the journal is correct, restart to resume from it"
    )]
    Total { run: RunId, stored: u128, scheduled: u128 },
    #[error("run {run}: counting the symmetric solutions: {why}")]
    Symmetric { run: RunId, why: CountError },
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl Driver {
    /// Creates a driver with all runs of `store`.
    /// The caller is [`Driver::start`], or calls [`Driver::begin`] and [`Driver::step`].
    pub fn new(
        scheduler: Scheduler,
        store: Box<dyn Store>,
        clock: Clock,
    ) -> Result<(Self, DriverHandle), DriverError> {
        let (senders, requests) = Requests::new();
        let (changed, changes_seen) = watch::channel(0);
        let (outcomes, outcomes_seen) = watch::channel(BTreeMap::new());
        let handle = DriverHandle {
            requests: senders.clone(),
            changed: changes_seen,
            outcomes: outcomes_seen,
            serving: None,
            identities: Identities::new(store.secret()),
            memory: Arc::default(),
        };
        let mut driver = Self {
            scheduler,
            store,
            clock,
            requests,
            loopback: senders.others,
            changed,
            outcomes,
            cancelled_by: BTreeMap::new(),
            notes: Notes::default(),
            fleet: Fleet::default(),
            finishing: BTreeMap::new(),
            stop_counting: Arc::default(),
            changes: Vec::new(),
            records: 0,
            replies: Vec::new(),
            concluded: Vec::new(),
            status_changed: false,
            stopping: false,
        };
        driver.restore()?;
        Ok((driver, handle))
    }

    /// Restores all runs and starts the thread; returns a receiver of its result.
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
                // The receiver is gone if the process exits.
                let _ = ended.send(driver.serve());
            })
            .map_err(DriverError::Thread)?;
        Ok((handle, end))
    }

    fn serve(mut self) -> Result<(), DriverError> {
        let runtime = runtime::Builder::new_current_thread().enable_time().build()?;
        self.begin()?;
        while !self.stopping {
            let first = self.wait(&runtime);
            self.group(first)?;
        }
        self.stop_counting.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Derives the outcomes of runs that an earlier process finished; call this first.
    pub fn begin(&mut self) -> Result<(), DriverError> {
        self.finish_restored_runs()?;
        self.commit()
    }

    /// Handles one group of queued requests, without waiting for any.
    pub fn step(&mut self) -> Result<(), DriverError> {
        let first = self.requests.try_next();
        self.group(first)
    }

    /// Returns when to call [`Driver::step`] without a request.
    pub fn next_timeout(&self) -> Option<Millis> {
        self.scheduler.next_timeout()
    }

    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    fn restore(&mut self) -> Result<(), DriverError> {
        self.scheduler.set_key(self.store.secret());
        for record in self.store.trust()? {
            self.scheduler.restore_trust(&record);
        }
        for stored in self.store.runs()? {
            let (run, state) = (stored.manifest.run, stored.state);
            let plan = plan_of(&stored.manifest).map_err(StoreError::from)?;
            let tasks = self.store.take_tasks(run)?;
            self.scheduler.restore_run(stored, plan, tasks);
            if matches!(state, RunState::Running | RunState::Paused | RunState::Disputed) {
                self.warn_of_referee_memory(run);
            }
        }
        self.scheduler.restored(self.clock.now(), self.store.term());
        Ok(self.restore_notes()?)
    }

    /// Warns if the referee has too little memory for the tasks of a run.
    fn warn_of_referee_memory(&self, run: RunId) {
        let Some((least, given)) = self.scheduler.snapshot().referee_lacks(run) else { return };
        tracing::warn!(
            "run {run}: the referee cannot recount the tasks: each of its threads has {}, but needs {}. \
             Without a worker whose token is trusted, disputed tasks leave the run DISPUTED, and the \
             number of wrong counts has no bound: restart the coordinator with --referee-memory {} per \
             thread",
            MemorySize::at_least(given),
            MemorySize::at_least(least),
            MemorySize::at_least(least).as_option(),
        );
    }

    fn group(&mut self, first: Option<Request>) -> Result<(), DriverError> {
        let started = self.clock.now();
        self.scheduler.advance(started);
        self.watch_fleet(started);
        match first {
            Some(request) => self.handle(request)?,
            // A timeout expired, or it is time for a new status.
            None => self.status_changed = true,
        }
        self.collect_changes();
        while !self.stopping && !self.group_is_full(started) {
            let Some(request) = self.requests.try_next() else {
                break;
            };
            self.handle(request)?;
            self.collect_changes();
        }
        self.commit()
    }

    /// Waits for the next request; `None` if a timeout of the scheduler, or the end of the status's
    /// lifetime, comes first.
    fn wait(&mut self, runtime: &Runtime) -> Option<Request> {
        let now = self.clock.now();
        let until = |at: Millis| Duration::from_millis(at.0.saturating_sub(now.0));
        let sleep = self.scheduler.next_timeout().map_or(STATUS_LIFETIME, until);
        let next = async { timeout(sleep.min(STATUS_LIFETIME), self.requests.next()).await };
        runtime.block_on(next).ok().flatten()
    }

    fn group_is_full(&self, started: Millis) -> bool {
        let spent_ms = self.clock.now().0.abs_diff(started.0);
        self.records >= GROUP_RECORDS || spent_ms >= GROUP_MS
    }

    fn collect_changes(&mut self) {
        while let Some(change) = self.scheduler.poll_change() {
            self.records += usize::from(matches!(change, Change::Recorded(_)));
            if let Some(run) = reopened(&change) {
                // The run finished in this group, before the conflicting count.
                self.concluded.retain(|outcome| outcome.run != run);
            }
            self.changes.push(change);
        }
    }

    /// Makes all decisions durable, then replies; repeats while runs finish.
    fn commit(&mut self) -> Result<(), DriverError> {
        loop {
            self.collect_changes();
            // Voiding the counts of a machine makes millions of changes at once, and the store copies them.
            for part in self.changes.chunks(STORED_AT_ONCE) {
                self.store.apply(part)?;
            }
            let durable = std::mem::take(&mut self.changes);
            self.note_changes(&durable);
            self.store_notes();
            self.announce(&durable);
            if !self.finish_counted_runs()? {
                return Ok(());
            }
        }
    }

    /// Announces durable changes and sends the replies that waited for them.
    fn announce(&mut self, durable: &[Change]) {
        for run in durable.iter().filter_map(reopened) {
            self.outcomes.send_if_modified(|outcomes| outcomes.remove(&run).is_some());
        }
        let status_changed = std::mem::take(&mut self.status_changed)
            || !(durable.is_empty() && self.concluded.is_empty());
        self.records = 0;
        for outcome in self.concluded.drain(..) {
            self.outcomes.send_modify(|outcomes| {
                outcomes.insert(outcome.run, outcome);
            });
        }
        // Announce before replying: a caller that has its reply finds the change in every status.
        if status_changed {
            self.changed.send_modify(|version| *version += 1);
        }
        for reply in self.replies.drain(..) {
            reply();
        }
    }

    fn handle(&mut self, request: Request) -> Result<(), DriverError> {
        self.status_changed |= request.changes_status;
        (request.work)(self)
    }
}

/// Creates the manifest of a new run with a random identifier.
pub fn new_manifest(plan: &Plan, priority: i32, now: Millis) -> RunManifest {
    RunManifest::new(RunId(rand::random()), plan, priority, now.0)
}

/// Returns the run that a change reopens: its outcome is void.
fn reopened(change: &Change) -> Option<RunId> {
    match *change {
        Change::State { run, state: RunState::Running } => Some(run),
        _ => None,
    }
}
