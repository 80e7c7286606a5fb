//! The loop: events in the order of true time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use common::{
    plan::TaskId,
    run::{RunId, WorkerId},
    sync::{SyncReply, SyncRequest},
};
use coordinator::{
    driver::Clock,
    ledger::Recheck,
    sched::Command,
    store::{JournalCursor, JournalEntry, RunManifest, RunState},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    HOUR, MINUTE, SECOND, Time,
    coordinator::{Coordinator, Way},
    disk::Disk,
    fate,
    scenario::Scenario,
    store::Shared,
    tally::{Fault, Tally},
    worker::{Act, Nature, Worker},
};

/// A run that takes longer has stalled: the slowest scenario needs some days.
const LONGEST: Time = 120 * 24 * HOUR;

/// As [`LONGEST`], in messages.
const MOST_MESSAGES: u64 = 3_000_000;

/// Runs begin on so many disks at most.
const MOST_DISKS: u64 = 4;

/// The place of a machine that hears no answer.
const NOBODY: usize = usize::MAX;

/// The time between two looks at everything the scheduler holds, in groups.
const COMPARE_EVERY: u64 = 16;

/// What happened, for those who tune scenarios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// True milliseconds to completion.
    pub time_ms: u64,
    /// Messages that reached the coordinator.
    pub messages: u64,
    /// Groups that the driver made of them.
    pub groups: u64,
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

#[derive(Debug)]
enum Event {
    Wake(usize),
    Request(Way, Box<SyncRequest>),
    Reply(Way, Box<SyncReply>),
    Crash(usize),
    Start(usize),
    Freeze(usize),
    CutOff(usize),
    Drain(usize),
    Canaries(usize),
    WorkerClock(usize),
    CoordinatorCrash,
    CoordinatorStart,
    CoordinatorStep,
    DiskLoss,
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

    fn befall_worker(&mut self, event: Event) {
        let faults = self.scenario.faults.clone();
        let now = self.now;
        let long = self.rng.random_range(SECOND..20 * MINUTE);
        let mean = match event {
            Event::Crash(worker) => {
                self.crash(worker);
                faults.worker_crash
            }
            Event::Freeze(worker) => {
                self.workers[worker].frozen_until = now + long;
                self.count(Fault::WorkerFrozen);
                faults.worker_freeze
            }
            Event::CutOff(worker) => {
                self.workers[worker].cut_off_until = now + long;
                self.count(Fault::Partition);
                faults.partition
            }
            Event::Drain(worker) => {
                if self.workers[worker].up {
                    self.workers[worker].drain(now);
                    self.count(Fault::WorkerStopped);
                    self.wake_at_once(worker);
                }
                faults.worker_drain
            }
            Event::Canaries(worker) => {
                if self.workers[worker].up && self.workers[worker].canaries(now, &mut self.rng) {
                    self.count(Fault::Canary);
                    self.wake_at_once(worker);
                }
                HOUR
            }
            Event::WorkerClock(worker) => {
                self.workers[worker].leap(&mut self.rng);
                self.count(Fault::WorkerClock);
                if self.workers[worker].up {
                    self.wake_at_once(worker);
                }
                faults.worker_clock
            }
            _ => unreachable!("handled before"),
        };
        self.some_time(mean, event);
    }

    fn befall_coordinator(&mut self, event: Event) {
        let faults = self.scenario.faults.clone();
        let mean = match event {
            Event::CoordinatorCrash => {
                if self.coordinator.is_some() {
                    self.count(Fault::CoordinatorCrash);
                    self.coordinator_crash();
                }
                faults.coordinator_crash
            }
            Event::DiskLoss => {
                self.coordinator_crash();
                self.disk.disk().lose();
                // A run that is slower than its disks are lost would never end.
                match self.runs < MOST_DISKS {
                    true => faults.disk_loss,
                    false => Time::MAX,
                }
            }
            Event::ClockLeap => {
                self.leap();
                faults.clock_leap
            }
            Event::Pause => {
                self.command(Command::Pause);
                let long = self.rng.random_range(SECOND..20 * MINUTE);
                self.after(long, Event::Resume);
                return;
            }
            Event::Resume => {
                if self.command(Command::Resume) {
                    return self.some_time(faults.pause, Event::Pause);
                }
                return self.after(MINUTE, Event::Resume);
            }
            Event::Ghost => {
                self.ghost();
                faults.ghost
            }
            _ => unreachable!("handled before"),
        };
        self.some_time(mean, event);
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
        let mut nature = Nature {
            now: self.now,
            scenario: &self.scenario,
            rng: &mut self.rng,
            tally: &mut self.outcome.faults,
            planted: &mut self.planted,
        };
        let act = worker.act(&mut nature);
        let (worker, life) = (number, worker.life);
        match act {
            Some(Act::Call(call, request)) => {
                let way = Way { worker, life, call };
                let request = Box::new(request);
                if self.chance(self.scenario.faults.repeat) {
                    self.count(Fault::MessageRepeated);
                    self.send(Event::Request(way, request.clone()));
                }
                self.send(Event::Request(way, request));
                self.wake_soon(number);
            }
            Some(Act::Exit) => self.come_back(number),
            None => self.wake_soon(number),
        }
    }

    /// Plans the worker's next wake; an earlier plan is forgotten.
    fn wake_soon(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        let at = worker.next(self.now).max(worker.frozen_until);
        worker.wake_at = at;
        self.after(at - self.now, Event::Wake(number));
    }

    fn wake_at_once(&mut self, number: usize) {
        self.workers[number].wake_at = self.now + 1;
        self.after(1, Event::Wake(number));
    }

    /// A machine asks for work and is never heard of again.
    fn ghost(&mut self) {
        self.count(Fault::Ghost);
        let id = u128::from(self.rng.random::<u64>()) << 64;
        let mut nature = Nature {
            now: self.now,
            scenario: &self.scenario,
            rng: &mut self.rng,
            tally: &mut self.outcome.faults,
            planted: &mut self.planted,
        };
        let mut ghost = Worker::new(id, None, &mut nature);
        ghost.start(1, self.now);
        if let Some(Act::Call(call, request)) = ghost.act(&mut nature) {
            let way = Way {
                worker: NOBODY,
                life: 0,
                call,
            };
            self.send(Event::Request(way, Box::new(request)));
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

    fn serve(&mut self, way: Way, request: SyncRequest) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        self.outcome.messages += 1;
        coordinator.post(way, request);
        self.step_soon();
    }

    /// The driver gets to it as soon as the disk has written the group before.
    fn step_soon(&mut self) {
        let slow = self.chance(0.01);
        let wait = self.rng.random_range(1..if slow { 2 * SECOND } else { 50 });
        self.step_by(self.now + wait);
    }

    /// One step is enough if it is early enough: it plans the next.
    fn step_by(&mut self, at: Time) {
        if at < self.step_at {
            self.step_at = at;
            self.after(at - self.now, Event::CoordinatorStep);
        }
    }

    fn step(&mut self) {
        self.set_clock();
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        let Ok(answered) = coordinator.step(&self.disk) else {
            self.coordinator_crash();
            return;
        };
        self.outcome.groups += 1;
        if self.outcome.groups.is_multiple_of(COMPARE_EVERY) {
            let run = coordinator.run();
            self.disk
                .disk()
                .ledger
                .compare(coordinator.scheduler(), run);
        }
        self.note_state();
        for (way, reply) in answered {
            self.send(Event::Reply(way, Box::new(reply)));
        }
        self.plan_step();
    }

    fn note_state(&mut self) {
        let state = self.coordinator.as_ref().map(Coordinator::state);
        self.complete = matches!(state, Some(RunState::Complete | RunState::Contradicted));
        // Enough is known of a plant once one of it is found.
        self.complete |= self.scenario.faults.planted > 0 && self.disk.disk().ledger.conflicts > 0;
    }

    fn plan_step(&mut self) {
        let Some(coordinator) = &self.coordinator else {
            return;
        };
        if coordinator.is_waited_for() {
            return self.step_soon();
        }
        if let Some(timeout) = coordinator.next_timeout() {
            let at = timeout.0.saturating_sub(self.clock_ahead);
            self.step_by(at.max(self.now + 1));
        }
    }

    fn set_clock(&self) {
        self.clock.store(self.now + self.clock_ahead, Relaxed);
    }

    fn deliver(&mut self, way: Way, reply: Box<SyncReply>) {
        let Some(worker) = self.workers.get_mut(way.worker) else {
            return;
        };
        if !worker.up || worker.life != way.life {
            return;
        }
        if worker.frozen_until > self.now {
            let wait = worker.frozen_until - self.now;
            self.after(wait, Event::Reply(way, reply));
            return;
        }
        worker.answered(way.call, *reply, self.now);
        self.wake_at_once(way.worker);
    }

    fn crash(&mut self, number: usize) {
        if !self.workers[number].up {
            return;
        }
        self.count(Fault::WorkerCrash);
        let loses_spool = self.chance(self.scenario.faults.spool_loss);
        // A liar keeps its name: under two names it would be two liars in agreement.
        let loses_spool = loses_spool && self.workers[number].is_honest();
        if loses_spool {
            self.count(Fault::SpoolLost);
        }
        let new_id = loses_spool.then(|| u128::from(self.rng.random::<u64>()) << 32);
        self.workers[number].crash(new_id, &mut self.rng);
        self.come_back(number);
    }

    fn come_back(&mut self, number: usize) {
        let long = self.rng.random_range(SECOND..10 * MINUTE);
        self.after(long, Event::Start(number));
    }

    fn start(&mut self, number: usize) {
        let session = self.rng.random();
        self.workers[number].start(session, self.now);
        self.wake_at_once(number);
    }

    /// Starts with what is on the disk; on an empty one, an operator submits the board again.
    fn coordinator_start(&mut self) {
        if self.coordinator.is_some() {
            return;
        }
        self.outcome.starts += 1;
        self.set_clock();
        let known = self.disk.disk().run();
        let run = known.unwrap_or_else(|| self.submit());
        let (jitter, clock) = (self.rng.random(), Clock::told(self.clock));
        let started = Coordinator::start(&self.disk, (run, self.seed()), jitter, clock);
        let Ok(coordinator) = started else {
            // It died in its first write.
            return self.coordinator_crash();
        };
        self.coordinator = Some(coordinator);
        self.note_state();
        self.step_soon();
    }

    fn submit(&mut self) -> RunId {
        self.runs += 1;
        let plan = &self.scenario.truth.plan;
        let manifest = RunManifest {
            run: RunId(0x51 + self.runs),
            spec: *plan.spec(),
            plan: plan.hash(),
            plan_version: plan.spec().version(),
            priority: 0,
            created_unix_ms: 0,
            key: None,
        };
        self.disk.disk().create(&manifest, &self.scenario);
        manifest.run
    }

    fn coordinator_crash(&mut self) {
        self.coordinator = None;
        self.disk.disk().crash();
        self.step_at = Time::MAX;
        let down = self.rng.random_range(SECOND..15 * MINUTE);
        self.after(down, Event::CoordinatorStart);
    }

    /// Whether there was a coordinator to hear it.
    fn command(&mut self, command: Command) -> bool {
        let Some(coordinator) = &mut self.coordinator else {
            return false;
        };
        coordinator.command(command);
        self.step_soon();
        true
    }

    fn leap(&mut self) {
        self.count(Fault::CoordinatorClock);
        let by = self.rng.random_range(SECOND..6 * HOUR);
        if self.chance(0.5) {
            self.clock_ahead += by;
        } else {
            self.clock_ahead = self.clock_ahead.saturating_sub(by);
        }
        self.plan_step();
    }

    /// The run is complete: what is on disk is the exact total, each task counted once.
    fn finish(mut self) -> Outcome {
        let seed = self.seed();
        let shared = self.disk.clone();
        let mut disk = shared.disk();
        self.outcome.faults += disk.tally;
        self.outcome.time_ms = self.now;
        self.outcome.counted = self.workers.iter().map(|worker| worker.counted).sum();
        let ledger = &disk.ledger;
        self.outcome.conflicts = ledger.conflicts;
        self.outcome.confirmed = ledger.confirmed;
        self.outcome.caught = ledger.caught.len() as u64;
        self.outcome.barred = ledger.barred.len() as u64;
        self.outcome.compared = ledger.barred.values().copied().max().unwrap_or(0);
        if self.scenario.faults.planted > 0 {
            return self.outcome;
        }
        let (counts, by) = journalled(&mut disk, seed);
        let truth = self.scenario.truth;
        assert_eq!(counts.len(), truth.counts.len(), "seed {seed}: tasks");
        for (task, count) in &counts {
            if *count != truth.count(*task) {
                self.outcome.missed += 1;
                self.check_missed(*task, by[task], &disk);
            }
        }
        self.check_honour(&disk);
        let total: u128 = counts.values().copied().map(u128::from).sum();
        self.outcome.exact = total == truth.total;
        assert!(
            self.outcome.exact || self.outcome.missed > 0,
            "seed {seed}: the journal's total"
        );
        assert_eq!(disk.ledger.done(), counts.len(), "seed {seed}");
        self.outcome
    }

    /// Whoever was caught once has no wrong count left, and where everything is counted twice nobody
    /// has; two that agree confirm each other.
    fn check_missed(&self, task: TaskId, worker: WorkerId, disk: &Disk) {
        let faults = &self.scenario.faults;
        let caught = disk.ledger.caught.contains(&worker);
        let checked = self.scenario.recheck == Recheck::All;
        let undetected = faults.liars > 0 && !caught && !checked || faults.liars_agree;
        let seed = self.seed();
        assert!(undetected, "seed {seed}: task {task} of worker {worker}");
    }

    /// No honest worker was found wrong, but by two that agree.
    fn check_honour(&self, disk: &Disk) {
        let faults = &self.scenario.faults;
        let honest = |worker: &&WorkerId| worker.0 > faults.liars as u128;
        let wronged = disk.ledger.caught.iter().find(honest);
        assert!(
            wronged.is_none() || faults.liars_agree,
            "seed {}: honest worker {wronged:?} was found wrong",
            self.seed()
        );
    }
}

/// The accepted count of each task, and whose it is, as the journal has them.
fn journalled(disk: &mut Disk, seed: u64) -> (BTreeMap<TaskId, u64>, BTreeMap<TaskId, WorkerId>) {
    let run = disk.run().expect("the run is complete");
    let mut counts = BTreeMap::new();
    let mut by = BTreeMap::new();
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
    disk.settled()
        .journal(run, JournalCursor::default(), &mut visit)
        .expect("a sound store");
    (counts, by)
}
