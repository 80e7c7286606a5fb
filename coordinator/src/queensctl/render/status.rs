//! How far a run is.

use std::fmt::Write as _;

use anyhow::anyhow;
use proto::{decimal, v1};
use serde_json::{Value, json};

use super::{run_of, worker_json, workers_table};
use crate::text::{span, thousands};

/// Some lines about a run and its workers.
pub(in crate::queensctl) fn status_text(status: &v1::Status) -> anyhow::Result<String> {
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
pub(in crate::queensctl) fn status_json(status: &v1::Status) -> anyhow::Result<Value> {
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
