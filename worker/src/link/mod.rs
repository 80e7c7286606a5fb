//! The link to the coordinator: one task on the async runtime that owns all leases.
//!
//! It hears of finished jobs from the pool, and calls `Sync` whenever [`pace::Pace`] says so, one
//! call at a time. Everything it knows travels in every call, so that it needs no memory of calls.

mod demand;
mod desk;
mod drain;
mod idle;
mod pace;
mod plans;
#[cfg(test)]
mod tests;
mod transport;

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    board::Board,
    count::SetupError,
    sync::{FailedCanaries, Grant, SyncReply, WorkerInfo},
};
use tokio::{sync::mpsc::UnboundedReceiver, time::sleep_until};

use crate::{
    config::Address,
    lease::LeaseKey,
    memory::MemorySize,
    outbox::Outbox,
    pool::{Failure, Job, Left, Outcome, Pool},
    summary::{Summary, plural},
};
use demand::Demand;
use desk::Desk;
use idle::Idleness;
use pace::{Needs, Pace};
use plans::Plans;
use transport::{Call, CallError, Transport};

/// After so many panics of counting threads the program is not to be trusted.
const MOST_PANICS: u32 = 3;

/// For how long no work is asked for after some that cannot be counted here.
const REFUSING: Duration = Duration::from_secs(60);

/// How often a line tells what the worker is doing.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// The owner of all leases.
pub(crate) struct Link {
    coordinator: Address,
    transport: Transport,
    desk: Desk,
    pool: Pool,
    left: UnboundedReceiver<Left>,
    pace: Pace,
    demand: Demand,
    plans: Plans,
    /// Until then no work is asked for.
    refusing_until: Option<Instant>,
    /// What the call on its way asked for.
    asked: f64,
    panics: u32,
    /// The coordinator's address is known to be one.
    was_answered: bool,
    reported: Instant,
    said_idle: Option<Instant>,
    idleness: Idleness,
    /// Draws from 0 to 1.
    jitter: Jitter,
}

/// Where the back-off's randomness comes from.
pub(crate) type Jitter = fn() -> f64;

/// Why the link stopped serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was told to.
    Told,
    /// Every run is over, and nothing was to do for the idle timeout.
    Idle,
    /// No counting thread is left that counts right.
    Unproven,
    /// Counting threads panicked too often.
    Faulty {
        /// How often.
        panics: u32,
    },
}

impl Link {
    /// A link that serves `coordinator` with `pool`, which reports to `left`.
    pub(crate) fn new(
        coordinator: Address,
        info: WorkerInfo,
        outbox: Outbox,
        (pool, left): (Pool, UnboundedReceiver<Left>),
        jitter: Jitter,
    ) -> Self {
        let now = Instant::now();
        Self {
            transport: Transport::new(&coordinator),
            coordinator,
            demand: Demand::new(info.threads),
            desk: Desk::new(info, outbox),
            pool,
            left,
            pace: Pace::new(now),
            plans: Plans::default(),
            refusing_until: None,
            asked: 0.0,
            panics: 0,
            was_answered: false,
            reported: now,
            said_idle: None,
            idleness: Idleness::new(None),
            jitter,
        }
    }

    /// The same, ending by itself after this time without work once every run is over.
    pub(crate) fn with_idle_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.idleness = Idleness::new(timeout);
        self
    }

    /// Serves until `shutdown` or until something is wrong with this program, then drains. The
    /// outbox comes back for whoever may block on the disk.
    pub(crate) async fn run(
        mut self,
        shutdown: impl Future<Output = ()>,
        drain_limit: Duration,
    ) -> (Ended, Outbox, Summary) {
        let (ended, call) = self.serve(shutdown).await;
        self.drain(call, drain_limit).await;
        let Self { desk, pool, .. } = self;
        let mut summary = desk.summary;
        summary.unacknowledged = desk.outbox.len() as u64;
        add_times(&mut summary, &pool);
        (ended, desk.outbox, summary)
    }

    async fn serve(&mut self, shutdown: impl Future<Output = ()>) -> (Ended, Option<Call>) {
        let mut shutdown = pin!(shutdown);
        let mut call = None;
        loop {
            if self.failed_canaries().threads >= self.desk.threads() {
                return (Ended::Unproven, call);
            }
            let needs = self.needs();
            let due = self.pace.due(needs);
            let until = self.idle_until();
            tokio::select! {
                () = &mut shutdown => return (Ended::Told, call),
                Some(left) = self.left.recv() => {
                    self.note(&left);
                    if self.panics >= MOST_PANICS {
                        return (Ended::Faulty { panics: self.panics }, call);
                    }
                }
                result = reply(&mut call) => {
                    call = None;
                    if let Some(grants) = self.answered(result) {
                        self.take(grants).await;
                    }
                }
                () = sleep_until(due.into()), if call.is_none() => {
                    call = Some(self.call(false));
                }
                () = passed(until) => {
                    tracing::info!("every run is over and nothing was to do for the idle timeout");
                    return (Ended::Idle, call);
                }
            }
            self.report();
        }
    }

    /// When the worker has been idle for so long that it ends.
    fn idle_until(&mut self) -> Option<Instant> {
        let holds = self.desk.held().next().is_some();
        self.idleness.until(holds, Instant::now())
    }

    fn failed_canaries(&self) -> FailedCanaries {
        self.pool.failed_canaries(Instant::now())
    }

    fn needs(&mut self) -> Needs {
        let now = Instant::now();
        if self.refusing_until.is_some_and(|until| until <= now) {
            self.refusing_until = None;
        }
        let backlog = self.pool.backlog();
        Needs {
            news: self.desk.has_news(),
            low: self.demand.is_low(backlog)
                && self.refusing_until.is_none()
                && !self.desk.is_full(),
            lasts: Duration::from_secs_f64(self.demand.seconds_for(backlog.cost).min(1e6)),
        }
    }

    fn call(&mut self, draining: bool) -> Call {
        self.asked = if draining || self.refusing_until.is_some() || self.desk.is_full() {
            0.0
        } else {
            self.demand.wanted(self.pool.backlog())
        };
        let mut request = self.desk.request(self.asked, draining);
        request.failed_canaries = self.failed_canaries();
        tracing::debug!(
            held = request.held.len(),
            partials = request.partials.len(),
            wanted = request.seconds_wanted,
            draining,
            "calling"
        );
        self.pace.started(Instant::now());
        self.transport.sync(request)
    }

    /// Carries out a reply, all but its grants.
    fn answered(&mut self, result: Result<SyncReply, CallError>) -> Option<Vec<Grant>> {
        let now = Instant::now();
        let reply = match result {
            Ok(reply) => reply,
            Err(error) => {
                self.failed(&error, now);
                return None;
            }
        };
        self.was_answered = true;
        if self.pace.failures() > 0 {
            tracing::info!("coordinator {} is there again", self.coordinator);
        }
        reply
            .acknowledgements
            .iter()
            .for_each(|a| self.desk.acknowledged(a));
        for revocation in &reply.revoked {
            self.pool.take_back(LeaseKey {
                task: revocation.task,
                epoch: revocation.epoch,
            });
            self.desk.revoke(revocation);
        }
        self.idleness.heard(reply.all_runs_over);
        let starved = self.asked > 0.0 && reply.grants.is_empty();
        if starved {
            self.say_why_idle(&reply.reason, now);
        }
        let next = Duration::from_millis(reply.next_sync_ms);
        self.pace.answered(now, next, starved);
        self.demand.set_period(self.pace.period());
        Some(reply.grants)
    }

    /// Says at most once a while why there is nothing to do.
    fn say_why_idle(&mut self, reason: &str, now: Instant) {
        tracing::debug!("no work: {reason}");
        let is_idle = self.desk.held().next().is_none();
        let is_time = self.said_idle.is_none_or(|said| now - said >= REPORT_EVERY);
        if is_idle && is_time {
            self.said_idle = Some(now);
            tracing::info!("waiting for work: {reason}");
        }
    }

    fn failed(&mut self, error: &CallError, now: Instant) {
        self.desk.lost();
        let wait = self.pace.failed(now, (self.jitter)());
        let stranger = matches!(error, CallError::Garbled(_)) && !self.was_answered;
        tracing::warn!(
            "coordinator {} {error}{}; attempt {} in {:.1} s; {} held, {} kept",
            self.coordinator,
            if stranger {
                ": is it a coordinator? give the address that the coordinator prints when it starts \
                 (port 7171, unless --listen says otherwise)"
            } else {
                ""
            },
            self.pace.failures() + 1,
            wait.as_secs_f64(),
            plural(self.desk.held().count() as u64, "task"),
            plural(self.desk.outbox.len() as u64, "result"),
        );
    }

    async fn take(&mut self, grants: Vec<Grant>) {
        let mut jobs = Vec::with_capacity(grants.len());
        for grant in grants {
            match self.plans.get(&grant).await {
                Ok(plan) => {
                    let lease = LeaseKey {
                        task: grant.task,
                        epoch: grant.epoch,
                    };
                    jobs.extend(self.desk.take(Job::new(lease, plan, grant.orientation)));
                }
                Err(bad) => self.refuse_work(&format!("run {}: {bad}", grant.task.run)),
            }
        }
        self.pool.push(jobs);
    }

    /// Asks for no work for a while, because some cannot be counted here. Says so once a while.
    fn refuse_work(&mut self, why: &str) {
        self.desk.decline();
        if self.refusing_until.is_none() {
            tracing::error!(
                "{why}; its tasks are given back and no work is taken for {} s",
                REFUSING.as_secs()
            );
        }
        self.refusing_until = Some(Instant::now() + REFUSING);
    }

    /// Files what a thread made of a job.
    fn note(&mut self, left: &Left) {
        match &left.outcome {
            Outcome::Counted(_) => {
                self.demand.note(left.job.cost, left.duration, left.threads);
                self.idleness.counted();
            }
            Outcome::Cancelled | Outcome::Failed(Failure::Overflow) => {}
            Outcome::Failed(Failure::Panic(_)) => self.panics += 1,
            Outcome::Failed(Failure::Setup(error)) => {
                let plan = left.job.plan.hash();
                self.give_back_plan(|job| job.plan.hash() == plan);
                self.refuse_work(&self.why_not(error, left.job.plan.spec().board));
            }
        }
        self.desk.left(left);
    }

    fn why_not(&self, error: &SetupError, board: Board) -> String {
        let SetupError::Memory { given, least } = *error;
        let threads = u64::from(self.desk.threads());
        let size = |bytes: u64| MemorySize::at_least(bytes.saturating_mul(threads));
        format!(
            "this worker cannot count N = {board}: that needs at least --memory {} with --threads \
             {threads}, and there are {}",
            size(least).as_option(),
            size(given)
        )
    }

    /// Gives back the waiting jobs of a plan that cannot be counted here.
    fn give_back_plan(&mut self, of_plan: impl Fn(&Job) -> bool) {
        let waiting = self.pool.take_all_back();
        let (back, stay): (Vec<Arc<Job>>, Vec<_>) =
            waiting.into_iter().partition(|job| of_plan(job));
        back.iter().for_each(|job| self.desk.give_up(job.lease));
        self.pool.push(stay);
    }

    fn report(&mut self) {
        if self.reported.elapsed() < REPORT_EVERY {
            return;
        }
        self.reported = Instant::now();
        let mut summary = self.desk.summary;
        add_times(&mut summary, &self.pool);
        let held = plural(self.desk.held().count() as u64, "task");
        tracing::info!("{summary}; {held} held");
        for (thread, times) in self.pool.times().into_iter().enumerate() {
            tracing::debug!(thread, busy = ?times.busy, idle = ?times.idle, "time of a thread");
        }
    }
}

fn add_times(summary: &mut Summary, pool: &Pool) {
    for times in pool.times() {
        summary.busy += times.busy;
        summary.idle += times.idle;
    }
}

async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

/// The reply to the call on its way; never, where there is none.
async fn reply(call: &mut Option<Call>) -> Result<SyncReply, CallError> {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}
