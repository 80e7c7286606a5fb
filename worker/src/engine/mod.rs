//! Decisions of a worker: when to call, what work to take or release, when to exit.
//!
//! A state machine without I/O and clock (sans-I/O): events go in through `handle_…` with their time,
//! which never decreases; actions come out of `poll_…`. The driver
//! 1. carries out every [`PoolCommand`] of [`WorkerEngine::poll_command`] and every write of
//!    [`WorkerEngine::poll_spool`], and reports the outcomes;
//! 2. sends what [`WorkerEngine::poll_call`] returns, one call at a time, and reports the reply or
//!    its loss;
//! 3. calls [`WorkerEngine::handle_timeout`] at the time of [`WorkerEngine::poll_timeout`];
//! 4. ends when [`WorkerEngine::poll_end`] returns a reason, after the write of
//!    [`WorkerEngine::poll_last_write`].
//!
//! A *slot* counts one task at a time: a thread or a crew. Every call carries the whole inventory, so
//! the engine remembers no calls.

mod demand;
mod drain;
mod leases;
mod outbox;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use cli::memory::MemorySize;
use common::{
    count::SetupError,
    messages::{
        limits,
        run::{LeaseKey, Partial, RunId},
        sync::{
            Acknowledgement, Grant, HeldLease, Revocation, SyncReply, SyncRequest, Verdict,
            WorkerInfo,
        },
    },
    plan::{Plan, PlanSpec},
    text::plural,
};

pub use leases::{Failure, JobOutcome, JobResult, Work};
pub use outbox::SpoolWrite;

use self::{
    demand::{Demand, Pace, SyncDemand},
    drain::{Drain, GracePeriod, SelfTests},
    leases::{Grants, Held, Leases, REFUSAL},
    outbox::Outbox,
};
use crate::summary::Summary;

/// Minimum time between two log lines about missing work.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum time for a pause to begin: the owner needs the machine now.
const MAX_PAUSE_DELAY: Duration = Duration::from_secs(25);

/// Number of panics of counting threads after which the worker stops.
const MAX_PANICS: u32 = 3;

/// Constant facts about a worker.
#[derive(Clone, Debug)]
pub struct Settings {
    pub info: WorkerInfo,
    /// Time without work or unfinished runs before the worker exits; `None`: never.
    pub idle_timeout: Option<Duration>,
    pub drain_limit: Duration,
    /// Results loaded from the spool; `None` without a spool.
    pub unacknowledged: Option<Vec<Partial>>,
    /// Whether an earlier process failed a self-test that it may not have reported.
    pub failed_before: bool,
}

/// A command to the counting threads.
#[derive(Clone, Debug)]
pub enum PoolCommand {
    /// Count this, after all earlier work.
    Count(Work),
    /// Stop counting this, or do not start it. Started work still reports its end.
    Stop(LeaseKey),
    /// Create this plan and report it to [`WorkerEngine::handle_plan`].
    MakePlan(PlanSpec),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// A signal, a time limit, or `worker stop`.
    Requested,
    /// An operator drained the worker through the coordinator.
    Drained,
    /// Every run is finished, and there was no work for the idle timeout.
    Idle,
    /// Every thread failed its self-test.
    SelfTest,
    /// Counting threads panicked this many times.
    Panics(u32),
}

#[derive(Debug)]
pub struct WorkerEngine {
    settings: Settings,
    grants: Grants,
    leases: Leases,
    outbox: Outbox,
    pace: Pace,
    demand: Demand,
    self_tests: SelfTests,
    idle_since: Option<Instant>,
    /// Whether the coordinator's last reply said that all runs are finished.
    all_runs_finished: bool,
    /// Whether leases were released since the last call started.
    released: bool,
    /// Whether a task was counted or failed in this process.
    has_tried: bool,
    /// Leases of tasks that could not be counted, until the coordinator knows.
    failed: Vec<LeaseKey>,
    /// How many of these the current call names.
    failed_sent: usize,
    /// The seconds of work that the current call requests.
    calling: Option<f64>,
    panics: u32,
    logged_idle: Option<Instant>,
    drain: Option<Drain>,
    /// Reason for the current pause.
    paused: Option<String>,
    /// The grace period of the current drain or pause.
    grace_period: Option<GracePeriod>,
    commands: VecDeque<PoolCommand>,
    summary: Summary,
}

impl WorkerEngine {
    /// Creates the engine of a worker that starts now.
    pub fn new(mut settings: Settings, now: Instant) -> Self {
        Self {
            demand: Demand::new(settings.info.threads),
            outbox: Outbox::new(settings.unacknowledged.take()),
            self_tests: SelfTests::new(settings.failed_before),
            settings,
            grants: Grants::default(),
            leases: Leases::default(),
            pace: Pace::new(now),
            idle_since: None,
            all_runs_finished: false,
            released: false,
            has_tried: false,
            failed: Vec::new(),
            failed_sent: 0,
            calling: None,
            panics: 0,
            logged_idle: None,
            drain: None,
            paused: None,
            grace_period: None,
            commands: VecDeque::new(),
            summary: Summary::default(),
        }
    }

    /// Returns the number of leases.
    pub fn held(&self) -> usize {
        self.leases.len() + self.grants.len()
    }

    /// Returns the number of results without an acknowledgement.
    pub fn unacknowledged(&self) -> usize {
        self.outbox.len()
    }

    /// Returns the number of results that the end of the process would lose now.
    pub fn unsaved(&self) -> usize {
        self.outbox.unsaved()
    }

    /// Returns the time of the next call after a failed one.
    pub fn retry_at(&self) -> Option<Instant> {
        self.pace.retry
    }

    /// Returns the number of consecutive failed calls.
    pub fn failures(&self) -> u32 {
        self.pace.failures
    }

    /// Returns the speed in cores of the reference machine; 0 if not measured yet.
    pub fn cores(&self) -> f64 {
        self.demand.cores()
    }

    /// Returns the summary so far, without the times of the threads.
    pub fn summary(&self) -> Summary {
        Summary { unacknowledged: self.outbox.len() as u64, ..self.summary }
    }

    /// Returns the reason for the current pause.
    pub fn paused(&self) -> Option<&str> {
        self.paused.as_deref()
    }

    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Notes that a slot started work.
    pub fn handle_started(&mut self, lease: LeaseKey, now: Instant) {
        self.leases.start(lease, now);
    }

    /// Notes the finished part of the cost of started work.
    pub fn handle_progress(&mut self, lease: LeaseKey, cost_done: u64) {
        self.leases.progress(lease, cost_done);
    }

    /// Takes the result of work that left its slot, even if its lease was revoked.
    pub fn handle_job_finished(&mut self, result: JobResult, now: Instant) {
        let JobResult { work, outcome, kernel, duration, threads } = result;
        let lease = work.lease;
        if let Some(drain) = &mut self.drain {
            drain.changed();
        }
        self.has_tried |= !matches!(outcome, JobOutcome::Cancelled);
        match outcome {
            JobOutcome::Counted(count) => {
                self.demand.note(work.cost, duration, threads);
                self.leases.remove(lease);
                self.summary.counted += 1;
                let partial = Partial {
                    lease,
                    count,
                    kernel,
                    orientation: work.orientation,
                    duration_us: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
                };
                self.outbox.put(partial, now);
            }
            JobOutcome::Cancelled => self.release(lease),
            JobOutcome::Failed(failure) => {
                tracing::error!("{lease} has no count: {failure}; the lease is released");
                self.release(lease);
                self.failed.push(lease);
                self.handle_failure(&work.plan, &failure, now);
            }
        }
    }

    fn handle_failure(&mut self, plan: &Plan, failure: &Failure, now: Instant) {
        match failure {
            Failure::Overflow => {}
            Failure::Panic(_) => {
                self.panics += 1;
                if self.panics >= MAX_PANICS {
                    self.stop(ExitReason::Panics(self.panics), now);
                }
            }
            Failure::Setup(SetupError::Memory { given, least }) => {
                self.release_where(|held| {
                    held.started.is_none() && held.work.plan.hash() == plan.hash()
                });
                let threads = u64::from(self.settings.info.threads);
                let size = |bytes: &u64| MemorySize::at_least(bytes.saturating_mul(threads));
                let (board, least) = (plan.spec().board, size(least).as_option());
                let reason = format!(
                    "this worker cannot count N = {board}: it needs at least --memory {least} with \
                     --threads {threads}, but has {}",
                    size(given)
                );
                self.refuse_work(&reason, now);
            }
        }
    }

    /// Returns whether results are suspect, and the coordinator may not know or have them all.
    pub fn has_suspects(&self) -> bool {
        self.self_tests.has_suspects()
    }

    pub fn handle_self_test_passed(&mut self) {
        self.self_tests.passed += 1;
    }

    /// Notes that a thread ended after a failed self-test, and when it last passed one.
    pub fn handle_self_test_failed(&mut self, last_passed: Option<Instant>, now: Instant) {
        self.self_tests.note_failed(last_passed);
        let remaining = self.settings.info.threads.saturating_sub(self.self_tests.failed);
        self.demand.set_threads(remaining);
        if remaining == 0 {
            self.stop(ExitReason::SelfTest, now);
        }
    }

    /// Takes a plan, or the reason why it cannot be created.
    pub fn handle_plan(&mut self, spec: PlanSpec, plan: Result<Plan, String>, now: Instant) {
        for grant in self.grants.add_plan(spec, plan) {
            if let Some(work) = self.grants.work(&grant) {
                self.admit(&grant, work, now);
            }
        }
    }

    /// Notes the end of a write to the spool.
    pub fn handle_spooled(&mut self, succeeded: bool, now: Instant) {
        self.outbox.written(succeeded, now);
    }

    /// Notes that the spool is gone.
    pub fn handle_spool_lost(&mut self) {
        self.outbox.lose_spool();
    }

    /// Takes the reply to the current call.
    pub fn handle_reply(&mut self, reply: SyncReply, now: Instant) {
        let requested = self.calling.take().unwrap_or(0.0);
        self.failed.drain(..self.failed_sent);
        self.failed_sent = 0;
        let unacknowledged = self.outbox.len();
        for acknowledgement in &reply.acknowledgements {
            self.acknowledged(acknowledgement, now);
        }
        self.self_tests.answered(reply.self_test_stored);
        self.revoked(&reply.revoked);
        self.all_runs_finished = reply.all_runs_finished;
        let starved = requested > 0.0 && reply.grants.is_empty();
        if starved {
            self.log_idle(&reply.reason, now);
        }
        // The coordinator answers each result of a worker that it admits.
        let refused = self.outbox.is_sending() && reply.acknowledgements.is_empty();
        let next = Duration::from_millis(reply.next_sync_ms);
        self.pace.answered(now, next, starved, refused);
        self.demand.set_period(self.pace.period);
        let is_open = !reply.grants.is_empty() || self.has_news();
        let progress = self.outbox.len() <= unacknowledged / 2;
        if reply.drain && self.drain.is_none() {
            tracing::info!("drained by an operator; restart the worker to resume");
            self.stop(ExitReason::Drained, now);
        }
        match &mut self.drain {
            Some(drain) => drain.answered(now, is_open, progress),
            // The next inventory lacks grants from before the pause, which releases them.
            None if self.paused.is_some() => self.released |= !reply.grants.is_empty(),
            None => reply.grants.iter().for_each(|grant| self.take(grant, now)),
        }
        // Starts the idle time, if the worker is idle.
        self.idle_until(now);
    }

    /// Notes that the current call failed, and returns the delay of the next one.
    ///
    /// The delay is the part `jitter`, 0 to 1, of the backoff. The call may have been carried out.
    pub fn handle_lost_call(&mut self, jitter: f64, now: Instant) -> Duration {
        self.calling = None;
        self.failed_sent = 0;
        self.outbox.lost();
        self.released = true;
        let may_leave = self.held() == 0 && self.outbox.is_safe();
        if let Some(drain) = &mut self.drain {
            drain.unanswered(now, may_leave);
        }
        self.pace.failed(now, jitter)
    }

    /// Starts a drain.
    pub fn handle_stop(&mut self, now: Instant) {
        self.stop(ExitReason::Requested, now);
    }

    /// Pauses counting for a reason and releases slow tasks, or resumes counting.
    pub fn handle_pause(&mut self, reason: Option<String>, now: Instant) {
        if self.drain.is_some() || self.paused() == reason.as_deref() {
            return;
        }
        // Calls the coordinator immediately.
        self.released = true;
        match (&reason, &self.paused) {
            (Some(_), Some(_)) => {}
            (Some(reason), None) => {
                tracing::info!("paused: {reason}");
                self.release_slow(self.settings.drain_limit.min(MAX_PAUSE_DELAY), now);
            }
            (None, _) => {
                tracing::info!("resumed");
                self.grace_period = None;
            }
        }
        self.paused = reason;
    }

    /// Handles expired time limits.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.grace_period.is_some_and(|period| now >= period.ends()) {
            self.release_where(|_| true);
        }
        if self.idle_until(now).is_some_and(|until| until <= now) {
            self.stop(ExitReason::Idle, now);
        }
    }

    pub fn poll_command(&mut self) -> Option<PoolCommand> {
        self.commands.pop_front()
    }

    /// Returns the due write to the spool; [`Self::handle_spooled`] takes its outcome.
    pub fn poll_spool(&mut self, now: Instant) -> Option<SpoolWrite> {
        self.outbox.poll_write(now)
    }

    /// Returns what to write to the spool before the process ends.
    pub fn poll_last_write(&mut self) -> Option<SpoolWrite> {
        self.outbox.poll_last_write()
    }

    /// Returns whether [`Self::poll_call`] returns a call now.
    pub fn is_call_due(&self, now: Instant) -> bool {
        self.call_at(now).is_some_and(|due| due <= now)
    }

    pub fn poll_call(&mut self, now: Instant) -> Option<SyncRequest> {
        if !self.is_call_due(now) {
            return None;
        }
        let wanted = match self.takes_work(now) {
            true => self.demand.wanted(self.leases.backlog()),
            false => 0.0,
        };
        self.calling = Some(wanted);
        self.pace.started(now);
        if let Some(drain) = &mut self.drain {
            drain.called();
        }
        Some(self.request(wanted, now))
    }

    /// Returns when to act again if nothing else happens.
    pub fn poll_timeout(&mut self, now: Instant) -> Option<Instant> {
        let grace_ends = self.grace_period.map(GracePeriod::ends);
        let times = [
            grace_ends.filter(|at| now < *at),
            self.call_at(now),
            self.outbox.write_at(),
            self.grants.refusing_until(now),
            self.drain.as_ref().map(Drain::ends),
            self.idle_until(now),
        ];
        times.into_iter().flatten().min()
    }

    /// Returns the reason to end now, if any.
    pub fn poll_end(&self, now: Instant) -> Option<ExitReason> {
        let is_empty = self.held() == 0 && self.outbox.len() == 0;
        self.drain.as_ref()?.end(now, is_empty)
    }

    /// Returns when the idle timeout expires, also if the coordinator is gone by then.
    ///
    /// A worker that has not tried any task yet was started early, and stays. Until all runs are known to
    /// be finished, an unreachable coordinator may only be restarting.
    fn idle_until(&mut self, now: Instant) -> Option<Instant> {
        let is_idle = self.held() == 0 && self.has_tried && self.all_runs_finished;
        if self.drain.is_some() || !is_idle {
            self.idle_since = None;
            return None;
        }
        let since = *self.idle_since.get_or_insert(now);
        Some(since + self.settings.idle_timeout?)
    }

    /// Returns when the next call is due; `None` during a call.
    fn call_at(&self, now: Instant) -> Option<Instant> {
        if self.calling.is_some() {
            return None;
        }
        let backlog = self.leases.backlog();
        let due = || {
            let backlog_seconds = self.demand.seconds_for(backlog.cost).min(1e6);
            self.pace.due(SyncDemand {
                news: self.has_news(),
                low: self.takes_work(now) && self.demand.is_low(backlog),
                backlog_time: Duration::from_secs_f64(backlog_seconds),
            })
        };
        match &self.drain {
            // The leases of started tasks must be renewed.
            Some(drain) => drain.call_at().or_else(|| (self.held() > 0).then(due)),
            None => Some(due()),
        }
    }

    /// Returns whether there is something to report before the regular time.
    fn has_news(&self) -> bool {
        self.released || self.outbox.len() > 0
    }

    fn takes_work(&self, now: Instant) -> bool {
        let is_full = self.held() + self.outbox.len() > limits::HELD - limits::GRANTS;
        let is_refusing = self.grants.refusing_until(now).is_some();
        // The cost of waiting grants is unknown.
        let waits = self.grants.len() > 0;
        // A run's counting time must not include the first self-tests.
        let is_tested = self.self_tests.passed > 0;
        let is_stopped = self.drain.is_some() || self.paused.is_some();
        is_tested && !is_stopped && !is_full && !waits && !is_refusing
    }

    /// Creates a request with the whole inventory.
    ///
    /// Partials that do not fit wait for the next request; until then their leases are listed, so
    /// that the coordinator does not release them.
    fn request(&mut self, seconds_wanted: f64, now: Instant) -> SyncRequest {
        let (partials, later) = self.outbox.send(limits::PARTIALS);
        self.self_tests.called(later.is_empty());
        let listed = |lease, started| HeldLease { lease, cost_done: 0, started, failed: false };
        let failed =
            self.failed.iter().map(|&lease| HeldLease { failed: true, ..listed(lease, true) });
        self.failed_sent = self.failed.len();
        let waiting = self.grants.leases().map(|lease| listed(lease, false));
        let counted = later.into_iter().map(|lease| listed(lease, true));
        let held = failed.chain(self.leases.inventory()).chain(waiting).chain(counted);
        let held = held.take(limits::HELD).collect();
        self.released = false;
        SyncRequest {
            worker: self.settings.info.clone(),
            held,
            partials,
            seconds_wanted,
            draining: self.drain.is_some() || self.paused.is_some(),
            self_test: self.self_tests.report(now),
            paused: self.paused().unwrap_or_default().to_owned(),
            package: None,
        }
    }

    /// Takes a grant, unless the worker already has it: grants may be repeated.
    fn take(&mut self, grant: &Grant, now: Instant) {
        let lease = grant.lease;
        if self.leases.contains(&lease)
            || self.outbox.contains(&lease)
            || self.grants.leases().any(|waiting| waiting == lease)
        {
            return;
        }
        match self.grants.work(grant) {
            Some(work) => self.admit(grant, work, now),
            None if self.grants.wait(*grant) => {
                self.commands.push_back(PoolCommand::MakePlan(grant.spec));
            }
            None => {}
        }
    }

    /// Hands granted work to the pool, or declines it.
    fn admit(&mut self, grant: &Grant, work: Result<Work, String>, now: Instant) {
        match work {
            Ok(work) => {
                self.leases.insert(work.clone());
                self.commands.push_back(PoolCommand::Count(work));
            }
            Err(bad) => {
                self.released = true;
                self.refuse_work(&format!("run {}: {bad}", grant.lease.task.run), now);
            }
        }
    }

    /// Requests no work for a while after work that this worker cannot count.
    fn refuse_work(&mut self, reason: &str, now: Instant) {
        if self.grants.refuse(now) {
            tracing::error!(
                "{reason}; its tasks are returned and no work is requested for {} s",
                REFUSAL.as_secs()
            );
        }
    }

    /// Drops a result that the coordinator acknowledged, unless it is to be kept.
    fn acknowledged(&mut self, acknowledgement: &Acknowledgement, now: Instant) {
        let Acknowledgement { lease, verdict, ref reason } = *acknowledgement;
        let is_kept = verdict == Verdict::RefusedKeep && self.outbox.has_spool();
        let is_news = match is_kept {
            true => self.outbox.keep(lease),
            false => self.outbox.acknowledge(lease, now),
        };
        if !is_news {
            return;
        }
        match verdict {
            Verdict::Accepted => self.summary.accepted += 1,
            Verdict::Duplicate => self.summary.duplicates += 1,
            Verdict::Conflict => {
                self.summary.conflicts += 1;
                tracing::warn!("the count of {lease} conflicts with another count: {reason}");
            }
            Verdict::Refused | Verdict::RefusedKeep => {
                self.summary.refused += 1;
                self.summary.kept += u64::from(is_kept);
                let end = if is_kept { " and stays in the spool" } else { "" };
                tracing::warn!("the count of {lease} was refused{end}: {reason}");
            }
        }
    }

    /// Stops revoked work, and logs one line per run and reason.
    fn revoked(&mut self, revocations: &[Revocation]) {
        let mut stopped: BTreeMap<(RunId, &str), u64> = BTreeMap::new();
        for Revocation { lease, reason } in revocations {
            let lease = *lease;
            let was_held = self.leases.remove(lease).is_some();
            if was_held {
                self.commands.push_back(PoolCommand::Stop(lease));
            }
            if was_held || self.grants.remove(lease) {
                tracing::debug!("{lease} was revoked: {reason}");
                *stopped.entry((lease.task.run, reason)).or_default() += 1;
            }
        }
        for ((run, reason), number) in stopped {
            tracing::info!("run {run}: {} revoked: {reason}", plural(number, "task"));
            self.summary.revoked += number;
        }
    }

    /// Releases a lease without a count.
    fn release(&mut self, lease: LeaseKey) {
        if self.leases.remove(lease).is_some() {
            self.released = true;
            self.summary.released += 1;
        }
    }

    /// Stops and releases the leases for which `fits` returns true.
    fn release_where(&mut self, fits: impl Fn(&Held) -> bool) {
        for lease in self.leases.filter(fits) {
            self.commands.push_back(PoolCommand::Stop(lease));
            self.release(lease);
        }
    }

    /// Starts the grace period of a drain or pause that takes at most `limit`.
    ///
    /// Releases all leases that were not started or will not finish within it.
    fn release_slow(&mut self, limit: Duration, now: Instant) {
        let grace_period = GracePeriod::new(now, limit);
        self.grace_period = Some(grace_period);
        let speed = self.demand.speed();
        self.summary.released += self.grants.clear() as u64;
        self.release_where(|held| {
            held.started.is_none() || grace_period.cannot_finish(held, speed)
        });
    }

    /// Starts a drain, unless one is in progress.
    fn stop(&mut self, reason: ExitReason, now: Instant) {
        if self.drain.is_some() {
            return;
        }
        self.release_slow(self.settings.drain_limit, now);
        self.drain = Some(Drain::new(reason, now, self.settings.drain_limit));
        self.paused = None;
        tracing::info!(
            "draining: {} in progress, {} to submit",
            plural(self.leases.len(), "task"),
            plural(self.outbox.len(), "result")
        );
    }

    /// Logs why there is no work, at most once per interval.
    fn log_idle(&mut self, reason: &str, now: Instant) {
        tracing::debug!("no work: {reason}");
        let is_due =
            self.logged_idle.is_none_or(|at| now.saturating_duration_since(at) >= LOG_INTERVAL);
        if self.held() == 0 && is_due {
            self.logged_idle = Some(now);
            tracing::info!("no work: {reason}");
        }
    }
}
