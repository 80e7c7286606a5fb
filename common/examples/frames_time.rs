//! Times method `frames`: `frames_time N [--tasks K | --unit U] [--kernel NAME] [--threads T]
//! [--memory BYTES] [--task-cost MICROSECONDS] [--turned] [--verbose]`.
//!
//! Counts all tasks of the board's plan, or the first K in the plan's pseudo-random order, by one
//! crew of threads, and prints what a run of the whole board would take at that pace. Seconds are those
//! of the leading thread on a CPU; a unit's wall seconds are printed beside them.

#[path = "support/cpu.rs"]
mod cpu;

use std::time::Instant;

use common::{
    board::Board,
    count::{Counter, Orientation, Setup, Unwatched},
    kernel::Kernel,
    method::Layout,
    plan::{Plan, PlanSpec},
};

#[allow(clippy::cast_precision_loss)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let board: Board = arguments
        .next()
        .ok_or("usage: frames_time N [options]")?
        .parse()?;
    let mut spec = PlanSpec::new(board, Layout::Frames);
    let mut setup = Setup {
        kernel: Kernel::best(),
        threads: std::num::NonZeroU16::MIN,
        memory_bytes: 4 << 30,
        orientation: Orientation::Upright,
    };
    let mut wanted = u64::MAX;
    let mut verbose = false;
    let mut unit = None;
    while let Some(option) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{option} needs a value"));
        match option.as_str() {
            "--tasks" => wanted = value()?.parse()?,
            "--kernel" => setup.kernel = Kernel::new(value()?.parse()?)?,
            "--threads" => setup.threads = value()?.parse()?,
            "--memory" => setup.memory_bytes = value()?.parse()?,
            "--task-cost" => spec.task_cost = value()?.parse()?,
            "--turned" => setup.orientation = Orientation::Turned,
            "--unit" => unit = Some(value()?.parse::<u64>()?),
            "--verbose" => verbose = true,
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    let start = Instant::now();
    let plan = Plan::new(spec)?;
    let planned = start.elapsed();
    let whole: u64 = (0..plan.tasks())
        .map(|task| plan.task_cost(common::plan::TaskId(task)))
        .sum();
    println!(
        "N = {board}: {} units, {} tasks, planned in {planned:.1?}",
        plan.units(),
        plan.tasks()
    );
    let mut counter = Counter::new(&plan, &setup)?;
    if let Some(unit) = unit {
        let (start, begun) = (cpu::seconds(), Instant::now());
        let count = counter.count(unit..unit + 1, &Unwatched)?;
        let (seconds, wall) = (cpu::seconds() - start, begun.elapsed().as_secs_f64());
        let rate = count as f64 / seconds;
        println!(
            "unit {unit}: {count} solutions, {seconds:.3} s ({wall:.3} s wall), {rate:.3e} solutions/s"
        );
        return Ok(());
    }
    let start = cpu::seconds();
    let (mut sum, mut cost, mut tasks) = (0u128, 0u64, 0u64);
    for task in plan.handing_out_order().take(usize::try_from(wanted)?) {
        let before = cpu::seconds();
        let count = counter.count(plan.task_units(task), &Unwatched)?;
        if verbose {
            let (micros, cost) = ((cpu::seconds() - before) * 1e6, plan.task_cost(task));
            println!(
                "{task} {:?} {count} {micros:.0} {cost}",
                plan.task_units(task)
            );
        }
        sum += u128::from(count);
        cost += plan.task_cost(task);
        tasks += 1;
    }
    let seconds = cpu::seconds() - start;
    println!(
        "{tasks} tasks, {sum} solutions, {seconds:.3} s, {:.3e} solutions/s, cost model {:.3}, \
         whole board {:.1} s by cost",
        sum as f64 / seconds,
        cost as f64 / 1e6 / seconds,
        seconds * whole as f64 / cost as f64,
    );
    Ok(())
}
