//! `queensctl compare`: times of textbook techniques and of this program's methods
//! on one thread, and tables in the layout of published documents.

use std::{
    collections::HashMap,
    fs,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::{Args, ValueEnum};
use cli::exit::Exit;
use common::{
    board::{BadBoard, Board},
    count::{CountError, Counter, CounterConfig, Orientation, ProgressSink},
    kernel::Kernel,
    method::Method,
    plan::{Plan, PlanSpec},
    published::published_counts,
};
use textbook::{BOUNDS, Bound, TECHNIQUES, TextbookTechnique, Visits};
use view::text::thousands;

use super::{
    super::output::{Width, WrappedTable, print},
    documents,
};

/// The first board of the tables.
const FIRST: u8 = 4;

#[derive(Clone, Debug, Args)]
pub(crate) struct CompareOptions {
    /// The largest board to try
    #[arg(
        long,
        value_name = "N",
        default_value = "22",
        allow_hyphen_values = true,
        value_parser = from_first
    )]
    pub(super) max_n: Board,

    /// Time limit of a technique for one board, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) time_limit: u64,

    /// Print a published table in its layout, with measured values next to the printed ones
    #[arg(long, value_name = "TABLE", group = "tables")]
    table: Option<Table>,

    /// Print the sizes of the search spaces, and how much of them each technique visits
    #[arg(long, group = "tables")]
    bounds: bool,
}

/// Parses a board that the tables include.
fn from_first(text: &str) -> Result<Board, String> {
    let board: Board = text.parse().map_err(|bad: BadBoard| bad.to_string())?;
    match board.n() < FIRST {
        true => Err(format!("the tables begin with N = {FIRST}: give {FIRST} or more")),
        false => Ok(board),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    /// M. Hiroi: from permutations to bitmasks, with seconds
    Hiroi,
    /// I. Suzuki: placement flags, recursive and not; the records of N = 5
    #[value(alias = "placement-flags")]
    Suzuki,
    /// K. Haginoya: published counts, records, and the speed table for N = 18 to 22 next to public
    /// programs
    #[value(alias = "speeds")]
    Haginoya,
    /// Eight queens in C++ with next_permutation: all 92 boards
    NextPermutation,
    /// Scala's list comprehension: counts for N = 4 to 13
    #[value(alias = "scala")]
    ListComprehension,
}

pub(super) fn compare(options: &CompareOptions) -> anyhow::Result<Exit> {
    let mut benchmark = Benchmark::new(options.time_limit);
    let max_n = options.max_n;
    match options.table {
        Some(Table::Hiroi) => documents::hiroi(&mut benchmark, max_n)?,
        Some(Table::Suzuki) => documents::suzuki(&mut benchmark)?,
        Some(Table::Haginoya) => documents::haginoya(options)?,
        Some(Table::NextPermutation) => documents::next_permutation(&mut benchmark)?,
        Some(Table::ListComprehension) => documents::list_comprehension(&mut benchmark, max_n)?,
        None if options.bounds => bounds(&mut benchmark, max_n)?,
        None => techniques(&mut benchmark, max_n)?,
    }
    Ok(Exit::Success)
}

/// Prints each board's count and each technique's CPU seconds.
fn techniques(benchmark: &mut Benchmark, max_n: Board) -> anyhow::Result<()> {
    let techniques = Technique::all();
    let keys = [("N", Width::Right(2)), ("SOLUTIONS", Width::Right(21))];
    let names = techniques.iter().map(|technique| (technique.name(), Width::Right(18)));
    let mut table = WrappedTable::begin(keys.into_iter().chain(names), 2)?;
    for n in FIRST..=max_n.n() {
        let board = Board::new(n)?;
        let mut times = Vec::new();
        for technique in &techniques {
            let seconds = benchmark.measure(technique, board)?.map(|measured| measured.seconds);
            times.push(seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.6}")));
        }
        let Some(solutions) = benchmark.solutions(board) else { break };
        table.row([n.to_string(), thousands(solutions.into())].into_iter().chain(times))?;
    }
    table.end()
}

/// Prints the bounds of the documents, and the numbers of visited boards or pairs.
fn bounds(benchmark: &mut Benchmark, max_n: Board) -> anyhow::Result<()> {
    print("Sizes of the search spaces")?;
    let columns = |heads: Vec<&'static str>| {
        let others = heads.into_iter().map(|head| (head, Width::Right(22)));
        std::iter::once(("N", Width::Right(2))).chain(others)
    };
    let formulas = BOUNDS.iter().map(|bound| bound.formula).collect();
    let mut table = WrappedTable::begin(columns(formulas), 1)?;
    for n in FIRST..=max_n.n() {
        let board = Board::new(n)?;
        let values = BOUNDS.iter().map(|bound| value(bound, board));
        table.row(std::iter::once(n.to_string()).chain(values))?;
    }
    table.end()?;
    for (visits, what) in [
        (Visits::FullBoards, "Full boards checked"),
        (Visits::SafeBoards, "Boards without an attack, including the empty board"),
        (Visits::Pairs, "Pairs of queens compared"),
    ] {
        let of = |technique: &Technique| match technique {
            Technique::Textbook(textbook) => textbook.visits == visits,
            Technique::Method(_) => false,
        };
        let techniques: Vec<_> = Technique::all().into_iter().filter(of).collect();
        print(&format!("\n{what}"))?;
        let names = techniques.iter().map(Technique::name).collect();
        let mut table = WrappedTable::begin(columns(names), 1)?;
        for n in FIRST..=max_n.n() {
            let mut visited = Vec::new();
            for technique in &techniques {
                let measured = benchmark.measure(technique, Board::new(n)?)?;
                visited.push(measured.and_then(|measured| measured.visited));
            }
            if visited.iter().all(Option::is_none) {
                break;
            }
            let text = |number: Option<u64>| number.map_or("-".to_owned(), |n| thousands(n.into()));
            table.row(std::iter::once(n.to_string()).chain(visited.into_iter().map(text)))?;
        }
        table.end()?;
    }
    Ok(())
}

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
    let setup = CounterConfig {
        kernel: Kernel::best(),
        memory_bytes: MEMORY_BYTES,
        threads: std::num::NonZeroU16::MIN,
        orientation: Orientation::Upright,
    };
    Ok(Counter::new(plan, &setup)?)
}

fn count_all(method: Method, board: Board, until: &Until) -> anyhow::Result<Option<u64>> {
    let plan = Plan::new(PlanSpec::new(board, method.default_layout()))?;
    match counter(&plan)?.count(0..plan.units(), until) {
        Ok(count) => Ok(Some(count)),
        Err(CountError::Cancelled) => Ok(None),
        Err(error @ CountError::Overflow) => Err(error.into()),
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
