//! The link to the coordinator: one task on the async runtime that drives the worker's
//! [`Machine`], between the pool, the spool and the coordinator. It decides nothing.

#[cfg(test)]
mod tests;
mod transport;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::catch_unwind,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    plan::{Plan, PlanSpec},
    sync::SyncReply,
};
use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    task::JoinSet,
    time::sleep_until,
};

use crate::{
    config::Address,
    glance::Glance,
    machine::{Ended, LeaseKey, Machine, NoPlan, Order},
    pool::{Event, Job, Pool},
    spool::Writer,
    summary::{Summary, plural},
};
use transport::{Call, LostCall, Transport};

/// How often a line tells what the worker is doing.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// How often whoever watches is told what the worker is doing.
const GLANCE_EVERY: Duration = Duration::from_millis(500);

/// What drives the machine.
pub(crate) struct Link {
    coordinator: Address,
    transport: Transport,
    machine: Machine,
    pool: Pool,
    events: UnboundedReceiver<Event>,
    /// What the pool has.
    jobs: BTreeMap<LeaseKey, Arc<Job>>,
    /// Of which threads have begun these.
    begun: BTreeSet<LeaseKey>,
    /// A large board's plan may take a while to make, which must not stop the runtime.
    plans: JoinSet<Made>,
    spool: Option<Writer>,
    /// The coordinator's address is known to be one.
    was_answered: bool,
    reported: Instant,
    /// When the coordinator answered last.
    answered: Option<Instant>,
    glances: Option<watch::Sender<Option<Glance>>>,
    glanced: Instant,
    /// Why counting is to pause, if it is; nobody says where that never happens.
    pauses: Option<watch::Receiver<Option<String>>>,
    stopping: bool,
    /// Draws from 0 to 1.
    jitter: Jitter,
}

/// What came of making a plan.
type Made = (PlanSpec, Result<Plan, NoPlan>);

/// Where the back-off's randomness comes from.
pub(crate) type Jitter = fn() -> f64;

/// How a worker's life came to its end.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) ended: Ended,
    pub(crate) summary: Summary,
    /// Results that could neither be handed in nor kept.
    pub(crate) lost: usize,
}

impl Link {
    /// A link that drives `machine` for `coordinator`, with a pool that tells of its `events`.
    pub(crate) fn new(
        coordinator: Address,
        machine: Machine,
        (pool, events): (Pool, UnboundedReceiver<Event>),
        spool: Option<Writer>,
        jitter: Jitter,
    ) -> Self {
        Self {
            transport: Transport::new(&coordinator),
            coordinator,
            machine,
            pool,
            events,
            jobs: BTreeMap::new(),
            begun: BTreeSet::new(),
            plans: JoinSet::new(),
            spool,
            was_answered: false,
            reported: Instant::now(),
            answered: None,
            glances: None,
            glanced: Instant::now(),
            pauses: None,
            stopping: false,
            jitter,
        }
    }

    /// The same, which tells `glances` what the worker is doing.
    pub(crate) fn watched(mut self, glances: Option<watch::Sender<Option<Glance>>>) -> Self {
        self.glances = glances;
        self
    }

    /// The same, which pauses when it is told why.
    pub(crate) fn pausing(mut self, pauses: watch::Receiver<Option<String>>) -> Self {
        self.pauses = Some(pauses);
        self
    }

    /// Serves until the machine ends, which it does some time after `shutdown`, if not before.
    pub(crate) async fn run(mut self, shutdown: impl Future<Output = ()>) -> End {
        let ended = self.serve(shutdown).await;
        self.write_last().await;
        let mut summary = self.machine.summary();
        self.add_times(&mut summary);
        if let Some(spool) = self.spool {
            spool.close().await;
        }
        End {
            ended,
            summary,
            lost: self.machine.unkept(),
        }
    }

    async fn serve(&mut self, shutdown: impl Future<Output = ()>) -> Ended {
        let mut shutdown = pin!(shutdown);
        let mut call: Option<Call> = None;
        self.pause();
        loop {
            let now = Instant::now();
            self.machine.handle_timeout(now);
            if let Some(ended) = self.machine.poll_end(now) {
                return ended;
            }
            self.carry_out(now);
            if call.is_none() {
                call = self.call(now);
            }
            let until = self.machine.poll_timeout(now);
            let next_glance = self.next_glance();
            tokio::select! {
                () = &mut shutdown, if !self.stopping => {
                    self.stopping = true;
                    self.tell_progress();
                    self.machine.handle_stop(Instant::now());
                }
                Some(event) = self.events.recv() => self.note(event),
                result = reply(&mut call) => {
                    call = None;
                    self.answered(result);
                }
                Some(Ok((spec, made))) = self.plans.join_next() => {
                    self.machine.handle_plan(spec, made, Instant::now());
                }
                written = written(&mut self.spool) => self.written(written),
                () = changed(&mut self.pauses) => self.pause(),
                () = passed(until) => {}
                () = passed(next_glance) => {}
            }
            self.report();
            self.glance();
        }
    }

    /// Pauses, or goes on, as it is told to.
    fn pause(&mut self) {
        if let Some(pauses) = &mut self.pauses {
            let why = pauses.borrow_and_update().clone();
            self.tell_progress();
            self.machine.handle_pause(why, Instant::now());
        }
    }

    /// Does what the machine wants done with work, plans and the spool.
    fn carry_out(&mut self, now: Instant) {
        let mut push = Vec::new();
        let mut stop = BTreeSet::new();
        while let Some(order) = self.machine.poll_order() {
            match order {
                Order::Count(work) => {
                    let job = Arc::new(Job::new(work));
                    self.jobs.insert(job.work.lease, job.clone());
                    push.push(job);
                }
                Order::Stop(lease) => {
                    if let Some(job) = self.jobs.get(&lease) {
                        job.cancel();
                        stop.insert(lease);
                    }
                }
                Order::MakePlan(spec) => {
                    self.plans.spawn_blocking(move || (spec, make_plan(spec)));
                }
            }
        }
        if !push.is_empty() {
            self.pool.push(push);
        }
        if !stop.is_empty() {
            for lease in self.pool.take_back(&stop) {
                self.jobs.remove(&lease);
            }
        }
        if let Some(spool) = &mut self.spool
            && let Some(write) = self.machine.poll_spool(now)
        {
            spool.write(write);
        }
    }

    /// The call that is due, if one is.
    fn call(&mut self, now: Instant) -> Option<Call> {
        if !self.machine.is_call_due(now) {
            return None;
        }
        self.tell_progress();
        let request = self.machine.poll_call(now)?;
        tracing::debug!(
            held = request.held.len(),
            partials = request.partials.len(),
            wanted = request.seconds_wanted,
            draining = request.draining,
            "sync"
        );
        Some(self.transport.sync(request))
    }

    /// Tells the machine how far the threads are.
    fn tell_progress(&mut self) {
        for lease in &self.begun {
            if let Some(job) = self.jobs.get(lease) {
                self.machine.handle_progress(*lease, job.cost_done());
            }
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Begun(lease, at) => {
                self.begun.insert(lease);
                self.machine.handle_begun(lease, at);
            }
            Event::Left(left) => {
                self.begun.remove(&left.work.lease);
                self.jobs.remove(&left.work.lease);
                self.machine.handle_left(left, Instant::now());
            }
            Event::Proven => self.machine.handle_proof(),
            Event::Unproven(proven) => {
                self.machine.handle_failed_canaries(proven, Instant::now());
            }
        }
    }

    fn answered(&mut self, result: Result<SyncReply, LostCall>) {
        let now = Instant::now();
        match result {
            Ok(reply) => {
                self.was_answered = true;
                self.answered = Some(now);
                if self.machine.failures() > 0 {
                    tracing::info!("coordinator {} is there again", self.coordinator);
                }
                self.machine.handle_reply(reply, now);
            }
            Err(lost) => {
                let wait = self.machine.handle_lost_call((self.jitter)(), now);
                self.complain(&lost, wait);
            }
        }
    }

    fn complain(&self, LostCall { id, error }: &LostCall, wait: Duration) {
        let stranger = error.may_be_a_strangers() && !self.was_answered;
        tracing::warn!(
            call = %id,
            "coordinator {} {error}{}; attempt {} in {:.1} s; {} held, {} kept",
            self.coordinator,
            if stranger {
                ": is it a coordinator? give the address that the coordinator prints when it starts \
                 (port 7171, unless --listen says otherwise)"
            } else {
                ""
            },
            self.machine.failures() + 1,
            wait.as_secs_f64(),
            plural(self.machine.held() as u64, "task"),
            plural(self.machine.unacknowledged() as u64, "result"),
        );
    }

    /// A write of the spool has ended, or its thread has.
    fn written(&mut self, succeeded: Option<bool>) {
        match succeeded {
            Some(succeeded) => self.machine.handle_spooled(succeeded, Instant::now()),
            None => {
                tracing::error!("the spool's thread panicked; what it held may be lost");
                self.spool = None;
                self.machine.handle_spool_lost();
            }
        }
    }

    /// Brings to the disk what could not be handed in: after the write under way one more.
    async fn write_last(&mut self) {
        for _ in 0..2 {
            let Some(spool) = &mut self.spool else {
                return;
            };
            if let Some(write) = self.machine.poll_last_write() {
                spool.write(write);
            }
            if !spool.is_busy() {
                return;
            }
            let succeeded = spool.ended().await;
            self.written(succeeded);
        }
    }

    fn report(&mut self) {
        if self.reported.elapsed() < REPORT_EVERY {
            return;
        }
        self.reported = Instant::now();
        let mut summary = self.machine.summary();
        summary.unacknowledged = 0;
        self.add_times(&mut summary);
        let held = plural(self.machine.held() as u64, "task");
        tracing::info!("{summary}; {held} held");
        for (thread, times) in self.pool.times().into_iter().enumerate() {
            tracing::debug!(thread, busy = ?times.busy, idle = ?times.idle, "time of a thread");
        }
    }

    /// When somebody is to be told again what the worker is doing, if anybody is.
    fn next_glance(&self) -> Option<Instant> {
        self.glances.as_ref().map(|_| self.glanced + GLANCE_EVERY)
    }

    fn glance(&mut self) {
        let Some(glances) = &self.glances else { return };
        let now = Instant::now();
        if now < self.glanced + GLANCE_EVERY {
            return;
        }
        self.glanced = now;
        let task = |lease: &LeaseKey| {
            let job = self.jobs.get(lease)?;
            // A part for people.
            #[expect(clippy::cast_precision_loss)]
            let part = job.cost_done() as f64 / job.work.cost.max(1) as f64;
            Some((job.work.plan.spec().board, job.work.lease.task.task.0, part))
        };
        let tasks: Vec<_> = self.begun.iter().filter_map(task).collect();
        let glance = Glance {
            threads: self.pool.threads(),
            waiting: self.jobs.len().saturating_sub(tasks.len()),
            tasks,
            counted: self.machine.summary().counted,
            cores: self.machine.cores(),
            unacknowledged: self.machine.unacknowledged(),
            answered: self.answered,
            failures: self.machine.failures(),
            draining: self.stopping,
            paused: self.machine.paused().map(str::to_owned),
        };
        glances.send_replace(Some(glance));
    }

    fn add_times(&self, summary: &mut Summary) {
        for times in self.pool.times() {
            summary.busy += times.busy;
            summary.idle += times.idle;
        }
    }
}

fn make_plan(spec: PlanSpec) -> Result<Plan, NoPlan> {
    let made = catch_unwind(|| Plan::new(spec));
    Ok(made.map_err(|_| NoPlan::Panicked)??)
}

/// Something else is said of pauses; never, where nobody says anything.
async fn changed(pauses: &mut Option<watch::Receiver<Option<String>>>) {
    if let Some(told) = pauses
        && told.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

/// The reply to the call on its way; never, where there is none.
async fn reply(call: &mut Option<Call>) -> Result<SyncReply, LostCall> {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

/// The end of the write under way; never, where there is none.
async fn written(spool: &mut Option<Writer>) -> Option<bool> {
    match spool {
        Some(spool) if spool.is_busy() => spool.ended().await,
        Some(_) | None => std::future::pending().await,
    }
}
