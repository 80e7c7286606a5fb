//! The loop: events in the order of true time.

mod end;
mod events;
mod fleet;
mod served;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
    sync::atomic::AtomicU64,
};

use common::plan::TaskId;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

use self::events::{Entry, Event};
use super::{
    HOUR, MINUTE, Time,
    coordinator::Coordinator,
    disk::Disk,
    fate,
    scenario::Scenario,
    store::Shared,
    tally::{Fault, Tally},
    worker::{Nature, Share, Worker},
};

/// A run that takes longer has stalled: the slowest scenario needs some days.
const LONGEST: Time = 120 * 24 * HOUR;

/// As [`LONGEST`], in messages.
const MOST_MESSAGES: u64 = 3_000_000;

/// The place of a machine that hears no answer.
const NOBODY: usize = usize::MAX;

/// What happened, for those who tune scenarios.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// True milliseconds to completion.
    pub time_ms: u64,
    /// Messages that reached the coordinator.
    pub messages: u64,
    /// Groups in which the driver answered them.
    pub groups: u64,
    /// Messages that were answered in one group with others.
    pub shared: u64,
    /// Times that the coordinator started.
    pub starts: u64,
    /// Tasks that workers counted, needed or not.
    pub counted: u64,
    /// What each machine had of it.
    pub shares: Vec<Share>,
    /// Tasks of the plan.
    pub tasks: u64,
    /// Contradicting counts that were caught.
    pub conflicts: u64,
    /// Equal second counts.
    pub confirmed: u64,
    /// Workers that were found wrong.
    pub caught: u64,
    /// Workers that were barred.
    pub barred: u64,
    /// Comparisons of a barred worker's counts that were decided until it was barred, at most.
    pub compared: u64,
    /// Wrong counts that nobody noticed.
    pub missed: u64,
    /// Whether the total is that of the board.
    pub exact: bool,
    /// What went wrong.
    pub faults: Tally,
}

struct World {
    scenario: Scenario,
    rng: ChaCha8Rng,
    now: Time,
    /// The coordinator's clock ahead of true time.
    clock_ahead: u64,
    clock: &'static AtomicU64,
    events: BinaryHeap<Reverse<Entry>>,
    serial: u64,
    workers: Vec<Worker>,
    coordinator: Option<Coordinator>,
    disk: Shared,
    step_at: Time,
    steps: u64,
    runs: u64,
    planted: BTreeSet<TaskId>,
    complete: bool,
    outcome: Outcome,
}

/// Runs a scenario to its end and checks everything on the way.
///
/// # Panics
/// If an invariant breaks, the total is wrong, or nothing moves any more; the seed is named.
pub fn run(scenario: Scenario) -> Outcome {
    let mut world = World::new(scenario);
    while !world.complete {
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
    }
    world.finish()
}

impl World {
    fn new(scenario: Scenario) -> Self {
        let seed = scenario.seed;
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
        let mut tally = Tally::default();
        let planted = fate::drawn(scenario.truth, scenario.faults.planted, &mut rng);
        let mut planted: BTreeSet<TaskId> = planted.into_iter().collect();
        let mut nature = Nature {
            now: 0,
            scenario: &scenario,
            rng: &mut rng,
            tally: &mut tally,
            planted: &mut planted,
        };
        let workers = (0..scenario.workers)
            .map(|number| {
                let lie = (number < scenario.faults.liars).then_some(number as u64);
                Worker::new(number as u128 + 1, lie, &mut nature)
            })
            .collect();
        let outcome = Outcome {
            tasks: scenario.truth.plan.tasks(),
            ..Outcome::default()
        };
        let mut world = Self {
            disk: Shared::new(Disk::new(&scenario)),
            scenario,
            rng,
            now: 0,
            clock_ahead: 1_000 * HOUR,
            // A driver keeps it for as long as it likes.
            clock: Box::leak(Box::default()),
            events: BinaryHeap::new(),
            serial: 0,
            workers,
            coordinator: None,
            step_at: Time::MAX,
            steps: 0,
            runs: 0,
            planted,
            complete: false,
            outcome,
        };
        world.plan_fate();
        world
    }

    fn seed(&self) -> u64 {
        self.scenario.seed
    }

    fn status(&self) -> Option<coordinator::sched::RunStatus> {
        let coordinator = self.coordinator.as_ref()?;
        let now = coordinator::sched::Millis(self.now + self.clock_ahead);
        coordinator.scheduler().status(coordinator.run(), now)
    }

    fn plan_fate(&mut self) {
        self.after(0, Event::CoordinatorStart);
        let faults = self.scenario.faults.clone();
        for worker in 0..self.workers.len() {
            let start = self.rng.random_range(0..2 * MINUTE);
            self.workers[worker].up = false;
            self.after(start, Event::Start(worker));
            self.some_time(faults.worker_crash, Event::Crash(worker));
            self.some_time(faults.worker_freeze, Event::Freeze(worker));
            self.some_time(faults.worker_drain, Event::Drain(worker));
            self.some_time(faults.worker_pause, Event::WorkerPause(worker));
            self.some_time(faults.partition, Event::CutOff(worker));
            self.some_time(faults.worker_clock, Event::WorkerClock(worker));
            if faults.bad_core && !self.workers[worker].is_honest() {
                self.some_time(HOUR, Event::Canaries(worker));
            }
        }
        self.some_time(faults.coordinator_crash, Event::CoordinatorCrash);
        self.some_time(faults.disk_loss, Event::DiskLoss);
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
            let delay = self.rng.random_range(1..2 * mean);
            self.after(delay, event);
        }
    }

    fn count(&mut self, fault: Fault) {
        self.outcome.faults.add(fault);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake(worker) => self.wake(worker),
            Event::Request(way, request) => self.serve(way, *request),
            Event::Reply(way, reply) => self.deliver(way, reply),
            Event::Start(worker) => self.start(worker),
            Event::CoordinatorStart => self.coordinator_start(),
            Event::CoordinatorStep => {
                if self.step_at == self.now {
                    self.step_at = Time::MAX;
                    self.step();
                }
            }
            Event::Crash(_)
            | Event::Freeze(_)
            | Event::CutOff(_)
            | Event::Drain(_)
            | Event::WorkerPause(_)
            | Event::WorkerGoesOn(_)
            | Event::Canaries(_)
            | Event::WorkerClock(_) => self.befall_worker(event),
            Event::CoordinatorCrash
            | Event::DiskLoss
            | Event::ClockLeap
            | Event::Pause
            | Event::Resume
            | Event::Ghost => self.befall_coordinator(event),
        }
    }

    fn chance(&mut self, chance: f64) -> bool {
        self.rng.random_bool(chance)
    }

    /// Gives a message to the network.
    fn send(&mut self, message: Event) {
        let worker = match &message {
            Event::Request(way, _) | Event::Reply(way, _) => way.worker,
            _ => NOBODY,
        };
        let cut_off = self.workers.get(worker).map(|worker| worker.cut_off_until);
        let (loss, late) = (self.scenario.faults.loss, self.scenario.faults.late);
        if cut_off.is_some_and(|until| self.now < until) || self.chance(loss) {
            self.count(Fault::MessageLost);
            return;
        }
        let longest = if self.chance(late) {
            self.count(Fault::MessageLate);
            2 * MINUTE
        } else {
            200
        };
        let delay = self.rng.random_range(1..longest);
        self.after(delay, message);
    }
}
