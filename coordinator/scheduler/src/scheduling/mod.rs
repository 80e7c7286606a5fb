//! Scheduler: leases tasks to workers and takes their counts, as a [`Snapshot`] of both decides.
//!
//! A state machine without I/O and without a clock: time arrives as an argument, changes leave as
//! values. Its owner
//! 1. passes in the runs found on disk with their tasks ([`Scheduler::restore_run`]), then calls
//!    [`Scheduler::restored`];
//! 2. for each call of a worker calls [`Scheduler::sync_by`], stores every change that
//!    [`Scheduler::poll_change`] yields, and only then sends the reply;
//! 3. calls [`Scheduler::advance`] at [`Scheduler::next_timeout`];
//! 4. when [`Scheduler::poll_finished`] yields a run, checks its [`Snapshot::total`] and calls
//!    [`Scheduler::conclude`].
//!
//! Deliberately absent: running totals (they are computed from the tasks' counts), wall-clock
//! arithmetic (see [`crate::clock`]), and work in proportion to the number of tasks in ordinary syncs.

mod control;
mod ends;
mod grants;
mod leases;
mod packages;
mod proofs;
mod referee;
mod restore;
mod results;
#[cfg(test)]
mod tests;
mod trust;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
};

use common::{
    messages::{
        run::RunId,
        sync::{SyncReply, SyncRequest, WorkerInfo},
    },
    plan::Plan,
};

pub use control::{Command, ControlError};

use self::{control::Undo, proofs::Proofs};
use crate::{
    clock::{Jitter, MAX_STEP_MS, Millis, SchedulerClock, Ticks},
    config::Config,
    fleet::{OWN_REFEREE, REFEREE, Referee, RunIx, SessionUpdate, WorkerIx, Workers},
    ledger::{
        Caller, Change, LeaseEvent, Principal, RecheckSampler, RunState, Stage, StoredRun, Tasks,
        tasks::TaskIx,
    },
    run::Run,
    snapshot::Snapshot,
};

/// Interval at which a run that waits for rechecks or recounts is checked.
const ENDING_INTERVAL_MS: Ticks = 1_000;

/// Maximum length of the emptied queue of changes for which memory is kept.
const KEPT_CHANGES: usize = 10_000;

/// All runs of one coordinator.
#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    clock: SchedulerClock,
    jitter: Jitter,
    runs: Vec<Run>,
    by_id: BTreeMap<RunId, RunIx>,
    /// The runs in the order in which they are served.
    order: Vec<RunIx>,
    /// The run that [`Scheduler::prefer`] named.
    preferred: Option<RunId>,
    workers: Workers,
    sampler: RecheckSampler,
    proofs: Proofs,
    changes: VecDeque<Change>,
    finished: VecDeque<RunId>,
    /// Workers and the times of their suspect counts, in the unit of `Done::accepted_s`.
    suspect_windows: Vec<(WorkerIx, RangeInclusive<u32>)>,
    referee: Referee,
    /// State before the last command, in case the command cannot be stored.
    undo: Option<Undo>,
}

impl Scheduler {
    /// Creates a scheduler without runs; `seed` varies the times between syncs.
    pub fn new(config: Config, seed: u64) -> Self {
        let mut workers = Workers::default();
        assert_eq!(workers.pinned(REFEREE), OWN_REFEREE);
        workers.identify(OWN_REFEREE, &Principal::referee());
        let key = std::array::from_fn(|at| seed.to_be_bytes()[at % 8]);
        Self {
            clock: SchedulerClock::default(),
            config,
            jitter: Jitter(seed),
            runs: Vec::new(),
            by_id: BTreeMap::new(),
            order: Vec::new(),
            preferred: None,
            workers,
            sampler: RecheckSampler::new(key),
            proofs: Proofs::new(key),
            changes: VecDeque::new(),
            finished: VecDeque::new(),
            suspect_windows: Vec::new(),
            referee: Referee::default(),
            undo: None,
        }
    }

    /// Returns a read-only view of all runs and workers.
    pub fn snapshot(&self) -> Snapshot<'_> {
        let Self {
            config,
            clock,
            runs,
            by_id,
            order,
            workers,
            suspect_windows,
            sampler,
            referee,
            ..
        } = self;
        Snapshot { config, clock, runs, by_id, order, workers, suspect_windows, sampler, referee }
    }

    /// Serves a run, once it is added, before all other runs of its priority.
    pub fn prefer(&mut self, run: RunId) {
        self.preferred = Some(run);
    }

    /// Sets the store's key: after a restart, random selections are the same and leases remain proven.
    /// Must be called before any run is added.
    pub fn set_key(&mut self, key: [u8; 32]) {
        self.sampler = RecheckSampler::new(key);
        self.proofs = Proofs::new(key);
    }

    /// Adds a new run.
    ///
    /// # Panics
    /// If `plan` is not the manifest's, or the run exists: the owner checks both.
    pub fn add_run(&mut self, run: StoredRun, plan: Plan) {
        let tasks = Tasks::new(&plan);
        self.insert_run(run, plan, tasks);
    }

    fn insert_run(&mut self, run: StoredRun, plan: Plan, tasks: Tasks) {
        let manifest = &run.manifest;
        assert_eq!(plan.hash(), manifest.plan, "the plan of run {}", manifest.run);
        let number = self.runs.len();
        let before = self.by_id.insert(manifest.run, number);
        assert_eq!(before, None, "run {} exists", manifest.run);
        self.runs.push(Run::new(run, plan, tasks, self.sampler.clone()));
        self.order.push(number);
        self.sort_runs();
    }

    /// Sorts the runs into the order in which they are served.
    fn sort_runs(&mut self) {
        let (runs, preferred) = (&self.runs, self.preferred);
        self.order.sort_by_key(|&run| {
            let manifest = &runs[run].manifest;
            let waits = preferred != Some(manifest.run);
            let age = (manifest.created_unix_ms, run);
            (std::cmp::Reverse(runs[run].settings().priority), waits, age)
        });
    }

    /// Makes a parked task pending.
    fn unpark_task(&mut self, run: RunIx, task: TaskIx) {
        self.runs[run].enter(task, Stage::Pending);
        self.note_lease((run, task), LeaseEvent::Unparked);
    }

    /// Retries one parked task per run at a time; another failure parks it again.
    fn try_parked(&mut self, now: Ticks) {
        for run in 0..self.runs.len() {
            let in_run = &mut self.runs[run];
            if in_run.state() == RunState::Running
                && let Some(task) = in_run.next_trial(now)
            {
                self.unpark_task(run, task);
            }
        }
    }

    /// Returns the worker of a caller, or why the caller is not admitted.
    fn admit(&mut self, caller: &Caller, info: &WorkerInfo) -> Result<WorkerIx, String> {
        let token = caller.token.as_deref();
        let is_full = |most| !self.workers.has_room(caller.worker, token, most);
        let most = self.config.workers_per_token;
        if let Some(token) = token
            && is_full(most)
        {
            return Err(format!(
                "token '{token}' has reached the limit of {most} workers per token: stop some, or create a \
                 token for each laboratory"
            ));
        }
        if let Some(most) = caller.max_machines
            && is_full(most.get() as usize)
        {
            return Err(format!(
                "this token has reached its limit of {most} machines: use another token, or ask the operator \
                 for one with a higher --machines"
            ));
        }
        let most = self.config.workers;
        let worker = self.workers.remember(caller.worker, info, most);
        let worker = worker
            .ok_or_else(|| format!("the coordinator's limit is {most} workers: stop some"))?;
        if !self.workers.identify(worker, &caller.principal()) {
            return Err("a worker with this identity uses another token: give each worker \
                        a separate spool directory"
                .to_owned());
        }
        self.workers.set_host(worker, info.machine, caller.trusted);
        Ok(worker)
    }

    /// Serves one call of a worker. The reply must be sent only after every change that
    /// [`Self::poll_change`] yields is stored.
    pub fn sync_by(&mut self, caller: &Caller, request: &SyncRequest, now: Millis) -> SyncReply {
        self.advance(now);
        let mut reply = SyncReply::default();
        reply.next_sync_ms = match self.take_call(caller, request, &mut reply) {
            Ok((worker, restarted)) => {
                self.answer(worker, restarted, caller, request, &mut reply);
                self.next_sync_ms(worker, request)
            }
            Err(reason) => {
                reply.reason = reason;
                self.snapshot().regular_sync_ms()
            }
        };
        reply.lease_ms = self.snapshot().lease_ms();
        reply
    }

    /// Sets the time until a worker's next sync; returns it.
    fn next_sync_ms(&mut self, worker: WorkerIx, request: &SyncRequest) -> Ticks {
        let next = self.snapshot().sync_ms(worker, request);
        let next = self.jitter.spread(next);
        self.workers.get_mut(worker).due = self.clock.ticks() + next;
        next
    }

    /// Takes a worker's report; returns the worker and whether it was restarted, or the reason for a refusal.
    fn take_call(
        &mut self,
        caller: &Caller,
        request: &SyncRequest,
        reply: &mut SyncReply,
    ) -> Result<(WorkerIx, bool), String> {
        let worker = self.admit(caller, &request.worker)?;
        for run in self.workers.get(worker).runs() {
            self.runs[run].confirm_time();
        }
        let silent_ms = self.clock.ticks() - self.workers.get(worker).seen;
        let silent = silent_ms > 2 * self.snapshot().regular_sync_ms();
        let session = self.workers.get_mut(worker).register_session(&request.worker, silent);
        if !matches!(session, SessionUpdate::Superseded) {
            self.workers.get_mut(worker).self_tests_passed = request.self_test.tests_passed;
        }
        for partial in request.partials.iter().take(self.config.partials_per_sync) {
            let acknowledgement = self.report(worker, partial);
            reply.acknowledgements.push(acknowledgement);
        }
        self.measure_delivered(worker, &request.partials);
        self.take_self_tests(worker, request);
        reply.self_test_stored = true;
        match session {
            SessionUpdate::Known => Ok((worker, false)),
            SessionUpdate::Restarted => Ok((worker, true)),
            SessionUpdate::Superseded => {
                Err("a newer process with this identity is connected: give each \
                                              worker a separate spool directory"
                    .to_owned())
            }
        }
    }

    /// Answers a call: renews or revokes leases, and grants tasks.
    fn answer(
        &mut self,
        worker: WorkerIx,
        restarted: bool,
        caller: &Caller,
        request: &SyncRequest,
        reply: &mut SyncReply,
    ) {
        let known = self.workers.get_mut(worker);
        known.seen = self.clock.ticks();
        known.draining = request.draining || known.drain_requested;
        known.paused.clone_from(&request.paused);
        if !known.paused.is_empty() {
            known.busy_since = known.seen;
        }
        known.has_stopped = false;
        reply.drain = known.drain_requested;
        let deadline = self.clock.ticks() + self.snapshot().lease_ms();
        self.workers.expect_by(worker, deadline);
        self.take_inventory(worker, request, restarted, reply);
        match &request.package {
            Some(package) => self.grant_package(worker, package, caller.packages, reply),
            None => {
                let refusal = self.grant(worker, request, reply).err();
                let is_given = !reply.grants.is_empty();
                reply.reason = refusal.filter(|_| !is_given).unwrap_or_default();
            }
        }
        reply.all_runs_finished = !self.runs.iter().any(Run::is_open);
        self.workers.get_mut(worker).notified_finished = reply.all_runs_finished;
        let all_taken = reply.acknowledgements.len() == request.partials.len();
        let leaves = request.package.is_some() || request.draining && request.paused.is_empty();
        if leaves && all_taken && self.workers.get(worker).leases.is_empty() {
            self.workers.stop(worker);
        }
        self.leave_with_package(worker);
    }

    /// Advances the time; workers that have not called for a lease's duration, or by their promised return, are lost.
    pub fn advance(&mut self, now: Millis) {
        let before = self.clock.ticks();
        let ticks = self.clock.read(now);
        self.runs.iter_mut().for_each(|run| run.advance_time(ticks - before));
        while let Some(lost) = self.workers.pop_lost(ticks) {
            self.lose(lost);
            self.runs.iter_mut().for_each(|run| run.advance_time(0));
        }
        for lost in self.workers.forget_gone(ticks) {
            self.lose(lost);
        }
        self.try_parked(ticks);
        self.end_waits(ticks);
    }

    /// Returns the latest time to call [`Self::advance`]; `None` while nothing is due.
    pub fn next_timeout(&self) -> Option<Millis> {
        let running = self.runs.iter().filter(|run| run.state() == RunState::Running);
        let trial = running.filter_map(|run| run.parking().next_trial_at()).min();
        let ending = self.runs.iter().any(Run::is_ending);
        let ending = ending.then(|| self.clock.ticks() + ENDING_INTERVAL_MS);
        let first = self.workers.next_deadline().into_iter().chain(trial).chain(ending).min()?;
        let step = self.clock.ticks() + MAX_STEP_MS;
        Some(self.clock.wall(first.min(step)))
    }

    /// Returns the next change to store, in order.
    pub fn poll_change(&mut self) -> Option<Change> {
        let change = self.changes.pop_front();
        if self.changes.is_empty() {
            // Voiding the counts of a machine may have queued millions.
            self.changes.shrink_to(KEPT_CHANGES);
        }
        change
    }

    /// Returns the next run that is done or ended disputed, for [`Self::conclude`].
    /// A later conflict reopens the run, which is then returned again.
    pub fn poll_finished(&mut self) -> Option<RunId> {
        while let Some(run) = self.finished.pop_front() {
            if self.runs[self.by_id[&run]].is_announced() {
                return Some(run);
            }
        }
        None
    }

    /// Applies the checks of a run's total, `agrees` if all passed; returns the state.
    /// The state changes only if the run still has all its counts.
    pub fn conclude(&mut self, run: RunId, agrees: bool) -> Option<RunState> {
        let in_run = &mut self.runs[*self.by_id.get(&run)?];
        self.changes.extend(in_run.conclude(agrees));
        Some(in_run.state())
    }
}
