//! `worker count`.

use std::process::ExitCode;

use cli::{
    exit::Exit,
    terminal::{eprint_info, eprint_line},
};
use common::{
    choice::MethodChoice,
    estimate::sample::{CONFIDENCE, Estimate, Sample, plan_to_sample},
    plan::{Plan, PlanSpec},
    solutions::published::published_counts,
    text::{plural, span, thousands},
};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use serde_json::{Value, json};
use worker::local::{CountConfig, Counted, count};

use super::{
    BadRequest, Progress, choice, fail, finish, interruption,
    options::{BoardOptions, Count},
    print, print_json, step,
};

pub(crate) async fn run(arguments: &Count) -> ExitCode {
    let config = match config(arguments) {
        Ok(config) => config,
        Err(bad) => return fail(Exit::Usage, bad),
    };
    let mut progress = Progress::start(Some(config.cost() as f64 / 1e6));
    let counted = count(&config, interruption(), &mut |part| progress.show(part)).await;
    drop(progress);
    match counted {
        Ok(counted) => report(arguments, &config, &counted),
        Err(error) => fail(Exit::Error, error),
    }
}

fn config(arguments: &Count) -> Result<CountConfig, BadRequest> {
    let Count { board: BoardOptions { n, method, seed, ref resources, .. }, layout, sample } =
        *arguments;
    let budget = resources.budget();
    let (plan, reason) = step(&format!("planning tasks for N = {n}"), || {
        let choice = choice(&budget, n, method, layout)?;
        let spec = PlanSpec::new(n, choice.layout);
        // A sample is taken from smaller tasks than those of a run.
        let plan = match sample {
            Some(fraction) => plan_to_sample(spec, fraction)?,
            None => Plan::new(spec)?,
        };
        Ok::<_, BadRequest>((plan, choice.reason))
    })?;
    let crews = budget.crews(&plan)?;
    if (method, layout) == (MethodChoice::Auto, None) {
        eprint_info(&reason);
    }
    if crews.number() < budget.threads.non_zero().get() {
        eprint_info(&format!(
            "{}, {}: {crews}",
            plural(budget.threads.get(), "thread"),
            budget.memory
        ));
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut random_below = |below| random.random_range(0..below);
    let sample = sample.map(|fraction| Sample::select(&plan, fraction, &mut random_below));
    let devices = resources.device.open(resources.device_memory)?;
    Ok(CountConfig { sample: sample.transpose()?, plan, budget, devices })
}

fn report(arguments: &Count, config: &CountConfig, counted: &Counted) -> ExitCode {
    let published = published_counts(arguments.board.n).map(|known| known.all());
    let printed = match arguments.board.json {
        true => print_json(&json_report(config, counted)),
        false => print(&text_report(config, counted, published)),
    };
    if printed.is_err() {
        return finish(printed);
    }
    if !counted.complete {
        eprint_line(&format!(
            "interrupted: {} of {} units were counted",
            thousands(counted.units.into()),
            thousands(config.plan.units().into())
        ));
        return Exit::Interrupted.into();
    }
    if let Some(advice) = counted.estimate.and_then(|e| advice(arguments, e)) {
        eprint_info(&advice);
    }
    match published {
        Some(published) if config.sample.is_none() && published != counted.solutions => fail(
            Exit::Contradicted,
            format!(
                "the published count of N = {} is {}, but {} solutions were counted: this is a bug in \
                 the program or a hardware fault",
                arguments.board.n,
                thousands(published),
                thousands(counted.solutions)
            ),
        ),
        Some(_) | None => Exit::Success.into(),
    }
}

/// Formats the result as JSON. Counts may exceed 2^53, so they are decimal strings.
fn json_report(config: &CountConfig, counted: &Counted) -> Value {
    let (spec, seconds) = (config.plan.spec(), counted.duration.as_secs_f64());
    json!({
        "n": spec.board.n(),
        "method": spec.layout.method().name(),
        "kernel": kernels(config, counted),
        "threads": config.budget.threads.get(),
        "units": counted.units,
        "units_total": config.plan.units(),
        "solutions": counted.solutions.to_string(),
        "complete": counted.complete,
        "estimate": counted.estimate.map(|estimate| json!({
            "solutions": estimate.solutions.to_string(),
            "low": estimate.low.to_string(),
            "high": estimate.high.to_string(),
            "confidence": CONFIDENCE,
        })),
        "seconds": seconds,
        "solutions_per_second": per_second(counted.solutions, seconds),
    })
}

/// Returns the names of the kernels that counted, or of the one that would have.
fn kernels(config: &CountConfig, counted: &Counted) -> String {
    if counted.kernels.is_empty() {
        return config.budget.kernel.name().to_string();
    }
    counted.kernels.iter().map(|kernel| kernel.as_str()).collect::<Vec<_>>().join(", ")
}

/// Formats the result as text; `published` is the board's published count.
fn text_report(config: &CountConfig, counted: &Counted, published: Option<u128>) -> String {
    let CountConfig { plan, budget, .. } = config;
    let Counted { units, solutions, complete, estimate, duration, .. } = counted;
    let seconds = duration.as_secs_f64();
    #[expect(clippy::cast_possible_truncation, reason = "for display; `as` saturates")]
    let per_second = per_second(*solutions, seconds) as u128;
    let is_whole = *complete && config.sample.is_none();
    let so_far = if *complete { "" } else { " so far" };
    let mut text = format!(
        "N = {}: {} solutions{so_far} in {} of {} units\n  \
         method {}, kernel {}, {}, {}\n  {} solutions per second",
        plan.spec().board,
        thousands(*solutions),
        thousands((*units).into()),
        thousands(plan.units().into()),
        plan.spec().layout.method(),
        kernels(config, counted),
        plural(budget.threads.get(), "thread"),
        span(seconds),
        thousands(per_second),
    );
    if let Some(estimate) = estimate {
        text.push_str(&format!(
            "\nestimate for the whole board: {}\n  with {} % confidence between {} and {}",
            thousands(estimate.solutions),
            CONFIDENCE * 100.0,
            thousands(estimate.low),
            thousands(estimate.high)
        ));
    }
    text.push_str(&match published {
        Some(published) if is_whole && published == *solutions => {
            "\n  matches the published count".to_owned()
        }
        Some(published) => format!("\npublished count: {}", thousands(published)),
        None => "\nno published count".to_owned(),
    });
    if *complete && !is_whole {
        let n = plan.spec().board;
        text.push_str(&format!("\ntime for the whole board here: see `worker estimate --n {n}`"));
    }
    text
}

fn per_second(solutions: u128, seconds: f64) -> f64 {
    solutions as f64 / seconds.max(1e-9)
}

/// Target of the relative margin.
const GOOD_MARGIN: f64 = 0.05;

/// The relative margin above which an estimate is of little use.
const USELESS_MARGIN: f64 = 0.5;

/// Suggests a larger sample if the estimate is of little use.
///
/// The margin decreases with the square root of the work.
fn advice(arguments: &Count, estimate: Estimate) -> Option<String> {
    let (fraction, margin) = (arguments.sample?, estimate.relative_margin());
    if margin <= USELESS_MARGIN {
        return None;
    }
    // The margin of a very small sample is itself uncertain.
    let times = (margin / GOOD_MARGIN).powi(2).clamp(100.0, 1e6);
    let better = fraction * times;
    let more = if better < 1.0 {
        format!("--sample {better:.1e}, about {times:.0} times the work, should come within 5 %")
    } else {
        "omit --sample to count the whole board".to_owned()
    };
    Some(format!("this estimate is imprecise because the sample is small: {more}"))
}
