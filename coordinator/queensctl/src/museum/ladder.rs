//! `queensctl ladder`: how far each textbook technique climbs in a given time, and the methods of
//! this program beside them, all on one thread; the same as the documents print it.

use clap::{Args, ValueEnum};
use common::{
    board::{BadBoard, Board},
    textbook::{BOUNDS, Bound, Visits},
};

use super::{
    super::output::print,
    climb::{Climbed, Climber, Technique},
    documents,
    fold::Folded,
    speeds,
};
use coordinator::{
    exit::Exit,
    text::{stdout_width, thousands},
};

/// The smallest board on which a technique is shown.
const FIRST: u8 = 4;

/// Options of `ladder`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LadderOptions {
    /// The largest board to try
    #[arg(
        long,
        value_name = "N",
        default_value = "22",
        allow_hyphen_values = true,
        value_parser = from_first
    )]
    pub(super) max_n: Board,

    /// Seconds that a technique may take for one board
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) time_limit: u64,

    /// Prints the table of one of the texts that this project comes from, in its layout, ours beside it
    #[arg(long = "as", value_name = "TABLE", group = "table")]
    layout: Option<Table>,

    /// Prints how much there would be to visit, and how much each technique visits
    #[arg(long, group = "table")]
    bounds: bool,
}

/// A board that has a row.
fn from_first(text: &str) -> Result<Board, String> {
    let board: Board = text.parse().map_err(|bad: BadBoard| bad.to_string())?;
    match board.n() < FIRST {
        true => Err(format!(
            "the tables begin with N = {FIRST}: give {FIRST} or more"
        )),
        false => Ok(board),
    }
}

/// Whose table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    /// M. Hiroi: from permutations to bitmasks, with seconds
    Hiroi,
    /// I. Suzuki: placement flags, recursive and not; the records of N = 5
    #[value(alias = "placement-flags")]
    Suzuki,
    /// K. Haginoya: known counts, records, and the speed table for N = 18 to 22 beside public
    /// programs
    #[value(alias = "speeds")]
    Haginoya,
    /// Eight queens in C++ with next_permutation: all 92 boards
    NextPermutation,
    /// Scala's list comprehension: counts for N = 4 to 13
    #[value(alias = "scala")]
    ListComprehension,
}

pub(super) fn ladder(options: &LadderOptions) -> anyhow::Result<Exit> {
    let mut climber = Climber::new(options.time_limit);
    let most = options.max_n;
    match options.layout {
        Some(Table::Hiroi) => documents::hiroi(&mut climber, most)?,
        Some(Table::Suzuki) => documents::suzuki(&mut climber)?,
        Some(Table::Haginoya) => speeds::haginoya(options)?,
        Some(Table::NextPermutation) => documents::next_permutation(&mut climber)?,
        Some(Table::ListComprehension) => documents::list_comprehension(&mut climber, most)?,
        None if options.bounds => bounds(&mut climber, most)?,
        None => climb(&mut climber, most)?,
    }
    Ok(Exit::Success)
}

/// A row a board: the count, and the CPU seconds of each technique that got there in time. On a
/// narrow terminal techniques come some at a time, under each other.
fn climb(climber: &mut Climber, most: Board) -> anyhow::Result<()> {
    let techniques = Technique::all();
    let beside = techniques_beside(stdout_width(), techniques.len());
    for (block, techniques) in techniques.chunks(beside).enumerate() {
        if block > 0 {
            print("")?;
        }
        climb_beside(climber, most, techniques)?;
    }
    Ok(())
}

/// How many techniques fit beside each other; all where nobody says how wide the lines may be.
fn techniques_beside(width: Option<usize>, all: usize) -> usize {
    let fit = |width: usize| (width.saturating_sub(LEFT_COLUMNS) / COLUMN).max(1);
    width.map_or(all, fit).min(all)
}

/// Characters of the board and its count.
const LEFT_COLUMNS: usize = 23;

/// Characters of a technique.
const COLUMN: usize = 18;

fn climb_beside(
    climber: &mut Climber,
    most: Board,
    techniques: &[Technique],
) -> anyhow::Result<()> {
    let names: Vec<_> = techniques
        .iter()
        .map(|t| format!("{:>COLUMN$}", t.name()))
        .collect();
    print(&format!("{:>2} {:>20}{}", "N", "SOLUTIONS", names.concat()))?;
    for n in FIRST..=most.n() {
        let board = Board::new(n)?;
        let mut row = String::new();
        for technique in techniques {
            row += &match climber.measure(technique, board)? {
                None => format!("{:>COLUMN$}", "-"),
                Some(Climbed { seconds, .. }) => format!("{seconds:>COLUMN$.6}"),
            };
        }
        let Some(solutions) = climber.solutions(board) else {
            break;
        };
        print(&format!("{n:>2} {:>20}{row}", thousands(solutions.into())))?;
    }
    Ok(())
}

/// The bounds of the documents, and what was really visited.
fn bounds(climber: &mut Climber, most: Board) -> anyhow::Result<()> {
    print("What there would be to visit")?;
    let cells = |n: &str, values: &mut dyn Iterator<Item = String>| -> Vec<String> {
        let values = values.map(|value| format!("{value:>22}"));
        std::iter::once(format!("{n:>2}")).chain(values).collect()
    };
    let mut formulas = BOUNDS.iter().map(|bound| bound.formula.to_owned());
    let mut table = Folded::begin(&cells("N", &mut formulas), 1)?;
    for n in FIRST..=most.n() {
        let board = Board::new(n)?;
        let mut values = BOUNDS.iter().map(|bound| value(bound, board));
        table.row(&cells(&n.to_string(), &mut values))?;
    }
    table.end()?;
    for (visits, what) in [
        (Visits::FullBoards, "Full boards checked"),
        (
            Visits::SafeBoards,
            "Boards without an attack, from the empty one on",
        ),
        (Visits::Pairs, "Pairs of queens compared"),
    ] {
        let of = |technique: &Technique| match technique {
            Technique::Textbook(textbook) => textbook.visits == visits,
            Technique::Method(_) => false,
        };
        let techniques: Vec<_> = Technique::all().into_iter().filter(of).collect();
        print(&format!("\n{what}"))?;
        let mut names = techniques.iter().map(|t| t.name().to_owned());
        let mut table = Folded::begin(&cells("N", &mut names), 1)?;
        for n in FIRST..=most.n() {
            let mut row = Vec::new();
            let mut any = false;
            for technique in &techniques {
                let climbed = climber.measure(technique, Board::new(n)?)?;
                let visited = climbed.and_then(|climbed| climbed.visited);
                any |= visited.is_some();
                let text = visited.map_or("-".to_owned(), |visited| thousands(visited.into()));
                row.push(text);
            }
            if !any {
                break;
            }
            table.row(&cells(&n.to_string(), &mut row.into_iter()))?;
        }
        table.end()?;
    }
    Ok(())
}

/// Exact where it fits a column.
pub(super) fn value(bound: &Bound, board: Board) -> String {
    match (bound.value)(board) {
        Some(value) if value < 10u128.pow(15) => thousands(value),
        Some(_) | None => format!("{:.3e}", (bound.about)(board)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_rows() {
        assert_eq!(from_first("4").unwrap().n(), 4);
        for (given, says) in [("3", "begin with N = 4"), ("0", "from 1 to 32")] {
            let error = from_first(given).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_table_is_no_wider_than_its_terminal() {
        for width in [60, 80, 132, 200, 221, 400] {
            let beside = techniques_beside(Some(width), 11);
            assert!(LEFT_COLUMNS + beside * COLUMN <= width, "{width}");
            assert_eq!(beside, 11.min((width - LEFT_COLUMNS) / COLUMN), "{width}");
        }
        assert_eq!(techniques_beside(Some(10), 11), 1, "too narrow for any");
        assert_eq!(techniques_beside(None, 11), 11, "no terminal");
    }
}
