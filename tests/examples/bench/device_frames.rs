//! Frames on an OpenCL device, compared with cores of the CPU.

use std::{
    num::NonZeroU16,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use anyhow::{Context, Result, anyhow, ensure};

use accelerator::{Device, Tuning, devices};
use common::{
    board::Board,
    count::{Counter, CounterConfig, NoProgress},
    estimate::forecast::CostSampler,
    method::Layout,
    plan::{Plan, PlanSpec},
    test_fixture::random_from,
};

/// Times frames on an OpenCL device.
#[derive(clap::Args)]
pub(super) struct Options {
    board: Board,
    units: Vec<u64>,
    /// A part of a name of `worker devices`.
    #[arg(long)]
    device: String,
    /// Threads that share the device.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Number of units to add, in proportion to cost.
    #[arg(long, default_value_t = 0)]
    random: u64,
    /// Count the whole board, with all lists on the device.
    #[arg(long)]
    all: bool,
    /// Cores of the CPU that count the same units, which must be equal.
    #[arg(long, default_value_t = 0)]
    cpu: usize,
}

pub(super) fn run(options: Options) -> Result<()> {
    let Options { board, mut units, device, threads, random, all, cpu: cores } = options;
    let plan = Plan::new(PlanSpec::new(board, Layout::Frames))?;
    let mut tuning = Tuning::default();
    if all {
        units = (0..plan.units()).collect();
        tuning.min_pairs = 0;
    }
    let name = device.to_lowercase();
    let sampler = CostSampler::new(&plan);
    let mut random_below = random_from(u64::from(board.n()));
    for _ in 0..random {
        let task = plan.task_units(sampler.task(random_below(sampler.total())));
        units.push(task.start + random_below(task.end - task.start));
    }
    let is_chosen = |device: &accelerator::Description| device.name.to_lowercase().contains(&name);
    let index = devices().iter().position(|device| device.as_ref().is_ok_and(is_chosen));
    let device = Device::open(index.context("no such device")?, None, tuning)?;
    let config = CounterConfig { threads: NonZeroU16::MIN, ..CounterConfig::best(6 << 30) };
    let counter = || Ok(Counter::new(&plan, &config)?);
    println!("{device}, {threads} threads:");
    ensure!(threads <= device.joins(), "its memory is divided among {} threads", device.joins());
    let counts = count(&units, threads, || Ok(counter()?.with_accelerator(device.accelerator()?)))
        .map_err(|error| device.failure().map_or(error, |why| anyhow!("{device}: {why}")))?;
    if cores > 0 {
        println!("{cores} cores:");
        ensure!(count(&units, cores, counter)? == counts, "the counts differ");
        println!("equal");
    }
    Ok(())
}

/// Counts the units on several threads, each with a counter of its own; prints the time.
fn count(
    units: &[u64],
    threads: usize,
    make: impl Fn() -> Result<Counter> + Sync,
) -> Result<Vec<u64>> {
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(vec![0; units.len()]));
    let work = || -> Result<f64> {
        let (mut counter, started) = (make()?, Instant::now());
        while let at = next.fetch_add(1, Relaxed)
            && let Some(&unit) = units.get(at)
        {
            let count = counter.count(unit..unit + 1, &NoProgress)?;
            if units.len() < 20 {
                println!("  unit {unit}: {count}");
            }
            counts.lock().expect("no panic")[at] = count;
        }
        Ok(started.elapsed().as_secs_f64())
    };
    let started = Instant::now();
    let busy = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect::<Result<Vec<_>>>()
    })?;
    let busy: f64 = busy.into_iter().sum();
    let counts = counts.into_inner().expect("no panic");
    let (sum, seconds) = (counts.iter().sum::<u64>(), started.elapsed().as_secs_f64());
    println!("  {sum} in {} units: {seconds:.3} s, {busy:.1} s of all threads", units.len());
    Ok(counts)
}
