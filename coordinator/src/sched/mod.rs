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
mod disputes;
mod grants;
mod index;
mod leases;
mod map;
mod pace;
mod parking;
mod rate;
mod rejection;
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
    run::{RunId, WorkerId},
    sync::{SyncReply, SyncRequest},
};

pub use config::{Config, Millis};
pub use map::{MapCell, TaskMap, TaskView};
pub use status::{Rechecks, RunStatus, RunSummary, TaskNumbers, WorkerState, WorkerStatus};

use self::{
    clock::{Clock, Jitter, MAX_STEP_MS, Ticks},
    index::{RunIx, TaskIx, WorkerIx},
    run::Run,
    tasks::{Done, How, Stage},
    worker::{Greeting, unknown_worker},
    workers::Workers,
};
use crate::ledger::{
    Change, Confirmed, Draw, Recheck, RunManifest, RunState, TaskRow, TaskState, Trust,
    TrustRecord, Vote,
};

/// A crash may lose the last leases from disk, but not from their workers. Each life of the
/// coordinator therefore goes on from what is on disk by a random leap of at most this much, so that
/// no epoch names two leases, and takes epochs up to some such leaps ahead for lost ones.
const EPOCH_LEAP: u64 = 1 << 22;

/// An operator's word on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Hand out nothing new; results are welcome.
    Pause,
    /// Hand out tasks again.
    Resume,
    /// Give the run up; its records stay.
    Cancel,
    /// Try parked tasks again, all at once, and ask those again who could not settle a dispute.
    Unpark,
    /// Count so much of it twice from now on, what is done and what is to come; a run that is over
    /// goes on for that.
    Recheck(Recheck),
}

/// A command that a run cannot follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No run has this name.
    #[error("there is no run {0}")]
    NoSuchRun(RunId),
    /// The run is complete.
    #[error("run {0} is complete")]
    Over(RunId),
    /// The run was cancelled.
    #[error("run {0} is cancelled: submit it again")]
    Cancelled(RunId),
    /// The run is not over.
    #[error("run {0} is not over: cancel it first")]
    Live(RunId),
}

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

/// What [`Scheduler::take_back`] needs to make a run what it was before a command.
#[derive(Debug)]
struct Undo {
    run: RunIx,
    state: RunState,
    recheck: Recheck,
    announced: bool,
    stuck_since: Option<Ticks>,
    /// Tasks that the command drew.
    drawn: Vec<TaskIx>,
    /// Tasks whose second count it asked for.
    wanted: Vec<TaskIx>,
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
        new.served_since = self.clock.ticks();
        self.runs.push(new);
        self.order.push(number);
        let (runs, preferred) = (&self.runs, self.preferred);
        self.order.sort_by_key(|&run| {
            let manifest = &runs[run].manifest;
            let waits = preferred != Some(manifest.run);
            let age = (manifest.created_unix_ms, run);
            (std::cmp::Reverse(manifest.priority), waits, age)
        });
    }

    /// How much of a run is counted twice, if that was ever said: before its tasks are restored.
    ///
    /// # Panics
    /// If there is no such run.
    pub fn restore_recheck(&mut self, run: RunId, recheck: Recheck) {
        let run = self.by_id[&run];
        self.runs[run].recheck = recheck;
    }

    /// How long earlier processes have served a run that was added before, in milliseconds.
    ///
    /// # Panics
    /// If there is no such run.
    pub fn restore_elapsed(&mut self, run: RunId, elapsed_ms: u64) {
        let run = self.by_id[&run];
        self.runs[run].served_before_ms = elapsed_ms;
    }

    /// What is on disk of one task of a run that was added before.
    ///
    /// # Panics
    /// If there is no such run, or the run no such task.
    pub fn restore_task(&mut self, run: RunId, row: TaskRow) {
        let run = self.by_id[&run];
        let task = run::index(row.task);
        let epoch = row.epoch.0;
        let failed: Vec<_> = row
            .failed
            .into_iter()
            .map(|worker| self.workers.pinned(worker))
            .collect();
        let in_run = &mut self.runs[run];
        in_run.tasks.raise_epoch(task, epoch);
        if !failed.is_empty() {
            in_run.odd.entry(task).or_default().failed = failed;
        }
        match row.state {
            TaskState::Pending => {}
            TaskState::Leased { worker, .. } => {
                let live = matches!(in_run.state, RunState::Running | RunState::Paused);
                let worker = self
                    .workers
                    .remember(&unknown_worker(worker), self.config.workers);
                if let Some(worker) = worker
                    && live
                {
                    self.restore_lease((run, task), worker, epoch);
                }
            }
            TaskState::Done { vote, confirmed } => {
                self.restore_done((run, task), &vote, confirmed);
            }
            TaskState::Quarantined(votes) => self.restore_reports((run, task), &votes),
            TaskState::Parked => in_run.park(task, self.clock.ticks()),
        }
    }

    /// An accepted count that was found on disk.
    fn restore_done(&mut self, (run, task): (RunIx, TaskIx), vote: &Vote, confirmed: Confirmed) {
        let worker = self.workers.pinned(vote.worker);
        self.workers.restore_principal(worker, &vote.principal);
        let in_run = &mut self.runs[run];
        let drawn = self
            .draw
            .chosen(in_run.manifest.run, run::id(task), in_run.recheck);
        let done = Done {
            count: vote.count,
            worker,
            how: How::of(vote),
            confirmed,
            drawn,
            accepted_s: 0,
        };
        in_run.accept(task, done);
        if confirmed.elsewhere() {
            self.workers.standing_mut(worker).agreed();
            return;
        }
        let open = matches!(in_run.state, RunState::Running | RunState::Paused);
        let unproven = self.unproven.iter().filter(|(by, _)| *by == worker);
        let mut windows = unproven.map(|(_, window)| window);
        let doubted = self.workers.standing(worker).faults() > 0
            || windows.any(|window| window.contains(&vote.accepted_unix_ms));
        if open && (doubted || (drawn && confirmed == Confirmed::No)) {
            in_run.seconds.want(task, worker, 0);
        }
    }

    /// Everything on disk was given: from now on workers are served. Leases found on disk last for
    /// the grace period.
    pub fn restored(&mut self, now: Millis) {
        let ticks = self.clock.read(now);
        let waiting: Vec<_> = self
            .workers
            .iter()
            .filter(|(_, worker)| !worker.leases.is_empty())
            .map(|(number, _)| number)
            .collect();
        for worker in waiting {
            self.workers.expect_by(worker, ticks + self.config.grace_ms);
        }
        let leap = self.jitter.below(EPOCH_LEAP);
        for run in 0..self.runs.len() {
            self.runs[run].tasks.raise_epochs(leap);
            self.runs[run].lost_epochs = 4 * EPOCH_LEAP;
            self.announce_if_done(run);
        }
    }

    /// Follows an operator's command. The same command twice is no error.
    pub fn control(
        &mut self,
        run: RunId,
        command: Command,
        now: Millis,
    ) -> Result<RunState, ControlError> {
        self.advance(now);
        let &number = self.by_id.get(&run).ok_or(ControlError::NoSuchRun(run))?;
        let in_run = &self.runs[number];
        let before = in_run.state;
        self.undo = Some(Undo {
            run: number,
            state: before,
            recheck: in_run.recheck,
            announced: in_run.announced,
            stuck_since: in_run.stuck_since,
            drawn: Vec::new(),
            wanted: Vec::new(),
        });
        match before {
            RunState::Running | RunState::Paused => {}
            RunState::Cancelled if command == Command::Cancel => return Ok(before),
            RunState::Cancelled => return Err(ControlError::Cancelled(run)),
            RunState::Complete | RunState::Contradicted | RunState::Disputed => {
                match command {
                    Command::Recheck(recheck) => self.recheck_from_now_on(number, recheck),
                    Command::Unpark if before == RunState::Disputed => {
                        self.unpark(number);
                        self.reopen(number);
                    }
                    Command::Pause | Command::Resume | Command::Cancel | Command::Unpark => {
                        return Err(ControlError::Over(run));
                    }
                }
                return Ok(self.runs[number].state);
            }
        }
        let after = match command {
            Command::Pause => RunState::Paused,
            Command::Resume => RunState::Running,
            Command::Cancel => RunState::Cancelled,
            Command::Unpark => {
                self.unpark(number);
                before
            }
            Command::Recheck(recheck) => {
                self.recheck_from_now_on(number, recheck);
                before
            }
        };
        if after != before {
            self.runs[number].state = after;
            self.changes.push_back(Change::State { run, state: after });
        }
        if after == RunState::Cancelled {
            self.drop_leases(number);
        }
        Ok(after)
    }

    /// The owner could not keep what the last command changed: the run is what it was before. Leases
    /// that ended are not given back; their workers name them again.
    pub fn take_back(&mut self) {
        let Some(before) = self.undo.take() else {
            return;
        };
        let run = &mut self.runs[before.run];
        run.state = before.state;
        run.recheck = before.recheck;
        run.announced = before.announced;
        run.stuck_since = before.stuck_since;
        for task in before.drawn {
            run.tasks.draw(task, false);
        }
        for task in before.wanted {
            if let Some(done) = run.tasks.done(task) {
                run.seconds.forget(task, done.worker);
            }
        }
    }

    /// Forgets a run that is over.
    pub fn forget_run(&mut self, run: RunId) {
        let Some(number) = self.by_id.remove(&run) else {
            return;
        };
        self.drop_leases(number);
        self.order.retain(|other| *other != number);
        self.finished.retain(|other| *other != run);
        // Its number stays taken: leases and workers name runs by it.
        self.runs[number] = Run::husk(self.runs[number].manifest.clone());
    }

    fn unpark(&mut self, run: RunIx) {
        for task in self.runs[run].parking.free_all() {
            if let Some(odd) = self.runs[run].odd.get_mut(&task) {
                odd.failed.clear();
            }
            self.let_out(run, task);
        }
        for odd in self.runs[run].odd.values_mut() {
            odd.tried.clear();
        }
    }

    /// Another part of a run is counted twice.
    fn recheck_from_now_on(&mut self, run: RunIx, recheck: Recheck) {
        let in_run = &mut self.runs[run];
        in_run.recheck = recheck;
        let name = in_run.manifest.run;
        self.changes
            .push_back(Change::Recheck { run: name, recheck });
        let mut drawn = Vec::new();
        for task in 0..TaskIx::try_from(in_run.tasks.len()).expect("at most MAX_TASKS") {
            let done = in_run.tasks.done(task);
            if done.is_some_and(|done| !done.drawn)
                && self.draw.chosen(name, run::id(task), recheck)
            {
                in_run.tasks.draw(task, true);
                drawn.push(task);
            }
        }
        let wanted = self.count_again(run, |done| done.drawn && !done.confirmed.elsewhere());
        if let Some(before) = &mut self.undo {
            before.drawn = drawn;
            before.wanted = wanted;
        }
    }

    /// An operator vouches for a worker again, after a repair: it gets work, and its word counts.
    pub fn trust(&mut self, worker: WorkerId) {
        let worker = self.workers.pinned(worker);
        self.workers.standing_mut(worker).trust();
        self.note_trust(worker, Trust::Trusted, "an operator vouches for it");
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
        let recheck = self.by_id.get(&run).map(|&run| self.runs[run].recheck);
        recheck.is_some_and(|recheck| self.draw.chosen(run, task, recheck))
    }

    /// How much of a run is counted twice.
    pub fn recheck(&self, run: RunId) -> Option<Recheck> {
        self.by_id.get(&run).map(|&run| self.runs[run].recheck)
    }

    /// Found on disk: counts of this worker were wrong, and if `barred` more than once.
    pub fn restore_distrust(&mut self, worker: WorkerId, barred: bool) {
        let worker = self.workers.pinned(worker);
        let standing = self.workers.standing_mut(worker);
        match barred {
            false => standing.restore_doubt(),
            true => standing.restore_bar(),
        }
    }

    /// A parked task is pending again.
    fn let_out(&mut self, run: RunIx, task: TaskIx) {
        let in_run = &mut self.runs[run];
        in_run.enter(task, Stage::Pending);
        self.changes.push_back(Change::Unparked {
            run: in_run.manifest.run,
            task: run::id(task),
        });
    }

    /// Tries parked tasks again, one of a run at a time. What it failed before stays on record: one
    /// more failure parks it again.
    fn try_parked(&mut self, now: Ticks) {
        for run in 0..self.runs.len() {
            let in_run = &mut self.runs[run];
            if in_run.state == RunState::Running
                && let Some(task) = in_run.parking.next_trial(now)
            {
                self.let_out(run, task);
            }
        }
    }

    /// Ends every lease of a cancelled run, in memory: on disk the state says enough.
    fn drop_leases(&mut self, run: RunIx) {
        let tasks: Vec<_> = self.runs[run].holders.keys().copied().collect();
        for task in tasks {
            self.remove_all(run, task);
            if self.runs[run].tasks.stage(task) == Stage::Leased {
                self.runs[run].enter(task, Stage::Pending);
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
        known.draining = request.draining;
        known.left = false;
        let deadline = self.clock.ticks() + self.lease_ms();
        self.workers.expect_by(worker, deadline);
        self.take_canaries(worker, request);
        self.take_inventory(worker, request, (restarted, &mut reply));
        self.grant(worker, request, &mut reply);
        self.pace(worker, request, &mut reply);
        let all_taken = reply.acknowledgements.len() == request.partials.len();
        if request.draining && all_taken && self.workers.get(worker).leases.is_empty() {
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
            .filter(|run| run.state == RunState::Running);
        let trial = running.filter_map(|run| run.parking.next_trial_at()).min();
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
            let in_run = &self.runs[self.by_id[&run]];
            if in_run.announced && (in_run.all_done() || in_run.state == RunState::Disputed) {
                return Some(run);
            }
        }
        None
    }

    /// The owner has checked the total of a run: `agrees` says whether every check holds. Returns
    /// the run's state, which changes only if the run still has all its counts.
    pub fn conclude(&mut self, run: RunId, agrees: bool) -> Option<RunState> {
        let in_run = &mut self.runs[*self.by_id.get(&run)?];
        let open = matches!(in_run.state, RunState::Running | RunState::Paused);
        if open && in_run.announced && in_run.all_done() {
            in_run.state = if agrees {
                RunState::Complete
            } else {
                RunState::Contradicted
            };
            self.changes.push_back(Change::State {
                run,
                state: in_run.state,
            });
        }
        Some(in_run.state)
    }
}
