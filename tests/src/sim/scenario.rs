//! What a seed decides: the cluster and how badly it is treated.

use coordinator::{ledger::Recheck, sched::Config};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{HOUR, MINUTE, SECOND, Time, truth::Truth};

/// How often things go wrong.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The chance that a message is lost.
    pub loss: f64,
    /// The chance that a request arrives twice.
    pub repeat: f64,
    /// The chance that a message is late, by up to two minutes.
    pub late: f64,
    /// Mean time between crashes of one worker.
    pub worker_crash: Time,
    /// Mean time between freezes of one worker.
    pub worker_freeze: Time,
    /// Mean time between planned restarts of one worker.
    pub worker_drain: Time,
    /// The chance that a crashed worker loses its spool directory.
    pub spool_loss: f64,
    /// Mean time between crashes of the coordinator.
    pub coordinator_crash: Time,
    /// The chance of a coordinator crash while it handles a message.
    pub crash_in_message: f64,
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
    /// True milliseconds of a thread of speed 1 for one unit of predicted cost.
    pub ms_per_cost: f64,
    /// Uses the store of files, and not the model of it.
    pub files: bool,
    /// How much is counted twice.
    pub recheck: Recheck,
    /// The scheduler's limits.
    pub config: Config,
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
        let liars = if workers >= 6 && rng.random_bool(0.25) {
            rng.random_range(1..=2)
        } else {
            0
        };
        let truth = if large {
            truths.last().expect("there are plans")
        } else {
            &truths[rng.random_range(0..truths.len())]
        };
        let mean_cost = {
            let tasks = truth.plan.handing_out_order();
            let sum: u64 = tasks.map(|task| truth.plan.task_cost(task)).sum();
            sum as f64 / truth.plan.tasks() as f64
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
            files: seed % 50 == 7,
            ms_per_cost: mean_task_ms / mean_cost,
            config: Config::default(),
            recheck,
            faults: Faults {
                loss: chance(&mut rng, 0.3),
                repeat: chance(&mut rng, 0.2),
                late: chance(&mut rng, 0.1),
                worker_crash: between(&mut rng, 5 * MINUTE, 2 * HOUR),
                worker_freeze: between(&mut rng, 5 * MINUTE, 2 * HOUR),
                worker_drain: between(&mut rng, 5 * MINUTE, 2 * HOUR),
                spool_loss: chance(&mut rng, 1.0),
                coordinator_crash: between(&mut rng, 30 * SECOND, HOUR),
                crash_in_message: chance(&mut rng, 0.01),
                clock_leap: between(&mut rng, 30 * SECOND, HOUR),
                pause: between(&mut rng, 5 * MINUTE, 2 * HOUR),
                ghost: between(&mut rng, 5 * MINUTE, HOUR),
                liars,
                lie_rate: 10f64.powf(rng.random_range(-3.0..=0.0)),
                liars_agree: liars == 2 && rng.random_bool(0.5),
            },
        }
    }
}
