//! `queensctl solve`.

use std::{fmt::Write as _, io::IsTerminal as _, time::Instant};

use anyhow::bail;
use clap::{Args, ValueEnum};
use cli::exit::Exit;
use common::board::Board;
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use textbook::{
    boards::{Solution, Style},
    local_search::{Figure, is_solvable, linear, sweeps},
};
use view::text::{eprint_line, eprint_wrapped, plural};

use super::{
    super::output::{print, print_prose},
    Drawings,
};

/// The largest board; method `linear` needs 8 GB for it.
const MAX_ROWS: i64 = 1_000_000_000;

/// The largest solution that is printed on a terminal.
const MAX_SHOWN: u32 = 2_000;

/// Maximum number of random permutations for the paper's figures 1 and 2.
const MAX_PERMUTATIONS: u64 = 1_000_000;

#[derive(Clone, Debug, Args)]
pub(crate) struct SolveOptions {
    /// Number of queens; 2 and 3 have no solution
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=MAX_ROWS))]
    n: u32,

    /// Random seed; the same seed gives the same solution [default: random, printed]
    #[arg(long)]
    seed: Option<u64>,

    /// Search method of Sosič and Gu
    #[arg(long, default_value = "linear")]
    method: Search,

    /// Style of the solution, see `queensctl show --help` [default: dots up to 32 queens, then line]
    #[arg(long)]
    style: Option<Style>,

    /// Do not print the solution itself
    #[arg(long)]
    summary: bool,

    /// Print a table of the sweeps that figure-1 and figure-2 need, for boards up to N
    #[arg(long, conflicts_with_all = ["method", "style", "summary", "svg", "png"])]
    iterations: bool,

    #[command(flatten)]
    drawings: Drawings,
}

/// The search methods of Sosič and Gu (1990 and 1994).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Search {
    /// Linear time, with a counter for each diagonal
    Linear,
    /// One sweep of exchanges per random permutation (the paper's figure 1)
    #[value(name = "figure-1")]
    FigureOne,
    /// Sweeps over each permutation until none exchanges anything (figure 2)
    #[value(name = "figure-2")]
    FigureTwo,
}

pub(super) fn solve(options: &SolveOptions) -> anyhow::Result<Exit> {
    let n = options.n;
    let seed = options.seed.unwrap_or_else(rand::random);
    if options.iterations {
        return iterations(n, seed);
    }
    if !is_solvable(n) {
        print(&format!("N = {n}: no solution exists"))?;
        return Ok(Exit::Success);
    }
    let start = Instant::now();
    let (solution, work) = search(options.method, n, seed)?;
    eprint_wrapped(&format!(
        "{} placed and checked in {:.3} s: {work}; seed {seed}",
        plural(n, "queen"),
        start.elapsed().as_secs_f64(),
    ));
    if options.drawings.are_wanted() {
        options.drawings.draw(std::slice::from_ref(&solution))?;
    } else if !options.summary {
        show(&solution, options.style)?;
    }
    Ok(Exit::Success)
}

/// Returns a solution and a description of the search.
fn search(method: Search, n: u32, seed: u64) -> anyhow::Result<(Solution, String)> {
    let mut random = random_from(seed);
    let figure = match method {
        Search::Linear => {
            let Some(placed) = linear(n, &mut random) else {
                bail!("N = {n}: no solution exists");
            };
            let work = format!(
                "{} sampled, {} tried, {}",
                plural(placed.samples, "column"),
                plural(placed.pairs, "pair"),
                plural(placed.starts, "start"),
            );
            return Ok((placed.solution, work));
        }
        Search::FigureOne => Figure::One,
        Search::FigureTwo => Figure::Two,
    };
    let swept = sweeps(n, figure, false, MAX_PERMUTATIONS, &mut random);
    let work = plural(swept.tries, "sweep");
    match swept.solution() {
        Some(solution) => Ok((solution, work)),
        None => bail!("nothing found in {work}; try another --seed or --method linear"),
    }
}

fn random_from(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    move |below| random.random_range(0..below)
}

fn show(solution: &Solution, style: Option<Style>) -> anyhow::Result<()> {
    let n = solution.n();
    let few = n <= Board::MAX.into();
    let style = style.unwrap_or(if few { Style::Dots } else { Style::Line });
    if n > MAX_SHOWN && std::io::stdout().is_terminal() {
        eprint_line(&format!("redirect the output to a file or a program to get all {n} columns"));
        return Ok(());
    }
    print(&style.draw(solution, 1))
}

/// Sweeps in the textbook article with list comprehensions: figure 1 for N = 10, figure 2 for N = 12.
const PRINTED_ONE: u64 = 257;
const PRINTED_TWO: [u64; 10] = [3955, 1754, 51, 1140, 1155, 88, 2479, 307, 370, 1471];

/// Prints the sweeps of the document's ten runs and of new ones, then means by N.
/// The new runs have the seeds `seed`, `seed` + 1, …
fn iterations(most: u32, seed: u64) -> anyhow::Result<Exit> {
    let run = |n, figure, as_written, run| {
        let mut random = random_from(seed.wrapping_add(run));
        let swept = sweeps(n, figure, as_written, MAX_PERMUTATIONS, &mut random);
        let tries = swept.tries;
        (tries, swept.solution().is_some())
    };
    let mark = |(tries, sound): (u64, bool)| format!("{tries}{}", if sound { " " } else { "*" });
    print(&format!(
        "Sweeps until a solution, from seed {seed}; * marks a result that is not a solution\n\n\
         N = 12, figure 2\n{:>4} {:>9} {:>12} {:>9}",
        "run", "printed", "as written", "corrected"
    ))?;
    for (at, printed) in (0..).zip(PRINTED_TWO) {
        let written = mark(run(12, Figure::Two, true, at));
        let corrected = mark(run(12, Figure::Two, false, at));
        print(&format!("{:>4} {printed:>8}  {written:>12} {corrected:>9}", at + 1))?;
    }
    print(&format!(
        "\nMeans of ten runs; printed: one run of figure 1 for N = 10, and the mean above\n\
         {:>4} {:>9} {:>12} {:>9} | {:>9} {:>12} {:>9}",
        "N", "figure 1", "as written", "corrected", "figure 2", "as written", "corrected"
    ))?;
    for n in (1..=most).filter(|&n| is_solvable(n)) {
        let mut line = format!("{n:>4}");
        for figure in [Figure::One, Figure::Two] {
            let printed = match (figure, n) {
                (Figure::One, 10) => PRINTED_ONE.to_string(),
                (Figure::Two, 12) => mean(PRINTED_TWO),
                _ => String::new(),
            };
            let separator = if figure == Figure::Two { " |" } else { "" };
            write!(line, "{separator} {printed:>9}")?;
            for (as_written, width) in [(true, 12), (false, 9)] {
                let runs = (0..10).map(|at| run(n, figure, as_written, at).0);
                write!(line, " {:>width$}", mean(runs))?;
            }
        }
        print(&line)?;
    }
    print_prose(
        "\nAs written, the inner loop restores the column that a queen had before its exchange; \
         corrected,\nthe current one. Therefore the version as written needs more tries.",
    )?;
    Ok(Exit::Success)
}

fn mean(tries: impl IntoIterator<Item = u64>) -> String {
    let (count, sum) =
        tries.into_iter().fold((0, 0), |(count, sum), tries| (count + 1, sum + tries));
    let mean = sum as f64 / f64::from(count);
    format!("{mean:.1}")
}
