//! Tables of the documents that this project comes from, in their layout, with the printed seconds
//! beside ours.

use common::{
    board::Board,
    boards::{Solutions, Style},
    textbook::BOUNDS,
};

use super::{
    super::{
        client::BadUsage,
        output::{print, print_prose},
    },
    climb::{Climber, Technique},
    fold::Folded,
    ladder::value,
};
use coordinator::text::thousands;

/// A technique of `000_a1ee00c4f40ae057.txt`: its mark there, our name, the first board, and the printed
/// seconds from that board on.
struct Printed {
    mark: &'static str,
    technique: &'static str,
    first: u8,
    seconds: &'static [f64],
}

/// clang 14 -O2, Intel Core i5-6200U at 2.30 GHz.
const HIROI: [Printed; 4] = [
    Printed {
        mark: "(0)",
        technique: "permutations",
        first: 8,
        seconds: &[0.003, 0.023, 0.196, 2.120, 25.813],
    },
    Printed {
        mark: "(1)",
        technique: "attack-scan",
        first: 10,
        seconds: &[0.004, 0.018, 0.098, 0.557, 3.464, 22.911],
    },
    Printed {
        mark: "(2)",
        technique: "swapping",
        first: 12,
        seconds: &[0.036, 0.196, 1.148, 7.296, 49.323],
    },
    Printed {
        mark: "(3)",
        technique: "bitmask",
        first: 12,
        seconds: &[0.019, 0.102, 0.583, 3.671, 24.577],
    },
];

/// The document's four tables: first and last board, and which techniques.
const HIROI_TABLES: [(u8, u8, std::ops::Range<usize>); 4] = [
    (8, 12, 0..1),
    (10, 15, 0..2),
    (12, 16, 1..3),
    (12, 16, 1..4),
];

/// The tables of `000_a1ee00c4f40ae057.txt` (M. Hiroi).
pub(super) fn hiroi(climber: &mut Climber, most: Board) -> anyhow::Result<()> {
    let [(first, ..), ..] = HIROI_TABLES;
    if most.n() < first {
        let what = format!("these tables begin with N = {first}: give --max-n {first} or more");
        return Err(BadUsage(what).into());
    }
    print_prose(
        "Results (seconds): printed with clang 14 -O2 on an Intel Core i5-6200U at 2.30 GHz; ours here, now",
    )?;
    for rung in &HIROI {
        print(&format!("{} {}", rung.mark, rung.technique))?;
    }
    for (first, last, rungs) in HIROI_TABLES {
        let last = last.min(most.n());
        if first > last {
            continue;
        }
        print("")?;
        let cells = |head: &str, texts: Vec<String>| -> Vec<String> {
            let cells = texts.iter().map(|text| format!(":{text:>10} "));
            let head = std::iter::once(format!("{head:<10}"));
            head.chain(cells).collect()
        };
        let columns = usize::from(last - first) + 1;
        let rule =
            std::iter::once("----------").chain(std::iter::repeat_n("+-----------", columns));
        let queens = (first..=last).map(|n| n.to_string()).collect();
        let mut table = Folded::begin(&cells("queens", queens), 1)?;
        table.row(&rule.map(str::to_owned).collect::<Vec<_>>())?;
        let (mut counts, mut lines) = (Vec::new(), Vec::new());
        for rung in &HIROI[rungs.clone()] {
            let technique = Technique::textbook(rung.technique);
            let (mut printed, mut ours) = (Vec::new(), Vec::new());
            for n in first..=last {
                let place = n.checked_sub(rung.first).map(usize::from);
                let seconds = place.and_then(|place| rung.seconds.get(place));
                printed.push(seconds.map_or("------".to_owned(), |s| format!("{s:.3}")));
                let climbed = climber.measure(&technique, Board::new(n)?)?;
                let took = climbed.map(|climbed| climbed.seconds);
                ours.push(took.map_or("------".to_owned(), |s| format!("{s:.3}")));
            }
            lines.push(cells(rung.mark, printed));
            lines.push(cells("    ours", ours));
        }
        for n in first..=last {
            let count = climber.solutions(Board::new(n)?);
            counts.push(count.map_or("------".to_owned(), |count| count.to_string()));
        }
        table.row(&cells("solutions", counts))?;
        for line in lines {
            table.row(&line)?;
        }
        table.end()?;
    }
    Ok(())
}

/// The output of `001_86e98d93edfc3b6c.txt` (I. Suzuki): the records of N = 5; then how its two
/// programs, and the one that they improve on, do on larger boards, which the document does not print.
pub(super) fn suzuki(climber: &mut Climber) -> anyhow::Result<()> {
    let board = Board::new(5)?;
    for (number, solution) in (1..).zip(Solutions::new(board)) {
        print(&format!("{}\n", Style::Record.draw(&solution, number)))?;
    }
    let techniques = ["brute-force", "attack-scan", "flags", "flags-loop"].map(Technique::textbook);
    let heads = techniques
        .each_ref()
        .map(|technique| format!("{:>14}", technique.name()));
    print(&format!(
        "Seconds, ours (printed are none)\n{:>2}{:>12}{}",
        "N",
        "solutions",
        heads.concat()
    ))?;
    for n in 5..=12 {
        let board = Board::new(n)?;
        let mut row = String::new();
        for technique in &techniques {
            let climbed = climber.measure(technique, board)?;
            let took = climbed.map(|climbed| format!("{:.6}", climbed.seconds));
            row += &format!("{:>14}", took.unwrap_or_else(|| "-".to_owned()));
        }
        let solutions = climber.solutions(board).unwrap_or(0);
        print(&format!("{n:>2}{solutions:>12}{row}"))?;
    }
    Ok(())
}

/// The output of `003_078d7ecdfdf3df70.txt`: all boards of N = 8 with files and ranks, and how much
/// trying the text expects.
pub(super) fn next_permutation(climber: &mut Climber) -> anyhow::Result<()> {
    let board = Board::new(8)?;
    for (number, solution) in (1..).zip(Solutions::new(board)) {
        print(&format!("{}\n", Style::Chess.draw(&solution, number)))?;
    }
    let [squares, _, factorial, _] = BOUNDS;
    let climbed = climber.measure(&Technique::textbook("next-permutation"), board)?;
    let visited = climbed.and_then(|climbed| climbed.visited).unwrap_or(0);
    print_prose(&format!(
        "{} solutions; 8 queens on 64 squares stand in {} ways, one a row and a column in {}, of which \
         next_permutation visits {}",
        climber.solutions(board).unwrap_or(0),
        value(&squares, board),
        value(&factorial, board),
        thousands(visited.into()),
    ))
}

/// The output of `004_df925f861df725bd.txt`: (N, solutions), with its bound n^n (n-1)! and the
/// comparisons really made.
pub(super) fn list_comprehension(climber: &mut Climber, most: Board) -> anyhow::Result<()> {
    let technique = Technique::textbook("list");
    let [.., bound] = BOUNDS;
    print(&format!(
        "{:<14}{:>12}{:>20}{:>22}",
        "", "seconds", "compared", bound.formula
    ))?;
    for n in 4..=most.n().min(13) {
        let board = Board::new(n)?;
        let Some(climbed) = climber.measure(&technique, board)? else {
            break;
        };
        let visited = climbed.visited.unwrap_or(0);
        print(&format!(
            "{:<14}{:>12.6}{:>20}{:>22}",
            format!("({n},{})", climbed.solutions),
            climbed.seconds,
            thousands(visited.into()),
            value(&bound, board),
        ))?;
    }
    Ok(())
}
