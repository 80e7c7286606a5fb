//! Techniques and how long they take, each count checked.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use anyhow::bail;
use common::{
    board::Board,
    count::{CountError, Counter, Orientation, Setup, Watch},
    kernel::Kernel,
    known::known_counts,
    method::Method,
    plan::{Plan, PlanSpec},
    textbook::{LADDER, Textbook},
};

use super::cpu::Stopwatch;

/// Memory of one counter.
const MEMORY_BYTES: u64 = 2 << 30;

/// What counts.
#[derive(Clone, Debug)]
pub(super) enum Technique {
    Textbook(Textbook),
    Method(Method),
}

/// A count and what it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Climbed {
    pub(super) solutions: u64,
    /// What a textbook technique visited.
    pub(super) visited: Option<u64>,
    /// CPU seconds of the counting thread.
    pub(super) seconds: f64,
}

/// Measures techniques on one thread, each board once.
pub(super) struct Climber {
    limit: Duration,
    /// `None` where time was up.
    done: HashMap<(&'static str, Board), Option<Climbed>>,
    /// What all techniques agree on.
    counts: HashMap<Board, u64>,
}

impl Technique {
    /// The textbook technique of this name.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn textbook(name: &str) -> Self {
        let found = LADDER.into_iter().find(|rung| rung.name == name);
        Self::Textbook(found.expect("a technique of the ladder"))
    }

    /// All there are, slowest first.
    pub(super) fn all() -> Vec<Self> {
        let methods = [Method::Rows, Method::Frames].map(Self::Method);
        LADDER
            .into_iter()
            .map(Self::Textbook)
            .chain(methods)
            .collect()
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Textbook(textbook) => textbook.name,
            Self::Method(method) => method.name(),
        }
    }

    fn count(&self, board: Board, limit: Duration) -> anyhow::Result<Option<Climbed>> {
        let start = Instant::now();
        let watch = Stopwatch::start();
        let counted = match self {
            Self::Textbook(textbook) => (textbook.count)(board, &|| start.elapsed() >= limit)
                .map(|count| (count.solutions, Some(count.visited))),
            Self::Method(method) => {
                count_all(*method, board, &Until { start, limit })?.map(|count| (count, None))
            }
        };
        let seconds = watch.seconds();
        Ok(counted.map(|(solutions, visited)| Climbed {
            solutions,
            visited,
            seconds,
        }))
    }
}

impl Climber {
    /// Gives every technique so long for each board.
    pub(super) fn new(seconds: u64) -> Self {
        Self {
            limit: Duration::from_secs(seconds),
            done: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    /// Counts a board; `None` where time was up, or was on a smaller board. All techniques must
    /// agree with each other and with the published count.
    pub(super) fn measure(
        &mut self,
        technique: &Technique,
        board: Board,
    ) -> anyhow::Result<Option<Climbed>> {
        let name = technique.name();
        if let Some(done) = self.done.get(&(name, board)) {
            return Ok(*done);
        }
        let given_up = |((other, smaller), climbed): (&(&str, Board), &Option<Climbed>)| {
            *other == name && *smaller < board && climbed.is_none()
        };
        let climbed = match self.done.iter().any(given_up) {
            true => None,
            false => technique.count(board, self.limit)?,
        };
        self.done.insert((name, board), climbed);
        if let Some(Climbed { solutions, .. }) = climbed {
            let expected = *self.counts.entry(board).or_insert(solutions);
            let known = known_counts(board).map(|counts| counts.all());
            if solutions != expected || known.is_some_and(|all| all != u128::from(solutions)) {
                bail!(
                    "{name} counts {solutions} solutions for N = {board}; others count {expected}, \
                     published are {}",
                    known.map_or("none".to_owned(), |all| all.to_string()),
                );
            }
        }
        Ok(climbed)
    }

    /// The count of a board that some technique got to.
    pub(super) fn solutions(&self, board: Board) -> Option<u64> {
        self.counts.get(&board).copied()
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

/// A counter of this machine's best kernel.
pub(super) fn counter(plan: &Plan) -> anyhow::Result<Counter> {
    let setup = Setup {
        kernel: Kernel::best(),
        memory_bytes: MEMORY_BYTES,
        threads: std::num::NonZeroU16::MIN,
        orientation: Orientation::Upright,
    };
    Ok(Counter::new(plan, &setup)?)
}

fn count_all(method: Method, board: Board, until: &Until) -> anyhow::Result<Option<u64>> {
    let plan = Plan::new(PlanSpec::new(board, method.usual_layout()))?;
    match counter(&plan)?.count(0..plan.units(), until) {
        Ok(count) => Ok(Some(count)),
        Err(CountError::Cancelled) => Ok(None),
        Err(error @ CountError::Overflow) => Err(error.into()),
    }
}
