//! Times the join on the half boards of random frames: `hjoin [N] [--frames K] [--repeat K] [--seed S]
//! [--columns A,C] [--kernel NAME] [--without all|OPTIMIZATION]`.

use std::ops::ControlFlow;

use common::{
    board::Board,
    compute::kernel::Kernel,
    frames::Survey,
    join::{HJoin, Optimization},
    test_fixture::random_from,
};

#[path = "../examples/support/cpu.rs"]
mod cpu;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    let number = |name: &str, default: u64| {
        value(name).map_or(default, |text| text.parse().expect("a number"))
    };
    // As a test, without `--bench`, a small board is enough.
    let default = if args.iter().any(|arg| arg == "--bench") { "20" } else { "12" };
    let board = args.first().filter(|arg| !arg.starts_with('-')).map_or(default, String::as_str);
    let board: Board = board.parse().expect("an even board");
    let named = |kernel: &Kernel| value("--kernel").is_none_or(|name| name == kernel.to_string());
    let mut variants: Vec<Variant> = Kernel::available()
        .into_iter()
        .filter(named)
        .map(|kernel| (kernel.to_string(), kernel, None))
        .collect();
    if let Some(left_out) = value("--without") {
        variants.truncate(1);
        let kernel = variants[0].1;
        let all = Optimization::ALL.into_iter().map(|one| (format!("{one:?}"), one));
        let chosen = all.filter(|(name, _)| left_out == "all" || left_out == *name);
        variants.extend(chosen.map(|(name, one)| (format!("no {name}"), kernel, Some(one))));
        assert!(variants.len() > 1, "--without: all, or one of {:?}", Optimization::ALL);
    }
    let mut survey = Survey::new(board, 1 << 30).expect("an even board");
    let mut random = random_from(number("--seed", 1));
    let mut sums = vec![(0.0, 0); variants.len()];
    for _ in 0..number("--frames", 1) {
        let (a, c) = value("--columns").map_or_else(
            || frame(&survey, u32::from(board.n()) / 2, &mut random),
            |text| {
                let (a, c) = text.split_once(',').expect("two numbers");
                (a.parse().expect("a number"), c.parse().expect("a number"))
            },
        );
        let group = survey.group_of(a, c).expect("as many columns in A as in C");
        // The largest join of a frame: row sets between A and its complement.
        let not_a = ((1 << (board.n() / 2)) - 1) ^ a;
        let [top, bottom] = survey.half_boards(group, a, c, &|rows| a < rows && rows < not_a);
        let pairs = top.len() as f64 * bottom.len() as f64;
        println!("N = {board}, A = {a}, C = {c}: {} x {} keys", top.len(), bottom.len());
        let mut best = vec![(f64::INFINITY, 0); variants.len()];
        for _ in 0..number("--repeat", 3) {
            for (variant, best) in variants.iter().zip(&mut best) {
                let (seconds, found) = seconds(variant, board, &top, &bottom);
                *best = (best.0.min(seconds), found);
            }
        }
        for (((name, ..), (seconds, found)), sum) in variants.iter().zip(best).zip(&mut sums) {
            *sum = (sum.0 + seconds, sum.1 + found);
            println!(
                "  {name:15} {:9.3} ms  {found} matches  {:7.3}e9 solutions/s  {:9.3}e12 pairs/s",
                seconds * 1e3,
                found as f64 * 8e-9 / seconds,
                pairs * 1e-12 / seconds,
            );
        }
    }
    let whole = sums[0].0;
    for ((name, ..), (seconds, found)) in variants.iter().zip(sums) {
        println!(
            "{name}: {seconds:.3} s, {:.3}e9 solutions/s, {:.3} of the time of the first",
            found as f64 * 8e-9 / seconds,
            seconds / whole,
        );
    }
}

/// Name of a variant of the join, its kernel, and the optimization it leaves out.
type Variant = (String, Kernel, Option<Optimization>);

/// Returns the CPU seconds per join of this variant, and its count.
fn seconds(
    (_, kernel, left_out): &Variant,
    board: Board,
    top: &[u64],
    bottom: &[u64],
) -> (f64, u64) {
    let join = HJoin::new(*kernel, 2 * (u32::from(board.n()) - 1), 1);
    let mut join = match left_out {
        Some(optimization) => join.without(*optimization),
        None => join,
    };
    let batch = (10_000_000_000 / (top.len() * bottom.len()).max(1)).clamp(1, 1_000);
    // The clock ticks every few milliseconds, so short joins are timed together.
    let (start, mut joins, mut found) = (cpu::seconds(), 0.0, 0);
    while joins == 0.0 || cpu::seconds() - start < 0.05 {
        for _ in 0..batch {
            let count = join.count(top, bottom, &mut |_| ControlFlow::Continue(()));
            found = count.expect("no overflow");
            joins += 1.0;
        }
    }
    ((cpu::seconds() - start) / joins, found)
}

/// Returns a pseudo-random frame with A < C < ~A, both of n / 2 columns.
fn frame(survey: &Survey, n: u32, random_below: &mut dyn FnMut(u64) -> u64) -> (u32, u32) {
    let full = (1 << n) - 1;
    let half = full >> n.div_ceil(2);
    let group = survey.group_of(half, half).expect("an even board");
    let mut frames = std::iter::repeat_with(|| survey.random_frame(group, random_below));
    frames.find(|&(a, c)| a < c && c < full ^ a).expect("there are such frames")
}
