//! The tables of `002_398080fdc5db2280.txt` (K. Haginoya): what is known, what it took, and its speed
//! table beside programs that were measured since and ours, measured now.

use std::time::Duration;

use anyhow::Context as _;
use common::{
    board::Board,
    count::Unwatched,
    known::known_counts,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
    sample::Sample,
};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};

use super::{
    super::output::{print, print_prose},
    climb::counter,
    cpu::Stopwatch,
    fold::Folded,
    ladder::LadderOptions,
};
use coordinator::text::{span, thousands};

/// Table 1: N, date, all, unique as printed.
const PRINTED_COUNTS: [(u8, &str, u128, u128); 3] = [
    (24, "2004-04-11", 227_514_171_973_736, 28_439_272_956_934),
    (25, "2005-06-11", 2_207_893_435_808_350, 275_986_683_743_434),
    (
        26,
        "2009-07-11",
        22_317_699_616_364_000,
        2_789_712_466_510_280,
    ),
];

/// Table 2: N, date, who, program, CPU days.
const RECORDS: [(u8, &str, &str, &str, u32); 3] = [
    (24, "2004-04-11", "Univ. of Electro-Comm.", "qn24b", 1_496),
    (25, "2005-06-11", "ProActive", "unknown", 18_250),
    (26, "2009-07-11", "TU Dresden", "after JSomers", 168_960),
];

/// A program of the speed table: seconds for N = 18 … 22 where they are known.
struct Timed {
    name: &'static str,
    source: &'static str,
    seconds: [Option<f64>; 5],
}

const TABLE_4: &str = "table 4, Core2 Duo T8100 2.1 GHz";
const PEERS: &str = "measured, Xeon 2.3 GHz";

/// Table 4, and public programs as they were measured on one core of a Xeon with AVX-512 at 2.3 GHz,
/// gcc 12 -O3 -march=native, user CPU seconds, counts checked.
const ROWS: [Timed; 8] = [
    Timed {
        name: "takaken",
        source: TABLE_4,
        seconds: [
            Some(228.23),
            Some(1762.0),
            Some(14_050.34),
            Some(119_659.48),
            None,
        ],
    },
    Timed {
        name: "qn24b",
        source: TABLE_4,
        seconds: [Some(420.717), Some(3436.602), Some(26_364.765), None, None],
    },
    Timed {
        name: "QJH",
        source: TABLE_4,
        seconds: [
            Some(25.37),
            Some(197.6),
            Some(1447.4),
            Some(11_128.2),
            Some(97_720.5),
        ],
    },
    Timed {
        name: "Jeff Somers 2002",
        source: PEERS,
        seconds: [Some(204.0), None, None, None, None],
    },
    Timed {
        name: "takaken 2003",
        source: PEERS,
        seconds: [Some(82.0), None, None, None, None],
    },
    Timed {
        name: "QJH 2010",
        source: PEERS,
        seconds: [Some(9.3), Some(54.9), Some(517.0), None, None],
    },
    Timed {
        name: "constellations in C",
        source: PEERS,
        seconds: [Some(66.0), None, None, None, None],
    },
    Timed {
        name: "N-Queens-Count-Sol",
        source: "measured; 22 from 3 of 1000 parts",
        seconds: [Some(6.2), Some(82.0), Some(334.0), None, Some(29_000.0)],
    },
];

/// The tables.
pub(super) fn haginoya(options: &LadderOptions) -> anyhow::Result<()> {
    print("Table 1: counts, as printed and as known now")?;
    let cells = |(n, date): (&str, &str), numbers: [&str; 4], rounded: &str| {
        let [all, unique, all_known, unique_known] = numbers;
        [
            format!("{n:>2}  {date:<10}"),
            format!(" {all:>26}"),
            format!(" {unique:>26}"),
            format!("  {all_known:>26}"),
            format!(" {unique_known:>26}"),
            format!("  {rounded:<15}"),
        ]
    };
    let heads = ["all, printed", "unique, printed", "all", "unique"];
    let mut table = Folded::begin(&cells(("N", "date"), heads, ""), 1)?;
    for (n, date, all, unique) in PRINTED_COUNTS {
        let known = known_counts(Board::new(n)?).context("the count is known")?;
        let rounded = (all, unique) != (known.all(), known.unique());
        let numbers = [all, unique, known.all(), known.unique()].map(thousands);
        table.row(&cells(
            (&n.to_string(), date),
            numbers.each_ref().map(String::as_str),
            if rounded { "printed rounded" } else { "" },
        ))?;
    }
    table.end()?;
    print("\nTable 2: what the records took")?;
    print(&format!(
        "{:>2}  {:<10} {:<24} {:<16} {:>10}",
        "N", "date", "who", "program", "CPU days"
    ))?;
    for (n, date, who, program, days) in RECORDS {
        let days = thousands(days.into());
        print(&format!(
            "{n:>2}  {date} {who:<24} {program:<16} {days:>10}"
        ))?;
    }
    print_prose(
        "\nTable 4: one core; ours is measured now in CPU seconds, ~ by a random sample of tasks with a 95 % interval",
    )?;
    let cells = |program: &str, times: [String; 5], source: &str| {
        let times = times.iter().map(|time| format!("{time:>15}"));
        let cells = std::iter::once(format!("{program:<21}")).chain(times);
        let source = format!("  {source:<33}");
        cells.chain([source]).collect::<Vec<_>>()
    };
    let heads = [18, 19, 20, 21, 22].map(|n| format!("N = {n}"));
    let mut table = Folded::begin(&cells("program", heads, "source"), 1)?;
    for row in &ROWS {
        let times = row.seconds.map(|time| time.map_or("-".to_owned(), clock));
        table.row(&cells(row.name, times, row.source))?;
    }
    table.end()?;
    for n in 18..=options.max_n.n().min(22) {
        let measured = measure(Board::new(n)?, Duration::from_secs(options.time_limit))?;
        print_prose(&format!("{:<21}{}", format!("frames, N = {n}"), measured))?;
    }
    Ok(())
}

/// As the document writes times: h:mm:ss.
fn clock(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "days at most"
    )]
    let whole = seconds as u64;
    let (hours, minutes) = (whole / 3600, whole / 60 % 60);
    #[expect(clippy::cast_precision_loss, reason = "days at most")]
    let rest = seconds - (whole / 60 * 60) as f64;
    match (hours, minutes) {
        (0, 0) => format!("{rest:.2}"),
        (0, _) => format!("{minutes}:{rest:05.2}"),
        _ => format!("{hours}:{minutes:02}:{rest:05.2}"),
    }
}

/// Seconds of method frames for a whole board on one thread: counted whole if that should fit the
/// limit, else estimated from a random sample of tasks that does.
fn measure(board: Board, limit: Duration) -> anyhow::Result<String> {
    let plan = Plan::new(PlanSpec::new(board, Layout::Frames))?;
    let cost: u64 = (0..plan.tasks())
        .map(|task| plan.task_cost(TaskId(task)))
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "a fraction")]
    let fraction = limit.as_micros() as f64 / cost as f64;
    let mut counter = counter(&plan)?;
    let watch = Stopwatch::start();
    if fraction >= 1.0 {
        let count = counter.count(0..plan.units(), &Unwatched)?;
        let took = watch.seconds();
        let known = known_counts(board).map(|counts| counts.all());
        anyhow::ensure!(
            known == Some(count.into()),
            "{count} solutions for N = {board}"
        );
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = count as f64 / took;
        return Ok(format!("{} ({rate:.2e} solutions a second)", clock(took)));
    }
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let sample = Sample::draw(&plan, fraction, &mut |below| random.random_range(0..below))?;
    let mut micros = std::collections::HashMap::new();
    for task in sample.tasks() {
        let task_watch = Stopwatch::start();
        counter.count(plan.task_units(task), &Unwatched)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "some seconds"
        )]
        let took = (task_watch.seconds() * 1e6) as u64;
        micros.insert(task, took);
    }
    let whole = sample.estimate(&|task| micros[&task]);
    let seconds = |micros: u128| {
        #[expect(clippy::cast_precision_loss, reason = "microseconds of days")]
        let seconds = micros as f64 / 1e6;
        seconds
    };
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
    fn clocks_are_as_the_document_writes_them() {
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
    fn only_what_the_document_rounds_differs_from_the_known_counts() {
        for (n, _, all, unique) in PRINTED_COUNTS {
            let known = known_counts(Board::new(n).unwrap()).unwrap();
            let rounded = |number: u128, digits| {
                let unit = 10u128.pow(digits);
                number / unit * unit
            };
            assert!(
                all == known.all()
                    || all == rounded(known.all(), 1)
                    || all == rounded(known.all(), 3)
            );
            assert!(unique == known.unique() || unique == rounded(known.unique(), 1));
            assert_eq!(n == 24, (all, unique) == (known.all(), known.unique()));
        }
    }
}
