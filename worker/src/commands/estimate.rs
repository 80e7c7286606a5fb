//! `worker estimate`.

use std::{fmt, num::NonZeroU32, process::ExitCode};

use cli::{exit::Exit, memory::MemorySize, terminal::eprint_line};
use common::{
    crew_layout::PlanNeeds,
    estimate::{
        forecast::{RECHECK_FRACTION, Range, core_seconds, disk_bytes},
        sample::CONFIDENCE,
    },
    plan::{BadSpec, Plan, PlanSpec},
    text::plural,
};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use serde::Serialize;
use worker::{
    config::ComputeBudget,
    devices::list,
    local::estimate::{MeasureFailure, Measured, measure, plan_to_measure},
};

use super::{
    BadRequest, Progress, choice, fail, finish, interruption,
    options::{BoardOptions, Estimate, Resources},
    print, print_json, step,
};

pub(crate) async fn run(arguments: &Estimate) -> ExitCode {
    let budget = arguments.board.resources.budget();
    let (plan, to_sample) = match plans(arguments, &budget) {
        Ok(plans) => plans,
        Err(bad) => return fail(Exit::Usage, bad),
    };
    let Resources { device, device_memory, .. } = &arguments.board.resources;
    let devices = match device.open(*device_memory) {
        Ok(devices) => devices,
        Err(why) => return fail(Exit::Usage, why),
    };
    let what = (&to_sample, budget, &*devices, arguments.budget);
    let mut random = ChaCha8Rng::seed_from_u64(arguments.board.seed);
    let mut random_below = |below| random.random_range(0..below);
    let mut progress = Progress::start(None);
    let mut show = |part| progress.show(part);
    let measured = measure(what, &mut random_below, interruption(), &mut show).await;
    drop(progress);
    let report = match measured {
        Ok(measured) => {
            Report { device: list(&devices), ..Report::new(arguments, &plan, &budget, &measured) }
        }
        Err(error @ MeasureFailure::Stopped) => return fail(Exit::Interrupted, error),
        Err(error) => return fail(Exit::Error, error),
    };
    finish(if arguments.board.json { print_json(&report) } else { print(&report.to_string()) })
}

/// Returns the plan of the run, and one whose tasks are small enough to measure.
fn plans(arguments: &Estimate, budget: &ComputeBudget) -> Result<(Plan, Plan), BadRequest> {
    let BoardOptions { n, method, .. } = arguments.board;
    let choice = choice(budget, n, method, None)?;
    let (plan, smaller) = step(&format!("planning tasks for N = {n}"), || {
        let plan = Plan::new(PlanSpec::new(n, choice.layout))?;
        let smaller = plan_to_measure(plan.clone(), budget.threads, arguments.budget)?;
        Ok::<_, BadSpec>((plan, smaller))
    })?;
    eprint_line(&format!(
        "measuring for up to {} s: {}, {}: {}",
        arguments.budget.as_secs(),
        plural(budget.threads.get(), "thread"),
        budget.memory,
        budget.crews(&plan)?
    ));
    Ok((plan, smaller))
}

/// The result, in the form that `--json` prints.
#[derive(Serialize)]
struct Report {
    n: u8,
    method: &'static str,
    kernel: &'static str,
    /// Names of the devices that counted beside the CPU; empty without any.
    device: String,
    threads: u32,
    crews: u16,
    memory_bytes: u64,
    /// Minimum memory for these threads.
    memory_least_bytes: u64,
    /// Memory in which these crews can hold whole lists.
    memory_whole_bytes: u64,
    tasks: u64,
    /// Core time without rechecks.
    core_seconds: Range,
    /// Fraction of the tasks that is rechecked.
    recheck_fraction: f64,
    cores: u32,
    /// Time on the given cores, with rechecks.
    seconds_on_cores: Range,
    /// Disk space of the coordinator.
    disk_bytes: u64,
    watts: Option<f64>,
    energy_kwh: Option<Range>,
    /// Speed of one core in cores of the reference machine.
    speed: Range,
    confidence: f64,
    model: Model,
    seconds: f64,
    /// Fraction of the threads' time in which they had a core.
    busy: f64,
}

/// Accuracy of the plan's costs on the sample.
#[derive(Serialize)]
struct Model {
    tasks: usize,
    cut: usize,
    ratio: f64,
    spread: f64,
    within_twice: f64,
}

impl Report {
    fn new(arguments: &Estimate, plan: &Plan, budget: &ComputeBudget, measured: &Measured) -> Self {
        let (spec, fit) = (plan.spec(), &measured.fit);
        let threads = budget.threads.get();
        let core_seconds = measured.ratio().scaled(core_seconds(plan));
        let with_rechecks = core_seconds.scaled(1.0 + RECHECK_FRACTION);
        let cores = arguments.cores.map_or(threads, NonZeroU32::get);
        let machine_hours = with_rechecks.scaled(1.0 / 3600.0 / f64::from(threads));
        let needs = PlanNeeds::new(plan);
        let (crews, members) = budget.crews(plan).map_or((1, budget.threads.non_zero()), |crews| {
            (crews.number(), crews.crew(0).threads)
        });
        Self {
            n: spec.board.n(),
            method: spec.layout.method().name(),
            kernel: budget.kernel.name().as_str(),
            device: String::new(),
            threads,
            crews,
            memory_bytes: budget.memory.bytes(),
            memory_least_bytes: needs.of(budget.threads.non_zero()).least,
            memory_whole_bytes: needs.of(members).whole.saturating_mul(crews.into()),
            tasks: plan.tasks(),
            core_seconds,
            recheck_fraction: RECHECK_FRACTION,
            cores,
            seconds_on_cores: with_rechecks.scaled(1.0 / f64::from(cores)),
            disk_bytes: disk_bytes(plan.tasks()),
            watts: arguments.watts,
            energy_kwh: arguments.watts.map(|watts| machine_hours.scaled(watts / 1000.0)),
            speed: measured.ratio().recip_scaled(1.0),
            confidence: CONFIDENCE,
            model: Model {
                tasks: fit.tasks(),
                cut: measured.cut,
                ratio: fit.ratio().expected,
                spread: fit.spread(),
                within_twice: fit.within_twice(),
            },
            seconds: measured.duration.as_secs_f64(),
            busy: measured.busy,
        }
    }
}

/// Busy fraction below which a note explains that the threads lacked CPU time.
const BUSY: f64 = 0.9;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes| MemorySize::at_least(bytes).to_string();
        let percent = |fraction: f64| fraction * 100.0;
        let Self { n, method, kernel, .. } = self;
        let [threads, cores] = [(self.threads, "thread"), (self.cores, "such core")]
            .map(|(number, noun)| plural(number, noun));
        write!(f, "N = {n}, method {method}, kernel {kernel}, {threads}")?;
        match self.device.as_str() {
            "" => writeln!(f)?,
            device => writeln!(f, ", some of them for {device}")?,
        }
        writeln!(f, "core time  {}", time(self.core_seconds))?;
        let (duration, rechecked) = (time(self.seconds_on_cores), percent(self.recheck_fraction));
        writeln!(f, "time       {duration} on {cores}, with {rechecked} % rechecked")?;
        writeln!(
            f,
            "memory     {} for a worker like this one: {} at least,\n           {} for whole lists in {}",
            size(self.memory_bytes),
            size(self.memory_least_bytes),
            size(self.memory_whole_bytes),
            plural(self.crews, "crew"),
        )?;
        writeln!(f, "disk       {} at the coordinator", size(self.disk_bytes))?;
        #[expect(clippy::cast_precision_loss, reason = "a mean for display")]
        let mean = self.core_seconds.expected / self.tasks as f64;
        writeln!(f, "tasks      {}, on average {} of one core each", self.tasks, span(mean))?;
        if let (Some(watts), Some(Range { low, expected, high })) = (self.watts, self.energy_kwh) {
            writeln!(
                f,
                "energy     {} kWh ({} to {}), at {watts} W for {threads}",
                digits(expected),
                digits(low),
                digits(high),
            )?;
        }
        let Model { tasks, cut, ratio, spread, within_twice } = self.model;
        write!(
            f,
            "model      {ratio:.2} times the plan's costs, mean of {tasks} tasks\n           ({cut} of \
             them stopped and extrapolated), spread {:.0} %,\n           {:.0} % within a factor of two; \
             ranges at {:.0} % confidence",
            percent(spread),
            percent(within_twice),
            percent(self.confidence)
        )?;
        if self.busy < BUSY {
            write!(
                f,
                "\nnote       this machine gave the threads {:.0} % of their time:\n           the figures are \
                 for cores without other work",
                percent(self.busy)
            )?;
        }
        Ok(())
    }
}

/// Formats all three values in one unit: `5.2 days (4.9 to 5.5)`.
fn time(range: Range) -> String {
    let (unit, factor) = unit(range.expected);
    let [expected, low, high] =
        [range.expected, range.low, range.high].map(|value| digits(value / factor));
    format!("{expected} {unit} ({low} to {high})")
}

fn span(seconds: f64) -> String {
    let (unit, factor) = unit(seconds);
    format!("{} {unit}", digits(seconds / factor))
}

/// Returns the unit for a time, and its length in seconds.
fn unit(seconds: f64) -> (&'static str, f64) {
    match seconds {
        _ if seconds < 120.0 => ("s", 1.0),
        _ if seconds < 7_200.0 => ("minutes", 60.0),
        _ if seconds < 172_800.0 => ("hours", 3_600.0),
        _ => ("days", 86_400.0),
    }
}

/// Formats a value with two or three significant digits, and every integer digit.
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
    fn times_have_one_unit_and_few_digits() {
        let range = |low, expected, high| Range { low, expected, high };
        for (given, text) in [
            (range(0.5, 1.0, 2.0), "1.00 s (0.50 to 2.00)"),
            (range(100.0, 600.0, 1200.0), "10.0 minutes (1.67 to 20.0)"),
            (range(8e7, 8.64e7, 1e8), "1000 days (926 to 1157)"),
        ] {
            assert_eq!(time(given), text);
        }
        assert_eq!(span(7_200.0), "2.00 hours");
    }
}
