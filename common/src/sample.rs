//! Estimating all(N) from a random sample of tasks, with a confidence interval.
//!
//! The units of one task resemble each other (they share a prefix or a quarter board), so tasks, not
//! units, are what is sampled ("clusters" in survey terms), as small ones as are worth their while.
//! Tasks are put into strata of similar predicted cost; within each, a simple random sample without
//! replacement is counted. Costly tasks differ by more, so that a stratum's part of the sample goes
//! with the square roots of its costs (Neyman's allocation, where deviations go with the cost).
//!
//! Counts nearly follow costs. The combined ratio estimator uses that: the known cost of all tasks,
//! times estimated count over estimated cost. Its variance is that of count - ratio · cost within the
//! strata (Cochran, Sampling Techniques, §6.11). A poor cost model widens the interval and does not
//! shift it; the ratio's own bias is of the order of 1 / sampled tasks.
//!
//! ```
//! use common::{board::Board, count::*, method::Layout, plan::*, sample::Sample};
//!
//! let spec = PlanSpec { task_cost: 100, ..PlanSpec::new(Board::new(12)?, Layout::Frames) };
//! let plan = Plan::new(spec)?;
//! let mut state = 7_u64;
//! let mut random_below = |below: u64| {
//!     state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
//!     (state >> 33) % below
//! };
//! let sample = Sample::draw(&plan, 0.5, &mut random_below)?;
//! let mut counter = Counter::new(&plan, &Setup::best(1 << 28))?;
//! let mut count = |task| counter.count(plan.task_units(task), &Unwatched).map(|count| (task, count));
//! let counts = sample.tasks().map(&mut count).collect::<Result<std::collections::HashMap<_, _>, _>>()?;
//! let estimate = sample.estimate(&|task| counts[&task]);
//! assert!((estimate.low..=estimate.high).contains(&14_200)); // as 19 of 20 such intervals do
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::plan::{BadSpec, Plan, PlanSpec, TaskId};

/// The confidence of every interval of this module.
pub const CONFIDENCE: f64 = 0.95;

/// Sampled tasks wanted in a stratum: fewer make its variance too uncertain.
const PER_STRATUM: f64 = 10.0;

/// More strata than this gain nothing.
const MAX_STRATA: usize = 20;

/// So many tasks are drawn, where units are small enough: more would each be too short to be worth
/// its setup.
const WANTED: f64 = 1000.0;

/// A fraction that nothing can be sampled by.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the sampled fraction is {0}, which is not above 0 and at most 1")]
pub struct BadFraction(pub f64);

/// A stratified random sample of a plan's tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    strata: Vec<Stratum>,
    /// The cost of all tasks of the plan.
    cost: f64,
}

#[derive(Clone, Debug, PartialEq)]
struct Stratum {
    /// Tasks in the stratum.
    size: f64,
    /// Its sampled tasks with their costs.
    tasks: Vec<(TaskId, f64)>,
}

/// An estimated number with a confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The estimate.
    pub solutions: u128,
    /// The lower end of the interval.
    pub low: u128,
    /// The upper end of the interval.
    pub high: u128,
}

/// The plan of `spec`'s units in tasks from which a sample of this fraction is best drawn.
pub fn plan_to_draw_from(spec: PlanSpec, fraction: f64) -> Result<Plan, BadSpec> {
    let usual = Plan::new(spec)?;
    let cost = usual.task_costs().map(real).sum::<f64>();
    let wanted = u64::try_from(whole(cost * fraction / WANTED)).unwrap_or(spec.task_cost);
    in_tasks_of(usual, wanted)
}

/// The units of a plan in tasks of about this cost in microseconds, where that is less than its own:
/// in larger ones where they would be too many.
pub fn in_tasks_of(usual: Plan, cost: u64) -> Result<Plan, BadSpec> {
    let spec = *usual.spec();
    let mut task_cost = cost.clamp(1, spec.task_cost);
    while task_cost < spec.task_cost {
        match Plan::new(PlanSpec { task_cost, ..spec }) {
            Err(BadSpec::TooManyTasks { .. }) => task_cost = task_cost.saturating_mul(2),
            made => return made,
        }
    }
    Ok(usual)
}

impl Sample {
    /// Draws tasks that make up about `fraction` of the predicted cost of `plan` (at least two,
    /// where it has them). `random_below(k)` must answer a uniform random number in `0..k`.
    pub fn draw(
        plan: &Plan,
        fraction: f64,
        random_below: &mut dyn FnMut(u64) -> u64,
    ) -> Result<Self, BadFraction> {
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(BadFraction(fraction));
        }
        let mut tasks: Vec<_> = (0..plan.tasks())
            .map(TaskId)
            .zip(plan.task_costs().map(real))
            .collect();
        tasks.sort_by(|one, other| one.1.total_cmp(&other.1));
        let cost = tasks.iter().map(|task| task.1).sum::<f64>();
        let strata = strata(tasks, fraction * cost)
            .into_iter()
            .map(|(tasks, wanted)| Stratum::draw(tasks, wanted, random_below))
            .collect();
        Ok(Self { strata, cost })
    }

    /// The sampled tasks.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.strata
            .iter()
            .flat_map(|stratum| stratum.tasks.iter().map(|task| task.0))
    }

    /// The estimate of the sum of the counts of all tasks, from the counts of the sampled ones.
    pub fn estimate(&self, count_of: &dyn Fn(TaskId) -> u64) -> Estimate {
        let counts: Vec<Vec<f64>> = self
            .strata
            .iter()
            .map(|stratum| {
                stratum
                    .tasks
                    .iter()
                    .map(|task| real(count_of(task.0)))
                    .collect()
            })
            .collect();
        let counted = counts.iter().flatten().sum::<f64>();
        let (mut count, mut cost) = (0.0, 0.0);
        for (stratum, counts) in self.strata.iter().zip(&counts) {
            let each = stratum.size / counts.len() as f64;
            count += each * counts.iter().sum::<f64>();
            cost += each * stratum.tasks.iter().map(|task| task.1).sum::<f64>();
        }
        let ratio = count / cost;
        let (mut variance, mut squares) = (0.0, 0.0);
        for (stratum, counts) in self.strata.iter().zip(&counts) {
            let (size, sampled) = (stratum.size, counts.len() as f64);
            if sampled > 1.0 && sampled < size {
                let beside: Vec<f64> = counts
                    .iter()
                    .zip(&stratum.tasks)
                    .map(|(count, task)| count - ratio * task.1)
                    .collect();
                let mean = beside.iter().sum::<f64>() / sampled;
                let spread = beside
                    .iter()
                    .map(|value| (value - mean).powi(2))
                    .sum::<f64>();
                let part = size * (size - sampled) * spread / (sampled - 1.0) / sampled;
                variance += part;
                squares += part * part / (sampled - 1.0);
            }
        }
        // Satterthwaite's degrees of freedom for a sum of independent variance estimates.
        let freedom = if squares > 0.0 {
            variance * variance / squares
        } else {
            1.0
        };
        let margin = t_quantile(freedom) * variance.sqrt() * self.cost / cost;
        Estimate::new(ratio * self.cost, margin).at_least(counted)
    }
}

impl Stratum {
    /// Moves a random sample to the front (Fisher and Yates) and keeps it.
    fn draw(
        mut tasks: Vec<(TaskId, f64)>,
        wanted: usize,
        random_below: &mut dyn FnMut(u64) -> u64,
    ) -> Self {
        let size = tasks.len();
        for place in 0..wanted {
            let others = (size - place) as u64;
            let chosen = usize::try_from(random_below(others)).map_or(place, |below| place + below);
            tasks.swap(place, chosen);
        }
        tasks.truncate(wanted);
        Self {
            size: size as f64,
            tasks,
        }
    }
}

impl Estimate {
    fn new(solutions: f64, margin: f64) -> Self {
        Self {
            solutions: whole(solutions),
            low: whole(solutions - margin),
            high: whole(solutions + margin),
        }
    }

    /// What was counted is there.
    fn at_least(self, counted: f64) -> Self {
        let counted = whole(counted);
        Self {
            solutions: self.solutions.max(counted),
            low: self.low.max(counted),
            high: self.high.max(counted),
        }
    }

    /// How far the ends of the interval are from the estimate, as a part of it; infinite where it
    /// is 0.
    pub fn relative_margin(&self) -> f64 {
        let margin =
            (self.solutions - self.low.min(self.solutions)).max(self.high - self.solutions);
        if margin == 0 {
            return 0.0;
        }
        margin as f64 / self.solutions as f64
    }
}

/// Cuts `tasks`, sorted by cost, into strata in which costs' square roots have about equal sums, and
/// says how many of each to draw, so that all drawn cost about `budget`.
fn strata(tasks: Vec<(TaskId, f64)>, budget: f64) -> Vec<(Vec<(TaskId, f64)>, usize)> {
    let roots = tasks.iter().map(|task| task.1.sqrt()).sum::<f64>();
    let powers = tasks.iter().map(|task| task.1.powf(1.5)).sum::<f64>();
    let drawn = (budget / powers * roots).min(tasks.len() as f64);
    let number = whole(drawn / PER_STRATUM)
        .try_into()
        .unwrap_or(MAX_STRATA)
        .clamp(1, MAX_STRATA);
    let mut strata = vec![Vec::new(); number];
    let mut before = 0.0;
    for task in tasks {
        let place = usize::try_from(whole((before / roots * number as f64).floor()));
        strata[place.unwrap_or(0).min(number - 1)].push(task);
        before += task.1.sqrt();
    }
    strata.retain(|stratum| !stratum.is_empty());
    let shares: Vec<Share> = strata.iter().map(|stratum| Share::of(stratum)).collect();
    let rate = rate(&shares, budget);
    strata
        .into_iter()
        .zip(shares)
        .map(|(stratum, share)| {
            let wanted = usize::try_from(whole(share.drawn(rate))).unwrap_or(usize::MAX);
            let wanted = wanted.max(2).min(stratum.len());
            (stratum, wanted)
        })
        .collect()
}

/// What decides a stratum's part of the sample.
struct Share {
    size: f64,
    mean_cost: f64,
    roots: f64,
}

impl Share {
    fn of(stratum: &[(TaskId, f64)]) -> Self {
        let size = stratum.len() as f64;
        Self {
            size,
            mean_cost: stratum.iter().map(|task| task.1).sum::<f64>() / size,
            roots: stratum.iter().map(|task| task.1.sqrt()).sum(),
        }
    }

    fn drawn(&self, rate: f64) -> f64 {
        (rate * self.roots).min(self.size)
    }
}

/// Tasks drawn for each unit of a cost's square root, such that all drawn cost `budget`: found by
/// halving, since a stratum cannot give more than it has.
fn rate(shares: &[Share], budget: f64) -> f64 {
    let cost = |rate| {
        let each = shares
            .iter()
            .map(|share| share.drawn(rate) * share.mean_cost);
        each.sum::<f64>()
    };
    // At this rate every task is drawn: each costs at least 1.
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if cost(middle) < budget {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// What is known of a run's finished tasks, whose order of handing out was random.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Finished {
    tasks: f64,
    count: f64,
    cost: f64,
    count_squared: f64,
    count_times_cost: f64,
    cost_squared: f64,
}

impl Finished {
    /// Adds a finished task.
    pub fn add(&mut self, count: u64, cost: u64) {
        self.change(1.0, count, cost);
    }

    /// Takes a task back that was added before.
    pub fn remove(&mut self, count: u64, cost: u64) {
        self.change(-1.0, count, cost);
    }

    fn change(&mut self, sign: f64, count: u64, cost: u64) {
        let (count, cost) = (real(count), real(cost));
        self.tasks += sign;
        self.count += sign * count;
        self.cost += sign * cost;
        self.count_squared += sign * count * count;
        self.count_times_cost += sign * count * cost;
        self.cost_squared += sign * cost * cost;
    }

    /// The ratio estimate of the count of all `tasks` tasks, whose costs sum to `cost`; `None`
    /// before a handful of tasks are finished. Its bias is of the order 1 / finished tasks.
    pub fn estimate(&self, tasks: u64, cost: u128) -> Option<Estimate> {
        let all = tasks as f64;
        if self.tasks < 10.0 || self.tasks > all {
            return None;
        }
        let ratio = self.count / self.cost;
        let spread = self.count_squared - 2.0 * ratio * self.count_times_cost
            + ratio * ratio * self.cost_squared;
        let spread = spread.max(0.0) / (self.tasks - 1.0);
        let variance = all * (all - self.tasks) * spread / self.tasks;
        let margin = t_quantile(self.tasks - 1.0) * variance.sqrt();
        Some(Estimate::new(ratio * cost as f64, margin))
    }
}

fn real(value: u64) -> f64 {
    value as f64
}

/// The nearest whole number, 0 for negative ones.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates by intent"
)]
fn whole(value: f64) -> u128 {
    value.max(0.0).round() as u128
}

/// The 97.5 % quantile of Student's t: the normal quantile corrected by the Cornish-Fisher expansion
/// (Abramowitz and Stegun 26.7.5), exact values for the few degrees of freedom it is poor for.
pub(crate) fn t_quantile(freedom: f64) -> f64 {
    const SMALL: [f64; 5] = [12.706, 4.303, 3.182, 2.776, 2.571];
    let below = freedom.floor().max(1.0);
    if below < 6.0 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "1 to 5"
        )]
        return SMALL[below as usize - 1];
    }
    let z = 1.959_964_f64;
    let g1 = (z.powi(3) + z) / 4.0;
    let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + g1 / freedom + g2 / freedom.powi(2) + g3 / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::{
        board::Board,
        count::{Counter, Orientation, Setup, Unwatched},
        kernel::Kernel,
        known::known_counts,
        method::Layout,
        plan::PlanSpec,
    };

    /// SplitMix64, a seeded stream of random numbers.
    fn random_from(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (word ^ word >> 31) % below
        }
    }

    fn plan_and_counts(n: u8, layout: Layout, task_cost: u64) -> (Plan, Vec<u64>) {
        let spec = PlanSpec {
            board: Board::new(n).unwrap(),
            layout,
            task_cost,
        };
        let plan = Plan::new(spec).unwrap();
        let counts = counts(&plan);
        (plan, counts)
    }

    fn counts(plan: &Plan) -> Vec<u64> {
        let setup = Setup {
            kernel: Kernel::best(),
            threads: std::num::NonZeroU16::MIN,
            memory_bytes: 1 << 30,
            orientation: Orientation::Upright,
        };
        let mut counter = Counter::new(plan, &setup).unwrap();
        (0..plan.tasks())
            .map(|task| {
                counter
                    .count(plan.task_units(TaskId(task)), &Unwatched)
                    .unwrap()
            })
            .collect()
    }

    /// In how many of the seeded trials the interval holds the truth.
    fn covered(plan: &Plan, counts: &[u64], fraction: f64, seeds: Range<u64>) -> usize {
        let truth = known_counts(plan.spec().board).unwrap().all();
        let covers = |seed: &u64| {
            let sample = Sample::draw(plan, fraction, &mut random_from(*seed)).unwrap();
            let estimate = sample.estimate(&|task| counts[usize::try_from(task.0).unwrap()]);
            (estimate.low..=estimate.high).contains(&truth)
        };
        seeds.filter(covers).count()
    }

    #[test]
    fn the_whole_sample_is_exact() {
        let (plan, counts) = plan_and_counts(11, Layout::FirstRows, 100);
        let sample = Sample::draw(&plan, 1.0, &mut random_from(1)).unwrap();
        let estimate = sample.estimate(&|task| counts[usize::try_from(task.0).unwrap()]);
        assert_eq!(
            estimate,
            Estimate {
                solutions: 2680,
                low: 2680,
                high: 2680
            }
        );
    }

    #[test]
    fn the_mean_over_many_samples_is_the_truth() {
        let (plan, counts) = plan_and_counts(12, Layout::FirstRows, 20);
        let mean = (0..20_000)
            .map(|seed| {
                let sample = Sample::draw(&plan, 0.2, &mut random_from(seed)).unwrap();
                sample
                    .estimate(&|task| counts[usize::try_from(task.0).unwrap()])
                    .solutions as f64
            })
            .sum::<f64>()
            / 20_000.0;
        assert!((mean / 14_200.0 - 1.0).abs() < 0.01, "mean {mean}");
    }

    #[test]
    fn fractions_out_of_range_are_refused() {
        let plan = plan_and_counts(6, Layout::FirstRows, 100).0;
        for fraction in [0.0, -0.1, 1.5, f64::NAN] {
            assert!(
                Sample::draw(&plan, fraction, &mut random_from(1)).is_err(),
                "{fraction}"
            );
        }
    }

    #[test]
    fn quantiles_match_the_tables() {
        for (freedom, quantile) in [(1.0, 12.706), (5.0, 2.571), (10.0, 2.228), (1e9, 1.960)] {
            assert!((t_quantile(freedom) - quantile).abs() < 0.003, "{freedom}");
        }
    }

    #[test]
    fn finished_tasks_estimate_the_whole() {
        let (plan, counts) = plan_and_counts(12, Layout::FirstRows, 20);
        let cost = (0..plan.tasks())
            .map(|task| u128::from(plan.task_cost(TaskId(task))))
            .sum();
        let mut finished = Finished::default();
        for (done, task) in plan.handing_out_order().enumerate() {
            assert_eq!(finished.estimate(plan.tasks(), cost).is_none(), done < 10);
            finished.add(
                counts[usize::try_from(task.0).unwrap()],
                plan.task_cost(task),
            );
        }
        let estimate = finished.estimate(plan.tasks(), cost).unwrap();
        assert_eq!(
            estimate,
            Estimate {
                solutions: 14_200,
                low: 14_200,
                high: 14_200
            }
        );
    }

    /// The shipped design, on boards that can be counted whole: of 1,000 seeded samples at least 930
    /// intervals hold the truth (95 % are claimed; 930 is 2.9 standard deviations below).
    fn intervals_cover_the_truth(n: u8, layout: Layout, fractions: &[f64]) {
        let spec = PlanSpec::new(Board::new(n).unwrap(), layout);
        for &fraction in fractions {
            let plan = plan_to_draw_from(spec, fraction).unwrap();
            let counts = counts(&plan);
            let covered = covered(&plan, &counts, fraction, 0..1000);
            assert!(covered >= 930, "N = {n}, {layout}, {fraction}: {covered}");
        }
    }

    #[test]
    fn intervals_cover_the_truth_at_16() {
        intervals_cover_the_truth(16, Layout::Frames, &[0.02, 0.1, 0.4]);
        intervals_cover_the_truth(16, Layout::Border, &[0.01, 0.1]);
        intervals_cover_the_truth(16, Layout::FirstRows, &[0.05]);
    }

    #[test]
    fn intervals_cover_the_truth_at_17() {
        intervals_cover_the_truth(17, Layout::Frames, &[0.01, 0.1]);
    }

    #[test]
    fn intervals_cover_the_truth_at_18() {
        intervals_cover_the_truth(18, Layout::Frames, &[0.005, 0.05]);
    }

    #[test]
    fn fractions_are_honoured() {
        let spec = PlanSpec::new(Board::new(24).unwrap(), Layout::Frames);
        let mut last = 0;
        for fraction in [5e-7, 1e-5, 1e-4, 1e-3] {
            let plan = plan_to_draw_from(spec, fraction).unwrap();
            let whole = plan.task_costs().map(real).sum::<f64>();
            let sample = Sample::draw(&plan, fraction, &mut random_from(3)).unwrap();
            let drawn: f64 = sample.tasks().map(|task| real(plan.task_cost(task))).sum();
            let units: u64 = sample
                .tasks()
                .map(|task| plan.task_units(task))
                .map(|units| units.end - units.start)
                .sum();
            assert!(units > last, "{fraction}: {units} units");
            last = units;
            // Smaller samples are a handful of tasks of very different costs.
            if fraction >= 1e-4 {
                let part = drawn / whole;
                assert!((part / fraction - 1.0).abs() < 0.2, "{fraction}: {part}");
            }
        }
    }
}
