//! A cluster of real processes on loopback.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use proto::v1::{GetStatusRequest, Status, runs_client::RunsClient};
use tempfile::TempDir;
use tokio::time::sleep;
use tonic::transport::Endpoint;

use crate::{
    binaries::binaries,
    process::{End, PATIENCE, Process},
};

/// Between two looks at a status.
const LOOK: Duration = Duration::from_millis(20);

/// Leases and calls of a cluster whose members die often.
const BRISK: [&str; 4] = ["--lease-ms", "1500", "--sync-ms", "200"];

/// The arguments of a run of the board of `n` by rows, in many tasks of so many microseconds each.
pub const fn by_rows(n: &'static str, cost: &'static str) -> [&'static str; 8] {
    [
        "--n",
        n,
        "--method",
        "rows",
        "--prefix",
        "first-rows",
        "--task-cost",
        cost,
    ]
}

/// A data directory, spool directories, and the port of a coordinator that comes and goes.
pub struct Cluster {
    dir: TempDir,
    port: u16,
    run: Vec<String>,
}

impl Cluster {
    /// A cluster whose coordinator will be started with these arguments, such as `--n 16`.
    pub fn new(run: &[&str]) -> Self {
        // The port is free now, and nobody else asks the system for this very one.
        let free = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = free.local_addr().expect("a bound port").port();
        Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
            port,
            run: run.iter().map(|&argument| argument.to_owned()).collect(),
        }
    }

    /// The coordinator's data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The coordinator's URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Starts the coordinator and waits until it listens.
    pub fn coordinator(&self) -> Process {
        let process = Process::start("the coordinator", &mut self.coordinator_command());
        process.stderr_line("listening on");
        process
    }

    /// Starts the coordinator without an end: it waits for runs to be submitted.
    pub fn serving(&self) -> Process {
        let mut command = Command::new(&binaries().coordinator);
        command
            .args(&self.run)
            .args(["--listen", &format!("127.0.0.1:{}", self.port)])
            .arg("--data-dir")
            .arg(self.data_dir())
            .args(BRISK);
        let process = Process::start("the coordinator", &mut command);
        process.stderr_line("listening on");
        process
    }

    /// The coordinator's command line.
    pub fn coordinator_command(&self) -> Command {
        let mut command = Command::new(&binaries().coordinator);
        command
            .args(&self.run)
            .args(["--exit-when-done", "--json", "--listen"])
            .arg(format!("127.0.0.1:{}", self.port))
            .arg("--data-dir")
            .arg(self.data_dir())
            .args(BRISK);
        command
    }

    /// Starts a worker with one thread and the portable kernel, the slowest there is.
    pub fn worker(&self, name: &str) -> Process {
        self.worker_with(name, &[])
    }

    /// The same with more arguments.
    pub fn worker_with(&self, name: &str, more: &[&str]) -> Process {
        self.worker_at(&self.url(), name, more)
    }

    /// The same at another URL, behind which the coordinator is.
    pub fn worker_at(&self, url: &str, name: &str, more: &[&str]) -> Process {
        let slow = ["--threads", "1", "--kernel", "scalar"];
        self.start_worker(url, name, &[&slow, more].concat())
    }

    /// Starts a worker with the best kernel on two threads.
    pub fn quick_worker(&self, url: &str, name: &str) -> Process {
        self.start_worker(url, name, &["--threads", "2"])
    }

    fn start_worker(&self, url: &str, name: &str, more: &[&str]) -> Process {
        let spool = self.dir.path().join(name);
        let spool = spool.to_str().expect("a plain path");
        let mut command = command(url, name, &[&["--spool", spool], more].concat());
        Process::start(name, &mut command)
    }

    /// The command line of a worker with one thread and the portable kernel; `more` names its spool.
    pub fn worker_command(&self, name: &str, more: &[&str]) -> Command {
        let slow = ["--threads", "1", "--kernel", "scalar"];
        command(&self.url(), name, &[&slow, more].concat())
    }

    /// `worker stop` for the worker with this spool, to its end.
    pub fn worker_stop(&self, spool: &str) -> End {
        let mut command = Command::new(&binaries().worker);
        command.args(["stop", "--spool", spool]);
        Process::run("worker stop", &mut command)
    }

    /// The status of the run, as soon as `wanted` holds for it.
    ///
    /// # Panics
    /// If it does not within [`PATIENCE`].
    pub async fn status(&self, wanted: impl Fn(&Status) -> bool) -> Status {
        let deadline = Instant::now() + PATIENCE;
        let mut last = None;
        while Instant::now() < deadline {
            if let Ok(status) = self.status_now().await {
                if wanted(&status) {
                    return status;
                }
                last = Some(status);
            }
            sleep(LOOK).await;
        }
        panic!("the status never was as wanted, at last: {last:#?}");
    }

    async fn status_now(&self) -> anyhow::Result<Status> {
        let channel = Endpoint::from_shared(self.url())?.connect().await?;
        let request = GetStatusRequest { run: None };
        Ok(RunsClient::new(channel)
            .get_status(request)
            .await?
            .into_inner())
    }

    /// `queensctl` with these arguments, to its end.
    pub fn queensctl(&self, arguments: &[&str]) -> End {
        let mut command = Command::new(&binaries().queensctl);
        command.args(["--coordinator", &self.url()]).args(arguments);
        Process::run("queensctl", &mut command)
    }

    /// `queensctl verify` of the data directory.
    pub fn verify(&self) -> End {
        let dir = self.data_dir();
        self.queensctl(&["verify", dir.to_str().expect("a plain path")])
    }

    /// Every file below the data directory whose name ends so.
    pub fn data_files(&self, ending: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect(&self.data_dir(), ending, &mut found);
        found.sort();
        found
    }
}

fn command(url: &str, name: &str, more: &[&str]) -> Command {
    let mut command = Command::new(&binaries().worker);
    command
        .args(["--coordinator", url, "--memory", "1GiB"])
        .args(["--name", name])
        .args(more);
    command
}

fn collect(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            collect(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

/// The JSON object that a completed run printed.
///
/// # Panics
/// If the program did not end well, or printed something else.
pub fn result(end: &End) -> serde_json::Value {
    assert_eq!(end.code, Some(0), "{end:#?}");
    serde_json::from_str(&end.stdout).unwrap_or_else(|error| panic!("{error}: {end:#?}"))
}
