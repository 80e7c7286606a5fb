//! What people are told of a run while they watch it: the words are made here once, for pages, for
//! every change of them, and for terminals.

use std::{collections::BTreeMap, ops::Range};

use common::{board::Board, known::known_counts};
use proto::v1;
use serde_json::{Value, json};
use worker::memory::MemorySize;

use super::{History, kernel, run_of, state};
use crate::{
    checks::most_wrong,
    text::{age, moment, percent, plural, span, thousands},
};

/// Workers in a page: those that somebody should look at come first.
pub const SHOWN_WORKERS: usize = 50;

/// What a row of workers says, cell by cell.
pub const WORKER_HEADS: [&str; 9] = [
    "State",
    "Name",
    "Kernel",
    "Threads",
    "Crews",
    "Cores' worth",
    "Tasks",
    "Faults",
    "Seen ago",
];

/// All that is said of one run.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Text by the place where it stands.
    pub words: BTreeMap<&'static str, String>,
    /// Done, of its cost, 0 to 1.
    pub fraction: f64,
    /// good, unsure or bad.
    pub belief: &'static str,
    /// What should be seen to, a line each.
    pub alarms: Vec<String>,
    /// The first [`SHOWN_WORKERS`] rows of [`worker_rows`].
    pub workers: Vec<Vec<String>>,
    /// The run's state, by its name.
    pub state: &'static str,
    /// Its result is there.
    pub ended: bool,
}

impl Facts {
    /// What is said of a run with this status, at this time in milliseconds since 1970.
    pub fn of(status: &v1::Status, history: &History, now_ms: u64) -> Self {
        let run = status.run.clone().unwrap_or_default();
        let n = run.spec.unwrap_or_default().n;
        let method = run_of(&run).map_or("unknown", |run| run.layout.method().name());
        let mut words = BTreeMap::new();
        words.insert("what", format!("N = {n}"));
        words.insert("method", format!("method {method}, run {:016x}", run.run));
        words.insert("percent", percent(status.fraction_done));
        let state = state(run.state());
        words.insert("state", state.to_owned());
        words.insert(
            "tasks",
            format!(
                "{} of {} done, {} leased, {} waiting, {} parked",
                thousands(status.tasks_done.into()),
                plural(status.tasks_total, "task"),
                thousands(status.tasks_leased.into()),
                thousands(status.tasks_pending.into()),
                thousands(status.tasks_parked.into()),
            ),
        );
        words.insert("ends", ends(status, history, now_ms));
        words.insert("sum", grouped(&status.solutions_so_far));
        words.insert("speed", format!("{} solutions a second", speed(status)));
        words.insert("estimate", estimate(status));
        words.insert("reference", reference(n));
        let (belief, words_of_belief) = belief(status);
        words.insert("belief", words_of_belief);
        words.insert("rechecks", rechecks(status));
        words.insert("workers", workers_line(status));
        words.insert("led-by", led_by(status));
        Self {
            words,
            fraction: status.fraction_done,
            belief,
            alarms: alarms(status).into_iter().map(|alarm| alarm.text).collect(),
            workers: worker_rows(&status.workers, 0..SHOWN_WORKERS),
            state,
            ended: status.result.is_some(),
        }
    }

    /// The text of a place; empty for one that does not exist.
    pub fn word(&self, place: &str) -> &str {
        self.words.get(place).map_or("", String::as_str)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "words": self.words,
            "fraction": self.fraction,
            "belief": self.belief,
            "alarms": self.alarms,
            "workers": self.workers,
            "state": self.state,
            "ended": self.ended,
        })
    }
}

fn grouped(decimal: &str) -> String {
    decimal
        .parse()
        .map_or_else(|_| decimal.to_owned(), thousands)
}

fn speed(status: &v1::Status) -> String {
    // Only ever shown, and never negative.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let per_second = status.solutions_per_second as u128;
    thousands(per_second)
}

/// When it ends: a range, because speeds change.
fn ends(status: &v1::Status, history: &History, now_ms: u64) -> String {
    if let Some(result) = &status.result {
        return match result.disputed_tasks.len() {
            0 => format!("counted in {}", span(result.seconds)),
            disputed => format!(
                "not before another machine has counted {} whose counts contradict each other",
                plural(disputed, "task")
            ),
        };
    }
    let run = status.run.clone().unwrap_or_default();
    match run.state() {
        v1::RunState::Paused => {
            return format!("paused; to go on: queensctl resume {:016x}", run.run);
        }
        v1::RunState::Cancelled => return "cancelled; what was counted is kept".to_owned(),
        _ => {}
    }
    let Some(seconds) = status.eta_seconds else {
        return "not known yet".to_owned();
    };
    let (low, high) = history.left().unwrap_or((seconds, seconds));
    let (low, high) = (low.min(seconds) * 0.9, high.max(seconds) * 1.1);
    let between = between(&from_now(now_ms, low), &from_now(now_ms, high));
    format!("in {} to {}: {between}", span(low), span(high))
}

/// From one moment to another, in no more words than it takes.
fn between(first: &str, last: &str) -> String {
    match (first.split_once(' '), last.split_once(' ')) {
        _ if first == last => first.to_owned(),
        (Some((day, _)), Some((same, time))) if day == same => {
            format!("{} to {time}", first.trim_end_matches(" UTC"))
        }
        _ => format!("{} to {last}", first.trim_end_matches(" UTC")),
    }
}

/// So many seconds from now.
fn from_now(now_ms: u64, seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let later = (seconds.clamp(0.0, 1e11) * 1e3) as u64;
    moment(now_ms.saturating_add(later))
}

fn estimate(status: &v1::Status) -> String {
    match (&status.result, &status.estimate) {
        (Some(result), _) if result.disputed_tasks.is_empty() => {
            format!("counted: {}", grouped(&result.solutions))
        }
        (_, Some(estimate)) => format!(
            "{}, between {} and {} with {} % confidence",
            grouped(&estimate.solutions),
            grouped(&estimate.low),
            grouped(&estimate.high),
            estimate.confidence * 100.0
        ),
        _ => "none before more tasks are done".to_owned(),
    }
}

/// What the world knows of all(N), and where from; as a double for a chart.
pub(crate) fn reference_value(n: u32) -> (f64, &'static str) {
    let board = u8::try_from(n).ok().and_then(|n| Board::new(n).ok());
    match board.and_then(known_counts) {
        Some(counts) => (counts.all() as f64, "published"),
        None => (
            (0.143 * f64::from(n)).powi(i32::try_from(n).unwrap_or(0)),
            "Simkin",
        ),
    }
}

fn reference(n: u32) -> String {
    let board = u8::try_from(n).ok().and_then(|n| Board::new(n).ok());
    match board.and_then(known_counts) {
        Some(counts) => format!("published: {}", thousands(counts.all())),
        None => format!(
            "nobody has published it; Simkin's (0.143 N)^N, right in the order of its logarithm, is \
             {:.1e}",
            reference_value(n).0
        ),
    }
}

fn belief(status: &v1::Status) -> (&'static str, String) {
    if let Some(result) = &status.result {
        let failed: Vec<_> = result
            .checks
            .iter()
            .filter(|check| check.outcome == "failed")
            .map(|check| check.name.as_str())
            .collect();
        let passed = result
            .checks
            .iter()
            .filter(|check| check.outcome == "passed");
        return match failed.is_empty() {
            true => (
                "good",
                format!("{} passed, none failed", plural(passed.count(), "check")),
            ),
            false => ("bad", format!("no: {} failed", failed.join(", "))),
        };
    }
    let second = status.rechecks.clone().unwrap_or_default();
    if !second.quarantined_tasks.is_empty() {
        let tasks = plural(second.quarantined_tasks.len(), "task");
        return (
            "bad",
            format!("not yet: the counts of {tasks} contradict each other"),
        );
    }
    match status.tasks_confirmed {
        0 => (
            "unsure",
            "not shown yet: nothing was counted twice so far".to_owned(),
        ),
        confirmed => (
            "good",
            format!(
                "{} counted twice agree, no dispute is open",
                plural(confirmed, "task")
            ),
        ),
    }
}

/// What second counts prove so far.
fn rechecks(status: &v1::Status) -> String {
    let second = status.rechecks.clone().unwrap_or_default();
    let confirmed = status.tasks_confirmed;
    let unconfirmed = status.tasks_done.saturating_sub(confirmed);
    let bound = match status.tasks_compared {
        0 => "none of them drawn by lot and by another machine, so that nothing bounds the errors yet".to_owned(),
        compared => format!(
            "{} of them drawn by lot and by another machine: at most {} of the {} others wrong, with 95 % confidence",
            thousands(compared.into()),
            thousands(most_wrong(unconfirmed, compared).into()),
            thousands(unconfirmed.into()),
        ),
    };
    format!(
        "{} confirmed by a second count, {} ever contradicted; {bound}",
        plural(confirmed, "task"),
        thousands(second.conflicts.into()),
    )
}

/// Whether somebody has to look at a worker in this state.
fn is_quiet(state: &str) -> bool {
    matches!(state, "silent" | "lost" | "awaited" | "barred")
}

fn workers_line(status: &v1::Status) -> String {
    let quiet = status
        .workers
        .iter()
        .filter(|worker| is_quiet(&worker.state));
    let threads: u64 = status
        .workers
        .iter()
        .map(|worker| u64::from(worker.threads))
        .sum();
    format!(
        "{} with {}, {} quiet",
        plural(status.workers.len(), "worker"),
        plural(threads, "thread"),
        quiet.count()
    )
}

/// An archive is late once a pass after the usual one has not ended well either.
const LATE_ARCHIVE_MS: u64 = 30_000;

fn led_by(status: &v1::Status) -> String {
    let Some(coordinator) = &status.coordinator else {
        return String::new();
    };
    let archive = match coordinator.archive_behind_ms {
        None => "",
        Some(0..LATE_ARCHIVE_MS) => ", its archive follows",
        Some(_) => ", its archive is late",
    };
    format!(
        "Led by {} since {}, in term {}{archive}",
        coordinator.name,
        moment(coordinator.since_unix_ms),
        coordinator.term
    )
}

/// Something that somebody should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// Which: a name for programs.
    pub kind: &'static str,
    /// What is wrong, for people.
    pub text: String,
}

impl Alarm {
    /// All of a run.
    pub(crate) fn of(status: &v1::Status) -> Vec<Self> {
        alarms(status)
    }
}

fn alarms(status: &v1::Status) -> Vec<Alarm> {
    let alarm = |kind, text| Alarm { kind, text };
    let mut alarms = Vec::new();
    if let Some(result) = &status.result {
        let failed = result
            .checks
            .iter()
            .filter(|check| check.outcome == "failed");
        alarms.extend(failed.map(|check| {
            let text = format!("Check {} failed: {}", check.name, check.reason);
            alarm("check_failed", text)
        }));
    }
    let second = status.rechecks.clone().unwrap_or_default();
    if !second.quarantined_tasks.is_empty() {
        let tasks: Vec<_> = second
            .quarantined_tasks
            .iter()
            .take(10)
            .map(u64::to_string)
            .collect();
        let tasks = tasks.join(", ");
        alarms.push(alarm(
            "contested",
            format!("Contradicting counts of tasks {tasks}"),
        ));
    }
    let state = status.run.as_ref().map(v1::Run::state);
    if status.tasks_parked > 0 && state == Some(v1::RunState::Running) {
        let tasks = plural(status.tasks_parked, "task");
        let text = format!("{tasks} set aside after failed attempts, to be tried again later");
        alarms.push(alarm("parked", text));
    }
    let named = |state: fn(&v1::Worker) -> bool| {
        let names = status.workers.iter().filter(|worker| state(worker));
        names.map(|worker| worker.name.as_str()).collect::<Vec<_>>()
    };
    for (kind, names, what) in [
        (
            "failed_threads",
            named(|worker| worker.failed_threads > 0),
            "counted known boards wrong",
        ),
        (
            "barred",
            named(|worker| worker.state == "barred"),
            "barred: its counts were wrong",
        ),
        (
            "quiet",
            // Nobody is missed once there is nothing to count.
            match state {
                Some(
                    v1::RunState::Complete | v1::RunState::Contradicted | v1::RunState::Cancelled,
                ) => Vec::new(),
                _ => named(|worker| matches!(worker.state.as_str(), "silent" | "lost")),
            },
            "quiet",
        ),
    ] {
        match names[..] {
            [] => {}
            [name] => alarms.push(alarm(kind, format!("Worker {name}: {what}"))),
            [first, ..] => {
                let workers = plural(names.len(), "worker");
                let text = format!("{workers}, such as {first}: {what}");
                alarms.push(alarm(kind, text));
            }
        }
    }
    let behind = status
        .coordinator
        .as_ref()
        .and_then(|coordinator| coordinator.archive_behind_ms);
    if let Some(ms) = behind
        && ms >= LATE_ARCHIVE_MS
    {
        let text = format!("The archive is {} behind", age(ms as f64 / 1e3));
        alarms.push(alarm("archive_late", text));
    }
    if let Some(left) = status.coordinator.as_ref().and_then(low_disk) {
        let text = format!("The coordinator's disk is nearly full: {left} left");
        alarms.push(alarm("disk_low", text));
    }
    if !status.reason.is_empty() {
        alarms.push(alarm("waiting", format!("Waiting: {}", status.reason)));
    }
    alarms
}

/// As in the rules for Prometheus, `deploy/monitoring/alerts.yml`.
const LOW_DISK_BYTES: u64 = 2 << 30;

/// What is left on the coordinator's disk, where that is little.
pub(super) fn low_disk(coordinator: &v1::Coordinator) -> Option<MemorySize> {
    let left = coordinator.disk_free_bytes?;
    (left < LOW_DISK_BYTES).then(|| MemorySize::at_least(left))
}

/// Rows of text in the order of [`WORKER_HEADS`]: those in trouble first, then the fastest.
pub fn worker_rows(workers: &[v1::Worker], places: Range<usize>) -> Vec<Vec<String>> {
    let mut workers: Vec<_> = workers.iter().collect();
    workers.sort_by(|a, b| {
        let trouble = |worker: &v1::Worker| is_quiet(&worker.state) || worker.failed_threads > 0;
        let speed = b.cost_per_second.total_cmp(&a.cost_per_second);
        trouble(b)
            .cmp(&trouble(a))
            .then(speed)
            .then(a.name.cmp(&b.name))
    });
    let row = |worker: &v1::Worker| {
        vec![
            worker.state.clone(),
            worker.name.clone(),
            kernel(worker.kernel()).to_owned(),
            worker.threads.to_string(),
            worker.crews.to_string(),
            // Cores of the reference machine.
            format!("{:.1}", worker.cost_per_second / 1e6),
            thousands(worker.tasks_done.into()),
            worker.failed_threads.to_string(),
            age(worker.last_seen_ms_ago as f64 / 1e3),
        ]
    };
    let shown = workers.into_iter().skip(places.start).take(places.len());
    shown.map(row).collect()
}

#[cfg(test)]
mod tests;
