//! The command line of `coordinator`.

use std::{num::NonZeroU64, path::PathBuf, time::Duration};

use super::{address::Advertised, data::Asked};
#[cfg(feature = "archive")]
use crate::store::ArchivePlace;
use crate::{driver::LOCAL_WORKER, ledger::Recheck, store::StoreUrl};
use clap::Parser;
use common::{
    board::Board,
    choice::{BadChoice, KernelChoice, MethodChoice, Prefix, choose},
    crews::Machine,
    kernel::{Kernel, MissingKernel},
    plan::{BadSpec, Plan, PlanSpec},
};
use worker::{
    config::{Address, SpoolChoice, Threads, TooLittleMemory, WorkerConfig, crews, machine},
    environment::{self, Needs},
    log::LogFormat,
    memory::MemorySize,
    terminal::Manner,
};

/// The worker in this process may finish what it counts for so long once it is told to stop: people
/// wait for it.
const LOCAL_DRAIN: Duration = Duration::from_secs(2);

/// Counts the solutions of the N-Queens problem with every worker that connects: splits the board
/// into tasks, keeps every result on disk, and resumes where it stopped.
#[derive(Clone, Debug, Parser)]
#[command(name = "coordinator", version, after_help = AFTER_HELP)]
pub struct Options {
    /// The board's side, 1 to 32: starts a run, or resumes it from the data directory, which holds
    /// any number of runs. Without it the runs of the data directory are served
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub n: Option<Board>,

    /// How to count: auto, rows or frames
    #[arg(long, default_value = "auto")]
    pub method: MethodChoice,

    /// How method rows divides the board: first-rows or border
    #[arg(long, value_name = "LAYOUT")]
    pub prefix: Option<Prefix>,

    /// How much work a task holds, in microseconds of one core [default: by N]
    #[arg(long, value_name = "MICROSECONDS", value_parser = task_cost)]
    pub task_cost: Option<NonZeroU64>,

    /// Starts another run of the board, although the data directory holds one
    #[arg(long)]
    pub again: bool,

    /// Where runs and results are kept
    #[arg(long, value_name = "DIR", default_value = "queens-data")]
    pub data_dir: PathBuf,

    /// Keep runs, results and keys in a PostgreSQL database instead of --data-dir, such as
    /// postgres://USER@HOST/DATABASE, or @FILE with that. Waits while another coordinator leads there,
    /// and takes over when that one is gone. With a password only as QUEENS_STORE or @FILE
    #[arg(long, value_name = "URL|@FILE")]
    pub store: Option<StoreUrl>,

    /// Also copy the data directory to this one, on another disk, or to a bucket, as it grows:
    /// `queensctl restore` brings it back, but for what was kept in the last seconds. A bucket's keys
    /// are read from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT
    #[cfg(feature = "archive")]
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX", conflicts_with = "store")]
    pub archive: Option<ArchivePlace>,

    /// Where workers find the other coordinators of the same --store: goes into join strings
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub peer: Vec<String>,

    /// Where to serve gRPC; port 0 takes a free one [default: 127.0.0.1:7171; with --local a free
    /// port if that is taken]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,

    /// Where to serve the HTTP interface and metrics; port 0 takes a free one [default:
    /// 127.0.0.1:7172; with --local nowhere]
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "no_http")]
    pub http: Option<String>,

    /// Serve no HTTP
    #[arg(long)]
    pub no_http: bool,

    /// By what name or address other machines reach this one [default: that of its default route]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub advertise: Option<Advertised>,

    /// Also count in this process, and exit when the run is done
    #[arg(long)]
    pub local: bool,

    /// Threads that count in this process [default: all cores]
    #[arg(long, value_name = "T")]
    pub threads: Option<Threads>,

    /// Memory that counting in this process may use, such as 8GiB [default: 80 % of what is free]
    #[arg(long, value_name = "BYTES", value_parser = MemorySize::of_option)]
    pub memory: Option<MemorySize>,

    /// Kernel that counts in this process: auto, scalar, avx2, avx512 or neon
    #[arg(long, value_name = "KERNEL", default_value = "auto")]
    pub kernel: KernelChoice,

    /// How much is counted a second time, by another machine where there is one: auto (2 % of the
    /// tasks, and every worker's first counts), all, or a fraction such as 0.1 [default: auto]
    #[arg(long, value_name = "PART", requires = "n")]
    pub recheck: Option<Recheck>,

    /// Exit when the run is done instead of serving on
    #[arg(long)]
    pub exit_when_done: bool,

    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,

    /// A program to run when a run is complete, counts are in dispute, or something is wrong: it is told
    /// by QUEENS_EVENT, _KIND, _RUN, _N and _TEXT and by a line of JSON on its standard input
    #[arg(long, value_name = "PROGRAM")]
    pub on_event: Option<PathBuf>,

    /// How log lines look: text, or json for one object a line
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: LogFormat,

    /// Speak plain text and let everybody in, whoever reaches the port
    #[arg(long, conflicts_with = "require_token")]
    pub insecure: bool,

    /// Ask for tokens (or certificates) on this machine too, where many users have accounts
    #[arg(long)]
    pub require_token: bool,

    /// The server's certificate (PEM, with its chain), made by an authority that you run: instead of
    /// join strings, callers show certificates too
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Who signs callers' certificates (PEM); a name in each says its holder's role, such as
    /// spiffe://lab.example/queens/worker/NAME
    #[arg(
        long,
        value_name = "FILE",
        requires_all = ["tls_cert", "tls_key"],
        conflicts_with = "insecure"
    )]
    pub client_ca: Option<PathBuf>,

    /// How long a lease lasts after the worker's last call, in milliseconds
    #[arg(long, value_name = "MS", default_value = "300000", value_parser = clap::value_parser!(u64).range(100..=86_400_000))]
    pub lease_ms: u64,

    /// The shortest regular time between two calls of a worker, in milliseconds
    #[arg(long, value_name = "MS", default_value = "15000", value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub sync_ms: u64,

    /// How the program behaves on a terminal
    #[command(flatten)]
    pub manner: Manner,
}

const AFTER_HELP: &str = "\
Examples:
  coordinator --n 16 --local
      counts N = 16 on this machine alone
  coordinator --n 20 --listen 0.0.0.0:7171
      starts N = 20, or goes on with it, for workers on any machine; prints the
      line to paste on them

Exit codes:
  0 complete, 1 error, 2 bad usage, 3 the total contradicts a check,
  130 interrupted: everything is saved, the same command goes on";

/// A run that the command line asks for and that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// What was asked for cannot be had.
    #[error(transparent)]
    Choice(#[from] BadChoice),
    /// This process cannot count the board.
    #[error(transparent)]
    Memory(#[from] TooLittleMemory),
    /// No plan exists for the parameters.
    #[error(transparent)]
    Spec(#[from] BadSpec),
    /// The kernel asked for is not this CPU's.
    #[error(transparent)]
    Kernel(#[from] MissingKernel),
}

/// What counts only for a run that is asked for, for counting in this process, or for callers with
/// certificates.
const NEEDS: [Needs; 10] = [
    Needs {
        flag: "peer",
        other: "store",
    },
    Needs {
        flag: "tls_cert",
        other: "client_ca",
    },
    Needs {
        flag: "tls_key",
        other: "client_ca",
    },
    Needs {
        flag: "method",
        other: "n",
    },
    Needs {
        flag: "prefix",
        other: "n",
    },
    Needs {
        flag: "task_cost",
        other: "n",
    },
    Needs {
        flag: "again",
        other: "n",
    },
    Needs {
        flag: "threads",
        other: "local",
    },
    Needs {
        flag: "memory",
        other: "local",
    },
    Needs {
        flag: "kernel",
        other: "local",
    },
];

impl Options {
    /// Reads the command line and the environment; ends the process where they make no sense.
    pub fn read() -> Self {
        environment::read(&NEEDS)
    }

    /// The plan of the run asked for, if one is.
    pub fn plan(&self) -> Result<Option<Plan>, BadRequest> {
        let Some(board) = self.n else { return Ok(None) };
        let chosen = choose(board, self.method, self.prefix, self.machine());
        let choice = chosen.map_err(|bad| match bad {
            BadChoice::Memory { least, .. } => {
                TooLittleMemory::new(Some(board), self.memory(), self.threads(), least).into()
            }
            bad @ BadChoice::PrefixOfFrames => BadRequest::from(bad),
        })?;
        if self.method == MethodChoice::Auto {
            tracing::info!("{}", choice.reason);
        }
        let spec = PlanSpec::new(board, choice.layout);
        let spec = match self.task_cost {
            Some(cost) => PlanSpec {
                task_cost: cost.get(),
                ..spec
            },
            None => spec,
        };
        let plan = Plan::new(spec)?;
        if self.local {
            crews(&plan, self.memory(), self.threads(), None)?;
        }
        Ok(Some(plan))
    }

    /// What the command line says of the run whose plan has this spec.
    pub(super) fn asked(&self, spec: PlanSpec) -> Asked {
        let chosen = self.method != MethodChoice::Auto || self.prefix.is_some();
        Asked {
            spec,
            layout: chosen.then_some(spec.layout),
            task_cost: self.task_cost.map(NonZeroU64::get),
        }
    }

    /// The kernel that counts in this process, if one is to.
    pub fn local_kernel(&self) -> Result<Option<Kernel>, MissingKernel> {
        self.local.then(|| self.kernel.kernel()).transpose()
    }

    /// The worker of this process, for the coordinator at this address.
    pub(super) fn local_worker(&self, coordinator: Address, kernel: Kernel) -> WorkerConfig {
        let usual = WorkerConfig::new(coordinator);
        WorkerConfig {
            threads: self.threads.unwrap_or(usual.threads),
            memory: self.memory.unwrap_or(usual.memory),
            kernel,
            name: Some("local".to_owned()),
            // It ends with the coordinator, which keeps every result that it acknowledged.
            spool: SpoolChoice::Memory,
            id: Some(LOCAL_WORKER),
            drain_limit: LOCAL_DRAIN,
            ..usual
        }
    }

    /// For people: where runs and results are kept.
    pub(super) fn place(&self) -> String {
        match &self.store {
            Some(url) => url.to_string(),
            None => self.data_dir.display().to_string(),
        }
    }

    /// How long a worker may stay away before its next call, as good as.
    pub(super) fn longest_sync(&self) -> Duration {
        Duration::from_millis(self.sync_ms) * 3 / 2 + Duration::from_secs(1)
    }

    /// What counts here, if something does; nobody knows the workers to come.
    fn machine(&self) -> Option<Machine> {
        self.local
            .then(|| machine(self.memory(), self.threads(), None))
    }

    fn threads(&self) -> Threads {
        self.threads.unwrap_or_else(Threads::of_this_machine)
    }

    fn memory(&self) -> MemorySize {
        self.memory.unwrap_or_else(MemorySize::of_this_machine)
    }

    /// Whether the process ends with the run.
    pub fn exits_when_done(&self) -> bool {
        self.exit_when_done || self.local
    }
}

/// Reads `--task-cost`.
pub fn task_cost(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| {
        format!("'{text}' is no task cost: give a whole number of microseconds, at least 1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_can_be_given_in_the_environment() {
        environment::check_flags::<Options>();
    }

    #[test]
    fn every_command_has_examples_that_it_takes() {
        environment::check_examples::<Options>(&NEEDS);
    }
}
