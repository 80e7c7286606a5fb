//! Timed counts by textbook techniques and this program's methods, on one thread.

use std::{
    collections::HashMap,
    fs,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use anyhow::bail;
use common::{
    board::Board,
    count::{CountError, Counter, CounterConfig, ProgressSink},
    method::Method,
    plan::{Plan, PlanSpec},
    solutions::published::published_counts,
};
use textbook::{Bound, TECHNIQUES, TextbookTechnique};
use view::text::thousands;

/// Formats a bound, exactly if it fits a column.
pub(super) fn value(bound: &Bound, board: Board) -> String {
    match bound.value(board) {
        Some(value) if value < 10u128.pow(15) => thousands(value),
        Some(_) | None => format!("{:.3e}", bound.approximate(board)),
    }
}

/// Memory limit of a counter.
const MEMORY_BYTES: u64 = 2 << 30;

#[derive(Clone, Debug)]
pub(super) enum Technique {
    Textbook(TextbookTechnique),
    Method(Method),
}

/// A count and its cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measurement {
    pub(super) solutions: u64,
    /// Boards or pairs that a textbook technique visited.
    pub(super) visited: Option<u64>,
    /// CPU seconds of the counting thread.
    pub(super) seconds: f64,
}

/// A benchmark on one thread, which counts each board once per technique.
pub(super) struct Benchmark {
    limit: Duration,
    /// `None` after a timeout.
    done: HashMap<(&'static str, Board), Option<Measurement>>,
    /// The counts, on which all techniques agree.
    counts: HashMap<Board, u64>,
}

impl Technique {
    /// Returns the textbook technique of this name, which must exist.
    pub(super) fn textbook(name: &str) -> Self {
        let found = TECHNIQUES.into_iter().find(|technique| technique.name == name);
        Self::Textbook(found.expect("a textbook technique"))
    }

    /// Returns all techniques, slowest first.
    pub(super) fn all() -> Vec<Self> {
        let methods = [Method::Rows, Method::Frames].map(Self::Method);
        TECHNIQUES.into_iter().map(Self::Textbook).chain(methods).collect()
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Textbook(textbook) => textbook.name,
            Self::Method(method) => method.name(),
        }
    }

    fn count(&self, board: Board, limit: Duration) -> anyhow::Result<Option<Measurement>> {
        let start = Instant::now();
        let watch = Stopwatch::start();
        let counted = match self {
            Self::Textbook(textbook) => textbook
                .count(board, &|| start.elapsed() >= limit)
                .map(|count| (count.solutions, Some(count.visited))),
            Self::Method(method) => {
                count_all(*method, board, &Until { start, limit })?.map(|count| (count, None))
            }
        };
        let seconds = watch.seconds();
        Ok(counted.map(|(solutions, visited)| Measurement { solutions, visited, seconds }))
    }
}

impl Benchmark {
    /// Creates a benchmark with a time limit per technique and board.
    pub(super) fn new(seconds: u64) -> Self {
        Self { limit: Duration::from_secs(seconds), done: HashMap::new(), counts: HashMap::new() }
    }

    /// Counts a board; `None` after a timeout on this or a smaller board.
    /// All techniques must agree with each other and with the published count.
    pub(super) fn measure(
        &mut self,
        technique: &Technique,
        board: Board,
    ) -> anyhow::Result<Option<Measurement>> {
        let name = technique.name();
        if let Some(done) = self.done.get(&(name, board)) {
            return Ok(*done);
        }
        let given_up = |((other, smaller), measured): (&(&str, Board), &Option<Measurement>)| {
            *other == name && *smaller < board && measured.is_none()
        };
        let measured = match self.done.iter().any(given_up) {
            true => None,
            false => technique.count(board, self.limit)?,
        };
        self.done.insert((name, board), measured);
        if let Some(Measurement { solutions, .. }) = measured {
            let expected = *self.counts.entry(board).or_insert(solutions);
            let published = published_counts(board).map(|counts| counts.all());
            if solutions != expected || published.is_some_and(|all| all != u128::from(solutions)) {
                bail!(
                    "{name} counts {solutions} solutions for N = {board}; others count {expected}; \
                     published: {}",
                    published.map_or("none".to_owned(), |all| all.to_string()),
                );
            }
        }
        Ok(measured)
    }

    /// Returns the count of a board that some technique finished.
    pub(super) fn solutions(&self, board: Board) -> Option<u64> {
        self.counts.get(&board).copied()
    }
}

/// The sink that stops a count at the time limit.
struct Until {
    start: Instant,
    limit: Duration,
}

impl ProgressSink for Until {
    fn advance(&self, _cost_done: u64) -> ControlFlow<()> {
        if self.start.elapsed() < self.limit {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

/// Creates a counter with this machine's best kernel.
pub(super) fn counter(plan: &Plan) -> anyhow::Result<Counter> {
    Ok(Counter::new(plan, &CounterConfig::best(MEMORY_BYTES))?)
}

fn count_all(method: Method, board: Board, until: &Until) -> anyhow::Result<Option<u64>> {
    let plan = Plan::new(PlanSpec::new(board, method.default_layout()))?;
    match counter(&plan)?.count(0..plan.units(), until) {
        Ok(count) => Ok(Some(count)),
        Err(CountError::Cancelled) => Ok(None),
        Err(error @ (CountError::Overflow | CountError::Device)) => Err(error.into()),
    }
}

/// Seconds below which the kernel's CPU accounting may be too coarse.
const MIN_CPU_SECONDS: f64 = 0.1;

/// A clock of this thread's CPU time.
pub(super) struct Stopwatch {
    start: Instant,
    cpu_seconds: Option<f64>,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self { start: Instant::now(), cpu_seconds: cpu_seconds() }
    }

    /// Returns the CPU seconds since the start on Linux.
    /// For short work and on other systems, returns the elapsed seconds.
    pub(super) fn seconds(&self) -> f64 {
        let on_clock = self.start.elapsed().as_secs_f64();
        match (self.cpu_seconds, cpu_seconds()) {
            (Some(before), Some(now)) if on_clock >= MIN_CPU_SECONDS => now - before,
            _ => on_clock,
        }
    }
}

fn cpu_seconds() -> Option<f64> {
    let account = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = account.split(' ').next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}
