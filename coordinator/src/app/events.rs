//! `--on-event`: a program that is run when something happens that somebody should know of.
//!
//! It is given facts, in its environment and as a line of JSON on its standard input, and no command line:
//! nothing that a worker calls itself is ever read by a shell. The coordinator never waits for it, but at
//! its own end, and ends it where it hangs.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use common::run::RunId;
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tracing::{debug, warn};

use super::Report;
use crate::{
    driver::{DriverHandle, Outcome, Stopped},
    render::{Alarm, Statuses},
    store::RunState,
};

/// Between two looks for alarms.
const LOOK: Duration = Duration::from_secs(5);

/// How long the program may run.
const LIMIT: Duration = Duration::from_secs(30);

/// An alarm that comes back is told again after this time.
const AGAIN: Duration = Duration::from_secs(3_600);

/// Events that wait for the program; more are left out, which is said.
const WAITING: usize = 64;

/// How long the end of the coordinator waits for the program.
const PATIENCE: Duration = Duration::from_secs(60);

/// Something that somebody should know of.
#[derive(Clone, Debug)]
struct Event {
    /// `completion`, `dispute` or `alarm`.
    event: &'static str,
    /// Which completion, dispute or alarm.
    kind: &'static str,
    run: RunId,
    n: u8,
    text: String,
    /// Of a completion: what `--json` prints of it.
    result: Option<Value>,
}

impl Event {
    fn json(&self) -> Value {
        json!({
            "event": self.event,
            "kind": self.kind,
            "run": self.run.to_string(),
            "n": self.n,
            "text": self.text,
            "result": self.result,
        })
    }
}

/// Watches for events until the coordinator ends.
pub(super) struct Events {
    ending: watch::Sender<bool>,
    telling: JoinHandle<()>,
}

impl Events {
    /// Runs `program` for what happens from now on; what `old` runs came to is known.
    pub(super) fn start(program: PathBuf, driver: DriverHandle, old: BTreeSet<RunId>) -> Self {
        let (ending, ended) = watch::channel(false);
        let (events, waiting) = mpsc::channel(WAITING);
        let telling = tokio::spawn(tell_all(program, LIMIT, waiting));
        let watching = Watching {
            statuses: Statuses::new(driver.clone()),
            driver,
            old,
            told: BTreeMap::new(),
            alarms: BTreeMap::new(),
            events,
        };
        tokio::spawn(watching.watch(ended));
        Self { ending, telling }
    }

    /// Takes a last look and waits until the program was told everything, for a while.
    pub(super) async fn end(self) {
        self.ending.send_replace(true);
        if timeout(PATIENCE, self.telling).await.is_err() {
            warn!("--on-event: the program is left behind, it takes too long");
        }
    }
}

struct Watching {
    driver: DriverHandle,
    statuses: Statuses,
    old: BTreeSet<RunId>,
    /// Outcomes that were told.
    told: BTreeMap<RunId, Outcome>,
    /// When each alarm was told last.
    alarms: BTreeMap<(RunId, &'static str), Instant>,
    events: mpsc::Sender<Event>,
}

impl Watching {
    async fn watch(mut self, mut ended: watch::Receiver<bool>) {
        let mut outcomes = self.driver.outcomes();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // The guard ends with the statement.
            let all = outcomes.borrow_and_update().clone();
            let is_last = *ended.borrow();
            // The driver's end is told by others.
            let Ok(()) = self.look(all).await else { return };
            if is_last {
                return;
            }
            tokio::select! {
                changed = outcomes.changed() => if changed.is_err() { return },
                // A sender that is gone ends everything.
                _ = ended.wait_for(|ended| *ended) => {}
                _ = look.tick() => {}
            }
        }
    }

    async fn look(&mut self, all: BTreeMap<RunId, Outcome>) -> Result<(), Stopped> {
        self.told.retain(|run, _| all.contains_key(run));
        for (run, outcome) in all {
            if self.told.get(&run) == Some(&outcome) {
                continue;
            }
            self.told.insert(run, outcome.clone());
            if !self.old.remove(&run)
                && let Some(report) = Report::of(&self.driver, outcome).await?
            {
                self.tell(ended(run, &report));
            }
        }
        for run in self.driver.runs().await? {
            if !matches!(run.state, RunState::Running | RunState::Disputed) {
                continue;
            }
            let (run, n) = (run.manifest.run, run.manifest.spec.board.n());
            if let Some(status) = self.statuses.get(run).await? {
                for alarm in Alarm::of(&status) {
                    self.alarm(run, n, alarm);
                }
            }
        }
        Ok(())
    }

    fn alarm(&mut self, run: RunId, n: u8, Alarm { kind, text }: Alarm) {
        let event = match kind {
            // The ordinary end of every run has nothing to hand out either.
            "waiting" => return,
            "contested" => "dispute",
            _ => "alarm",
        };
        let now = Instant::now();
        let before = self.alarms.get(&(run, kind));
        if before.is_some_and(|before| now.duration_since(*before) < AGAIN) {
            return;
        }
        self.alarms.insert((run, kind), now);
        self.tell(Event {
            event,
            kind,
            run,
            n,
            text,
            result: None,
        });
    }

    fn tell(&self, event: Event) {
        if let Err(error) = self.events.try_send(event) {
            warn!("--on-event: an event is left out, the program is too slow: {error}");
        }
    }
}

fn ended(run: RunId, report: &Report) -> Event {
    let (event, kind) = match report.outcome.state() {
        RunState::Disputed => ("dispute", "disputed"),
        RunState::Contradicted => ("completion", "contradicted"),
        RunState::Running | RunState::Paused | RunState::Cancelled | RunState::Complete => {
            ("completion", "complete")
        }
    };
    Event {
        event,
        kind,
        run,
        n: report.board.n(),
        text: report.line(),
        result: Some(report.json()),
    }
}

/// Tells the program of one event after another.
async fn tell_all(program: PathBuf, limit: Duration, mut waiting: mpsc::Receiver<Event>) {
    while let Some(event) = waiting.recv().await {
        match run(&program, limit, &event).await {
            Ok(()) => debug!("--on-event: told of {} of run {}", event.event, event.run),
            Err(failure) => warn!(
                "--on-event: {} failed at {} ({}) of run {}: {failure}",
                program.display(),
                event.event,
                event.kind,
                event.run
            ),
        }
    }
}

/// Why the program did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("it cannot be started: {0}; give a program that can be executed")]
    Start(io::Error),
    #[error("it cannot be waited for: {0}")]
    Wait(io::Error),
    #[error("it ended with {0}")]
    Status(std::process::ExitStatus),
    #[error("it ran for {} s and was ended", .0.as_secs_f64())]
    Hung(Duration),
}

async fn run(program: &Path, limit: Duration, event: &Event) -> Result<(), Failure> {
    let mut command = Command::new(program);
    command
        .env("QUEENS_EVENT", event.event)
        .env("QUEENS_EVENT_KIND", event.kind)
        .env("QUEENS_EVENT_RUN", event.run.to_string())
        .env("QUEENS_EVENT_N", event.n.to_string())
        .env("QUEENS_EVENT_TEXT", event.text.replace('\0', " "))
        .stdin(Stdio::piped())
        // Standard output is for results.
        .stdout(io::stderr())
        .kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    let mut child = command.spawn().map_err(Failure::Start)?;
    let line = format!("{}\n", event.json());
    let input = child.stdin.take();
    let told = async {
        if let Some(mut input) = input {
            // Who does not read it does not want it.
            let _ = input.write_all(line.as_bytes()).await;
        }
        child.wait().await
    };
    match timeout(limit, told).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(Failure::Status(status)),
        Ok(Err(error)) => Err(Failure::Wait(error)),
        Err(_) => {
            kill(&mut child).await;
            Err(Failure::Hung(limit))
        }
    }
}

/// Ends the program with all that it started.
async fn kill(child: &mut Child) {
    #[cfg(unix)]
    if let Some(group) = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(rustix::process::Pid::from_raw)
    {
        // It may have ended this moment.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill().await;
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn event(text: &str) -> Event {
        Event {
            event: "alarm",
            kind: "barred",
            run: RunId(7),
            n: 20,
            text: text.to_owned(),
            result: None,
        }
    }

    fn program(dir: &Path, script: &str) -> PathBuf {
        let path = dir.join("program");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn the_program_is_told_the_facts_and_no_shell_reads_them() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let script = format!(
            "printf '%s|%s|%s|%s\\n' \"$QUEENS_EVENT\" \"$QUEENS_EVENT_KIND\" \"$QUEENS_EVENT_RUN\" \
             \"$QUEENS_EVENT_TEXT\" > {0}; cat >> {0}; echo $# >> {0}",
            out.display()
        );
        let evil = "Worker $(touch evil) `touch evil`; touch evil\n\"'";
        run(&program(dir.path(), &script), LONG, &event(evil))
            .await
            .unwrap();
        let said = fs::read_to_string(&out).unwrap();
        let told = format!("alarm|barred|0000000000000007|{evil}\n");
        let rest = said.strip_prefix(&told).unwrap_or_else(|| panic!("{said}"));
        let (line, arguments) = rest.split_once('\n').unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (line["text"].as_str(), line["n"].as_u64()),
            (Some(evil), Some(20))
        );
        assert_eq!(arguments, "0\n");
        assert!(!Path::new("evil").exists());
    }

    #[tokio::test]
    async fn failures_are_told_by_their_reason() {
        let dir = tempfile::tempdir().unwrap();
        let failed = run(&program(dir.path(), "exit 7"), LONG, &event(""))
            .await
            .unwrap_err();
        assert!(failed.to_string().contains("7"), "{failed}");
        let none = run(Path::new("/does/not/exist"), LONG, &event(""))
            .await
            .unwrap_err();
        assert!(none.to_string().contains("cannot be started"), "{none}");
    }

    /// A program that hangs is ended, with what it started: the pipe that both hold closes.
    #[tokio::test]
    async fn a_program_that_hangs_is_ended_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let script = format!("sleep 86400 & echo $! > {0}; wait", pids.display());
        let program = program(dir.path(), &script);
        // As short as it may be and the child is there: tried with longer and longer ones.
        let mut limit = Duration::from_millis(50);
        let child: i32 = loop {
            let hung = run(&program, limit, &event("")).await.unwrap_err();
            assert!(matches!(hung, Failure::Hung(_)), "{hung}");
            match fs::read_to_string(&pids).unwrap_or_default().trim().parse() {
                Ok(child) => break child,
                Err(_) => limit *= 2,
            }
        };
        // Gone, or left for init to bury, as soon as the system gets to it; otherwise this waits a day.
        let stat = format!("/proc/{child}/stat");
        while fs::read_to_string(&stat).is_ok_and(|state| !state.contains(") Z")) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_full_queue_holds_nobody_up() {
        let (events, waiting) = mpsc::channel(1);
        events.try_send(event("first")).unwrap();
        assert!(events.try_send(event("second")).is_err());
        drop(events);
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let script = format!("cat >> {}", out.display());
        tell_all(program(dir.path(), &script), LONG, waiting).await;
        assert_eq!(fs::read_to_string(&out).unwrap().lines().count(), 1);
    }
}
