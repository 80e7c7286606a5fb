//! Building and running the programs under test, and checking transcripts:
//! Markdown files with commands and their output in console blocks.

use std::{
    borrow::BorrowMut,
    env,
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Time limit after which a test reports that a program hangs. Nothing else may depend on it.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// Interval between two checks of another process.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until `condition` holds, for at most [`PATIENCE`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "timed out waiting for: {what}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Waits for the end of work, for at most [`PATIENCE`].
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("timed out waiting for: {what}"))
}

/// Returns whether `set` of a process, such as `SigCgt:`, has a signal.
pub fn has_signal(process: u32, set: &str, signal: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(set));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

pub fn coordinator(arguments: &[&str]) -> Command {
    command("coordinator", arguments)
}

pub fn worker(arguments: &[&str]) -> Command {
    command("worker", arguments)
}

pub fn queensctl(arguments: &[&str]) -> Command {
    command("queensctl", arguments)
}

/// Returns a command line of the program with this name.
pub fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(programs().join(program));
    command.args(arguments);
    command
}

/// Wraps a command in a shell script that runs it as `"$0" "$@"`.
pub fn in_shell(script: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(command.get_program()).args(command.get_args());
    shell
}

/// Builds the programs next to the running test; returns their directory.
/// Therefore a test can be run alone.
///
/// QUEENS_PROGRAMS names a directory of programs to use instead: those of a release package, or a copy for a
/// long test during which the code changes.
pub fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        env::var_os("QUEENS_PROGRAMS").map_or_else(|| build(env!("CARGO_MANIFEST_DIR")), From::from)
    })
}

/// Builds the programs of the workspace around a package, as [`programs`] does.
pub fn build(package: impl AsRef<Path>) -> PathBuf {
    // TARGET/PROFILE/deps/TEST
    let test = env::current_exe().expect("a test has a path");
    let profile_dir = test.ancestors().nth(2).expect("a test lies in deps");
    let target_dir = profile_dir.parent().expect("profiles lie in the target directory");
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let mut cargo = Command::new(env!("CARGO"));
    // The outer Cargo describes this package in the environment. Build scripts that read it (that of ring) would
    // run again, and all that depends on their crates would be compiled again, here and by the next command outside.
    let is_of_this_package = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_this_package(name)) {
        cargo.env_remove(name);
    }
    let built = cargo
        .args(["build", "--quiet", "--workspace", "--bins"])
        .args(["--profile", profile, "--target-dir"])
        .arg(target_dir)
        .current_dir(package)
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "the programs do not build:\n{errors}");
    profile_dir.to_owned()
}

/// A running program. Dropping it kills it.
pub struct Process {
    /// The command line.
    name: String,
    child: Child,
    output: Arc<Output>,
    readers: Vec<JoinHandle<()>>,
    brake: Option<Brake>,
}

/// The end of a program, with its whole output.
#[derive(Debug)]
pub struct End {
    /// Exit code; `None` if a signal killed it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The checks return `self`, so that they can be chained.
impl End {
    /// Checks the exit code.
    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    /// Checks that the program succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.code(0)
    }

    /// Checks that the program was killed while it ran.
    #[track_caller]
    pub fn killed(self) -> Self {
        assert_eq!(self.code, None, "it ended before it was killed: {self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    /// Checks that stdout holds all of `parts`.
    #[track_caller]
    pub fn prints(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stdout.contains(part), "'{part}' in {self:#?}");
        }
        self
    }

    /// Checks that stderr holds all of `parts`.
    #[track_caller]
    pub fn logs(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "'{part}' in {self:#?}");
        }
        self
    }

    /// Checks for a failure with one error line, which contains `parts`, and no result.
    #[track_caller]
    pub fn refused(self, code: i32, parts: &[&str]) -> Self {
        let end = self.code(code);
        assert_eq!(end.stdout, "", "{end:#?}");
        let error = end.error();
        for part in parts {
            assert!(error.contains(part), "'{part}' in: {error}");
        }
        end
    }

    /// Returns the only error line.
    #[track_caller]
    pub fn error(&self) -> &str {
        let lines = self.stderr.lines().filter(|line| line.starts_with("error: "));
        let [error] = lines.collect::<Vec<_>>()[..] else {
            panic!("not exactly one error line: {self:#?}");
        };
        error
    }

    /// Returns the JSON object that a successful program printed.
    #[track_caller]
    pub fn json(self) -> Value {
        let end = self.ok();
        serde_json::from_str(&end.stdout).unwrap_or_else(|error| panic!("{error}: {end:#?}"))
    }
}

/// The output of a running program.
#[derive(Default)]
struct Output {
    lines: Mutex<Lines>,
    more: Condvar,
}

#[derive(Default)]
struct Lines {
    stdout: Vec<String>,
    stderr: Vec<String>,
    /// Streams that reached their end.
    ended: u8,
}

impl Process {
    /// Starts a program.
    pub fn start(mut command: impl BorrowMut<Command>) -> Self {
        let command = command.borrow_mut();
        let program = Path::new(command.get_program()).file_name().unwrap_or_default();
        let words = [program].into_iter().chain(command.get_args());
        let name = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env_remove("RUST_LOG")
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let output = Arc::new(Output::default());
        let stdout = child.stdout.take().expect("a pipe");
        let stderr = child.stderr.take().expect("a pipe");
        let readers = vec![
            read(stdout, Arc::clone(&output), |lines| &mut lines.stdout),
            read(stderr, Arc::clone(&output), |lines| &mut lines.stderr),
        ];
        Self { name, child, output, readers, brake: None }
    }

    /// Lets a worker run for an eighth of the time once it counts: a small board then outlasts the faults of a test
    /// as a large one would, without its CPU time.
    pub fn slowed(mut self) -> Self {
        self.brake = Some(Brake::new(self.id(), Arc::clone(&self.output)));
        self
    }

    /// Lets a worker that was [`slowed`](Self::slowed) run all the time again.
    pub fn at_full_speed(mut self) -> Self {
        self.brake = None;
        self
    }

    /// Runs a program to its end.
    pub fn run(command: impl BorrowMut<Command>) -> End {
        Self::start(command).end()
    }

    /// Waits for a line on stderr that contains `part`, for at most [`PATIENCE`].
    pub fn stderr_line(&self, part: &str) -> String {
        self.line(part, |lines| &lines.stderr, |line| line.contains(part))
    }

    /// Waits for the setting that a coordinator prints for `program`: the file of a join string.
    pub fn join_for(&self, program: &str) -> String {
        fn join<'a>(line: &'a str, program: &str) -> Option<&'a str> {
            let (join, command) = line.trim().strip_prefix("QUEENS_JOIN=")?.split_once(' ')?;
            (command == program).then_some(join)
        }
        let matches = |line: &str| join(line, program).is_some();
        let line = self.line(&format!("QUEENS_JOIN=… {program}"), |lines| &lines.stderr, matches);
        join(&line, program).expect("a join string").to_owned()
    }

    /// Waits for a line on stdout that contains `part`, for at most [`PATIENCE`].
    pub fn stdout_line(&self, part: &str) -> String {
        self.line(part, |lines| &lines.stdout, |line| line.contains(part))
    }

    fn line(
        &self,
        part: &str,
        of: fn(&Lines) -> &Vec<String>,
        matches: impl Fn(&str) -> bool,
    ) -> String {
        let find = |lines: &Lines| of(lines).iter().find(|line| matches(line)).cloned();
        let lines = self.wait(PATIENCE, |lines| lines.ended < 2 && find(lines).is_none());
        let found = find(&lines);
        drop(lines);
        found.unwrap_or_else(|| panic!("{} did not print '{part}'", self.name))
    }

    /// Returns whether the program has ended.
    pub fn has_ended(&self) -> bool {
        self.output.lines.lock().expect("no reader panics").ended == 2
    }

    /// Waits while `goes_on` holds for the output, for at most `limit`.
    fn wait(&self, limit: Duration, goes_on: impl Fn(&Lines) -> bool) -> MutexGuard<'_, Lines> {
        let lines = self.output.lines.lock().expect("no reader panics");
        let waited = self.output.more.wait_timeout_while(lines, limit, |lines| goes_on(lines));
        waited.expect("no reader panics").0
    }

    /// Waits for the end of the program, for at most [`PATIENCE`].
    pub fn end(self) -> End {
        self.end_within(PATIENCE)
    }

    /// Waits for the end of a program that counts for minutes even on an idle machine, for at most `limit`.
    pub fn end_within(mut self, limit: Duration) -> End {
        // Both streams end with the program, so there is nothing to poll.
        let lines = self.wait(limit, |lines| lines.ended < 2);
        let (ended, stdout, stderr) =
            (lines.ended, lines.stdout.join("\n"), lines.stderr.join("\n"));
        drop(lines);
        assert_eq!(ended, 2, "{} does not end", self.name);
        self.brake = None;
        let status = self.child.wait().expect("a child can be waited for");
        End { code: ExitStatus::code(&status), stdout, stderr }
    }

    /// Kills the program with SIGKILL.
    pub fn kill(mut self) -> End {
        self.child.kill().expect("a child can be killed");
        self.end()
    }

    /// Sends a signal by its name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(status.success(), "kill -s {name}");
    }

    /// Interrupts the program once it handles SIGINT; checks its exit code.
    pub fn interrupt(self) -> End {
        const SIGINT: u32 = 2;
        // Without /proc there is nothing to wait for.
        if Path::new("/proc/self/status").exists() {
            wait_until("it catches Ctrl-C", || has_signal(self.id(), "SigCgt:", SIGINT));
        }
        self.signal("INT");
        self.end().code(130)
    }

    /// Stops the program with SIGTERM.
    pub fn terminate(self) -> End {
        self.signal("TERM");
        self.end()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.child.kill();
        self.brake = None;
        let _ = self.child.wait();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        if thread::panicking()
            && let Ok(lines) = self.output.lines.lock()
        {
            eprintln!("--- stderr of {}:\n{}", self.name, lines.stderr.join("\n"));
        }
    }
}

/// Stops a program again and again. Dropping it ends that, which must be before the child is waited for: its number
/// may then be that of another process.
struct Brake {
    release: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Brake {
    const RUNS: Duration = Duration::from_millis(10);
    const STOPS: Duration = Duration::from_millis(70);

    fn new(process: u32, output: Arc<Output>) -> Self {
        let process = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process");
        let (release, released) = mpsc::channel();
        let brakes = move || {
            let waits = |time| released.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            let counts = || {
                let lines = output.lines.lock().expect("no reader panics");
                lines.stderr.iter().any(|line| line.contains(" by method "))
            };
            while !counts() {
                if !waits(POLL_INTERVAL) {
                    return;
                }
            }
            loop {
                // A program that has ended needs no brake.
                let _ = kill_process(process, Signal::STOP);
                let goes_on = waits(Self::STOPS);
                let _ = kill_process(process, Signal::CONT);
                if !goes_on || !waits(Self::RUNS) {
                    return;
                }
            }
        };
        Self { release: Some(release), thread: Some(thread::spawn(brakes)) }
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        drop(self.release.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read(
    stream: impl Read + Send + 'static,
    output: Arc<Output>,
    of: fn(&mut Lines) -> &mut Vec<String>,
) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { break };
            of(&mut output.lines.lock().expect("no reader panics")).push(line);
            output.more.notify_all();
        }
        output.lines.lock().expect("no reader panics").ended += 1;
        output.more.notify_all();
    })
}

/// Runs the commands of a transcript in `dir` and compares their output with it.
///
/// With `QUEENS_TOUR=write`, updates the transcript instead and returns true.
pub fn check_transcript(path: &Path, dir: &Path) -> bool {
    let recorded = fs::read_to_string(path).expect("a text file");
    let printed = rerun(&recorded, dir);
    if env::var_os("QUEENS_TOUR").is_some_and(|word| word == "write") {
        fs::write(path, &printed).expect("a writable file");
        return true;
    }
    let (recorded, printed) = (comparable(&recorded), comparable(&printed));
    for (number, (recorded, printed)) in (1..).zip(recorded.iter().zip(&printed)) {
        assert_eq!(recorded, printed, "{}, near line {number}", path.display());
    }
    assert_eq!(recorded.len(), printed.len());
    false
}

/// Replaces measured numbers, which have a decimal point, and collapses spaces.
pub fn comparable(text: &str) -> Vec<String> {
    let measured = |word: &str| {
        let digits = word.trim_matches(|c: char| !c.is_ascii_digit());
        let (whole, part) = digits.split_once('.')?;
        let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        (all_digits(whole) && all_digits(part)).then(|| word.replace(digits, "#"))
    };
    let line = |line: &str| {
        let words = line.split_whitespace();
        let words = words.map(|word| measured(word).unwrap_or_else(|| word.to_owned()));
        words.collect::<Vec<_>>().join(" ")
    };
    text.trim_end().lines().map(line).collect()
}

/// Returns the transcript with the current output of its commands.
fn rerun(transcript: &str, dir: &Path) -> String {
    let mut text = String::new();
    let mut in_block = false;
    for line in transcript.lines() {
        let command = line.strip_prefix("$ ").filter(|_| in_block);
        in_block = if in_block { line != "```" } else { line == "```console" };
        // Other lines in a block are earlier output.
        if in_block && command.is_none() && line != "```console" {
            continue;
        }
        text += &format!("{line}\n");
        for printed in command.map(|command| run(command, dir)).iter().flat_map(|out| out.lines()) {
            text += &format!("{}\n", printed.trim_end());
        }
    }
    text
}

/// Runs a command in a shell with the programs on its path, and returns its output.
fn run(command: &str, dir: &Path) -> String {
    let path = env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(dir)
        .env("PATH", format!("{}:{path}", programs().display()))
        // `ls` sorts by the locale.
        .env("LC_ALL", "C")
        .output()
        .expect("a shell runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{command}: {stderr}");
    assert!(output.status.success(), "{command}: {}, {stderr}", output.status);
    String::from_utf8(output.stdout).expect("programs write UTF-8").trim_end().to_owned()
}
