//! `queensctl frames`: how large the lists of method `frames` are, and one frame opened.

use anyhow::bail;
use clap::Args;
use common::{
    board::Board,
    boards::{Style, Symmetry},
    frames::{Effort, Group, Lists, Survey},
    known::known_counts,
    textbook::assembly::{Apart, CONDITIONS, Quarters, Verdict},
};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};

use super::{
    super::output::{print, print_prose},
    fold::Folded,
};
use coordinator::{exit::Exit, text::thousands};

/// Memory for quarter boards kept from frame to frame.
const SHELF_BYTES: u64 = 1 << 30;

/// The largest board whose solutions in a frame are listed.
const MOST_LISTED: u8 = 12;

/// The largest board of which all quarter boards are listed.
const MOST_TAKEN_APART: u8 = 15;

/// What is looked at of one frame: some seconds' worth at N = 28 for all groups together.
const EFFORT: Effort = Effort {
    halves: 1 << 20,
    pairs: 1 << 26,
};

/// Up to this side every frame is taken, from here on some of each group.
const MOST_WHOLE: u8 = 12;

/// Options of `frames`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FramesOptions {
    /// The board's side, 4 to 32
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    n: Board,

    /// Opens one frame: the columns of quadrant P as a mask, bit k the k-th column from the left edge
    #[arg(long, value_name = "MASK", requires = "c", value_parser = mask)]
    a: Option<u32>,

    /// The columns of quadrant R, bit k the k-th column from the right edge
    #[arg(long, value_name = "MASK", requires = "a", value_parser = mask)]
    c: Option<u32>,

    /// How many random frames of each group are looked at where there are too many
    #[arg(long, value_name = "FRAMES", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sample: u32,

    /// The same seed gives the same sample
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A set of columns: decimal, or binary after 0b, or hexadecimal after 0x.
fn mask(text: &str) -> Result<u32, String> {
    let parsed = if let Some(digits) = text.strip_prefix("0b") {
        u32::from_str_radix(digits, 2)
    } else if let Some(digits) = text.strip_prefix("0x") {
        u32::from_str_radix(digits, 16)
    } else {
        text.parse()
    };
    parsed.map_err(|_| format!("'{text}' is no set of columns; give a number such as 5 or 0b101"))
}

pub(super) fn frames(options: &FramesOptions) -> anyhow::Result<Exit> {
    let mut survey = Survey::new(options.n, SHELF_BYTES)?;
    let mut random = ChaCha8Rng::seed_from_u64(options.seed);
    let mut random_below = |below| random.random_range(0..below);
    match (options.a, options.c) {
        (Some(a), Some(c)) => open(options, &mut survey, (a, c), &mut random_below)?,
        _ => table(options, &mut survey, &mut random_below)?,
    }
    Ok(Exit::Success)
}

/// A number that is exact, or that is marked as an estimate.
fn number(value: f64, sampled: bool) -> String {
    let mark = if sampled { "~" } else { "" };
    if value >= 1e9 {
        return format!("{mark}{value:.3e}");
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below 1e9"
    )]
    let whole = value.round() as u128;
    // Means of whole numbers may miss one by a rounding error.
    match (value - value.round()).abs() < 1e-6 || value >= 1e4 {
        true => format!("{mark}{}", thousands(whole)),
        false => format!("{mark}{value:.2}"),
    }
}

/// What is known of the frames of one group.
struct GroupFacts {
    mean: Lists,
    looked_at: u64,
}

fn table(
    options: &FramesOptions,
    survey: &mut Survey,
    random_below: &mut dyn FnMut(u64) -> u64,
) -> anyhow::Result<()> {
    let board = options.n;
    let side = u32::from(board.n()) / 2;
    print_prose(&format!(
        "N = {board}: quadrants of {side} × {side}; m queens in R, as many in P (type II: one fewer)\n\
         ~ an estimate: from {} random frames of a group, and in large ones from some of their pairs; seed {}\n",
        options.sample, options.seed
    ))?;
    let heads = [
        "type",
        "m",
        "frames",
        "in a run",
        "quarters P",
        "quarters Q",
        "list P",
        "list Q",
        "tops",
        "bottoms",
        "pairs",
        "solutions",
        "pairs each",
    ];
    let widths = [8, 3, 12, 12, 14, 14, 12, 12, 12, 12, 12, 12, 12];
    let cells = |texts: [String; 13]| -> Vec<String> {
        let spaces = std::iter::once("").chain(std::iter::repeat(" "));
        let cells = texts.iter().zip(widths).zip(spaces);
        cells
            .map(|((text, width), space)| format!("{space}{text:>width$}"))
            .collect()
    };
    let mut table = Folded::begin(&cells(heads.map(str::to_owned)), 2)?;
    let (mut whole, mut sampled) = (0.0, false);
    for group in survey.groups() {
        let row = row(options, survey, group, random_below);
        let GroupFacts { mean, .. } = row;
        // Middle queens in the left and the upper half are a quarter of all.
        let weight = if group.name() == "type II" { 4.0 } else { 1.0 };
        #[expect(clippy::cast_precision_loss, reason = "frames are few")]
        let frames = group.frames as f64;
        whole += weight * frames * mean.solutions;
        // Each set of columns is as likely in a random frame as any other.
        let some = row.looked_at < group.frames;
        #[expect(clippy::cast_precision_loss, reason = "sets are few")]
        let quarters = |quadrant: usize| {
            number(
                mean.quarters[quadrant] * group.column_sets[quadrant] as f64,
                some,
            )
        };
        let estimated = mean.sampled || some;
        sampled |= estimated;
        let each = match mean.solutions > 0.0 {
            true => number(mean.pairs / mean.solutions, estimated),
            false => "-".to_owned(),
        };
        table.row(&cells([
            group.name().to_owned(),
            group.queens.to_string(),
            thousands(group.frames.into()),
            thousands(group.planned.into()),
            quarters(0),
            quarters(1),
            number(mean.quarters[0], some),
            number(mean.quarters[1], some),
            number(mean.halves[0], estimated),
            number(mean.halves[1], estimated),
            number(mean.pairs, estimated),
            number(mean.solutions, estimated),
            each,
        ]))?;
    }
    table.end()?;
    print_prose(
        "\nquarters: all quarter boards with the queens of P (of Q) on squares that no middle queen of type I \
         attacks;\nlist: those with a frame's columns; tops, bottoms: half boards of a frame; means over frames. \
         Frames of\ntype II hold middle queens in the left and the upper half only, a quarter of all.",
    )?;
    let known = known_counts(board).map(|counts| counts.all());
    print(&format!(
        "frames × solutions, type II four times: {}; published: {}",
        number(whole, sampled),
        known.map_or("nobody knows".to_owned(), thousands),
    ))?;
    if !board.n().is_multiple_of(2) && board.n() <= MOST_TAKEN_APART {
        extraction(board)?;
    }
    if matches!(board.n(), 25 | 26) {
        print_prose(
            "the document prints this count rounded: see queensctl ladder --as haginoya, table 1",
        )?;
    }
    Ok(())
}

/// The document's table 3: what the middle queens take from the quarter boards of A, B, C, D.
const TABLE_3: [(&str, &str, &str); 4] = [
    (
        "A",
        "U(n)=0",
        "X(I)=0 Y(J)=0 U(I-1)=0 U(2n-J-1)=0 V(I)=0 V(J)=0",
    ),
    ("B", "U(n)=0", "X(J)=0 U(I-1)=0 U(J-1)=0 V(J)=0"),
    ("C", "U(n)=0", "U(2n-I-1)=0 U(J-1)=0"),
    ("D", "U(n)=0", "Y(I)=0 U(2n-I-1)=0 U(2n-J-1)=0 V(I)=0"),
];

fn extraction(board: Board) -> anyhow::Result<()> {
    print_prose(
        "\nTable 3: quarter boards with any number of queens, and those that middle queens leave",
    )?;
    let cells = |quadrant: &str, [all, one, two]: [String; 3], conditions: &str| {
        [
            format!("{quadrant:<9}"),
            format!(" {all:>8}"),
            format!(" {one:>8}"),
            format!(" {two:>14}"),
            format!("  {conditions}"),
        ]
    };
    let heads = ["all", "type I", "type II, mean"].map(str::to_owned);
    let conditions = "conditions as printed: type I; type II (queens (n, I) and (J, n))";
    let mut table = Folded::begin(&cells("quadrant", heads, conditions), 1)?;
    let found = Quarters::new(board).extraction();
    for (((letter, one, two), quadrant), found) in
        TABLE_3.into_iter().zip("PQRS".chars()).zip(found)
    {
        let numbers = [
            found.all.to_string(),
            found.type_one.to_string(),
            format!("{:.1}", found.type_two),
        ];
        let conditions = format!("{one}; {two}");
        table.row(&cells(
            &format!("{letter} ({quadrant})"),
            numbers,
            &conditions,
        ))?;
    }
    table.end()
}

fn row(
    options: &FramesOptions,
    survey: &mut Survey,
    group: Group,
    random_below: &mut dyn FnMut(u64) -> u64,
) -> GroupFacts {
    let side = u32::from(options.n.n()) / 2;
    let frames: Vec<(u32, u32)> = if options.n.n() <= MOST_WHOLE {
        let sets = |queens: u32| (0..1u32 << side).filter(move |set| set.count_ones() == queens);
        sets(group.top_queens)
            .flat_map(|a| sets(group.queens).map(move |c| (a, c)))
            .collect()
    } else {
        (0..options.sample)
            .map(|_| survey.random_frame(group, random_below))
            .collect()
    };
    let mut mean = Lists::default();
    let looked_at = frames.len() as u64;
    #[expect(clippy::cast_precision_loss, reason = "frames are few")]
    let share = 1.0 / looked_at as f64;
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
    GroupFacts { mean, looked_at }
}

fn open(
    options: &FramesOptions,
    survey: &mut Survey,
    (a, c): (u32, u32),
    random_below: &mut dyn FnMut(u64) -> u64,
) -> anyhow::Result<()> {
    let board = options.n;
    let side = usize::from(board.n() / 2);
    let Some(group) = survey.group_of(a, c) else {
        bail!(
            "A = {a} and C = {c} are no frame of N = {board}: both are sets of {side} columns{}",
            if board.n().is_multiple_of(2) {
                " of one size"
            } else {
                ", C as large as A or larger by one"
            },
        );
    };
    let effort = Effort {
        halves: 1 << 22,
        pairs: 1 << 28,
    };
    let lists = survey.lists(group, a, c, effort, random_below);
    print(&format!(
        "N = {board}, {}, A = {a} ({a:0side$b}), C = {c} ({c:0side$b}), m = {}",
        group.name(),
        group.queens
    ))?;
    for (name, value) in ["P", "Q", "R", "S"].into_iter().zip(lists.quarters) {
        print(&format!(
            "quarter boards {name:<8} {:>16}",
            number(value, false)
        ))?;
    }
    for (name, value) in [
        ("half boards above", lists.halves[0]),
        ("half boards below", lists.halves[1]),
        ("pairs of them", lists.pairs),
        ("solutions", lists.solutions),
    ] {
        print(&format!("{name:<23} {:>16}", number(value, lists.sampled)))?;
    }
    match board.n() <= MOST_LISTED {
        true => list(board, (a, c)),
        false => Ok(()),
    }
}

/// The solutions of a frame, each with its class and the conditions for representatives.
fn list(board: Board, (a, c): (u32, u32)) -> anyhow::Result<()> {
    let quarters = Quarters::new(board);
    let opened = quarters.open(a, c);
    print(&format!(
        "\npairs of quarter boards: {} above, {} below\n\nconditions for one of the eight images of a solution:",
        opened.quarter_pairs[0], opened.quarter_pairs[1]
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
    for solution in &opened.solutions {
        let Some(apart) = quarters.take_apart(solution) else {
            bail!("a solution has left its frame: this is a fault of the program");
        };
        let symmetry = solution.symmetry();
        if apart.is_representative() {
            classes[symmetry as usize] += 1;
        }
        let line = Style::Line.draw(solution, 1);
        print(&format!("{line:<width$} {}", conditions(&apart, symmetry)))?;
    }
    let [a, b, c] = classes;
    print_prose(&format!(
        "\n{} solutions; + holds, - fails, . not asked. Representatives: {a} of class a, {b} of b, {c} of c",
        opened.solutions.len()
    ))
}

fn conditions(apart: &Apart, symmetry: Symmetry) -> String {
    let [_, b, _, d] = apart.frame;
    let pids: Vec<_> = apart.pids.iter().map(usize::to_string).collect();
    let marks = apart.verdicts().map(|verdict| match verdict {
        Verdict::Holds => '+',
        Verdict::Fails => '-',
        Verdict::NotAsked => '.',
    });
    let chosen = if apart.is_representative() {
        "  representative"
    } else {
        ""
    };
    format!(
        "{b:>4} {d:>4}  {:<16} {:<9} {}{chosen}",
        pids.join(" "),
        marks.iter().collect::<String>(),
        symmetry.letter()
    )
}
