//! `queensctl frames`: list lengths of method `frames`, and details of a frame.

use anyhow::bail;
use clap::Args;
use cli::exit::Exit;
use common::{
    board::Board,
    frames::{Effort, Group, Lists, Survey},
    solutions::published::published_counts,
};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use textbook::{
    assembly::{CONDITIONS, Quarters, SolutionParts},
    boards::{Style, Symmetry},
};
use view::text::{estimated, thousands};

use super::super::output::{Width, WrappedTable, print, print_prose};

/// Memory for the cache of quarter boards.
const CACHE_BYTES: u64 = 1 << 30;

/// The largest board whose solutions in a frame are listed.
const MAX_LISTED: u8 = 12;

/// The largest board of which all quarter boards are listed.
const MAX_EXTRACTED: u8 = 15;

/// Effort for one frame; all groups take some seconds at N = 28.
const EFFORT: Effort = Effort { halves: 1 << 20, pairs: 1 << 26 };

/// The largest board of which every frame is surveyed; larger boards are sampled.
const MAX_EXHAUSTIVE: u8 = 12;

#[derive(Clone, Debug, Args)]
pub(crate) struct FramesOptions {
    /// Board size, 4 to 32
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    n: Board,

    /// Show one frame in detail: the columns of quadrant P as a mask, bit k the k-th from the left edge
    #[arg(long, value_name = "MASK", requires = "c", value_parser = mask)]
    a: Option<u32>,

    /// The columns of quadrant R, bit k the k-th from the right edge
    #[arg(long, value_name = "MASK", requires = "a", value_parser = mask)]
    c: Option<u32>,

    /// Number of random frames per group of a large board
    #[arg(long, value_name = "FRAMES", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sample: u32,

    /// Random seed of the sample
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Parses a set of columns: decimal, binary after 0b, or hexadecimal after 0x.
fn mask(text: &str) -> Result<u32, String> {
    let parsed = if let Some(digits) = text.strip_prefix("0b") {
        u32::from_str_radix(digits, 2)
    } else if let Some(digits) = text.strip_prefix("0x") {
        u32::from_str_radix(digits, 16)
    } else {
        text.parse()
    };
    parsed.map_err(|_| {
        format!("invalid set of columns '{text}': expected a number such as 5 or 0b101")
    })
}

pub(super) fn frames(options: &FramesOptions) -> anyhow::Result<Exit> {
    let mut survey = Survey::new(options.n, CACHE_BYTES)?;
    let mut random = ChaCha8Rng::seed_from_u64(options.seed);
    let mut random_below = |below| random.random_range(0..below);
    match (options.a, options.c) {
        (Some(a), Some(c)) => show_frame(options, &mut survey, (a, c), &mut random_below)?,
        _ => table(options, &mut survey, &mut random_below)?,
    }
    Ok(Exit::Success)
}

fn table(
    options: &FramesOptions,
    survey: &mut Survey,
    random_below: &mut dyn FnMut(u64) -> u64,
) -> anyhow::Result<()> {
    let board = options.n;
    let side = u32::from(board.n()) / 2;
    print_prose(&format!(
        "N = {board}: quadrants of {side} × {side}; m queens in R and in P (type II: one fewer in P)\n\
         ~ marks estimates: from {} random frames per group, and in large ones from some of their pairs; seed {}\n",
        options.sample, options.seed
    ))?;
    let columns = [
        ("type", 8),
        ("m", 4),
        ("frames", 13),
        ("in a run", 13),
        ("quarters P", 15),
        ("quarters Q", 15),
        ("list P", 13),
        ("list Q", 13),
        ("tops", 13),
        ("bottoms", 13),
        ("pairs", 13),
        ("solutions", 13),
        ("pairs each", 13),
    ];
    let columns = columns.map(|(head, width)| (head, Width::Right(width)));
    let mut table = WrappedTable::begin(columns, 2)?;
    let (mut whole, mut sampled) = (0.0, false);
    for group in survey.groups() {
        let (mean, surveyed) = mean_lists(options, survey, group, random_below);
        // Middle queens in the left and the upper half are a quarter of all.
        let weight = if group.name() == "type II" { 4.0 } else { 1.0 };
        let frames = group.frames as f64;
        whole += weight * frames * mean.solutions;
        // Each set of columns is as likely in a random frame as any other.
        let some = surveyed < group.frames;
        let quarters = |quadrant: usize| {
            estimated(mean.quarters[quadrant] * group.column_sets[quadrant] as f64, some)
        };
        let is_estimated = mean.sampled || some;
        sampled |= is_estimated;
        let each = match mean.solutions > 0.0 {
            true => estimated(mean.pairs / mean.solutions, is_estimated),
            false => "-".to_owned(),
        };
        table.row([
            group.name().to_owned(),
            group.queens.to_string(),
            thousands(group.frames.into()),
            thousands(group.planned.into()),
            quarters(0),
            quarters(1),
            estimated(mean.quarters[0], some),
            estimated(mean.quarters[1], some),
            estimated(mean.halves[0], is_estimated),
            estimated(mean.halves[1], is_estimated),
            estimated(mean.pairs, is_estimated),
            estimated(mean.solutions, is_estimated),
            each,
        ])?;
    }
    table.end()?;
    print_prose(
        "\nquarters: all quarter boards with the queens of P (of Q) on squares that no middle queen of type I \
         attacks;\nlist: those with a frame's columns; tops, bottoms: half boards of a frame; means over frames. \
         Frames of\ntype II hold middle queens in the left and the upper half only, a quarter of all.",
    )?;
    let known = published_counts(board).map(|counts| counts.all());
    print(&format!(
        "frames × solutions, type II four times: {}; published: {}",
        estimated(whole, sampled),
        known.map_or("none".to_owned(), thousands),
    ))?;
    if !board.n().is_multiple_of(2) && board.n() <= MAX_EXTRACTED {
        extraction(board)?;
    }
    if matches!(board.n(), 25 | 26) {
        print_prose(
            "the document prints this count rounded: see queensctl compare --table haginoya, table 1",
        )?;
    }
    Ok(())
}

/// Table 3 of the document: conditions of the middle queens on the quarter boards.
const TABLE_3: [(&str, &str, &str); 4] = [
    ("A", "U(n)=0", "X(I)=0 Y(J)=0 U(I-1)=0 U(2n-J-1)=0 V(I)=0 V(J)=0"),
    ("B", "U(n)=0", "X(J)=0 U(I-1)=0 U(J-1)=0 V(J)=0"),
    ("C", "U(n)=0", "U(2n-I-1)=0 U(J-1)=0"),
    ("D", "U(n)=0", "Y(I)=0 U(2n-I-1)=0 U(2n-J-1)=0 V(I)=0"),
];

fn extraction(board: Board) -> anyhow::Result<()> {
    print_prose(
        "\nTable 3: quarter boards with any number of queens, and those compatible with middle queens",
    )?;
    let conditions = "  conditions as printed: type I; type II (queens (n, I) and (J, n))";
    let columns = [
        ("quadrant", Width::Left(9)),
        ("all", Width::Right(9)),
        ("type I", Width::Right(9)),
        ("type II, mean", Width::Right(15)),
        (conditions, Width::Left(conditions.len())),
    ];
    let mut table = WrappedTable::begin(columns, 1)?;
    let found = Quarters::new(board).extraction();
    for (((letter, one, two), quadrant), found) in
        TABLE_3.into_iter().zip("PQRS".chars()).zip(found)
    {
        table.row([
            format!("{letter} ({quadrant})"),
            found.all.to_string(),
            found.type_one.to_string(),
            format!("{:.1}", found.type_two),
            format!("  {one}; {two}"),
        ])?;
    }
    table.end()
}

/// Returns the mean list lengths in a group, and the number of surveyed frames.
fn mean_lists(
    options: &FramesOptions,
    survey: &mut Survey,
    group: Group,
    random_below: &mut dyn FnMut(u64) -> u64,
) -> (Lists, u64) {
    let side = u32::from(options.n.n()) / 2;
    let frames: Vec<(u32, u32)> = if options.n.n() <= MAX_EXHAUSTIVE {
        let sets = |queens: u32| (0..1u32 << side).filter(move |set| set.count_ones() == queens);
        sets(group.top_queens).flat_map(|a| sets(group.queens).map(move |c| (a, c))).collect()
    } else {
        (0..options.sample).map(|_| survey.random_frame(group, random_below)).collect()
    };
    let mut mean = Lists::default();
    let surveyed = frames.len() as u64;
    let share = 1.0 / surveyed as f64;
    for (a, c) in frames {
        let lists = survey.lists(group, a, c, EFFORT, random_below);
        for (mean, value) in mean.quarters.iter_mut().zip(lists.quarters) {
            *mean += value * share;
        }
        for (mean, value) in mean.halves.iter_mut().zip(lists.halves) {
            *mean += value * share;
        }
        mean.pairs += lists.pairs * share;
        mean.solutions += lists.solutions * share;
        mean.sampled |= lists.sampled;
    }
    (mean, surveyed)
}

fn show_frame(
    options: &FramesOptions,
    survey: &mut Survey,
    (a, c): (u32, u32),
    random_below: &mut dyn FnMut(u64) -> u64,
) -> anyhow::Result<()> {
    let board = options.n;
    let side = usize::from(board.n() / 2);
    let Some(group) = survey.group_of(a, c) else {
        bail!(
            "A = {a} and C = {c} are not a frame of N = {board}: they must be subsets of {side} columns{}",
            if board.n().is_multiple_of(2) {
                ", of the same size"
            } else {
                ", C with as many columns as A or one more"
            },
        );
    };
    let effort = Effort { halves: 1 << 22, pairs: 1 << 28 };
    let lists = survey.lists(group, a, c, effort, random_below);
    print(&format!(
        "N = {board}, {}, A = {a} ({a:0side$b}), C = {c} ({c:0side$b}), m = {}",
        group.name(),
        group.queens
    ))?;
    for (name, value) in lists.rows() {
        print(&format!("{name:<23} {value:>16}"))?;
    }
    if board.n() <= MAX_LISTED { list_solutions(board, (a, c)) } else { Ok(()) }
}

/// Prints a frame's solutions, their classes and conditions for representatives.
fn list_solutions(board: Board, (a, c): (u32, u32)) -> anyhow::Result<()> {
    let quarters = Quarters::new(board);
    let frame = quarters.assemble(a, c);
    print(&format!(
        "\npairs of quarter boards: {} above, {} below\n\nconditions for one of the eight images of a solution:",
        frame.quarter_pairs[0], frame.quarter_pairs[1]
    ))?;
    for (number, condition) in CONDITIONS.iter().enumerate() {
        print(&format!("{number}  {condition}"))?;
    }
    let width = usize::from(board.n()) * if board.n() > 10 { 3 } else { 2 };
    print(&format!(
        "\n{:<width$} {:>4} {:>4}  {:<16} {:<9} class",
        "columns", "B", "D", "p q r s", "012345678"
    ))?;
    let mut classes = [0u32; 3];
    for solution in &frame.solutions {
        let Some(parts) = quarters.split(solution) else {
            bail!("a solution is outside its frame: this is a bug");
        };
        let symmetry = solution.symmetry();
        if parts.is_representative() {
            classes[symmetry as usize] += 1;
        }
        let line = Style::Line.draw(solution, 1);
        print(&format!("{line:<width$} {}", conditions(&parts, symmetry)))?;
    }
    let [a, b, c] = classes;
    print_prose(&format!(
        "\n{} solutions; + holds, - fails, . not evaluated. Representatives: {a} of class a, {b} of b, {c} of c",
        frame.solutions.len()
    ))
}

fn conditions(parts: &SolutionParts, symmetry: Symmetry) -> String {
    let [_, b, _, d] = parts.frame;
    let pids: Vec<_> = parts.pids.iter().map(usize::to_string).collect();
    let marks = parts.verdicts().map(|verdict| match verdict {
        Some(true) => '+',
        Some(false) => '-',
        None => '.',
    });
    let chosen = if parts.is_representative() { "  representative" } else { "" };
    format!(
        "{b:>4} {d:>4}  {:<16} {:<9} {}{chosen}",
        pids.join(" "),
        marks.iter().collect::<String>(),
        symmetry.letter()
    )
}
