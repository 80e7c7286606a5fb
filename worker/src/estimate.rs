//! Measuring on a few tasks of a plan how fast this machine counts them.
//!
//! Tasks are drawn by cost (`common::forecast`) until the time is over. One that is too long for its part
//! of the time is stopped, and carried on by the progress that it made: it had to begin, which takes as
//! long as it took, and its rest goes on as it went.

use std::{
    cell::Cell,
    ops::ControlFlow,
    sync::{
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use common::{
    count::{CountError, Counter, Orientation, Setup, SetupError, Watch},
    crews::{Crew, Crews},
    forecast::{Fit, Lots},
    kernel::Kernel,
    plan::{BadSpec, Plan, TaskId},
    sample::in_tasks_of,
};

use crate::{config::Threads, cpu::Stopwatch};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The plan from which tasks are drawn: see [`plan_to_draw_from`].
    pub plan: Plan,
    /// How the threads are divided, and what they may hold.
    pub crews: Crews,
    /// The instruction set of the inner loops.
    pub kernel: Kernel,
    /// How long it may take.
    pub budget: Duration,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// How well the plan's costs foretold the times.
    pub fit: Fit,
    /// How many of its tasks were stopped before their end.
    pub cut: usize,
    /// Time of one core that they all took, in seconds.
    pub core_seconds: f64,
    /// How long it took.
    pub duration: Duration,
}

/// Why nothing was measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeasureFailure {
    /// The threads cannot be set up.
    #[error("{0}; give more with --memory, or fewer --threads")]
    Setup(#[from] SetupError),
    /// There was no time for two tasks.
    #[error(
        "{} s are too short to measure two tasks of this board here: give more, such as --budget {}s",
        budget.as_secs_f64(),
        (budget.as_secs() * 4).max(10)
    )]
    TooShort {
        /// How long it could take.
        budget: Duration,
    },
    /// Somebody wanted it to end.
    #[error("stopped before its end")]
    Stopped,
    /// The program has a fault.
    #[error("a counting thread panicked: this is a fault of the program")]
    Panic,
}

/// So many tasks are wanted: few say little about their spread, and short ones little about long ones.
const WANTED: u32 = 200;

/// Shorter tasks are measured badly, in microseconds.
const LEAST_COST: u64 = 20_000;

/// More tasks than this say nothing new.
const MOST: usize = 1_000;

/// Tasks that are measured even if all of them are more than the whole plan.
const LEAST: usize = 30;

/// One task may take this part of the time.
const PART: u32 = 8;

/// Where less of a task than this is done between its beginning and its stop, its rest cannot be told.
const LEAST_PROGRESS: f64 = 0.02;

/// How often `report` is called.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// The units of `plan` in tasks of which so many threads count enough in `budget`.
pub fn plan_to_draw_from(plan: Plan, threads: Threads, budget: Duration) -> Result<Plan, BadSpec> {
    let cost = budget.as_micros() * u128::from(threads.get()) / u128::from(WANTED);
    let cost = u64::try_from(cost).unwrap_or(u64::MAX);
    in_tasks_of(plan, cost.max(LEAST_COST))
}

/// Counts tasks that `random_below` draws, which must answer a uniform random number below the one it is
/// given, until the time is over, `stop` is set, or they are more than the whole plan; meanwhile tells
/// `report` many times a second which part of the time (0 to 1) is over.
pub fn measure(
    what: &Measurement,
    random_below: &mut dyn FnMut(u64) -> u64,
    stop: &AtomicBool,
    report: &mut dyn FnMut(f64),
) -> Result<Measured, MeasureFailure> {
    let lots = Lots::new(&what.plan);
    let lot = |_| random_below(lots.number());
    let drawn: Vec<TaskId> = (0..MOST).map(lot).map(|lot| lots.task(lot)).collect();
    let started = Instant::now();
    let draw = Draw {
        drawn: &drawn,
        whole: lots.number(),
        next: AtomicUsize::new(0),
        cost: AtomicU64::new(0),
        stop,
        until: started + what.budget,
    };
    let results: Vec<_> = thread::scope(|scope| {
        let (working, ended) = mpsc::channel::<()>();
        let crews: Vec<_> = (0..what.crews.number())
            .map(|index| {
                let (working, draw) = (working.clone(), &draw);
                scope.spawn(move || {
                    let result = crew_of(what, what.crews.crew(index), draw);
                    drop(working);
                    result
                })
            })
            .collect();
        drop(working);
        while ended.recv_timeout(REPORT_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
            let part = started.elapsed().as_secs_f64() / what.budget.as_secs_f64();
            report(part.min(1.0));
        }
        let crews = crews.into_iter().map(thread::ScopedJoinHandle::join);
        crews
            .map(|result| result.unwrap_or(Err(MeasureFailure::Panic)))
            .collect()
    });
    if stop.load(Relaxed) {
        return Err(MeasureFailure::Stopped);
    }
    let mut tasks = Vec::new();
    for result in results {
        tasks.extend(result?);
    }
    let ratios = tasks.iter().map(|task| task.ratio).collect();
    Ok(Measured {
        fit: Fit::new(ratios).ok_or(MeasureFailure::TooShort {
            budget: what.budget,
        })?,
        cut: tasks.iter().filter(|task| task.is_cut).count(),
        core_seconds: tasks.iter().map(|task| task.core_seconds).sum(),
        duration: started.elapsed(),
    })
}

/// What crews share: which tasks are whose turn, and when it is over.
struct Draw<'a> {
    drawn: &'a [TaskId],
    /// The cost of the plan.
    whole: u64,
    next: AtomicUsize,
    /// Of the tasks that were begun.
    cost: AtomicU64,
    stop: &'a AtomicBool,
    until: Instant,
}

impl Draw<'_> {
    /// The next task, of which the plan says what it costs.
    fn next(&self, plan: &Plan) -> Option<TaskId> {
        if self.stop.load(Relaxed) || Instant::now() >= self.until {
            return None;
        }
        let position = self.next.fetch_add(1, Relaxed);
        let task = *self.drawn.get(position)?;
        let before = self.cost.fetch_add(plan.task_cost(task), Relaxed);
        (position < LEAST || before < self.whole).then_some(task)
    }
}

/// One task that was measured.
struct Timed {
    /// Measured over predicted time.
    ratio: f64,
    core_seconds: f64,
    is_cut: bool,
}

/// One crew: measures tasks until there are enough.
fn crew_of(what: &Measurement, crew: Crew, draw: &Draw<'_>) -> Result<Vec<Timed>, MeasureFailure> {
    let setup = Setup {
        kernel: what.kernel,
        threads: crew.threads,
        memory_bytes: crew.memory_bytes,
        orientation: Orientation::Upright,
    };
    let mut counter = Counter::new(&what.plan, &setup)?;
    let mut timed = Vec::new();
    while let Some(task) = draw.next(&what.plan) {
        let cost = what.plan.task_cost(task);
        let slice = Slice {
            cost,
            watch: Stopwatch::start(crew, what.crews.number()),
            over: Instant::now() + what.budget / PART,
            draw,
            done: Cell::new(0),
            begun: Cell::new(None),
            last: Cell::new(None),
        };
        let counted = counter.count(what.plan.task_units(task), &slice);
        let core_seconds = slice.watch.seconds();
        let (whole, is_cut) = match counted {
            // What passes 64 bits takes as long.
            Ok(_) | Err(CountError::Overflow) => (Some(core_seconds), false),
            Err(CountError::Cancelled) => (slice.carried_on(), true),
        };
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let ratio = whole.map(|seconds| seconds / (cost as f64 / 1e6));
        timed.extend(ratio.map(|ratio| Timed {
            ratio,
            core_seconds,
            is_cut,
        }));
    }
    Ok(timed)
}

/// Stops a task whose part of the time is over, as soon as its rest can be told.
struct Slice<'a> {
    cost: u64,
    watch: Stopwatch,
    over: Instant,
    draw: &'a Draw<'a>,
    done: Cell<u64>,
    /// Core seconds and cost at the first progress.
    begun: Cell<Option<(f64, u64)>>,
    /// The same at the last.
    last: Cell<Option<(f64, u64)>>,
}

impl Slice<'_> {
    /// The part of the task, 0 to 1, that was done after its beginning.
    #[expect(clippy::cast_precision_loss, reason = "a part for an estimate")]
    fn progress(&self) -> f64 {
        let (begun, last) = (self.begun.get(), self.last.get());
        let (Some((_, first)), Some((_, last))) = (begun, last) else {
            return 0.0;
        };
        (last - first) as f64 / self.cost as f64
    }

    /// How long the whole task would have taken, in core seconds, if that can be told.
    #[expect(clippy::cast_precision_loss, reason = "seconds for an estimate")]
    fn carried_on(&self) -> Option<f64> {
        let ((begun, first), (now, last)) = (self.begun.get()?, self.last.get()?);
        if self.progress() < LEAST_PROGRESS || now <= begun {
            return None;
        }
        let each = (now - begun) / (last - first) as f64;
        Some(begun + each * (self.cost - first) as f64)
    }
}

impl Watch for Slice<'_> {
    fn advance(&self, cost_done: u64) -> ControlFlow<()> {
        let done = (self.done.get() + cost_done).min(self.cost);
        self.done.set(done);
        if cost_done > 0 {
            let at = (self.watch.seconds(), done);
            self.last.set(Some(at));
            if self.begun.get().is_none() {
                self.begun.set(Some(at));
            }
        }
        let now = Instant::now();
        let is_enough = now >= self.over && self.progress() >= LEAST_PROGRESS;
        if is_enough || now >= self.draw.until || self.draw.stop.load(Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

#[cfg(test)]
mod tests {
    use common::{board::Board, method::Layout, plan::PlanSpec};

    use super::*;
    use crate::config::crews;

    fn measurement(n: u8, layout: Layout, budget: Duration) -> Measurement {
        let (memory, threads) = ("1GiB".parse().unwrap(), "2".parse().unwrap());
        let plan = Plan::new(PlanSpec::new(Board::new(n).unwrap(), layout)).unwrap();
        let plan = plan_to_draw_from(plan, threads, budget).unwrap();
        Measurement {
            crews: crews(&plan, memory, threads, None).unwrap(),
            plan,
            kernel: Kernel::best(),
            budget,
        }
    }

    /// Drawn by a fixed sequence.
    fn measured(what: &Measurement, stop: bool) -> Result<Measured, MeasureFailure> {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 16) % below
        };
        measure(what, &mut random, &AtomicBool::new(stop), &mut |_| {})
    }

    #[test]
    fn small_boards_end_before_their_time_with_every_layout() {
        for layout in [Layout::FirstRows, Layout::Border, Layout::Frames] {
            let what = measurement(12, layout, Duration::from_secs(3600));
            let measured = measured(&what, false).unwrap();
            assert!(measured.fit.tasks() >= LEAST, "{layout}");
            assert_eq!(measured.cut, 0, "{layout}");
            let range = measured.fit.ratio();
            assert!(0.0 < range.low && range.low <= range.expected && range.expected <= range.high);
            assert!(measured.core_seconds > 0.0);
        }
    }

    #[test]
    fn no_time_and_a_stop_are_errors_that_say_so() {
        let what = measurement(24, Layout::Frames, Duration::from_nanos(1));
        let error = measured(&what, false).unwrap_err();
        assert!(error.to_string().contains("--budget 10s"), "{error}");
        let what = measurement(12, Layout::Frames, Duration::from_secs(60));
        assert_eq!(measured(&what, true), Err(MeasureFailure::Stopped));
    }

    #[test]
    fn budgets_decide_how_large_the_tasks_are() {
        let spec = PlanSpec::new(Board::new(20).unwrap(), Layout::Frames);
        let plan = Plan::new(spec).unwrap();
        let threads: Threads = "2".parse().unwrap();
        let tasks = |seconds| {
            let plan = plan_to_draw_from(plan.clone(), threads, Duration::from_secs(seconds));
            plan.unwrap().tasks()
        };
        assert!(tasks(2) > tasks(5));
        assert_eq!(tasks(3600), plan.tasks());
    }

    /// A task that was stopped half way, and went on evenly after a beginning.
    #[test]
    fn stopped_tasks_are_carried_on_by_their_progress() {
        let stop = AtomicBool::new(false);
        let draw = Draw {
            drawn: &[],
            whole: 1,
            next: AtomicUsize::new(0),
            cost: AtomicU64::new(0),
            stop: &stop,
            until: Instant::now(),
        };
        let crew = Crew {
            threads: std::num::NonZeroU16::MIN,
            memory_bytes: 1,
        };
        let slice = |begun, last| Slice {
            cost: 1000,
            watch: Stopwatch::start(crew, 1),
            over: draw.until,
            draw: &draw,
            done: Cell::new(0),
            begun: Cell::new(begun),
            last: Cell::new(last),
        };
        let whole = slice(Some((3.0, 100)), Some((5.0, 300))).carried_on();
        assert_eq!(whole, Some(3.0 + 2.0 * 900.0 / 200.0));
        for too_little in [
            slice(None, None),
            slice(Some((3.0, 100)), Some((3.0, 100))),
            slice(Some((3.0, 100)), Some((5.0, 110))),
        ] {
            assert_eq!(too_little.carried_on(), None);
        }
    }
}
