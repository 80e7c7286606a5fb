//! The view model of a run: figures and alerts for pages, terminals and texts.

use std::collections::BTreeMap;

use cli::memory::MemorySize;
use common::{
    board::Board,
    published::{plausible_total, published_counts},
};
use proto::v1::{self, RunState};
use serde::Serialize;

use super::{
    History, WorkerRow, run_of, state,
    status::{self, NO_EVIDENCE, RESOLVE, checks},
    worker_rows,
};
use crate::text::{
    abbreviated, age, between, check_name, disputed_number, durations, moment, percent, plural,
    rough, span, thousands,
};

/// Maximum number of workers on a page; those that need attention come first.
pub const SHOWN_WORKERS: usize = 50;

/// A text about a run: short on pages, in full in terminals and on hover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figure {
    pub short: String,
    /// The whole text, if `short` leaves something out.
    pub full: Option<String>,
}

/// A run's figures by name, its alerts and its workers.
#[derive(Clone, Debug, Serialize)]
pub struct RunView {
    figures: BTreeMap<&'static str, Figure>,
    /// Expected completion, earliest and latest, in Unix milliseconds.
    pub expected_ms: Option<[u64; 2]>,
    /// Completed part of the run's cost, 0 to 1.
    pub fraction: f64,
    /// Verification state: ok, pending or failed.
    pub verification: &'static str,
    pub alerts: Vec<Alert>,
    /// The first [`SHOWN_WORKERS`] workers.
    pub workers: Vec<WorkerRow>,
    pub state: &'static str,
    /// Whether the result is available.
    pub ended: bool,
}

impl RunView {
    /// Builds the view of a run from its status at `now_ms` (Unix milliseconds).
    pub fn new(status: &v1::Status, history: &History, now_ms: u64) -> Self {
        let run = status.run.clone().unwrap_or_default();
        let mut view = Self {
            figures: BTreeMap::new(),
            expected_ms: None,
            fraction: status.fraction_done,
            verification: "pending",
            alerts: Alert::all(status),
            workers: worker_rows(&status.workers),
            state: state(run.state()),
            ended: status.result.is_some(),
        };
        view.workers.truncate(SHOWN_WORKERS);
        let method = run_of(&run).map_or("unknown", |run| run.layout.method().name());
        view.set("board", format!("N = {}", run.spec.unwrap_or_default().n));
        view.set("method", format!("method {method}, run {:016x}", run.run));
        view.set("percent", percent(status.fraction_done));
        view.set("state", view.state);
        view.set("tasks", tasks(status));
        view.set("rechecks", rechecks(status));
        view.set_completion(status, &run, history, now_ms);
        view.set_solutions(status);
        view.set_rate(status);
        view.set_machines(status);
        view.set_verification(status);
        view.set("leader", status.coordinator.as_ref().map(leader).unwrap_or_default());
        view
    }

    /// Returns the short text of a figure; empty for an unknown one.
    pub fn short(&self, figure: &str) -> &str {
        self.figures.get(figure).map_or("", |figure| &figure.short)
    }

    /// Returns the long text of a figure, if it differs from the short one.
    pub fn digits(&self, figure: &str) -> Option<&str> {
        self.figures.get(figure)?.full.as_deref()
    }

    /// Returns the long text of a figure.
    pub fn full(&self, figure: &str) -> &str {
        self.digits(figure).unwrap_or_else(|| self.short(figure))
    }

    /// Returns the labels and texts of figures for a terminal, most important first.
    pub fn rows(&self) -> Vec<(&str, String)> {
        let alerts: Vec<_> = self.alerts.iter().map(|alert| alert.text.as_str()).collect();
        let alerts = if alerts.is_empty() { "None".to_owned() } else { alerts.join("; ") };
        let row = |(label, figure)| (label, self.full(figure).to_owned());
        let mut rows = [
            (self.short("eta-label"), "eta"),
            ("Verification", "verification"),
            (self.short("solutions-label"), "solutions"),
            (self.short("estimate-label"), "estimate"),
            ("Reference value", "reference"),
            (self.short("rate-label"), "rate"),
            ("Rechecks", "rechecks"),
            ("Tasks", "tasks"),
        ]
        .map(row)
        .to_vec();
        rows.retain(|(_, text)| !text.is_empty());
        rows.insert(2, ("Alerts", alerts));
        rows
    }

    fn set(&mut self, figure: &'static str, short: impl Into<String>) {
        self.figures.insert(figure, Figure { short: short.into(), full: None });
    }

    /// Sets a figure whose short text leaves out a part of `full`.
    fn set_both(&mut self, figure: &'static str, short: impl Into<String>, full: String) {
        let short = short.into();
        let full = (full != short).then_some(full);
        self.figures.insert(figure, Figure { short, full });
    }

    /// Sets a figure with a number, which is abbreviated in the short text.
    fn set_number(&mut self, figure: &'static str, number: u128, text: impl Fn(&str) -> String) {
        self.set_both(figure, text(&abbreviated(number)), text(&thousands(number)));
    }

    fn set_completion(
        &mut self,
        status: &v1::Status,
        run: &v1::Run,
        history: &History,
        now_ms: u64,
    ) {
        let label = match (&status.result, run.state()) {
            (None, _) | (_, v1::RunState::Disputed) => "ETA",
            (Some(_), _) => "Counted in",
        };
        self.set("eta-label", label);
        self.set("eta-at", "");
        match (&status.result, run.state()) {
            (Some(result), v1::RunState::Disputed) => {
                let tasks = disputed_number(&result.disputed_tasks);
                let help = format!("{tasks} disputed; {RESOLVE}");
                self.set_both("eta", "blocked", format!("blocked: {help}"));
                self.set("eta-at", help);
            }
            (Some(result), _) => {
                let full = durations(result.seconds, result.waiting_seconds);
                self.set_both("eta", span(result.seconds), full);
            }
            (None, v1::RunState::Paused) => {
                let resume = format!("paused; run `queensctl resume {:016x}` to continue", run.run);
                self.set_both("eta", "paused", resume);
            }
            (None, v1::RunState::Cancelled) => {
                let state =
                    run_of(run).map_or_else(|_| self.state.to_owned(), |run| run.state_text);
                self.set_both("eta", "cancelled", format!("{state}; its results are kept"));
                self.set("eta-at", "its results are kept");
            }
            (None, _) => match expected(status, history) {
                None if status.tasks_done > 0 && status.reason.is_empty() => {
                    self.set("eta", "not known: no task has finished recently");
                }
                None => self.set("eta", "not known yet"),
                Some((low, high)) => {
                    // For display; `as` saturates.
                    #[expect(clippy::cast_possible_truncation)]
                    let at = |seconds: f64| now_ms.saturating_add((seconds.min(1e11) * 1e3) as u64);
                    let [first, last] = [at(low), at(high)];
                    self.expected_ms = Some([first, last]);
                    let (eta, when) = (rough(low, high), between(&moment(first), &moment(last)));
                    self.set_both("eta", &eta, format!("{eta}: {when}"));
                    self.set("eta-at", when);
                }
            },
        }
    }

    fn set_solutions(&mut self, status: &v1::Status) {
        let number = |text: &str| text.parse::<u128>().unwrap_or_default();
        let total = status.result.as_ref().filter(|result| result.disputed_tasks.is_empty());
        let label = match total {
            Some(result) if result.verified => "Solutions",
            None if !is_verifying(status) => "Solutions so far",
            _ => "Unverified total",
        };
        self.set("solutions-label", label);
        self.set_number("solutions", number(&status.solutions_so_far), str::to_owned);
        let label = if total.is_some() { "Fundamental" } else { "Estimated total" };
        self.set("estimate-label", label);
        match (&status.estimate, total) {
            (_, Some(result)) if !result.fundamental.is_empty() => {
                let text = |digits: &str| format!("{digits} fundamental");
                self.set_number("estimate", number(&result.fundamental), text);
            }
            (Some(estimate), None) => {
                let [middle, low, high] =
                    [&estimate.solutions, &estimate.low, &estimate.high].map(|text| number(text));
                let confidence = estimate.confidence * 100.0;
                self.set_both(
                    "estimate",
                    format!("of about {}", abbreviated(middle)),
                    format!(
                        "{} ({} to {} with {confidence} % confidence)",
                        thousands(middle),
                        thousands(low),
                        thousands(high),
                    ),
                );
            }
            (None, None) => {
                let full = "not available yet (too few tasks done)".to_owned();
                self.set_both("estimate", "", full);
            }
            _ => self.set("estimate", ""),
        }
        let n = status.run.as_ref().and_then(|run| run.spec).unwrap_or_default().n;
        match reference_value(n) {
            (.., Some(count)) => {
                self.set_number("reference", count, |digits| format!("published: {digits}"));
            }
            (value, _, None) => self.set_both(
                "reference",
                format!("none published; about {value:.2e}"),
                format!("none published; about {value:.2e}, extrapolated from N = 22 to 27"),
            ),
        }
    }

    fn set_rate(&mut self, status: &v1::Status) {
        // Never negative, and for display only.
        #[expect(clippy::cast_possible_truncation)]
        let (label, per_second) = match &status.result {
            None => ("Rate", status.solutions_per_second as u128),
            Some(result) => {
                let solutions = status.solutions_so_far.parse::<u128>().unwrap_or_default();
                ("Mean rate", (solutions as f64 / result.seconds.max(0.001)) as u128)
            }
        };
        self.set("rate-label", label);
        let full = format!("{} solutions per second", thousands(per_second));
        self.set_both("rate", format!("{}/s", abbreviated(per_second)), full);
    }

    fn set_machines(&mut self, status: &v1::Status) {
        let totals = status.worker_totals.unwrap_or_default();
        let attention = match totals.unresponsive + totals.reconnecting + totals.barred {
            0 => String::new(),
            1 => ", 1 needs attention".to_owned(),
            more => format!(", {} need attention", thousands(more.into())),
        };
        let threads = match totals.workers {
            0 => "none connected".to_owned(),
            _ => plural(totals.threads, "thread"),
        };
        let workers = plural(totals.workers, "worker");
        self.set("threads", format!("{threads}{attention}"));
        self.set_both("machines", &workers, format!("{workers}, {threads}{attention}"));
    }

    fn set_verification(&mut self, status: &v1::Status) {
        let disputed = status.rechecks.as_ref().map_or(&[][..], |r| &r.disputed_tasks);
        let (verification, text) = match (&status.result, status.tasks_confirmed) {
            (Some(result), _) => match checks(result) {
                (_, failed) if failed.is_empty() && !result.verified => {
                    ("failed", format!("NOT verified: {NO_EVIDENCE}"))
                }
                (passed, failed) if failed.is_empty() => {
                    ("ok", format!("{} passed, none failed", plural(passed, "check")))
                }
                (_, failed) => {
                    let failed: Vec<_> = failed.into_iter().map(check_name).collect();
                    ("failed", format!("FAILED: {}", failed.join(", ")))
                }
            },
            (None, _) if !disputed.is_empty() => {
                ("failed", format!("not verified: {} disputed", disputed_number(disputed)))
            }
            (None, _) if is_verifying(status) => {
                ("pending", format!("not verified yet: {}", status.reason))
            }
            (None, 0) => ("pending", "not verified yet: no task has been rechecked".to_owned()),
            (None, confirmed) => {
                let conflicts = status.rechecks.as_ref().map_or(0, |rechecks| rechecks.conflicts);
                let settled = match conflicts {
                    0 => "no conflicts".to_owned(),
                    some => format!("{}, all settled", plural(some, "conflict")),
                };
                ("ok", format!("{} confirmed, {settled}", plural(confirmed, "task")))
            }
        };
        self.verification = verification;
        self.set("verification", text);
    }
}

fn tasks(status: &v1::Status) -> String {
    format!(
        "{} of {} done, {} leased, {} pending, {} parked",
        thousands(status.tasks_done.into()),
        plural(status.tasks_total, "task"),
        thousands(status.tasks_leased.into()),
        thousands(status.tasks_pending.into()),
        thousands(status.tasks_parked.into()),
    )
}

/// Describes the rechecks by workers and the recounts by the referee so far.
fn rechecks(status: &v1::Status) -> String {
    let conflicts = status.rechecks.as_ref().map_or(0, |rechecks| rechecks.conflicts);
    let (confirmed, recounted) = (status.tasks_confirmed, status.tasks_recounted);
    format!("{}, {}", status::rechecks(confirmed, recounted), plural(conflicts, "conflict"))
}

/// Returns the shortest and the longest expected time to completion, in seconds.
fn expected(status: &v1::Status, history: &History) -> Option<(f64, f64)> {
    let seconds = status.eta_seconds?;
    let (low, high) = history.remaining_seconds().unwrap_or((seconds, seconds));
    Some((low.min(seconds) * 0.9, high.max(seconds) * 1.1))
}

/// Returns all(N) for a chart, its source, and the exact count if it is published.
/// Otherwise the value is extrapolated; 0 for an invalid board.
pub fn reference_value(n: u32) -> (f64, &'static str, Option<u128>) {
    let board = u8::try_from(n).ok().and_then(|n| Board::new(n).ok());
    match board.and_then(published_counts) {
        Some(counts) => (counts.all() as f64, "published", Some(counts.all())),
        None => {
            let (least, most) = board.map(plausible_total).unwrap_or_default();
            (f64::midpoint(least, most), "extrapolated", None)
        }
    }
}

fn leader(coordinator: &v1::Coordinator) -> String {
    let archive = match coordinator.archive_behind_ms {
        Some(ms) => format!("; archive {} behind", age(ms as f64 / 1e3)),
        None => String::new(),
    };
    format!(
        "{} since {} (term {}){archive}",
        coordinator.name,
        moment(coordinator.since_unix_ms),
        coordinator.term
    )
}

/// Archive lag that raises an alert: several times the interval between updates.
const ARCHIVE_LAG_MS: u64 = 30_000;

/// Free space that raises an alert, as in `deploy/monitoring/alerts.yml`.
const LOW_DISK_BYTES: u64 = 2 << 30;

/// Maximum number of disputed tasks that an alert names.
const MAX_LISTED_TASKS: usize = 10;

/// Prefix of a status's reason while the symmetric solutions are counted.
pub const FINISHING: &str = "every task is done; ";

/// Returns whether every task of a run is done and its random recounts are awaited.
fn is_verifying(status: &v1::Status) -> bool {
    status.run.as_ref().is_some_and(|run| run.state() == RunState::Verifying)
}

/// Compares the total, or else its estimate, with the published or the extrapolated one.
///
/// A total that differs from a published one fails a check instead. An estimate has to miss by twice its
/// 95 % interval: it is compared all the time, and would otherwise miss in every honest run sometime.
fn implausible_total(status: &v1::Status) -> Option<String> {
    let n = status.run.as_ref()?.spec?.n;
    let board = Board::new(u8::try_from(n).ok()?).ok()?;
    let (least, most) = plausible_total(board);
    let is_counted = status.result.is_some() || is_verifying(status);
    let (what, value, low, high) = match &status.estimate {
        _ if is_counted => {
            let sum = status.solutions_so_far.parse::<f64>().ok()?;
            ("total", sum, sum, sum)
        }
        Some(estimate) => {
            let number = |text: &str| text.parse::<f64>().ok();
            let middle = number(&estimate.solutions)?;
            let twice = |end: f64| middle + 2.0 * (end - middle);
            ("estimate", middle, twice(number(&estimate.low)?), twice(number(&estimate.high)?))
        }
        None => return None,
    };
    let is_checked = status.result.is_some() && least == most;
    let source = if least == most { "published count" } else { "extrapolation from N = 22 to 27" };
    (!is_checked && (high < least || low > most)).then(|| {
        let expected = f64::midpoint(least, most);
        format!("Implausible {what}: {value:.4e}, but the {source} is {expected:.4e}")
    })
}

/// A condition that needs an operator's attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// The kind, for programs.
    pub kind: &'static str,
    /// A sentence for operators.
    pub text: String,
}

impl Alert {
    pub fn all(status: &v1::Status) -> Vec<Self> {
        let mut alerts = Vec::new();
        let mut alert = |kind, text| alerts.push(Self { kind, text });
        for check in status.result.iter().flat_map(|result| &result.checks) {
            if check.outcome == "failed" {
                let name = check_name(&check.name);
                alert("check_failed", format!("Check failed: {name}: {}", check.reason));
            }
        }
        let disputed = status.rechecks.as_ref().map_or(&[][..], |r| &r.disputed_tasks);
        if !disputed.is_empty() {
            let tasks: Vec<_> =
                disputed.iter().take(MAX_LISTED_TASKS).map(u64::to_string).collect();
            let noun = if tasks.len() == 1 { "task" } else { "tasks" };
            alert("task_disputed", format!("Conflicting counts for {noun} {}", tasks.join(", ")));
        }
        if status.referee.as_ref().is_some_and(|referee| referee.broken) {
            let text = "The referee's own counts of a task differ: the coordinator's machine is \
                        faulty, and disputes wait for a worker with a trusted token";
            alert("referee_broken", text.to_owned());
        }
        let state = status.run.as_ref().map(v1::Run::state);
        if status
            .result
            .as_ref()
            .is_some_and(|result| !result.verified && checks(result).1.is_empty())
            && state == Some(RunState::Complete)
        {
            alert("unverified", format!("The result is not verified: {NO_EVIDENCE}"));
        }
        if let [first, ..] = status.implausible_workers.as_slice() {
            let more = match status.implausible_workers.len() {
                1 => String::new(),
                some => format!(" and {} more", some - 1),
            };
            alert(
                "implausible_speed",
                format!(
                    "Implausible speed: the counts of worker {first}{more} came more than 20 times as fast as \
                     a reference thread could make them"
                ),
            );
        }
        if let Some(text) = implausible_total(status) {
            alert("implausible_total", text);
        }
        if status.tasks_parked > 0 && state == Some(RunState::Running) {
            let tasks = plural(status.tasks_parked, "task");
            let text = format!("{tasks} parked after repeated failures; they will be retried");
            alert("parked", text);
        }
        // A status's workers begin with those that need attention.
        let first = |is: fn(&v1::Worker) -> bool| {
            let worker = status.workers.iter().find(|worker| is(worker));
            worker.map_or("(not listed)", |worker| worker.name.as_str())
        };
        let totals = status.worker_totals.unwrap_or_default();
        let unresponsive = match state {
            // Workers may leave once there is nothing to count.
            Some(RunState::Complete | RunState::Contradicted | RunState::Cancelled) => 0,
            _ => totals.unresponsive,
        };
        for (kind, number, name, [one, many]) in [
            (
                "failed_threads",
                totals.failing,
                first(|worker| worker.failed_threads > 0),
                ["failed its self-test", "failed their self-test"],
            ),
            (
                "barred",
                totals.barred,
                first(|worker| worker.state == "barred"),
                [
                    "was barred after returning wrong counts",
                    "were barred after returning wrong counts",
                ],
            ),
            (
                "worker_unresponsive",
                unresponsive,
                first(|worker| matches!(worker.state.as_str(), "unresponsive" | "lost")),
                ["is not responding", "are not responding"],
            ),
        ] {
            match number {
                0 => {}
                1 => alert(kind, format!("Worker {name} {one}")),
                _ => {
                    alert(kind, format!("{}, such as {name}, {many}", plural(number, "worker")));
                }
            }
        }
        let coordinator = status.coordinator.as_ref();
        if let Some(ms) = coordinator.and_then(|coordinator| coordinator.archive_behind_ms)
            && ms >= ARCHIVE_LAG_MS
        {
            alert("archive_lagging", format!("The archive is {} behind", age(ms as f64 / 1e3)));
        }
        if let Some(free) = coordinator.and_then(|coordinator| coordinator.disk_free_bytes)
            && free < LOW_DISK_BYTES
        {
            let free = MemorySize::at_least(free);
            alert("disk_low", format!("The coordinator's disk is nearly full: {free} left"));
        }
        match status.reason.strip_prefix(FINISHING) {
            Some(progress) => alert("finishing", format!("Every task is done; {progress}")),
            None if status.reason.is_empty() => {}
            None if state == Some(RunState::Complete) => alert("rechecking", status.reason.clone()),
            None if is_verifying(status) => {
                alert("verifying", format!("Verifying: {}", status.reason))
            }
            None => {
                // Normal before the first worker connects.
                let kind = if status.workers.is_empty() { "no_workers" } else { "stalled" };
                alert(kind, format!("Stalled: {}", status.reason));
            }
        }
        alerts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the status of a run of N = 20 with one worker.
    fn status(state: v1::RunState) -> v1::Status {
        v1::Status {
            run: Some(v1::Run {
                run: 0x1234,
                spec: Some(v1::PlanSpec { n: 20, layout: v1::Layout::Frames.into(), task_cost: 1 }),
                state: state.into(),
                ..v1::Run::default()
            }),
            tasks_total: 40,
            tasks_done: 17,
            eta_seconds: Some(60.0),
            workers: vec![v1::Worker {
                name: "rack-7".to_owned(),
                state: "working".to_owned(),
                ..v1::Worker::default()
            }],
            worker_totals: Some(v1::WorkerTotals { workers: 1, ..v1::WorkerTotals::default() }),
            coordinator: Some(v1::Coordinator::default()),
            ..v1::Status::default()
        }
    }

    fn view(status: &v1::Status) -> RunView {
        RunView::new(status, &History::default(), 0)
    }

    #[test]
    fn alerts_are_raised_by_conditions_that_need_attention() {
        type Change = fn(&mut v1::Status);
        let cases: [(Change, &[&str]); 6] = [
            (|_| {}, &[]),
            (|status| status.coordinator.as_mut().unwrap().disk_free_bytes = Some(2 << 30), &[]),
            (
                |status| status.coordinator.as_mut().unwrap().disk_free_bytes = Some(3 << 29),
                &["The coordinator's disk is nearly full: 1.5 GiB left"],
            ),
            (
                |status| {
                    status.reason = format!("{FINISHING}counting the symmetric solutions: 40 %");
                },
                &["Every task is done; counting the symmetric solutions: 40 %"],
            ),
            (
                |status| status.reason = "every worker is paused".to_owned(),
                &["Stalled: every worker is paused"],
            ),
            (
                // The number includes workers that are not listed.
                |status| {
                    status.workers[0].state = "unresponsive".to_owned();
                    status.worker_totals.as_mut().unwrap().unresponsive = 9_000;
                },
                &["9,000 workers, such as rack-7, are not responding"],
            ),
        ];
        for (change, expected) in cases {
            let mut status = status(v1::RunState::Running);
            change(&mut status);
            let alerts: Vec<_> = Alert::all(&status).into_iter().map(|alert| alert.text).collect();
            assert_eq!(alerts, expected);
        }
    }

    #[test]
    fn an_unresponsive_worker_is_an_alert_only_while_tasks_remain() {
        use v1::RunState::{Cancelled, Complete, Contradicted, Disputed, Paused, Running};
        let counting = [Running, Paused, Disputed];
        for state in counting.into_iter().chain([Complete, Contradicted, Cancelled]) {
            let mut status = status(state);
            status.workers[0].state = "lost".to_owned();
            status.worker_totals.as_mut().unwrap().unresponsive = 1;
            assert_eq!(Alert::all(&status).len(), usize::from(counting.contains(&state)));
        }
    }

    #[test]
    fn the_eta_of_a_stopped_run_names_the_reason() {
        let eta = |status: &v1::Status| view(status).full("eta").to_owned();
        assert_eq!(
            eta(&status(v1::RunState::Paused)),
            "paused; run `queensctl resume 0000000000001234` to continue"
        );
        let starved = v1::Status { eta_seconds: None, ..status(v1::RunState::Running) };
        assert_eq!(eta(&starved), "not known: no task has finished recently");
        let mut cancelled = status(v1::RunState::Cancelled);
        assert_eq!(eta(&cancelled), "cancelled; its results are kept");
        cancelled.run.as_mut().unwrap().cancelled_by = "anna".to_owned();
        assert_eq!(eta(&cancelled), "cancelled by anna; its results are kept");
        let mut disputed = status(v1::RunState::Disputed);
        disputed.result =
            Some(v1::Result { disputed_tasks: vec![3, 5], seconds: 5.0, ..v1::Result::default() });
        assert_eq!(
            eta(&disputed),
            "blocked: 2 tasks disputed; start a worker with a trusted token, or restart the coordinator with \
             --referee 1"
        );
    }

    #[test]
    fn the_eta_has_one_unit_and_no_redundant_words() {
        let mut status = status(v1::RunState::Running);
        for (seconds, when) in [
            (10.0, "9 to 11 s: 1970-01-01 00:00 UTC"),
            (40.0, "36 to 44 s: 1970-01-01 00:00 UTC"),
            (7200.0, "1 to 3 h: 1970-01-01 01:48 to 02:12 UTC"),
            (863_000.0, "8 to 11 d: 1970-01-09 23:45 to 1970-01-11 23:41 UTC"),
        ] {
            status.eta_seconds = Some(seconds);
            assert_eq!(view(&status).full("eta"), when);
        }
    }

    #[test]
    fn figures_are_short_and_keep_their_digits() {
        let mut status = v1::Status {
            solutions_so_far: "14577447344".to_owned(),
            solutions_per_second: 1_145_215_440.5,
            estimate: Some(v1::Estimate {
                solutions: "35886163571".to_owned(),
                low: "28018051434".to_owned(),
                high: "43754275708".to_owned(),
                confidence: 0.95,
            }),
            ..status(v1::RunState::Running)
        };
        let seen = view(&status);
        for (place, text, digits) in [
            ("eta-label", "ETA", None),
            ("eta", "54 to 66 s", Some("54 to 66 s: 1970-01-01 00:00 to 00:01 UTC")),
            ("eta-at", "1970-01-01 00:00 to 00:01 UTC", None),
            ("solutions-label", "Solutions so far", None),
            ("solutions", "14.58 billion", Some("14,577,447,344")),
            (
                "estimate",
                "of about 35.89 billion",
                Some("35,886,163,571 (28,018,051,434 to 43,754,275,708 with 95 % confidence)"),
            ),
            ("reference", "published: 39.03 billion", Some("published: 39,029,188,884")),
            ("rate", "1.145 billion/s", Some("1,145,215,440 solutions per second")),
            ("machines", "1 worker", Some("1 worker, 0 threads")),
            ("threads", "0 threads", None),
        ] {
            assert_eq!(seen.short(place), text);
            assert_eq!(seen.digits(place), digits, "{place}");
        }
        assert_eq!(seen.expected_ms, Some([54_000, 66_000]));
        assert_eq!(seen.verification, "pending");
        status.tasks_confirmed = 3;
        assert_eq!(view(&status).verification, "ok");
        status.solutions_so_far = "39029188884".to_owned();
        status.result = Some(v1::Result {
            solutions: "39029188884".to_owned(),
            fundamental: "4878666808".to_owned(),
            seconds: 39.0,
            checks: vec![v1::Check {
                name: "rechecks".to_owned(),
                outcome: "failed".to_owned(),
                ..v1::Check::default()
            }],
            ..v1::Result::default()
        });
        let seen = view(&status);
        assert_eq!((seen.short("eta-label"), seen.short("eta")), ("Counted in", "39.0 s"));
        assert_eq!(seen.short("estimate"), "4.879 billion fundamental");
        assert_eq!(seen.short("rate-label"), "Mean rate");
        assert_eq!(seen.short("rate"), "1.001 billion/s");
        assert_eq!((seen.verification, seen.short("verification")), ("failed", "FAILED: rechecks"));
    }
}
