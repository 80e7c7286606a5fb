//! Speed of HJoin on the half boards of real frames of even boards, for every kernel of this CPU.
//!
//! `cargo bench -p common --bench hjoin -- 24 --frames 3 --kernel avx512 --repeat 2`
//!
//! With `--without all` the best kernel counts every frame whole and without each mechanism of the join, in
//! turns: the seconds of each, and what the join without it takes of the time of the whole one; with
//! `--without Bands` and the like without that one only. `--columns A,C` gives the frame (sets of columns as
//! bits); else frames are random ones with half of the columns each, by `--seed`.

use std::{collections::HashMap, ops::ControlFlow, sync::OnceLock, time::Instant};

use common::{
    frames::hjoin::{HJoin, Mechanism},
    kernel::Kernel,
};

/// CPU seconds that this process has used, or, where no such file tells, seconds that have passed.
fn cpu_seconds() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = text
        .split(' ')
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    nanoseconds.map_or_else(
        || START.get_or_init(Instant::now).elapsed().as_secs_f64(),
        |ns| ns * 1e-9,
    )
}

/// The placements of quarter boards on one set of columns: (s, d) by row set.
type Quarters = HashMap<u32, Vec<(u64, u64)>>;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    let number = |name: &str, default: u64| {
        value(name).map_or(default, |text| text.parse().expect("a number"))
    };
    // Run as a test, without `--bench`, it only has to work.
    let default = if args.iter().any(|arg| arg == "--bench") {
        "20"
    } else {
        "12"
    };
    let board = args
        .first()
        .filter(|arg| !arg.starts_with('-'))
        .map_or(default, String::as_str);
    let n: u32 = board.parse::<u32>().expect("an even board") / 2;
    let named = |kernel: &Kernel| value("--kernel").is_none_or(|name| name == kernel.to_string());
    let mut ways: Vec<Way> = Kernel::available()
        .into_iter()
        .filter(named)
        .map(|kernel| (kernel.to_string(), kernel, None))
        .collect();
    if let Some(left_out) = value("--without") {
        ways.truncate(1);
        let kernel = ways[0].1;
        let all = Mechanism::ALL
            .into_iter()
            .map(|one| (format!("{one:?}"), one));
        let chosen = all.filter(|(name, _)| left_out == "all" || left_out == *name);
        ways.extend(chosen.map(|(name, one)| (format!("no {name}"), kernel, Some(one))));
        assert!(
            ways.len() > 1,
            "--without: all, or one of {:?}",
            Mechanism::ALL
        );
    }
    let mut seed = number("--seed", 1);
    let mut sums = vec![(0.0, 0); ways.len()];
    for _ in 0..number("--frames", 1) {
        let (a, c) = value("--columns").map_or_else(
            || frame(n, &mut seed),
            |text| {
                let (a, c) = text.split_once(',').expect("two numbers");
                (a.parse().expect("a number"), c.parse().expect("a number"))
            },
        );
        let (top, bottom) = half_boards(n, a, c);
        let pairs = top.len() as f64 * bottom.len() as f64;
        println!(
            "N = {}, A = {a}, C = {c}: {} x {} keys",
            2 * n,
            top.len(),
            bottom.len()
        );
        let mut best = vec![(f64::INFINITY, 0); ways.len()];
        for _ in 0..number("--repeat", 3) {
            for (way, best) in ways.iter().zip(&mut best) {
                let (seconds, found) = seconds(way, n, &top, &bottom);
                *best = (best.0.min(seconds), found);
            }
        }
        for (((name, ..), (seconds, found)), sum) in ways.iter().zip(best).zip(&mut sums) {
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
    for ((name, ..), (seconds, found)) in ways.iter().zip(sums) {
        println!(
            "{name}: {:.3} s, {:.3}e9 solutions/s, {:.3} of the time of the first",
            seconds,
            found as f64 * 8e-9 / seconds,
            seconds / whole,
        );
    }
}

/// What a way of joining is called, its kernel, and what it does without.
type Way = (String, Kernel, Option<Mechanism>);

/// CPU seconds of a join in this way, and what it found.
fn seconds((_, kernel, left_out): &Way, n: u32, top: &[u64], bottom: &[u64]) -> (f64, u64) {
    let join = HJoin::new(*kernel, 2 * (2 * n - 1), 1);
    let mut join = match left_out {
        Some(mechanism) => join.without(*mechanism),
        None => join,
    };
    let batch = (10_000_000_000 / (top.len() * bottom.len()).max(1)).clamp(1, 1_000);
    // The clock ticks every few milliseconds: short joins are timed together.
    let (start, mut joins, mut found) = (cpu_seconds(), 0.0, 0);
    while joins == 0.0 || cpu_seconds() - start < 0.05 {
        for _ in 0..batch {
            let count = join.count(top, bottom, &mut |_| ControlFlow::Continue(()));
            found = count.expect("no overflow");
            joins += 1.0;
        }
    }
    ((cpu_seconds() - start) / joins, found)
}

/// A pseudo-random frame of the middle m: A and C of n / 2 columns, A < C < ~A.
fn frame(n: u32, seed: &mut u64) -> (u32, u32) {
    let full = (1 << n) - 1;
    let mut masks = || loop {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mask = u32::try_from(*seed >> 40).unwrap() & full;
        if mask.count_ones() == n / 2 {
            return mask;
        }
    };
    loop {
        let (a, c) = (masks(), masks());
        if a < c && c < full ^ a {
            return (a, c);
        }
    }
}

/// The top and the bottom half boards of frame (A, C) with B and D strictly inside their bounds.
fn half_boards(n: u32, a: u32, c: u32) -> (Vec<u64>, Vec<u64>) {
    let full = (1 << n) - 1;
    let inside = |rows: u32| a < rows && rows < full ^ a;
    let top = join_quarters(n, (&quarters(n, a), &quarters(n, full ^ c)), inside, false);
    let bottom = join_quarters(n, (&quarters(n, c), &quarters(n, full ^ a)), inside, true);
    (top, bottom)
}

fn quarters(n: u32, columns: u32) -> Quarters {
    let mut found = Quarters::new();
    place(n, columns, (0, 0, 0), &mut found);
    found
}

fn place(n: u32, columns: u32, (rows, s, d): (u32, u64, u64), found: &mut Quarters) {
    if columns == 0 {
        found.entry(rows).or_default().push((s, d));
        return;
    }
    let j = columns.trailing_zeros();
    for i in (0..n).filter(|i| rows >> i & 1 == 0) {
        let (sum, difference) = (1 << (i + j), 1 << (i + n - 1 - j));
        if s & sum == 0 && d & difference == 0 {
            place(
                n,
                columns & (columns - 1),
                (rows | 1 << i, s | sum, d | difference),
                found,
            );
        }
    }
}

fn join_quarters(
    n: u32,
    (outer, inner): (&Quarters, &Quarters),
    inside: impl Fn(u32) -> bool,
    turned: bool,
) -> Vec<u64> {
    let (full, part) = ((1 << n) - 1, 2 * n - 1);
    let order = order(n, turned);
    let permuted = |key: u64| {
        (0..)
            .zip(&order)
            .fold(0, |out, (to, from)| out | (key >> from & 1) << to)
    };
    let mut keys = Vec::new();
    let mut rows: Vec<u32> = outer.keys().copied().filter(|&rows| inside(rows)).collect();
    rows.sort_unstable();
    for rows in rows {
        let Some(others) = inner.get(&(full ^ rows)) else {
            continue;
        };
        let outer = outer[&rows]
            .iter()
            .map(|&(s, d)| permuted(s >> n | d << part));
        let inner: Vec<u64> = others
            .iter()
            .map(|&(s, d)| permuted(d | s >> n << part))
            .collect();
        for p in outer {
            keys.extend(inner.iter().filter(|&&q| p & q == 0).map(|q| p | q));
        }
    }
    keys
}

/// Which bit of a key goes where: the diagonals nearest the centre first.
fn order(n: u32, turned: bool) -> Vec<u32> {
    let (middle, part) = (n - 1, 2 * n - 1);
    let mut order = vec![middle, part + middle];
    for c in 1..n {
        order.extend([middle + c, part + middle + c, middle - c, part + middle - c]);
    }
    if turned {
        for bit in &mut order {
            *bit = if *bit < part {
                part - 1 - *bit
            } else {
                3 * part - 1 - *bit
            };
        }
    }
    order
}
