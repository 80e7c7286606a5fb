//! `worker count`.

use std::{
    io,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use common::{
    choice::MethodChoice,
    known::known_counts,
    plan::{Plan, PlanSpec},
    sample::{BadFraction, CONFIDENCE, Estimate, Sample, plan_to_draw_from},
};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use serde::Serialize;
use tokio::runtime;
use worker::{
    count::{CountConfig, Counted, count},
    signals::Signals,
    terminal::note,
};

use crate::{
    INTERRUPTED, USAGE,
    cli::Count,
    progress::{Progress, step},
    request::{BadRequest, Means},
    say::{fail, print, tell},
};

/// The total contradicts a check.
const CONTRADICTED: u8 = 3;

pub(crate) fn run(arguments: &Count) -> ExitCode {
    let config = match config(arguments) {
        Ok(config) => config,
        Err(bad) => return fail(USAGE, bad),
    };
    let mut progress = Progress::start(Some(config.cost() as f64 / 1e6));
    let counted = count(&config, &stop_flag(), &mut |part| progress.show(part));
    progress.finish();
    match counted {
        Ok(counted) => finish(arguments, &config, &counted),
        Err(error) => fail(1, error),
    }
}

fn config(arguments: &Count) -> Result<CountConfig, BadRequest> {
    let means = Means::of(&arguments.resources);
    let Means {
        threads, memory, ..
    } = means;
    let dividing = format!("dividing the board of N = {} into tasks", arguments.n);
    let (plan, why) = step(&dividing, || plan(arguments, means))?;
    let crews = means.crews(&plan)?;
    if let Some(why) = why {
        note(&why);
    }
    if crews.number() < means.machine().threads.get() {
        note(&format!("{threads} threads, {memory}: {crews}"));
    }
    let sample = arguments
        .sample
        .map(|fraction| draw(&plan, fraction, arguments.seed))
        .transpose()?;
    Ok(CountConfig {
        plan,
        sample,
        threads,
        kernel: arguments.resources.kernel,
        crews,
    })
}

/// The plan that a run of the cluster would have; for a sample, its units in smaller tasks. Beside it
/// comes why its method was chosen, where nobody asked for one.
fn plan(arguments: &Count, means: Means) -> Result<(Plan, Option<String>), BadRequest> {
    let Count {
        n, method, prefix, ..
    } = *arguments;
    let choice = means.choice(n, (method, prefix))?;
    let is_automatic = (method, prefix) == (MethodChoice::Auto, None);
    let spec = PlanSpec::new(n, choice.layout);
    let plan = match arguments.sample {
        Some(fraction) => plan_to_draw_from(spec, fraction)?,
        None => Plan::new(spec)?,
    };
    Ok((plan, is_automatic.then_some(choice.reason)))
}

fn draw(plan: &Plan, fraction: f64, seed: u64) -> Result<Sample, BadFraction> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    Sample::draw(plan, fraction, &mut |below| random.random_range(0..below))
}

/// A flag that the first Ctrl-C or SIGTERM sets; the second ends the program at once. Without it,
/// they end the program at once and without a result.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    if let Err(error) = watch_signals(stop.clone()) {
        tell(&format!(
            "warning: Ctrl-C will end the program without a result: {error}"
        ));
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
        signals.next_apart().await;
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
    /// Whether everything that was asked for was counted.
    complete: bool,
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
    let text = if arguments.json {
        serde_json::to_string(&report).map_err(|error| error.to_string())
    } else {
        Ok(sentence(&report))
    };
    let printed = text.and_then(|text| print(&text).map_err(|error| error.to_string()));
    if let Err(error) = printed {
        return fail(1, error);
    }
    if !counted.complete {
        tell(&format!(
            "interrupted: {} of {} units were counted",
            report.units, report.units_total
        ));
        return ExitCode::from(INTERRUPTED);
    }
    if let Some(advice) = counted.estimate.and_then(|e| advice(arguments, e)) {
        note(&advice);
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
        complete: counted.complete,
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

fn sentence(report: &Report<'_>) -> String {
    let Report {
        n,
        method,
        kernel,
        threads,
        units,
        units_total,
        solutions,
        complete,
        estimate,
        seconds,
        solutions_per_second,
    } = report;
    let so_far = if *complete { "" } else { " so far" };
    let plural = if *threads == 1 { "" } else { "s" };
    let mut text = format!(
        "N = {n}: {solutions} solutions{so_far} in {units} of {units_total} units\n  \
         method {method}, kernel {kernel}, {threads} thread{plural}, {seconds:.3} s\n  \
         {solutions_per_second:.3e} solutions a second"
    );
    if let Some(estimate) = estimate {
        text.push_str(&format!(
            "\nestimate for the whole board: {}\n  with {} % confidence between {} and {}",
            estimate.solutions,
            estimate.confidence * 100.0,
            estimate.low,
            estimate.high
        ));
    }
    text
}

/// A margin that is worth aiming at.
const GOOD_MARGIN: f64 = 0.05;

/// An estimate that is off by more than this part of itself says little.
const USELESS_MARGIN: f64 = 0.5;

/// What would help, where the estimate is of little use. The margin goes down with the square root
/// of the work.
fn advice(arguments: &Count, estimate: Estimate) -> Option<String> {
    let (fraction, margin) = (arguments.sample?, estimate.relative_margin());
    if margin <= USELESS_MARGIN {
        return None;
    }
    // Very small samples do not even know their own margin.
    let times = (margin / GOOD_MARGIN).powi(2).clamp(100.0, 1e6);
    let better = fraction * times;
    let more = if better < 1.0 {
        format!("--sample {better:.1e}, about {times:.0} times the work, should come within 5 %")
    } else {
        "leave --sample out and count the whole board".to_owned()
    };
    Some(format!(
        "this estimate says little, because the sample is small: {more}"
    ))
}
