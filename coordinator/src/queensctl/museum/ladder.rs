//! The ladder: how far each textbook technique climbs in a given time, and the methods of this
//! program beside them, all on one thread.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::Args;
use common::{
    board::Board,
    count::{CountError, Counter, Orientation, Setup, Watch},
    kernel::Kernel,
    known::known_counts,
    method::Method,
    plan::{Plan, PlanSpec},
    textbook::{LADDER, Textbook},
};

use super::super::output::print;
use crate::{exit::Exit, text::thousands};

/// Options of `ladder`.
#[derive(Clone, Debug, Args)]
pub(in crate::queensctl) struct LadderOptions {
    /// The largest board to try
    #[arg(
        long,
        value_name = "N",
        default_value = "20",
        allow_hyphen_values = true
    )]
    max_n: Board,

    /// Seconds that a technique may take for one board
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time_limit: u64,
}

/// The smallest board on which a technique is shown.
const FIRST: u8 = 4;

/// Memory of one counter of the ladder.
const MEMORY_BYTES: u64 = 2 << 30;

/// One column.
enum Technique {
    Textbook(Textbook),
    Method(Method),
}

/// A count with the time that it took; `None` where time was up.
type Climbed = Option<(u64, Duration)>;

impl Technique {
    fn name(&self) -> &'static str {
        match self {
            Self::Textbook(textbook) => textbook.name,
            Self::Method(method) => method.name(),
        }
    }

    fn count(&self, board: Board, limit: Duration) -> anyhow::Result<Climbed> {
        let start = Instant::now();
        let count = match self {
            Self::Textbook(textbook) => (textbook.count)(board, &|| start.elapsed() >= limit),
            Self::Method(method) => count_all(*method, board, &Until { start, limit })?,
        };
        Ok(count.map(|count| (count, start.elapsed())))
    }
}

/// Breaks when time is up.
struct Until {
    start: Instant,
    limit: Duration,
}

impl Watch for Until {
    fn advance(&self, _cost_done: u64) -> ControlFlow<()> {
        if self.start.elapsed() < self.limit {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

fn count_all(method: Method, board: Board, until: &Until) -> anyhow::Result<Option<u64>> {
    let plan = Plan::new(PlanSpec::new(board, method.usual_layout()))?;
    let setup = Setup {
        kernel: Kernel::best(),
        threads: std::num::NonZeroU16::MIN,
        memory_bytes: MEMORY_BYTES,
        orientation: Orientation::Upright,
    };
    match Counter::new(&plan, &setup)?.count(0..plan.units(), until) {
        Ok(count) => Ok(Some(count)),
        Err(CountError::Cancelled) => Ok(None),
        Err(error @ CountError::Overflow) => Err(error.into()),
    }
}

/// Prints a row a board: the count, and the seconds of each technique that got there in time. A
/// technique that ran out of time is not tried on larger boards.
pub(super) fn climb(options: &LadderOptions) -> anyhow::Result<Exit> {
    let limit = Duration::from_secs(options.time_limit);
    let mut techniques: Vec<(Technique, bool)> = LADDER
        .into_iter()
        .map(Technique::Textbook)
        .chain([Method::Rows, Method::Frames].map(Technique::Method))
        .map(|technique| (technique, true))
        .collect();
    let names: Vec<_> = techniques
        .iter()
        .map(|(technique, _)| format!("{:>18}", technique.name()))
        .collect();
    print(&format!("{:>2} {:>20}{}", "N", "SOLUTIONS", names.concat()))?;
    for n in FIRST..=options.max_n.n() {
        let board = Board::new(n)?;
        let mut row = String::new();
        let mut solutions = None;
        for (technique, climbs) in &mut techniques {
            let climbed = match *climbs {
                true => technique.count(board, limit)?,
                false => None,
            };
            *climbs = climbed.is_some();
            match climbed {
                None => row += &format!("{:>18}", "-"),
                Some((count, took)) => {
                    check(board, technique.name(), count, &mut solutions)?;
                    row += &format!("{:>18.6}", took.as_secs_f64());
                }
            }
        }
        let Some(solutions) = solutions else { break };
        print(&format!("{n:>2} {:>20}{row}", thousands(solutions.into())))?;
    }
    Ok(Exit::Success)
}

/// All techniques must agree with each other and with the published count.
fn check(board: Board, name: &str, count: u64, first: &mut Option<u64>) -> anyhow::Result<()> {
    let expected = *first.get_or_insert(count);
    if count != expected {
        bail!(
            "{name} counts {count} solutions for N = {board}, the techniques before it {expected}"
        );
    }
    if let Some(known) = known_counts(board)
        && known.all() != u128::from(count)
    {
        bail!(
            "{name} counts {count} solutions for N = {board}, known are {}",
            known.all()
        );
    }
    Ok(())
}
