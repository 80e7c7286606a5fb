//! Alerts: conditions of a run that need an operator's attention.

use std::fmt;

use cli::memory::MemorySize;
use common::{board::Board, solutions::published::plausible_total};
use proto::v1::{self, CheckOutcome, RunState, WorkerState};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    run_view::is_verifying,
    status::{NO_EVIDENCE, checks},
};
use crate::text::{age, check_name, moment, plural, some_of};

/// Archive lag that raises an alert: several times the interval between updates.
const ARCHIVE_LAG_MS: u64 = 30_000;

/// Free space that raises an alert, as in `deploy/monitoring/alerts.yml`.
const LOW_DISK_BYTES: u64 = 2 << 30;

/// Maximum number of disputed tasks that an alert names.
const MAX_LISTED_TASKS: usize = 10;

/// Prefix of a status's reason while a run of higher priority is served.
const WAITING: &str = "waiting";

/// Prefix of a status's reason while the symmetric solutions are counted.
pub const FINISHING: &str = "every task is done; ";

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertKind {
    CheckFailed,
    TaskDisputed,
    RefereeBroken,
    Unverified,
    ImplausibleSpeed,
    ImplausibleTotal,
    Parked,
    FailedThreads,
    Barred,
    WorkerSilent,
    ArchiveLagging,
    DiskLow,
    Finishing,
    Rechecking,
    Verifying,
    // A run of higher priority is served first.
    Waiting,
    NoWorkers,
    Stalled,
}

impl AlertKind {
    /// Returns whether something is wrong: neither normal progress, nor a state that an operator chose.
    pub fn is_alarm(self) -> bool {
        use AlertKind::{Finishing, NoWorkers, Rechecking, Verifying, Waiting};
        !matches!(self, Finishing | Rechecking | Verifying | Waiting | NoWorkers)
    }
}

impl fmt::Display for AlertKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A condition of a run that needs an operator's attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Alert {
    /// The kind, for programs.
    pub kind: AlertKind,
    /// A sentence for operators.
    pub text: String,
}

impl Alert {
    pub fn all(status: &v1::Status) -> Vec<Self> {
        let mut alerts = Vec::new();
        let mut alert = |kind, text| alerts.push(Self { kind, text });
        for check in status.result.iter().flat_map(|result| &result.checks) {
            if check.outcome() == CheckOutcome::Failed {
                let name = check_name(&check.name);
                alert(AlertKind::CheckFailed, format!("Check failed: {name}: {}", check.reason));
            }
        }
        let disputed = status.rechecks.as_ref().map_or(&[][..], |r| &r.disputed_tasks);
        if !disputed.is_empty() {
            let tasks: Vec<_> =
                disputed.iter().take(MAX_LISTED_TASKS).map(u64::to_string).collect();
            let noun = if tasks.len() == 1 { "task" } else { "tasks" };
            alert(
                AlertKind::TaskDisputed,
                format!("Conflicting counts for {noun} {}", tasks.join(", ")),
            );
        }
        if status.referee.as_ref().is_some_and(|referee| referee.broken) {
            let text = "The referee's own counts of a task differ: the coordinator's machine is \
                        faulty, and disputes wait for a worker with a trusted token";
            alert(AlertKind::RefereeBroken, text.to_owned());
        }
        let state = status.run.as_ref().map(v1::Run::state);
        if status
            .result
            .as_ref()
            .is_some_and(|result| !result.verified && checks(result).1.is_empty())
            && state == Some(RunState::Complete)
        {
            alert(AlertKind::Unverified, format!("The result is not verified: {NO_EVIDENCE}"));
        }
        if let [first, ..] = status.implausible_workers.as_slice() {
            let more = match status.implausible_workers.len() {
                1 => String::new(),
                some => format!(" and {} more", some - 1),
            };
            alert(
                AlertKind::ImplausibleSpeed,
                format!(
                    "Implausible speed: the counts of worker {first}{more} came more than 20 times as fast as \
                     a reference thread could make them"
                ),
            );
        }
        if let Some(text) = implausible_total(status) {
            alert(AlertKind::ImplausibleTotal, text);
        }
        if status.tasks_parked > 0 && state == Some(RunState::Running) {
            let tasks = plural(status.tasks_parked, "task");
            let text = format!("{tasks} parked after repeated failures; they will be retried");
            alert(AlertKind::Parked, text);
        }
        // A status's workers begin with those that need attention.
        let first = |is: fn(&v1::Worker) -> bool| {
            let worker = status.workers.iter().find(|worker| is(worker));
            worker.map_or("(not listed)", |worker| worker.name.as_str())
        };
        let totals = status.worker_totals.unwrap_or_default();
        let silent = match state {
            // Workers may leave once there is nothing to count.
            Some(RunState::Complete | RunState::Contradicted | RunState::Cancelled) => 0,
            _ => totals.silent,
        };
        for (kind, number, name, [one, many]) in [
            (
                AlertKind::FailedThreads,
                totals.failing,
                first(|worker| worker.failed_threads > 0),
                ["failed its self-test", "failed their self-test"],
            ),
            (
                AlertKind::Barred,
                totals.barred,
                first(|worker| worker.state() == WorkerState::Barred),
                [
                    "was barred after returning wrong counts",
                    "were barred after returning wrong counts",
                ],
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
        if silent > 0 {
            alert(AlertKind::WorkerSilent, silent_text(status, &totals));
        }
        let coordinator = status.coordinator.as_ref();
        if let Some(ms) = coordinator.and_then(|coordinator| coordinator.archive_behind_ms)
            && ms >= ARCHIVE_LAG_MS
        {
            alert(
                AlertKind::ArchiveLagging,
                format!("The archive is {} behind", age(ms as f64 / 1e3)),
            );
        }
        if let Some(free) = coordinator.and_then(|coordinator| coordinator.disk_free_bytes)
            && free < LOW_DISK_BYTES
        {
            let free = MemorySize::at_least(free);
            alert(
                AlertKind::DiskLow,
                format!("The coordinator's disk is nearly full: {free} left"),
            );
        }
        match status.reason.strip_prefix(FINISHING) {
            Some(progress) => {
                alert(AlertKind::Finishing, format!("Every task is done; {progress}"))
            }
            None if status.reason.is_empty() => {}
            None if state == Some(RunState::Complete) => {
                alert(AlertKind::Rechecking, status.reason.clone())
            }
            // The state of the run says so.
            None if state == Some(RunState::Paused) => {}
            None if status.reason.starts_with(WAITING) => {
                alert(AlertKind::Waiting, status.reason.replacen(WAITING, "Waiting", 1))
            }
            None if is_verifying(status) => {
                alert(AlertKind::Verifying, format!("Verifying: {}", status.reason))
            }
            None => {
                // Normal before the first worker connects.
                let kind = if status.workers.is_empty() {
                    AlertKind::NoWorkers
                } else {
                    AlertKind::Stalled
                };
                alert(kind, format!("Stalled: {}", status.reason));
            }
        }
        alerts
    }
}

/// Names the silent workers, and says who gets their tasks and when.
fn silent_text(status: &v1::Status, totals: &v1::WorkerTotals) -> String {
    let is_silent =
        |worker: &&v1::Worker| matches!(worker.state(), WorkerState::Silent | WorkerState::Lost);
    let listed: Vec<_> = status.workers.iter().filter(is_silent).collect();
    let names: Vec<_> = listed.iter().map(|worker| worker.name.as_str()).collect();
    let who = some_of(&names, totals.silent);
    let (who, it, its, go) = match totals.silent {
        1 => (format!("Worker {who} is silent"), "it calls", "its", "at"),
        _ => (format!("Workers {who} are silent"), "they call", "their", "from"),
    };
    let Some(at) = listed.iter().filter_map(|worker| worker.lost_at_unix_ms).min() else {
        return who;
    };
    let tasks = match listed.iter().map(|worker| worker.leases).sum::<u64>() {
        _ if (listed.len() as u64) < totals.silent => "tasks".to_owned(),
        0 => return who,
        tasks => plural(tasks, "task"),
    };
    let others = match totals.workers - totals.silent - totals.reconnecting - totals.barred {
        0 => "the next worker that connects",
        _ => "the other workers",
    };
    format!("{who}: unless {it}, {others} get {its} {tasks} {go} {}", moment(at))
        .replace("connects get", "connects gets")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_view::tests::status;

    #[test]
    fn alerts_are_raised_by_conditions_that_need_attention() {
        type Change = fn(&mut v1::Status);
        let cases: [(Change, &[&str]); 9] = [
            // A state that an operator chose is no alarm.
            (
                |status| {
                    status.run.as_mut().unwrap().state = RunState::Paused.into();
                    status.reason = "the run is paused".to_owned();
                },
                &[],
            ),
            (
                |status| status.reason = "waiting for run 7 (higher priority)".to_owned(),
                &["Waiting for run 7 (higher priority)"],
            ),
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
                    status.workers[0].state = WorkerState::Silent.into();
                    *status.worker_totals.as_mut().unwrap() =
                        v1::WorkerTotals { workers: 9_000, silent: 9_000, ..Default::default() };
                },
                &["Workers rack-7 and 8,999 more are silent"],
            ),
            (
                |status| {
                    let silent = v1::Worker {
                        state: WorkerState::Silent.into(),
                        lost_at_unix_ms: Some(60_000),
                        leases: 3,
                        ..status.workers[0].clone()
                    };
                    status.workers = vec![silent];
                    status.worker_totals = Some(v1::WorkerTotals {
                        workers: 2,
                        silent: 1,
                        ..v1::WorkerTotals::default()
                    });
                },
                &[
                    "Worker rack-7 is silent: unless it calls, the other workers get its 3 tasks at \
                   1970-01-01 00:01 UTC",
                ],
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
    fn an_silent_worker_is_an_alert_only_while_tasks_remain() {
        use v1::RunState::{Cancelled, Complete, Contradicted, Disputed, Paused, Running};
        let counting = [Running, Paused, Disputed];
        for state in counting.into_iter().chain([Complete, Contradicted, Cancelled]) {
            let mut status = status(state);
            status.workers[0].state = WorkerState::Lost.into();
            status.worker_totals.as_mut().unwrap().silent = 1;
            assert_eq!(Alert::all(&status).len(), usize::from(counting.contains(&state)));
        }
    }
}
