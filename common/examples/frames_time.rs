//! Times a board: `frames_time N [--tasks K | --sample FRACTION | --unit U | --symmetric] [--layout NAME]
//! [--kernel NAME] [--threads T] [--memory BYTES] [--task-cost MICROSECONDS] [--rotated] [--verbose]`.
//!
//! Counts all tasks of the board's plan, the first K in the plan's pseudo-random order, or a random
//! sample, by one crew of threads, and prints the estimated time of the whole board. A sample makes
//! this estimate unbiased, with a 95 % interval (`common::estimate::sample`). Seconds are CPU seconds of the
//! leading thread; a unit's wall seconds are printed next to them.

#[path = "support/cpu.rs"]
mod cpu;

use std::{collections::HashMap, ops::ControlFlow, time::Instant};

use common::{
    board::Board,
    compute::kernel::Kernel,
    count::{Counter, CounterConfig, NoProgress, Orientation},
    estimate::sample::Sample,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
    solutions::symmetric::{half_turn, quarter_turn},
    test_fixture::random_from,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let board: Board = arguments.next().ok_or("usage: frames_time N [options]")?.parse()?;
    let mut config = CounterConfig::best(4 << 30);
    let (mut layout, mut task_cost) = (Layout::Frames, None);
    let (mut wanted, mut fraction, mut unit, mut verbose) = (u64::MAX, None, None, false);
    while let Some(option) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{option} needs a value"));
        match option.as_str() {
            "--tasks" => wanted = value()?.parse()?,
            "--sample" => fraction = Some(value()?.parse()?),
            "--layout" => layout = value()?.parse()?,
            "--kernel" => config.kernel = Kernel::new(value()?.parse()?)?,
            "--threads" => config.threads = value()?.parse()?,
            "--memory" => config.memory_bytes = value()?.parse()?,
            "--task-cost" => task_cost = Some(value()?.parse()?),
            "--rotated" => config.orientation = Orientation::Rotated,
            "--unit" => unit = Some(value()?.parse::<u64>()?),
            "--verbose" => verbose = true,
            "--symmetric" => {
                let start = cpu::seconds();
                let half = half_turn(board, &|| ControlFlow::Continue(()))?;
                let between = cpu::seconds();
                let quarter = quarter_turn(board);
                let (seconds, more) = (between - start, cpu::seconds() - between);
                println!("half {half} {seconds:.3} s, quarter {quarter} {more:.3} s");
                return Ok(());
            }
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    let spec = PlanSpec::new(board, layout);
    let spec = PlanSpec { task_cost: task_cost.unwrap_or(spec.task_cost), ..spec };
    let start = Instant::now();
    let plan = Plan::new(spec)?;
    let planned = start.elapsed();
    let whole: u64 = plan.task_costs().sum();
    println!(
        "N = {board}: {} units, {} tasks, planned in {planned:.1?}",
        plan.units(),
        plan.tasks()
    );
    let mut counter = Counter::new(&plan, &config)?;
    if let Some(unit) = unit {
        let (start, begun) = (cpu::seconds(), Instant::now());
        let count = counter.count(unit..unit + 1, &NoProgress)?;
        let (seconds, wall) = (cpu::seconds() - start, begun.elapsed().as_secs_f64());
        let rate = count as f64 / seconds;
        println!(
            "unit {unit}: {count} solutions, {seconds:.3} s ({wall:.3} s wall), {rate:.3e} solutions/s"
        );
        return Ok(());
    }
    let random = &mut random_from(u64::from(board.n()));
    let sample = fraction.map(|fraction| Sample::select(&plan, fraction, random)).transpose()?;
    let tasks: Vec<TaskId> = match &sample {
        Some(sample) => sample.tasks().collect(),
        None => plan.lease_order().take(usize::try_from(wanted)?).collect(),
    };
    let start = cpu::seconds();
    let (mut sum, mut cost, mut micros) = (0u128, 0u64, HashMap::new());
    for &task in &tasks {
        let before = cpu::seconds();
        let count = counter.count(plan.task_units(task), &NoProgress)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
        let taken = ((cpu::seconds() - before) * 1e6) as u64;
        if verbose {
            println!("{task} {:?} {count} {taken} {}", plan.task_units(task), plan.task_cost(task));
        }
        micros.insert(task, taken);
        sum += u128::from(count);
        cost += plan.task_cost(task);
    }
    let seconds = cpu::seconds() - start;
    if let Some(sample) = sample {
        let time = sample.estimate(&|task| micros[&task]);
        let [whole, low, high] =
            [time.solutions, time.low, time.high].map(|time| time as f64 / 1e6);
        println!("whole board {whole:.4e} s, 95 % interval {low:.4e} to {high:.4e} s");
    }
    println!(
        "{} tasks, {sum} solutions, {seconds:.3} s, {:.3e} solutions/s, cost model {:.3}, \
         whole board {:.1} s by cost",
        tasks.len(),
        sum as f64 / seconds,
        cost as f64 / 1e6 / seconds,
        seconds * whole as f64 / cost as f64,
    );
    Ok(())
}
