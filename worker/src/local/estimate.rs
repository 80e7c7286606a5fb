//! Measurement of this machine's speed on a few tasks of a plan.
//!
//! Tasks are sampled in proportion to cost (`common::estimate::forecast`) until the time is over. A task that
//! exceeds its share of the time is stopped; the time of its remaining cost is extrapolated from its speed
//! since its first progress.

use std::{
    cell::Cell,
    ops::ControlFlow,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use accelerator::Device;
use common::{
    count::{CountError, CounterConfig, ProgressSink, SetupError},
    estimate::{
        forecast::{CostSampler, Fit, Range},
        sample::with_task_cost,
    },
    plan::{BadSpec, Plan, TaskId},
};

use super::{CountFailure, count_tasks};
use crate::{
    config::ComputeBudget,
    pool::{CountTask, Job, counter_on},
};
use cli::threads::Threads;

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Accuracy of the plan's costs.
    pub fit: Fit,
    /// Number of tasks that were stopped and extrapolated.
    pub cut: usize,
    /// Core time of the measured tasks as a part of their threads' time, 0 to 1.
    pub busy: f64,
    pub duration: Duration,
}

/// Factor by which the speed of a core differs between a measurement and a run (95 %).
const SPEED_ERROR: f64 = 1.1;

impl Measured {
    /// Returns the ratio of the run's actual to its predicted time.
    pub fn ratio(&self) -> Range {
        self.fit.ratio().widened(SPEED_ERROR)
    }
}

/// Reason why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureFailure {
    #[error(transparent)]
    Count(#[from] CountFailure),
    /// No time for two tasks.
    #[error(
        "{} s is too short to measure two tasks of this board here: allow more, such as --budget {}s",
        .limit.as_secs_f64(),
        (.limit.as_secs() * 4).max(10)
    )]
    TooShort { limit: Duration },
    #[error("the measurement was interrupted")]
    Stopped,
}

/// Target number of measured tasks.
///
/// Fewer tasks would hide the spread. More tasks would be shorter than those of the run, which take less
/// time for their cost: lists are built once per task.
const TARGET_TASKS: u32 = 40;

/// Minimum cost of a task in microseconds; shorter ones are measured inaccurately.
const MIN_COST: u64 = 20_000;

/// Maximum number of tasks; more would gain nothing.
const MAX_TASKS: usize = 1_000;

/// Minimum number of tasks, even if they cost more than the whole plan.
const MIN_TASKS: usize = 30;

/// The share of the time that one task may take.
const TASK_SHARE: u32 = 8;

/// Minimum progress, 0 to 1, for extrapolating a stopped task.
const MIN_PROGRESS: f64 = 0.02;

/// Divides a plan into tasks of which `threads` count enough within `limit`.
pub fn plan_to_measure(plan: Plan, threads: Threads, limit: Duration) -> Result<Plan, BadSpec> {
    let cost = limit.as_micros() * u128::from(threads.get()) / u128::from(TARGET_TASKS);
    with_task_cost(plan, u64::try_from(cost).unwrap_or(u64::MAX).max(MIN_COST))
}

/// Counts random tasks until `limit` is over or `stop` resolves.
///
/// Ends earlier once the tasks cost more than the whole plan. Reports the elapsed part of the time,
/// 0 to 1. `random_below(k)` returns a uniform random number in `0..k`.
pub async fn measure(
    (plan, budget, devices, limit): (&Plan, ComputeBudget, &[Arc<Device>], Duration),
    random_below: &mut dyn FnMut(u64) -> u64,
    stop: impl Future<Output = ()>,
    report: &mut dyn FnMut(f64),
) -> Result<Measured, MeasureFailure> {
    let started = Instant::now();
    let timed: Arc<Mutex<Vec<Timed>>> = Arc::default();
    let make = {
        let crews = budget.crews(plan).map_or(1, |crews| crews.number());
        let timed = timed.clone();
        move |plan: &Plan,
              setup: &CounterConfig,
              device: Option<&_>|
              -> Result<CountTask, SetupError> {
            let (mut counter, timed) = (counter_on(device, plan, setup)?, timed.clone());
            let (threads, waits) = (setup.threads.get(), device.is_some());
            Ok(Box::new(move |job: &Job| {
                let until = Instant::now() + limit / TASK_SHARE;
                let slice = Slice::new(job, Stopwatch::start(threads, crews, waits), until);
                let counted = counter.count(job.units(), &slice);
                timed.lock().expect("no holder panics").extend(slice.timed(counted));
                Ok(0)
            }))
        }
    };
    let mut is_stopped = false;
    let end = async {
        tokio::select! {
            () = stop => is_stopped = true,
            () = tokio::time::sleep(limit) => {}
        }
    };
    let mut report =
        |_: u64| report((started.elapsed().as_secs_f64() / limit.as_secs_f64()).min(1.0));
    let tasks = sample(plan, random_below);
    count_tasks((plan, budget, devices), Arc::new(make), tasks, end, &mut report).await?;
    if is_stopped {
        return Err(MeasureFailure::Stopped);
    }
    let timed = timed.lock().expect("no holder panics");
    let ratios = timed.iter().map(|task| task.ratio).collect();
    let sum = |seconds: fn(&Timed) -> f64| timed.iter().map(seconds).sum::<f64>();
    Ok(Measured {
        fit: Fit::new(ratios).ok_or(MeasureFailure::TooShort { limit })?,
        cut: timed.iter().filter(|task| task.is_cut).count(),
        busy: sum(|task| task.core_seconds) / sum(|task| task.thread_seconds),
        duration: started.elapsed(),
    })
}

/// Samples the tasks to measure, with replacement.
fn sample(plan: &Plan, random_below: &mut dyn FnMut(u64) -> u64) -> Vec<TaskId> {
    let sampler = CostSampler::new(plan);
    let mut cost = 0u64;
    let mut tasks = Vec::new();
    while tasks.len() < MAX_TASKS && (tasks.len() < MIN_TASKS || cost < sampler.total()) {
        let task = sampler.task(random_below(sampler.total()));
        cost = cost.saturating_add(plan.task_cost(task));
        tasks.push(task);
    }
    tasks
}

#[derive(Clone, Copy, Debug)]
struct Timed {
    /// Measured over predicted time.
    ratio: f64,
    core_seconds: f64,
    thread_seconds: f64,
    is_cut: bool,
}

/// Sink that stops a job after its share of the time, once it can be extrapolated.
struct Slice<'a> {
    job: &'a Job,
    watch: Stopwatch,
    /// End of the job's share.
    until: Instant,
    /// Core seconds and cost at the first progress.
    first: Cell<Option<(f64, u64)>>,
    /// Core seconds and cost at the last progress.
    last: Cell<Option<(f64, u64)>>,
}

impl<'a> Slice<'a> {
    fn new(job: &'a Job, watch: Stopwatch, until: Instant) -> Self {
        Self { job, watch, until, first: Cell::new(None), last: Cell::new(None) }
    }

    /// Returns the part of the cost between the first and the last progress, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a part for an estimate")]
    fn progress(&self) -> f64 {
        let (Some((_, first)), Some((_, last))) = (self.first.get(), self.last.get()) else {
            return 0.0;
        };
        (last - first) as f64 / self.job.work.cost as f64
    }

    /// Extrapolates the core seconds of the whole task.
    #[expect(clippy::cast_precision_loss, reason = "seconds for an estimate")]
    fn extrapolated(&self) -> Option<f64> {
        let ((start, first), (now, last)) = (self.first.get()?, self.last.get()?);
        if self.progress() < MIN_PROGRESS || now <= start {
            return None;
        }
        let per_cost = (now - start) / (last - first) as f64;
        Some(start + per_cost * (self.job.work.cost - first) as f64)
    }

    fn timed(&self, counted: Result<u64, CountError>) -> Option<Timed> {
        let core_seconds = self.watch.seconds();
        let (whole, is_cut) = match counted {
            // An overflow takes as long as a count.
            Ok(_) | Err(CountError::Overflow) => (core_seconds, false),
            Err(CountError::Cancelled | CountError::Device) => (self.extrapolated()?, true),
        };
        #[expect(clippy::cast_precision_loss, reason = "a ratio for an estimate")]
        let ratio = whole / (self.job.work.cost as f64 / 1e6);
        Some(Timed { ratio, core_seconds, thread_seconds: self.watch.thread_seconds(), is_cut })
    }
}

impl ProgressSink for Slice<'_> {
    fn advance(&self, cost_done: u64) -> ControlFlow<()> {
        let is_cancelled = self.job.advance(cost_done).is_break();
        if cost_done > 0 {
            let at = Some((self.watch.seconds(), self.job.cost_done()));
            self.last.set(at);
            self.first.set(self.first.get().or(at));
        }
        let is_enough = Instant::now() >= self.until && self.progress() >= MIN_PROGRESS;
        if is_enough || is_cancelled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Clock of a crew's core time, or of its threads' wall time if none is recorded.
#[derive(Clone, Copy, Debug)]
struct Stopwatch {
    threads: u16,
    crews: u16,
    started: Instant,
    used: Option<Duration>,
}

impl Stopwatch {
    /// Starts the clock for one of `crews` crews, on the thread that leads the crew.
    ///
    /// A thread that waits for a device counts during that time too.
    fn start(threads: u16, crews: u16, waits: bool) -> Self {
        let used = if waits { None } else { core_time(threads, crews) };
        Self { threads, crews, started: Instant::now(), used }
    }

    /// Returns the core seconds since the start.
    fn seconds(&self) -> f64 {
        match (self.used, core_time(self.threads, self.crews)) {
            (Some(before), Some(now)) => now.saturating_sub(before).as_secs_f64(),
            (None, _) | (_, None) => self.thread_seconds(),
        }
    }

    /// Returns the wall time of all threads since the start.
    fn thread_seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64() * f64::from(self.threads)
    }
}

/// Returns the core time of this thread's crew; `None` if the system records none.
#[cfg(unix)]
fn core_time(threads: u16, crews: u16) -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};

    let clock = match (threads, crews) {
        (1, _) => ClockId::ThreadCPUTime,
        (_, 1) => ClockId::ProcessCPUTime,
        (_, _) => return None,
    };
    clock_gettime(clock).try_into().ok()
}

/// Returns `None`: core times of other systems are too coarse for a task.
#[cfg(not(unix))]
fn core_time(_threads: u16, _crews: u16) -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use accelerator::{DeviceError, Tuning};
    use common::{
        method::Layout,
        test_fixture::{self, random_from},
    };

    use super::*;
    use crate::{
        engine::Work,
        testing::{budget, work},
    };

    fn plan(n: u8, layout: Layout, limit: Duration) -> Plan {
        plan_to_measure(test_fixture::plan(n, layout), big().threads, limit).unwrap()
    }

    /// Returns a budget of two threads and enough memory for N = 24.
    fn big() -> ComputeBudget {
        ComputeBudget { memory: "1GiB".parse().unwrap(), ..budget(2) }
    }

    /// Measures tasks that a fixed sequence selects.
    async fn measured(
        (plan, limit): (&Plan, Duration),
        stop: impl Future<Output = ()>,
    ) -> Result<Measured, MeasureFailure> {
        measure((plan, big(), &[], limit), &mut random_from(1), stop, &mut |_| {}).await
    }

    #[tokio::test]
    async fn small_boards_end_before_their_time_with_every_layout() {
        let limit = Duration::from_secs(3600);
        for layout in [Layout::FirstRows, Layout::Border, Layout::Frames] {
            let plan = plan(12, layout, limit);
            let measured = measured((&plan, limit), std::future::pending()).await.unwrap();
            assert!(measured.fit.tasks() >= MIN_TASKS, "{layout}");
            assert_eq!(measured.cut, 0, "{layout}");
            let range = measured.ratio();
            assert!(0.0 < range.low && range.low <= range.expected && range.expected <= range.high);
            assert!(measured.busy > 0.0);
        }
    }

    #[tokio::test]
    async fn a_device_is_measured_until_it_is_wrong() {
        if accelerator::devices().is_empty() {
            let loud = "!! NOT TESTED: an estimate with a device (apt-get install pocl-opencl-icd)";
            // The output of `eprintln!` is shown only if the test fails.
            let _ = writeln!(std::io::stderr(), "{loud}");
            return;
        }
        // The planted leaf of a launch reveals that this one counts wrongly.
        let limit = Duration::from_secs(3600);
        let options = "-DWEIGHT_OF_FOURS=5";
        let tuning = Tuning { min_pairs: 0, build_cycles: 0, options, limit, ..Tuning::default() };
        let device = Device::open(0, None, tuning).unwrap();
        let (plan, devices) = (plan(8, Layout::Frames, limit), [device.clone()]);
        let what = (&plan, big(), &devices[..], limit);
        let measured =
            measure(what, &mut random_from(1), std::future::pending(), &mut |_| {}).await;
        assert!(
            matches!(measured, Err(MeasureFailure::Count(CountFailure::Device))),
            "{measured:?}"
        );
        assert!(matches!(device.failure(), Some(DeviceError::Wrong(_))));
    }

    #[tokio::test]
    async fn no_time_and_a_stop_are_distinct_errors() {
        let limit = Duration::from_nanos(1);
        let large = plan(24, Layout::Frames, limit);
        let error = measured((&large, limit), std::future::pending()).await.unwrap_err();
        assert!(error.to_string().contains("--budget 10s"), "{error}");
        let limit = Duration::from_secs(60);
        let small = plan(12, Layout::Frames, limit);
        let error = measured((&small, limit), std::future::ready(())).await.unwrap_err();
        assert!(matches!(error, MeasureFailure::Stopped), "{error}");
    }

    #[test]
    fn the_limit_decides_how_large_the_tasks_are() {
        let tasks = |seconds| plan(23, Layout::Frames, Duration::from_secs(seconds)).tasks();
        assert!(tasks(2) > tasks(5));
        assert_eq!(tasks(3600), test_fixture::plan(23, Layout::Frames).tasks());
    }

    /// Checks the extrapolation, which assumes that a task progresses evenly.
    #[test]
    fn stopped_tasks_are_extrapolated_from_their_progress() {
        let job = Job::new(Work { cost: 1000, ..work(&crate::testing::plan(8), 0) });
        let extrapolated = |first, last| {
            let slice = Slice::new(&job, Stopwatch::start(1, 1, false), Instant::now());
            slice.first.set(first);
            slice.last.set(last);
            slice.extrapolated()
        };
        let whole = extrapolated(Some((3.0, 100)), Some((5.0, 300)));
        assert_eq!(whole, Some(3.0 + 2.0 * 900.0 / 200.0));
        for (first, last) in [
            (None, None),
            (Some((3.0, 100)), Some((3.0, 100))),
            (Some((3.0, 100)), Some((5.0, 110))),
        ] {
            assert_eq!(extrapolated(first, last), None);
        }
    }
}
