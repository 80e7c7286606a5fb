//! `worker estimate`.

use std::process::ExitCode;

use common::{
    crews::PlanNeeds,
    forecast::{Range, SECOND_COUNTS_MILLIONTHS, disk_bytes},
    plan::{BadSpec, Plan, PlanSpec},
    sample::CONFIDENCE,
};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use serde::Serialize;
use worker::{
    estimate::{MeasureFailure, Measured, Measurement, measure, plan_to_draw_from},
    memory::MemorySize,
};

use crate::{
    INTERRUPTED, USAGE,
    cli::Estimate,
    count_command::stop_flag,
    progress::{Progress, step},
    request::{BadRequest, Means},
    say::{fail, print, tell},
};

pub(crate) fn run(arguments: &Estimate) -> ExitCode {
    let prepared = match prepare(arguments) {
        Ok(prepared) => prepared,
        Err(bad) => return fail(USAGE, bad),
    };
    let mut random = ChaCha8Rng::seed_from_u64(arguments.seed);
    let mut random_below = |below| random.random_range(0..below);
    let mut progress = Progress::start(None);
    let mut show = |part| progress.show(part);
    let what = &prepared.measurement;
    let measured = measure(what, &mut random_below, &stop_flag(), &mut show);
    progress.finish();
    let measured = match measured {
        Ok(measured) => measured,
        Err(error @ MeasureFailure::Stopped) => return fail(INTERRUPTED, error),
        Err(error) => return fail(1, error),
    };
    let report = prepared.report(arguments, &measured);
    let text = if arguments.json {
        serde_json::to_string(&report).map_err(|error| error.to_string())
    } else {
        Ok(report.to_string())
    };
    let printed = text.and_then(|text| print(&text).map_err(|error| error.to_string()));
    printed.map_or_else(|error| fail(1, error), |()| ExitCode::SUCCESS)
}

/// A run, and what is measured of it.
struct Prepared {
    /// The plan that the run would have.
    plan: Plan,
    means: Means,
    measurement: Measurement,
}

fn prepare(arguments: &Estimate) -> Result<Prepared, BadRequest> {
    let means = Means::of(&arguments.resources);
    let Means {
        threads, memory, ..
    } = means;
    let choice = means.choice(arguments.n, (arguments.method, None))?;
    let dividing = format!("dividing the board of N = {} into tasks", arguments.n);
    let (plan, to_draw_from) = step(&dividing, || {
        let plan = Plan::new(PlanSpec::new(arguments.n, choice.layout))?;
        let smaller = plan_to_draw_from(plan.clone(), threads, arguments.budget)?;
        Ok::<_, BadSpec>((plan, smaller))
    })?;
    // As a worker divides itself for this plan.
    let crews = means.crews(&plan)?;
    tell(&format!(
        "measuring for up to {} s: {threads} threads, {memory}: {crews}",
        arguments.budget.as_secs()
    ));
    Ok(Prepared {
        plan,
        means,
        measurement: Measurement {
            plan: to_draw_from,
            crews,
            kernel: arguments.resources.kernel,
            budget: arguments.budget,
        },
    })
}

/// A share of all tasks, 0 to 1.
fn second_counts() -> f64 {
    f64::from(SECOND_COUNTS_MILLIONTHS) / 1e6
}

impl Prepared {
    fn report<'a>(&'a self, arguments: &Estimate, measured: &Measured) -> Report<'a> {
        let Self {
            plan,
            means,
            measurement,
        } = self;
        let spec = plan.spec();
        let Means {
            threads, memory, ..
        } = *means;
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let predicted = plan.task_costs().map(|cost| cost as f64 / 1e6).sum::<f64>();
        let ratio = measured.fit.ratio();
        let core_seconds = ratio.times(predicted);
        let with_second_counts = core_seconds.times(1.0 + second_counts());
        let cores = arguments
            .cores
            .map_or(threads.get(), std::num::NonZeroU32::get);
        let machine_hours = with_second_counts.times(1.0 / 3600.0 / f64::from(threads.get()));
        let needs = PlanNeeds::new(plan);
        let crews = measurement.crews.number();
        let each = measurement.crews.crew(0).threads;
        let all_at_once = f64::from(threads.get()) * measured.duration.as_secs_f64();
        Report {
            n: spec.board.n(),
            method: spec.layout.method().name(),
            kernel: measurement.kernel.name().as_str(),
            threads: threads.get(),
            crews,
            memory_bytes: memory.bytes(),
            memory_least_bytes: needs.least_bytes(threads.non_zero()),
            memory_whole_bytes: needs.whole_bytes(each).saturating_mul(crews.into()),
            tasks: plan.tasks(),
            core_seconds: core_seconds.into(),
            second_counts: second_counts(),
            cores,
            seconds_on_cores: with_second_counts.times(1.0 / f64::from(cores)).into(),
            disk_bytes: disk_bytes(plan.tasks(), second_counts()),
            watts: arguments.watts,
            energy_kwh: arguments
                .watts
                .map(|watts| machine_hours.times(watts / 1000.0).into()),
            speed: ratio.dividing(1.0).into(),
            confidence: CONFIDENCE,
            model: Model {
                tasks: measured.fit.tasks(),
                cut: measured.cut,
                ratio: ratio.expected,
                spread: measured.fit.spread(),
                within_twice: measured.fit.within_twice(),
            },
            seconds: measured.duration.as_secs_f64(),
            busy: measured.core_seconds / all_at_once,
        }
    }
}

/// The object that `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    n: u8,
    method: &'a str,
    kernel: &'a str,
    threads: u32,
    crews: u16,
    memory_bytes: u64,
    /// The least with which these threads count at all.
    memory_least_bytes: u64,
    /// With this much these crews need not cut their lists.
    memory_whole_bytes: u64,
    tasks: u64,
    /// Every task once.
    core_seconds: Interval,
    /// The part of the tasks that a run counts twice.
    second_counts: f64,
    cores: u32,
    /// With second counts.
    seconds_on_cores: Interval,
    /// At the coordinator.
    disk_bytes: u64,
    watts: Option<f64>,
    energy_kwh: Option<Interval>,
    /// Of one core, in cores of the reference machine.
    speed: Interval,
    confidence: f64,
    model: Model,
    seconds: f64,
    /// Which part of the threads' time they counted.
    busy: f64,
}

#[derive(Clone, Copy, Serialize)]
struct Interval {
    low: f64,
    expected: f64,
    high: f64,
}

impl From<Range> for Interval {
    fn from(range: Range) -> Self {
        Self {
            low: range.low,
            expected: range.expected,
            high: range.high,
        }
    }
}

/// How good the plan's costs were on the sample.
#[derive(Serialize)]
struct Model {
    tasks: usize,
    cut: usize,
    ratio: f64,
    spread: f64,
    within_twice: f64,
}

/// Below this, other programs or waiting crews took a part that people should know of.
const BUSY: f64 = 0.9;

impl std::fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = |bytes| MemorySize::at_least(bytes).to_string();
        let percent = |part: f64| part * 100.0;
        writeln!(
            f,
            "N = {}, method {}, kernel {}, {} threads",
            self.n, self.method, self.kernel, self.threads
        )?;
        writeln!(f, "core time  {}", time(self.core_seconds))?;
        let twice = percent(self.second_counts);
        let days = time(self.seconds_on_cores);
        let cores = self.cores;
        writeln!(
            f,
            "time       {days} on {cores} such cores, with {twice} % counted twice"
        )?;
        writeln!(
            f,
            "memory     {} for a worker like this one: {} at least,\n           {} for whole lists in {} \
             crew{}",
            size(self.memory_bytes),
            size(self.memory_least_bytes),
            size(self.memory_whole_bytes),
            self.crews,
            if self.crews == 1 { "" } else { "s" }
        )?;
        writeln!(f, "disk       {} at the coordinator", size(self.disk_bytes))?;
        #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
        let mean = self.core_seconds.expected / self.tasks as f64;
        writeln!(
            f,
            "tasks      {}, of {} of one core each in the mean",
            self.tasks,
            span(mean)
        )?;
        if let (Some(watts), Some(energy)) = (self.watts, self.energy_kwh) {
            let Interval {
                low,
                expected,
                high,
            } = energy;
            writeln!(
                f,
                "energy     {} kWh ({} to {}), at {watts} W for {} threads",
                digits(expected),
                digits(low),
                digits(high),
                self.threads
            )?;
        }
        let Model {
            tasks,
            cut,
            ratio,
            spread,
            within_twice,
        } = self.model;
        write!(
            f,
            "model      {ratio:.2} times the plan's costs in the mean of {tasks} tasks\n           ({cut} of \
             them stopped and carried on), spread {:.0} %,\n           {:.0} % within a factor of two; \
             ranges are of this sample, {:.0} % sure",
            percent(spread),
            percent(within_twice),
            percent(self.confidence)
        )?;
        if self.busy < BUSY {
            write!(
                f,
                "\nnote       this machine gave the threads {:.0} % of their time:\n           the figures are \
                 for cores that do nothing else",
                percent(self.busy)
            )?;
        }
        Ok(())
    }
}

/// `5.2 days (4.9 to 5.5)`, all three in one unit.
fn time(interval: Interval) -> String {
    let (unit, factor) = unit(interval.expected);
    format!(
        "{} {unit} ({} to {})",
        digits(interval.expected / factor),
        digits(interval.low / factor),
        digits(interval.high / factor)
    )
}

fn span(seconds: f64) -> String {
    let (unit, factor) = unit(seconds);
    format!("{} {unit}", digits(seconds / factor))
}

/// In what people say so many seconds.
fn unit(seconds: f64) -> (&'static str, f64) {
    match seconds {
        _ if seconds < 120.0 => ("s", 1.0),
        _ if seconds < 7_200.0 => ("minutes", 60.0),
        _ if seconds < 172_800.0 => ("hours", 3_600.0),
        _ => ("days", 86_400.0),
    }
}

/// As many digits as an estimate deserves.
fn digits(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ if value >= 0.1 || value <= 0.0 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_one_unit_with_few_digits() {
        let interval = |low, expected, high| Interval {
            low,
            expected,
            high,
        };
        for (given, text) in [
            (interval(0.5, 1.0, 2.0), "1.00 s (0.50 to 2.00)"),
            (
                interval(100.0, 600.0, 1200.0),
                "10.0 minutes (1.67 to 20.0)",
            ),
            (interval(8e7, 8.64e7, 1e8), "1000 days (926 to 1157)"),
        ] {
            assert_eq!(time(given), text);
        }
        assert_eq!(span(7_200.0), "2.00 hours");
    }
}
