//! `queensctl place`.

use std::{fmt::Write as _, io::IsTerminal as _, time::Instant};

use anyhow::bail;
use clap::{Args, ValueEnum};
use common::{
    board::Board,
    boards::{Solution, Style},
    place::{Figure, is_solvable, linear, sweeps},
};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};

use super::{
    super::output::{print, print_prose},
    Drawings,
};
use coordinator::{
    exit::Exit,
    text::{tell, tell_prose, thousands},
};

/// The most rows: 10 GB of counters.
const MOST_ROWS: i64 = 1_000_000_000;

/// The most columns of a solution that a terminal is shown.
const MOST_SHOWN: u32 = 2_000;

/// The figures of the paper give up after so many random permutations.
const MOST_PERMUTATIONS: u64 = 1_000_000;

/// Options of `place`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlaceOptions {
    /// How many queens; 2 and 3 have no solution
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=MOST_ROWS))]
    n: u32,

    /// The same seed gives the same solution [default: a random one, which is said]
    #[arg(long)]
    seed: Option<u64>,

    /// How to search
    #[arg(long, default_value = "linear")]
    method: Search,

    /// How to write the solution down; see `queensctl show --help` [default: dots up to 32 queens, then
    /// line]
    #[arg(long)]
    style: Option<Style>,

    /// Says what was found, but not the solution itself
    #[arg(long)]
    summary: bool,

    /// Prints a table instead: how many sweeps figures 1 and 2 need, for boards up to N
    #[arg(long, conflicts_with_all = ["method", "style", "summary", "svg", "png"])]
    tries: bool,

    #[command(flatten)]
    drawings: Drawings,
}

/// Searches for one solution; Sosič and Gu, 1990 and 1994.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Search {
    /// Linear time, with a counter for each diagonal
    Linear,
    /// Sweeps of exchanges over random permutations, one each
    #[value(name = "figure-1")]
    FigureOne,
    /// The same, repeated as long as anything is exchanged
    #[value(name = "figure-2")]
    FigureTwo,
}

pub(super) fn place(options: &PlaceOptions) -> anyhow::Result<Exit> {
    let n = options.n;
    let seed = options.seed.unwrap_or_else(rand::random);
    if options.tries {
        return tries(n, seed);
    }
    if !is_solvable(n) {
        print(&format!("N = {n}: no solution exists"))?;
        return Ok(Exit::Success);
    }
    let start = Instant::now();
    let (solution, work) = search(options.method, n, seed)?;
    tell_prose(&format!(
        "{} queens placed and checked in {:.3} s: {work}; seed {seed}",
        thousands(n.into()),
        start.elapsed().as_secs_f64(),
    ));
    if options.drawings.are_wanted() {
        options.drawings.draw(std::slice::from_ref(&solution))?;
    } else if !options.summary {
        show(&solution, options.style)?;
    }
    Ok(Exit::Success)
}

/// A solution, and what it took in words.
fn search(method: Search, n: u32, seed: u64) -> anyhow::Result<(Solution, String)> {
    let mut random = random_from(seed);
    let figure = match method {
        Search::Linear => {
            let Some(placed) = linear(n, &mut random) else {
                bail!("N = {n}: no solution exists");
            };
            let work = format!(
                "{} columns drawn, {} pairs tried, {} start{}",
                thousands(placed.samples.into()),
                thousands(placed.pairs.into()),
                placed.starts,
                if placed.starts == 1 { "" } else { "s" },
            );
            return Ok((placed.solution, work));
        }
        Search::FigureOne => Figure::One,
        Search::FigureTwo => Figure::Two,
    };
    let swept = sweeps(n, figure, false, MOST_PERMUTATIONS, &mut random);
    let work = format!("{} sweeps", thousands(swept.tries.into()));
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
    if n > MOST_SHOWN && std::io::stdout().is_terminal() {
        tell(&format!(
            "redirect the output to a file or a program to get all {n} columns"
        ));
        return Ok(());
    }
    print(&style.draw(solution, 1))
}

/// Sweeps that the runs of `004_df925f861df725bd.txt` took: figure 1 for N = 10, figure 2 for N = 12.
const PRINTED_ONE: u64 = 257;
const PRINTED_TWO: [u64; 10] = [3955, 1754, 51, 1140, 1155, 88, 2479, 307, 370, 1471];

/// How many sweeps it takes: the ten runs of the document beside ten of ours, then the means of ten
/// runs by N. Runs have the seeds `seed`, `seed` + 1, …
fn tries(most: u32, seed: u64) -> anyhow::Result<Exit> {
    let run = |n, figure, as_written, run| {
        let mut random = random_from(seed.wrapping_add(run));
        let swept = sweeps(n, figure, as_written, MOST_PERMUTATIONS, &mut random);
        let tries = swept.tries;
        (tries, swept.solution().is_some())
    };
    let mark = |(tries, sound): (u64, bool)| format!("{tries}{}", if sound { " " } else { "*" });
    print(&format!(
        "Sweeps until a solution is found, seeds from {seed}; * where what was found is none\n\n\
         N = 12, figure 2\n{:>4} {:>9} {:>12} {:>9}",
        "run", "printed", "as written", "mended"
    ))?;
    for (at, printed) in (0..).zip(PRINTED_TWO) {
        let written = mark(run(12, Figure::Two, true, at));
        let mended = mark(run(12, Figure::Two, false, at));
        print(&format!(
            "{:>4} {printed:>8}  {written:>12} {mended:>9}",
            at + 1
        ))?;
    }
    print(&format!(
        "\nMeans of ten runs; printed: one run of figure 1 for N = 10, and the mean above\n\
         {:>4} {:>9} {:>12} {:>9} | {:>9} {:>12} {:>9}",
        "N", "figure 1", "as written", "mended", "figure 2", "as written", "mended"
    ))?;
    for n in (1..=most).filter(|&n| is_solvable(n)) {
        let mut line = format!("{n:>4}");
        for figure in [Figure::One, Figure::Two] {
            let printed = match (figure, n) {
                (Figure::One, 10) => PRINTED_ONE.to_string(),
                (Figure::Two, 12) => mean(PRINTED_TWO),
                _ => String::new(),
            };
            let apart = if figure == Figure::Two { " |" } else { "" };
            write!(line, "{apart} {printed:>9}")?;
            for (as_written, width) in [(true, 12), (false, 9)] {
                let runs = (0..10).map(|at| run(n, figure, as_written, at).0);
                write!(line, " {:>width$}", mean(runs))?;
            }
        }
        print(&line)?;
    }
    print_prose(
        "\nAs written, the inner loop puts back the column that a queen had before it was exchanged; \
         mended,\nthe one that it has. That is why the document needs more tries than the paper.",
    )?;
    Ok(Exit::Success)
}

fn mean(tries: impl IntoIterator<Item = u64>) -> String {
    let (count, sum) = tries
        .into_iter()
        .fold((0, 0), |(count, sum), tries| (count + 1, sum + tries));
    #[expect(clippy::cast_precision_loss, reason = "only ever shown")]
    let mean = sum as f64 / f64::from(count);
    format!("{mean:.1}")
}
