//! The cluster of a seed: plan and exact counts, faults, durations and results.

use std::{collections::BTreeMap, sync::LazyLock};

use common::{count::Orientation, method::Layout, plan::TaskId, test_fixture::ExactCounts};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use scheduler::ledger::Recheck;
use worker::engine::Work;

use super::{Fault, HOUR, MINUTE, SECOND, Time};

/// Plans of 78 to 730 tasks, smaller ones first, with exact counts.
static PLANS: LazyLock<Vec<ExactCounts>> = LazyLock::new(|| {
    let plans = [
        (8, Layout::Border),
        (9, Layout::Frames),
        (9, Layout::Border),
        (10, Layout::Border),
        (11, Layout::Frames),
        (13, Layout::FirstRows),
        (12, Layout::Border),
    ];
    plans.map(|(n, layout)| ExactCounts::new(n, layout)).into()
});

/// Probabilities of faults, and mean times between them.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Probability that a message is lost.
    pub loss: f64,
    /// Probability that a request arrives twice.
    pub repeat: f64,
    /// Probability that a message is late, by up to two minutes.
    pub late: f64,
    /// Probability that a crashed worker loses its spool.
    pub spool_loss: f64,
    /// Probability that a write of a spool fails.
    pub spool_error: f64,
    pub count_error: f64,
    /// Probability that the coordinator crashes while it writes a group.
    pub crash_in_write: f64,
    /// Probability that the disk is full when a group is written.
    pub disk_error: f64,
    /// Mean times between recurring faults.
    pub mean_times: BTreeMap<Fault, Time>,
    /// Number of workers that submit wrong counts.
    pub liars: usize,
    /// Fraction of a liar's tasks with wrong counts.
    pub lie_rate: f64,
    /// Whether the liars agree on their lies, in both orientations.
    pub liars_agree: bool,
    /// Whether only the first slot of a liar counts wrong.
    pub bad_core: bool,
    /// Whether a barred liar returns with another identity.
    pub renames: bool,
    /// Whether the first liar waits for the others, which lie about its tasks.
    pub accomplice: bool,
    /// Time at which the liars join; an accomplice joins at the start.
    pub late_liars: Time,
    /// Whether liars claim the machine numbers of honest machines.
    pub impersonates: bool,
    pub conduct: Conduct,
    /// A task that no worker can count.
    pub poison: Option<TaskId>,
    /// Whether the lies are bit errors, which are independent of the task.
    pub bit_errors: bool,
    /// Probability that a count of the referee is wrong.
    pub referee_error: f64,
    /// Whether some of the packages that are checked out return.
    pub packages_return: bool,
}

/// Behavior of liars with the tasks that they get.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Conduct {
    /// They count, and lie.
    #[default]
    Counts,
    /// They start all and finish none.
    Hoards,
    /// They vanish with them, and return at once: maybe with another identity, sometimes (a probability) or always.
    Vanishes { renamed: bool, chance: f64 },
    /// They fail.
    Fails,
    /// They also submit wrong counts of tasks of others, with leases that they saw or invented.
    Forges,
    /// They are paused for most of the time.
    Naps,
}

impl Faults {
    /// Sets the mean time between two faults of a kind, if there are any.
    fn recur(&mut self, fault: Fault, mean: Option<Time>) {
        self.mean_times.extend(mean.map(|mean| (fault, mean)));
    }
}

/// An attack on a run, or a hardware fault.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    pub name: &'static str,
    /// Whether all liars have one token, and the honest machines another.
    pub is_by_one_token: bool,
    /// Changes the scenario of one machine that lies in a twentieth of the tasks.
    apply: fn(&mut Scenario),
}

const fn attack(name: &'static str, is_by_one_token: bool, apply: fn(&mut Scenario)) -> Attack {
    Attack { name, is_by_one_token, apply }
}

pub const ATTACKS: [Attack; 13] = [
    attack("Single", true, |_| {}),
    attack("Always", true, |scenario| scenario.faults.lie_rate = 1.0),
    // Two machines with a token each submit the same lies.
    attack("Colluding", false, Scenario::collude),
    // A hundred identities of one token submit the same lies.
    attack("Hundred", true, |scenario| {
        (scenario.faults.liars, scenario.faults.liars_agree) = (100, true);
        scenario.workers = 102;
        scenario.tokens = vec!["lying"; 100];
        scenario.tokens.push("honest");
    }),
    // One machine always lies and returns with another identity when it is barred.
    attack("Renamed", false, |scenario| {
        (scenario.faults.renames, scenario.faults.lie_rate) = (true, 1.0);
        scenario.tokens = vec!["shared"];
    }),
    // The same beside a machine of another token: the honest machines of the shared one keep their counts.
    attack("Leaked", false, |scenario| {
        (scenario.faults.renames, scenario.faults.lie_rate) = (true, 1.0);
        (scenario.workers, scenario.tokens) = (4, vec!["shared", "shared", "shared", "other"]);
    }),
    // One machine claims the machine number of an honest one.
    attack("Impersonating", true, |scenario| scenario.faults.impersonates = true),
    // One machine counts right until a second one with half of the cores has joined, then lies to be barred.
    // The second lies about the tasks of the first, whose counts are void: enough lies to exceed the bound of
    // the other tasks.
    attack("Accomplice", false, |scenario| {
        scenario.collude();
        (scenario.faults.accomplice, scenario.faults.liars_agree) = (true, false);
        (scenario.faults.lie_rate, scenario.faults.late_liars) = (0.4, 45 * MINUTE);
        (scenario.machines[0].threads, scenario.machines[1].threads) = (2, 4);
    }),
    // Two machines collude and join late.
    attack("Late", false, |scenario| {
        scenario.collude();
        scenario.faults.late_liars = 10 * MINUTE;
    }),
    // Two machines collude and count a thousand times as fast, so that hardly any time is left to recount their tasks.
    attack("Hurried", false, |scenario| {
        scenario.collude();
        for machine in &mut scenario.machines[..2] {
            (machine.speed, machine.threads) = (1_000.0, 64);
        }
    }),
    // One machine lies, and the operator restores older copies of the data directory, without bars and recounts.
    attack("OlderCopy", true, |scenario| {
        scenario.faults.recur(Fault::OlderCopy, Some(10 * MINUTE));
    }),
    // One machine has random bit errors.
    attack("BitErrors", false, |scenario| {
        (scenario.faults.bit_errors, scenario.faults.lie_rate) = (true, 0.001);
    }),
    // The coordinator's own machine has random errors.
    attack("FaultyReferee", false, |scenario| scenario.faults.referee_error = 0.02),
];

/// Machines beside two honest ones, which must not be delayed by them.
#[derive(Clone, Copy, Debug)]
pub struct Disturbance {
    pub name: &'static str,
    apply: fn(&mut Scenario),
}

const fn disturbance(name: &'static str, apply: fn(&mut Scenario)) -> Disturbance {
    Disturbance { name, apply }
}

const MANY_THREADS: Machine = Machine { threads: 64, ..TYPICAL };

pub const DISTURBANCES: [Disturbance; 13] = [
    disturbance("one hoarder", |scenario| {
        scenario.disturb(1, MANY_THREADS, Conduct::Hoards);
    }),
    disturbance("twenty hoarders", |scenario| {
        scenario.disturb(20, MANY_THREADS, Conduct::Hoards);
    }),
    disturbance("five parkers", |scenario| {
        scenario.disturb(5, TYPICAL, Conduct::Vanishes { renamed: false, chance: 1.0 });
    }),
    disturbance("free names", |scenario| {
        scenario.disturb(5, TYPICAL, Conduct::Vanishes { renamed: true, chance: 1.0 });
    }),
    disturbance("idle strangers", |scenario| {
        let small = Machine { memory_bytes_per_thread: 1 << 10, ..TYPICAL };
        scenario.disturb(5, small, Conduct::Counts);
    }),
    disturbance("failing machines", |scenario| {
        scenario.disturb(5, TYPICAL, Conduct::Fails);
    }),
    disturbance("forged and replayed leases", |scenario| {
        scenario.disturb(3, TYPICAL, Conduct::Forges);
    }),
    disturbance("failing machines of one token", |scenario| {
        scenario.disturb(5, TYPICAL, Conduct::Fails);
        scenario.tokens = vec!["honest"];
    }),
    disturbance("a preempted fleet", |scenario| {
        scenario.disturb(10, TYPICAL, Conduct::Vanishes { renamed: true, chance: 0.3 });
        scenario.tokens = vec!["honest"];
    }),
    disturbance("machines at a fifth of the speed", |scenario| {
        scenario.disturb(2, Machine { speed: 0.2, ..TYPICAL }, Conduct::Counts);
        scenario.tokens = vec!["honest"];
    }),
    disturbance("night machines", |scenario| {
        scenario.disturb(4, TYPICAL, Conduct::Naps);
        scenario.tokens = vec!["honest"];
        scenario.faults.recur(Fault::WorkerPaused, Some(2 * MINUTE));
    }),
    disturbance("a task that nobody can count", |scenario| {
        scenario.faults.poison = Some(TaskId(scenario.seed % scenario.truth.plan.tasks()));
    }),
    disturbance("packages that never return", |scenario| {
        scenario.faults.recur(Fault::Package, Some(5 * MINUTE));
    }),
];

/// Resources of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Speed of a thread; 1 is normal.
    pub speed: f64,
    /// Number of threads; each counts a task.
    pub threads: u32,
    pub memory_bytes_per_thread: u64,
}

const TYPICAL: Machine = Machine { speed: 1.0, threads: 1, memory_bytes_per_thread: 1 << 30 };

/// A cluster and its faults.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub truth: &'static ExactCounts,
    /// Priorities of the runs, with the times of their submission. All are of the same board.
    pub runs: Vec<(i32, Time)>,
    /// Number of workers; liars come first.
    pub workers: usize,
    /// Maximum number of slots per worker.
    pub max_slots: u32,
    /// Resources of the first workers; those of others are random.
    pub machines: Vec<Machine>,
    /// Milliseconds of a thread of speed 1 per unit of cost.
    pub ms_per_cost: f64,
    /// Whether the store is in files, not in memory.
    pub files: bool,
    pub recheck: Recheck,
    pub referee: bool,
    /// Tokens of the first machines; the other machines use the last token.
    pub tokens: Vec<&'static str>,
    pub faults: Faults,
}

/// Returns a random mean time between faults: never in some runs, short in others.
fn random_time(rng: &mut ChaCha8Rng, often: Time, seldom: Time) -> Option<Time> {
    (!rng.random_bool(0.3)).then(|| rng.random_range(often..seldom))
}

/// Returns a random probability: zero in some runs, up to `most` in others.
fn chance(rng: &mut ChaCha8Rng, most: f64) -> f64 {
    if rng.random_bool(0.3) {
        return 0.0;
    }
    rng.random_range(0.0..most)
}

impl Scenario {
    pub fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let truths = &PLANS;
        // One seed in 25 is a large cluster; in small ones each fault matters more.
        let large = seed.is_multiple_of(25);
        let workers = if large { rng.random_range(100..300) } else { rng.random_range(1..24) };
        let liars = match workers {
            2.. if rng.random_bool(0.5) => rng.random_range(1..=if workers < 6 { 1 } else { 2 }),
            _ => 0,
        };
        let truth = if large {
            truths.last().expect("there are plans")
        } else {
            &truths[rng.random_range(0..truths.len())]
        };
        let mean_task_ms = 10f64.powf(rng.random_range(1.5..4.8));
        // Mostly the default.
        let recheck = match seed % 8 {
            3 => Recheck::All,
            5 => Recheck::Millionths(rng.random_range(0..1_000_000)),
            _ => Recheck::Auto,
        };
        let max_slots = rng.random_range(1..=8);
        let mut faults = Faults {
            loss: chance(&mut rng, 0.3),
            repeat: chance(&mut rng, 0.2),
            late: chance(&mut rng, 0.1),
            liars,
            packages_return: true,
            ..Faults::default()
        };
        use Fault::{Partition, WorkerClock, WorkerCrash, WorkerFrozen, WorkerStopped};
        for fault in [Partition, WorkerCrash, WorkerFrozen, WorkerStopped, WorkerClock] {
            faults.recur(fault, random_time(&mut rng, 5 * MINUTE, 2 * HOUR));
        }
        faults.spool_loss = chance(&mut rng, 1.0);
        faults.spool_error = chance(&mut rng, 0.5);
        faults.count_error = chance(&mut rng, 0.01);
        faults.recur(Fault::CoordinatorCrash, random_time(&mut rng, 30 * SECOND, HOUR));
        faults.crash_in_write = chance(&mut rng, 0.01);
        faults.disk_error = chance(&mut rng, 0.01);
        // Rarely: a run is lost with its disk.
        if rng.random_bool(0.1) {
            faults.recur(Fault::DiskLost, random_time(&mut rng, HOUR, 8 * HOUR));
        }
        faults.recur(Fault::CoordinatorClock, random_time(&mut rng, 30 * SECOND, HOUR));
        faults.recur(Fault::RunPaused, random_time(&mut rng, 5 * MINUTE, 2 * HOUR));
        faults.recur(Fault::Ghost, random_time(&mut rng, 5 * MINUTE, HOUR));
        faults.recur(Fault::Package, random_time(&mut rng, 5 * MINUTE, HOUR));
        faults.lie_rate = 10f64.powf(rng.random_range(-3.0..=0.0));
        faults.liars_agree = liars == 2 && rng.random_bool(0.5);
        faults.bad_core = rng.random_bool(0.3);
        faults.recur(Fault::SelfTest, faults.bad_core.then_some(HOUR));
        faults.recur(Fault::WorkerPaused, random_time(&mut rng, 5 * MINUTE, 2 * HOUR));
        faults.recur(Fault::OlderCopy, random_time(&mut rng, 5 * MINUTE, 2 * HOUR));
        Self {
            seed,
            truth,
            runs: vec![(0, 0)],
            workers,
            max_slots,
            machines: Vec::new(),
            files: seed % 50 == 7,
            ms_per_cost: mean_task_ms / mean_cost(truth),
            recheck,
            // Without a referee a run with liars may end disputed.
            referee: liars > 0 || !seed.is_multiple_of(4),
            tokens: match seed % 3 {
                0 => Vec::new(),
                1 => vec!["a"],
                _ => vec!["a", "b", "a", "b", "c", "a", "b"],
            },
            faults,
        }
    }

    /// Returns the scenario of an attack; odd seeds also have other faults.
    /// Accomplices need a fixed order of events, without such faults.
    pub fn attack(attack: Attack, recheck: Recheck, seed: u64) -> Self {
        let faultless = Self::faultless(seed);
        let mut scenario = Self {
            recheck,
            machines: vec![TYPICAL; 110],
            workers: 3,
            tokens: vec!["lying", "honest"],
            // Some minutes per run; workers start within two.
            ms_per_cost: 10.0 * faultless.ms_per_cost,
            faults: Faults { liars: 1, lie_rate: 0.05, ..Faults::default() },
            ..faultless
        };
        (attack.apply)(&mut scenario);
        let faults = &mut scenario.faults;
        if seed % 2 == 1 && !faults.accomplice {
            *faults = Faults {
                loss: 0.05,
                repeat: 0.05,
                late: 0.02,
                spool_loss: 0.3,
                crash_in_write: 0.002,
                ..faults.clone()
            };
            faults.mean_times.extend([
                (Fault::WorkerCrash, 20 * MINUTE),
                (Fault::WorkerFrozen, 30 * MINUTE),
                (Fault::CoordinatorCrash, 10 * MINUTE),
            ]);
        }
        scenario
    }

    /// Returns a scenario of two honest machines, and what disturbs them, if anything.
    pub fn disturbed(disturbance: Option<Disturbance>, seed: u64) -> Self {
        let mut scenario = Self { workers: 2, machines: vec![TYPICAL; 2], ..Self::faultless(seed) };
        if let Some(disturbance) = disturbance {
            (disturbance.apply)(&mut scenario);
        }
        scenario
    }

    /// Adds machines of another token, which count right if at all.
    fn disturb(&mut self, number: usize, machine: Machine, conduct: Conduct) {
        self.workers += number;
        self.machines.splice(0..0, vec![machine; number]);
        self.tokens = vec!["other"; number];
        self.tokens.push("honest");
        (self.faults.liars, self.faults.conduct) = (number, conduct);
    }

    /// Lets two liars with a token each agree on their lies, against two honest ones.
    fn collude(&mut self) {
        (self.faults.liars, self.faults.liars_agree) = (2, true);
        self.workers = 4;
        self.tokens = vec!["lying", "lying too", "honest"];
    }

    /// Returns a scenario of different machines, without faults.
    /// One has speed 4, four have speed 1, and one has too little memory.
    pub fn mixed(seed: u64) -> Self {
        let faultless = Self::faultless(seed);
        let fast = Machine { speed: 4.0, ..TYPICAL };
        let small = Machine { memory_bytes_per_thread: 1 << 10, ..TYPICAL };
        let machines = vec![fast, TYPICAL, TYPICAL, TYPICAL, TYPICAL, small];
        Self {
            workers: machines.len(),
            machines,
            // An hour per run is long compared to the two minutes within which workers start.
            ms_per_cost: 30.0 * faultless.ms_per_cost,
            ..faultless
        }
    }

    /// Returns a scenario of three runs whose priorities differ, submitted while others are counted.
    pub fn priorities(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut runs: Vec<_> = (-1..=1).map(|priority| (priority, 0)).collect();
        runs.sort_by_cached_key(|_| rng.random::<u64>());
        for ((_, at), number) in runs.iter_mut().zip(0..) {
            *at = number * rng.random_range(2 * MINUTE..5 * MINUTE);
        }
        Self { runs, workers: rng.random_range(2..=5), ..Self::faultless(seed) }
    }

    pub fn token(&self, machine: usize) -> Option<&'static str> {
        self.tokens.get(machine).or(self.tokens.last()).copied()
    }

    /// Returns the time of each task on a thread of speed 1, in milliseconds.
    pub fn task_times(&self) -> Vec<u64> {
        let plan = &self.truth.plan;
        let time = |task| self.duration(task, plan.task_cost(task));
        plan.lease_order().map(time).collect()
    }

    /// Returns the time of a slot of normal speed: the cost with a random error.
    pub(super) fn duration(&self, task: TaskId, cost: u64) -> Time {
        let factor = 0.3 + (hash(task.0) >> 40) as f64 / (1u64 << 23) as f64;
        let ms = cost as f64 * self.ms_per_cost * factor;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let ms = ms as Time;
        ms.max(1)
    }

    /// Returns the count of a slot; a wrong count depends on the number of the liar.
    ///
    /// Lies of different workers, and of one worker in both orientations, differ unless the scenario lets
    /// them agree.
    pub(super) fn count(&self, work: &Work, (liar, slot): (Option<u64>, usize)) -> u64 {
        let task = work.lease.task.task;
        let truth = self.truth.count(task);
        let bad_slot = slot == 0 || !self.faults.bad_core;
        match (liar.filter(|liar| bad_slot && self.lies(*liar, task)), work.orientation) {
            (None, _) => truth,
            (Some(_), _) if self.faults.liars_agree => truth + 8,
            (Some(liar), Orientation::Upright) => truth + 2 * liar + 1,
            (Some(liar), Orientation::Rotated) => truth + 2 * liar + 2,
        }
    }

    /// Returns whether a liar lies about a task; agreeing liars choose the same tasks.
    pub(super) fn lies(&self, liar: u64, task: TaskId) -> bool {
        let liar = if self.faults.liars_agree { 0 } else { liar + 1 };
        let random = hash(task.0 ^ liar << 40) >> 11;
        (random as f64) < self.faults.lie_rate * (1u64 << 53) as f64
    }

    fn faultless(seed: u64) -> Self {
        let truth = PLANS.last().expect("there are plans");
        Self {
            seed,
            truth,
            runs: vec![(0, 0)],
            workers: 4,
            max_slots: 4,
            machines: Vec::new(),
            ms_per_cost: 2_000.0 / mean_cost(truth),
            files: false,
            recheck: Recheck::Auto,
            referee: true,
            tokens: Vec::new(),
            faults: Faults::default(),
        }
    }
}

fn mean_cost(truth: &ExactCounts) -> f64 {
    let tasks = truth.plan.lease_order();
    let sum: u64 = tasks.map(|task| truth.plan.task_cost(task)).sum();
    sum as f64 / truth.plan.tasks() as f64
}

fn hash(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
