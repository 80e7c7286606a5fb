//! Counting a whole board, or a random sample of its tasks, in this process alone: the same plan
//! and the same kernels as the cluster's, without coordinator and wire.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use common::{
    count::{CountError, Counter, Orientation, Setup, SetupError, Watch},
    crews::{Crew, Crews},
    kernel::Kernel,
    plan::{Plan, TaskId},
    sample::{Estimate, Sample},
    tally::{self, BadTally},
};

use crate::config::Threads;

/// What to count, and with what.
#[derive(Clone, Debug)]
pub struct CountConfig {
    /// The plan whose tasks are counted.
    pub plan: Plan,
    /// The sample to which the count is confined; all tasks where there is none.
    pub sample: Option<Sample>,
    /// How many threads count.
    pub threads: Threads,
    /// The instruction set of the inner loops.
    pub kernel: Kernel,
    /// How they are divided, and what they may hold.
    pub crews: Crews,
}

impl CountConfig {
    /// What is to be counted, in the order in which it is.
    fn tasks(&self) -> Vec<TaskId> {
        match &self.sample {
            Some(sample) => sample.tasks().collect(),
            None => self.plan.handing_out_order().collect(),
        }
    }

    /// All the work, in estimated microseconds of one core of the reference machine.
    pub fn cost(&self) -> u64 {
        let costs = self.tasks().into_iter();
        let costs = costs.map(|task| self.plan.task_cost(task));
        costs.fold(0, u64::saturating_add)
    }
}

/// What was counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// The units that were counted.
    pub units: u64,
    /// The weighted number of solutions in them.
    pub solutions: u128,
    /// For the whole board: where a sample was counted to its end.
    pub estimate: Option<Estimate>,
    /// Whether every task that was to be counted was.
    pub complete: bool,
    /// How long it took.
    pub duration: Duration,
}

/// Why there is no count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountFailure {
    /// The threads cannot be set up.
    #[error("{0}; give more with --memory, or fewer --threads")]
    Setup(#[from] SetupError),
    /// A task's count does not fit.
    #[error("task {task}: the weighted count passes 64 bits")]
    Overflow {
        /// The task.
        task: TaskId,
    },
    /// The sum does not fit.
    #[error(transparent)]
    Sum(#[from] BadTally),
    /// The program has a fault.
    #[error("a counting thread panicked: this is a fault of the program")]
    Panic,
}

/// What counting threads share: told of progress, asked whether to go on.
struct Progress<'a> {
    cost_done: AtomicU64,
    stop: &'a AtomicBool,
    /// A thread failed: the others need not go on.
    failed: AtomicBool,
}

impl Watch for Progress<'_> {
    fn advance(&self, cost_done: u64) -> ControlFlow<()> {
        self.cost_done.fetch_add(cost_done, Relaxed);
        if self.stop.load(Relaxed) || self.failed.load(Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// How often `report` is called.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// Counts until everything is counted or `stop` is set; meanwhile tells `report` many times a second
/// which part of the cost (0 to 1) is done.
pub fn count(
    config: &CountConfig,
    stop: &AtomicBool,
    report: &mut dyn FnMut(f64),
) -> Result<Counted, CountFailure> {
    let plan = &config.plan;
    let tasks = config.tasks();
    let cost = config.cost();
    let progress = Progress {
        cost_done: AtomicU64::new(0),
        stop,
        failed: AtomicBool::new(false),
    };
    let next = AtomicU64::new(0);
    let started = Instant::now();
    let results: Vec<_> = thread::scope(|scope| {
        let (working, ended) = mpsc::channel::<()>();
        let threads: Vec<_> = (0..config.crews.number())
            .map(|index| {
                let working = working.clone();
                let (tasks, next, progress) = (&tasks, &next, &progress);
                scope.spawn(move || {
                    let result =
                        count_tasks(config, config.crews.crew(index), tasks, next, progress);
                    if result.is_err() {
                        progress.failed.store(true, Relaxed);
                    }
                    drop(working);
                    result
                })
            })
            .collect();
        drop(working);
        while ended.recv_timeout(REPORT_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
            report(part(progress.cost_done.load(Relaxed), cost));
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err(CountFailure::Panic)))
            .collect()
    });
    let duration = started.elapsed();
    let mut counts = HashMap::with_capacity(tasks.len());
    for result in results {
        counts.extend(result?);
    }
    let complete = counts.len() == tasks.len();
    Ok(Counted {
        units: counts
            .keys()
            .map(|&task| plan.task_units(task))
            .map(|units| units.end - units.start)
            .sum(),
        solutions: tally::total(counts.values().copied())?,
        estimate: config
            .sample
            .as_ref()
            .filter(|_| complete)
            .map(|sample| sample.estimate(&|task| counts[&task])),
        complete,
        duration,
    })
}

#[allow(clippy::cast_precision_loss)] // For a progress bar.
fn part(done: u64, whole: u64) -> f64 {
    (done as f64 / whole.max(1) as f64).min(1.0)
}

/// One crew: takes the next task until there is none or counting is to stop.
fn count_tasks(
    config: &CountConfig,
    crew: Crew,
    tasks: &[TaskId],
    next: &AtomicU64,
    progress: &Progress<'_>,
) -> Result<Vec<(TaskId, u64)>, CountFailure> {
    let setup = Setup {
        kernel: config.kernel,
        threads: crew.threads,
        memory_bytes: crew.memory_bytes,
        orientation: Orientation::Upright,
    };
    let mut counter = Counter::new(&config.plan, &setup)?;
    let mut counts = Vec::new();
    // A stop before the first task must not count a whole one.
    while progress.advance(0).is_continue() {
        let position = usize::try_from(next.fetch_add(1, Relaxed)).unwrap_or(usize::MAX);
        let Some(&task) = tasks.get(position) else {
            break;
        };
        match counter.count(config.plan.task_units(task), progress) {
            Ok(count) => counts.push((task, count)),
            Err(CountError::Cancelled) => break,
            Err(CountError::Overflow) => return Err(CountFailure::Overflow { task }),
        }
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use common::{board::Board, known::known_counts, method::Layout, plan::PlanSpec};

    use super::*;
    use crate::config::crews;

    fn config(n: u8, layout: Layout) -> CountConfig {
        let spec = PlanSpec::new(Board::new(n).unwrap(), layout);
        of_plan(Plan::new(spec).unwrap())
    }

    fn of_plan(plan: Plan) -> CountConfig {
        let (memory, threads) = ("3GiB".parse().unwrap(), "3".parse().unwrap());
        CountConfig {
            crews: crews(&plan, memory, threads, None).unwrap(),
            plan,
            sample: None,
            threads,
            kernel: Kernel::best(),
        }
    }

    fn count_all(config: &CountConfig) -> Counted {
        count(config, &AtomicBool::new(false), &mut |_| {}).unwrap()
    }

    #[test]
    fn exact_for_small_boards_with_every_layout_that_has_them() {
        for n in 1..=12 {
            let board = Board::new(n).unwrap();
            let known = known_counts(board).unwrap().all();
            for layout in [Layout::FirstRows, Layout::Border, Layout::Frames] {
                let plan = match Plan::new(PlanSpec::new(board, layout)) {
                    Ok(plan) => plan,
                    Err(_) if layout == Layout::Frames => continue,
                    Err(error) => panic!("{error}"),
                };
                let config = of_plan(plan);
                let counted = count_all(&config);
                assert_eq!(counted.solutions, known, "N = {n}, {layout}");
                assert!(counted.complete && counted.estimate.is_none());
                assert_eq!(counted.units, config.plan.units());
            }
        }
    }

    #[test]
    fn a_sample_of_everything_is_exact() {
        let mut config = config(10, Layout::FirstRows);
        config.sample = Some(Sample::draw(&config.plan, 1.0, &mut |_| 0).unwrap());
        let counted = count_all(&config);
        assert_eq!(counted.solutions, 724);
        let estimate = counted.estimate.unwrap();
        assert_eq!((estimate.low, estimate.high), (724, 724));
    }

    #[test]
    fn stopping_leaves_what_was_done() {
        let config = config(14, Layout::FirstRows);
        let none = count(&config, &AtomicBool::new(true), &mut |_| {}).unwrap();
        assert!(!none.complete);
        assert_eq!((none.units, none.solutions), (0, 0));
    }

    #[test]
    fn crews_count_what_threads_on_their_own_count() {
        let mut config = config(12, Layout::Frames);
        let (memory, threads) = ("1GiB".parse().unwrap(), "3".parse().unwrap());
        for number in 1..=3 {
            let number = NonZeroU16::new(number);
            config.crews = crews(&config.plan, memory, threads, number).unwrap();
            assert_eq!(count_all(&config).solutions, 14_200, "{}", config.crews);
        }
    }

    #[test]
    fn too_little_memory_is_an_error_that_says_what_to_do() {
        let config = config(12, Layout::FirstRows);
        let error = crews(&config.plan, "1B".parse().unwrap(), config.threads, None).unwrap_err();
        assert!(error.to_string().contains("--memory"), "{error}");
    }
}
