//! What a seed decides: the cluster and how badly it is treated.

use coordinator::ledger::Recheck;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

use super::{HOUR, MINUTE, SECOND, Time, fate, truth::Truth};

/// How often things go wrong.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The chance that a message is lost.
    pub loss: f64,
    /// The chance that a request arrives twice.
    pub repeat: f64,
    /// The chance that a message is late, by up to two minutes.
    pub late: f64,
    /// Mean time between times in which a worker is cut off.
    pub partition: Time,
    /// Mean time between crashes of one worker.
    pub worker_crash: Time,
    /// Mean time between freezes of one worker.
    pub worker_freeze: Time,
    /// Mean time between planned stops of one worker.
    pub worker_drain: Time,
    /// Mean time between pauses of one worker: its machine is on battery, or wanted by others.
    pub worker_pause: Time,
    /// Mean time between leaps of one worker's clock.
    pub worker_clock: Time,
    /// The chance that a crashed worker loses its spool directory.
    pub spool_loss: f64,
    /// The chance that a write of a spool fails.
    pub spool_error: f64,
    /// The chance that a task has no count.
    pub count_error: f64,
    /// Mean time between crashes of the coordinator.
    pub coordinator_crash: Time,
    /// The chance of a coordinator crash while it writes a group.
    pub crash_in_write: f64,
    /// The chance that a write of a group finds no room.
    pub disk_error: f64,
    /// Mean time between losses of the coordinator's disk.
    pub disk_loss: Time,
    /// Mean time between leaps of the coordinator's clock.
    pub clock_leap: Time,
    /// Mean time between pauses of the run.
    pub pause: Time,
    /// Mean time between machines that ask for work and vanish.
    pub ghost: Time,
    /// Workers that report wrong counts.
    pub liars: usize,
    /// Which part of its tasks a liar lies about.
    pub lie_rate: f64,
    /// The liars tell the same lies, whichever way round they count.
    pub liars_agree: bool,
    /// Only the first slot of a liar counts wrong.
    pub bad_core: bool,
    /// So many tasks, drawn by lot, have a first count that is wrong, whoever makes it.
    pub planted: u64,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        loss: 0.0,
        repeat: 0.0,
        late: 0.0,
        partition: Time::MAX,
        worker_crash: Time::MAX,
        worker_freeze: Time::MAX,
        worker_drain: Time::MAX,
        worker_pause: Time::MAX,
        worker_clock: Time::MAX,
        spool_loss: 0.0,
        spool_error: 0.0,
        count_error: 0.0,
        coordinator_crash: Time::MAX,
        crash_in_write: 0.0,
        disk_error: 0.0,
        disk_loss: Time::MAX,
        clock_leap: Time::MAX,
        pause: Time::MAX,
        ghost: Time::MAX,
        liars: 0,
        lie_rate: 0.0,
        liars_agree: false,
        bad_core: false,
        planted: 0,
    };
}

/// What a machine is like.
#[derive(Clone, Copy, Debug)]
pub struct Make {
    /// Speed of a thread, 1 being the usual.
    pub speed: f64,
    /// How many tasks it counts at a time, a thread each.
    pub threads: u32,
    /// What each of them may hold.
    pub memory_bytes_per_thread: u64,
}

/// A cluster and its fate.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Named in every assertion.
    pub seed: u64,
    /// What is counted.
    pub truth: &'static Truth,
    /// Honest and lying workers.
    pub workers: usize,
    /// Threads of a worker at most.
    pub threads: u32,
    /// What the first workers are like; of the others lots are drawn.
    pub makes: Vec<Make>,
    /// True milliseconds of a thread of speed 1 for one unit of predicted cost.
    pub ms_per_cost: f64,
    /// Uses the store of files, and not the model of it.
    pub files: bool,
    /// How much is counted twice.
    pub recheck: Recheck,
    /// What goes wrong.
    pub faults: Faults,
}

/// Draws a mean time between faults: never in some runs, often in others.
fn between(rng: &mut ChaCha8Rng, often: Time, seldom: Time) -> Time {
    if rng.random_bool(0.3) {
        return Time::MAX;
    }
    rng.random_range(often..seldom)
}

/// Draws a chance: none in some runs, up to `most` in others.
fn chance(rng: &mut ChaCha8Rng, most: f64) -> f64 {
    if rng.random_bool(0.3) {
        return 0.0;
    }
    rng.random_range(0.0..most)
}

impl Scenario {
    /// The scenario of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let truths = Truth::all();
        // One seed in 25 is a large cluster; most are small ones, where each fault weighs more.
        let large = seed.is_multiple_of(25);
        let workers = if large {
            rng.random_range(100..300)
        } else {
            rng.random_range(1..24)
        };
        // With two others, one liar can be outvoted; two want more.
        let liars = match workers {
            3.. if rng.random_bool(0.5) => rng.random_range(1..=if workers < 6 { 1 } else { 2 }),
            _ => 0,
        };
        let truth = if large {
            truths.last().expect("there are plans")
        } else {
            &truths[rng.random_range(0..truths.len())]
        };
        let mean_task_ms = 10f64.powf(rng.random_range(1.5..4.8));
        // What is shipped, and now and then what an operator asks for.
        let recheck = match seed % 8 {
            3 => Recheck::All,
            5 => Recheck::Millionths(rng.random_range(0..1_000_000)),
            _ => Recheck::Auto,
        };
        Self {
            seed,
            truth,
            workers,
            threads: rng.random_range(1..=8),
            makes: Vec::new(),
            files: seed % 50 == 7,
            ms_per_cost: mean_task_ms / mean_cost(truth),
            recheck,
            faults: Faults {
                loss: chance(&mut rng, 0.3),
                repeat: chance(&mut rng, 0.2),
                late: chance(&mut rng, 0.1),
                partition: between(&mut rng, 5 * MINUTE, 2 * HOUR),
                worker_crash: between(&mut rng, 5 * MINUTE, 2 * HOUR),
                worker_freeze: between(&mut rng, 5 * MINUTE, 2 * HOUR),
                worker_drain: between(&mut rng, 5 * MINUTE, 2 * HOUR),
                worker_clock: between(&mut rng, 5 * MINUTE, 2 * HOUR),
                spool_loss: chance(&mut rng, 1.0),
                spool_error: chance(&mut rng, 0.5),
                count_error: chance(&mut rng, 0.01),
                coordinator_crash: between(&mut rng, 30 * SECOND, HOUR),
                crash_in_write: chance(&mut rng, 0.01),
                disk_error: chance(&mut rng, 0.01),
                // A lost disk is a run lost: seldom, or nothing would ever end.
                disk_loss: match rng.random_bool(0.1) {
                    true => between(&mut rng, HOUR, 8 * HOUR),
                    false => Time::MAX,
                },
                clock_leap: between(&mut rng, 30 * SECOND, HOUR),
                pause: between(&mut rng, 5 * MINUTE, 2 * HOUR),
                ghost: between(&mut rng, 5 * MINUTE, HOUR),
                liars,
                lie_rate: 10f64.powf(rng.random_range(-3.0..=0.0)),
                liars_agree: liars == 2 && rng.random_bool(0.5),
                bad_core: rng.random_bool(0.3),
                planted: 0,
                worker_pause: between(&mut rng, 5 * MINUTE, 2 * HOUR),
            },
        }
    }

    /// The same with one liar of any rate among three workers or more, at what is shipped.
    pub fn one_liar(seed: u64) -> Self {
        let mut scenario = Self::new(seed);
        scenario.workers = scenario.workers.max(3);
        scenario.recheck = Recheck::Auto;
        scenario.faults.liars = 1;
        scenario.faults.liars_agree = false;
        scenario
    }

    /// One worker that is always wrong beside two honest ones; nothing else goes wrong.
    pub fn always_wrong(seed: u64) -> Self {
        let calm = Self::calm(seed);
        Self {
            workers: 3,
            recheck: Recheck::Auto,
            faults: Faults {
                liars: 1,
                lie_rate: 1.0,
                ..Faults::NONE
            },
            // Workers start within two minutes: none of them shall come to a run that is over.
            ms_per_cost: 4.0 * calm.ms_per_cost,
            ..calm
        }
    }

    /// So many wrong first counts, of which a tenth of all tasks being drawn may find one; nothing
    /// else goes wrong.
    pub fn planted(seed: u64, wrong: u64) -> Self {
        Self {
            recheck: Recheck::Millionths(100_000),
            faults: Faults {
                planted: wrong,
                ..Faults::NONE
            },
            ..Self::calm(seed)
        }
    }

    /// A machine of four times the usual speed, four usual ones, and one whose memory holds no task;
    /// nothing goes wrong.
    pub fn mixed(seed: u64) -> Self {
        let calm = Self::calm(seed);
        let usual = Make {
            speed: 1.0,
            threads: 1,
            memory_bytes_per_thread: 1 << 30,
        };
        let fast = Make {
            speed: 4.0,
            ..usual
        };
        let small = Make {
            memory_bytes_per_thread: 1 << 10,
            ..usual
        };
        let makes = vec![fast, usual, usual, usual, usual, small];
        Self {
            workers: makes.len(),
            makes,
            // A minute a task: an hour is long beside the two minutes within which workers start.
            ms_per_cost: 30.0 * calm.ms_per_cost,
            ..calm
        }
    }

    /// How long each task takes a thread of speed 1, in milliseconds.
    pub fn task_times(&self) -> Vec<u64> {
        let plan = &self.truth.plan;
        let time = |task| fate::duration(task, plan.task_cost(task), self);
        plan.handing_out_order().map(time).collect()
    }

    fn calm(seed: u64) -> Self {
        let truth = Truth::all().last().expect("there are plans");
        Self {
            seed,
            truth,
            workers: 4,
            threads: 4,
            makes: Vec::new(),
            ms_per_cost: 2_000.0 / mean_cost(truth),
            files: false,
            recheck: Recheck::Auto,
            faults: Faults::NONE,
        }
    }
}

fn mean_cost(truth: &Truth) -> f64 {
    let tasks = truth.plan.handing_out_order();
    let sum: u64 = tasks.map(|task| truth.plan.task_cost(task)).sum();
    sum as f64 / truth.plan.tasks() as f64
}
