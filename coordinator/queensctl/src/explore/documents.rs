//! Tables of the documents that this project is based on, in their layout,
//! with measured seconds next to the printed ones.

use std::{collections::HashMap, time::Duration};

use anyhow::Context as _;
use cli::exit::BadUsage;
use common::{
    board::Board,
    count::NoProgress,
    estimate::sample::Sample,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
    solutions::published::published_counts,
};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use textbook::{
    BOUNDS,
    boards::{Solutions, Style},
};
use view::text::{span, thousands};

use super::{
    super::output::{Width, WrappedTable, print, print_prose},
    benchmark::{Benchmark, Stopwatch, Technique, counter, value},
};

/// Techniques of M. Hiroi's article (2022): mark, name, first board, and printed
/// seconds from that board on (clang 14 -O2, Intel Core i5-6200U at 2.30 GHz).
const HIROI: [(&str, &str, u8, &[f64]); 4] = [
    ("(0)", "permutations", 8, &[0.003, 0.023, 0.196, 2.120, 25.813]),
    ("(1)", "attack-scan", 10, &[0.004, 0.018, 0.098, 0.557, 3.464, 22.911]),
    ("(2)", "swapping", 12, &[0.036, 0.196, 1.148, 7.296, 49.323]),
    ("(3)", "bitmask", 12, &[0.019, 0.102, 0.583, 3.671, 24.577]),
];

/// First board, last board and techniques of the document's four tables.
const HIROI_TABLES: [(u8, u8, std::ops::Range<usize>); 4] =
    [(8, 12, 0..1), (10, 15, 0..2), (12, 16, 1..3), (12, 16, 1..4)];

/// Prints the tables of M. Hiroi's article (2022).
pub(super) fn hiroi(benchmark: &mut Benchmark, max_n: Board) -> anyhow::Result<()> {
    let [(first, ..), ..] = HIROI_TABLES;
    if max_n.n() < first {
        let what = format!("these tables begin with N = {first}: give --max-n {first} or more");
        return Err(BadUsage(what).into());
    }
    print_prose(
        "Results (seconds): printed with clang 14 -O2 on an Intel Core i5-6200U at 2.30 GHz; ours: measured now",
    )?;
    for (mark, technique, ..) in HIROI {
        print(&format!("{mark} {technique}"))?;
    }
    for (first, last, techniques) in HIROI_TABLES {
        let last = last.min(max_n.n());
        if first > last {
            continue;
        }
        print("")?;
        let cells = |head: &str, texts: Vec<String>| {
            let cells = texts.into_iter().map(|text| format!(":{text:>10} "));
            std::iter::once(head.to_owned()).chain(cells).collect::<Vec<_>>()
        };
        let widths = std::iter::once(10).chain(std::iter::repeat(12)).map(Width::Left);
        let queens = (first..=last).map(|n| n.to_string()).collect();
        let mut table = WrappedTable::begin(cells("queens", queens).into_iter().zip(widths), 1)?;
        let rule = std::iter::once("-".repeat(10)).chain(std::iter::repeat("+-----------".into()));
        table.row(rule.take(usize::from(last - first) + 2))?;
        let (mut counts, mut lines) = (Vec::new(), Vec::new());
        for (mark, technique, its_first, seconds) in &HIROI[techniques.clone()] {
            let technique = Technique::textbook(technique);
            let (mut printed, mut ours) = (Vec::new(), Vec::new());
            for n in first..=last {
                let place = n.checked_sub(*its_first).map(usize::from);
                let known = place.and_then(|place| seconds.get(place));
                printed.push(known.map_or("------".to_owned(), |s| format!("{s:.3}")));
                let measured = benchmark.measure(&technique, Board::new(n)?)?;
                let took = measured.map(|measured| measured.seconds);
                ours.push(took.map_or("------".to_owned(), |s| format!("{s:.3}")));
            }
            lines.push(cells(mark, printed));
            lines.push(cells("    ours", ours));
        }
        for n in first..=last {
            let count = benchmark.solutions(Board::new(n)?);
            counts.push(count.map_or("------".to_owned(), |count| count.to_string()));
        }
        table.row(cells("solutions", counts))?;
        for line in lines {
            table.row(line)?;
        }
        table.end()?;
    }
    Ok(())
}

/// Prints the output of I. Suzuki's article: records of N = 5,
/// and seconds of its programs on larger boards, which the document lacks.
pub(super) fn suzuki(benchmark: &mut Benchmark) -> anyhow::Result<()> {
    let board = Board::new(5)?;
    for (number, solution) in (1..).zip(Solutions::new(board)) {
        print(&format!("{}\n", Style::Record.draw(&solution, number)))?;
    }
    let techniques = ["brute-force", "attack-scan", "flags", "flags-loop"].map(Technique::textbook);
    let heads = techniques.each_ref().map(|technique| format!("{:>14}", technique.name()));
    print(&format!(
        "Seconds, measured now (the document prints none)\n{:>2}{:>12}{}",
        "N",
        "solutions",
        heads.concat()
    ))?;
    for n in 5..=12 {
        let board = Board::new(n)?;
        let mut row = String::new();
        for technique in &techniques {
            let measured = benchmark.measure(technique, board)?;
            let took = measured.map(|measured| format!("{:.6}", measured.seconds));
            row += &format!("{:>14}", took.unwrap_or_else(|| "-".to_owned()));
        }
        let solutions = benchmark.solutions(board).unwrap_or(0);
        print(&format!("{n:>2}{solutions:>12}{row}"))?;
    }
    Ok(())
}

/// Prints the output of the textbook program with `next_permutation`: all boards of N = 8,
/// and the sizes of the search spaces in the text.
pub(super) fn next_permutation(benchmark: &mut Benchmark) -> anyhow::Result<()> {
    let board = Board::new(8)?;
    for (number, solution) in (1..).zip(Solutions::new(board)) {
        print(&format!("{}\n", Style::Chess.draw(&solution, number)))?;
    }
    let [squares, _, factorial, _] = BOUNDS;
    let measured = benchmark.measure(&Technique::textbook("next-permutation"), board)?;
    let visited = measured.and_then(|measured| measured.visited).unwrap_or(0);
    print_prose(&format!(
        "{} solutions; 8 queens can stand on 64 squares in {} ways, with one per row and column in {}; \
         next_permutation visits {} of these",
        benchmark.solutions(board).unwrap_or(0),
        value(&squares, board),
        value(&factorial, board),
        thousands(visited.into()),
    ))
}

/// Prints the output of the textbook article with list comprehensions: (N, solutions),
/// with its bound n^n (n-1)! and the measured number of comparisons.
pub(super) fn list_comprehension(benchmark: &mut Benchmark, max_n: Board) -> anyhow::Result<()> {
    let technique = Technique::textbook("list");
    let [.., bound] = BOUNDS;
    print(&format!("{:<14}{:>12}{:>20}{:>22}", "", "seconds", "compared", bound.formula))?;
    for n in 4..=max_n.n().min(13) {
        let board = Board::new(n)?;
        let Some(measured) = benchmark.measure(&technique, board)? else {
            break;
        };
        let visited = measured.visited.unwrap_or(0);
        print(&format!(
            "{:<14}{:>12.6}{:>20}{:>22}",
            format!("({n},{})", measured.solutions),
            measured.seconds,
            thousands(visited.into()),
            value(&bound, board),
        ))?;
    }
    Ok(())
}

/// Table 1: N, date, all, unique as printed.
const PRINTED_COUNTS: [(u8, &str, u128, u128); 3] = [
    (24, "2004-04-11", 227_514_171_973_736, 28_439_272_956_934),
    (25, "2005-06-11", 2_207_893_435_808_350, 275_986_683_743_434),
    (26, "2009-07-11", 22_317_699_616_364_000, 2_789_712_466_510_280),
];

/// Table 2: N, date, who, program, CPU days.
const RECORDS: [(u8, &str, &str, &str, u32); 3] = [
    (24, "2004-04-11", "Univ. of Electro-Comm.", "qn24b", 1_496),
    (25, "2005-06-11", "ProActive", "unknown", 18_250),
    (26, "2009-07-11", "TU Dresden", "after JSomers", 168_960),
];

const TABLE_4: &str = "table 4, Core2 Duo T8100 2.1 GHz";
const PEERS: &str = "measured, Xeon 2.3 GHz";

/// Programs of the speed table, with seconds for N = 18 to 22, 0 if unknown.
/// From table 4, or measured on one core of a Xeon with AVX-512 at 2.3 GHz (gcc 12 -O3 -march=native,
/// user CPU seconds, checked counts).
const ROWS: [(&str, &str, &[f64]); 8] = [
    ("takaken", TABLE_4, &[228.23, 1762.0, 14_050.34, 119_659.48]),
    ("qn24b", TABLE_4, &[420.717, 3436.602, 26_364.765]),
    ("QJH", TABLE_4, &[25.37, 197.6, 1447.4, 11_128.2, 97_720.5]),
    ("Jeff Somers 2002", PEERS, &[204.0]),
    ("takaken 2003", PEERS, &[82.0]),
    ("QJH 2010", PEERS, &[9.3, 54.9, 517.0]),
    ("constellations in C", PEERS, &[66.0]),
    ("N-Queens-Count-Sol", "measured; 22 from 3 of 1000 parts", &[6.2, 82.0, 334.0, 0.0, 29_000.0]),
];

/// Prints the tables of K. Haginoya's article: counts, records,
/// and its speed table with other programs and this one.
pub(super) fn haginoya(max_n: Board, time_limit: u64) -> anyhow::Result<()> {
    print("Table 1: counts, as printed and as published now")?;
    let columns = [
        (" N  date", Width::Left(14)),
        ("all, printed", Width::Right(27)),
        ("unique, printed", Width::Right(27)),
        ("all", Width::Right(28)),
        ("unique", Width::Right(27)),
        ("", Width::Left(17)),
    ];
    let mut table = WrappedTable::begin(columns, 1)?;
    for (n, date, all, unique) in PRINTED_COUNTS {
        let published = published_counts(Board::new(n)?).context("no published count")?;
        let rounded = (all, unique) != (published.all(), published.fundamental());
        let numbers = [all, unique, published.all(), published.fundamental()].map(thousands);
        let note = if rounded { "  printed rounded" } else { "" };
        let row = std::iter::once(format!("{n:>2}  {date}")).chain(numbers);
        table.row(row.chain([note.to_owned()]))?;
    }
    table.end()?;
    print("\nTable 2: CPU time of the records")?;
    print(&format!(
        "{:>2}  {:<10} {:<24} {:<16} {:>10}",
        "N", "date", "who", "program", "CPU days"
    ))?;
    for (n, date, who, program, days) in RECORDS {
        let days = thousands(days.into());
        print(&format!("{n:>2}  {date} {who:<24} {program:<16} {days:>10}"))?;
    }
    print_prose(
        "\nTable 4: one core; ours: CPU time measured now, ~ if estimated from a random sample of tasks (95 % interval)",
    )?;
    let boards = [18, 19, 20, 21, 22].map(|n| (format!("N = {n}"), Width::Right(15)));
    let columns = std::iter::once(("program".to_owned(), Width::Left(21))).chain(boards);
    let mut table =
        WrappedTable::begin(columns.chain([("  source".to_owned(), Width::Left(35))]), 1)?;
    for (name, source, seconds) in ROWS {
        let times = (0..5).map(|place| match seconds.get(place) {
            Some(&time) if time > 0.0 => clock(time),
            _ => "-".to_owned(),
        });
        let row = std::iter::once(name.to_owned()).chain(times);
        table.row(row.chain([format!("  {source}")]))?;
    }
    table.end()?;
    for n in 18..=max_n.n().min(22) {
        let measured = measure(Board::new(n)?, Duration::from_secs(time_limit))?;
        print_prose(&format!("{:<21}{}", format!("frames, N = {n}"), measured))?;
    }
    Ok(())
}

/// Formats seconds as in the document: h:mm:ss.
fn clock(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "days at most")]
    let whole = seconds as u64;
    let (hours, minutes) = (whole / 3600, whole / 60 % 60);
    let rest = seconds - (whole / 60 * 60) as f64;
    match (hours, minutes) {
        (0, 0) => format!("{rest:.2}"),
        (0, _) => format!("{minutes}:{rest:05.2}"),
        _ => format!("{hours}:{minutes:02}:{rest:05.2}"),
    }
}

/// Returns the seconds of method `frames` for a board on one thread.
/// If the whole board would exceed the limit, estimates them from a random sample of tasks.
fn measure(board: Board, limit: Duration) -> anyhow::Result<String> {
    let plan = Plan::new(PlanSpec::new(board, Layout::Frames))?;
    let cost: u64 = (0..plan.tasks()).map(|task| plan.task_cost(TaskId(task))).sum();
    let fraction = limit.as_micros() as f64 / cost as f64;
    let mut counter = counter(&plan)?;
    let watch = Stopwatch::start();
    if fraction >= 1.0 {
        let count = counter.count(0..plan.units(), &NoProgress)?;
        let took = watch.seconds();
        let published = published_counts(board).map(|counts| counts.all());
        anyhow::ensure!(published == Some(count.into()), "{count} solutions for N = {board}");
        let rate = count as f64 / took;
        return Ok(format!("{} ({rate:.2e} solutions per second)", clock(took)));
    }
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let sample = Sample::select(&plan, fraction, &mut |below| random.random_range(0..below))?;
    let mut micros = HashMap::new();
    for task in sample.tasks() {
        let task_watch = Stopwatch::start();
        counter.count(plan.task_units(task), &NoProgress)?;
        #[expect(clippy::cast_possible_truncation, reason = "some seconds")]
        let took = (task_watch.seconds() * 1e6) as u64;
        micros.insert(task, took);
    }
    let whole = sample.estimate(&|task| micros[&task]);
    let seconds = |micros: u128| micros as f64 / 1e6;
    Ok(format!(
        "~{} ({} to {}; {} of {} tasks in {})",
        clock(seconds(whole.solutions)),
        clock(seconds(whole.low)),
        clock(seconds(whole.high)),
        thousands(micros.len() as u128),
        thousands(plan.tasks().into()),
        span(watch.seconds()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_in_the_document() {
        for (seconds, text) in [
            (25.37, "25.37"),
            (228.23, "3:48.23"),
            (14_050.34, "3:54:10.34"),
            (97_720.5, "27:08:40.50"),
        ] {
            assert_eq!(clock(seconds), text);
        }
    }

    #[test]
    fn only_rounded_counts_differ_from_the_published_ones() {
        for (n, _, all, unique) in PRINTED_COUNTS {
            let published = published_counts(Board::new(n).unwrap()).unwrap();
            let rounded = |number: u128, digits| {
                let unit = 10u128.pow(digits);
                number / unit * unit
            };
            assert!(
                all == published.all()
                    || all == rounded(published.all(), 1)
                    || all == rounded(published.all(), 3)
            );
            assert!(
                unique == published.fundamental() || unique == rounded(published.fundamental(), 1)
            );
            assert_eq!(n == 24, (all, unique) == (published.all(), published.fundamental()));
        }
    }
}
