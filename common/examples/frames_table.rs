//! The table of method `frames` in `docs/benchmarks.md`: small boards whole, larger ones from a random
//! sample of tasks, on one thread with this CPU's best kernel.
//!
//! `cargo run --release -p common --example frames_table -- [FIRST_N [LAST_N]]`
//!
//! The whole board's time is estimated like a count is (`common::sample`): without bias, with a 95 %
//! interval.

#[path = "support/cpu.rs"]
mod cpu;

use std::{collections::HashMap, error::Error, process::ExitCode};

use common::{
    board::Board,
    count::{Counter, Orientation, Setup, Unwatched},
    kernel::Kernel,
    known::known_counts,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
    sample::Sample,
};

/// N, the sampled fraction of the tasks, and the cost of a task in microseconds (small ones where
/// single frames are long): half a minute each, some minutes at N = 28.
const BOARDS: [(u8, f64, u64); 11] = [
    (18, 1.0, 10_000),
    (19, 1.0, 100_000),
    (20, 1.0, 100_000),
    (21, 0.05, 100_000),
    (22, 0.02, 1_000_000),
    (23, 2e-3, 1_000_000),
    (24, 4e-4, 1_000_000),
    (25, 4e-5, 1_000_000),
    (26, 8e-6, 5_000_000),
    (27, 1e-6, 25_000_000),
    (28, 1e-6, 300_000_000),
];

fn main() -> ExitCode {
    match table() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn table() -> Result<(), Box<dyn Error>> {
    let mut bounds = std::env::args().skip(1).map(|text| text.parse::<u8>());
    let first = bounds.next().transpose()?.unwrap_or(18);
    let last = bounds.next().transpose()?.unwrap_or(28);
    println!(
        "kernel {}, one thread\n{:>2} {:>10} {:>7} {:>9} {:>22} {:>12} {:>10} {:>23}",
        Kernel::best(),
        "N",
        "tasks",
        "counted",
        "seconds",
        "solutions counted",
        "solutions/s",
        "whole, s",
        "95 % interval, s"
    );
    for (n, fraction, task_cost) in BOARDS {
        if (first..=last).contains(&n) {
            row(Board::new(n)?, fraction, task_cost)?;
        }
    }
    Ok(())
}

fn row(board: Board, fraction: f64, task_cost: u64) -> Result<(), Box<dyn Error>> {
    let plan = Plan::new(PlanSpec {
        board,
        layout: Layout::Frames,
        task_cost,
    })?;
    let mut counter = Counter::new(
        &plan,
        &Setup {
            kernel: Kernel::best(),
            threads: std::num::NonZeroU16::MIN,
            memory_bytes: 8 << 30,
            orientation: Orientation::Upright,
        },
    )?;
    let sample = Sample::draw(&plan, fraction, &mut seeded(u64::from(board.n())))?;
    let mut micros: HashMap<TaskId, u64> = HashMap::new();
    let mut solutions = 0u128;
    let start = cpu::seconds();
    for task in sample.tasks() {
        let before = cpu::seconds();
        solutions += u128::from(counter.count(plan.task_units(task), &Unwatched)?);
        micros.insert(task, whole_micros(cpu::seconds() - before));
    }
    let seconds = cpu::seconds() - start;
    let time = sample.estimate(&|task| micros[&task]);
    // The share of the board that was counted is a random number; its rate is not biased by it.
    let rate = solutions as f64 / seconds;
    if fraction >= 1.0 {
        let known = known_counts(board).map(|counts| counts.all());
        assert_eq!(Some(solutions), known, "N = {board}");
    }
    let in_seconds = |micros: u128| micros as f64 / 1e6;
    println!(
        "{board:>2} {:>10} {:>7} {seconds:>9.2} {solutions:>22} {rate:>12.3e} {:>10.4e} {:>11.4e} … {:.4e}",
        plan.tasks(),
        micros.len(),
        in_seconds(time.solutions),
        in_seconds(time.low),
        in_seconds(time.high),
    );
    Ok(())
}

/// SplitMix64 (Steele, Lea, Flood 2014), reduced to a range.
fn seeded(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % below
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds on a CPU are small and not negative"
)]
fn whole_micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}
