//! Waiting for runs: progress on stderr, results on stdout, the exit code, and the
//! notice to workers that all runs are finished.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use cli::{
    exit::Exit,
    terminal::{StatusBar, eprint_info, print, print_json, with_status_line_hidden},
};
use common::messages::run::RunId;
use proto::v1;
use scheduler::{RunSummary, WorkerState, WorkerStatus, WorkersPart};
use store::RunState;
use tokio::time::{MissedTickBehavior, interval, sleep};
use view::{
    check_line, event_text, outcome_json, result_lines,
    text::{
        cancelled, eprint_line, one_line, percent, plural, prose, span, stdout_width, thousands,
    },
};

use crate::{
    driver::{DriverHandle, LOCAL_WORKER, Outcome, StatusReport, Stopped},
    message,
};

const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Interval between log lines with the progress.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Interval between checks for workers that need the notice.
const NOTICE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time to wait for workers before a message to the user.
const QUIET_PERIOD: Duration = Duration::from_secs(2);

/// Maximum wait for workers.
const MAX_WAIT: Duration = Duration::from_secs(25);

/// The message after a result unless the coordinator exits.
const STILL_SERVING: &str =
    "Still serving; submit another run with `queensctl submit`, or press Ctrl-C to exit.";

/// The task that waits for runs and prints their results.
pub(super) struct RunWaiter {
    pub(super) driver: DriverHandle,
    /// The requested run; `None` for all runs.
    pub(super) target: Option<RunId>,
    pub(super) exit_when_done: bool,
    pub(super) json: bool,
    pub(super) verbose: bool,
    /// Whether this process counts too (`--local`).
    pub(super) is_local: bool,
    pub(super) reported: Reported,
}

impl RunWaiter {
    /// Prints new results; returns once the requested runs are finished.
    pub(super) async fn wait(&mut self) -> anyhow::Result<Exit> {
        let mut outcomes = self.driver.outcomes();
        let events = self.driver.events(None, 0).await?;
        let mut last_sequence = events.last().map_or(0, |(_, event)| event.sequence);
        let mut progress = Progress::new();
        let mut poll = interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Read states before outcomes, so that no outcome is older than its state.
            let runs = self.driver.runs().await?;
            for event in self.driver.events(None, last_sequence).await? {
                last_sequence = event.1.sequence;
                if let Some(line) = end_text(&message::event(&event), &runs) {
                    // Otherwise the line would redraw the bar of the ended run.
                    progress.show(None);
                    eprint_info(&line);
                }
            }
            // Cloned, because the borrowed value blocks the driver.
            let latest = outcomes.borrow_and_update().clone();
            self.print_new(&latest).await?;
            if self.exit_when_done
                && let Some(exit) = exit(self.target, &runs, &latest)?
            {
                return Ok(exit);
            }
            tokio::select! {
                changed = outcomes.changed() => changed.context("the driver ended")?,
                _ = poll.tick() => {
                    let report = match run_in_progress(&runs, self.target) {
                        Some(run) => self.driver.status(Some(run)).await?,
                        None => None,
                    };
                    progress.show(report.as_ref());
                }
            }
        }
    }

    /// Prints new results, and a message for each withdrawn one.
    async fn print_new(&mut self, outcomes: &BTreeMap<RunId, Outcome>) -> anyhow::Result<()> {
        for run in self.reported.withdrawn(outcomes) {
            let Some(report) = self.driver.status(Some(run)).await? else {
                continue;
            };
            let spec = report.status.run.manifest.spec;
            eprint_line(&format!(
                "run {run} (N = {}): result withdrawn: the run was reopened, and a total follows once it is \
                 complete again (`queensctl events` shows the cause)",
                spec.board
            ));
        }
        for outcome in outcomes.values() {
            // A user who requested one run gets one result.
            let is_other = self.exit_when_done && self.target.is_some_and(|run| run != outcome.run);
            if !is_other && let Some(status) = self.reported.report(&self.driver, outcome).await? {
                with_status_line_hidden(|| self.print(&status))?;
                if !self.exit_when_done {
                    eprint_info(STILL_SERVING);
                }
            }
        }
        Ok(())
    }

    /// Prints a result as one JSON object, or as two lines wrapped for a terminal.
    /// With `--verbose`, all checks follow the lines.
    fn print(&self, status: &v1::Status) -> anyhow::Result<()> {
        let printed = match self.json {
            true => print_json(&outcome_json(status).to_string()),
            false => {
                let lines = result_lines(status, self.is_local).unwrap_or_default().join("\n");
                let checks = status.result.iter().flat_map(|result| &result.checks);
                let checks = checks.filter(|_| self.verbose).map(check_line);
                let text = std::iter::once(prose(&lines, stdout_width())).chain(checks);
                print(&text.collect::<Vec<_>>().join("\n"))
            }
        };
        match result_printed(printed) {
            // The result is stored, and other runs have to be served.
            Err(error) if !self.exit_when_done => {
                eprint_line(&format!("error: {}", one_line(&error)));
                Ok(())
            }
            printed => printed,
        }
    }
}

/// Returns the exit code once all requested runs are finished; an error if none of them has a result.
fn exit(
    target: Option<RunId>,
    runs: &[RunSummary],
    outcomes: &BTreeMap<RunId, Outcome>,
) -> anyhow::Result<Option<Exit>> {
    let (mut exit, mut nothing) = (None, "there is no run to wait for".to_owned());
    let is_target = |run: &&RunSummary| target.is_none_or(|target| target == run.manifest.run);
    for RunSummary { manifest, state, cancelled_by, is_rechecking, .. } in
        runs.iter().filter(is_target)
    {
        if *is_rechecking {
            return Ok(None);
        }
        match (state, outcomes.get(&manifest.run)) {
            (RunState::Complete | RunState::Contradicted | RunState::Disputed, Some(outcome)) => {
                exit = Some(match (outcome.state(), exit.unwrap_or(Exit::Success)) {
                    (RunState::Complete, exit) if outcome.is_verified() => exit,
                    (RunState::Complete, Exit::Success) => Exit::Unverified,
                    (RunState::Complete, exit) => exit,
                    _ => Exit::Contradicted,
                });
            }
            (RunState::Cancelled, _) => {
                nothing = cancelled(manifest.run, cancelled_by.as_deref());
            }
            // An outcome of a running run is being withdrawn.
            (RunState::Running | RunState::Paused, _)
            | (RunState::Complete | RunState::Contradicted | RunState::Disputed, None) => {
                return Ok(None);
            }
        }
    }
    exit.map(Some).ok_or_else(|| anyhow!(nothing))
}

/// Returns the run whose progress is shown: the requested one if it is open,
/// otherwise the one that is served first.
fn run_in_progress(runs: &[RunSummary], target: Option<RunId>) -> Option<RunId> {
    let open = || runs.iter().filter(|run| is_open(run));
    let requested = open().find(|run| Some(run.manifest.run) == target);
    let served = || open().find(|run| run.state == RunState::Running).or_else(|| open().next());
    Some(requested.or_else(served)?.manifest.run)
}

/// Formats a cancellation or deletion by an operator; `None` for other events.
fn end_text(event: &v1::Event, runs: &[RunSummary]) -> Option<String> {
    let text = event_text(event);
    match event.kind.as_str() {
        "deleted" => Some(text),
        "cancelled" => {
            let run = event.run.map(RunId);
            let of_event = |known: &&RunSummary| Some(known.manifest.run) == run;
            let RunSummary { manifest, tasks, .. } = runs.iter().find(of_event)?;
            let (run, n) = (manifest.run, manifest.spec.board);
            let (done, all) = (thousands(tasks.done.into()), plural(tasks.total, "task"));
            Some(format!("run {run} (N = {n}) was {text}; its results are kept: {done} of {all}"))
        }
        _ => None,
    }
}

/// The progress of a run: a bar on a terminal, or a log line per `LOG_INTERVAL`.
struct Progress {
    bar: Option<StatusBar>,
    logged: Instant,
    logged_done: u64,
}

impl Progress {
    fn new() -> Self {
        Self { bar: None, logged: Instant::now(), logged_done: 0 }
    }

    fn show(&mut self, report: Option<&StatusReport>) {
        let Some(report) = report else {
            self.bar = None;
            return;
        };
        let RunSummary { tasks, fraction_done, .. } = report.status.run;
        self.bar = self.bar.take().or_else(StatusBar::bar);
        if let Some(bar) = &self.bar {
            bar.show(fraction_done, progress_message(report));
        } else if self.logged.elapsed() >= LOG_INTERVAL && tasks.done != self.logged_done {
            self.logged = Instant::now();
            self.logged_done = tasks.done;
            tracing::info!("{}, {}", percent(fraction_done), progress_message(report));
        }
    }
}

fn progress_message(report: &StatusReport) -> String {
    let status = &report.status;
    if report.outcome.is_some() {
        return "done".to_owned();
    }
    if let Some(part) = report.finishing {
        return format!("all tasks done, counting the symmetric solutions: {:.1} %", part * 100.0);
    }
    // The most important part first: a terminal may truncate the rest.
    let RunSummary { tasks, eta_seconds, .. } = &status.run;
    let done = thousands(tasks.done.into());
    let mut parts = vec![format!("{done} of {}", plural(tasks.total, "task"))];
    parts.extend(eta_seconds.map(|seconds| format!("{} left", span(seconds))));
    if status.solutions_per_second > 0.0 {
        parts.push(format!("{:.2e} solutions per second", status.solutions_per_second));
    }
    parts.push(plural(status.worker_totals.all().workers, "worker"));
    parts.extend(
        status
            .estimate
            .map(|estimate| format!("about {} solutions", thousands(estimate.solutions))),
    );
    parts.extend((!status.reason.is_empty()).then(|| status.reason.clone()));
    parts.join(", ")
}

/// Waits, for at most `limit`, until all workers know that all runs are finished.
/// Otherwise they would wait for the coordinator to return. Returns immediately if a run is open.
pub(super) async fn notify_workers(driver: &DriverHandle, limit: Duration) {
    let (started, limit) = (Instant::now(), limit.min(MAX_WAIT));
    let mut is_announced = false;
    while started.elapsed() < limit {
        let all = WorkersPart::ById { after: None, most: usize::MAX };
        let (Ok(runs), Ok(page)) = (driver.runs().await, driver.workers(all).await) else {
            return;
        };
        let waiting = page.workers.iter().filter(|worker| needs_notice(worker)).count();
        if waiting == 0 || runs.iter().any(is_open) {
            return;
        }
        if !is_announced && started.elapsed() > QUIET_PERIOD {
            is_announced = true;
            eprint_info(&format!(
                "Notifying {} that all runs have finished (up to {} s; Ctrl-C exits now)",
                plural(waiting, "worker"),
                limit.as_secs()
            ));
        }
        sleep(NOTICE_POLL_INTERVAL).await;
    }
}

fn is_open(run: &RunSummary) -> bool {
    matches!(run.state, RunState::Running | RunState::Paused) || run.is_rechecking
}

fn needs_notice(worker: &WorkerStatus) -> bool {
    let is_connected =
        matches!(worker.state, WorkerState::Working | WorkerState::Idle | WorkerState::Paused);
    is_connected && !worker.notified_finished && worker.id != LOCAL_WORKER
}

/// Outcomes that were reported, and runs whose outcomes need no report.
#[derive(Debug, Default)]
pub(super) struct Reported {
    outcomes: BTreeMap<RunId, Outcome>,
    /// Runs that finished before this process started.
    old: BTreeSet<RunId>,
}

impl Reported {
    pub(super) fn new(old: BTreeSet<RunId>) -> Self {
        Self { outcomes: BTreeMap::new(), old }
    }

    /// Removes and returns the runs whose outcome was withdrawn.
    pub(super) fn withdrawn(&mut self, all: &BTreeMap<RunId, Outcome>) -> Vec<RunId> {
        self.outcomes.extract_if(.., |run, _| !all.contains_key(run)).map(|(run, _)| run).collect()
    }

    /// Returns the status of a run with a new outcome.
    /// Returns `None` if the outcome was reported or is old, or if the run was deleted.
    pub(super) async fn report(
        &mut self,
        driver: &DriverHandle,
        outcome: &Outcome,
    ) -> Result<Option<v1::Status>, Stopped> {
        let before = self.outcomes.insert(outcome.run, outcome.clone());
        if before.as_ref() == Some(outcome) || self.old.remove(&outcome.run) {
            return Ok(None);
        }
        let report = driver.status(Some(outcome.run)).await?;
        Ok(report.map(|mut report| {
            report.status.run.state = outcome.state();
            message::status(&StatusReport { outcome: Some(outcome.clone()), ..report })
        }))
    }
}

/// Adds to a print error that the result is stored.
pub(super) fn result_printed(printed: io::Result<()>) -> anyhow::Result<()> {
    printed.context(
        "cannot write the result to standard output (it is stored: the same command prints it again)",
    )
}

#[cfg(test)]
mod tests {
    use common::method::Layout;
    use scheduler::{Millis, TaskNumbers};

    use super::*;
    use crate::driver::new_manifest;

    fn run(number: u64, state: RunState) -> RunSummary {
        let plan = kit::plan(8, Layout::FirstRows, 1);
        let mut manifest = new_manifest(&plan, 0, Millis(number));
        manifest.run = RunId(number);
        RunSummary {
            manifest,
            state,
            priority: 0,
            tasks: TaskNumbers { total: 401, done: 120, ..TaskNumbers::default() },
            is_served: true,
            fraction_done: 0.0,
            eta_seconds: None,
            counting_seconds: 0.0,
            solutions: None,
            verified: false,
            verifying: None,
            is_rechecking: false,
            cancelled_by: None,
        }
    }

    #[test]
    fn progress_is_shown_for_the_served_run() {
        use RunState::{Cancelled, Complete, Paused, Running};
        let first = Some(RunId(1));
        for (states, target, expected) in [
            (&[Running, Running][..], first, first),
            (&[Paused, Running], first, first),
            (&[Cancelled, Running], first, Some(RunId(2))),
            (&[Complete, Paused, Running], first, Some(RunId(3))),
            (&[Paused, Running], None, Some(RunId(2))),
            (&[Paused, Complete], None, first),
            (&[Cancelled, Complete], first, None),
            (&[], None, None),
        ] {
            let runs: Vec<_> = (1..).zip(states).map(|(id, &state)| run(id, state)).collect();
            assert_eq!(run_in_progress(&runs, target), expected, "{states:?}");
        }
    }

    #[test]
    fn without_a_result_the_exit_is_an_error() {
        use RunState::{Cancelled, Complete, Running};
        let first = Some(RunId(1));
        for (states, target, expected) in [
            (&[Running, Cancelled][..], None, Ok(None)),
            (&[Cancelled, Complete], None, Ok(None)),
            (&[Cancelled, Running], first, Err("run 0000000000000001 was cancelled")),
            (&[Cancelled], None, Err("run 0000000000000001 was cancelled")),
            (&[], first, Err("there is no run to wait for")),
        ] {
            let runs: Vec<_> = (1..).zip(states).map(|(id, &state)| run(id, state)).collect();
            let exit = exit(target, &runs, &BTreeMap::new()).map_err(|error| error.to_string());
            assert_eq!(exit, expected.map_err(str::to_owned), "{states:?}");
        }
    }
}
