//! Messages as text and as JSON.

use std::fmt::Write as _;

use anyhow::{Context as _, anyhow};
use common::{
    board::Board,
    method::Layout,
    plan::{PlanHash, PlanSpec},
    run::RunId,
};
use proto::{decimal, v1};
use serde_json::{Value, json};

use crate::text::{span, table, thousands};

/// The parts of a [`v1::Run`] that everything is told with.
struct Run {
    run: RunId,
    board: Board,
    layout: Layout,
    state: &'static str,
}

fn run_of(run: &v1::Run) -> anyhow::Result<Run> {
    let spec = run.spec.ok_or_else(|| anyhow!("run.spec: must be set"))?;
    let spec = PlanSpec::try_from(spec).context("run.spec")?;
    Ok(Run {
        run: RunId(run.run),
        board: spec.board,
        layout: spec.layout,
        state: state(run.state()),
    })
}

/// The states' names, the same in text and JSON.
fn state(state: v1::RunState) -> &'static str {
    match state {
        v1::RunState::Unspecified => "unknown",
        v1::RunState::Running => "running",
        v1::RunState::Paused => "paused",
        v1::RunState::Cancelled => "cancelled",
        v1::RunState::Complete => "complete",
        v1::RunState::Contradicted => "contradicted",
    }
}

/// Some lines about a run and its workers.
pub(super) fn status_text(status: &v1::Status) -> anyhow::Result<String> {
    let message = status
        .run
        .as_ref()
        .ok_or_else(|| anyhow!("run: must be set"))?;
    let run = run_of(message)?;
    let mut text = format!(
        "run {}: N = {}, {}, {}\n",
        run.run, run.board, run.layout, run.state
    );
    writeln!(
        text,
        "tasks:     {} of {} done ({:.2} % of the work), {} leased, {} pending, {} parked",
        thousands(status.tasks_done.into()),
        thousands(status.tasks_total.into()),
        status.fraction_done * 100.0,
        thousands(status.tasks_leased.into()),
        thousands(status.tasks_pending.into()),
        thousands(status.tasks_parked.into()),
    )?;
    let so_far = decimal("solutions_so_far", &status.solutions_so_far)?;
    writeln!(text, "solutions: {} so far", thousands(so_far))?;
    if let Some(estimate) = &status.estimate {
        writeln!(
            text,
            "estimate:  {} ({} to {} with {} % confidence)",
            thousands(decimal("estimate.solutions", &estimate.solutions)?),
            thousands(decimal("estimate.low", &estimate.low)?),
            thousands(decimal("estimate.high", &estimate.high)?),
            estimate.confidence * 100.0,
        )?;
    }
    // Only ever shown, and never negative.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let per_second = status.solutions_per_second as u128;
    let left = match status.eta_seconds {
        Some(seconds) => format!(", {} left", span(seconds)),
        None => String::new(),
    };
    writeln!(
        text,
        "speed:     {} solutions a second{left}",
        thousands(per_second)
    )?;
    if let Some(rechecks) = &status.rechecks {
        writeln!(
            text,
            "rechecks:  {} agreed, {} contradicted",
            thousands(rechecks.agreed.into()),
            thousands(rechecks.conflicts.into()),
        )?;
        if !rechecks.quarantined_tasks.is_empty() {
            writeln!(text, "contested: tasks {:?}", rechecks.quarantined_tasks)?;
        }
    }
    if !status.reason.is_empty() {
        writeln!(text, "waiting:   {}", status.reason)?;
    }
    if let Some(result) = &status.result {
        writeln!(text, "result:    {}", result_text(result)?)?;
    }
    if status.workers.is_empty() {
        text += "workers:   none has called since the coordinator started";
    } else {
        write!(text, "\n{}", workers_table(&status.workers))?;
    }
    Ok(text)
}

fn result_text(result: &v1::Result) -> anyhow::Result<String> {
    let solutions = thousands(decimal("result.solutions", &result.solutions)?);
    let check = match result.known.as_str() {
        "matches" => "matches the known count",
        "differs" => "DIFFERS from the known count",
        _ => "no known count to compare with",
    };
    let unique = match result.unique.as_str() {
        "" => "which contradicts the symmetric solutions".to_owned(),
        unique => format!("{} unique", thousands(decimal("result.unique", unique)?)),
    };
    Ok(format!(
        "{solutions} solutions, {unique}, {check}, {}",
        span(result.seconds)
    ))
}

/// The JSON object of `status --json`.
pub(super) fn status_json(status: &v1::Status) -> anyhow::Result<Value> {
    let message = status
        .run
        .as_ref()
        .ok_or_else(|| anyhow!("run: must be set"))?;
    let run = run_of(message)?;
    let rechecks = status.rechecks.clone().unwrap_or_default();
    let workers: Vec<_> = status.workers.iter().map(worker_json).collect();
    Ok(json!({
        "run": run.run.to_string(),
        "n": run.board.n(),
        "method": run.layout.method().name(),
        "state": run.state,
        "tasks": {
            "total": status.tasks_total,
            "done": status.tasks_done,
            "leased": status.tasks_leased,
            "pending": status.tasks_pending,
            "parked": status.tasks_parked,
        },
        "fraction_done": status.fraction_done,
        "solutions_so_far": status.solutions_so_far,
        "estimate": status.estimate.as_ref().map(|estimate| json!({
            "solutions": estimate.solutions,
            "low": estimate.low,
            "high": estimate.high,
            "confidence": estimate.confidence,
        })),
        "eta_seconds": status.eta_seconds,
        "solutions_per_second": status.solutions_per_second,
        "workers": workers,
        "rechecks": {
            "agreed": rechecks.agreed,
            "conflicts": rechecks.conflicts,
            "quarantined_tasks": rechecks.quarantined_tasks,
        },
        "reason": status.reason,
        "result": status.result.as_ref().map(result_json),
    }))
}

fn result_json(result: &v1::Result) -> Value {
    let set = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "solutions": result.solutions,
        "unique": set(&result.unique),
        "classes": set(&result.unique).map(|_| json!({
            "asymmetric": result.asymmetric,
            "half_turn": result.half_turn,
            "quarter_turn": result.quarter_turn,
        })),
        "known": result.known,
        "seconds": result.seconds,
    })
}

pub(super) fn worker_json(worker: &v1::Worker) -> Value {
    json!({
        "id": hexadecimal(&worker.id),
        "name": worker.name,
        "version": worker.version,
        "kernel": kernel(worker.kernel()),
        "threads": worker.threads,
        "state": worker.state,
        "leases": worker.leases,
        "tasks_done": worker.tasks_done,
        "last_seen_ms_ago": worker.last_seen_ms_ago,
        "cost_per_second": worker.cost_per_second,
    })
}

pub(super) fn workers_table(workers: &[v1::Worker]) -> String {
    let heads = [
        "WORKER", "NAME", "STATE", "KERNEL", "THREADS", "LEASES", "DONE", "SPEED", "SEEN",
        "VERSION",
    ];
    let row = |worker: &v1::Worker| {
        // Milliseconds of a worker's silence, only ever shown.
        #[expect(clippy::cast_precision_loss)]
        let seen = worker.last_seen_ms_ago as f64 / 1000.0;
        let id = hexadecimal(&worker.id);
        vec![
            id.get(..8).unwrap_or(&id).to_owned(),
            worker.name.clone(),
            worker.state.clone(),
            kernel(worker.kernel()).to_owned(),
            worker.threads.to_string(),
            worker.leases.to_string(),
            worker.tasks_done.to_string(),
            format!("{:.2}", worker.cost_per_second / 1e6),
            format!("{} ago", span(seen)),
            worker.version.clone(),
        ]
    };
    let rows: Vec<_> = workers.iter().map(row).collect();
    table(&heads, &rows)
}

fn kernel(kernel: v1::Kernel) -> &'static str {
    match kernel {
        v1::Kernel::Unspecified => "unknown",
        v1::Kernel::Scalar => "scalar",
        v1::Kernel::Avx2 => "avx2",
        v1::Kernel::Avx512 => "avx512",
        v1::Kernel::Neon => "neon",
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

pub(super) fn run_text(run: &v1::Run) -> String {
    match run_of(run) {
        Ok(Run {
            run: id,
            board,
            layout,
            state,
        }) => format!(
            "run {id}: N = {board}, {layout}, {state}, priority {}",
            run.priority
        ),
        Err(_) => format!(
            "run {}: of a kind that this program does not know",
            RunId(run.run)
        ),
    }
}

pub(super) fn run_json(run: &v1::Run) -> Value {
    let spec = run.spec.unwrap_or_default();
    let known = run_of(run).ok();
    json!({
        "run": RunId(run.run).to_string(),
        "n": spec.n,
        "method": known.as_ref().map(|run| run.layout.method().name()),
        "layout": known.as_ref().map(|run| run.layout.name()),
        "task_cost": spec.task_cost,
        "plan": hexadecimal(&run.plan_hash),
        "state": state(run.state()),
        "priority": run.priority,
        "created_unix_ms": run.created_unix_ms,
    })
}

pub(super) fn runs_table(runs: &[v1::Run]) -> String {
    let heads = ["RUN", "N", "LAYOUT", "STATE", "PRIORITY", "PLAN"];
    let row = |run: &v1::Run| {
        let known = run_of(run).ok();
        let plan = PlanHash::try_from(run.plan_hash.as_slice());
        vec![
            RunId(run.run).to_string(),
            run.spec.unwrap_or_default().n.to_string(),
            known.map_or("unknown", |run| run.layout.name()).to_owned(),
            state(run.state()).to_owned(),
            run.priority.to_string(),
            plan.map_or_else(|_| "unknown".to_owned(), |plan| plan.short()),
        ]
    };
    let rows: Vec<_> = runs.iter().map(row).collect();
    table(&heads, &rows)
}
