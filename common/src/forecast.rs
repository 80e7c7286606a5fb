//! What a run will take, foretold from a few of its tasks.
//!
//! Tasks are drawn with replacement, each with a probability in proportion to its predicted cost
//! ([`Lots`]). The mean of measured over predicted time of those drawn ([`Fit`]) is then an unbiased
//! estimate of how much longer than predicted the whole run takes (Hansen and Hurwitz; Cochran, Sampling
//! Techniques, §9A.3), and their spread says how far to believe it.
//!
//! ```
//! use common::{board::Board, forecast::{Fit, Lots}, method::Layout, plan::*};
//!
//! let plan = Plan::new(PlanSpec::new(Board::new(18)?, Layout::Frames))?;
//! let lots = Lots::new(&plan);
//! let cost: u64 = plan.task_costs().sum();
//! assert_eq!(lots.number(), cost); // microseconds on the reference machine
//! assert_eq!(lots.task(cost - 1), TaskId(plan.tasks() - 1));
//! // Three tasks took 1.9, 2.0 and 2.1 times as long as predicted here.
//! let fit = Fit::new(vec![1.9, 2.0, 2.1]).expect("enough of them");
//! let seconds = fit.ratio().times(cost as f64 / 1e6);
//! assert!(seconds.low < seconds.expected && seconds.expected < seconds.high);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::{
    plan::{Plan, TaskId},
    sample::t_quantile,
};

/// Millionths of all tasks that a run counts a second time unless somebody says otherwise.
pub const SECOND_COUNTS_MILLIONTHS: u32 = 20_000;

/// Bytes of the journal for one count.
const JOURNAL_BYTES: f64 = 480.0;

/// Bytes of sled for one task, with what it keeps of its past.
const SLED_BYTES: f64 = 360.0;

/// What files hold beside the tasks', at least.
const FILES_BYTES: f64 = 1_000_000.0;

/// A value, and the ends of the interval that it lies in with [`crate::sample::CONFIDENCE`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The lower end.
    pub low: f64,
    /// The value.
    pub expected: f64,
    /// The upper end.
    pub high: f64,
}

impl Range {
    /// A value that is known.
    pub const fn exactly(value: f64) -> Self {
        Self {
            low: value,
            expected: value,
            high: value,
        }
    }

    /// All three times `factor`, which is not negative.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            low: self.low * factor,
            expected: self.expected * factor,
            high: self.high * factor,
        }
    }

    /// `whole` divided by the value: the ends change places.
    #[must_use]
    pub fn dividing(self, whole: f64) -> Self {
        Self {
            low: whole / self.high,
            expected: whole / self.expected,
            high: whole / self.low,
        }
    }

    /// The sum of two values that err together, as those of one model do.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            low: self.low + other.low,
            expected: self.expected + other.expected,
            high: self.high + other.high,
        }
    }
}

/// A run's tasks, as many lots each as its cost has microseconds.
#[derive(Clone, Debug)]
pub struct Lots {
    /// The cost of all tasks up to and with this one, ascending.
    until: Vec<u64>,
}

impl Lots {
    /// Of `plan`.
    pub fn new(plan: &Plan) -> Self {
        let mut sum = 0u64;
        let sums = plan.task_costs().map(|cost| {
            sum = sum.saturating_add(cost);
            sum
        });
        Self {
            until: sums.collect(),
        }
    }

    /// How many there are: the plan's whole cost in microseconds of one core of the reference machine,
    /// or 2^64 - 1 if it passes that.
    pub fn number(&self) -> u64 {
        self.until.last().copied().unwrap_or(0)
    }

    /// Whose lot this is.
    ///
    /// # Panics
    /// If there is none of this number.
    pub fn task(&self, lot: u64) -> TaskId {
        assert!(lot < self.number(), "lot {lot} of {}", self.number());
        TaskId(self.until.partition_point(|&until| until <= lot) as u64)
    }
}

/// How well the plan's costs foretell times.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Measured over predicted time of the tasks that were drawn; two at least, all above 0.
    ratios: Vec<f64>,
}

impl Fit {
    /// Of tasks that [`Lots`] drew, each given by its measured over its predicted time; `None` where they
    /// are fewer than two, which say nothing about each other.
    pub fn new(ratios: Vec<f64>) -> Option<Self> {
        let sound = ratios.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0);
        (ratios.len() >= 2 && sound).then_some(Self { ratios })
    }

    /// How many tasks.
    pub fn tasks(&self) -> usize {
        self.ratios.len()
    }

    /// How much longer than predicted the whole takes.
    pub fn ratio(&self) -> Range {
        let mean = self.mean();
        let tasks = self.ratios.len() as f64;
        let margin = t_quantile(tasks - 1.0) * self.spread() / tasks.sqrt();
        // By factors and not by differences: no time is negative.
        Range {
            low: mean / margin.exp(),
            expected: mean,
            high: mean * margin.exp(),
        }
    }

    /// The standard deviation of the ratios, as a part of their mean.
    pub fn spread(&self) -> f64 {
        let mean = self.mean();
        let squares = self.ratios.iter().map(|ratio| (ratio - mean).powi(2));
        (squares.sum::<f64>() / (self.ratios.len() - 1) as f64).sqrt() / mean
    }

    /// The part of the tasks, 0 to 1, that took at most twice and at least half what their mean foretells.
    pub fn within_twice(&self) -> f64 {
        let mean = self.mean();
        let near = |ratio: &&f64| (0.5..=2.0).contains(&(*ratio / mean));
        self.ratios.iter().filter(near).count() as f64 / self.ratios.len() as f64
    }

    fn mean(&self) -> f64 {
        self.ratios.iter().sum::<f64>() / self.ratios.len() as f64
    }
}

/// Bytes that the coordinator's disk must have for a run of so many tasks, of which `second_counts`, 0
/// to 1, are counted twice.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates by intent"
)]
pub fn disk_bytes(tasks: u64, second_counts: f64) -> u64 {
    let counts = tasks as f64 * (1.0 + second_counts);
    (FILES_BYTES + counts * JOURNAL_BYTES + tasks as f64 * SLED_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{board::Board, method::Layout, plan::PlanSpec};

    fn plan(n: u8, layout: Layout) -> Plan {
        Plan::new(PlanSpec::new(Board::new(n).unwrap(), layout)).unwrap()
    }

    #[test]
    fn every_task_has_as_many_lots_as_its_cost() {
        for (n, layout) in [(8, Layout::FirstRows), (16, Layout::Frames)] {
            let plan = plan(n, layout);
            let lots = Lots::new(&plan);
            assert_eq!(lots.number(), plan.task_costs().sum::<u64>());
            let mut begin = 0;
            for (task, cost) in (0..).map(TaskId).zip(plan.task_costs()) {
                assert_eq!(lots.task(begin), task, "N = {n}");
                begin += cost;
                assert_eq!(lots.task(begin - 1), task, "N = {n}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "lot")]
    fn a_lot_that_is_not_there_is_nobodys() {
        let lots = Lots::new(&plan(8, Layout::FirstRows));
        lots.task(lots.number());
    }

    #[test]
    fn a_model_that_is_always_off_by_the_same_leaves_nothing_open() {
        let fit = Fit::new(vec![1.5; 4]).unwrap();
        assert_eq!(fit.ratio(), Range::exactly(1.5));
        assert_eq!((fit.spread(), fit.within_twice()), (0.0, 1.0));
    }

    #[test]
    fn ranges_hold_their_value_and_narrow_with_the_sample() {
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

    /// The interval is worth its name: of many samples from a known population, drawn by lots, 95 % hold
    /// the truth.
    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let plan = plan(16, Layout::Frames);
        let lots = Lots::new(&plan);
        // A truth that the costs miss by a factor that differs from task to task.
        let factor = |task: TaskId| 0.6 + 0.1 * (task.0.wrapping_mul(2_654_435_761) % 13) as f64;
        let costs = (0..).map(TaskId).zip(plan.task_costs());
        let truth = costs
            .map(|(task, cost)| factor(task) * cost as f64)
            .sum::<f64>();
        let whole = lots.number() as f64;
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 16) % below
        };
        let mut held = 0;
        for _ in 0..1000 {
            let drawn = (0..12).map(|_| factor(lots.task(random(lots.number()))));
            let range = Fit::new(drawn.collect()).unwrap().ratio().times(whole);
            held += usize::from((range.low..=range.high).contains(&truth));
        }
        assert!((920..=980).contains(&held), "{held} of 1000");
    }

    #[test]
    fn too_few_and_unsound_measurements_are_no_fit() {
        for bad in [
            vec![],
            vec![1.0],
            vec![1.0, f64::NAN],
            vec![1.0, 0.0],
            vec![1.0, f64::INFINITY],
        ] {
            assert_eq!(Fit::new(bad), None);
        }
    }

    #[test]
    fn dividing_turns_a_range_around() {
        let speed = Range {
            low: 1.0,
            expected: 2.0,
            high: 4.0,
        };
        let time = speed.dividing(8.0);
        assert_eq!((time.low, time.expected, time.high), (2.0, 4.0, 8.0));
        let both = speed.plus(Range::exactly(1.0)).times(2.0);
        assert_eq!((both.low, both.expected, both.high), (4.0, 6.0, 10.0));
    }

    #[test]
    fn more_counts_take_more_disk() {
        assert!(disk_bytes(1000, 0.0) < disk_bytes(1000, 0.02));
        assert!(disk_bytes(1000, 1.0) < disk_bytes(2000, 0.0) + 1_000_000);
    }
}
