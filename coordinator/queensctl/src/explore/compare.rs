//! `queensctl compare`: times of textbook techniques and of this program's methods
//! on one thread, and tables in the layout of published documents.

use clap::{Args, ValueEnum};
use cli::exit::Exit;
use common::board::{BadBoard, Board};
use textbook::{BOUNDS, Visits};
use view::text::thousands;

use super::{
    super::output::{Width, WrappedTable, print},
    benchmark::{Benchmark, Technique, value},
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
    max_n: Board,

    /// Time limit of a technique for one board, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time_limit: u64,

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
    Suzuki,
    /// K. Haginoya: published counts, records, and the speed table for N = 18 to 22 next to public
    /// programs
    Haginoya,
    /// Eight queens in C++ with next_permutation: all 92 boards
    NextPermutation,
    /// Scala's list comprehension: counts for N = 4 to 13
    ListComprehension,
}

pub(super) fn compare(options: &CompareOptions) -> anyhow::Result<Exit> {
    let mut benchmark = Benchmark::new(options.time_limit);
    let max_n = options.max_n;
    match options.table {
        Some(Table::Hiroi) => documents::hiroi(&mut benchmark, max_n)?,
        Some(Table::Suzuki) => documents::suzuki(&mut benchmark)?,
        Some(Table::Haginoya) => documents::haginoya(max_n, options.time_limit)?,
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
