//! Driver of the [`WorkerEngine`]: one task between pool, spool and coordinator.

#[cfg(test)]
mod tests;
pub(crate) mod transport;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::catch_unwind,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use cli::terminal::StatusBar;
use common::{
    board::Board,
    messages::{run::LeaseKey, sync::SyncReply},
    plan::{Plan, PlanSpec},
    text::{age, plural},
};
use proto::CallId;
use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    task::JoinSet,
    time::sleep_until,
};

use crate::{
    config::Coordinator,
    engine::{ExitReason, PoolCommand, Settings, WorkerEngine},
    pool::{Job, Pool, PoolEvent},
    spool::{FailureMark, Spool, Writer},
    summary::Summary,
};
use transport::{Call, CallError, Transport};

/// Interval of the summary in the log.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Number of failed calls in a row that are logged without a minimum interval.
const FIRST_WARNINGS: u32 = 5;

const LINE_INTERVAL: Duration = Duration::from_millis(500);

/// The driver of the engine.
pub(crate) struct CoordinatorLoop {
    transport: Transport,
    engine: WorkerEngine,
    pool: Pool,
    events: UnboundedReceiver<PoolEvent>,
    /// The jobs of the pool.
    jobs: BTreeMap<LeaseKey, Arc<Job>>,
    /// Jobs that threads have started.
    started: BTreeSet<LeaseKey>,
    /// Plans being created; a large one takes a while and must not block the runtime.
    plans: JoinSet<(PlanSpec, Result<Plan, String>)>,
    spool: Option<Writer>,
    failure_mark: Option<FailureMark>,
    logged: Instant,
    /// Time of the last warning about a failed call, since the coordinator's last reply.
    warned: Option<Instant>,
    /// Time of the coordinator's last reply.
    answered: Option<Instant>,
    pub(crate) status_bar: Option<StatusBar>,
    next_line: Instant,
    pub(crate) pause: Option<watch::Receiver<Option<String>>>,
    stopping: bool,
    jitter: Jitter,
}

/// A source of random numbers from 0 to 1 for the backoff.
pub(crate) type Jitter = fn() -> f64;

#[derive(Debug)]
pub(crate) struct LinkResult {
    pub(crate) reason: ExitReason,
    pub(crate) summary: Summary,
    /// Number of results that were neither submitted nor written to the spool.
    pub(crate) lost: usize,
}

impl CoordinatorLoop {
    /// Creates a link between `coordinator`, a pool with its events, and a spool.
    pub(crate) fn new(
        coordinator: Coordinator,
        settings: Settings,
        (pool, events): (Pool, UnboundedReceiver<PoolEvent>),
        spool: Option<Spool>,
        jitter: Jitter,
    ) -> Self {
        let identity = spool.as_ref().map(|spool| spool.identity.clone()).unwrap_or_default();
        let unacknowledged = spool.as_ref().map(|spool| spool.unacknowledged().copied().collect());
        let failure_mark = spool.as_ref().map(|spool| FailureMark::of(&spool.directory));
        let failed_before = failure_mark.as_ref().is_some_and(FailureMark::is_set);
        let settings = Settings { unacknowledged, failed_before, ..settings };
        Self {
            transport: Transport::new(coordinator, identity),
            engine: WorkerEngine::new(settings, Instant::now()),
            pool,
            events,
            jobs: BTreeMap::new(),
            started: BTreeSet::new(),
            plans: JoinSet::new(),
            spool: spool.map(Writer::new),
            failure_mark,
            logged: Instant::now(),
            warned: None,
            answered: None,
            status_bar: None,
            next_line: Instant::now() + LINE_INTERVAL,
            pause: None,
            stopping: false,
            jitter,
        }
    }

    /// Serves until the engine ends, at the latest by a drain after `shutdown`.
    pub(crate) async fn run(mut self, shutdown: impl Future<Output = ()>) -> LinkResult {
        let reason = self.serve(shutdown).await;
        self.write_last().await;
        LinkResult { reason, summary: self.summary(), lost: self.engine.unsaved() }
    }

    async fn serve(&mut self, shutdown: impl Future<Output = ()>) -> ExitReason {
        let mut shutdown = pin!(shutdown);
        let mut call: Option<(CallId, Call)> = None;
        self.handle_pause();
        loop {
            let now = Instant::now();
            self.engine.handle_timeout(now);
            if let Some(reason) = self.engine.poll_end(now) {
                return reason;
            }
            self.carry_out(now);
            if call.is_none() {
                call = self.call(now);
            }
            let next_line = self.status_bar.as_ref().map(|_| self.next_line);
            let timeout = self.engine.poll_timeout(now).into_iter().chain(next_line).min();
            let write = self.spool.as_mut().filter(|spool| spool.is_busy()).map(Writer::ended);
            let answer = call.as_mut().map(|(id, call)| async { (*id, call.await) });
            tokio::select! {
                () = &mut shutdown, if !self.stopping => {
                    self.stopping = true;
                    self.update_progress();
                    self.engine.handle_stop(Instant::now());
                }
                Some(event) = self.events.recv() => self.handle_event(event),
                (id, result) = end_of(answer) => {
                    call = None;
                    self.handle_answer(id, result);
                }
                Some(Ok((spec, plan))) = self.plans.join_next() => {
                    self.engine.handle_plan(spec, plan, Instant::now());
                }
                written = end_of(write) => self.handle_written(written),
                Ok(()) = end_of(self.pause.as_mut().map(|pause| pause.changed())) => {
                    self.handle_pause();
                }
                () = end_of(timeout.map(|at| sleep_until(at.into()))) => {}
            }
            self.log_summary();
            self.show_status_line();
        }
    }

    fn handle_pause(&mut self) {
        if let Some(pause) = &mut self.pause {
            let reason = pause.borrow_and_update().clone();
            self.update_progress();
            self.engine.handle_pause(reason, Instant::now());
        }
    }

    /// Carries out the engine's commands and its write to the spool.
    fn carry_out(&mut self, now: Instant) {
        let mut push = Vec::new();
        let mut stop = BTreeSet::new();
        while let Some(command) = self.engine.poll_command() {
            match command {
                PoolCommand::Count(work) => {
                    let job = Arc::new(Job::new(work));
                    self.jobs.insert(job.work.lease, job.clone());
                    push.push(job);
                }
                PoolCommand::Stop(lease) => {
                    if let Some(job) = self.jobs.get(&lease) {
                        job.cancel();
                        stop.insert(lease);
                    }
                }
                PoolCommand::MakePlan(spec) => {
                    self.plans.spawn_blocking(move || (spec, make_plan(spec)));
                }
            }
        }
        if !push.is_empty() {
            self.pool.push(push);
        }
        if !stop.is_empty() {
            for lease in self.pool.remove_waiting(&stop) {
                self.jobs.remove(&lease);
            }
        }
        if let Some(spool) = &mut self.spool
            && let Some(write) = self.engine.poll_spool(now)
        {
            spool.start(write);
        }
    }

    /// Starts the call that is due, if any.
    fn call(&mut self, now: Instant) -> Option<(CallId, Call)> {
        if !self.engine.is_call_due(now) {
            return None;
        }
        self.update_progress();
        let request = self.engine.poll_call(now)?;
        tracing::debug!(
            held = request.held.len(),
            partials = request.partials.len(),
            wanted = request.seconds_wanted,
            draining = request.draining,
            "sync"
        );
        let id = CallId(rand::random());
        Some((id, self.transport.sync(id, request)))
    }

    /// Reports the progress of the threads to the engine.
    fn update_progress(&mut self) {
        for lease in &self.started {
            if let Some(job) = self.jobs.get(lease) {
                self.engine.handle_progress(*lease, job.cost_done());
            }
        }
    }

    fn handle_event(&mut self, event: PoolEvent) {
        match event {
            PoolEvent::Started(lease, at) => {
                self.started.insert(lease);
                self.engine.handle_started(lease, at);
            }
            PoolEvent::Finished(result) => {
                self.started.remove(&result.work.lease);
                self.jobs.remove(&result.work.lease);
                self.engine.handle_job_finished(result, Instant::now());
            }
            PoolEvent::SelfTestPassed => self.engine.handle_self_test_passed(),
            PoolEvent::SelfTestFailed(passed) => {
                self.failure_mark.iter_mut().for_each(FailureMark::set);
                self.engine.handle_self_test_failed(passed, Instant::now());
            }
        }
    }

    fn handle_answer(&mut self, id: CallId, result: Result<SyncReply, CallError>) {
        let now = Instant::now();
        match result {
            Ok(reply) => {
                self.answered = Some(now);
                self.warned = None;
                if self.engine.failures() > 0 {
                    tracing::info!("reconnected to coordinator {}", self.transport.coordinator);
                }
                self.engine.handle_reply(reply, now);
                if !self.engine.has_suspects() {
                    self.failure_mark.iter_mut().for_each(FailureMark::remove);
                }
            }
            Err(error) => {
                let wait = self.engine.handle_lost_call((self.jitter)(), now);
                self.log_lost_call(id, &error, wait);
            }
        }
    }

    fn log_lost_call(&mut self, id: CallId, error: &CallError, wait: Duration) {
        let is_recent = self.warned.is_some_and(|at| at.elapsed() < LOG_INTERVAL);
        if is_recent && self.engine.failures() > FIRST_WARNINGS {
            return;
        }
        self.warned = Some(Instant::now());
        let may_be_another_server = error.may_be_another_server() && self.answered.is_none();
        tracing::warn!(
            call = %id,
            "coordinator {} {error}{}; retry {} in {:.1} s; {} leased, {} buffered",
            self.transport.coordinator,
            if may_be_another_server {
                ": is it a coordinator? give the address that the coordinator prints when it starts \
                 (port 7171 by default)"
            } else {
                ""
            },
            self.engine.failures() + 1,
            wait.as_secs_f64(),
            plural(self.engine.held(), "task"),
            plural(self.engine.unacknowledged(), "result"),
        );
    }

    /// Takes the outcome of a write; `None` if it panicked.
    fn handle_written(&mut self, succeeded: Option<bool>) {
        match succeeded {
            Some(succeeded) => self.engine.handle_spooled(succeeded, Instant::now()),
            None => {
                tracing::error!("a write to the spool panicked; results may be lost");
                self.spool = None;
                self.engine.handle_spool_lost();
            }
        }
    }

    /// Writes the unsubmitted results: ends the current write, then makes one more.
    async fn write_last(&mut self) {
        for _ in 0..2 {
            let Some(spool) = &mut self.spool else {
                return;
            };
            if let Some(write) = self.engine.poll_last_write() {
                spool.start(write);
            }
            if !spool.is_busy() {
                return;
            }
            let succeeded = spool.ended().await;
            self.handle_written(succeeded);
        }
    }

    /// Returns the engine's summary with the times of the threads.
    fn summary(&self) -> Summary {
        let mut summary = self.engine.summary();
        for times in self.pool.times() {
            summary.busy += times.busy;
            summary.idle += times.idle;
        }
        summary
    }

    fn log_summary(&mut self) {
        if self.logged.elapsed() < LOG_INTERVAL {
            return;
        }
        self.logged = Instant::now();
        let summary = Summary { unacknowledged: 0, ..self.summary() };
        tracing::info!("{summary}; {} leased", plural(self.engine.held(), "task"));
        for (thread, times) in self.pool.times().into_iter().enumerate() {
            tracing::debug!(thread, busy = ?times.busy, idle = ?times.idle, "time of a thread");
        }
    }

    fn show_status_line(&mut self) {
        let (Some(bar), now) = (&self.status_bar, Instant::now()) else { return };
        if now < self.next_line {
            return;
        }
        self.next_line = now + LINE_INTERVAL;
        let task = |lease: &LeaseKey| {
            let job = self.jobs.get(lease)?;
            #[expect(clippy::cast_precision_loss, reason = "for display")]
            let part = job.cost_done() as f64 / job.work.cost.max(1) as f64;
            Some((job.work.plan.spec().board, job.work.lease.task.task.0, part))
        };
        let tasks: Vec<_> = self.started.iter().filter_map(task).collect();
        let waiting = self.jobs.len().saturating_sub(tasks.len());
        let pool = (self.pool.threads(), waiting);
        bar.show(0.0, status_line(&self.engine, pool, &tasks, self.answered, now));
    }
}

/// Formats the status line, most important first, since a terminal may truncate it.
///
/// `tasks` are those being counted: board, task, and the finished part, 0 to 1. `waiting` more are leased. The coordinator's last reply came at `answered`.
fn status_line(
    engine: &WorkerEngine,
    (threads, waiting): (u32, usize),
    tasks: &[(Board, u64, f64)],
    answered: Option<Instant>,
    now: Instant,
) -> String {
    let task = match tasks.first() {
        Some((board, task, part)) => {
            let (tasks, percent) = (plural(tasks.len(), "task"), part * 100.0);
            format!(", {tasks}: N = {board} task {task} {percent:.0} %")
        }
        None => ", no task".to_owned(),
    };
    let draining = if engine.is_draining() { ", draining" } else { "" };
    let paused = engine.paused().map(|why| format!(", paused: {why}")).unwrap_or_default();
    let contact = match (engine.failures(), answered) {
        (0, Some(at)) => {
            format!("contact {} ago", age(now.saturating_duration_since(at).as_secs_f64()))
        }
        (0, None) => "connecting".to_owned(),
        (failures, _) => {
            let next = engine.retry_at().map(|at| at.saturating_duration_since(now));
            let next = next.map(|wait| format!(", next in {}", age(wait.as_secs_f64())));
            format!("no answer, {}{}", plural(failures, "attempt"), next.unwrap_or_default())
        }
    };
    format!(
        "{}{task}{draining}{paused} | {contact} | {:.2} reference cores | {} done, {waiting} queued | {} in spool",
        plural(threads, "thread"),
        engine.cores(),
        engine.summary().counted,
        engine.unacknowledged()
    )
}

fn make_plan(spec: PlanSpec) -> Result<Plan, String> {
    match catch_unwind(|| Plan::new(spec)) {
        Ok(plan) => plan.map_err(|bad| bad.to_string()),
        Err(_) => Err("creating the plan panicked: this is a bug in the program".to_owned()),
    }
}

/// Waits for a future; forever if there is none.
async fn end_of<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
