//! Forecast of a run from a sample of its tasks.
//!
//! Tasks are sampled with replacement, with probability proportional to predicted cost ([`CostSampler`]).
//! The mean ratio of measured to predicted time ([`Fit`]) is an unbiased estimate of the ratio for
//! the whole run (Hansen and Hurwitz; Cochran, Sampling Techniques, §9A.3), and the spread gives
//! its interval.
//!
//! ```
//! use common::{board::Board, method::Layout, plan::*, estimate::forecast::{Fit, CostSampler}};
//!
//! let plan = Plan::new(PlanSpec::new(Board::new(18)?, Layout::Frames))?;
//! let sampler = CostSampler::new(&plan);
//! let cost: u64 = plan.task_costs().sum();
//! assert_eq!(sampler.total(), cost); // microseconds on the reference machine
//! assert_eq!(sampler.task(cost - 1), TaskId(plan.tasks() - 1));
//! // Three tasks took 1.9, 2.0 and 2.1 times as long as predicted here.
//! let fit = Fit::new(vec![1.9, 2.0, 2.1]).expect("enough of them");
//! let seconds = fit.ratio().scaled(cost as f64 / 1e6);
//! assert!(seconds.low < seconds.expected && seconds.expected < seconds.high);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use serde::{Deserialize, Serialize};

use crate::{
    estimate::sample::t_quantile,
    plan::{Plan, TaskId},
};

/// Millionths of all tasks that are rechecked by default.
pub const RECHECKS_MILLIONTHS: u32 = 20_000;

/// The same as a fraction.
pub const RECHECK_FRACTION: f64 = RECHECKS_MILLIONTHS as f64 / 1e6;

/// Journal bytes per count.
const JOURNAL_BYTES: f64 = 480.0;

/// Index bytes per task.
const SLED_BYTES: f64 = 360.0;

/// Bytes of all other files, at least.
const FILES_BYTES: f64 = 1_000_000.0;

/// A value with its interval at confidence [`crate::estimate::sample::CONFIDENCE`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    pub low: f64,
    pub expected: f64,
    pub high: f64,
}

impl Range {
    /// Returns a range of width zero.
    pub const fn exactly(value: f64) -> Self {
        Self { low: value, expected: value, high: value }
    }

    /// Multiplies by a non-negative factor.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { low: self.low * factor, expected: self.expected * factor, high: self.high * factor }
    }

    /// Returns `whole` divided by this range, with the ends swapped.
    #[must_use]
    pub fn recip_scaled(self, whole: f64) -> Self {
        Self { low: whole / self.high, expected: whole / self.expected, high: whole / self.low }
    }

    /// Widens the range for an independent error that is below `factor` at the same confidence.
    #[must_use]
    pub fn widened(self, factor: f64) -> Self {
        let margin = |end: f64| (end / self.expected).ln().hypot(factor.ln()).exp();
        Self {
            low: self.expected / margin(self.low),
            high: self.expected * margin(self.high),
            ..self
        }
    }

    /// Adds a range whose error is fully correlated.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            low: self.low + other.low,
            expected: self.expected + other.expected,
            high: self.high + other.high,
        }
    }
}

/// Sampler of a run's tasks with probability proportional to cost.
#[derive(Clone, Debug)]
pub struct CostSampler {
    /// Cumulative cost up to and including each task.
    until: Vec<u64>,
}

impl CostSampler {
    pub fn new(plan: &Plan) -> Self {
        let mut sum = 0u64;
        let sums = plan.task_costs().map(|cost| {
            sum = sum.saturating_add(cost);
            sum
        });
        Self { until: sums.collect() }
    }

    /// Returns the cost of the plan in microseconds, at most 2^64 - 1.
    pub fn total(&self) -> u64 {
        self.until.last().copied().unwrap_or(0)
    }

    /// Returns the task that covers this microsecond of the plan's cost.
    ///
    /// # Panics
    /// If `point` is not below the total.
    pub fn task(&self, point: u64) -> TaskId {
        assert!(point < self.total(), "microsecond {point} of {}", self.total());
        TaskId(self.until.partition_point(|&until| until <= point) as u64)
    }
}

/// Accuracy of the plan's cost estimates.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Measured over predicted time of the sampled tasks; at least two, all positive.
    ratios: Vec<f64>,
}

impl Fit {
    /// Creates a fit from at least two positive ratios of measured to predicted time.
    pub fn new(ratios: Vec<f64>) -> Option<Self> {
        let sound = ratios.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0);
        (ratios.len() >= 2 && sound).then_some(Self { ratios })
    }

    pub fn tasks(&self) -> usize {
        self.ratios.len()
    }

    /// Returns the ratio of actual to predicted time of the whole run.
    pub fn ratio(&self) -> Range {
        let mean = self.mean();
        let tasks = self.ratios.len() as f64;
        let margin = t_quantile(tasks - 1.0) * self.spread() / tasks.sqrt();
        // The margin is a factor, not a difference, because times are positive.
        Range { low: mean / margin.exp(), expected: mean, high: mean * margin.exp() }
    }

    /// Returns the standard deviation of the ratios, relative to their mean.
    pub fn spread(&self) -> f64 {
        let mean = self.mean();
        let squares = self.ratios.iter().map(|ratio| (ratio - mean).powi(2));
        (squares.sum::<f64>() / (self.ratios.len() - 1) as f64).sqrt() / mean
    }

    /// Returns the share of tasks within a factor of two of the mean ratio.
    pub fn within_twice(&self) -> f64 {
        let mean = self.mean();
        let near = |ratio: &&f64| (0.5..=2.0).contains(&(*ratio / mean));
        self.ratios.iter().filter(near).count() as f64 / self.ratios.len() as f64
    }

    fn mean(&self) -> f64 {
        self.ratios.iter().sum::<f64>() / self.ratios.len() as f64
    }
}

/// Returns the core-seconds of the reference machine that a run needs, without rechecks.
pub fn core_seconds(plan: &Plan) -> f64 {
    plan.task_costs().map(|cost| cost as f64 / 1e6).sum()
}

/// Returns the disk space a run needs, with the default rechecks.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates by intent")]
pub fn disk_bytes(tasks: u64) -> u64 {
    let counts = tasks as f64 * (1.0 + RECHECK_FRACTION);
    (FILES_BYTES + counts * JOURNAL_BYTES + tasks as f64 * SLED_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        method::Layout,
        test_fixture::{plan, random_from},
    };

    #[test]
    fn every_task_is_selected_in_proportion_to_its_cost() {
        for (n, layout) in [(8, Layout::FirstRows), (16, Layout::Frames)] {
            let plan = plan(n, layout);
            let sampler = CostSampler::new(&plan);
            assert_eq!(sampler.total(), plan.task_costs().sum::<u64>());
            let mut begin = 0;
            for (task, cost) in (0..).map(TaskId).zip(plan.task_costs()) {
                assert_eq!(sampler.task(begin), task, "N = {n}");
                begin += cost;
                assert_eq!(sampler.task(begin - 1), task, "N = {n}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "microsecond")]
    fn points_beyond_the_total_are_refused() {
        let sampler = CostSampler::new(&plan(8, Layout::FirstRows));
        sampler.task(sampler.total());
    }

    #[test]
    fn ranges_contain_their_value_and_narrow_with_the_sample() {
        let constant = Fit::new(vec![1.5; 4]).unwrap();
        assert_eq!(constant.ratio(), Range::exactly(1.5));
        assert_eq!((constant.spread(), constant.within_twice()), (0.0, 1.0));
        let mut before = f64::INFINITY;
        for number in [2usize, 3, 5, 10, 100, 1000] {
            let ratios = (0..number).map(|at| if at % 2 == 0 { 0.8 } else { 1.2 });
            let range = Fit::new(ratios.collect()).unwrap().ratio();
            assert!(0.0 < range.low && range.low < range.expected, "{range:?}");
            assert!(range.expected < range.high, "{range:?}");
            let width = range.high / range.low;
            assert!(width < before, "{number}: {range:?}");
            before = width;
        }
        assert!(before < 1.06);
    }

    /// Returns how many of 1,000 intervals of weighted samples contain the truth. Each sample is measured
    /// at a speed that differs by a normal error, at most `error` at 95 % confidence.
    fn held(error: f64) -> usize {
        let plan = plan(16, Layout::Frames);
        let sampler = CostSampler::new(&plan);
        // The costs are off by a factor that differs between tasks.
        let factor = |task: TaskId| 0.6 + 0.1 * (task.0.wrapping_mul(2_654_435_761) % 13) as f64;
        let costs = (0..).map(TaskId).zip(plan.task_costs());
        let truth = costs.map(|(task, cost)| factor(task) * cost as f64).sum::<f64>();
        let whole = sampler.total() as f64;
        let mut random = random_from(7);
        let contains = |_: &i32| {
            let normal = (0..12).map(|_| random(1_000) as f64 / 1e3).sum::<f64>() - 6.0;
            let speed = (normal / 1.96 * error.ln()).exp();
            let selected = (0..12).map(|_| speed * factor(sampler.task(random(sampler.total()))));
            let ratio = Fit::new(selected.collect()).unwrap().ratio().widened(error);
            let range = ratio.scaled(whole);
            (range.low..=range.high).contains(&truth)
        };
        (0..1000).filter(contains).count()
    }

    #[test]
    fn intervals_contain_the_truth_at_the_claimed_rate() {
        for error in [1.0, 1.1, 1.5] {
            let held = held(error);
            assert!((920..=980).contains(&held), "{held} of 1000 at {error}");
        }
    }

    #[test]
    fn too_few_or_invalid_measurements_give_no_fit() {
        for bad in
            [vec![], vec![1.0], vec![1.0, f64::NAN], vec![1.0, 0.0], vec![1.0, f64::INFINITY]]
        {
            assert_eq!(Fit::new(bad), None);
        }
    }

    #[test]
    fn a_reciprocal_exchanges_the_ends() {
        let speed = Range { low: 1.0, expected: 2.0, high: 4.0 };
        let time = speed.recip_scaled(8.0);
        assert_eq!((time.low, time.expected, time.high), (2.0, 4.0, 8.0));
        let both = speed.plus(Range::exactly(1.0)).scaled(2.0);
        assert_eq!((both.low, both.expected, both.high), (4.0, 6.0, 10.0));
    }
}
