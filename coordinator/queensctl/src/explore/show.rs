//! `queensctl show`.

use std::ffi::OsString;

use anyhow::bail;
use clap::{Args, ValueEnum};
use cli::exit::{BadUsage, Exit};
use common::{board::Board, compute::kernel::Kernel, count::NoProgress};
use textbook::{
    boards::{self, Diagram, IMAGES, Solution, Solutions, Style},
    list_comprehension_order,
};
use view::text::{plural, thousands};

use super::{super::output::print, Drawings, text_of};

/// Maximum number of boards in one picture.
const MAX_DRAWN: usize = 200;

#[derive(Clone, Debug, Args)]
pub(crate) struct ShowOptions {
    /// Board size, 1 to 32
    #[arg(long, value_name = "N", allow_hyphen_values = true, required_unless_present = "check")]
    n: Option<Board>,

    /// Show all solutions, in lexicographic order (default)
    #[arg(long, group = "which")]
    all: bool,

    /// Show the fundamental solutions: the first of each symmetry class
    #[arg(long, group = "which")]
    fundamental: bool,

    /// Show only the K-th solution, from 1; on large boards the parts before it take long to count
    #[arg(long, value_name = "K", group = "which", value_parser = clap::value_parser!(u64).range(1..))]
    index: Option<u64>,

    /// Check pasted boards in any common format: the text, @FILE, or - for stdin. Prints whether each
    /// is a solution (exit code 0) or which queens attack each other (3); for one board also its images.
    /// A text that is no board, or has several meanings, gets no verdict (2)
    #[arg(long, value_name = "BOARD", conflicts_with_all = ["which", "n", "diagonals"])]
    check: Option<OsString>,

    /// Print the numbers of the diagonals instead
    #[arg(long, group = "which")]
    diagonals: bool,

    /// Style: dots, numbered, boxed, record (a number, the columns and a transposed picture), chess,
    /// cells or line (the columns from 0) [default: dots; with --check line]
    #[arg(long, value_name = "STYLE")]
    style: Option<Style>,

    /// Order of the solutions
    #[arg(long, default_value = "lexicographic", conflicts_with_all = ["fundamental", "index", "check"])]
    order: Order,

    #[command(flatten)]
    drawings: Drawings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// By the columns of row 1, 2, …
    Lexicographic,
    /// As a list comprehension produces them: the queen placed last comes first
    List,
}

pub(super) fn show(options: &ShowOptions) -> anyhow::Result<Exit> {
    if let Some(given) = &options.check {
        return check(options, &text_of(given)?);
    }
    let Some(board) = options.n else {
        bail!("--n is missing");
    };
    if options.diagonals {
        print(boards::diagonals(board.n().into()).trim_end())?;
        return Ok(Exit::Success);
    }
    let mut sheet = Sheet {
        style: options.style.unwrap_or_default(),
        drawings: &options.drawings,
        boards: Vec::new(),
        shown: 0,
    };
    match (options.index, options.order) {
        (Some(index), _) => {
            let found = boards::nth(board, index - 1, Kernel::best(), &NoProgress)?;
            let Some(solution) = found else {
                bail!("N = {board} has fewer than {} solutions", thousands(index.into()));
            };
            sheet.shown = index - 1;
            sheet.add(solution)?;
        }
        (None, Order::Lexicographic) => {
            for solution in Solutions::new(board) {
                if !options.fundamental || solution.is_representative() {
                    sheet.add(solution)?;
                }
            }
        }
        (None, Order::List) => {
            let mut failed = None;
            list_comprehension_order(board, &|| false, &mut |list| {
                let columns = list.iter().copied().map(u32::from).collect();
                let solution = Solution::new(columns).expect("the comprehension lists solutions");
                failed = failed.take().or(sheet.add(solution).err());
            });
            failed.map_or(Ok(()), Err)?;
        }
    }
    if sheet.shown == 0 {
        print(&format!("N = {board}: no solution exists"))?;
    }
    sheet.end()?;
    Ok(Exit::Success)
}

/// The output of boards, which are printed or collected for a picture.
struct Sheet<'a> {
    style: Style,
    drawings: &'a Drawings,
    boards: Vec<Solution>,
    shown: u64,
}

impl Sheet<'_> {
    fn add(&mut self, solution: Solution) -> anyhow::Result<()> {
        self.shown += 1;
        if self.drawings.are_wanted() {
            if self.boards.len() == MAX_DRAWN {
                bail!("cannot draw more than {MAX_DRAWN} boards; draw one with --index");
            }
            self.boards.push(solution);
            return Ok(());
        }
        let separator = if self.style.is_picture() { "\n" } else { "" };
        print(&format!("{}{separator}", self.style.draw(&solution, self.shown)))
    }

    fn end(&self) -> anyhow::Result<()> {
        if self.boards.is_empty() { Ok(()) } else { self.drawings.draw(&self.boards) }
    }
}

fn check(options: &ShowOptions, text: &str) -> anyhow::Result<Exit> {
    let diagrams = boards::read(text).map_err(BadUsage::of)?;
    let [diagram] = diagrams.as_slice() else { return check_all(options, &diagrams) };
    let solution = match diagram.solution() {
        Ok(solution) => solution,
        Err(flaw) => {
            print(&format!("not a solution: {flaw}"))?;
            return Ok(Exit::Contradicted);
        }
    };
    let n = solution.n();
    print(&format!("valid: {}, none attacks another", plural(n, "queen")))?;
    if options.drawings.are_wanted() {
        options.drawings.draw(std::slice::from_ref(&solution))?;
    }
    let symmetry = solution.symmetry();
    print(&format!("class: {} ({symmetry})", symmetry.letter()))?;
    if n > Board::MAX.into() {
        return Ok(Exit::Success);
    }
    print("")?;
    let style = options.style.unwrap_or(Style::Line);
    let images = solution.images();
    for (number, (image, name)) in (1..).zip(images.iter().zip(IMAGES)) {
        let before = images.iter().zip(IMAGES).find(|(other, _)| *other == image);
        let same = before.filter(|&(_, other)| other != name);
        let note = same.map_or(String::new(), |(_, other)| format!("  (= {other})"));
        match style.is_picture() {
            true => print(&format!("{name}{note}\n{}\n", style.draw(image, number)))?,
            false => print(&format!("{name:<25}{}{note}", style.draw(image, number)))?,
        }
    }
    Ok(Exit::Success)
}

/// Prints a verdict per board.
fn check_all(options: &ShowOptions, diagrams: &[Diagram]) -> anyhow::Result<Exit> {
    if options.drawings.are_wanted() {
        return Err(BadUsage("cannot draw several boards; check one at a time".to_owned()).into());
    }
    let mut exit = Exit::Success;
    for (number, diagram) in (1..).zip(diagrams) {
        let verdict = match diagram.solution() {
            Ok(solution) => {
                let (n, symmetry) = (u64::from(solution.n()), solution.symmetry());
                format!("valid: {}, class {} ({symmetry})", plural(n, "queen"), symmetry.letter())
            }
            Err(flaw) => {
                exit = Exit::Contradicted;
                format!("not a solution: {flaw}")
            }
        };
        print(&format!("board {number}: {verdict}"))?;
    }
    Ok(exit)
}
