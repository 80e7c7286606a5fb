//! `--on-event`: a program that runs for completions, disputes and alerts.
//!
//! The event is passed in environment variables and as a line of JSON on standard input, never in a command
//! line, so no shell interprets a worker's text. The coordinator kills a program that hangs, and waits for
//! the program only at its own exit.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::anyhow;
use common::messages::run::RunId;
use proto::v1;
use serde_json::{Value, json};
use store::RunState;
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tracing::{debug, warn};
use view::{Alert, AlertKind, outcome_json, result_lines};

use super::run_waiter::Reported;
use crate::{
    driver::{DriverHandle, Outcome, Stopped},
    status_cache::StatusCache,
};

/// Interval between checks for alerts.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Time limit of the program.
const RUN_TIMEOUT: Duration = Duration::from_secs(30);

const REPEAT_INTERVAL: Duration = Duration::from_secs(3_600);

/// Maximum number of queued events; further ones are dropped with a warning.
const QUEUE_CAPACITY: usize = 64;

/// Maximum wait of the coordinator's exit for the program.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);

/// An event for the program.
#[derive(Clone, Debug)]
struct HookEvent {
    /// `completion`, `dispute` or `alert`.
    event: &'static str,
    kind: String,
    run: RunId,
    n: u32,
    text: String,
    /// The object of `--json`, for a completion.
    result: Option<Value>,
}

impl HookEvent {
    fn new(status: &v1::Status, event: &'static str, kind: String, text: String) -> Self {
        let run = status.run.clone().unwrap_or_default();
        let n = run.spec.unwrap_or_default().n;
        Self { event, kind, run: RunId(run.run), n, text, result: None }
    }

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

/// A watch for events, which lasts until the coordinator exits.
pub(super) struct Events {
    ending: watch::Sender<bool>,
    delivery: JoinHandle<()>,
}

impl Events {
    /// Runs `program` for events from now on, except for the outcomes of `old` runs.
    pub(super) fn start(program: PathBuf, driver: DriverHandle, old: BTreeSet<RunId>) -> Self {
        let (ending, ended) = watch::channel(false);
        let (events, queue) = mpsc::channel(QUEUE_CAPACITY);
        let delivery = tokio::spawn(deliver(program, RUN_TIMEOUT, queue));
        let watcher = Watcher {
            statuses: StatusCache::new(driver.clone()),
            driver,
            reported: Reported::new(old),
            alerts: BTreeMap::new(),
            events,
        };
        tokio::spawn(watcher.watch(ended));
        Self { ending, delivery }
    }

    /// Checks once more and waits up to [`EXIT_TIMEOUT`] for delivery of all events.
    pub(super) async fn end(self) {
        self.ending.send_replace(true);
        if timeout(EXIT_TIMEOUT, self.delivery).await.is_err() {
            warn!("--on-event: the program takes too long; exiting without it");
        }
    }
}

struct Watcher {
    driver: DriverHandle,
    statuses: StatusCache,
    reported: Reported,
    /// Time of the last report of each alert.
    alerts: BTreeMap<(RunId, AlertKind), Instant>,
    events: mpsc::Sender<HookEvent>,
}

impl Watcher {
    async fn watch(mut self, mut ended: watch::Receiver<bool>) {
        let mut outcomes = self.driver.outcomes();
        let mut poll = interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Cloned, because the borrowed value blocks the driver.
            let latest = outcomes.borrow_and_update().clone();
            let is_last = *ended.borrow();
            let Ok(()) = self.check(latest).await else { return };
            if is_last {
                return;
            }
            tokio::select! {
                changed = outcomes.changed() => if changed.is_err() { return },
                // Also returns if the sender was dropped.
                _ = ended.wait_for(|ended| *ended) => {}
                _ = poll.tick() => {}
            }
        }
    }

    async fn check(&mut self, outcomes: BTreeMap<RunId, Outcome>) -> Result<(), Stopped> {
        self.reported.withdrawn(&outcomes);
        for outcome in outcomes.values() {
            if let Some(status) = self.reported.report(&self.driver, outcome).await? {
                self.send(finished(outcome.state(), &status));
                self.report(&status);
            }
        }
        for run in self.driver.runs().await? {
            if !matches!(run.state, RunState::Running | RunState::Disputed) {
                continue;
            }
            if let Some(status) = self.statuses.get(run.manifest.run).await? {
                self.report(&status);
            }
        }
        Ok(())
    }

    /// Sends the alerts of a run that were not sent lately.
    fn report(&mut self, status: &v1::Status) {
        let run = RunId(status.run.as_ref().map_or(0, |run| run.run));
        let now = Instant::now();
        for alert in Alert::all(status) {
            let key = (run, alert.kind);
            let before = self.alerts.get(&key);
            if before.is_some_and(|before| now.duration_since(*before) < REPEAT_INTERVAL) {
                continue;
            }
            if let Some(event) = alerted(status, alert) {
                self.alerts.insert(key, now);
                self.send(event);
            }
        }
    }

    fn send(&self, event: HookEvent) {
        if let Err(error) = self.events.try_send(event) {
            warn!("--on-event: dropped an event, because the program is too slow: {error}");
        }
    }
}

fn finished(state: RunState, status: &v1::Status) -> HookEvent {
    let (event, kind) = match state {
        RunState::Disputed => ("dispute", "disputed"),
        RunState::Contradicted => ("completion", "contradicted"),
        RunState::Running | RunState::Paused | RunState::Cancelled | RunState::Complete => {
            ("completion", "complete")
        }
    };
    let text = result_lines(status, false).unwrap_or_default().join("; ");
    let result = Some(outcome_json(status));
    HookEvent { result, ..HookEvent::new(status, event, kind.to_owned(), text) }
}

/// Returns the event of an alert; `None` if it is normal at the beginning or the end of a run.
fn alerted(status: &v1::Status, Alert { kind, text }: Alert) -> Option<HookEvent> {
    let event = match kind {
        AlertKind::TaskDisputed => "dispute",
        AlertKind::Stalled => return None,
        kind if kind.is_alarm() => "alert",
        _ => return None,
    };
    Some(HookEvent::new(status, event, kind.to_string(), text))
}

/// Runs the program for one event after another.
async fn deliver(program: PathBuf, limit: Duration, mut queue: mpsc::Receiver<HookEvent>) {
    while let Some(event) = queue.recv().await {
        match run(&program, limit, &event).await {
            Ok(()) => debug!("--on-event: delivered {} of run {}", event.event, event.run),
            Err(failure) => warn!(
                "--on-event: {} failed for {} ({}) of run {}: {failure}",
                program.display(),
                event.event,
                event.kind,
                event.run
            ),
        }
    }
}

async fn run(program: &Path, limit: Duration, event: &HookEvent) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command
        .env("QUEENS_EVENT", event.event)
        .env("QUEENS_EVENT_KIND", &event.kind)
        .env("QUEENS_EVENT_RUN", event.run.to_string())
        .env("QUEENS_EVENT_N", event.n.to_string())
        .env("QUEENS_EVENT_TEXT", event.text.replace('\0', " "))
        .stdin(Stdio::piped())
        // The coordinator's standard output is for results.
        .stdout(io::stderr())
        .kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    let started = command.spawn();
    let mut child = started
        .map_err(|error| anyhow!("it cannot be started: {error}; give an executable program"))?;
    let line = format!("{}\n", event.json());
    let input = child.stdin.take();
    let ended = async {
        if let Some(mut input) = input {
            // The program need not read its input.
            let _ = input.write_all(line.as_bytes()).await;
        }
        child.wait().await
    };
    match timeout(limit, ended).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(anyhow!("it ended with {status}")),
        Ok(Err(error)) => Err(anyhow!("cannot wait for it: {error}")),
        Err(_) => {
            kill(&mut child).await;
            Err(anyhow!("it ran for {} s and was killed", limit.as_secs_f64()))
        }
    }
}

/// Kills the program and its process group.
async fn kill(child: &mut Child) {
    #[cfg(unix)]
    if let Some(group) =
        child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw)
    {
        // The group may have exited.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill().await;
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use super::*;

    fn event(text: &str) -> HookEvent {
        HookEvent {
            event: "alert",
            kind: "barred".to_owned(),
            run: RunId(7),
            n: 20,
            text: text.to_owned(),
            result: None,
        }
    }

    /// Writes a program in a child process: a process that another test starts would
    /// inherit our open file, and Linux does not execute a file that is open for writing.
    fn program(dir: &Path, script: &str) -> PathBuf {
        let path = dir.join("program");
        let status = std::process::Command::new("sh")
            .args(["-c", r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod 755 "$0""#])
            .args([path.as_os_str(), script.as_ref()])
            .status();
        assert!(status.unwrap().success());
        path
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_complete_run_without_evidence_raises_an_alert() {
        let run = v1::Run { state: v1::RunState::Complete.into(), ..v1::Run::default() };
        let result = Some(v1::Result::default());
        let status = v1::Status { run: Some(run), result, ..v1::Status::default() };
        let alerts = Alert::all(&status).into_iter();
        let events = alerts.filter_map(|alert| alerted(&status, alert));
        let kinds: Vec<_> = events.map(|event| (event.event, event.kind)).collect();
        assert_eq!(kinds, [("alert", "unverified".to_owned())]);
    }

    #[tokio::test]
    async fn the_program_gets_the_event_and_no_shell_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let script = format!(
            "printf '%s|%s|%s|%s\\n' \"$QUEENS_EVENT\" \"$QUEENS_EVENT_KIND\" \"$QUEENS_EVENT_RUN\" \
             \"$QUEENS_EVENT_TEXT\" > {0}; cat >> {0}; echo $# >> {0}",
            out.display()
        );
        let evil = "Worker $(touch evil) `touch evil`; touch evil\n\"'";
        run(&program(dir.path(), &script), LONG, &event(evil)).await.unwrap();
        let output = fs::read_to_string(&out).unwrap();
        let expected = format!("alert|barred|0000000000000007|{evil}\n");
        let rest = output.strip_prefix(&expected).unwrap_or_else(|| panic!("{output}"));
        let (line, arguments) = rest.split_once('\n').unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!((line["text"].as_str(), line["n"].as_u64()), (Some(evil), Some(20)));
        assert_eq!(arguments, "0\n");
        assert!(!Path::new("evil").exists());
    }

    #[tokio::test]
    async fn a_failure_names_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let failed = run(&program(dir.path(), "exit 7"), LONG, &event("")).await.unwrap_err();
        assert!(failed.to_string().contains("7"), "{failed}");
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let script = format!("sleep 86400 & echo $! > {0}; wait", pids.display());
        let program = program(dir.path(), &script);
        // Doubles the limit until the child is started.
        let mut limit = Duration::from_millis(50);
        let child: i32 = loop {
            let hung = run(&program, limit, &event("")).await.unwrap_err();
            assert!(hung.to_string().contains("and was killed"), "{hung}");
            match fs::read_to_string(&pids).unwrap_or_default().trim().parse() {
                Ok(child) => break child,
                Err(_) => limit *= 2,
            }
        };
        let stat = format!("/proc/{child}/stat");
        let gone = async {
            while fs::read_to_string(&stat).is_ok_and(|state| !state.contains(") Z")) {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, gone).await.expect("the child is gone, or a zombie");
    }
}
