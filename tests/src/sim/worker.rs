//! A worker process: the real engine with simulated slots, spool, clock and calls.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    num::NonZeroU16,
    sync::LazyLock,
    time::{Duration, Instant},
};

use common::{
    compute::kernel::KernelName,
    count::{Orientation, SetupError},
    messages::{
        run::{LeaseKey, Partial, Proof, RunId, SessionId, WorkerId},
        sync::{SyncReply, SyncRequest, WorkerInfo},
    },
    plan::TaskId,
};
use rand::{RngExt, rngs::ChaCha8Rng};
use worker::engine::{
    Failure, JobOutcome, JobResult, PoolCommand, Settings, SpoolWrite, Work, WorkerEngine,
};

use super::{
    Fault, HOUR, MINUTE, SECOND, Tally, Time,
    scenario::{Conduct, Scenario},
};

const CALL_TIMEOUT: Time = 30 * SECOND;

/// The longest time between two calls of a worker that get a reply, in a faultless scenario.
const MAX_SYNC: Time = 22 * SECOND;

const IDLE_TIMEOUT: Duration = Duration::from_millis(5 * MINUTE);
const DRAIN_LIMIT: Duration = Duration::from_secs(25);

/// Origin of all workers' clocks, late enough that they can be set back.
static ORIGIN: LazyLock<Instant> =
    LazyLock::new(|| Instant::now() + Duration::from_millis(100_000 * HOUR));

/// Time, scenario and randomness, passed to workers.
pub(super) struct Environment {
    pub(super) now: Time,
    pub(super) scenario: Scenario,
    pub(super) rng: ChaCha8Rng,
    pub(super) tally: Tally,
    /// Tasks that the first liar has counted.
    pub(super) bait: BTreeSet<TaskId>,
    /// The last lease of each task and its holder.
    pub(super) leases: BTreeMap<TaskId, (LeaseKey, WorkerId)>,
    pub(super) served: BTreeMap<RunId, Served>,
}

/// A run, as the coordinator serves it.
pub(super) struct Served {
    priority: i32,
    /// Since when it has pending tasks.
    pub(super) pending: Option<Time>,
    /// Since when it has pending tasks and none is leased.
    pub(super) idle: Option<Time>,
}

impl Served {
    pub(super) fn new(priority: i32) -> Self {
        Self { priority, pending: None, idle: None }
    }
}

impl Environment {
    /// Checks that a thread starts no task while a run of higher priority has had pending tasks for longer than a
    /// sync interval.
    fn check_priority(&self, run: RunId) {
        let Some(own) = self.served.get(&run) else { return };
        for (other, served) in &self.served {
            let is_late = served.pending.is_some_and(|since| self.now > since + MAX_SYNC);
            assert!(
                served.priority <= own.priority || !is_late,
                "seed {}: a task of run {run} goes before those of run {other}",
                self.scenario.seed
            );
        }
    }
}

/// A machine whose worker process starts and stops.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) id: WorkerId,
    pub(super) info: WorkerInfo,
    /// Number of the process; messages and events of earlier ones are dropped.
    pub(super) incarnation: u64,
    pub(super) up: bool,
    pub(super) frozen_until: Time,
    /// No message arrives before this time.
    pub(super) partitioned_until: Time,
    pub(super) wake_at: Time,
    /// Lag of the worker's clock behind true time, in milliseconds.
    clock_behind: i64,
    /// Speed of a slot; 1 is normal.
    speed: f64,
    /// Threads per slot.
    crew: NonZeroU16,
    /// Number of a liar, on which its errors depend.
    liar: Option<u64>,
    /// Reason for the pause, which outlasts a process.
    paused: Option<&'static str>,
    engine: WorkerEngine,
    slots: Vec<Slot>,
    queue: VecDeque<Work>,
    spool: BTreeMap<LeaseKey, Partial>,
    writing: Option<(SpoolWrite, Time)>,
    call: Option<(u64, Time)>,
    calls: u64,
    /// Work of all processes of the machine.
    pub(super) share: Share,
}

/// Work of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub granted: u64,
    pub counted: u64,
    /// Sum of the counting times of its slots, in milliseconds.
    pub busy_ms: u64,
}

/// A simulated crew, which counts one task at a time.
#[derive(Debug, Default)]
struct Slot {
    running: Option<Running>,
    /// Whether the slot has failed a self-test, or will as soon as it has no task.
    stopped: bool,
    /// Whether the slot will fail its next self-test.
    fails: bool,
}

#[derive(Debug)]
struct Running {
    work: Work,
    begun: Time,
    end: Time,
    cancelled: bool,
}

#[derive(Debug)]
pub(super) enum Action {
    /// Send this call, with its number.
    Call(u64, Box<SyncRequest>),
    /// The process ends.
    Exit,
}

fn settings(info: WorkerInfo, kept: Vec<Partial>) -> Settings {
    Settings {
        info,
        idle_timeout: Some(IDLE_TIMEOUT),
        drain_limit: DRAIN_LIMIT,
        unacknowledged: Some(kept),
        failed_before: false,
    }
}

/// Returns the engine of a worker that has passed its first self-test.
fn tested_engine(settings: Settings, now: Instant) -> WorkerEngine {
    let mut engine = WorkerEngine::new(settings, now);
    engine.handle_self_test_passed();
    engine
}

impl Worker {
    pub(super) fn new(id: u128, liar: Option<u64>, environment: &mut Environment) -> Self {
        let rng = &mut environment.rng;
        let kernels = KernelName::ALL;
        let mut crew = rng.random_range(1..=3);
        let mut slots = rng.random_range(1..=environment.scenario.max_slots);
        let mut speed = 10f64.powf(rng.random_range(-0.7..0.7));
        let mut memory = 1 << 30;
        let number = usize::try_from(id).map_or(usize::MAX, |id| id.wrapping_sub(1));
        if let Some(spec) = environment.scenario.machines.get(number) {
            (crew, slots, speed) = (1, spec.threads, spec.speed);
            memory = spec.memory_bytes_per_thread;
        }
        let info = WorkerInfo {
            session: SessionId(rng.random()),
            name: format!("worker-{id}"),
            version: "sim".to_owned(),
            kernel: kernels[usize::try_from(id % 5).expect("below five")],
            threads: slots * u32::from(crew),
            memory_bytes_per_thread: memory,
            machine: u64::try_from(id).unwrap_or(0),
            ..WorkerInfo::default()
        };
        Self {
            engine: tested_engine(settings(info.clone(), Vec::new()), *ORIGIN),
            id: WorkerId(id),
            info,
            incarnation: 0,
            up: true,
            frozen_until: 0,
            partitioned_until: 0,
            wake_at: 0,
            clock_behind: 0,
            speed,
            crew: NonZeroU16::new(crew).expect("one at least"),
            liar,
            paused: None,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            queue: VecDeque::new(),
            spool: BTreeMap::new(),
            writing: None,
            call: None,
            calls: 0,
            share: Share::default(),
        }
    }

    pub(super) fn is_honest(&self) -> bool {
        self.liar.is_none()
    }

    /// Converts true time into the time of this worker's clock.
    fn clock(&self, now: Time) -> Instant {
        let behind = Duration::from_millis(self.clock_behind.unsigned_abs());
        let now = *ORIGIN + Duration::from_millis(now);
        match self.clock_behind {
            ..0 => now + behind,
            0.. => now - behind,
        }
    }

    pub(super) fn jump_clock(&mut self, rng: &mut ChaCha8Rng) {
        let by = rng.random_range(SECOND..6 * HOUR).cast_signed();
        let back = rng.random_bool(0.2);
        self.clock_behind += if back { by } else { -by };
    }

    /// Kills the process; a new id means that the spool is lost.
    pub(super) fn crash(&mut self, new_id: Option<u128>, rng: &mut ChaCha8Rng) {
        // A part of the current write is on disk.
        if let Some((write, _)) = self.writing.take() {
            let keep = write.keep.into_iter().map(|p| (p.lease, p));
            let kept = rng.random_range(0..=keep.len());
            self.spool.extend(keep.take(kept));
        }
        self.end();
        if let Some(id) = new_id {
            self.spool.clear();
            self.id = WorkerId(id);
        }
    }

    fn end(&mut self) {
        self.up = false;
        self.incarnation += 1;
        self.queue.clear();
        self.call = None;
        self.writing = None;
        for slot in &mut self.slots {
            *slot = Slot::default();
        }
    }

    pub(super) fn start(&mut self, session: u64, now: Time) {
        self.up = true;
        self.info.session = SessionId(session);
        let kept = self.spool.values().copied().collect();
        let settings = settings(self.info.clone(), kept);
        self.engine = tested_engine(settings, self.clock(now));
        self.engine.handle_pause(self.paused.map(str::to_owned), self.clock(now));
    }

    pub(super) fn drain(&mut self, now: Time) {
        self.report_progress(now);
        self.engine.handle_stop(self.clock(now));
    }

    /// Pauses or resumes.
    pub(super) fn pause(&mut self, why: Option<&'static str>, now: Time) {
        self.paused = why;
        if self.up {
            self.report_progress(now);
            let why = why.map(str::to_owned);
            self.engine.handle_pause(why, self.clock(now));
        }
    }

    /// Randomly makes a liar's first slot fail its self-test; returns whether it does.
    pub(super) fn self_test(&mut self, now: Time, rng: &mut ChaCha8Rng) -> bool {
        let fails = self.liar.is_some() && !self.slots[0].stopped && rng.random_bool(0.5);
        if fails {
            self.slots[0].stopped = true;
            self.slots[0].fails = true;
            self.fail_self_test(now);
        }
        fails
    }

    /// Fails the self-test of the first slot, if that is due and the slot has no task.
    fn fail_self_test(&mut self, now: Time) {
        let slot = &mut self.slots[0];
        if slot.fails && slot.running.is_none() {
            slot.fails = false;
            let passed = self.clock(now) - Duration::from_millis(HOUR);
            for _ in 0..self.crew.get() {
                self.engine.handle_self_test_failed(Some(passed), self.clock(now));
            }
        }
    }

    /// Advances to the current time and returns the next action.
    pub(super) fn act(&mut self, environment: &mut Environment) -> Option<Action> {
        let now = environment.now;
        let clock = self.clock(now);
        self.finish(environment);
        self.finish_write(environment);
        if self.call.is_some_and(|(_, since)| now >= since + CALL_TIMEOUT) {
            self.call = None;
            self.engine.handle_lost_call(environment.rng.random(), clock);
        }
        self.engine.handle_timeout(clock);
        if self.engine.poll_end(clock).is_some() {
            self.exit();
            return Some(Action::Exit);
        }
        self.handle_commands(environment);
        self.begin(environment);
        if self.writing.is_none()
            && let Some(write) = self.engine.poll_spool(clock)
        {
            self.writing = Some((write, now + environment.rng.random_range(1..100)));
        }
        if !self.engine.is_call_due(clock) {
            return None;
        }
        self.report_progress(now);
        let mut request = self.engine.poll_call(clock)?;
        if self.does(Conduct::Forges, environment) {
            request.partials.extend(self.forged(environment));
        }
        self.calls += 1;
        self.call = Some((self.calls, now));
        Some(Action::Call(self.calls, Box::new(request)))
    }

    fn does(&self, conduct: Conduct, environment: &Environment) -> bool {
        self.liar.is_some() && environment.scenario.faults.conduct == conduct
    }

    /// Returns wrong counts of random tasks, with the leases of others and with invented ones.
    fn forged(&self, environment: &mut Environment) -> Vec<Partial> {
        let Environment { leases, rng, scenario, .. } = environment;
        let mut forge = |lease: &LeaseKey| {
            let invented = LeaseKey { proof: Proof(rng.random()), ..*lease };
            Partial {
                lease: if rng.random() { *lease } else { invented },
                count: scenario.truth.count(lease.task.task) + 8,
                kernel: self.info.kernel,
                orientation: Orientation::Upright,
                duration_us: 1,
            }
        };
        let of_others = leases.values().filter(|(_, holder)| *holder != self.id);
        of_others.rev().take(8).map(|(lease, _)| forge(lease)).collect()
    }

    /// Returns the time of the next action.
    pub(super) fn next(&mut self, now: Time) -> Time {
        let running = self.slots.iter().filter_map(|slot| slot.running.as_ref());
        let end = running.map(|running| running.end).min();
        let call = self.call.map(|(_, since)| since + CALL_TIMEOUT);
        let write = self.writing.as_ref().map(|(_, end)| *end);
        let clock = self.clock(now);
        let timeout = self.engine.poll_timeout(clock).map(|at| {
            let wait = at.saturating_duration_since(clock).as_micros().div_ceil(1_000);
            now + u64::try_from(wait).expect("not so long")
        });
        let times = [end, call, write, timeout].into_iter().flatten();
        times.min().unwrap_or(now + HOUR).max(now + 1)
    }

    /// Handles a reply, unless its call has timed out or its process has ended.
    pub(super) fn handle_reply(&mut self, call: u64, reply: SyncReply, now: Time) {
        if self.call.is_some_and(|(open, _)| open == call) {
            self.call = None;
            self.engine.handle_reply(reply, self.clock(now));
        }
    }

    fn handle_commands(&mut self, environment: &mut Environment) {
        let clock = self.clock(environment.now);
        while let Some(command) = self.engine.poll_command() {
            match command {
                PoolCommand::Count(work) => {
                    self.share.granted += 1;
                    environment.leases.insert(work.lease.task.task, (work.lease, self.id));
                    self.queue.push_back(work);
                }
                PoolCommand::Stop(lease) => {
                    self.queue.retain(|work| work.lease != lease);
                    let running = self.slots.iter_mut().filter_map(|slot| slot.running.as_mut());
                    for running in running.filter(|running| running.work.lease == lease) {
                        running.cancelled = true;
                        running.end = running.end.min(environment.now + 10);
                    }
                }
                PoolCommand::MakePlan(spec) => {
                    let plan = environment.scenario.truth.plan.clone();
                    assert_eq!(*plan.spec(), spec, "seed {}", environment.scenario.seed);
                    self.engine.handle_plan(spec, Ok(plan), clock);
                }
            }
        }
    }

    fn finish(&mut self, environment: &mut Environment) {
        let now = environment.now;
        for slot in 0..self.slots.len() {
            let is_over = |running: &mut Running| running.end <= now;
            let Some(running) = self.slots[slot].running.take_if(is_over) else {
                continue;
            };
            self.share.busy_ms += now - running.begun;
            let took = (now - running.begun) * u64::from(self.crew.get());
            let result = JobResult {
                kernel: self.info.kernel,
                outcome: self.outcome(&running, slot, environment),
                work: running.work,
                duration: Duration::from_millis(took),
                threads: self.crew,
            };
            self.engine.handle_job_finished(result, self.clock(now));
        }
        self.fail_self_test(now);
    }

    fn outcome(
        &mut self,
        running: &Running,
        slot: usize,
        environment: &mut Environment,
    ) -> JobOutcome {
        if running.cancelled {
            return JobOutcome::Cancelled;
        }
        let task = running.work.lease.task.task;
        let faults = &environment.scenario.faults;
        let is_due = self.does(Conduct::Fails, environment) || faults.poison == Some(task);
        if is_due || environment.rng.random_bool(faults.count_error) {
            environment.tally.add(Fault::CountFailed);
            return JobOutcome::Failed(match environment.rng.random_range(0..3) {
                0 => Failure::Overflow,
                1 => Failure::Panic("a fault".to_owned()),
                _ => Failure::Setup(SetupError::Memory { given: 1, least: 1 << 40 }),
            });
        }
        self.share.counted += 1;
        let truth = environment.scenario.truth.count(task);
        let faults = &environment.scenario.faults;
        if self.liar == Some(0) {
            environment.bait.insert(task);
        }
        let count = match self.liar {
            // The first liar lies to be barred, once the others have joined.
            Some(0) if faults.accomplice => truth + u64::from(environment.now >= faults.late_liars),
            Some(liar) if faults.accomplice => {
                let is_void = running.work.orientation == Orientation::Upright
                    && environment.bait.contains(&task);
                truth + u64::from(is_void && environment.scenario.lies(liar, task))
            }
            Some(_) if faults.bit_errors => {
                truth
                    + u64::from(environment.rng.random_bool(faults.lie_rate))
                        * environment.rng.random_range(1..100)
            }
            _ => environment.scenario.count(&running.work, (self.liar, slot)),
        };
        if count != truth {
            environment.tally.add(Fault::CountWrong);
        }
        JobOutcome::Counted(count)
    }

    fn begin(&mut self, environment: &mut Environment) {
        let now = environment.now;
        let clock = self.clock(now);
        let hoards = self.does(Conduct::Hoards, environment);
        for slot in &mut self.slots {
            if slot.stopped || slot.running.is_some() {
                continue;
            }
            let Some(work) = self.queue.pop_front() else {
                return;
            };
            environment.check_priority(work.lease.task.run);
            self.engine.handle_started(work.lease, clock);
            let unscaled = environment.scenario.duration(work.lease.task.task, work.cost);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let takes = match hoards {
                true => 1_000 * HOUR,
                false => (unscaled as f64 / self.speed) as Time,
            };
            slot.running =
                Some(Running { begun: now, end: now + takes.max(1), work, cancelled: false });
        }
    }

    fn report_progress(&mut self, now: Time) {
        for running in self.slots.iter().filter_map(|slot| slot.running.as_ref()) {
            let whole = (running.end - running.begun).max(1) as f64;
            let done = (now - running.begun) as f64 / whole;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let cost_done = (done * running.work.cost as f64) as u64;
            self.engine.handle_progress(running.work.lease, cost_done);
        }
    }

    /// Finishes the current write, or fails it.
    fn finish_write(&mut self, environment: &mut Environment) {
        let clock = self.clock(environment.now);
        let is_over = |(_, end): &mut (SpoolWrite, Time)| *end <= environment.now;
        if let Some((write, _)) = self.writing.take_if(is_over) {
            let fails = environment.rng.random_bool(environment.scenario.faults.spool_error);
            if fails {
                environment.tally.add(Fault::SpoolError);
            } else {
                self.apply_write(write);
            }
            self.engine.handle_spooled(!fails, clock);
        }
    }

    fn apply_write(&mut self, write: SpoolWrite) {
        let keep = write.keep.into_iter().map(|p| (p.lease, p));
        self.spool.extend(keep);
        for lease in write.forget {
            self.spool.remove(&lease);
        }
    }

    /// Ends the process after a drain; unsubmitted results stay in the spool.
    fn exit(&mut self) {
        if let Some((write, _)) = self.writing.take() {
            self.apply_write(write);
            self.engine.handle_spooled(true, *ORIGIN);
        }
        if let Some(write) = self.engine.poll_last_write() {
            self.apply_write(write);
        }
        self.end();
    }
}
