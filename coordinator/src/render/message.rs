//! What the driver tells, as messages.

use common::{
    sample::{CONFIDENCE, Estimate},
    tally::{Classes, Counts},
};
use proto::v1;

use crate::{
    checks::Check,
    driver::{Outcome, Serving, StatusReport},
    room::SeenRoom,
    sched::{RunSummary, WorkerStatus},
    store::{Copied, JournalEntry, RunManifest, RunState},
};

/// Workers named in one message: more might not fit it.
pub(crate) const NAMED_WORKERS: usize = 10_000;

pub(crate) fn run(summary: &RunSummary) -> v1::Run {
    manifest(&summary.manifest, summary.state)
}

fn manifest(manifest: &RunManifest, state: RunState) -> v1::Run {
    v1::Run {
        run: manifest.run.0,
        spec: Some(manifest.spec.into()),
        plan_hash: manifest.plan.as_bytes().to_vec(),
        state: run_state(state).into(),
        priority: manifest.priority,
        created_unix_ms: manifest.created_unix_ms,
    }
}

pub(crate) fn run_state(state: RunState) -> v1::RunState {
    match state {
        RunState::Running => v1::RunState::Running,
        RunState::Paused => v1::RunState::Paused,
        RunState::Cancelled => v1::RunState::Cancelled,
        RunState::Complete => v1::RunState::Complete,
        RunState::Contradicted => v1::RunState::Contradicted,
        RunState::Disputed => v1::RunState::Disputed,
    }
}

pub(crate) fn status(report: &StatusReport) -> v1::Status {
    let StatusReport {
        status,
        outcome,
        finishing,
        serving,
    } = report;
    let rechecks = &status.rechecks;
    let reason = match finishing {
        Some(part) => format!(
            "every task is done; counting the symmetric solutions: {:.0} %",
            part * 100.0
        ),
        None => status.reason.clone(),
    };
    v1::Status {
        run: Some(manifest(&status.manifest, status.state)),
        tasks_total: status.tasks.total,
        tasks_done: status.tasks.done,
        tasks_leased: status.tasks.leased,
        tasks_pending: status.tasks.pending,
        tasks_parked: status.tasks.parked,
        solutions_so_far: status.solutions_so_far.to_string(),
        estimate: status.estimate.map(estimate),
        eta_seconds: status.eta_seconds,
        solutions_per_second: status.solutions_per_second,
        fraction_done: status.fraction_done,
        workers: status
            .workers
            .iter()
            .take(NAMED_WORKERS)
            .map(worker)
            .collect(),
        rechecks: Some(v1::Rechecks {
            agreed: rechecks.agreed,
            conflicts: rechecks.conflicts,
            quarantined_tasks: rechecks.quarantined.iter().map(|task| task.0).collect(),
        }),
        result: outcome.as_ref().map(result),
        reason,
        tasks_confirmed: rechecks.confirmed,
        tasks_compared: rechecks.compared,
        coordinator: serving.as_deref().map(coordinator),
    }
}

fn coordinator(serving: &Serving) -> v1::Coordinator {
    let behind = serving.copied.as_ref().map(Copied::behind);
    let room = serving.disk.as_ref().and_then(SeenRoom::get);
    v1::Coordinator {
        name: serving.leader.name.clone(),
        since_unix_ms: serving.leader.since_unix_ms,
        term: serving.leader.term,
        archive_behind_ms: behind
            .map(|behind| u64::try_from(behind.as_millis()).unwrap_or(u64::MAX)),
        disk_free_bytes: room.map(|room| room.free),
    }
}

fn estimate(estimate: Estimate) -> v1::Estimate {
    v1::Estimate {
        solutions: estimate.solutions.to_string(),
        low: estimate.low.to_string(),
        high: estimate.high.to_string(),
        confidence: CONFIDENCE,
    }
}

/// Counts that contradict each other have no classes: those fields stay empty.
fn result(outcome: &Outcome) -> v1::Result {
    let counts = outcome.counts.as_ref().ok();
    let class = |pick: fn(Classes) -> u128| {
        counts.map_or_else(String::new, |counts| pick(counts.classes()).to_string())
    };
    v1::Result {
        solutions: outcome.solutions.to_string(),
        unique: counts
            .map(Counts::unique)
            .map_or_else(String::new, |unique| unique.to_string()),
        asymmetric: class(|classes| classes.asymmetric),
        half_turn: class(|classes| classes.half_turn),
        quarter_turn: class(|classes| classes.quarter_turn),
        known: outcome.known.name().to_owned(),
        seconds: outcome.seconds,
        checks: outcome.checks.iter().map(check).collect(),
        disputed_tasks: outcome.disputed.iter().map(|task| task.0).collect(),
    }
}

fn check(check: &Check) -> v1::Check {
    v1::Check {
        name: check.name.to_owned(),
        outcome: check.outcome.name().to_owned(),
        reason: check.reason.clone(),
    }
}

pub(crate) fn worker(worker: &WorkerStatus) -> v1::Worker {
    let info = &worker.info;
    v1::Worker {
        id: info.id.0.to_be_bytes().to_vec(),
        name: info.name.clone(),
        version: info.version.clone(),
        kernel: v1::Kernel::from(info.kernel).into(),
        threads: info.threads,
        state: worker.state.name().to_owned(),
        leases: worker.leases,
        tasks_done: worker.tasks_done,
        last_seen_ms_ago: worker.last_seen_ms_ago,
        cost_per_second: worker.cost_per_second,
        failed_threads: worker.failed_threads,
        crews: worker.crews,
        paused: worker.paused.clone(),
    }
}

pub(crate) fn record(sequence: u64, entry: &JournalEntry, line: String) -> v1::Record {
    let (JournalEntry::Accepted(record)
    | JournalEntry::Confirmed(record)
    | JournalEntry::Quarantined(record)) = entry;
    v1::Record {
        sequence,
        task: record.task.0,
        count: record.count,
        worker: record.worker.0.to_be_bytes().to_vec(),
        kernel: v1::Kernel::from(record.kernel).into(),
        orientation: v1::Orientation::from(record.orientation).into(),
        duration_us: record.duration_us,
        accepted_unix_ms: record.accepted_unix_ms,
        line,
    }
}
