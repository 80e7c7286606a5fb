//! A cluster of real processes on loopback.

use std::{
    borrow::BorrowMut,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Instant,
};

use auth::Role;
use kit::Port;
use proto::{
    connect::{AuthChannel, CoordinatorEndpoint},
    v1::{GetStatusRequest, Status, Worker, runs_client::RunsClient},
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    process::{self, End, PATIENCE, POLL_INTERVAL, Process},
    service::find_join,
};

/// Short leases and intervals between calls, for a cluster whose members die often.
const SHORT_INTERVALS: [&str; 4] = ["--lease-ms", "1500", "--sync-ms", "200"];

/// Arguments of the slowest count: a process can be killed in the middle of a task.
pub const SLOW: [&str; 4] = ["--threads", "1", "--kernel", "scalar"];

/// Returns the arguments of a run by method rows with tasks of `cost` µs.
pub const fn by_rows(n: &'static str, cost: &'static str) -> [&'static str; 8] {
    ["--n", n, "--method", "rows", "--layout", "first-rows", "--task-cost", cost]
}

/// A scratch directory, and the port of a coordinator that a test starts and stops.
pub struct Cluster {
    dir: Arc<TempDir>,
    port: Port,
    arguments: Vec<String>,
}

impl Cluster {
    /// Creates a cluster whose coordinator has these arguments, such as `--n 16`.
    pub fn new(arguments: &[&str]) -> Self {
        let port = Port::reserve();
        let listen = format!("127.0.0.1:{}", port.number());
        Self::at(port, &[arguments, &["--listen", &listen]].concat())
    }

    /// Creates a cluster whose coordinator other machines can reach.
    pub fn public(arguments: &[&str]) -> Self {
        let port = Port::reserve();
        let listen = format!("0.0.0.0:{}", port.number());
        let listen = ["--listen", &listen, "--advertise", "127.0.0.1"];
        Self::at(port, &[arguments, &listen].concat())
    }

    fn at(port: Port, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let dir = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        Self { dir, port, arguments }
    }

    /// Creates a coordinator with the same directory and arguments on another port.
    pub fn standby(&self) -> Self {
        let port = Port::reserve();
        let address = format!("127.0.0.1:{}", port.number());
        let readdress = |argument: &String| argument.replace(&self.address(), &address);
        let arguments = self.arguments.iter().map(readdress).collect();
        Self { dir: Arc::clone(&self.dir), port, arguments }
    }

    /// Returns a path in the scratch directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.path("data")
    }

    /// Returns the coordinator's `HOST:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Returns the arguments with which programs find the running coordinator.
    pub fn connection(&self) -> [String; 2] {
        ["--data-dir".to_owned(), self.data_dir().to_str().expect("a plain path").to_owned()]
    }

    /// Returns the coordinator's command line.
    pub fn command(&self, more: &[&str]) -> Command {
        let mut command = process::coordinator(&[]);
        command.args(&self.arguments).args(more).args(self.connection());
        command
    }

    /// Returns the command of a coordinator that exits with its run and prints JSON.
    pub fn ending(&self, more: &[&str]) -> Command {
        self.command(&[&SHORT_INTERVALS[..], &["--exit-when-done", "--json"], more].concat())
    }

    /// Starts the coordinator and waits until it listens.
    pub fn start(&self, more: &[&str]) -> Process {
        listening(self.command(more))
    }

    /// Starts a coordinator that ends with its run and prints the result as JSON.
    pub fn coordinator(&self) -> Process {
        listening(self.ending(&[]))
    }

    /// Starts a coordinator as [`Self::coordinator`] does, but with the default lease and intervals.
    /// In the end it waits longer for workers that are late: one that does not hear of the end waits for its return.
    pub fn patient_coordinator(&self) -> Process {
        self.start(&["--exit-when-done", "--json"])
    }

    /// Starts a coordinator that waits for runs to be submitted.
    pub fn serving(&self) -> Process {
        self.start(&SHORT_INTERVALS)
    }

    /// Starts a slow worker.
    pub fn worker(&self, name: &str) -> Process {
        self.worker_with(name, &[])
    }

    /// Starts a slow worker with more arguments.
    pub fn worker_with(&self, name: &str, more: &[&str]) -> Process {
        self.worker_by(&self.connection(), name, more)
    }

    /// Starts a slow worker that finds the coordinator by these arguments.
    pub fn worker_by(&self, connection: &[String; 2], name: &str, more: &[&str]) -> Process {
        Process::start(self.worker_command(connection, name, &[&SLOW, more].concat()))
    }

    /// Starts a worker with the best kernel on two threads.
    pub fn fast_worker(&self, connection: &[String; 2]) -> Process {
        Process::start(self.worker_command(connection, "fast", &["--threads", "2"]))
    }

    /// Returns a worker's command line; the spool directory has the worker's name.
    pub fn worker_command(&self, connection: &[String; 2], name: &str, more: &[&str]) -> Command {
        let mut command = process::worker(&["--memory", "1GiB", "--name", name]);
        command.args(connection).arg("--spool").arg(self.path(name)).args(more);
        command
    }

    /// Waits up to [`PATIENCE`] for a status of the run that `wanted` accepts.
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
            sleep(POLL_INTERVAL).await;
        }
        panic!("timed out waiting for a status; the last one: {last:#?}");
    }

    /// Waits until `wanted` holds for the worker of this name.
    pub async fn worker_status(&self, name: &str, wanted: impl Fn(&Worker) -> bool) -> Status {
        self.status(|status| named(status, name).is_some_and(&wanted)).await
    }

    async fn status_now(&self) -> anyhow::Result<Status> {
        let request = GetStatusRequest { run: None };
        Ok(RunsClient::new(self.connect().await?).get_status(request).await?.into_inner())
    }

    /// Connects as an operator, once the coordinator has started.
    pub async fn connect(&self) -> anyhow::Result<AuthChannel> {
        let join = find_join(&self.data_dir(), Role::Operator)?;
        Ok(CoordinatorEndpoint::Token(join).connect().await?)
    }

    /// Runs `queensctl` for this coordinator.
    pub fn queensctl(&self, arguments: &[&str]) -> End {
        Process::run(self.queensctl_command(arguments))
    }

    pub fn queensctl_command(&self, arguments: &[&str]) -> Command {
        let mut command = process::queensctl(arguments);
        command.args(self.connection());
        command
    }

    /// Runs `queensctl verify` on the data directory.
    pub fn verify(&self) -> End {
        Process::run(process::queensctl(&["verify"]).arg(self.data_dir()))
    }

    /// Waits for the end of the run; checks the total and verifies the data directory.
    pub fn check_exact(&self, coordinator: Process, solutions: &str) -> Value {
        let end = coordinator.end();
        assert!(!end.stderr.contains("parked"), "{end:#?}");
        let result = end.json();
        assert_eq!(
            (&result["solutions"], &result["published"]),
            (&solutions.into(), &"matches".into())
        );
        self.verify().ok();
        result
    }
}

/// Starts a coordinator and waits until it listens.
pub fn listening(command: impl BorrowMut<Command>) -> Process {
    let process = Process::start(command);
    process.stderr_line("listening on");
    process
}

pub fn named<'a>(status: &'a Status, name: &str) -> Option<&'a Worker> {
    status.workers.iter().find(|worker| worker.name == name)
}

/// Returns the files below a directory whose path ends in `ending`, sorted.
pub fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns the lines of all journals in a data directory that are valid JSON.
pub fn journal(dir: &Path) -> Vec<Value> {
    let journals = files(dir, ".jsonl").into_iter();
    let journals = journals.filter(|path| path.to_string_lossy().contains("/journal."));
    let text = journals.map(|path| fs::read_to_string(path).expect("a journal is text"));
    let lines = text.flat_map(|text| text.lines().map(serde_json::from_str).collect::<Vec<_>>());
    lines.filter_map(Result::ok).collect()
}

/// A small mounted tmpfs, unmounted on drop.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts a file system; prints a message and returns `None` without permission.
    pub fn mount(path: &Path, kibibytes: u32) -> Option<Self> {
        fs::create_dir(path).expect("a new directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={kibibytes}k"), "tmpfs"]);
        if mount.arg(path).output().is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(path.to_owned()));
        }
        kit::not_tested("full disks: only root may mount a tmpfs");
        None
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn grow(&self) {
        let mut mount = Command::new("mount");
        let grown = mount.args(["-o", "remount,size=64m"]).arg(&self.0).status();
        assert!(grown.expect("mount runs").success());
    }

    /// Fills up the file system.
    pub fn fill(&self) {
        let full = fs::write(self.0.join("filler"), vec![1; 65 << 20]).expect_err("a small disk");
        assert_eq!(full.kind(), ErrorKind::StorageFull);
    }

    /// Undoes [`Self::fill`].
    pub fn clear(&self) {
        fs::remove_file(self.0.join("filler")).expect("a filled disk");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server may still use the file system.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
