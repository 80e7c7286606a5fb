//! The event loop in the order of true time, worker events, and the final checks.

mod coordinator;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::AtomicU64},
};

use common::messages::{
    run::{RunId, WorkerId},
    sync::{SyncReply, SyncRequest},
};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use scheduler::{
    Command, Config, REFEREE, Recount, Scheduler,
    checks::Evidence,
    ledger::{Caller, Confirmation},
};

pub(super) use self::coordinator::Sender;

use self::coordinator::Coordinator;
use super::{
    Fault, HOUR, MINUTE, SECOND, Tally, Time,
    disk::Disk,
    package::Package,
    scenario::{Conduct, Scenario},
    shared::Shared,
    worker::{Action, Environment, Share, Worker},
};

/// Time limit of a run; the slowest scenario needs some days.
const MAX_TIME: Time = 120 * 24 * HOUR;

/// Message limit of a run; a hundred machines send some millions in half a day.
const MAX_MESSAGES: u64 = 30_000_000;

/// Maximum number of disks that a run starts on.
const MAX_DISKS: u64 = 4;

/// Worker number of a sender that gets no replies.
const NO_WORKER: usize = usize::MAX;

#[derive(Debug)]
pub(super) enum SimEvent {
    Wake(usize),
    Request(Sender, Box<SyncRequest>),
    Reply(Sender, Box<SyncReply>),
    Start(usize),
    /// The next step of a package.
    Package(usize),
    /// A recurring fault and the affected worker, or [`NO_WORKER`].
    Fault(Fault, usize),
    WorkerResume(usize),
    CoordinatorStart,
    CoordinatorStep,
    /// The next call of the referee; void after another start of the coordinator.
    Recounted(u64),
    Resume,
    /// The submission of a run of this priority.
    Submit(i32),
}

/// Result of a simulated run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimOutcome {
    /// True milliseconds until the run finished.
    pub time_ms: u64,
    /// Messages that reached the coordinator.
    pub messages: u64,
    /// Groups in which the driver replied.
    pub groups: u64,
    /// Messages that shared a group.
    pub shared: u64,
    pub starts: u64,
    /// Tasks that workers counted, needed or not.
    pub counted: u64,
    /// Work of each worker.
    pub shares: Vec<Share>,
    pub tasks: u64,
    pub conflicts: u64,
    /// Rechecks that agreed.
    pub confirmed: u64,
    pub barred: u64,
    /// Wrong counts in the result.
    pub wrong: u64,
    /// Wrong counts in the result with which another token agreed.
    pub wrong_confirmed: u64,
    /// Counts in the result that neither another token nor the referee confirmed.
    pub unconfirmed: u64,
    /// Maximum number of wrong counts that the result states, if it states one.
    pub bound: Option<u64>,
    /// Whether at some time more counts were wrong than this number was then.
    pub exceeded: bool,
    /// Tasks that are disputed at the end.
    pub disputed: u64,
    pub recounts: u64,
    pub exact: bool,
    pub faults: Tally,
}

pub(super) struct World {
    pub(super) env: Environment,
    /// Lead of the coordinator's clock over true time.
    clock_ahead: u64,
    clock: &'static AtomicU64,
    /// Events by time, and by number among those at the same time.
    events: BTreeMap<(Time, u64), SimEvent>,
    serial: u64,
    workers: Vec<Worker>,
    pub(super) packages: Vec<Package>,
    coordinator: Option<Coordinator>,
    disk: Shared,
    step_at: Time,
    steps: u64,
    /// The step after which the bound on wrong counts is read next.
    bound_step: u64,
    runs: u64,
    /// All identities of liars.
    liars: BTreeSet<WorkerId>,
    /// The referee's current task.
    recounting: Option<Recount>,
    complete: bool,
    outcome: SimOutcome,
}

/// Runs a scenario to its end and checks all invariants on the way.
pub fn run(scenario: Scenario) -> SimOutcome {
    let mut world = World::new(scenario);
    while !world.complete {
        let Some(((now, _), event)) = world.events.pop_first() else {
            panic!("seed {}: no event is left", world.seed());
        };
        world.env.now = now;
        assert!(
            world.env.now < MAX_TIME && world.outcome.messages < MAX_MESSAGES,
            "seed {}: the run does not finish: {:#?}",
            world.seed(),
            world.coordinator.as_ref().map(|one| one.scheduler().snapshot().runs())
        );
        world.handle(event);
    }
    world.finish()
}

impl World {
    fn new(scenario: Scenario) -> Self {
        let seed = scenario.seed;
        let disk = Shared::new(Disk::new(&scenario));
        let liars = (1..=scenario.faults.liars as u128).map(WorkerId).collect();
        let rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
        let (tally, bait) = (Tally::default(), BTreeSet::new());
        let (leases, served) = (BTreeMap::new(), BTreeMap::new());
        let mut env = Environment { now: 0, scenario, rng, tally, bait, leases, served };
        let workers = (0..env.scenario.workers)
            .map(|number| {
                let liar = (number < env.scenario.faults.liars).then_some(number as u64);
                let mut worker = Worker::new(number as u128 + 1, liar, &mut env);
                if env.scenario.faults.impersonates && liar.is_some() {
                    worker.info.machine = (number + env.scenario.faults.liars) as u64 + 1;
                }
                worker
            })
            .collect();
        let mut world = Self {
            env,
            disk,
            clock_ahead: 1_000 * HOUR,
            // The driver needs a static clock.
            clock: Box::leak(Box::default()),
            events: BTreeMap::new(),
            serial: 0,
            workers,
            packages: Vec::new(),
            coordinator: None,
            step_at: Time::MAX,
            steps: 0,
            bound_step: 0,
            runs: 0,
            liars,
            recounting: None,
            complete: false,
            outcome: SimOutcome::default(),
        };
        world.schedule_faults();
        world
    }

    fn seed(&self) -> u64 {
        self.env.scenario.seed
    }

    fn schedule_faults(&mut self) {
        self.after(0, SimEvent::CoordinatorStart);
        for (priority, at) in self.env.scenario.runs.clone().into_iter().skip(1) {
            self.after(at, SimEvent::Submit(priority));
        }
        for worker in 0..self.workers.len() {
            let mut start = self.env.rng.random_range(0..2 * MINUTE);
            // An accomplice joins at the start.
            if !self.workers[worker].is_honest()
                && (worker > 0 || !self.env.scenario.faults.accomplice)
            {
                start += self.env.scenario.faults.late_liars;
            }
            self.workers[worker].up = false;
            self.after(start, SimEvent::Start(worker));
            for fault in [
                Fault::WorkerCrash,
                Fault::WorkerFrozen,
                Fault::WorkerStopped,
                Fault::WorkerPaused,
                Fault::Partition,
                Fault::WorkerClock,
            ] {
                let is_awake = self.env.scenario.faults.conduct == Conduct::Naps
                    && self.workers[worker].is_honest();
                if fault != Fault::WorkerPaused || !is_awake {
                    self.schedule_next(fault, worker);
                }
            }
            if !self.workers[worker].is_honest() {
                self.schedule_next(Fault::SelfTest, worker);
            }
        }
        use Fault::{
            CoordinatorClock, CoordinatorCrash, DiskLost, Ghost, OlderCopy, Package, RunPaused,
        };
        for fault in
            [CoordinatorCrash, DiskLost, OlderCopy, CoordinatorClock, RunPaused, Ghost, Package]
        {
            self.schedule_next(fault, NO_WORKER);
        }
    }

    pub(super) fn after(&mut self, delay: Time, event: SimEvent) {
        self.serial += 1;
        self.events.insert((self.env.now + delay, self.serial), event);
    }

    /// Schedules the next fault of a kind, if the scenario has any.
    fn schedule_next(&mut self, fault: Fault, worker: usize) {
        if let Some(mean) = self.env.scenario.faults.mean_times.get(&fault) {
            let delay = self.env.rng.random_range(1..2 * mean);
            self.after(delay, SimEvent::Fault(fault, worker));
        }
    }

    pub(super) fn count(&mut self, fault: Fault) {
        self.env.tally.add(fault);
    }

    fn handle(&mut self, event: SimEvent) {
        match event {
            SimEvent::Wake(worker) => self.wake(worker),
            SimEvent::Request(sender, request) => self.serve(sender, *request),
            SimEvent::Reply(sender, reply) => self.deliver(sender, reply),
            SimEvent::Start(worker) => self.start(worker),
            SimEvent::Package(number) => self.package_step(number),
            SimEvent::Recounted(start) => self.recounted(start),
            SimEvent::CoordinatorStart => self.coordinator_start(),
            SimEvent::CoordinatorStep => {
                if self.step_at == self.env.now {
                    self.step_at = Time::MAX;
                    self.step();
                }
            }
            SimEvent::WorkerResume(worker) => {
                self.pause(worker, None);
                self.schedule_next(Fault::WorkerPaused, worker);
            }
            SimEvent::Submit(priority) => self.submit(priority),
            SimEvent::Resume => match self.command(Command::Resume) {
                true => self.schedule_next(Fault::RunPaused, NO_WORKER),
                false => self.after(MINUTE, SimEvent::Resume),
            },
            SimEvent::Fault(fault, worker) => self.fault(fault, worker),
        }
    }

    /// Makes a fault happen and schedules the next one of its kind.
    fn fault(&mut self, fault: Fault, number: usize) {
        let is_up = self.workers.get(number).is_some_and(|worker| worker.up);
        match fault {
            Fault::WorkerCrash => self.crash(number),
            Fault::WorkerFrozen => {
                self.workers[number].frozen_until = self.env.now + self.some_minutes();
                self.count(fault);
            }
            Fault::Partition => {
                self.workers[number].partitioned_until = self.env.now + self.some_minutes();
                self.count(fault);
            }
            Fault::WorkerStopped if is_up => {
                self.workers[number].drain(self.env.now);
                self.count(fault);
                self.wake_at_once(number);
            }
            Fault::WorkerPaused => {
                self.count(fault);
                self.pause(number, Some("on battery"));
                let long = self.some_minutes();
                return self.after(long, SimEvent::WorkerResume(number));
            }
            Fault::SelfTest
                if is_up && self.workers[number].self_test(self.env.now, &mut self.env.rng) =>
            {
                self.count(fault);
                self.wake_at_once(number);
            }
            Fault::WorkerClock => {
                self.workers[number].jump_clock(&mut self.env.rng);
                self.count(fault);
                if is_up {
                    self.wake_at_once(number);
                }
            }
            Fault::Ghost => self.ghost(),
            Fault::Package => self.check_out(),
            Fault::CoordinatorCrash if self.coordinator.is_some() => {
                self.count(fault);
                self.coordinator_crash();
            }
            Fault::DiskLost => {
                self.coordinator_crash();
                self.disk.disk().lose();
                if self.runs >= MAX_DISKS {
                    // Otherwise a slow run would never end.
                    return;
                }
            }
            // Workers return with counts of leases that the copy does not have.
            Fault::OlderCopy if self.disk.disk().has_copy() => {
                self.disk.disk().restore_copy();
                self.coordinator_crash();
            }
            Fault::OlderCopy => self.disk.disk().copy(),
            Fault::CoordinatorClock => self.jump_clock(),
            Fault::RunPaused => {
                self.count(fault);
                self.command(Command::Pause);
                let long = self.some_minutes();
                return self.after(long, SimEvent::Resume);
            }
            // The process is not running, or the fault does not recur by itself.
            _ => {}
        }
        self.schedule_next(fault, number);
    }

    /// Returns the random duration of a fault.
    fn some_minutes(&mut self) -> Time {
        self.env.rng.random_range(SECOND..20 * MINUTE)
    }

    pub(super) fn chance(&mut self, chance: f64) -> bool {
        self.env.rng.random_bool(chance)
    }

    /// Sends a message over the network.
    pub(super) fn send(&mut self, message: SimEvent) {
        let worker = match &message {
            SimEvent::Request(sender, _) | SimEvent::Reply(sender, _) => sender.worker,
            _ => NO_WORKER,
        };
        let partitioned = self.workers.get(worker).map(|worker| worker.partitioned_until);
        let (loss, late) = (self.env.scenario.faults.loss, self.env.scenario.faults.late);
        if partitioned.is_some_and(|until| self.env.now < until) || self.chance(loss) {
            self.count(Fault::MessageLost);
            return;
        }
        let longest = if self.chance(late) {
            self.count(Fault::MessageLate);
            2 * MINUTE
        } else {
            200
        };
        let delay = self.env.rng.random_range(1..longest);
        self.after(delay, message);
    }

    fn pause(&mut self, number: usize, why: Option<&'static str>) {
        self.workers[number].pause(why, self.env.now);
        if self.workers[number].up {
            self.wake_at_once(number);
        }
    }

    fn wake(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        if !worker.up || worker.wake_at != self.env.now {
            return;
        }
        if worker.frozen_until > self.env.now {
            self.wake_soon(number);
            return;
        }
        let action = worker.act(&mut self.env);
        let (id, worker, incarnation) = (worker.id, number, worker.incarnation);
        match action {
            Some(Action::Call(call, request)) => {
                let sender = Sender { id, worker, incarnation, call };
                if self.chance(self.env.scenario.faults.repeat) {
                    self.count(Fault::MessageRepeated);
                    self.send(SimEvent::Request(sender, request.clone()));
                }
                self.send(SimEvent::Request(sender, request));
                self.wake_soon(number);
            }
            Some(Action::Exit) => self.schedule_start(number),
            None => self.wake_soon(number),
        }
    }

    /// Schedules the worker's next wake-up, which replaces an earlier one.
    fn wake_soon(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        let at = worker.next(self.env.now).max(worker.frozen_until);
        worker.wake_at = at;
        self.after(at - self.env.now, SimEvent::Wake(number));
    }

    fn wake_at_once(&mut self, number: usize) {
        self.workers[number].wake_at = self.env.now + 1;
        self.after(1, SimEvent::Wake(number));
    }

    /// Lets a machine lease tasks and vanish.
    fn ghost(&mut self) {
        self.count(Fault::Ghost);
        let id = u128::from(self.env.rng.random::<u64>()) << 64;
        let mut ghost = Worker::new(id, None, &mut self.env);
        ghost.start(1, self.env.now);
        if let Some(Action::Call(call, request)) = ghost.act(&mut self.env) {
            let sender = Sender { id: ghost.id, worker: NO_WORKER, incarnation: 0, call };
            self.send(SimEvent::Request(sender, request));
        }
    }

    fn deliver(&mut self, sender: Sender, reply: Box<SyncReply>) {
        if let Some(number) = Package::number(sender.worker) {
            return self.packages[number].handle_reply(*reply);
        }
        let Some(worker) = self.workers.get_mut(sender.worker) else {
            return;
        };
        if !worker.up || worker.incarnation != sender.incarnation {
            return;
        }
        if worker.frozen_until > self.env.now {
            let wait = worker.frozen_until - self.env.now;
            self.after(wait, SimEvent::Reply(sender, reply));
            return;
        }
        let barred = reply.reason.contains("barred");
        let is_granted = !reply.grants.is_empty();
        worker.handle_reply(sender.call, *reply, self.env.now);
        self.wake_at_once(sender.worker);
        if barred && self.env.scenario.faults.renames {
            return self.restart(sender.worker, true);
        }
        if let Conduct::Vanishes { renamed, chance } = self.env.scenario.faults.conduct
            && is_granted
            && !self.workers[sender.worker].is_honest()
            && self.chance(chance)
        {
            self.end(sender.worker, renamed);
            self.after(SECOND, SimEvent::Start(sender.worker));
        }
    }

    fn crash(&mut self, number: usize) {
        if !self.workers[number].up {
            return;
        }
        self.count(Fault::WorkerCrash);
        let loses_spool = self.chance(self.env.scenario.faults.spool_loss);
        if loses_spool {
            self.count(Fault::SpoolLost);
        }
        self.restart(number, loses_spool);
    }

    /// Restarts the process, with another identity if it lost its spool.
    fn restart(&mut self, number: usize, loses_spool: bool) {
        self.end(number, loses_spool);
        self.schedule_start(number);
    }

    /// Ends the process; without its spool, the machine loses its identity.
    fn end(&mut self, number: usize, loses_spool: bool) {
        let new_id = loses_spool.then(|| u128::from(self.env.rng.random::<u64>()) << 32);
        if let Some(id) = new_id.filter(|_| !self.workers[number].is_honest()) {
            self.liars.insert(WorkerId(id));
        }
        self.workers[number].crash(new_id, &mut self.env.rng);
    }

    /// Returns the authenticated caller of a machine's calls.
    fn caller(&self, sender: Sender) -> Caller {
        let Sender { id, worker, .. } = sender;
        let token = self.env.scenario.token(worker).map(Arc::from);
        // Identities are random in the upper bits, or count from one.
        let machine = u64::try_from(id.0 % (1 << 64) + (id.0 >> 64)).unwrap_or(u64::MAX);
        Caller { machine, ..Caller::new(id, token) }
    }

    fn schedule_start(&mut self, number: usize) {
        let long = self.env.rng.random_range(SECOND..10 * MINUTE);
        self.after(long, SimEvent::Start(number));
    }

    fn start(&mut self, number: usize) {
        let session = self.env.rng.random();
        self.workers[number].start(session, self.env.now);
        self.wake_at_once(number);
    }

    /// Checks the finished run and returns its outcome.
    fn finish(mut self) -> SimOutcome {
        let seed = self.seed();
        let shared = self.disk.clone();
        let mut disk = shared.disk();
        self.outcome.faults = self.env.tally;
        self.outcome.faults += disk.tally;
        self.outcome.time_ms = self.env.now;
        self.outcome.counted = self.workers.iter().map(|worker| worker.share.counted).sum();
        self.outcome.shares = self.workers.iter().map(|worker| worker.share).collect();
        let checker = &disk.checker;
        self.outcome.conflicts = checker.conflicts;
        self.outcome.confirmed = checker.confirmed;
        self.outcome.barred = checker.barred.len() as u64;
        self.outcome.exact = true;
        let mut standing = 0;
        for run in disk.runs() {
            standing += self.judge(&mut disk, run);
        }
        assert_eq!(disk.checker.done(), standing, "seed {seed}");
        self.check_bars(&disk);
        self.outcome
    }

    /// Adds a finished run to the outcome; returns the number of standing counts.
    fn judge(&mut self, disk: &mut Disk, run: RunId) -> usize {
        let seed = self.seed();
        let fold = disk.store().refold(run).expect("a sound store");
        let mut sampler = Scheduler::new(Config::default(), 0);
        sampler.set_key(disk.secret());
        let evidence = Evidence::of(&fold, |task| Some(sampler.snapshot().rank(run, task)));
        self.outcome.bound = evidence.at_most_wrong();
        self.outcome.recounts += evidence.sample.recounts;
        self.outcome.disputed += evidence.disputed_number;
        let standing: BTreeMap<_, _> =
            fold.done().map(|(task, of)| (task, (of.first.count, of.confirmed))).collect();
        let is_confirmed = |by: Confirmation| by >= Confirmation::OtherToken;
        let unconfirmed = standing.values().filter(|(_, by)| !is_confirmed(*by)).count();
        self.outcome.unconfirmed += unconfirmed as u64;
        let truth = self.env.scenario.truth;
        let tasks = truth.plan.tasks();
        self.outcome.tasks += tasks;
        assert_eq!(standing.len() as u64 + evidence.disputed_number, tasks, "seed {seed}: tasks");
        for (&task, &(count, by)) in &standing {
            let is_wrong = count != truth.count(task);
            self.outcome.wrong += u64::from(is_wrong);
            self.outcome.wrong_confirmed += u64::from(is_wrong && is_confirmed(by));
        }
        let total: u128 = standing.values().map(|&(count, _)| u128::from(count)).sum();
        assert_eq!(fold.total(), Ok(total), "seed {seed}: the journal's total");
        self.outcome.exact &= total == truth.total && evidence.disputed_number == 0;
        assert!(
            self.outcome.exact || self.outcome.wrong + self.outcome.disputed > 0,
            "seed {seed}: a wrong total of right counts"
        );
        self.check_wrong(&evidence);
        standing.len()
    }

    /// Checks that honest counts are right, and that a referee settles all disputes.
    fn check_wrong(&self, evidence: &Evidence) {
        let (seed, faults) = (self.seed(), &self.env.scenario.faults);
        let errs = faults.liars > 0 || faults.referee_error > 0.0;
        assert!(self.outcome.wrong == 0 || errs, "seed {seed}: honest counts are wrong");
        let refereed = self.env.scenario.referee && faults.referee_error == 0.0;
        assert!(self.outcome.disputed == 0 || !refereed, "seed {seed}: {:?}", evidence.disputed);
    }

    /// Checks that no honest machine is barred.
    fn check_bars(&self, disk: &Disk) {
        let honest = |worker: &&WorkerId| !self.liars.contains(worker) && **worker != REFEREE;
        let wronged = disk.checker.barred.iter().find(honest);
        assert!(wronged.is_none(), "seed {}: honest worker {wronged:?} was barred", self.seed());
    }
}
