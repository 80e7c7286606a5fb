//! `worker count`.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use common::{
    choice::{MethodChoice, PrefixOfFrames, choose},
    known::known_counts,
    method::Layout,
    plan::{BadSpec, Plan, PlanSpec, TaskId},
    sample::{CONFIDENCE, Sample},
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use tokio::runtime;
use worker::count::{CountConfig, Counted, count};

use crate::{INTERRUPTED, cli::Count, fail, serve_command::Signals};

/// A sample is drawn from at least so many tasks, where the board has as many units.
const TASKS_TO_DRAW_FROM: u64 = 2000;

/// The total contradicts a check.
const CONTRADICTED: u8 = 3;

pub(crate) fn run(arguments: &Count) -> ExitCode {
    let threads = arguments.resources.threads();
    let memory_bytes_per_thread = arguments.resources.memory().bytes() / u64::from(threads.get());
    let layout = match layout(arguments, memory_bytes_per_thread) {
        Ok(layout) => layout,
        Err(error) => return fail(2, error),
    };
    let plan = match plan(arguments, layout) {
        Ok(plan) => plan,
        Err(error) => return fail(1, error),
    };
    let sample = arguments
        .sample
        .map(|fraction| draw(&plan, fraction, arguments.seed))
        .transpose();
    let sample = match sample {
        Ok(sample) => sample,
        Err(error) => return fail(2, error),
    };
    let config = CountConfig {
        plan,
        sample,
        threads,
        kernel: arguments.resources.kernel,
        memory_bytes_per_thread,
    };
    let bar = progress_bar();
    let counted = count(&config, &stop_flag(), &mut |part| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 1000.
        bar.set_position((part * 1000.0) as u64);
    });
    bar.finish_and_clear();
    match counted {
        Ok(counted) => finish(arguments, &config, &counted),
        Err(error) => fail(1, error),
    }
}

fn layout(arguments: &Count, memory_bytes_per_thread: u64) -> Result<Layout, PrefixOfFrames> {
    let Count {
        n, method, prefix, ..
    } = *arguments;
    let choice = choose(n, method, prefix, memory_bytes_per_thread)?;
    if (method, prefix) == (MethodChoice::Auto, None) {
        eprintln!("{}", choice.reason);
    }
    Ok(choice.layout)
}

/// The plan that a run of the cluster would have. A sample gets the same units in smaller tasks
/// where there would be few: whole tasks are drawn.
fn plan(arguments: &Count, layout: Layout) -> Result<Plan, BadSpec> {
    let spec = PlanSpec::new(arguments.n, layout);
    let plan = Plan::new(spec)?;
    if arguments.sample.is_none() || plan.tasks() >= TASKS_TO_DRAW_FROM {
        return Ok(plan);
    }
    let whole: u64 = (0..plan.tasks())
        .map(|task| plan.task_cost(TaskId(task)))
        .sum();
    let task_cost = (whole / TASKS_TO_DRAW_FROM).clamp(1, spec.task_cost);
    Plan::new(PlanSpec { task_cost, ..spec })
}

fn draw(plan: &Plan, fraction: f64, seed: u64) -> Result<Sample, common::sample::BadFraction> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    Sample::draw(plan, fraction, &mut |below| random.random_range(0..below))
}

/// A bar on standard error, where that is a terminal; an invisible one elsewhere.
fn progress_bar() -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style =
        ProgressStyle::with_template("{wide_bar} {percent_precise} % {elapsed} ({eta} left)");
    let bar = ProgressBar::with_draw_target(Some(1000), target);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// A flag that the first Ctrl-C or SIGTERM sets; the second ends the program at once. Without it,
/// they end the program at once and without a result.
fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    if let Err(error) = watch_signals(stop.clone()) {
        eprintln!("warning: Ctrl-C will end the program without a result: {error}");
    }
    stop
}

fn watch_signals(stop: Arc<AtomicBool>) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::new()?
    };
    let watch = async move {
        signals.next().await;
        stop.store(true, Relaxed);
        signals.next().await;
        std::process::exit(i32::from(INTERRUPTED));
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || runtime.block_on(watch))?;
    Ok(())
}

/// The object that `--json` prints. Counts are decimal strings: they pass 2^53.
#[derive(Serialize)]
struct Report<'a> {
    n: u8,
    method: &'a str,
    kernel: &'a str,
    threads: u32,
    units: u64,
    units_total: u64,
    solutions: String,
    estimate: Option<ReportedEstimate>,
    seconds: f64,
    solutions_per_second: f64,
}

#[derive(Serialize)]
struct ReportedEstimate {
    solutions: String,
    low: String,
    high: String,
    confidence: f64,
}

fn finish(arguments: &Count, config: &CountConfig, counted: &Counted) -> ExitCode {
    let report = report(config, counted);
    if arguments.json {
        match serde_json::to_string(&report) {
            Ok(json) => println!("{json}"),
            Err(error) => return fail(1, error),
        }
    } else {
        print_sentence(&report);
    }
    if !counted.complete {
        eprintln!(
            "interrupted: {} of {} units were counted",
            report.units, report.units_total
        );
        return ExitCode::from(INTERRUPTED);
    }
    let known = known_counts(arguments.n).map(|known| known.all());
    match known {
        Some(known) if config.sample.is_none() && known != counted.solutions => fail(
            CONTRADICTED,
            format!(
                "all({}) is known to be {known}, and {} were counted: this is a fault of the \
                 program or of the machine",
                arguments.n, counted.solutions
            ),
        ),
        Some(_) | None => ExitCode::SUCCESS,
    }
}

fn report<'a>(config: &'a CountConfig, counted: &Counted) -> Report<'a> {
    let seconds = counted.duration.as_secs_f64();
    #[allow(clippy::cast_precision_loss)] // A speed for people.
    let solutions_per_second = counted.solutions as f64 / seconds.max(1e-9);
    let spec = config.plan.spec();
    Report {
        n: spec.board.n(),
        method: spec.layout.method().name(),
        kernel: config.kernel.name().as_str(),
        threads: config.threads.get(),
        units: counted.units,
        units_total: config.plan.units(),
        solutions: counted.solutions.to_string(),
        estimate: counted.estimate.map(|estimate| ReportedEstimate {
            solutions: estimate.solutions.to_string(),
            low: estimate.low.to_string(),
            high: estimate.high.to_string(),
            confidence: CONFIDENCE,
        }),
        seconds,
        solutions_per_second,
    }
}

fn print_sentence(report: &Report<'_>) {
    let Report {
        n,
        method,
        kernel,
        threads,
        units,
        units_total,
        solutions,
        estimate,
        seconds,
        solutions_per_second,
    } = report;
    println!(
        "N = {n}: {solutions} solutions in {units} of {units_total} units, method {method}, kernel \
         {kernel}, {threads} threads, {seconds:.3} s, {solutions_per_second:.3e} solutions a second"
    );
    if let Some(estimate) = estimate {
        println!(
            "estimate for the whole board: {}, with {} % confidence between {} and {}",
            estimate.solutions,
            estimate.confidence * 100.0,
            estimate.low,
            estimate.high
        );
    }
}
