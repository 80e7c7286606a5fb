//! The scheduler: which worker counts which task, and what becomes of its count.
//!
//! A state machine without I/O and without a clock: time arrives as an argument, decisions leave as
//! values. Its owner
//! 1. gives it the runs and task rows found on disk ([`Scheduler::add_run`],
//!    [`Scheduler::restore_task`]) and says when it starts to serve ([`Scheduler::restored`]);
//! 2. for each message calls [`Scheduler::sync`], keeps every change that
//!    [`Scheduler::poll_change`] yields, and only then sends the reply;
//! 3. calls [`Scheduler::advance`] when [`Scheduler::next_timeout`] comes;
//! 4. when [`Scheduler::poll_finished`] yields a run, checks its [`Scheduler::total`] and answers
//!    with [`Scheduler::conclude`].
//!
//! Deliberately absent: running totals (they are folded from the tasks' counts), wall-clock
//! arithmetic (see `clock`), and work in proportion to the number of tasks in `sync`.

mod audit;
mod canaries;
mod clock;
mod config;
mod control;
mod disputes;
mod grants;
mod index;
mod leases;
mod map;
mod pace;
mod parking;
mod rate;
mod rejection;
mod restore;
mod results;
mod run;
mod second_opinions;
mod seconds;
mod status;
mod tasks;
#[cfg(test)]
mod tests;
mod trust;
mod votes;
mod worker;
mod workers;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
    sync::Arc,
};

use common::{
    plan::{Plan, TaskId},
    run::RunId,
    sync::{SyncReply, SyncRequest},
};

pub use audit::Imbalance;
pub use config::{Config, Millis};
pub use control::{Command, ControlError};
pub use map::{MapCell, Standing, TaskMap, TaskView};
pub use status::{Rechecks, RunStatus, RunSummary, TaskNumbers, WorkerState, WorkerStatus};

use self::{
    clock::{Clock, Jitter, MAX_STEP_MS, Ticks},
    control::Undo,
    index::{RunIx, TaskIx, WorkerIx},
    run::Run,
    worker::Greeting,
    workers::Workers,
};
use crate::ledger::{Change, Draw, Recheck, RunManifest, RunState, Trust, TrustRecord};

/// All runs of one coordinator.
#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    clock: Clock,
    jitter: Jitter,
    runs: Vec<Run>,
    by_id: BTreeMap<RunId, RunIx>,
    /// In the order in which they are served.
    order: Vec<RunIx>,
    /// See [`Scheduler::prefer`].
    preferred: Option<RunId>,
    workers: Workers,
    draw: Draw,
    changes: VecDeque<Change>,
    finished: VecDeque<RunId>,
    /// Found on disk: workers, and in what times they counted what may be wrong.
    unproven: Vec<(WorkerIx, RangeInclusive<u64>)>,
    /// How the last command found its run, until it is known to be kept.
    undo: Option<Undo>,
}

impl Scheduler {
    /// A scheduler without runs; `seed` varies the times between syncs.
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            clock: Clock::default(),
            config,
            jitter: Jitter(seed),
            runs: Vec::new(),
            by_id: BTreeMap::new(),
            order: Vec::new(),
            preferred: None,
            workers: Workers::default(),
            draw: Draw::new(std::array::from_fn(|at| seed.to_be_bytes()[at % 8])),
            changes: VecDeque::new(),
            finished: VecDeque::new(),
            unproven: Vec::new(),
            undo: None,
        }
    }

    /// Serves this run, which is still to be added, before all others of its priority.
    pub fn prefer(&mut self, run: RunId) {
        self.preferred = Some(run);
    }

    /// Draws by this key from now on: it is the store's, so that the lots fall the same in every
    /// life of the coordinator. To be called before anything else.
    pub fn draw_by(&mut self, key: [u8; 32]) {
        self.draw = Draw::new(key);
    }

    /// A new run, or one found on disk.
    ///
    /// # Panics
    /// If `plan` is not the manifest's, or the run is known: both are the owner's to check.
    pub fn add_run(&mut self, manifest: &RunManifest, plan: Plan, state: RunState) {
        assert_eq!(
            plan.hash(),
            manifest.plan,
            "the plan of run {}",
            manifest.run
        );
        let number = self.runs.len();
        let before = self.by_id.insert(manifest.run, number);
        assert_eq!(before, None, "run {} is there already", manifest.run);
        let mut new = Run::new(manifest.clone(), plan, state);
        new.serve_from(self.clock.ticks());
        self.runs.push(new);
        self.order.push(number);
        let (runs, preferred) = (&self.runs, self.preferred);
        self.order.sort_by_key(|&run| {
            let manifest = runs[run].manifest();
            let waits = preferred != Some(manifest.run);
            let age = (manifest.created_unix_ms, run);
            (std::cmp::Reverse(manifest.priority), waits, age)
        });
    }

    /// What is thought of a worker from now on is kept.
    fn note_trust(&mut self, worker: WorkerIx, trust: Trust, reason: &str) {
        let now = self.clock.wall(self.clock.ticks());
        self.changes.push_back(Change::Trust(TrustRecord {
            worker: self.workers.id(worker),
            principal: self.workers.principal(worker),
            name: self.workers.name(worker).to_owned(),
            trust,
            faults: self.workers.standing(worker).faults().into(),
            reason: reason.to_owned(),
            since_unix_ms: now.0,
        }));
    }

    /// Whether a task was drawn by lot to be counted twice.
    pub fn is_drawn(&self, run: RunId, task: TaskId) -> bool {
        let recheck = self.by_id.get(&run).map(|&run| self.runs[run].recheck());
        recheck.is_some_and(|recheck| self.draw.chosen(run, task, recheck))
    }

    /// How much of a run is counted twice.
    pub fn recheck(&self, run: RunId) -> Option<Recheck> {
        self.by_id.get(&run).map(|&run| self.runs[run].recheck())
    }

    /// A parked task is pending again.
    fn let_out(&mut self, run: RunIx, task: TaskIx) {
        let in_run = &mut self.runs[run];
        in_run.let_out(task);
        self.changes.push_back(Change::Unparked {
            run: in_run.manifest().run,
            task: run::id(task),
        });
    }

    /// Tries parked tasks again, one of a run at a time. What it failed before stays on record: one
    /// more failure parks it again.
    fn try_parked(&mut self, now: Ticks) {
        for run in 0..self.runs.len() {
            let in_run = &mut self.runs[run];
            if in_run.state() == RunState::Running
                && let Some(task) = in_run.next_trial(now)
            {
                self.let_out(run, task);
            }
        }
    }

    /// Serves one call of a worker that came without a token. The reply must be sent only after every
    /// change that [`Self::poll_change`] yields was kept.
    pub fn sync(&mut self, request: &SyncRequest, now: Millis) -> SyncReply {
        self.sync_by(None, request, now)
    }

    /// The same for a worker for which the token of this name vouches, if there is one.
    pub fn sync_by(
        &mut self,
        token: Option<&Arc<str>>,
        request: &SyncRequest,
        now: Millis,
    ) -> SyncReply {
        self.advance(now);
        let mut reply = SyncReply {
            next_sync_ms: self.regular_sync_ms(),
            lease_ms: self.lease_ms(),
            ..SyncReply::default()
        };
        let worker = self.workers.remember(&request.worker, self.config.workers);
        let Some(worker) = worker else {
            reply.reason = format!("{} workers are known already", self.config.workers);
            return reply;
        };
        let silence = self.clock.ticks() - self.workers.get(worker).seen;
        let silent = silence > 2 * self.regular_sync_ms();
        self.workers
            .calls_from(worker, request.worker.machine, token);
        let greeting = self.workers.get_mut(worker).greet(&request.worker, silent);
        self.workers.get_mut(worker).proofs = request.failed_canaries.passed;
        for partial in request.partials.iter().take(self.config.partials_per_sync) {
            let acknowledgement = self.report(worker, partial, now);
            reply.acknowledgements.push(acknowledgement);
        }
        let restarted = match greeting {
            Greeting::Known => false,
            Greeting::Restarted => true,
            Greeting::Superseded => {
                reply.reason = "a later process with the same identity has called: give every \
                                worker a spool directory of its own"
                    .to_owned();
                return reply;
            }
        };
        let known = self.workers.get_mut(worker);
        known.seen = self.clock.ticks();
        known.draining = request.draining || known.told_to_drain;
        known.paused.clone_from(&request.paused);
        known.left = false;
        reply.drain = known.told_to_drain;
        let deadline = self.clock.ticks() + self.lease_ms();
        self.workers.expect_by(worker, deadline);
        self.take_canaries(worker, request);
        self.take_inventory(worker, request, (restarted, &mut reply));
        self.grant(worker, request, &mut reply);
        self.pace(worker, request, &mut reply);
        let all_taken = reply.acknowledgements.len() == request.partials.len();
        let leaves = request.draining && request.paused.is_empty();
        if leaves && all_taken && self.workers.get(worker).leases.is_empty() {
            self.workers.leave(worker);
        }
        reply
    }

    /// Takes the time: workers that have not called for the time of a lease are lost.
    pub fn advance(&mut self, now: Millis) {
        let ticks = self.clock.read(now);
        while let Some(lost) = self.workers.pop_lost(ticks) {
            self.lose(lost);
        }
        self.workers.forget_gone(ticks);
        self.try_parked(ticks);
        self.end_disputed(ticks);
    }

    /// When [`Self::advance`] wants to be called at the latest; `None` while nobody is there to wait
    /// for or to be forgotten.
    pub fn next_timeout(&self) -> Option<Millis> {
        let running = self
            .runs
            .iter()
            .filter(|run| run.state() == RunState::Running);
        let trial = running
            .filter_map(|run| run.parking().next_trial_at())
            .min();
        let first = self
            .workers
            .next_deadline()
            .into_iter()
            .chain(trial)
            .min()?;
        let step = self.clock.ticks() + MAX_STEP_MS;
        Some(self.clock.wall(first.min(step)))
    }

    /// What the store has to keep next, in order.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// A run whose tasks are all counted, and that waits for [`Self::conclude`]. A contradicting
    /// count that comes later opens a run again, and it is yielded again.
    pub fn poll_finished(&mut self) -> Option<RunId> {
        while let Some(run) = self.finished.pop_front() {
            if self.runs[self.by_id[&run]].is_announced() {
                return Some(run);
            }
        }
        None
    }

    /// The owner has checked the total of a run: `agrees` says whether every check holds. Returns
    /// the run's state, which changes only if the run still has all its counts.
    pub fn conclude(&mut self, run: RunId, agrees: bool) -> Option<RunState> {
        let in_run = &mut self.runs[*self.by_id.get(&run)?];
        self.changes.extend(in_run.conclude(agrees));
        Some(in_run.state())
    }
}
