//! Command-line options, parsed into validated types.

use std::{
    num::{NonZeroU16, NonZeroU32},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, Parser, Subcommand};
use cli::{
    duration::{TimeLimit, duration, time_limit},
    environment::{self, FlagDependency},
    memory::MemorySize,
    terminal::{LogFormat, TerminalOptions},
    threads::{Threads, at_least_one},
};
use common::{
    board,
    choice::{KernelChoice, MethodChoice, RowsLayout},
    compute::kernel::Kernel,
    method::UnknownName,
    text::worker_name,
};
use proto::connect::ConnectionOptions;
use worker::{availability::Rules, config::ComputeBudget, devices::DeviceChoice, package::Part};

const AFTER_HELP: &str = "\
Examples:
  worker --join @worker.join
      count for a coordinator, with its join string from a file
  worker --threads 2 --idle-priority
      count at idle priority for the coordinator started in this directory

Exit codes:
  0 done, 1 error, 2 invalid usage, 3 the count contradicts the published one,
  130 interrupted";

const COUNT_EXAMPLES: &str = "\
Examples:
  worker count --n 18
      count on all cores of this machine
  worker count --n 24 --sample 0.0005
      count 0.05 % of the work and estimate the total";

const ESTIMATE_EXAMPLES: &str = "\
Examples:
  worker estimate --n 22
      estimate the time for N = 22 on this machine
  worker estimate --n 22 --seed 2
      estimate it again from another sample of tasks
  worker estimate --n 28 --cores 1000 --memory 4GiB --watts 250
      estimate the time for N = 28 on a thousand cores like these";

const CHECKOUT_EXAMPLES: &str = "\
Examples:
  worker checkout --join @worker.join --core-hours 500 -o lab.package
      take 500 core-hours of work away for 14 days
  worker checkout N=24 --join @worker.join --tasks 100 --expires 3d -o stick.package
      take 100 tasks of a run away for three days";

const RUN_EXAMPLES: &str = "\
Examples:
  worker run lab.package
      count the package into lab.results, or continue
  worker run lab.package --part 3/10
      count a tenth of the package into lab.3-of-10.results

Exit codes:
  0 all counted, 1 error, 2 invalid usage, 130 interrupted";

const SUBMIT_EXAMPLES: &str = "\
Examples:
  worker submit --join @worker.join lab.results
      submit the results, and release the other tasks of the package
  worker submit --join @worker.join --keep lab.1-of-10.results lab.2-of-10.results
      submit two parts, and keep the tasks of the others";

const STOP_EXAMPLES: &str = "\
Examples:
  worker stop
      stop all workers with a spool in the default directory
  worker stop --name rack-7
      stop the worker of this name";

const KERNELS_EXAMPLES: &str = "\
Examples:
  worker kernels
      list the kernels of this CPU; --kernel auto selects the first one";

const DEVICES_EXAMPLES: &str = "\
Examples:
  worker devices
      list the devices; --device 0 selects the first one, --device h100 by name";

/// Count N-Queens solutions for a coordinator on all cores of this machine.
#[derive(Debug, Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = AFTER_HELP
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: Serve,
    #[command(flatten)]
    pub(crate) terminal: TerminalOptions,
}

const NEEDS: [FlagDependency; 2] = [
    FlagDependency { flags: &["seed"], other: "sample" },
    FlagDependency { flags: &["tls_cert", "tls_key"], other: "tls_ca" },
];

impl Cli {
    /// Parses the command line; exits on invalid usage.
    pub(crate) fn read() -> Self {
        environment::read(&NEEDS, &[])
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Count a board in this process alone, without a coordinator.
    #[command(after_help = COUNT_EXAMPLES)]
    Count(Count),
    /// Estimate the run time by counting a sample of tasks on this machine.
    #[command(after_help = ESTIMATE_EXAMPLES)]
    Estimate(Estimate),
    /// Take tasks away in a file, for machines that cannot reach the coordinator.
    #[command(after_help = CHECKOUT_EXAMPLES)]
    Checkout(Checkout),
    /// Count the tasks of a package, without a network or a secret.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Run),
    /// Submit the results of packages; repeating it does no harm.
    #[command(after_help = SUBMIT_EXAMPLES)]
    Submit(Submit),
    /// Gracefully stop the workers on this machine and wait for them to exit: all with a spool in the
    /// default directory, or one of them.
    #[command(after_help = STOP_EXAMPLES)]
    Stop(Stop),
    /// List the OpenCL devices of this machine, and whether they pass the self-test.
    #[command(after_help = DEVICES_EXAMPLES)]
    Devices,
    /// List the instruction sets that this CPU supports, one per line, fastest first.
    #[command(after_help = KERNELS_EXAMPLES)]
    Kernels,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Name of the worker: 1 to 64 letters, digits, '.', '_' and '-' [default: the host name, with the
    /// number of the default spool directory].
    #[arg(long, value_parser = worker_name)]
    pub(crate) name: Option<String>,
    /// Directory for results that are not yet acknowledged [default: a directory of the worker's name
    /// below $XDG_STATE_HOME/queens-spool, or below ./queens-spool].
    #[arg(long, value_name = "DIR")]
    pub(crate) spool: Option<PathBuf>,
    /// Exit after this time without work once all runs are finished, if this worker has tried a
    /// task; 0 waits indefinitely.
    #[arg(long, value_name = "DURATION", value_parser = time_limit, default_value = "5m")]
    pub(crate) idle_timeout: TimeLimit,
    #[command(flatten)]
    pub(crate) connection: ConnectionOptions,
    #[command(flatten)]
    pub(crate) engine: Engine,
}

/// Options of a worker, whether or not it is connected.
#[derive(Debug, Args)]
pub(crate) struct Engine {
    /// Shut down gracefully after this time, such as 3h, 90m or 1h30m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) drain_after: Option<Duration>,
    /// Grace period for a shutdown. Tasks that will finish at least 15 s before its end are completed;
    /// the others are released. Set the service manager's kill timeout higher than this.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "25s")]
    pub(crate) drain_limit: Duration,
    /// Log format: text, or json for one object per line.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    #[command(flatten)]
    pub(crate) resources: Resources,
    /// Run at idle CPU and I/O priority: nice 19, and on Linux SCHED_IDLE and the idle I/O class.
    #[arg(help_heading = "Other uses of this machine", long)]
    pub(crate) idle_priority: bool,
    #[command(flatten)]
    pub(crate) rules: Rules,
}

/// Options of `worker checkout`.
#[derive(Debug, Args)]
pub(crate) struct Checkout {
    /// Run: the first digits of its ID, or N=20 [default: the run that is served first].
    #[arg(value_name = "RUN", default_value = "", hide_default_value = true)]
    pub(crate) run: String,
    /// Work to take away, in hours of one reference core [default: up to the coordinator's limit].
    #[arg(long, value_name = "H", allow_hyphen_values = true, value_parser = core_hours)]
    pub(crate) core_hours: Option<f64>,
    /// Number of tasks to take away [default: up to the coordinator's limit].
    #[arg(long, value_name = "K", allow_hyphen_values = true, value_parser = at_least_one::<NonZeroU32>)]
    pub(crate) tasks: Option<NonZeroU32>,
    /// Time until the promised return. Afterwards, and at the end of the run, other workers get the tasks.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "14d")]
    pub(crate) expires: Duration,
    /// File of the package; its secret is stored beside it.
    #[arg(short, long, value_name = "FILE", default_value = "queens.package")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) connection: ConnectionOptions,
}

/// Options of `worker run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// File of `worker checkout`.
    #[arg(value_name = "PACKAGE")]
    pub(crate) package: PathBuf,
    /// Count only every M-th task, from the I-th on, such as 3/10.
    #[arg(long, value_name = "I/M")]
    pub(crate) part: Option<Part>,
    /// File of the results; an existing one is continued [default: PACKAGE with the extension results].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// File that contains the counted fraction, 0 to 1, updated once per second.
    #[arg(long, value_name = "FILE")]
    pub(crate) progress: Option<PathBuf>,
    /// Count also after the promised return.
    #[arg(long)]
    pub(crate) late: bool,
    #[command(flatten)]
    pub(crate) engine: Engine,
}

/// Options of `worker submit`.
#[derive(Debug, Args)]
pub(crate) struct Submit {
    /// Files of `worker run`, in any order.
    #[arg(required = true, value_name = "RESULTS")]
    pub(crate) results: Vec<PathBuf>,
    /// The package, with its secret beside it [default: the one beside the results or in this directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) package: Option<PathBuf>,
    /// Keep the tasks without results until the promised return, instead of releasing them.
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Resources")]
pub(crate) struct Resources {
    /// Number of counting threads [default: all CPUs, with those of SMT].
    #[arg(long)]
    pub(crate) threads: Option<Threads>,
    /// Memory limit for all threads together, such as 8GiB or 1.5G [default: 80 % of the free
    /// memory]. A board takes what it needs for full speed, and leaves at least a fifth of the
    /// free memory.
    #[arg(long, value_name = "BYTES", value_parser = MemorySize::of_option)]
    pub(crate) memory: Option<MemorySize>,
    /// Number of crews (groups of threads that share one task and its memory) [default: as many as the
    /// memory allows].
    #[arg(long, value_name = "K", allow_hyphen_values = true, value_parser = at_least_one::<NonZeroU16>)]
    pub(crate) crews: Option<NonZeroU16>,
    /// Instruction set: auto, scalar, avx2, avx512 or neon.
    #[arg(long, value_parser = kernel, default_value = "auto")]
    pub(crate) kernel: Kernel,
    /// OpenCL devices to count on too, each with two to four of the threads: auto (every GPU that passes its self-test),
    /// none, or indices or parts of names of `worker devices`, separated by commas.
    #[arg(long, value_name = "DEVICE", default_value = "none")]
    pub(crate) device: DeviceChoice,
    /// Memory limit on each device [default: 80 % of its memory].
    #[arg(long, value_name = "BYTES", value_parser = MemorySize::of_option)]
    pub(crate) device_memory: Option<MemorySize>,
}

impl Resources {
    /// Fills in missing options with the free resources of this machine.
    pub(crate) fn budget(&self) -> ComputeBudget {
        ComputeBudget {
            threads: self.threads.unwrap_or_else(Threads::of_this_machine),
            memory: self.memory.unwrap_or_else(MemorySize::of_this_machine),
            crews: self.crews,
            kernel: self.kernel,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// Stop the worker with this spool directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) spool: Option<PathBuf>,
    /// Stop the worker of this name.
    #[arg(long, value_parser = worker_name)]
    pub(crate) name: Option<String>,
}

/// Options of the commands that count without a coordinator.
#[derive(Debug, Args)]
pub(crate) struct BoardOptions {
    /// Board size, 1 to 32.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) n: board::Board,
    /// Counting method: auto, rows or frames.
    #[arg(long, default_value = "auto")]
    pub(crate) method: MethodChoice,
    /// Random seed of the sample (same seed, same sample).
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct Count {
    #[command(flatten)]
    pub(crate) board: BoardOptions,
    /// Division of the board by method rows: first-rows or border.
    #[arg(long)]
    pub(crate) layout: Option<RowsLayout>,
    /// Count only a random sample of this fraction of the predicted work, above 0 and at most 1, and
    /// estimate the total.
    #[arg(long, value_name = "FRACTION", allow_hyphen_values = true, value_parser = fraction)]
    pub(crate) sample: Option<f64>,
}

#[derive(Debug, Args)]
pub(crate) struct Estimate {
    #[command(flatten)]
    pub(crate) board: BoardOptions,
    /// Number of cores of the run, each like one of this machine [default: --threads].
    #[arg(long, value_name = "K", allow_hyphen_values = true, value_parser = at_least_one::<NonZeroU32>)]
    pub(crate) cores: Option<NonZeroU32>,
    /// Time limit of the measurement; small boards need less.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s")]
    pub(crate) budget: Duration,
    /// Power consumption of this machine under full load, in watts.
    #[arg(long, value_name = "W", allow_hyphen_values = true, value_parser = watts)]
    pub(crate) watts: Option<f64>,
}

/// Parses a positive number that `is_valid` accepts.
fn number(text: &str, is_valid: fn(f64) -> bool, expected: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| *number > 0.0 && is_valid(*number));
    number.ok_or_else(|| format!("expected a number {expected}"))
}

fn watts(text: &str) -> Result<f64, String> {
    number(text, f64::is_finite, "above 0, such as 250")
}

fn core_hours(text: &str) -> Result<f64, String> {
    number(text, f64::is_finite, "above 0, such as 500")
}

fn fraction(text: &str) -> Result<f64, String> {
    number(text, |fraction| fraction <= 1.0, "above 0 and at most 1, such as 0.01")
}

fn kernel(text: &str) -> Result<Kernel, String> {
    let choice: KernelChoice = text.parse().map_err(|unknown: UnknownName| unknown.to_string())?;
    choice.kernel().map_err(|missing| missing.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_a_variable_and_every_command_examples() {
        cli::documents::check_examples::<Cli>(&NEEDS);
    }
}
