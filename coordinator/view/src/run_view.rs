//! The view model of a run: figures for pages, terminals and texts.

use std::fmt;

use common::{
    board::Board,
    solutions::published::{plausible_total, published_counts},
};
use proto::v1::{self, RunState};
use serde::Serialize;

use super::{
    Alert, History, WorkerRow, run_of,
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

impl<T: Into<String>> From<T> for Figure {
    fn from(text: T) -> Self {
        Self { short: text.into(), full: None }
    }
}

impl Figure {
    /// Creates a figure whose short text leaves out a part of `full`.
    fn both(short: impl Into<String>, full: String) -> Self {
        let short = short.into();
        let full = (full != short).then_some(full);
        Self { short, full }
    }

    /// Creates a figure with a number, which is abbreviated in the short text.
    fn number(number: u128, text: impl Fn(&str) -> String) -> Self {
        Self::both(text(&abbreviated(number)), text(&thousands(number)))
    }

    pub fn full(&self) -> &str {
        self.full.as_deref().unwrap_or(&self.short)
    }
}

/// The figures of a run. Pages find them by the names in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Figures {
    pub board: Figure,
    pub method: Figure,
    pub percent: Figure,
    pub state: Figure,
    pub tasks: Figure,
    pub rechecks: Figure,
    pub eta_label: Figure,
    pub eta: Figure,
    pub eta_at: Figure,
    pub solutions_label: Figure,
    pub solutions: Figure,
    pub estimate_label: Figure,
    pub estimate: Figure,
    pub reference: Figure,
    pub rate_label: Figure,
    pub rate: Figure,
    pub machines: Figure,
    pub threads: Figure,
    pub verification: Figure,
    pub leader: Figure,
}

/// A judgment, which decides about a color.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rating {
    Ok,
    Pending,
    Failed,
}

impl fmt::Display for Rating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A run's figures, its alerts and its workers.
#[derive(Clone, Debug, Serialize)]
pub struct RunView {
    pub figures: Figures,
    /// Expected completion, earliest and latest, in Unix milliseconds.
    pub expected_ms: Option<[u64; 2]>,
    /// Completed part of the run's cost, 0 to 1.
    pub fraction: f64,
    pub verification: Rating,
    pub alerts: Vec<Alert>,
    /// Whether an alert is an alarm.
    pub alarm: bool,
    /// The first [`SHOWN_WORKERS`] workers.
    pub workers: Vec<WorkerRow>,
    pub state: RunState,
    /// Whether the result is available.
    pub ended: bool,
}

impl RunView {
    /// Builds the view of a run from its status at `now_ms` (Unix milliseconds).
    pub fn new(status: &v1::Status, history: &History, now_ms: u64) -> Self {
        let run = status.run.clone().unwrap_or_default();
        let method = run_of(&run).map_or("unknown", |run| run.layout.method().name());
        let (verification, verification_text) = verification(status);
        let alerts = Alert::all(status);
        let mut view = Self {
            figures: Figures {
                board: format!("N = {}", run.spec.unwrap_or_default().n).into(),
                method: format!("method {method}, run {:016x}", run.run).into(),
                percent: percent(status.fraction_done).into(),
                state: run.state().to_string().into(),
                tasks: tasks(status).into(),
                rechecks: rechecks(status).into(),
                verification: verification_text.into(),
                leader: status.coordinator.as_ref().map(leader).unwrap_or_default().into(),
                ..Figures::default()
            },
            expected_ms: None,
            fraction: status.fraction_done,
            verification,
            alarm: alerts.iter().any(|alert| alert.kind.is_alarm()),
            alerts,
            workers: worker_rows(&status.workers),
            state: run.state(),
            ended: status.result.is_some(),
        };
        view.workers.truncate(SHOWN_WORKERS);
        view.set_completion(status, &run, history, now_ms);
        view.figures.set_solutions(status);
        view.figures.set_rate(status);
        view.figures.set_machines(status);
        view
    }

    /// Returns the labels and texts of figures for a terminal, most important first.
    pub fn rows(&self) -> Vec<(&str, String)> {
        let alerts: Vec<_> = self.alerts.iter().map(|alert| alert.text.as_str()).collect();
        let alerts = if alerts.is_empty() { "None".to_owned() } else { alerts.join("; ") };
        let of = &self.figures;
        let mut rows = [
            (of.eta_label.short.as_str(), &of.eta),
            ("Verification", &of.verification),
            (&of.solutions_label.short, &of.solutions),
            (&of.estimate_label.short, &of.estimate),
            ("Reference value", &of.reference),
            (&of.rate_label.short, &of.rate),
            ("Rechecks", &of.rechecks),
            ("Tasks", &of.tasks),
        ]
        .map(|(label, figure)| (label, figure.full().to_owned()))
        .to_vec();
        rows.retain(|(_, text)| !text.is_empty());
        rows.insert(2, ("Alerts", alerts));
        rows
    }

    fn set_completion(
        &mut self,
        status: &v1::Status,
        run: &v1::Run,
        history: &History,
        now_ms: u64,
    ) {
        let of = &mut self.figures;
        let label = match (&status.result, run.state()) {
            (None, _) | (_, v1::RunState::Disputed) => "ETA",
            (Some(_), _) => "Counted in",
        };
        of.eta_label = label.into();
        of.eta_at = "".into();
        match (&status.result, run.state()) {
            (Some(result), v1::RunState::Disputed) => {
                let tasks = disputed_number(&result.disputed_tasks);
                let help = format!("{tasks} disputed; {RESOLVE}");
                of.eta = Figure::both("blocked", format!("blocked: {help}"));
                of.eta_at = help.into();
            }
            (Some(result), _) => {
                let full = durations(result.seconds, result.waiting_seconds);
                of.eta = Figure::both(span(result.seconds), full);
            }
            (None, v1::RunState::Paused) => {
                let resume = format!("paused; run `queensctl resume {:016x}` to continue", run.run);
                of.eta = Figure::both("paused", resume);
            }
            (None, v1::RunState::Cancelled) => {
                let state =
                    run_of(run).map_or_else(|_| run.state().to_string(), |run| run.state_text);
                of.eta = Figure::both("cancelled", format!("{state}; its results are kept"));
                of.eta_at = "its results are kept".into();
            }
            (None, _) => match expected(status, history) {
                None if status.tasks_done > 0 && status.reason.is_empty() => {
                    of.eta = "not known: no task has finished recently".into();
                }
                None => of.eta = "not known yet".into(),
                Some((low, high)) => {
                    // For display; `as` saturates.
                    #[expect(clippy::cast_possible_truncation)]
                    let at = |seconds: f64| now_ms.saturating_add((seconds.min(1e11) * 1e3) as u64);
                    let [first, last] = [at(low), at(high)];
                    self.expected_ms = Some([first, last]);
                    let (eta, when) = (rough(low, high), between(&moment(first), &moment(last)));
                    of.eta = Figure::both(&eta, format!("{eta}: {when}"));
                    of.eta_at = when.into();
                }
            },
        }
    }
}

impl Figures {
    fn set_solutions(&mut self, status: &v1::Status) {
        let number = |text: &str| text.parse::<u128>().unwrap_or_default();
        let total = status.result.as_ref().filter(|result| result.disputed_tasks.is_empty());
        let label = match total {
            Some(result) if result.verified => "Solutions",
            None if !is_verifying(status) => "Solutions so far",
            _ => "Unverified total",
        };
        self.solutions_label = label.into();
        self.solutions = Figure::number(number(&status.solutions_so_far), str::to_owned);
        let label = if total.is_some() { "Fundamental" } else { "Estimated total" };
        self.estimate_label = label.into();
        match (&status.estimate, total) {
            (_, Some(result)) if !result.fundamental.is_empty() => {
                let fundamental = number(&result.fundamental);
                let short = format!("{} fundamental", abbreviated(fundamental));
                self.estimate = Figure::both(short, thousands(fundamental));
            }
            (Some(estimate), None) => {
                let [middle, low, high] =
                    [&estimate.solutions, &estimate.low, &estimate.high].map(|text| number(text));
                let confidence = estimate.confidence * 100.0;
                self.estimate = Figure::both(
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
                self.estimate = Figure::both("", full);
            }
            _ => self.estimate = "".into(),
        }
        let n = status.run.as_ref().and_then(|run| run.spec).unwrap_or_default().n;
        match reference_value(n) {
            (_, Some(count)) => {
                self.reference = Figure::number(count, |digits| format!("published: {digits}"));
            }
            (value, None) => {
                self.reference = Figure::both(
                    format!("none published; about {value:.2e}"),
                    format!("none published; about {value:.2e}, extrapolated from N = 22 to 27"),
                )
            }
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
        self.rate_label = label.into();
        let full = format!("{} solutions per second", thousands(per_second));
        self.rate = Figure::both(format!("{}/s", abbreviated(per_second)), full);
    }

    fn set_machines(&mut self, status: &v1::Status) {
        let totals = status.worker_totals.unwrap_or_default();
        let attention = match totals.silent + totals.reconnecting + totals.barred {
            0 => String::new(),
            1 => ", 1 needs attention".to_owned(),
            more => format!(", {} need attention", thousands(more.into())),
        };
        let threads = match totals.workers {
            0 => "none connected".to_owned(),
            _ => plural(totals.threads, "thread"),
        };
        let packages = match totals.away {
            0 => String::new(),
            away => format!(", {} away", plural(away, "package")),
        };
        let workers = format!("{}{packages}", plural(totals.workers, "worker"));
        self.threads = format!("{threads}{attention}").into();
        self.machines = Figure::both(&workers, format!("{workers}, {threads}{attention}"));
    }
}

/// Rates the verification of a run, and describes it.
fn verification(status: &v1::Status) -> (Rating, String) {
    let disputed = status.rechecks.as_ref().map_or(&[][..], |r| &r.disputed_tasks);
    match (&status.result, status.tasks_confirmed) {
        (Some(result), _) => match checks(result) {
            (_, failed) if failed.is_empty() && !result.verified => {
                (Rating::Failed, format!("NOT verified: {NO_EVIDENCE}"))
            }
            (passed, failed) if failed.is_empty() => {
                (Rating::Ok, format!("{} passed, none failed", plural(passed, "check")))
            }
            (_, failed) => {
                let failed: Vec<_> = failed.into_iter().map(check_name).collect();
                (Rating::Failed, format!("FAILED: {}", failed.join(", ")))
            }
        },
        (None, _) if !disputed.is_empty() => {
            (Rating::Failed, format!("not verified: {} disputed", disputed_number(disputed)))
        }
        (None, _) if is_verifying(status) => {
            (Rating::Pending, format!("not verified yet: {}", status.reason))
        }
        (None, 0) => (Rating::Pending, "not verified yet: no task has been rechecked".to_owned()),
        (None, confirmed) => {
            let conflicts = status.rechecks.as_ref().map_or(0, |rechecks| rechecks.conflicts);
            let settled = match conflicts {
                0 => "no conflicts".to_owned(),
                some => format!("{}, all settled", plural(some, "conflict")),
            };
            (Rating::Ok, format!("{} confirmed, {settled}", plural(confirmed, "task")))
        }
    }
}

fn tasks(status: &v1::Status) -> String {
    format!(
        "{} of {} done, {} counting, {} queued, {} pending, {} parked",
        thousands(status.tasks_done.into()),
        plural(status.tasks_total, "task"),
        thousands(status.tasks_counting.into()),
        thousands(status.tasks_leased.saturating_sub(status.tasks_counting).into()),
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

/// Returns all(N) for a chart, and the exact count if it is published.
/// Otherwise the value is extrapolated; 0 for an invalid board.
pub(crate) fn reference_value(n: u32) -> (f64, Option<u128>) {
    let board = u8::try_from(n).ok().and_then(|n| Board::new(n).ok());
    match board.and_then(published_counts) {
        Some(counts) => (counts.all() as f64, Some(counts.all())),
        None => {
            let (least, most) = board.map(plausible_total).unwrap_or_default();
            (f64::midpoint(least, most), None)
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

/// Returns whether every task of a run is done and its random recounts are awaited.
pub(crate) fn is_verifying(status: &v1::Status) -> bool {
    status.run.as_ref().is_some_and(|run| run.state() == RunState::Verifying)
}

#[cfg(test)]
pub(crate) mod tests {
    use proto::v1::{CheckOutcome, WorkerState};

    use super::*;

    /// Returns the status of a run of N = 20 with one worker.
    pub(crate) fn status(state: v1::RunState) -> v1::Status {
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
                state: WorkerState::Working.into(),
                ..v1::Worker::default()
            }],
            worker_totals: Some(v1::WorkerTotals {
                workers: 1,
                away: 2,
                ..v1::WorkerTotals::default()
            }),
            coordinator: Some(v1::Coordinator::default()),
            ..v1::Status::default()
        }
    }

    fn view(status: &v1::Status) -> RunView {
        RunView::new(status, &History::default(), 0)
    }

    #[test]
    fn the_eta_of_a_stopped_run_names_the_reason() {
        let eta = |status: &v1::Status| view(status).figures.eta.full().to_owned();
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
            assert_eq!(view(&status).figures.eta.full(), when);
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
        let of = &seen.figures;
        for (figure, text, digits) in [
            (&of.eta_label, "ETA", None),
            (&of.eta, "54 to 66 s", Some("54 to 66 s: 1970-01-01 00:00 to 00:01 UTC")),
            (&of.eta_at, "1970-01-01 00:00 to 00:01 UTC", None),
            (&of.solutions_label, "Solutions so far", None),
            (&of.solutions, "14.58 billion", Some("14,577,447,344")),
            (
                &of.estimate,
                "of about 35.89 billion",
                Some("35,886,163,571 (28,018,051,434 to 43,754,275,708 with 95 % confidence)"),
            ),
            (&of.reference, "published: 39.03 billion", Some("published: 39,029,188,884")),
            (&of.rate, "1.145 billion/s", Some("1,145,215,440 solutions per second")),
            (
                &of.machines,
                "1 worker, 2 packages away",
                Some("1 worker, 2 packages away, 0 threads"),
            ),
            (&of.threads, "0 threads", None),
        ] {
            assert_eq!((figure.short.as_str(), figure.full.as_deref()), (text, digits));
        }
        assert_eq!(seen.expected_ms, Some([54_000, 66_000]));
        assert_eq!(seen.verification, Rating::Pending);
        status.tasks_confirmed = 3;
        assert_eq!(view(&status).verification, Rating::Ok);
        status.solutions_so_far = "39029188884".to_owned();
        status.result = Some(v1::Result {
            solutions: "39029188884".to_owned(),
            fundamental: "4878666808".to_owned(),
            seconds: 39.0,
            checks: vec![v1::Check {
                name: "rechecks".to_owned(),
                outcome: CheckOutcome::Failed.into(),
                ..v1::Check::default()
            }],
            ..v1::Result::default()
        });
        let seen = view(&status);
        let of = &seen.figures;
        for (figure, text) in [
            (&of.eta_label, "Counted in"),
            (&of.eta, "39.0 s"),
            (&of.estimate, "4.879 billion fundamental"),
            (&of.rate_label, "Mean rate"),
            (&of.rate, "1.001 billion/s"),
            (&of.verification, "FAILED: rechecks"),
        ] {
            assert_eq!(figure.short, text);
        }
        assert_eq!(seen.verification, Rating::Failed);
    }
}
