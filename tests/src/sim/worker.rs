//! A worker process: the machine that the program has, and around it slots that take their time, a
//! spool, a clock and calls.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    num::NonZeroU16,
    sync::LazyLock,
    time::{Duration, Instant},
};

use common::{
    count::SetupError,
    kernel::KernelName,
    plan::TaskId,
    run::{Partial, SessionId, WorkerId},
    sync::{SyncReply, SyncRequest, WorkerInfo},
};
use rand::{RngExt, rngs::ChaCha8Rng};
use worker::machine::{
    Failure, LeaseKey, Left, Machine, Order, Outcome, Settings, SpoolWrite, Work,
};

use super::{
    HOUR, MINUTE, SECOND, Time,
    fate::{self, Counter},
    scenario::Scenario,
    tally::{Fault, Tally},
};

/// A call without an answer is given up after this.
const CALL_TIMEOUT: Time = 30 * SECOND;

/// As the program has them.
const IDLE_TIMEOUT: Duration = Duration::from_millis(5 * MINUTE);
const DRAIN_LIMIT: Duration = Duration::from_secs(25);

/// The origin of all workers' clocks, so far on that they can be set back.
static ORIGIN: LazyLock<Instant> =
    LazyLock::new(|| Instant::now() + Duration::from_millis(100_000 * HOUR));

/// What workers are surrounded by.
pub(super) struct Nature<'a> {
    pub(super) now: Time,
    pub(super) scenario: &'a Scenario,
    pub(super) rng: &'a mut ChaCha8Rng,
    pub(super) tally: &'a mut Tally,
    /// Tasks whose next count is wrong.
    pub(super) planted: &'a mut BTreeSet<TaskId>,
}

/// One machine; its process comes and goes.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) info: WorkerInfo,
    /// Which of the machine's processes this is; messages and events of earlier ones are dropped.
    pub(super) life: u64,
    pub(super) up: bool,
    pub(super) frozen_until: Time,
    /// No message comes through.
    pub(super) cut_off_until: Time,
    pub(super) wake_at: Time,
    /// Its clock behind true time, in milliseconds.
    clock_behind: i64,
    /// Speed of a slot, 1 being the usual.
    speed: f64,
    /// How many threads make a slot.
    crew: NonZeroU16,
    /// Reports wrong counts, by this much and more.
    lie: Option<u64>,
    /// Why it pauses, over all lives.
    paused: Option<&'static str>,
    machine: Machine,
    slots: Vec<Slot>,
    queue: VecDeque<Work>,
    spool: BTreeMap<LeaseKey, Partial>,
    writing: Option<(SpoolWrite, Time)>,
    call: Option<(u64, Time)>,
    calls: u64,
    /// Over all lives.
    pub(super) share: Share,
}

/// What a machine was given, and what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Tasks that it was to count.
    pub granted: u64,
    /// Tasks that it counted.
    pub counted: u64,
    /// Milliseconds that its slots counted, added up.
    pub busy_ms: u64,
}

/// What counts one task at a time.
#[derive(Debug, Default)]
struct Slot {
    running: Option<Running>,
    /// It failed its canaries, or will as soon as it has no task: a thread proves itself between two.
    stopped: bool,
    /// It is to fail its canaries.
    fails: bool,
}

#[derive(Debug)]
struct Running {
    work: Work,
    begun: Time,
    end: Time,
    cancelled: bool,
}

/// What a worker wants done.
#[derive(Debug)]
pub(super) enum Act {
    /// Send this under this number of a call.
    Call(u64, Box<SyncRequest>),
    /// The process ends.
    Exit,
}

fn settings(info: WorkerInfo, kept: Vec<Partial>) -> Settings {
    Settings {
        info,
        idle_timeout: Some(IDLE_TIMEOUT),
        drain_limit: DRAIN_LIMIT,
        kept: Some(kept),
    }
}

impl Worker {
    pub(super) fn new(id: u128, lie: Option<u64>, nature: &mut Nature<'_>) -> Self {
        let rng = &mut *nature.rng;
        let kernels = KernelName::ALL;
        let mut crew = rng.random_range(1..=3);
        let mut slots = rng.random_range(1..=nature.scenario.threads);
        let mut speed = 10f64.powf(rng.random_range(-0.7..0.7));
        let mut memory = 1 << 30;
        let number = usize::try_from(id).map_or(usize::MAX, |id| id.wrapping_sub(1));
        if let Some(make) = nature.scenario.makes.get(number) {
            (crew, slots, speed) = (1, make.threads, make.speed);
            memory = make.memory_bytes_per_thread;
        }
        let info = WorkerInfo {
            id: WorkerId(id),
            session: SessionId(rng.random()),
            name: format!("worker-{id}"),
            version: "sim".to_owned(),
            kernel: kernels[usize::try_from(id % 4).expect("below four")],
            threads: slots * u32::from(crew),
            memory_bytes_per_thread: memory,
            machine: u64::try_from(id).unwrap_or(0),
        };
        Self {
            machine: Machine::new(settings(info.clone(), Vec::new()), *ORIGIN),
            info,
            life: 0,
            up: true,
            frozen_until: 0,
            cut_off_until: 0,
            wake_at: 0,
            clock_behind: 0,
            speed,
            crew: NonZeroU16::new(crew).expect("one at least"),
            lie,
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
        self.lie.is_none()
    }

    /// True time by this worker's clock.
    fn clock(&self, now: Time) -> Instant {
        let behind = Duration::from_millis(self.clock_behind.unsigned_abs());
        let now = *ORIGIN + Duration::from_millis(now);
        match self.clock_behind {
            ..0 => now + behind,
            0.. => now - behind,
        }
    }

    /// The clock leaps.
    pub(super) fn leap(&mut self, rng: &mut ChaCha8Rng) {
        let by = rng.random_range(SECOND..6 * HOUR).cast_signed();
        let back = rng.random_bool(0.2);
        self.clock_behind += if back { by } else { -by };
    }

    /// The process dies; without its spool the machine comes back under a new name.
    pub(super) fn crash(&mut self, new_id: Option<u128>, rng: &mut ChaCha8Rng) {
        // What was being written is there or not, line by line.
        if let Some((write, _)) = self.writing.take() {
            let keep = write.keep.into_iter().map(|p| (LeaseKey::of(&p), p));
            let kept = rng.random_range(0..=keep.len());
            self.spool.extend(keep.take(kept));
        }
        self.end();
        if let Some(id) = new_id {
            self.spool.clear();
            self.info.id = WorkerId(id);
        }
    }

    fn end(&mut self) {
        self.up = false;
        self.life += 1;
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
        self.machine = Machine::new(settings, self.clock(now));
        self.machine
            .handle_pause(self.paused.map(str::to_owned), self.clock(now));
    }

    /// Asked to stop.
    pub(super) fn drain(&mut self, now: Time) {
        self.tell_progress(now);
        self.machine.handle_stop(self.clock(now));
    }

    /// From now on its rules have it pause, for this reason, or go on.
    pub(super) fn pause(&mut self, why: Option<&'static str>, now: Time) {
        self.paused = why;
        if self.up {
            self.tell_progress(now);
            let why = why.map(str::to_owned);
            self.machine.handle_pause(why, self.clock(now));
        }
    }

    /// Its canaries find a slot that counts wrong, sooner or later. Whether they did.
    pub(super) fn canaries(&mut self, now: Time, rng: &mut ChaCha8Rng) -> bool {
        let finds = self.lie.is_some() && !self.slots[0].stopped && rng.random_bool(0.5);
        if finds {
            self.slots[0].stopped = true;
            self.slots[0].fails = true;
            self.fail_canaries(now);
        }
        finds
    }

    /// A slot that counts wrong fails between two tasks: what it counted last was told before.
    fn fail_canaries(&mut self, now: Time) {
        let slot = &mut self.slots[0];
        if slot.fails && slot.running.is_none() {
            slot.fails = false;
            let proven = self.clock(now) - Duration::from_millis(HOUR);
            for _ in 0..self.crew.get() {
                self.machine
                    .handle_failed_canaries(Some(proven), self.clock(now));
            }
        }
    }

    /// Lets time pass; returns what has to be done now.
    pub(super) fn act(&mut self, nature: &mut Nature<'_>) -> Option<Act> {
        let now = nature.now;
        let clock = self.clock(now);
        self.finish(nature);
        self.written(nature);
        if self
            .call
            .is_some_and(|(_, since)| now >= since + CALL_TIMEOUT)
        {
            self.call = None;
            self.machine.handle_lost_call(nature.rng.random(), clock);
        }
        self.machine.handle_timeout(clock);
        if self.machine.poll_end(clock).is_some() {
            self.exit();
            return Some(Act::Exit);
        }
        self.follow_orders(nature);
        self.begin(nature);
        if self.writing.is_none()
            && let Some(write) = self.machine.poll_spool(clock)
        {
            self.writing = Some((write, now + nature.rng.random_range(1..100)));
        }
        if !self.machine.is_call_due(clock) {
            return None;
        }
        self.tell_progress(now);
        let request = self.machine.poll_call(clock)?;
        self.calls += 1;
        self.call = Some((self.calls, now));
        Some(Act::Call(self.calls, Box::new(request)))
    }

    /// When [`Self::act`] has something to do next.
    pub(super) fn next(&mut self, now: Time) -> Time {
        let running = self.slots.iter().filter_map(|slot| slot.running.as_ref());
        let end = running.map(|running| running.end).min();
        let call = self.call.map(|(_, since)| since + CALL_TIMEOUT);
        let write = self.writing.as_ref().map(|(_, end)| *end);
        let clock = self.clock(now);
        let timeout = self.machine.poll_timeout(clock).map(|at| {
            let wait = at
                .saturating_duration_since(clock)
                .as_micros()
                .div_ceil(1_000);
            now + u64::try_from(wait).expect("not so long")
        });
        let times = [end, call, write, timeout].into_iter().flatten();
        times.min().unwrap_or(now + HOUR).max(now + 1)
    }

    /// The answer to a call; those to calls given up, or of a dead process, are dropped.
    pub(super) fn answered(&mut self, call: u64, reply: SyncReply, now: Time) {
        if self.call.is_some_and(|(open, _)| open == call) {
            self.call = None;
            self.machine.handle_reply(reply, self.clock(now));
        }
    }

    fn follow_orders(&mut self, nature: &mut Nature<'_>) {
        let clock = self.clock(nature.now);
        while let Some(order) = self.machine.poll_order() {
            match order {
                Order::Count(work) => {
                    self.share.granted += 1;
                    self.queue.push_back(work);
                }
                Order::Stop(lease) => {
                    self.queue.retain(|work| work.lease != lease);
                    let running = self
                        .slots
                        .iter_mut()
                        .filter_map(|slot| slot.running.as_mut());
                    for running in running.filter(|running| running.work.lease == lease) {
                        running.cancelled = true;
                        running.end = running.end.min(nature.now + 10);
                    }
                }
                Order::MakePlan(spec) => {
                    let plan = nature.scenario.truth.plan.clone();
                    assert_eq!(*plan.spec(), spec, "seed {}", nature.scenario.seed);
                    self.machine.handle_plan(spec, Ok(plan), clock);
                }
            }
        }
    }

    fn finish(&mut self, nature: &mut Nature<'_>) {
        let now = nature.now;
        for slot in 0..self.slots.len() {
            let is_over = |running: &mut Running| running.end <= now;
            let Some(running) = self.slots[slot].running.take_if(is_over) else {
                continue;
            };
            self.share.busy_ms += now - running.begun;
            let took = (now - running.begun) * u64::from(self.crew.get());
            let left = Left {
                outcome: self.outcome(&running, slot, nature),
                work: running.work,
                duration: Duration::from_millis(took),
                threads: self.crew,
            };
            self.machine.handle_left(left, self.clock(now));
        }
        self.fail_canaries(now);
    }

    fn outcome(&mut self, running: &Running, slot: usize, nature: &mut Nature<'_>) -> Outcome {
        if running.cancelled {
            return Outcome::Cancelled;
        }
        if nature.rng.random_bool(nature.scenario.faults.count_error) {
            nature.tally.add(Fault::CountFailed);
            return Outcome::Failed(match nature.rng.random_range(0..3) {
                0 => Failure::Overflow,
                1 => Failure::Panic("a fault".to_owned()),
                _ => Failure::Setup(SetupError::Memory {
                    given: 1,
                    least: 1 << 40,
                }),
            });
        }
        self.share.counted += 1;
        let counter = Counter {
            lie: self.lie,
            slot,
        };
        let task = running.work.lease.task.task;
        let truth = nature.scenario.truth.count(task);
        let count = match nature.planted.remove(&task) {
            true => truth + 8,
            false => fate::count(&running.work, counter, nature.scenario),
        };
        if count != truth {
            nature.tally.add(Fault::CountWrong);
        }
        Outcome::Counted(count)
    }

    fn begin(&mut self, nature: &mut Nature<'_>) {
        let now = nature.now;
        let clock = self.clock(now);
        for slot in &mut self.slots {
            if slot.stopped || slot.running.is_some() {
                continue;
            }
            let Some(work) = self.queue.pop_front() else {
                return;
            };
            self.machine.handle_begun(work.lease, clock);
            let usual = fate::duration(work.lease.task.task, work.cost, nature.scenario);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let takes = (usual as f64 / self.speed) as Time;
            slot.running = Some(Running {
                begun: now,
                end: now + takes.max(1),
                work,
                cancelled: false,
            });
        }
    }

    fn tell_progress(&mut self, now: Time) {
        for running in self.slots.iter().filter_map(|slot| slot.running.as_ref()) {
            let whole = (running.end - running.begun).max(1) as f64;
            let done = (now - running.begun) as f64 / whole;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let cost_done = (done * running.work.cost as f64) as u64;
            self.machine.handle_progress(running.work.lease, cost_done);
        }
    }

    /// The write under way ends, well or not.
    fn written(&mut self, nature: &mut Nature<'_>) {
        let clock = self.clock(nature.now);
        let is_over = |(_, end): &mut (SpoolWrite, Time)| *end <= nature.now;
        if let Some((write, _)) = self.writing.take_if(is_over) {
            let fails = nature.rng.random_bool(nature.scenario.faults.spool_error);
            if fails {
                nature.tally.add(Fault::SpoolError);
            } else {
                self.keep(write);
            }
            self.machine.handle_spooled(!fails, clock);
        }
    }

    fn keep(&mut self, write: SpoolWrite) {
        let keep = write.keep.into_iter().map(|p| (LeaseKey::of(&p), p));
        self.spool.extend(keep);
        for lease in write.forget {
            self.spool.remove(&lease);
        }
    }

    /// A planned end: what could not be handed in is written.
    fn exit(&mut self) {
        if let Some((write, _)) = self.writing.take() {
            self.keep(write);
            self.machine.handle_spooled(true, *ORIGIN);
        }
        if let Some(write) = self.machine.poll_last_write() {
            self.keep(write);
        }
        self.end();
    }
}
