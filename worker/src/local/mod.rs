//! Counting without a coordinator, with the same plans, threads and kernels.

pub mod estimate;

use std::{
    collections::{BTreeSet, HashMap},
    io,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use accelerator::Device;
use common::{
    compute::kernel::KernelName,
    count::Orientation,
    estimate::sample::{Estimate, Sample},
    messages::run::{Epoch, LeaseKey, Proof, RunId, TaskRef},
    plan::{Plan, TaskId},
    solutions::tally::{self, BadTally},
};
use tokio::time::interval;

use crate::{
    config::ComputeBudget,
    engine::{Failure, JobOutcome, Work},
    pool::{Job, MakeCounter, Pool, PoolEvent, real_counter},
};

/// Reason why there is no count.
#[derive(Debug, thiserror::Error)]
pub enum CountFailure {
    #[error("cannot start the counting threads: {0}; lower --threads")]
    Threads(#[from] io::Error),
    #[error("task {task}: {failure}")]
    Task { task: TaskId, failure: Failure },
    #[error(
        "a device returned a wrong result, so its earlier counts may be wrong too: leave it out of --device \
         and count again"
    )]
    Device,
    #[error(transparent)]
    Sum(#[from] BadTally),
}

const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Counts `tasks` of `plan` in order until one fails or `stop` resolves; returns also the kernels that counted.
///
/// Calls `report` ten times per second with the finished cost.
async fn count_tasks(
    (plan, budget, devices): (&Plan, ComputeBudget, &[Arc<Device>]),
    make: Arc<MakeCounter>,
    tasks: impl IntoIterator<Item = TaskId>,
    stop: impl Future<Output = ()>,
    report: &mut dyn FnMut(u64),
) -> Result<(HashMap<TaskId, u64>, BTreeSet<KernelName>), CountFailure> {
    // Only workers run self-tests, because their counts are not checked immediately; only a device fails here.
    let (pool, mut events) = Pool::start(budget, devices, |_| Ok(()), make)?;
    let job = |(task, position)| {
        let task = TaskRef { run: RunId(0), plan: plan.hash(), task };
        // A sample may contain a task twice.
        let (epoch, proof) = (Epoch(position), Proof::default());
        let lease = LeaseKey { task, epoch, granted_unix_ms: 0, return_unix_ms: 0, proof };
        Arc::new(Job::new(Work::new(lease, plan.clone(), Orientation::Upright)))
    };
    let mut tasks = tasks.into_iter().zip(0..).map(job);
    // A second task per thread waits; more would only take memory.
    let first: Vec<_> = tasks.by_ref().take(2 * budget.threads.get() as usize).collect();
    let mut jobs: HashMap<LeaseKey, Arc<Job>> =
        first.iter().map(|job| (job.work.lease, job.clone())).collect();
    pool.push(first);
    let cancel = |jobs: &mut HashMap<LeaseKey, Arc<Job>>| {
        let leases: BTreeSet<_> = jobs.keys().copied().collect();
        for lease in pool.remove_waiting(&leases) {
            jobs.remove(&lease);
        }
        jobs.values().for_each(|job| job.cancel());
    };
    let mut stop = pin!(stop);
    let mut ticks = interval(REPORT_INTERVAL);
    let (mut counts, mut kernels, mut failed) = (HashMap::new(), BTreeSet::new(), None);
    let (mut is_stopping, mut cost_done) = (false, 0u64);
    while !jobs.is_empty() {
        tokio::select! {
            // Polled first: after a stop before the first task, nothing is counted.
            biased;
            () = &mut stop, if !is_stopping => {
                is_stopping = true;
                cancel(&mut jobs);
            }
            event = events.recv() => {
                let result = match event.expect("threads end with the pool") {
                    PoolEvent::Finished(result) => result,
                    PoolEvent::SelfTestFailed(_) => {
                        cancel(&mut jobs);
                        return Err(CountFailure::Device);
                    }
                    PoolEvent::Started(..) | PoolEvent::SelfTestPassed => continue,
                };
                let task = result.work.lease.task.task;
                jobs.remove(&result.work.lease);
                match result.outcome {
                    JobOutcome::Counted(count) => {
                        counts.insert(task, count);
                        kernels.insert(result.kernel);
                        cost_done = cost_done.saturating_add(result.work.cost);
                    }
                    JobOutcome::Cancelled => {}
                    JobOutcome::Failed(failure) => {
                        failed.get_or_insert(CountFailure::Task { task, failure });
                        is_stopping = true;
                        cancel(&mut jobs);
                    }
                }
                if !is_stopping && let Some(job) = tasks.next() {
                    jobs.insert(job.work.lease, job.clone());
                    pool.push([job]);
                }
            }
            _ = ticks.tick() => {
                let running = jobs.values().map(|job| job.cost_done());
                report(running.fold(cost_done, u64::saturating_add));
            }
        }
    }
    // A thread says after its result whether its device is wrong.
    drop(pool);
    while let Some(event) = events.recv().await {
        if matches!(event, PoolEvent::SelfTestFailed(_)) {
            failed = Some(CountFailure::Device);
        }
    }
    failed.map_or(Ok((counts, kernels)), Err)
}

/// A plan to count.
#[derive(Clone, Debug)]
pub struct CountConfig {
    pub plan: Plan,
    /// The tasks to count; all if not set.
    pub sample: Option<Sample>,
    pub budget: ComputeBudget,
    pub devices: Vec<Arc<Device>>,
}

impl CountConfig {
    fn tasks(&self) -> Box<dyn Iterator<Item = TaskId> + '_> {
        match &self.sample {
            Some(sample) => Box::new(sample.tasks()),
            None => Box::new(self.plan.lease_order()),
        }
    }

    /// Returns the estimated cost in microseconds of one reference core.
    pub fn cost(&self) -> u64 {
        self.tasks().map(|task| self.plan.task_cost(task)).fold(0, u64::saturating_add)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// The kernels that counted.
    pub kernels: BTreeSet<KernelName>,
    pub units: u64,
    /// Weighted number of solutions in the counted units.
    pub solutions: u128,
    /// Estimate for the whole board, from a complete sample.
    pub estimate: Option<Estimate>,
    /// Whether all tasks were counted.
    pub complete: bool,
    pub duration: Duration,
}

/// Counts a whole board or a random sample of its tasks until `stop` resolves.
///
/// Reports the finished part of the cost, 0 to 1.
pub async fn count(
    config: &CountConfig,
    stop: impl Future<Output = ()>,
    report: &mut dyn FnMut(f64),
) -> Result<Counted, CountFailure> {
    let CountConfig { plan, sample, budget, devices } = config;
    let cost = config.cost().max(1);
    #[expect(clippy::cast_precision_loss, reason = "for a progress bar")]
    let mut report = |done: u64| report((done as f64 / cost as f64).min(1.0));
    let started = Instant::now();
    let make = Arc::new(real_counter);
    let (counts, kernels) =
        count_tasks((plan, *budget, devices), make, config.tasks(), stop, &mut report).await?;
    let duration = started.elapsed();
    let complete = counts.len() == config.tasks().count();
    let units = counts.keys().map(|&task| plan.task_units(task));
    Ok(Counted {
        kernels,
        units: units.map(|units| units.end - units.start).sum(),
        solutions: tally::total(counts.values().copied())?,
        estimate: sample
            .as_ref()
            .filter(|_| complete)
            .map(|sample| sample.estimate(&|task| counts[&task])),
        complete,
        duration,
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use cli::memory::MemorySize;
    use common::{board::Board, method::Layout, plan::PlanSpec, test_fixture::published};

    use super::*;
    use crate::testing::budget;

    fn config(n: u8, layout: Layout) -> Option<CountConfig> {
        let plan = Plan::new(PlanSpec::new(Board::new(n).unwrap(), layout)).ok()?;
        let budget = ComputeBudget { memory: MemorySize::new(1 << 30)?, ..budget(3) };
        Some(CountConfig { plan, sample: None, budget, devices: Vec::new() })
    }

    async fn count_all(config: &CountConfig) -> Counted {
        count(config, std::future::pending(), &mut |_| {}).await.unwrap()
    }

    #[tokio::test]
    async fn small_boards_are_counted_exactly_with_every_layout_that_supports_them() {
        for n in 1..=12 {
            for layout in [Layout::FirstRows, Layout::Border, Layout::Frames] {
                let Some(config) = config(n, layout) else {
                    assert_eq!(layout, Layout::Frames, "N = {n}");
                    continue;
                };
                let counted = count_all(&config).await;
                assert_eq!(counted.solutions, published(n), "N = {n}, {layout}");
                assert!(counted.complete && counted.estimate.is_none());
                assert_eq!(counted.units, config.plan.units());
            }
        }
    }

    #[tokio::test]
    async fn a_sample_of_everything_is_exact() {
        let mut config = config(10, Layout::FirstRows).unwrap();
        config.sample = Some(Sample::select(&config.plan, 1.0, &mut |_| 0).unwrap());
        let counted = count_all(&config).await;
        assert_eq!(counted.solutions, 724);
        let estimate = counted.estimate.unwrap();
        assert_eq!((estimate.low, estimate.high), (724, 724));
    }

    #[tokio::test]
    async fn a_stop_before_the_first_task_counts_nothing() {
        let config = config(14, Layout::FirstRows).unwrap();
        let counted = count(&config, std::future::ready(()), &mut |_| {}).await.unwrap();
        assert!(!counted.complete);
        assert_eq!((counted.units, counted.solutions), (0, 0));
    }

    #[tokio::test]
    async fn crews_and_single_threads_get_the_same_count() {
        let mut config = config(12, Layout::Frames).unwrap();
        for number in 1..=3 {
            config.budget.crews = NonZeroU16::new(number);
            assert_eq!(count_all(&config).await.solutions, 14_200, "{number} crews");
        }
    }
}
