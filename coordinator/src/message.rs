//! Conversion between messages and the driver's values.

use std::{cmp::Reverse, collections::BTreeMap, time::SystemTime};

use common::{
    estimate::sample::{CONFIDENCE, Estimate},
    messages::run::{RunId, WorkerId},
    plan::Plan,
    solutions::tally::{Classes, Counts},
};
use proto::v1;
use scheduler::{
    RunSummary, STATUS_WORKERS, WorkerState, WorkerStatus, WorkerTotals, WorkersPage, WorkersPart,
    checks::{Check, CheckOutcome},
};
use store::{
    ArchiveLag, Clock, Contribution, Fold, JournalCursor, JournalEntry, Outage, Principal,
    RunManifest, RunState, StoreError,
};
use tokio::task::spawn_blocking;
use tonic::Status;

use crate::driver::{
    By, DiskSpaceMonitor, DriverHandle, Outcome, RequestError, RunEvent, Serving, StatusReport,
    Stopped, Submission, new_manifest,
};

/// Starts the requested run, or returns the one that a request with the same key
/// started; for gRPC and HTTP.
pub(crate) async fn start_run(
    driver: &DriverHandle,
    clock: Clock,
    request: v1::SubmitRequest,
    by: By,
) -> Result<RunSummary, Status> {
    let v1::SubmitRequest { spec, priority, new_run, idempotency_key, recheck } = request;
    let spec = proto::submitted_spec(spec)?;
    let recheck = proto::requested_recheck(recheck)?;
    let key = proto::submitted_key(&idempotency_key)?;
    // Planning a large board blocks for seconds.
    let plan = spawn_blocking(move || Plan::new(spec))
        .await
        .map_err(|error| Status::internal(error.to_string()))?
        .map_err(|bad| Status::invalid_argument(format!("spec: {bad}")))?;
    let manifest = RunManifest { key, ..new_manifest(&plan, priority, clock.now()) };
    let submission = Submission { manifest, plan, new_run, recheck };
    Ok(driver.submit(submission, by).await?)
}

/// Returns a page of all workers, by identity; a limit of 0 is the maximum.
pub(crate) async fn workers_page(
    driver: &DriverHandle,
    after: Option<WorkerId>,
    limit: u64,
) -> Result<v1::WorkersResponse, Stopped> {
    let most = match usize::try_from(limit) {
        Ok(limit @ 1..STATUS_WORKERS) => limit,
        _ => STATUS_WORKERS,
    };
    let WorkersPage { workers, totals } = driver.workers(WorkersPart::ById { after, most }).await?;
    let next = workers.last().filter(|_| workers.len() == most);
    Ok(v1::WorkersResponse {
        next: next.map_or_else(Vec::new, |last| last.id.0.to_be_bytes().to_vec()),
        workers: workers.iter().map(worker).collect(),
        totals: Some(worker_totals(&totals)),
    })
}

/// Returns the contributors of a run, those with the most solutions first, from the records of its journal; `None`
/// if there is no such run.
pub(crate) async fn credits(
    driver: &DriverHandle,
    run: RunId,
) -> Result<Option<Vec<v1::Credit>>, RequestError> {
    let runs = driver.runs().await?;
    let summary = runs.into_iter().find(|summary| summary.manifest.run == run);
    let (Some(summary), Some(plan)) = (summary, driver.plan(run).await?) else { return Ok(None) };
    let mut fold = Fold::new(&summary.manifest, &plan);
    let mut next = Some(JournalCursor::default());
    while let Some(from) = next {
        let Some(page) = driver.journal(run, from).await? else { return Ok(None) };
        for (sequence, entry, _) in &page.lines {
            fold.take(&plan, entry, *sequence).map_err(StoreError::from)?;
        }
        next = page.next;
    }
    let all = driver.workers(WorkersPart::ById { after: None, most: usize::MAX }).await?;
    let named = all.workers.into_iter().map(|worker| (worker.id, worker.info.name));
    let names: BTreeMap<_, _> = named.collect();
    let mut credits: Vec<_> = fold.contributions().into_iter().collect();
    credits.sort_by_key(|(_, own)| Reverse((own.solutions, own.confirmed)));
    let all: u128 = credits.iter().map(|(_, own)| own.solutions).sum();
    let credit = |(principal, own): (&Principal, Contribution)| v1::Credit {
        contributor: principal.to_string(),
        name: names.get(&own.worker).cloned().unwrap_or_default(),
        tasks: own.tasks,
        solutions: own.solutions.to_string(),
        share: own.solutions as f64 / all.max(1) as f64,
        confirmed: own.confirmed,
    };
    Ok(Some(credits.into_iter().map(credit).collect()))
}

pub(crate) fn run(summary: &RunSummary) -> v1::Run {
    let manifest = &summary.manifest;
    v1::Run {
        run: manifest.run.0,
        spec: Some(manifest.spec.into()),
        plan_hash: manifest.plan.as_bytes().to_vec(),
        state: run_state(summary).into(),
        priority: summary.priority,
        created_unix_ms: manifest.created_unix_ms,
        fraction_done: summary.fraction_done,
        eta_seconds: summary.eta_seconds,
        counting_seconds: summary.counting_seconds,
        solutions: summary.solutions.map(|solutions| solutions.to_string()).unwrap_or_default(),
        cancelled_by: summary.cancelled_by.as_deref().unwrap_or_default().to_owned(),
        verified: summary.verified,
    }
}

pub(crate) fn run_state(summary: &RunSummary) -> v1::RunState {
    match summary.state {
        RunState::Running if summary.verifying.is_some() => v1::RunState::Verifying,
        RunState::Running => v1::RunState::Running,
        RunState::Paused => v1::RunState::Paused,
        RunState::Cancelled => v1::RunState::Cancelled,
        RunState::Complete => v1::RunState::Complete,
        RunState::Contradicted => v1::RunState::Contradicted,
        RunState::Disputed => v1::RunState::Disputed,
    }
}

pub(crate) fn outage_text(outage: &Outage) -> String {
    let since = outage.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let since = view::text::moment(since.as_millis().try_into().unwrap_or(u64::MAX));
    format!("the store has not answered since {since}: {}; workers keep their results", outage.why)
}

pub(crate) fn status(report: &StatusReport) -> v1::Status {
    let StatusReport { status, outcome, finishing, serving } = report;
    let (run, rechecks) = (run(&status.run), &status.rechecks);
    let tasks = &status.run.tasks;
    let outage = serving.as_ref().and_then(|serving| serving.outages.current());
    let reason = match (outage, finishing) {
        (Some(outage), _) => outage_text(&outage),
        (None, Some(part)) => {
            format!("{}counting the symmetric solutions: {:.0} %", view::FINISHING, part * 100.0)
        }
        (None, None) => status.reason.clone(),
    };
    v1::Status {
        tasks_total: tasks.total,
        tasks_done: tasks.done,
        tasks_leased: tasks.leased,
        tasks_counting: tasks.counting,
        tasks_pending: tasks.pending,
        tasks_parked: tasks.parked,
        solutions_so_far: status.solutions_so_far.to_string(),
        estimate: status.estimate.map(estimate),
        eta_seconds: run.eta_seconds,
        solutions_per_second: status.solutions_per_second,
        fraction_done: run.fraction_done,
        workers: status.workers.iter().map(worker).collect(),
        rechecks: Some(v1::Rechecks {
            agreed: rechecks.agreed,
            conflicts: rechecks.conflicts,
            disputed_tasks: rechecks.disputed.iter().map(|task| task.0).collect(),
        }),
        result: outcome.as_ref().map(result),
        reason,
        tasks_confirmed: rechecks.confirmed,
        tasks_recounted: rechecks.recounted,
        coordinator: serving.as_deref().map(coordinator),
        worker_totals: Some(worker_totals(&status.worker_totals)),
        counting_seconds: run.counting_seconds,
        waiting_seconds: match outcome {
            Some(outcome) => outcome.waiting_seconds,
            None => status.waiting_seconds,
        },
        run: Some(run),
        implausible_workers: status.implausible.clone(),
        referee: Some(v1::Referee {
            threads: status.referee.threads,
            counting: status.referee.counting,
            broken: status.referee.broken,
            disputed: tasks.disputed,
        }),
    }
}

fn coordinator(serving: &Serving) -> v1::Coordinator {
    let behind = serving.archive_lag.as_ref().map(ArchiveLag::behind);
    let space = serving.disk.as_ref().and_then(DiskSpaceMonitor::get);
    v1::Coordinator {
        name: serving.leader.name.clone(),
        since_unix_ms: serving.leader.since_unix_ms,
        term: serving.leader.term,
        archive_behind_ms: behind
            .map(|behind| u64::try_from(behind.as_millis()).unwrap_or(u64::MAX)),
        disk_free_bytes: space.map(|space| space.free),
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

/// Converts an outcome. The classes of contradicting counts stay empty.
pub(crate) fn result(outcome: &Outcome) -> v1::Result {
    let counts = outcome.counts.as_ref().ok();
    let class = |pick: fn(Classes) -> u128| {
        counts.map_or_else(String::new, |counts| pick(counts.classes()).to_string())
    };
    v1::Result {
        solutions: outcome.solutions.to_string(),
        fundamental: counts
            .map(Counts::fundamental)
            .map_or_else(String::new, |fundamental| fundamental.to_string()),
        asymmetric: class(|classes| classes.asymmetric),
        half_turn: class(|classes| classes.half_turn),
        quarter_turn: class(|classes| classes.quarter_turn),
        published: match outcome.matches_published {
            Some(true) => v1::Published::Matches,
            Some(false) => v1::Published::Differs,
            None => v1::Published::None,
        }
        .into(),
        seconds: outcome.seconds,
        waiting_seconds: outcome.waiting_seconds,
        checks: outcome.checks.iter().map(check).collect(),
        disputed_tasks: outcome.disputed.iter().map(|task| task.0).collect(),
        verified: outcome.is_verified(),
    }
}

fn check(check: &Check) -> v1::Check {
    v1::Check {
        name: check.name.to_owned(),
        outcome: match check.outcome {
            CheckOutcome::Passed => v1::CheckOutcome::Passed,
            CheckOutcome::NotApplicable => v1::CheckOutcome::NotApplicable,
            CheckOutcome::NotPossible => v1::CheckOutcome::NotPossible,
            CheckOutcome::Failed => v1::CheckOutcome::Failed,
        }
        .into(),
        reason: check.reason.clone(),
    }
}

pub(crate) fn worker_totals(totals: &WorkerTotals) -> v1::WorkerTotals {
    let number = |state| totals.of(state).workers;
    let all = totals.all();
    v1::WorkerTotals {
        workers: all.workers,
        threads: all.threads,
        silent: number(WorkerState::Silent) + number(WorkerState::Lost),
        reconnecting: number(WorkerState::Reconnecting),
        barred: number(WorkerState::Barred),
        failing: totals.failing,
        away: number(WorkerState::Away),
    }
}

pub(crate) fn worker(worker: &WorkerStatus) -> v1::Worker {
    let info = &worker.info;
    v1::Worker {
        id: worker.id.0.to_be_bytes().to_vec(),
        name: info.name.clone(),
        version: info.version.clone(),
        kernel: v1::Kernel::from(info.kernel).into(),
        threads: info.threads,
        state: worker_state(worker.state).into(),
        leases: worker.leases,
        tasks_done: worker.tasks_done,
        last_seen_ms_ago: worker.last_seen_ms_ago,
        cost_per_second: worker.cost_per_second,
        failed_threads: worker.failed_threads,
        crews: worker.crews,
        paused: worker.paused.clone(),
        away_until_unix_ms: worker.away_until_unix_ms,
        lost_at_unix_ms: worker.lost_at_unix_ms,
        current_task: worker.current_task.map(|(task, _)| task.0),
        current_task_ms: worker.current_task.map_or(0, |(_, ms)| ms),
        device: info.device.clone(),
    }
}

fn worker_state(state: WorkerState) -> v1::WorkerState {
    match state {
        WorkerState::Working => v1::WorkerState::Working,
        WorkerState::Idle => v1::WorkerState::Idle,
        WorkerState::Silent => v1::WorkerState::Silent,
        WorkerState::Paused => v1::WorkerState::Paused,
        WorkerState::Draining => v1::WorkerState::Draining,
        WorkerState::Stopped => v1::WorkerState::Stopped,
        WorkerState::Reconnecting => v1::WorkerState::Reconnecting,
        WorkerState::Lost => v1::WorkerState::Lost,
        WorkerState::Barred => v1::WorkerState::Barred,
        WorkerState::Away => v1::WorkerState::Away,
    }
}

pub(crate) fn event((run, event): &RunEvent) -> v1::Event {
    v1::Event {
        sequence: event.sequence,
        unix_ms: event.unix_ms,
        run: run.map(|run| run.0),
        kind: event.kind.clone(),
        text: event.text.clone(),
        by: event.by.clone(),
    }
}

pub(crate) fn record(sequence: u64, entry: &JournalEntry, line: String) -> v1::Record {
    let record = &entry.record;
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
