//! Estimates of all(N) from a random sample of tasks, with a confidence interval.
//!
//! The units of a task resemble each other, because they share a prefix or a quarter board. So
//! small tasks are sampled instead of units (cluster sampling). Tasks are divided into strata of
//! similar predicted cost; within each stratum a simple random sample without replacement is
//! counted. Costly tasks vary more, so the size of a stratum's sample is proportional to the sum
//! of the square roots of its costs (Neyman allocation, with deviations that grow with cost).
//!
//! Counts are nearly proportional to costs. The combined ratio estimator uses that: the known cost of
//! all tasks, times estimated count over estimated cost. Its variance is that of count - ratio · cost
//! within the strata (Cochran, Sampling Techniques, §6.11). A poor cost model widens the interval but
//! does not shift it; the ratio's own bias is of the order of 1 / sampled tasks.
//!
//! ```
//! use common::{board::Board, count::*, method::Layout, plan::*, estimate::sample::Sample};
//!
//! let spec = PlanSpec { task_cost: 100, ..PlanSpec::new(Board::new(12)?, Layout::Frames) };
//! let plan = Plan::new(spec)?;
//! let mut state = 7_u64;
//! let mut random_below = |below: u64| {
//!     state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
//!     (state >> 33) % below
//! };
//! let sample = Sample::select(&plan, 0.5, &mut random_below)?;
//! let mut counter = Counter::new(&plan, &CounterConfig::best(1 << 28))?;
//! let mut count = |task| counter.count(plan.task_units(task), &NoProgress).map(|count| (task, count));
//! let counts = sample.tasks().map(&mut count).collect::<Result<std::collections::HashMap<_, _>, _>>()?;
//! let estimate = sample.estimate(&|task| counts[&task]);
//! assert!((estimate.low..=estimate.high).contains(&14_200)); // like 19 of 20 intervals
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::plan::{BadSpec, Plan, PlanSpec, TaskId};

pub const CONFIDENCE: f64 = 0.95;

/// Target number of sampled tasks per stratum; fewer make its variance uncertain.
const PER_STRATUM: f64 = 10.0;

/// Maximum number of strata; more gain nothing.
const MAX_STRATA: usize = 20;

/// Target number of sampled tasks; more would be too short to be worth their setup.
const TARGET_TASKS: f64 = 1000.0;

/// A sampled fraction outside (0, 1].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("invalid sampled fraction {0}: expected a number above 0 and at most 1")]
pub struct BadFraction(pub f64);

/// A stratified random sample of a plan's tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    strata: Vec<Stratum>,
    cost: f64,
}

#[derive(Clone, Debug, PartialEq)]
struct Stratum {
    /// Number of tasks in the stratum.
    size: f64,
    /// Sampled tasks with their costs.
    tasks: Vec<(TaskId, f64)>,
}

/// An estimate with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    pub solutions: u128,
    pub low: u128,
    pub high: u128,
}

/// Returns a plan of the same units with tasks suited to sampling this fraction.
pub fn plan_to_sample(spec: PlanSpec, fraction: f64) -> Result<Plan, BadSpec> {
    let plan = Plan::new(spec)?;
    let cost = plan.task_costs().map(real).sum::<f64>();
    let wanted = u64::try_from(round(cost * fraction / TARGET_TASKS)).unwrap_or(spec.task_cost);
    with_task_cost(plan, wanted)
}

/// Divides a plan's units into tasks of about `cost`, or larger if too many.
pub fn with_task_cost(plan: Plan, cost: u64) -> Result<Plan, BadSpec> {
    let spec = *plan.spec();
    let mut task_cost = cost.clamp(1, spec.task_cost);
    while task_cost < spec.task_cost {
        match Plan::new(PlanSpec { task_cost, ..spec }) {
            Err(BadSpec::TooManyTasks { .. }) => task_cost = task_cost.saturating_mul(2),
            result => return result,
        }
    }
    Ok(plan)
}

impl Sample {
    /// Samples tasks with about `fraction` of the plan's cost, two or more per stratum.
    ///
    /// `random_below(k)` returns a uniform random number in `0..k`.
    pub fn select(
        plan: &Plan,
        fraction: f64,
        random_below: &mut dyn FnMut(u64) -> u64,
    ) -> Result<Self, BadFraction> {
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(BadFraction(fraction));
        }
        let mut tasks: Vec<_> =
            (0..plan.tasks()).map(TaskId).zip(plan.task_costs().map(real)).collect();
        tasks.sort_by(|one, other| one.1.total_cmp(&other.1));
        let cost = tasks.iter().map(|task| task.1).sum::<f64>();
        let strata = strata(tasks, fraction * cost)
            .into_iter()
            .map(|(tasks, wanted)| Stratum::select(tasks, wanted, random_below))
            .collect();
        Ok(Self { strata, cost })
    }

    pub fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.strata.iter().flat_map(|stratum| stratum.tasks.iter().map(|task| task.0))
    }

    /// Estimates the total count of all tasks from the counts of the sampled ones.
    pub fn estimate(&self, count_of: &dyn Fn(TaskId) -> u64) -> Estimate {
        let sums = |stratum: &Stratum| {
            let mut sums = Sums { size: stratum.size, ..Sums::default() };
            for &(task, cost) in &stratum.tasks {
                sums.change(1.0, real(count_of(task)), cost);
            }
            sums
        };
        let strata: Vec<Sums> = self.strata.iter().map(sums).collect();
        combined(&strata, self.cost, 0.0)
    }
}

impl Stratum {
    /// Selects a random sample of `wanted` tasks (Fisher-Yates shuffle).
    fn select(
        mut tasks: Vec<(TaskId, f64)>,
        wanted: usize,
        random_below: &mut dyn FnMut(u64) -> u64,
    ) -> Self {
        let size = tasks.len();
        for place in 0..wanted {
            let remaining = (size - place) as u64;
            let chosen =
                usize::try_from(random_below(remaining)).map_or(place, |below| place + below);
            tasks.swap(place, chosen);
        }
        tasks.truncate(wanted);
        Self { size: size as f64, tasks }
    }
}

impl Estimate {
    /// Creates an estimate whose values are all at least `counted`.
    fn new(solutions: f64, margin: f64, counted: f64) -> Self {
        let at_least = |value: f64| round(value.max(counted));
        Self {
            solutions: at_least(solutions),
            low: at_least(solutions - margin),
            high: at_least(solutions + margin),
        }
    }

    /// Returns the distance to the farther interval end, relative to the estimate.
    pub fn relative_margin(&self) -> f64 {
        let margin =
            (self.solutions - self.low.min(self.solutions)).max(self.high - self.solutions);
        if margin == 0 {
            return 0.0;
        }
        margin as f64 / self.solutions as f64
    }
}

/// Divides tasks into strata, with samples that cost about `budget` together.
///
/// `tasks` must be sorted by cost; the strata have about equal sums of the costs' square roots.
fn strata(tasks: Vec<(TaskId, f64)>, budget: f64) -> Vec<(Vec<(TaskId, f64)>, usize)> {
    let roots = tasks.iter().map(|task| task.1.sqrt()).sum::<f64>();
    let powers = tasks.iter().map(|task| task.1.powf(1.5)).sum::<f64>();
    let sampled = (budget / powers * roots).min(tasks.len() as f64);
    let number = round(sampled / PER_STRATUM).try_into().unwrap_or(MAX_STRATA).clamp(1, MAX_STRATA);
    let mut strata = vec![Vec::new(); number];
    let mut before = 0.0;
    for task in tasks {
        let place = usize::try_from(round((before / roots * number as f64).floor()));
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
            let wanted = usize::try_from(round(share.sampled(rate))).unwrap_or(usize::MAX);
            let wanted = wanted.max(2).min(stratum.len());
            (stratum, wanted)
        })
        .collect()
}

/// Inputs of a stratum's allocation.
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

    fn sampled(&self, rate: f64) -> f64 {
        (rate * self.roots).min(self.size)
    }
}

/// Finds the sampling rate per square root of cost that spends `budget`.
///
/// Uses bisection, because a stratum cannot give more tasks than it has.
fn rate(shares: &[Share], budget: f64) -> f64 {
    let cost = |rate| {
        let each = shares.iter().map(|share| share.sampled(rate) * share.mean_cost);
        each.sum::<f64>()
    };
    // At this rate every task is sampled: each costs at least 1.
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

/// Number of blocks of consecutive tasks: neighbors in a plan have similar counts.
const BLOCKS: u64 = 80;

/// Minimum number of finished tasks for an estimate of a run's total.
const MIN_FINISHED: f64 = 30.0;

/// Minimum number of finished tasks in a stratum of neighboring blocks.
const MIN_PER_STRATUM: f64 = 12.0;

/// Sums over finished tasks of a run, by block of the plan, to estimate its total.
///
/// The added tasks must be a random sample. The finished tasks are not: of the last leased tasks
/// only the short ones are finished, which have few solutions for their cost. So callers add only
/// the tasks that precede, in the random lease order, all tasks in progress.
///
/// The estimate is that of [`Sample`] with post-stratification. A task's deviation is taken from the
/// value that the other tasks of its stratum predict.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunEstimate {
    tasks: u64,
    cost: f64,
    blocks: Vec<Sums>,
}

/// Sums over the counted tasks of a stratum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    /// Number of tasks in the stratum, counted or not.
    size: f64,
    tasks: f64,
    count: f64,
    cost: f64,
    count_squared: f64,
    count_times_cost: f64,
    cost_squared: f64,
}

impl Sums {
    fn change(&mut self, sign: f64, count: f64, cost: f64) {
        self.tasks += sign;
        self.count += sign * count;
        self.cost += sign * cost;
        self.count_squared += sign * count * count;
        self.count_times_cost += sign * count * cost;
        self.cost_squared += sign * cost * cost;
    }

    fn add(&mut self, other: &Self) {
        self.size += other.size;
        self.tasks += other.tasks;
        self.count += other.count;
        self.cost += other.cost;
        self.count_squared += other.count_squared;
        self.count_times_cost += other.count_times_cost;
        self.cost_squared += other.cost_squared;
    }

    /// Returns the variance of the stratum's part of the sum of count - ratio · cost.
    ///
    /// `left_out` is 1 if the other tasks predict a task's value, else 0.
    fn variance(&self, ratio: f64, left_out: f64) -> f64 {
        if self.tasks <= 1.0 || self.tasks >= self.size {
            return 0.0;
        }
        let mean = (self.count - ratio * self.cost) / self.tasks;
        let squares = self.count_squared - 2.0 * ratio * self.count_times_cost
            + ratio * ratio * self.cost_squared;
        let spread = (squares - self.tasks * mean * mean).max(0.0) / (self.tasks - 1.0);
        self.size * (self.size - self.tasks) * spread / (self.tasks - left_out)
    }
}

/// Estimates the count of tasks that cost `whole_cost`, by the combined ratio.
fn combined(strata: &[Sums], whole_cost: f64, left_out: f64) -> Estimate {
    let expand =
        |of: fn(&Sums) -> f64| strata.iter().map(|s| s.size / s.tasks * of(s)).sum::<f64>();
    let (count, cost) = (expand(|sums| sums.count), expand(|sums| sums.cost));
    let ratio = count / cost;
    // Satterthwaite: each estimate of a variance has its own degrees of freedom.
    let (mut variance, mut squares) = (0.0, 0.0);
    for stratum in strata {
        let part = stratum.variance(ratio, left_out);
        variance += part;
        squares += part * part / (stratum.tasks - 1.0).max(1.0);
    }
    let freedom = if squares > 0.0 { variance * variance / squares } else { 1.0 };
    let margin = t_quantile(freedom) * variance.sqrt() * whole_cost / cost;
    let counted = strata.iter().map(|sums| sums.count).sum();
    Estimate::new(ratio * whole_cost, margin, counted)
}

impl RunEstimate {
    /// Creates empty sums for a run of `tasks` tasks, whose costs sum to `cost`.
    pub fn of(tasks: u64, cost: u64) -> Self {
        let start = |block: u64| (block * tasks).div_ceil(BLOCKS);
        let blocks = (0..BLOCKS)
            .map(|block| Sums { size: real(start(block + 1) - start(block)), ..Sums::default() });
        Self { tasks, cost: real(cost), blocks: blocks.collect() }
    }

    fn block(&mut self, task: TaskId) -> &mut Sums {
        let block = task.0 * BLOCKS / self.tasks;
        &mut self.blocks[usize::try_from(block).expect("a few dozen")]
    }

    /// Adds a finished task.
    ///
    /// # Panics
    /// If the run has no such task.
    pub fn add(&mut self, task: TaskId, count: u64, cost: u64) {
        self.block(task).change(1.0, real(count), real(cost));
    }

    /// Removes a task that was added before.
    ///
    /// # Panics
    /// If the run has no such task.
    pub fn remove(&mut self, task: TaskId, count: u64, cost: u64) {
        self.block(task).change(-1.0, real(count), real(cost));
    }

    /// Merges neighboring blocks into strata with enough finished tasks.
    fn strata(&self) -> Vec<Sums> {
        let (mut strata, mut last) = (Vec::<Sums>::new(), Sums::default());
        for block in &self.blocks {
            last.add(block);
            if last.tasks >= MIN_PER_STRATUM.min(last.size) && last.tasks >= 2.0 {
                strata.push(std::mem::take(&mut last));
            }
        }
        match strata.last_mut() {
            Some(stratum) => stratum.add(&last),
            None => strata.push(last),
        }
        strata
    }

    /// Estimates the count of all tasks.
    ///
    /// `None` before 30 tasks are finished, unless the run has fewer.
    pub fn estimate(&self) -> Option<Estimate> {
        let finished = self.blocks.iter().map(|block| block.tasks).sum::<f64>();
        let enough = finished >= MIN_FINISHED.min(real(self.tasks));
        enough.then(|| combined(&self.strata(), self.cost, 1.0))
    }
}

fn real(value: u64) -> f64 {
    value as f64
}

/// Rounds to the nearest integer, negative numbers to 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates by intent")]
fn round(value: f64) -> u128 {
    value.max(0.0).round() as u128
}

/// Returns the 97.5 % quantile of Student's t.
///
/// Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5), with exact values for few degrees of
/// freedom.
pub(crate) fn t_quantile(freedom: f64) -> f64 {
    const SMALL: [f64; 5] = [12.706, 4.303, 3.182, 2.776, 2.571];
    let below = freedom.floor().max(1.0);
    if below < 6.0 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 5")]
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
    use super::*;
    use std::collections::{BTreeSet, VecDeque};

    use crate::{
        count::CounterConfig,
        method::Layout,
        test_fixture::{self, ExactCounts, plan_of_cost, published, random_from},
    };

    fn counted(plan: Plan) -> ExactCounts {
        ExactCounts::of(plan, &CounterConfig::best(1 << 30))
    }

    /// Estimates the total from a seeded sample.
    fn sampled(counted: &ExactCounts, fraction: f64, seed: u64) -> Estimate {
        let sample = Sample::select(&counted.plan, fraction, &mut random_from(seed)).unwrap();
        sample.estimate(&|task| counted.count(task))
    }

    fn covers(estimate: Estimate, counted: &ExactCounts) -> bool {
        (estimate.low..=estimate.high).contains(&counted.total)
    }

    #[test]
    fn a_sample_of_all_tasks_is_exact() {
        let counted = counted(plan_of_cost(11, Layout::FirstRows, 100));
        let estimate = sampled(&counted, 1.0, 1);
        assert_eq!(estimate, Estimate { solutions: 2680, low: 2680, high: 2680 });
    }

    #[test]
    fn the_mean_over_many_samples_is_the_truth() {
        let counted = counted(plan_of_cost(12, Layout::FirstRows, 20));
        let estimates = (0..20_000).map(|seed| sampled(&counted, 0.2, seed).solutions as f64);
        let mean = estimates.sum::<f64>() / 20_000.0;
        assert!((mean / 14_200.0 - 1.0).abs() < 0.01, "mean {mean}");
    }

    #[test]
    fn fractions_out_of_range_are_refused() {
        let plan = plan_of_cost(6, Layout::FirstRows, 100);
        for fraction in [0.0, -0.1, 1.5, f64::NAN] {
            assert!(Sample::select(&plan, fraction, &mut random_from(1)).is_err(), "{fraction}");
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
        let counted = counted(plan_of_cost(12, Layout::FirstRows, 20));
        let plan = &counted.plan;
        let mut finished = RunEstimate::of(plan.tasks(), plan.task_costs().sum());
        for (done, task) in plan.lease_order().enumerate() {
            assert_eq!(finished.estimate().is_none(), done < 30);
            finished.add(task, counted.count(task), plan.task_cost(task));
        }
        let estimate = finished.estimate().unwrap();
        assert_eq!(estimate, Estimate { solutions: 14_200, low: 14_200, high: 14_200 });
    }

    /// Reads the counts of a certificate's tasks.
    fn certified(n: u8, file: &[u8]) -> ExactCounts {
        let plan = test_fixture::plan(n, Layout::Frames);
        let mut bytes = file.strip_prefix(b"queens counts 1\n").unwrap().iter().copied();
        let mut number = |skipped: usize| {
            let mut bytes = bytes.by_ref().skip(skipped);
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = bytes.next().unwrap();
                value |= u64::from(byte & 127) << shift;
                shift += 7;
                if byte < 128 {
                    return value;
                }
            }
        };
        let mut skipped = 0;
        for _ in 0..number(0) {
            // Skips the previous name and the worker; reads the length of the principal's name.
            skipped = usize::try_from(number(skipped + 16)).unwrap();
        }
        let tasks = number(skipped);
        let mut count = |_| {
            let (_units, count, _counter, flags) = (number(0), number(0), number(0), number(0));
            if flags & 8 != 0 {
                let _second = (number(0), number(0));
            }
            count
        };
        let counts: Vec<u64> = (0..tasks).map(&mut count).collect();
        assert_eq!(counts.len() as u64, plan.tasks());
        let total = published(n);
        ExactCounts { plan, counts, total }
    }

    /// Times of a simulated run, by position in a random lease order.
    struct VirtualRun {
        order: Vec<usize>,
        done_at: Vec<u64>,
        /// End of the lease of a worker that vanished.
        lost_at: Vec<u64>,
    }

    impl VirtualRun {
        /// Simulates threads of different speeds, each of which loses one task in fifty.
        ///
        /// Tasks with many solutions take longer than predicted.
        fn new(costs: &[u64], counts: &[u64], random: &mut dyn FnMut(u64) -> u64) -> Self {
            let tasks = costs.len();
            let mut order: Vec<usize> = (0..tasks).collect();
            for place in 0..tasks {
                let other = place + usize::try_from(random((tasks - place) as u64)).unwrap();
                order.swap(place, other);
            }
            let sum = |values: &[u64]| values.iter().copied().map(real).sum::<f64>();
            let ratio = sum(counts) / sum(costs);
            let lease = 10 * costs.iter().sum::<u64>() / tasks as u64;
            let threads = (1 << random(6)).min(tasks as u64 / 8).max(1);
            let mut threads: BTreeSet<(u64, u64, u64)> =
                (0..threads).map(|thread| (0, thread, 50 + random(150))).collect();
            let mut waiting: VecDeque<usize> = (0..tasks).collect();
            let (mut done_at, mut lost_at) = (vec![u64::MAX; tasks], vec![u64::MAX; tasks]);
            while let Some(position) = waiting.pop_front() {
                let (mut now, thread, speed) = threads.pop_first().unwrap();
                if random(50) == 0 {
                    lost_at[position] = now + lease;
                    waiting.push_back(position);
                    now += lease / 2;
                } else {
                    let task = order[position];
                    let slow = 0.7 + 0.3 * real(counts[task]) / real(costs[task]) / ratio;
                    let micros = real(costs[task]) * slow * real(90 + random(20)) / real(speed);
                    now += u64::try_from(round(micros)).unwrap();
                    done_at[position] = now;
                }
                threads.insert((now, thread, speed));
            }
            Self { order, done_at, lost_at }
        }

        /// Returns the estimate once this part of the tasks is done.
        fn estimate(&self, costs: &[u64], counts: &[u64], part: f64) -> Option<Estimate> {
            let mut ends = self.done_at.clone();
            ends.sort_unstable();
            let done = usize::try_from(round(part * ends.len() as f64)).unwrap();
            let now = ends[done.saturating_sub(1)];
            let mut finished = RunEstimate::of(costs.len() as u64, costs.iter().sum());
            for (position, &task) in self.order.iter().enumerate() {
                match (self.done_at[position] <= now, self.lost_at[position] <= now) {
                    (true, _) => finished.add(TaskId(task as u64), counts[task], costs[task]),
                    (false, true) => {}
                    (false, false) => break,
                }
            }
            finished.estimate()
        }
    }

    #[test]
    fn a_gpu_and_cpus_counted_the_same_in_every_task() {
        let [cpus, gpu]: [&[u8]; 2] = [
            include_bytes!("../../../docs/certificates/n22.json.counts"),
            include_bytes!("../../../docs/certificates/n22-h100.json.counts"),
        ];
        assert_eq!(certified(22, cpus).counts, certified(22, gpu).counts);
    }

    /// Intervals contain the truth in the lease order of certified runs.
    #[test]
    fn estimates_of_certified_runs_cover_the_truth() {
        for counted in [
            certified(22, include_bytes!("../../../docs/certificates/n22.json.counts")),
            certified(23, include_bytes!("../../../docs/certificates/n23.json.counts")),
        ] {
            let plan = &counted.plan;
            let mut finished = RunEstimate::of(plan.tasks(), plan.task_costs().sum());
            for (done, task) in (0..).zip(plan.lease_order()) {
                if done > 0 && [5, 10, 25, 50, 75, 90].contains(&(100 * done / plan.tasks())) {
                    let estimate = finished.estimate().unwrap();
                    let board = plan.spec().board;
                    assert!(covers(estimate, &counted), "N = {board}, {done}: {estimate:?}");
                }
                finished.add(task, counted.count(task), plan.task_cost(task));
            }
        }
    }

    /// Checks that 93 to 98 % of the intervals contain the truth (95 % claimed).
    #[test]
    fn estimates_of_running_runs_cover_the_truth() {
        let boards = [
            counted(plan_of_cost(16, Layout::Frames, 20_000)),
            counted(plan_of_cost(18, Layout::Frames, 20_000)),
            certified(20, include_bytes!("../../../docs/certificates/n20.json.counts")),
            certified(22, include_bytes!("../../../docs/certificates/n22.json.counts")),
            certified(23, include_bytes!("../../../docs/certificates/n23.json.counts")),
        ];
        for part in [0.02, 0.05, 0.1, 0.25, 0.5, 0.75] {
            let (mut held, mut given) = (0, 0);
            for counted in &boards {
                let ExactCounts { plan, counts, .. } = counted;
                let costs: Vec<u64> = plan.task_costs().collect();
                for seed in 0..1000 {
                    let random = &mut random_from(seed << 8 | u64::from(plan.spec().board.n()));
                    let run = VirtualRun::new(&costs, counts, random);
                    if let Some(estimate) = run.estimate(&costs, counts, part) {
                        given += 1;
                        held += usize::from(covers(estimate, counted));
                    }
                }
            }
            let covered = held as f64 / given as f64;
            assert!(given > 300 && (0.93..=0.98).contains(&covered), "{part}: {held} of {given}");
        }
    }

    /// Checks that at least 930 of 1,000 intervals hold the truth (95 % - 2.9 sigma).
    #[test]
    fn intervals_of_samples_cover_the_truth() {
        for (n, layout, fractions) in [
            (16, Layout::Frames, &[0.02, 0.1, 0.4][..]),
            (16, Layout::Border, &[0.01, 0.1]),
            (16, Layout::FirstRows, &[0.05]),
            (17, Layout::Frames, &[0.01, 0.1]),
            (18, Layout::Frames, &[0.005, 0.05]),
        ] {
            let spec = *test_fixture::plan(n, layout).spec();
            for &fraction in fractions {
                let counted = counted(plan_to_sample(spec, fraction).unwrap());
                let holds = |&seed: &u64| covers(sampled(&counted, fraction, seed), &counted);
                let covered = (0..1000).filter(holds).count();
                assert!(covered >= 930, "N = {n}, {layout}, {fraction}: {covered}");
            }
        }
    }

    #[test]
    fn fractions_are_honored() {
        let spec = *test_fixture::plan(24, Layout::Frames).spec();
        let mut last = 0;
        for fraction in [5e-7, 1e-5, 1e-4, 1e-3] {
            let plan = plan_to_sample(spec, fraction).unwrap();
            let whole = plan.task_costs().map(real).sum::<f64>();
            let sample = Sample::select(&plan, fraction, &mut random_from(3)).unwrap();
            let sampled: f64 = sample.tasks().map(|task| real(plan.task_cost(task))).sum();
            let units = sample.tasks().map(|task| plan.task_units(task));
            let units: u64 = units.map(|units| units.end - units.start).sum();
            assert!(units > last, "{fraction}: {units} units");
            last = units;
            // Smaller samples are a few tasks of very different costs.
            if fraction >= 1e-4 {
                let part = sampled / whole;
                assert!((part / fraction - 1.0).abs() < 0.2, "{fraction}: {part}");
            }
        }
    }
}
