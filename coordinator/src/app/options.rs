//! The command line of `coordinator`.

use std::{
    env,
    ffi::OsString,
    net::IpAddr,
    num::NonZeroU64,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::http::uri::Authority;
use clap::{
    Parser,
    builder::{PathBufValueParser, TypedValueParser as _},
};
use cli::{
    duration::task_cost,
    environment::{self, FlagDependency},
    exit::BadUsage,
    memory::MemorySize,
    terminal::{LogFormat, TerminalOptions},
    threads::{Threads, TooLittleMemory, crews, machine},
};
use common::{
    board::Board,
    choice::{BadChoice, KernelChoice, MethodChoice, RowsLayout, choose},
    compute::kernel::Kernel,
    plan::{Plan, PlanSpec},
};
use proto::connect::is_host_port;
use scheduler::{DEFAULT_RECOUNTS, ledger::Recheck};
use store::{ArchivePlace, StoreUrl};
use worker::{
    availability::Rules,
    config::{ComputeBudget, Coordinator, InProcess, SpoolChoice, WorkerConfig},
};

use super::referee::{RefereeBudget, RefereeThreads};

/// Grace period of the worker in this process, short because the user waits for it.
const LOCAL_DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// Count the solutions of the N-Queens problem with all workers that connect: divide the board into
/// tasks, store every result durably, and resume after a restart.
#[derive(Clone, Debug, Parser)]
#[command(name = "coordinator", version, after_help = AFTER_HELP)]
pub struct Options {
    /// Board size, 1 to 32: start a run, or resume it from the data directory, which holds any
    /// number of runs. Without it, serve the runs of the data directory
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub n: Option<Board>,

    /// Counting method: auto, rows or frames
    #[arg(long, default_value = "auto")]
    pub method: MethodChoice,

    /// Division of the board by method rows: first-rows or border
    #[arg(long, value_name = "LAYOUT")]
    pub layout: Option<RowsLayout>,

    /// Work per task, in microseconds of one core [default: by N]
    #[arg(long, value_name = "MICROSECONDS", value_parser = task_cost)]
    pub task_cost: Option<NonZeroU64>,

    /// Fraction of tasks to recheck, on another machine if possible: auto (2 %, plus the first results
    /// of each worker), all, or a number such as 0.1 [default: auto]
    #[arg(long, value_name = "FRACTION", requires = "n")]
    pub recheck: Option<Recheck>,

    /// Start a new run even if the data directory holds one of this board
    #[arg(long)]
    pub new_run: bool,

    /// Exit when the run is finished
    #[arg(long)]
    pub exit_when_done: bool,

    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,

    /// Print every check below a result; with --local, also log the work of this process
    #[arg(long, conflicts_with = "json")]
    pub verbose: bool,

    /// Directory of runs, results and keys
    #[arg(long, value_name = "DIR", default_value = "queens-data", help_heading = STORAGE)]
    pub data_dir: PathBuf,

    /// Store runs, results and keys in a PostgreSQL database instead of --data-dir, such as
    /// postgres://USER@HOST/DATABASE, or @FILE with the URL; only join strings for programs on this
    /// machine are written to --data-dir. If another coordinator is the leader, run as standby and take
    /// over on failure. Give a URL with a password only in QUEENS_STORE or @FILE
    #[arg(long, value_name = "URL|@FILE", help_heading = STORAGE)]
    pub store: Option<StoreUrl>,

    /// Continuously copy the data directory to a directory on another disk, or to a bucket;
    /// `queensctl restore` recovers all but the last few seconds. The keys of a bucket are read
    /// from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT
    #[arg(
        long,
        value_name = "DIR|s3://BUCKET/PREFIX",
        conflicts_with = "store",
        help_heading = STORAGE
    )]
    pub archive: Option<ArchivePlace>,

    /// Address for gRPC; port 0 selects a free one [default: 127.0.0.1:7171; with --local, a free
    /// port if that is in use]
    #[arg(long, value_name = "HOST:PORT", help_heading = NETWORK)]
    pub listen: Option<String>,

    /// Address for the dashboard, the HTTP API and metrics; port 0 selects a free one [default:
    /// 127.0.0.1:7172; with --local, none]
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "no_http", help_heading = NETWORK)]
    pub http: Option<String>,

    /// Disable HTTP
    #[arg(long, help_heading = NETWORK)]
    pub no_http: bool,

    /// Name or address other machines use to reach this coordinator [default: the address of the
    /// default route]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = advertised, help_heading = NETWORK)]
    pub advertise: Option<Authority>,

    /// Another host name of the HTTP interface, such as that of a proxy or an ingress; repeatable.
    /// Requests for names other than this and --advertise are rejected
    #[arg(long, value_name = "NAME", conflicts_with = "no_http", help_heading = NETWORK)]
    pub http_host: Vec<String>,

    /// Let visitors without a token count in their browsers, at /count of the dashboard's address
    #[arg(long, conflicts_with = "no_http", help_heading = NETWORK)]
    pub volunteers: bool,

    /// Other coordinators of the same --store, for join strings
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        value_parser = peer,
        help_heading = NETWORK
    )]
    pub peer: Vec<String>,

    /// Lease duration after a worker's last call, in milliseconds
    #[arg(
        long,
        value_name = "MS",
        default_value = "300000",
        value_parser = clap::value_parser!(u64).range(100..=86_400_000),
        help_heading = NETWORK
    )]
    pub lease_ms: u64,

    /// Minimum interval between a worker's regular calls, in milliseconds
    #[arg(
        long,
        value_name = "MS",
        default_value = "15000",
        value_parser = clap::value_parser!(u64).range(10..=3_600_000),
        help_heading = NETWORK
    )]
    pub sync_ms: u64,

    /// Disable TLS and authentication: anyone who can reach the port has full access
    #[arg(long, help_heading = SECURITY)]
    pub insecure: bool,

    /// Server certificate (PEM, with its chain), issued by your own authority: clients authenticate
    /// with certificates instead of join strings
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    pub tls_cert: Option<PathBuf>,

    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    pub tls_key: Option<PathBuf>,

    /// CA certificates (PEM) for client authentication; the role is taken from a subject alternative
    /// name such as spiffe://lab.example/queens/worker/NAME
    #[arg(
        long,
        value_name = "FILE",
        requires_all = ["tls_cert", "tls_key"],
        conflicts_with = "insecure",
        help_heading = SECURITY
    )]
    pub client_ca: Option<PathBuf>,

    /// Also count in this process, and exit when the run is finished; print only the result and what
    /// counted it, unless --verbose, --listen or --http is given
    #[arg(long, help_heading = COUNTING)]
    pub local: bool,

    /// Threads that count in this process [default: all CPUs]
    #[arg(long, value_name = "T", help_heading = COUNTING)]
    pub threads: Option<Threads>,

    /// Memory limit for counting in this process, such as 8GiB [default: 80 % of the free memory]
    #[arg(long, value_name = "BYTES", value_parser = MemorySize::of_option, help_heading = COUNTING)]
    pub memory: Option<MemorySize>,

    /// Kernel for counting in this process: auto, scalar, avx2, avx512 or neon
    #[arg(long, value_name = "KERNEL", default_value = "auto", help_heading = COUNTING)]
    pub kernel: KernelChoice,

    /// Referee threads of this process: they recount disputed tasks and tasks selected at
    /// random. off: disputes stay open unless a worker's token is trusted [default: 1; with
    /// --local, off]
    #[arg(long, value_name = "THREADS|off", help_heading = COUNTING)]
    pub referee: Option<RefereeThreads>,

    /// Random recounts by the referee that a run needs at least, unless its total matches a
    /// published one: all its tasks if it has fewer. Without them nothing bounds the wrong counts
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_RECOUNTS,
        value_parser = clap::value_parser!(u64).range(1..),
        help_heading = COUNTING
    )]
    pub recounts: u64,

    /// Memory limit for the referee, such as 2GiB [default: a quarter of the memory of this process, at
    /// most 1 GiB]
    #[arg(long, value_name = "BYTES", value_parser = MemorySize::of_option, help_heading = COUNTING)]
    pub referee_memory: Option<MemorySize>,

    /// Program to run for a complete run, a dispute or an alert: the event is passed in QUEENS_EVENT,
    /// _KIND, _RUN, _N and _TEXT, and as JSON on stdin
    #[arg(long, value_name = "PROGRAM", value_parser = PathBufValueParser::new().try_map(program), help_heading = "Output")]
    pub on_event: Option<PathBuf>,

    /// Log format: text, or json for one object per line
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = "Output")]
    pub log_format: LogFormat,

    #[command(flatten)]
    pub terminal: TerminalOptions,
}

const STORAGE: &str = "Storage";
const NETWORK: &str = "Network";
const SECURITY: &str = "Security";
const COUNTING: &str = "Counting in this process";

const AFTER_HELP: &str = "\
Examples:
  coordinator --n 20 --local
      count N = 20 on this machine only
  coordinator --n 22 --listen 0.0.0.0:7171
      start or resume N = 22 for workers on any machine; prints the command to
      run on them

Exit codes:
  0 complete and verified, 1 error, 2 invalid usage, 3 a check failed or tasks
  are disputed, 4 complete but not verified, 130 interrupted (state saved; run
  the same command to resume)";

/// Flags that have no effect without another flag.
const NEEDS: [FlagDependency; 4] = [
    FlagDependency { flags: &["peer"], other: "store" },
    FlagDependency { flags: &["tls_cert", "tls_key"], other: "client_ca" },
    FlagDependency { flags: &["method", "layout", "task_cost", "new_run"], other: "n" },
    FlagDependency { flags: &["threads", "memory", "kernel"], other: "local" },
];

/// Address space that `--local` reserves with one thread, rounded up; most of it is never used.
const LOCAL_ADDRESS_SPACE: MemorySize = MemorySize::at_least(2 << 30);

impl Options {
    /// Parses the command line and the environment; exits on invalid usage.
    pub fn read() -> Self {
        environment::read(&NEEDS, &[])
    }

    /// Makes the plan of the requested run; `None` without `--n`.
    pub(super) fn plan(&self) -> Result<Option<Plan>, BadUsage> {
        let Some(board) = self.n else { return Ok(None) };
        // The resources of workers in other processes are unknown.
        let machine = self.local.then(|| machine(self.memory(), self.threads(), None));
        let chosen = choose(board, self.method, self.layout, machine);
        let choice = chosen.map_err(|bad| match bad {
            BadChoice::Memory { least } => {
                BadUsage::of(TooLittleMemory::new(board, self.memory(), self.threads(), least))
            }
            BadChoice::LayoutOfFrames => BadUsage::of(bad),
        })?;
        let defaults = PlanSpec::new(board, choice.layout);
        let task_cost = self.task_cost.map_or(defaults.task_cost, NonZeroU64::get);
        let spec = PlanSpec { task_cost, ..defaults };
        let plan = Plan::new(spec).map_err(BadUsage::of)?;
        if self.local {
            crews(&plan, self.memory(), self.threads(), None).map_err(BadUsage::of)?;
        }
        if self.method == MethodChoice::Auto && !self.is_brief() {
            tracing::info!("{}", choice.reason);
        }
        Ok(Some(plan))
    }

    /// Returns the kernel for counting in this process; `None` without `--local`.
    pub(super) fn local_kernel(&self) -> Result<Option<Kernel>, BadUsage> {
        if self.local {
            MemorySize::check_address_space(LOCAL_ADDRESS_SPACE).map_err(BadUsage::of)?;
        }
        self.local.then(|| self.kernel.kernel()).transpose().map_err(BadUsage::of)
    }

    /// Returns the configuration of a local worker that calls the driver with `calls`.
    pub(super) fn local_worker(&self, calls: InProcess, kernel: Kernel) -> WorkerConfig {
        WorkerConfig {
            devices: Vec::new(),
            coordinator: Coordinator::InProcess(calls),
            budget: ComputeBudget {
                threads: self.threads(),
                memory: self.memory(),
                crews: None,
                kernel,
            },
            name: "local".to_owned(),
            // The worker exits with the coordinator, which has stored every acknowledged result.
            spool: SpoolChoice::Memory,
            drain_limit: LOCAL_DRAIN_LIMIT,
            idle_timeout: None,
            rules: Rules::default(),
            status_bar: None,
        }
    }

    pub(super) fn referee(&self) -> RefereeBudget {
        RefereeBudget {
            // A referee must not judge a worker on its own machine.
            threads: self.referee.unwrap_or(RefereeThreads((!self.local).into())),
            memory: self.referee_memory.unwrap_or_else(MemorySize::of_a_referee),
            kernel: Kernel::best(),
        }
    }

    /// Returns the data directory or the database, for messages.
    pub(super) fn storage_name(&self) -> String {
        match &self.store {
            Some(url) => url.to_string(),
            None => self.data_dir.display().to_string(),
        }
    }

    /// Returns an upper bound on the time between two calls of a worker.
    pub(super) fn max_sync_interval(&self) -> Duration {
        Duration::from_millis(self.sync_ms) * 3 / 2 + Duration::from_secs(1)
    }

    /// Returns whether to print only the result and what counted it.
    pub fn is_brief(&self) -> bool {
        self.local && !self.verbose && self.listen.is_none() && self.http.is_none()
    }

    pub(super) fn threads(&self) -> Threads {
        self.threads.unwrap_or_else(Threads::of_this_machine)
    }

    fn memory(&self) -> MemorySize {
        self.memory.unwrap_or_else(MemorySize::of_this_machine)
    }

    /// Returns whether the process exits when its run is finished.
    pub(super) fn exits_when_done(&self) -> bool {
        self.exit_when_done || self.local
    }
}

/// Parses `--advertise`: HOST or HOST:PORT.
pub(super) fn advertised(text: &str) -> Result<Authority, String> {
    let host_and_port = |authority: &Authority| match authority.port_u16() {
        Some(port) => format!("{}:{port}", authority.host()),
        None => authority.host().to_owned(),
    };
    let parsed = text.parse().ok().filter(|authority: &Authority| {
        // The parser also accepts users and invalid ports.
        host_and_port(authority) == text
            && is_destination(authority.host())
            && authority.port_u16() != Some(0)
    });
    parsed.ok_or_else(|| {
        format!(
            "'{text}' is not HOST or HOST:PORT: give a name or an address of this machine, such as \
             node7, 10.0.0.7:7171 or [fe80::1]"
        )
    })
}

/// Returns whether clients can connect to a host: a name, or the address of one machine.
fn is_destination(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']');
    match ip.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(IpAddr::V4(ip)) => !ip.is_unspecified() && !ip.is_broadcast() && !ip.is_multicast(),
        Ok(IpAddr::V6(ip)) => !ip.is_unspecified() && !ip.is_multicast(),
        // The system's resolver reads `0` and `0.0` as 0.0.0.0.
        Err(_) => !host.trim_matches(['0', '.']).is_empty(),
    }
}

fn peer(text: &str) -> Result<String, String> {
    let is_peer =
        is_host_port(text) && text.rsplit_once(':').is_some_and(|(host, _)| is_destination(host));
    is_peer.then(|| text.to_owned()).ok_or_else(|| {
        format!("'{text}' is not HOST:PORT of another coordinator, such as node8:7171")
    })
}

/// Parses the path of a program, or the name of one in `PATH`.
fn program(path: PathBuf) -> Result<PathBuf, &'static str> {
    let folders = match path.components().count() {
        // Windows adds an extension.
        1 if cfg!(windows) => return Ok(path),
        1 => env::var_os("PATH").unwrap_or_default(),
        _ => OsString::new(),
    };
    match env::split_paths(&folders).any(|folder| is_executable(&folder.join(&path))) {
        true => Ok(path),
        false => Err(
            "no such executable file: give an executable program, by its path or its name in PATH",
        ),
    }
}

fn is_executable(path: &Path) -> bool {
    #[cfg(unix)]
    if rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_err() {
        return false;
    }
    path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_a_variable_and_every_command_examples() {
        cli::documents::check_examples::<Options>(&NEEDS);
    }

    #[test]
    fn clients_are_sent_only_to_addresses_of_machines() {
        for host in ["node7", "10.0.0.7", "[fe80::1]", "0.example", "localhost"] {
            assert!(advertised(host).is_ok() && peer(&format!("{host}:7171")).is_ok(), "{host}");
        }
        let nowhere = ["0.0.0.0", "[::]", "[::ffff:0.0.0.0]", "0", "0.0", "224.0.0.1", "[ff02::1]"];
        for host in nowhere.into_iter().chain(["255.255.255.255", ""]) {
            let with_port = format!("{host}:7171");
            let refused = [advertised(host).is_err(), advertised(&with_port).is_err()];
            assert_eq!((refused, peer(&with_port).is_err()), ([true; 2], true), "{host}");
        }
    }
}
