//! The command line, read into validated types.

use std::{
    num::{NonZeroU16, NonZeroU32},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, Parser, Subcommand};
use common::{
    board::Board,
    choice::{KernelChoice, MethodChoice, Prefix},
    kernel::Kernel,
    method::UnknownName,
};
use worker::{
    config::{Threads, TimeLimit, duration, time_limit},
    environment::{self, Needs},
    log::LogFormat,
    memory::MemorySize,
    rules::{Hours, Rules},
    terminal::Manner,
};

const AFTER_HELP: &str = "\
Examples:
  worker --join @worker.join
      counts for a coordinator, with the string that it printed, from a file
  worker --coordinator http://127.0.0.1:7171 --threads 2 --idle-priority
      counts for the one of this machine, when nothing else wants the cores

Exit codes:
  0 done, 1 error, 2 bad usage, 3 the count contradicts the known one,
  130 interrupted";

const COUNT_EXAMPLES: &str = "\
Examples:
  worker count --n 18
      on all cores of this machine
  worker count --n 24 --sample 0.0005
      a two-thousandth of the work, and an estimate from it";

const ESTIMATE_EXAMPLES: &str = "\
Examples:
  worker estimate --n 22
      what N = 22 takes on this machine
  worker estimate --n 28 --cores 1000 --memory 4GiB --watts 250
      what N = 28 takes on a thousand cores like those of this machine";

const STOP_EXAMPLES: &str = "\
Examples:
  worker stop
      all that have a spool in the usual place
  worker stop --name rack-7
      the one of this name";

const KERNELS_EXAMPLES: &str = "\
Examples:
  worker kernels
      the first line is what --kernel auto takes";

/// Counts N-Queens solutions for a coordinator on all cores of this machine.
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
    pub(crate) manner: Manner,
}

const NEEDS: [Needs; 3] = [
    Needs {
        flag: "seed",
        other: "sample",
    },
    Needs {
        flag: "tls_cert",
        other: "tls_ca",
    },
    Needs {
        flag: "tls_key",
        other: "tls_ca",
    },
];

impl Cli {
    /// What this process was called with; ends it where that makes no sense.
    pub(crate) fn read() -> Self {
        environment::read(&NEEDS)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Count a board in this process alone, without a coordinator.
    #[command(after_help = COUNT_EXAMPLES)]
    Count(Count),
    /// Say what a run will take before it begins: counts a few tasks of its plan on this machine.
    #[command(after_help = ESTIMATE_EXAMPLES)]
    Estimate(Estimate),
    /// Stop the workers that run on this machine, in good order, and wait until they have: those with a
    /// spool directory in the usual place, or one of them.
    #[command(after_help = STOP_EXAMPLES)]
    Stop(Stop),
    /// Print the instruction sets that this CPU counts with, one a line, best first.
    #[command(after_help = KERNELS_EXAMPLES)]
    Kernels,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where the coordinator is: http://HOST:PORT, or https:// with --tls-ca.
    #[arg(long, value_name = "URL", conflicts_with = "join")]
    pub(crate) coordinator: Option<String>,
    #[command(flatten)]
    pub(crate) resources: Resources,
    #[command(flatten)]
    pub(crate) manners: Manners,
    /// The join string that the coordinator prints, or @FILE with it; better as QUEENS_JOIN:
    /// everybody on this machine can read command lines.
    #[arg(long, value_name = "STRING|@FILE")]
    pub(crate) join: Option<String>,
    /// The worker's name in lists [default: the host's name].
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Where results wait for their acknowledgement [default: a directory of the worker's name
    /// below $XDG_STATE_HOME/queens-spool, or below ./queens-spool].
    #[arg(long, value_name = "DIR")]
    pub(crate) spool: Option<PathBuf>,
    /// Stop in good order after this time, such as 3h, 90m or 1h30m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) drain_after: Option<Duration>,
    /// How long a stop takes at most: what can be counted until 15 s before is, the rest is given back.
    /// Whatever ends this worker has to wait longer than that.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "25s")]
    pub(crate) drain_limit: Duration,
    /// End after this time without work once the runs that this worker has counted for are over;
    /// 0: wait for the next run for ever.
    #[arg(long, value_name = "DURATION", value_parser = time_limit, default_value = "5m")]
    pub(crate) idle_timeout: TimeLimit,
    /// The certificates of the authority that signed the coordinator's, where it has --client-ca:
    /// TLS with certificates on both sides instead of a join string.
    #[arg(long, value_name = "FILE", requires_all = ["tls_cert", "tls_key", "coordinator"], conflicts_with = "insecure")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// This worker's certificate; a name in it says its role.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// How log lines look: text, or json for one object a line.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    /// Allow plain text to a coordinator on another machine.
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Resources {
    /// How many threads count [default: all cores].
    #[arg(long)]
    pub(crate) threads: Option<Threads>,
    /// What all threads together may hold, such as 8GiB or 1.5G [default: 80 % of what is free].
    #[arg(long, value_name = "BYTES", value_parser = MemorySize::of_option)]
    pub(crate) memory: Option<MemorySize>,
    /// How many crews the threads make, each counting one task with a share of the memory [default: as
    /// many as the memory holds].
    #[arg(long, value_name = "K")]
    pub(crate) crews: Option<NonZeroU16>,
    /// The instruction set: auto, scalar, avx2, avx512 or neon.
    #[arg(long, value_parser = kernel, default_value = "auto")]
    pub(crate) kernel: Kernel,
}

impl Resources {
    pub(crate) fn threads(&self) -> Threads {
        self.threads.unwrap_or_else(Threads::of_this_machine)
    }

    pub(crate) fn memory(&self) -> MemorySize {
        self.memory.unwrap_or_else(MemorySize::of_this_machine)
    }
}

/// How a worker behaves on a machine that has other things to do.
#[derive(Debug, Args)]
pub(crate) struct Manners {
    /// Take the processor and the disk only when nobody else wants them: nice 19, and on Linux
    /// SCHED_IDLE and the disk's idle class.
    #[arg(long)]
    pub(crate) idle_priority: bool,
    /// Count at these hours alone, by local time, such as 19:00-07:00 or 12:00-13:00,19:00-07:00.
    #[arg(long, value_name = "HOURS")]
    pub(crate) between: Option<Hours>,
    /// Count nothing while the machine runs on battery.
    #[arg(long)]
    pub(crate) pause_on_battery: bool,
    /// Count nothing while other programs use more than so many cores.
    #[arg(long, value_name = "CORES", allow_hyphen_values = true, value_parser = cores)]
    pub(crate) pause_on_load: Option<f64>,
    /// Where Linux tells of power supplies.
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) power_supplies: Option<PathBuf>,
}

impl Manners {
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            between: self.between.clone(),
            spare_battery: self.pause_on_battery,
            others: self.pause_on_load,
            power_supplies: self.power_supplies.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// The one with this spool directory.
    #[arg(long, value_name = "DIR", conflicts_with = "name")]
    pub(crate) spool: Option<PathBuf>,
    /// The one of this name.
    #[arg(long)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Count {
    /// The board's side, 1 to 32.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) n: Board,
    /// How to count: auto, rows or frames.
    #[arg(long, default_value = "auto")]
    pub(crate) method: MethodChoice,
    /// How `rows` divides the board: first-rows or border.
    #[arg(long)]
    pub(crate) prefix: Option<Prefix>,
    #[command(flatten)]
    pub(crate) resources: Resources,
    /// Count only this part of the predicted work, above 0 and at most 1, drawn at random, and
    /// estimate the rest.
    #[arg(long, value_name = "FRACTION", allow_hyphen_values = true, value_parser = fraction)]
    pub(crate) sample: Option<f64>,
    /// What the sample is drawn by: the same seed draws the same sample.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print one JSON object instead of a sentence.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Estimate {
    /// The board's side, 1 to 32.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) n: Board,
    /// How to count: auto, rows or frames.
    #[arg(long, default_value = "auto")]
    pub(crate) method: MethodChoice,
    /// How many cores like this machine's the run will have [default: as many as --threads].
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub(crate) cores: Option<NonZeroU32>,
    #[command(flatten)]
    pub(crate) resources: Resources,
    /// How long measuring may take; small boards need less.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s")]
    pub(crate) budget: Duration,
    /// What this machine draws from the wall while all its threads count, in watts.
    #[arg(long, value_name = "W", allow_hyphen_values = true, value_parser = watts)]
    pub(crate) watts: Option<f64>,
    /// What the tasks are drawn by: the same seed draws the same tasks.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    pub(crate) json: bool,
}

fn watts(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|watts: &f64| *watts > 0.0 && watts.is_finite())
        .ok_or_else(|| "watts are a number above 0, such as 250".to_owned())
}

fn cores(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|cores: &f64| *cores > 0.0 && cores.is_finite())
        .ok_or_else(|| "cores are a number above 0, such as 1.5".to_owned())
}

fn kernel(text: &str) -> Result<Kernel, String> {
    let choice: KernelChoice = text
        .parse()
        .map_err(|unknown: UnknownName| unknown.to_string())?;
    choice.kernel().map_err(|missing| missing.to_string())
}

fn fraction(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|fraction| *fraction > 0.0 && *fraction <= 1.0)
        .ok_or_else(|| "a fraction is a number above 0 and at most 1, such as 0.01".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_examples_that_it_takes() {
        environment::check_examples::<Cli>(&NEEDS);
    }
}
