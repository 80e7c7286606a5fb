//! The loop: events in the order of true time.

use std::{cmp::Reverse, collections::BinaryHeap};

use common::{
    run::WorkerId,
    sync::{SyncReply, SyncRequest},
};
use coordinator::{
    sched::{Command, Millis},
    store::{JournalCursor, JournalEntry, RunManifest, RunState},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    HOUR, MINUTE, SECOND, Time,
    coordinator::{Coordinator, Crashed, RUN, Surroundings},
    disk::Disk,
    ledger::Ledger,
    scenario::Scenario,
    worker::{Act, Worker},
};

/// A run that takes longer has stalled: the slowest scenario needs some days.
const LONGEST: Time = 90 * 24 * HOUR;

/// As [`LONGEST`], in messages.
const MOST_MESSAGES: u64 = 1_000_000;

/// The place of a machine that hears no answer.
const NOBODY: usize = usize::MAX;

/// What happened, for those who tune scenarios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// True milliseconds to completion.
    pub time_ms: u64,
    /// Messages that reached the coordinator.
    pub messages: u64,
    /// Times that the coordinator started.
    pub starts: u64,
    /// Tasks that workers counted, needed or not.
    pub counted: u64,
    /// Tasks of the plan.
    pub tasks: u64,
    /// Contradicting counts that were caught.
    pub conflicts: u64,
    /// Equal second counts.
    pub confirmed: u64,
    /// Workers that were found wrong.
    pub caught: u64,
    /// Wrong counts that nobody noticed.
    pub missed: u64,
}

#[derive(Debug)]
enum Event {
    Wake(usize),
    Request(usize, u64, u64, Box<SyncRequest>),
    Reply(usize, u64, u64, Box<SyncReply>),
    Crash(usize),
    Start(usize),
    Freeze(usize),
    Drain(usize),
    CoordinatorCrash,
    CoordinatorStart,
    CoordinatorTimer,
    ClockLeap,
    Pause,
    Resume,
    Ghost,
}

struct Entry {
    at: Time,
    serial: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

struct World {
    now: Time,
    /// The coordinator's clock ahead of true time.
    clock_ahead: u64,
    events: BinaryHeap<Reverse<Entry>>,
    serial: u64,
    workers: Vec<Worker>,
    coordinator: Option<Coordinator>,
    timer_at: Time,
    around: Surroundings,
    outcome: Outcome,
}

/// Runs a scenario to its end and checks everything on the way.
///
/// # Panics
/// If an invariant breaks, the total is wrong, or nothing moves any more; the seed is named.
pub fn run(scenario: Scenario) -> Outcome {
    let mut world = World::new(scenario);
    while !world.is_complete() {
        let Some(Reverse(entry)) = world.events.pop() else {
            panic!("seed {}: no event is left", world.seed());
        };
        world.now = entry.at;
        assert!(
            world.now < LONGEST && world.outcome.messages < MOST_MESSAGES,
            "seed {}: no end in sight: {:#?}",
            world.seed(),
            world.status()
        );
        world.handle(entry.event);
        world.set_timer();
    }
    world.finish()
}

impl World {
    fn new(scenario: Scenario) -> Self {
        let seed = scenario.seed;
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
        let plan = &scenario.truth.plan;
        let manifest = RunManifest {
            run: RUN,
            spec: *plan.spec(),
            plan: plan.hash(),
            plan_version: plan.spec().version(),
            priority: 0,
            created_unix_ms: 0,
            key: None,
        };
        let workers = (0..scenario.workers)
            .map(|number| {
                let lie = (number < scenario.faults.liars).then_some(number as u64);
                let threads = rng.random_range(1..=scenario.threads);
                let speed = 10f64.powf(rng.random_range(-0.7..0.7));
                Worker::new(number as u128 + 1, rng.random(), threads, speed, lie)
            })
            .collect();
        let outcome = Outcome {
            tasks: plan.tasks(),
            ..Outcome::default()
        };
        let around = Surroundings {
            disk: Disk::new(&manifest, seed, scenario.files),
            ledger: Ledger::new(seed, scenario.truth, scenario.faults.liars > 0),
            scenario,
            rng,
            steps: 0,
        };
        let mut world = Self {
            now: 0,
            clock_ahead: 1_000 * HOUR,
            events: BinaryHeap::new(),
            serial: 0,
            workers,
            coordinator: None,
            timer_at: Time::MAX,
            around,
            outcome,
        };
        world.plan_fate();
        world
    }

    fn seed(&self) -> u64 {
        self.around.scenario.seed
    }

    fn status(&self) -> Option<coordinator::sched::RunStatus> {
        let coordinator = self.coordinator.as_ref()?;
        coordinator.scheduler.status(RUN, self.clock())
    }

    fn plan_fate(&mut self) {
        self.after(0, Event::CoordinatorStart);
        for worker in 0..self.workers.len() {
            let start = self.around.rng.random_range(0..2 * MINUTE);
            self.after(start, Event::Wake(worker));
            self.workers[worker].wake_at = start;
            let faults = self.around.scenario.faults.clone();
            self.some_time(faults.worker_crash, Event::Crash(worker));
            self.some_time(faults.worker_freeze, Event::Freeze(worker));
            self.some_time(faults.worker_drain, Event::Drain(worker));
        }
        let faults = self.around.scenario.faults.clone();
        self.some_time(faults.coordinator_crash, Event::CoordinatorCrash);
        self.some_time(faults.clock_leap, Event::ClockLeap);
        self.some_time(faults.pause, Event::Pause);
        self.some_time(faults.ghost, Event::Ghost);
    }

    fn after(&mut self, delay: Time, event: Event) {
        self.serial += 1;
        self.events.push(Reverse(Entry {
            at: self.now + delay,
            serial: self.serial,
            event,
        }));
    }

    /// An event at a random time, `mean` on average; never if that is the end of time.
    fn some_time(&mut self, mean: Time, event: Event) {
        if mean != Time::MAX {
            let delay = self.around.rng.random_range(1..2 * mean);
            self.after(delay, event);
        }
    }

    /// The coordinator's clock.
    fn clock(&self) -> Millis {
        Millis(self.now + self.clock_ahead)
    }

    fn is_complete(&self) -> bool {
        let state = self.coordinator.as_ref().map(Coordinator::state);
        matches!(state, Some(RunState::Complete | RunState::Contradicted))
    }

    fn handle(&mut self, event: Event) {
        let faults = self.around.scenario.faults.clone();
        match event {
            Event::Wake(worker) => self.wake(worker),
            Event::Request(worker, life, call, request) => {
                self.serve(worker, life, call, &request);
            }
            Event::Reply(worker, life, call, reply) => self.deliver(worker, life, call, reply),
            Event::Crash(worker) => {
                self.crash(worker);
                self.some_time(faults.worker_crash, Event::Crash(worker));
            }
            Event::Start(worker) => self.start(worker),
            Event::Freeze(worker) => {
                let long = self.around.rng.random_range(SECOND..20 * MINUTE);
                self.workers[worker].frozen_until = self.now + long;
                self.some_time(faults.worker_freeze, Event::Freeze(worker));
            }
            Event::Drain(worker) => {
                if self.workers[worker].up {
                    self.workers[worker].drain(self.now);
                    self.wake_soon(worker);
                }
                self.some_time(faults.worker_drain, Event::Drain(worker));
            }
            Event::CoordinatorCrash => {
                self.coordinator_crash();
                self.some_time(faults.coordinator_crash, Event::CoordinatorCrash);
            }
            Event::CoordinatorStart => self.coordinator_start(),
            Event::CoordinatorTimer => {
                if self.timer_at == self.now {
                    self.timer_at = Time::MAX;
                    self.with_coordinator(Coordinator::advance);
                }
            }
            Event::ClockLeap => {
                self.leap();
                self.some_time(faults.clock_leap, Event::ClockLeap);
            }
            Event::Pause => {
                self.command(Command::Pause);
                let long = self.around.rng.random_range(SECOND..20 * MINUTE);
                self.after(long, Event::Resume);
            }
            Event::Resume => {
                if self.command(Command::Resume) {
                    self.some_time(faults.pause, Event::Pause);
                } else {
                    self.after(MINUTE, Event::Resume);
                }
            }
            Event::Ghost => {
                self.ghost();
                self.some_time(faults.ghost, Event::Ghost);
            }
        }
    }

    fn wake(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        if !worker.up || worker.wake_at != self.now {
            return;
        }
        if worker.frozen_until > self.now {
            self.wake_soon(number);
            return;
        }
        let act = worker.act(self.now, &self.around.scenario);
        let life = worker.life;
        match act {
            Some(Act::Call(call, request)) => {
                let request = Box::new(request);
                if self.chance(self.around.scenario.faults.repeat) {
                    self.send(Event::Request(number, life, call, request.clone()));
                }
                self.send(Event::Request(number, life, call, request));
            }
            Some(Act::Exit) | None => {}
        }
        self.wake_soon(number);
    }

    /// A machine asks for work and is never heard of again.
    fn ghost(&mut self) {
        let id = u128::from(self.around.rng.random::<u64>()) << 64;
        let threads = self.around.rng.random_range(1..=64);
        let ghost = Worker::new(id, self.around.rng.random(), threads, 1.0, None);
        let request = ghost.request(self.now, &self.around.scenario);
        self.send(Event::Request(NOBODY, 0, 0, Box::new(request)));
    }

    /// Plans the worker's next wake; an earlier plan is forgotten.
    fn wake_soon(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        let at = worker.next(self.now).max(worker.frozen_until);
        worker.wake_at = at;
        self.after(at - self.now, Event::Wake(number));
    }

    fn chance(&mut self, chance: f64) -> bool {
        self.around.rng.random_bool(chance)
    }

    /// Gives a message to the network.
    fn send(&mut self, message: Event) {
        let faults = self.around.scenario.faults.clone();
        if self.chance(faults.loss) {
            return;
        }
        let longest = if self.chance(faults.late) {
            2 * MINUTE
        } else {
            200
        };
        let delay = self.around.rng.random_range(1..longest);
        self.after(delay, message);
    }

    fn serve(&mut self, worker: usize, life: u64, call: u64, request: &SyncRequest) {
        let now = self.clock();
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        self.outcome.messages += 1;
        match coordinator.sync(&mut self.around, request, now) {
            Ok(reply) => self.send(Event::Reply(worker, life, call, Box::new(reply))),
            Err(Crashed) => self.coordinator_crash(),
        }
    }

    fn deliver(&mut self, number: usize, life: u64, call: u64, reply: Box<SyncReply>) {
        let Some(worker) = self.workers.get_mut(number) else {
            return;
        };
        if !worker.up || worker.life != life {
            return;
        }
        if worker.frozen_until > self.now {
            let wait = worker.frozen_until - self.now;
            self.after(wait, Event::Reply(number, life, call, reply));
            return;
        }
        match worker.answered(call, &reply, self.now) {
            Some(Act::Exit) => self.crash_with(number, None),
            Some(Act::Call(..)) | None => {
                worker.wake_at = self.now + 1;
                self.after(1, Event::Wake(number));
            }
        }
    }

    fn crash(&mut self, number: usize) {
        if !self.workers[number].up {
            return;
        }
        let loses_spool = self.chance(self.around.scenario.faults.spool_loss);
        // A liar keeps its name: under two names it would be two liars in agreement.
        let new_id = (loses_spool && self.workers[number].is_honest())
            .then(|| u128::from(self.around.rng.random::<u64>()) << 32);
        self.crash_with(number, new_id);
    }

    fn crash_with(&mut self, number: usize, new_id: Option<u128>) {
        self.workers[number].crash(new_id);
        let long = self.around.rng.random_range(SECOND..10 * MINUTE);
        self.after(long, Event::Start(number));
    }

    fn start(&mut self, number: usize) {
        let session = self.around.rng.random();
        self.workers[number].start(session, self.now);
        self.workers[number].wake_at = self.now + 1;
        self.after(1, Event::Wake(number));
    }

    fn coordinator_start(&mut self) {
        if self.coordinator.is_none() {
            self.outcome.starts += 1;
            let now = self.clock();
            self.coordinator = Some(Coordinator::start(&mut self.around, now));
            // A run whose last count was kept just before the crash is complete at once.
            self.with_coordinator(Coordinator::advance);
        }
    }

    fn coordinator_crash(&mut self) {
        if self.coordinator.take().is_some() {
            let Surroundings { disk, rng, .. } = &mut self.around;
            disk.crash(rng);
            self.timer_at = Time::MAX;
            let down = self.around.rng.random_range(SECOND..15 * MINUTE);
            self.after(down, Event::CoordinatorStart);
        }
    }

    fn with_coordinator(
        &mut self,
        act: impl FnOnce(&mut Coordinator, &mut Surroundings, Millis) -> Result<(), Crashed>,
    ) -> bool {
        let now = self.clock();
        let Some(coordinator) = &mut self.coordinator else {
            return false;
        };
        if act(coordinator, &mut self.around, now).is_err() {
            self.coordinator_crash();
            return false;
        }
        true
    }

    fn command(&mut self, command: Command) -> bool {
        self.with_coordinator(|coordinator, around, now| coordinator.control(around, command, now))
    }

    fn leap(&mut self) {
        let by = self.around.rng.random_range(SECOND..6 * HOUR);
        if self.chance(0.5) {
            self.clock_ahead += by;
        } else {
            self.clock_ahead = self.clock_ahead.saturating_sub(by);
        }
    }

    /// Keeps an event planned for the scheduler's next timeout.
    fn set_timer(&mut self) {
        let Some(coordinator) = &self.coordinator else {
            return;
        };
        let Some(Millis(timeout)) = coordinator.scheduler.next_timeout() else {
            return;
        };
        let at = timeout.saturating_sub(self.clock_ahead).max(self.now + 1);
        // One timer is enough if it is early enough: it plans the next.
        if self.timer_at > at {
            self.timer_at = at;
            self.after(at - self.now, Event::CoordinatorTimer);
        }
    }

    /// The run is complete: what is on disk is the exact total, each task counted once.
    fn finish(mut self) -> Outcome {
        let seed = self.seed();
        let truth = self.around.scenario.truth;
        let store = self.around.disk.settled();
        let mut counts = std::collections::BTreeMap::new();
        let mut by = std::collections::BTreeMap::new();
        let mut visit = |_, entry: &JournalEntry, _: &str| {
            match entry {
                JournalEntry::Accepted(record) => {
                    let before = counts.insert(record.task, record.count);
                    by.insert(record.task, record.worker);
                    assert_eq!(before, None, "seed {seed}: {record:?} is counted twice");
                }
                JournalEntry::Confirmed(_) => {}
                JournalEntry::Quarantined(record) => drop(counts.remove(&record.task)),
            }
            std::ops::ControlFlow::Continue(())
        };
        store
            .journal(RUN, JournalCursor::default(), &mut visit)
            .expect("a sound store");
        assert_eq!(counts.len(), truth.counts.len(), "seed {seed}: tasks");
        let Scenario { faults, .. } = &self.around.scenario;
        for (task, count) in &counts {
            if *count == truth.count(*task) {
                continue;
            }
            self.outcome.missed += 1;
            // Whoever was caught once has no wrong count left; two that agree confirm each other.
            let worker = by[task];
            let caught = self.around.ledger.caught.contains(&worker);
            let undetected = faults.liars > 0 && (!caught || faults.liars_agree);
            assert!(undetected, "seed {seed}: task {task} of worker {worker}");
        }
        let honest = |worker: &WorkerId| worker.0 > faults.liars as u128;
        let wronged = self
            .around
            .ledger
            .caught
            .iter()
            .find(|worker| honest(worker));
        assert!(
            wronged.is_none() || faults.liars_agree,
            "seed {seed}: honest worker {wronged:?} was found wrong"
        );
        self.outcome.caught = self.around.ledger.caught.len() as u64;
        let total: u128 = counts.values().copied().map(u128::from).sum();
        let right = total == truth.total;
        assert!(
            right || self.outcome.missed > 0,
            "seed {seed}: the journal's total"
        );
        assert_eq!(self.around.ledger.done(), counts.len(), "seed {seed}");
        self.outcome.time_ms = self.now;
        self.outcome.counted = self.workers.iter().map(|worker| worker.counted).sum();
        self.outcome.conflicts = self.around.ledger.conflicts;
        self.outcome.confirmed = self.around.ledger.confirmed;
        self.outcome
    }
}
