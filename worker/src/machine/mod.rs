//! What a worker decides: which work to ask for, what to tell the coordinator and when, what to keep
//! until it is acknowledged, when to stop.
//!
//! A state machine without I/O and without a clock: what happens is told to `handle_…` with the time
//! at which it happened, by a clock that never goes back; what is to be done then is asked of
//! `poll_…`. Whoever drives it
//! 1. carries out every [`Order`] that [`Machine::poll_order`] yields, and every write that
//!    [`Machine::poll_spool`] does, and tells of their ends;
//! 2. sends what [`Machine::poll_call`] yields, one call at a time, and tells of the answer or its
//!    loss;
//! 3. calls [`Machine::handle_timeout`] when [`Machine::poll_timeout`] comes;
//! 4. ends when [`Machine::poll_end`] says so, after what [`Machine::poll_last_write`] yields.
//!
//! Work is counted in *slots*: a slot is whatever counts one task at a time, a thread or a crew of
//! several. The whole inventory travels in every call, so that nothing here remembers calls.

mod calls;
mod canaries;
mod demand;
mod drain;
mod grants;
mod idle;
mod lease;
mod leases;
mod outbox;
mod pace;
mod patience;
mod pause;
mod plans;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use common::{
    plan::{Plan, PlanSpec},
    run::Partial,
    sync::{Acknowledgement, Grant, Revocation, SyncReply, SyncRequest, Verdict, WorkerInfo},
};

pub use lease::{Failure, LeaseKey, Left, Outcome, Work};
pub use outbox::SpoolWrite;
pub use plans::NoPlan;

use self::{
    canaries::Canaries,
    demand::Demand,
    drain::Drain,
    idle::Idleness,
    leases::{Held, Leases},
    outbox::Outbox,
    pace::Pace,
    patience::Patience,
    pause::Pause,
    plans::Plans,
};
use crate::summary::{Summary, plural};

/// How often a line tells why there is nothing to do.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// How long a pause takes to begin at most, however long a stop may: an owner wants the machine now.
const LONGEST_PAUSING: Duration = Duration::from_secs(25);

/// What a machine is told once.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who this worker is.
    pub info: WorkerInfo,
    /// After this time without work, once every run is over, it ends by itself; never if `None`.
    pub idle_timeout: Option<Duration>,
    /// How long a planned stop takes at most.
    pub drain_limit: Duration,
    /// What the spool kept of an earlier life; `None` where there is no spool.
    pub kept: Option<Vec<Partial>>,
}

/// What is to be done with work.
#[derive(Clone, Debug)]
pub enum Order {
    /// Count this, after all that was ordered before.
    Count(Work),
    /// Stop counting it, or do not begin; its leaving its slot is still told.
    Stop(LeaseKey),
    /// Make this plan, and tell [`Machine::handle_plan`] what came of it.
    MakePlan(PlanSpec),
}

/// Why a worker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Told,
    /// An operator wants it to, by way of the coordinator.
    Drained,
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

/// All that a worker knows.
#[derive(Debug)]
pub struct Machine {
    info: WorkerInfo,
    drain_limit: Duration,
    leases: Leases,
    /// Grants of plans that are being made.
    awaiting: Vec<Grant>,
    outbox: Outbox,
    plans: Plans,
    pace: Pace,
    demand: Demand,
    idleness: Idleness,
    canaries: Canaries,
    /// Leases were given up since the last call began.
    given_up: bool,
    /// What the call on its way asked for.
    calling: Option<f64>,
    /// Until then no work is asked for.
    refusing_until: Option<Instant>,
    panics: u32,
    said_idle: Option<Instant>,
    drain: Option<Drain>,
    pause: Option<Pause>,
    orders: VecDeque<Order>,
    summary: Summary,
}

impl Machine {
    /// A machine that begins to serve now.
    pub fn new(settings: Settings, now: Instant) -> Self {
        let Settings {
            info,
            idle_timeout,
            drain_limit,
            kept,
        } = settings;
        Self {
            demand: Demand::new(info.threads),
            info,
            drain_limit,
            leases: Leases::default(),
            awaiting: Vec::new(),
            outbox: Outbox::new(kept),
            plans: Plans::default(),
            pace: Pace::new(now),
            idleness: Idleness::new(idle_timeout),
            canaries: Canaries::default(),
            given_up: false,
            calling: None,
            refusing_until: None,
            panics: 0,
            said_idle: None,
            drain: None,
            pause: None,
            orders: VecDeque::new(),
            summary: Summary::default(),
        }
    }

    /// How many leases it holds.
    pub fn held(&self) -> usize {
        self.leases.len() + self.awaiting.len()
    }

    /// How many results wait for an acknowledgement.
    pub fn unacknowledged(&self) -> usize {
        self.outbox.len()
    }

    /// How many results would be lost if the process ended now.
    pub fn unkept(&self) -> usize {
        self.outbox.unkept()
    }

    /// How often in a row calls have failed.
    pub fn failures(&self) -> u32 {
        self.pace.failures()
    }

    /// Its speed, in cores of the reference machine; 0 before anything was measured.
    pub fn cores(&self) -> f64 {
        self.demand.cores()
    }

    /// What it has done so far; the threads' times are not its business.
    pub fn summary(&self) -> Summary {
        Summary {
            unacknowledged: self.outbox.len() as u64,
            ..self.summary
        }
    }

    /// A slot began this work.
    pub fn handle_begun(&mut self, lease: LeaseKey, now: Instant) {
        self.leases.begin(lease, now);
    }

    /// So much of this work's cost is done.
    pub fn handle_progress(&mut self, lease: LeaseKey, cost_done: u64) {
        self.leases.progress(lease, cost_done);
    }

    /// Work left its slot. A count whose lease was taken back meanwhile is welcome too.
    pub fn handle_left(&mut self, left: Left, now: Instant) {
        let Left {
            work,
            outcome,
            duration,
            threads,
        } = left;
        if let Some(drain) = &mut self.drain {
            drain.changed();
        }
        match outcome {
            Outcome::Counted(count) => {
                self.demand.note(work.cost, duration, threads);
                self.idleness.counted();
                self.leases.remove(work.lease);
                self.summary.counted += 1;
                let partial = Partial {
                    task: work.lease.task,
                    epoch: work.lease.epoch,
                    count,
                    kernel: self.info.kernel,
                    orientation: work.orientation,
                    duration_us: micros(duration),
                };
                self.outbox.put(partial, now);
            }
            Outcome::Cancelled => self.drop_lease(work.lease),
            Outcome::Failed(failure) => {
                let lease = work.lease;
                tracing::error!("{lease} has no count: {failure}; the lease is given back");
                self.drop_lease(lease);
                self.failed(&work.plan, &failure, now);
            }
        }
    }

    /// A counting thread has proved itself on its canaries.
    pub fn handle_proof(&mut self) {
        self.canaries.passed();
    }

    /// A counting thread that was last proven then, or never, failed its canaries, and counts no more.
    pub fn handle_failed_canaries(&mut self, proven: Option<Instant>, now: Instant) {
        self.canaries.failed(proven);
        let failed = self.canaries.threads();
        self.demand
            .set_threads(self.info.threads.saturating_sub(failed));
        if failed >= self.info.threads {
            self.stop(Ended::Unproven, now);
        }
    }

    /// The plan of this spec was made, or there is none.
    pub fn handle_plan(&mut self, spec: PlanSpec, made: Result<Plan, NoPlan>, now: Instant) {
        self.plans.keep(spec, made);
        let of_spec = |grant: &mut Grant| grant.spec == spec;
        let grants: Vec<Grant> = self.awaiting.extract_if(.., of_spec).collect();
        for grant in grants {
            self.admit(grant, now);
        }
    }

    /// A write of the spool has ended.
    pub fn handle_spooled(&mut self, succeeded: bool, now: Instant) {
        self.outbox.written(succeeded, now);
    }

    /// There is no spool any more.
    pub fn handle_spool_lost(&mut self) {
        self.outbox.lose_spool();
    }

    /// The coordinator has answered the call.
    pub fn handle_reply(&mut self, reply: SyncReply, now: Instant) {
        let asked = self.calling.take().unwrap_or(0.0);
        let unacknowledged = self.outbox.len();
        for answer in &reply.acknowledgements {
            self.acknowledged(answer, now);
        }
        for revocation in &reply.revoked {
            self.revoked(revocation);
        }
        self.idleness.heard(reply.all_runs_over);
        let starved = asked > 0.0 && reply.grants.is_empty();
        if starved {
            self.say_why_idle(&reply.reason, now);
        }
        let next = Duration::from_millis(reply.next_sync_ms);
        self.pace.answered(now, next, starved);
        self.demand.set_period(self.pace.period());
        let open = !reply.grants.is_empty() || self.has_news();
        let progress = self.outbox.len() <= unacknowledged / 2;
        if reply.drain && self.drain.is_none() {
            tracing::info!("an operator has this worker stop: started again, it counts again");
            self.stop(Ended::Drained, now);
        }
        match &mut self.drain {
            Some(drain) => drain.answered(now, open, progress),
            // Granted before the coordinator knew: absent from the next inventory, it is released.
            None if self.pause.is_some() => self.given_up |= !reply.grants.is_empty(),
            None => reply
                .grants
                .into_iter()
                .for_each(|grant| self.take(grant, now)),
        }
        // From now on, if it is idle.
        self.idle_until(now);
    }

    /// The call brought no answer: it was carried out or not, and whatever it told has to be told
    /// again. The next attempt is after the time returned, of which `jitter`, drawn from 0 to 1, is
    /// a part.
    pub fn handle_lost_call(&mut self, jitter: f64, now: Instant) -> Duration {
        self.calling = None;
        self.outbox.lost();
        self.given_up = true;
        let may_leave = self.held() == 0 && self.outbox.is_safe();
        if let Some(drain) = &mut self.drain {
            drain.unanswered(now, may_leave);
        }
        self.pace.failed(now, jitter)
    }

    /// The worker is to stop.
    pub fn handle_stop(&mut self, now: Instant) {
        self.stop(Ended::Told, now);
    }

    /// Counting is to pause, for this reason, or to go on. What is not nearly done is given back.
    pub fn handle_pause(&mut self, why: Option<String>, now: Instant) {
        if self.drain.is_some() || self.paused() == why.as_deref() {
            return;
        }
        // The coordinator hears of it at once.
        self.given_up = true;
        match (why, &mut self.pause) {
            (Some(why), Some(pause)) => pause.go_on(why),
            (Some(why), None) => {
                tracing::info!("counting pauses: {why}");
                let pause = Pause::new(why, now, self.drain_limit.min(LONGEST_PAUSING));
                self.give_back(pause.patience());
                self.pause = Some(pause);
            }
            (None, _) => {
                tracing::info!("counting goes on");
                self.pause = None;
            }
        }
    }

    /// Why nothing is counted for the time being, if so.
    pub fn paused(&self) -> Option<&str> {
        self.pause.as_ref().map(Pause::why)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let impatient = |patience: Patience| now >= patience.ends();
        if self
            .pause
            .as_ref()
            .map(Pause::patience)
            .is_some_and(impatient)
        {
            self.give_up_where(|_| true);
        }
        match &self.drain {
            Some(drain) if impatient(drain.patience()) => self.give_up_where(|_| true),
            Some(_) => {}
            None => {
                if self.idle_until(now).is_some_and(|until| until <= now) {
                    tracing::info!("every run is over and nothing was to do for the idle timeout");
                    self.stop(Ended::Idle, now);
                }
            }
        }
    }

    /// What is to be done with work next.
    pub fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// What is to be written to the spool now; its end is told to [`Self::handle_spooled`].
    pub fn poll_spool(&mut self, now: Instant) -> Option<SpoolWrite> {
        self.outbox.poll_write(now)
    }

    /// What is to be written to the spool before the process ends.
    pub fn poll_last_write(&mut self) -> Option<SpoolWrite> {
        self.outbox.poll_last_write()
    }

    /// Whether [`Self::poll_call`] yields a call now.
    pub fn is_call_due(&self, now: Instant) -> bool {
        self.call_at(now).is_some_and(|due| due <= now)
    }

    /// What to tell the coordinator now.
    pub fn poll_call(&mut self, now: Instant) -> Option<SyncRequest> {
        if !self.is_call_due(now) {
            return None;
        }
        let wanted = self.wanted(now);
        self.calling = Some(wanted);
        self.pace.started(now);
        if let Some(drain) = &mut self.drain {
            drain.called();
        }
        Some(self.request(wanted, now))
    }

    /// When something is to be done next, if nothing else happens.
    pub fn poll_timeout(&mut self, now: Instant) -> Option<Instant> {
        let drain = self.drain.as_ref();
        let later = |at: &Instant| now < *at;
        let times = [
            self.call_at(now),
            self.outbox.write_at(),
            self.refusing_until.filter(later),
            drain.map(|drain| drain.patience().ends()).filter(later),
            self.pause
                .as_ref()
                .map(|pause| pause.patience().ends())
                .filter(later),
            drain.map(Drain::ends),
            self.idle_until(now),
        ];
        times.into_iter().flatten().min()
    }

    /// Whether the worker ends now, and why.
    pub fn poll_end(&self, now: Instant) -> Option<Ended> {
        let empty = self.held() == 0 && self.outbox.len() == 0;
        self.drain.as_ref()?.end(now, empty)
    }

    /// When the worker has been idle for so long that it ends.
    fn idle_until(&mut self, now: Instant) -> Option<Instant> {
        if self.drain.is_some() {
            return None;
        }
        let holds = self.held() > 0;
        self.idleness.until(holds, now)
    }

    /// Drops a partial that the coordinator has answered for, whatever the verdict.
    fn acknowledged(&mut self, answer: &Acknowledgement, now: Instant) {
        let lease = LeaseKey {
            task: answer.task,
            epoch: answer.epoch,
        };
        if !self.outbox.acknowledge(lease, now) {
            return;
        }
        match answer.verdict {
            Verdict::Accepted => self.summary.accepted += 1,
            Verdict::Duplicate => self.summary.duplicates += 1,
            Verdict::Conflict => {
                self.summary.conflicts += 1;
                // Whose it is that is wrong the votes of others decide; who loses them is told.
                tracing::warn!(
                    "the count of {lease} and another one disagree: {}",
                    answer.reason
                );
            }
            Verdict::Refused => {
                self.summary.refused += 1;
                tracing::warn!("the count of {lease} was refused: {}", answer.reason);
            }
        }
    }

    /// Stops what the coordinator has taken back. Nothing needs to be told about it.
    fn revoked(&mut self, revocation: &Revocation) {
        let lease = LeaseKey {
            task: revocation.task,
            epoch: revocation.epoch,
        };
        let awaited = self.awaiting.len();
        self.awaiting
            .retain(|grant| LeaseKey::granted(grant) != lease);
        let was_held = self.leases.remove(lease).is_some();
        if was_held {
            self.orders.push_back(Order::Stop(lease));
        }
        if was_held || self.awaiting.len() < awaited {
            tracing::info!("{lease} is taken back: {}", revocation.reason);
            self.summary.revoked += 1;
        }
    }

    fn give_up_where(&mut self, hopeless: impl Fn(&Held) -> bool) {
        for lease in self.leases.which(hopeless) {
            self.orders.push_back(Order::Stop(lease));
            self.drop_lease(lease);
        }
    }

    /// This lease is not held any more, and has no count.
    fn drop_lease(&mut self, lease: LeaseKey) {
        if self.leases.remove(lease).is_some() {
            self.given_up = true;
            self.summary.abandoned += 1;
        }
    }

    /// Begins a planned stop, unless there is one: leases that nobody began are given back at once,
    /// and so are those that would outlast the grace. What cannot be handed in stays in the outbox.
    fn stop(&mut self, why: Ended, now: Instant) {
        if self.drain.is_some() {
            return;
        }
        let drain = Drain::new(why, now, self.drain_limit);
        self.give_back(drain.patience());
        self.drain = Some(drain);
        self.pause = None;
        tracing::info!(
            "stopping with {} under way and {} to hand in",
            plural(self.leases.len() as u64, "task"),
            plural(self.outbox.len() as u64, "result")
        );
    }

    /// Gives back what nobody began, and what would not be done while there is patience. The coordinator
    /// is called at once in any case.
    fn give_back(&mut self, patience: Patience) {
        let speed = self.demand.speed();
        self.summary.abandoned += self.awaiting.len() as u64;
        self.awaiting.clear();
        self.give_up_where(|held| held.begun.is_none() || patience.is_hopeless(held, speed));
    }

    /// Says at most once a while why there is nothing to do.
    fn say_why_idle(&mut self, reason: &str, now: Instant) {
        tracing::debug!("no work: {reason}");
        let is_time = self
            .said_idle
            .is_none_or(|said| now.saturating_duration_since(said) >= SAY_EVERY);
        if self.held() == 0 && is_time {
            self.said_idle = Some(now);
            tracing::info!("waiting for work: {reason}");
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
