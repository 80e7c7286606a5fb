//! A program under test: what it says, how it ends, and how it is ended.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Nothing that is waited for takes this long unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at what another process has done.
const LOOK: Duration = Duration::from_millis(5);

/// A running program. Dropping it kills it.
pub struct Process {
    name: String,
    child: Child,
    output: Arc<Output>,
    readers: Vec<JoinHandle<()>>,
}

/// How a program ended.
#[derive(Debug)]
pub struct End {
    /// Its exit code; `None` when a signal killed it.
    pub code: Option<i32>,
    /// All that it wrote to stdout.
    pub stdout: String,
    /// All that it wrote to stderr.
    pub stderr: String,
}

/// What was written so far, and by which stream.
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
    /// Starts `command` under a name for messages.
    pub fn start(name: &str, command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env_remove("RUST_LOG")
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let output = Arc::new(Output::default());
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take().expect("it is piped");
        let readers = vec![
            read(stdout, Arc::clone(&output), |lines| &mut lines.stdout),
            read(stderr, Arc::clone(&output), |lines| &mut lines.stderr),
        ];
        Self {
            name: name.to_owned(),
            child,
            output,
            readers,
        }
    }

    /// Runs `command` to its end.
    pub fn run(name: &str, command: &mut Command) -> End {
        Self::start(name, command).end()
    }

    /// The first line on stderr that holds `part`.
    ///
    /// # Panics
    /// If the program ends, or [`PATIENCE`] is over, without one.
    pub fn stderr_line(&self, part: &str) -> String {
        self.line(part, |lines| &lines.stderr)
    }

    /// The first line on stdout that holds `part`.
    ///
    /// # Panics
    /// If the program ends, or [`PATIENCE`] is over, without one.
    pub fn stdout_line(&self, part: &str) -> String {
        self.line(part, |lines| &lines.stdout)
    }

    fn line(&self, part: &str, of: fn(&Lines) -> &Vec<String>) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = self.output.lines.lock().expect("no reader panics");
        loop {
            if let Some(line) = of(&lines).iter().find(|line| line.contains(part)) {
                return line.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if lines.ended == 2 || left.is_zero() {
                drop(lines);
                panic!("{} never said '{part}'", self.name);
            }
            (lines, _) = self
                .output
                .more
                .wait_timeout(lines, left)
                .expect("no reader panics");
        }
    }

    /// Waits for the program to end by itself.
    ///
    /// # Panics
    /// If it still runs when [`PATIENCE`] is over.
    pub fn end(self) -> End {
        self.end_within(PATIENCE)
    }

    /// Waits for the program to end by itself, a run that takes longer than [`PATIENCE`].
    ///
    /// # Panics
    /// If it still runs when `patience` is over.
    pub fn end_within(mut self, patience: Duration) -> End {
        let deadline = Instant::now() + patience;
        let mut lines = self.output.lines.lock().expect("no reader panics");
        // A program ends when both its streams do: nothing to poll for.
        while lines.ended < 2 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(lines);
                panic!("{} does not end", self.name);
            }
            (lines, _) = self
                .output
                .more
                .wait_timeout(lines, left)
                .expect("no reader panics");
        }
        let (stdout, stderr) = (lines.stdout.join("\n"), lines.stderr.join("\n"));
        drop(lines);
        let status = self.child.wait().expect("a child can be waited for");
        End {
            code: ExitStatus::code(&status),
            stdout,
            stderr,
        }
    }

    /// `kill -9`.
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

    /// Waits until Ctrl-C does not end the program by itself any more; where there is no `/proc` to
    /// see that in, not at all.
    ///
    /// # Panics
    /// If it does not come to that within [`PATIENCE`].
    pub fn wait_for_signal_handlers(&self) {
        const SIGINT: u32 = 2;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let status = fs::read_to_string(format!("/proc/{}/status", self.id()));
            let caught = status.unwrap_or_default();
            let caught = caught.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            if caught.is_some_and(|mask| mask & (1 << (SIGINT - 1)) != 0) {
                return;
            }
            if !Path::new("/proc/self/status").exists() {
                return;
            }
            thread::sleep(LOOK);
        }
        panic!("{} does not catch Ctrl-C", self.name);
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        if thread::panicking()
            && let Ok(lines) = self.output.lines.lock()
        {
            eprintln!("--- {} said:\n{}", self.name, lines.stderr.join("\n"));
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
