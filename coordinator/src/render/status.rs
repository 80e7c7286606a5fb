//! How far a run is.

use anyhow::anyhow;
use proto::{decimal, v1};
use serde_json::{Value, json};

use super::{facts::low_disk, run_of, worker_json, workers_table};
use crate::text::{age, labelled, method_name, moment, percent, span, thousands};

/// Some lines about a run and its workers; those within `width`.
pub fn status_text(status: &v1::Status, width: Option<usize>) -> anyhow::Result<String> {
    let mut lines = run_lines(status)?;
    if status.workers.is_empty() {
        let none = "none is connected";
        lines.push(labelled("workers:", none));
    } else {
        lines.push(String::new());
        lines.push(workers_table(&status.workers, width));
    }
    Ok(lines.join("\n"))
}

fn run_lines(status: &v1::Status) -> anyhow::Result<Vec<String>> {
    let message = status
        .run
        .as_ref()
        .ok_or_else(|| anyhow!("run: must be set"))?;
    let run = run_of(message)?;
    let mut lines = vec![
        format!(
            "run {}: N = {}, method {}, {}",
            run.run,
            run.board,
            method_name(run.layout),
            run.state
        ),
        labelled(
            "tasks:",
            &format!(
                "{} of {} done ({} of the work), {} leased, {} pending, {} parked",
                thousands(status.tasks_done.into()),
                thousands(status.tasks_total.into()),
                percent(status.fraction_done),
                thousands(status.tasks_leased.into()),
                thousands(status.tasks_pending.into()),
                thousands(status.tasks_parked.into()),
            ),
        ),
    ];
    if let Some(result) = &status.result {
        lines.push(labelled("result:", &result_text(result)?));
        lines.extend(result.checks.iter().map(|check| {
            let outcome = match check.outcome.as_str() {
                "failed" => "FAILED",
                "not_possible" => "not possible",
                other => other,
            };
            labelled(
                "check:",
                &format!("{} {outcome}: {}", check.name, check.reason),
            )
        }));
    } else {
        lines.extend(progress_lines(status)?);
    }
    if let Some(rechecks) = &status.rechecks {
        let agreed = thousands(rechecks.agreed.into());
        let conflicts = thousands(rechecks.conflicts.into());
        lines.push(labelled(
            "rechecks:",
            &format!("{agreed} agreed, {conflicts} contradicted"),
        ));
        if !rechecks.quarantined_tasks.is_empty() {
            let tasks: Vec<_> = rechecks
                .quarantined_tasks
                .iter()
                .map(u64::to_string)
                .collect();
            lines.push(labelled(
                "contested:",
                &format!("tasks {}", tasks.join(", ")),
            ));
        }
    }
    if !status.reason.is_empty() {
        lines.push(labelled("waiting:", &status.reason));
    }
    // A result fits a terminal with what proves it, and no more.
    if let (Some(coordinator), None) = (&status.coordinator, &status.result) {
        lines.push(labelled("led by:", &led_by(coordinator)));
    }
    Ok(lines)
}

fn led_by(coordinator: &v1::Coordinator) -> String {
    let archive = match coordinator.archive_behind_ms {
        Some(ms) => format!("; its archive is {} behind", age(ms as f64 / 1e3)),
        None => String::new(),
    };
    let disk = match low_disk(coordinator) {
        Some(left) => format!("; its disk is nearly full: {left} left"),
        None => String::new(),
    };
    format!(
        "{} since {}, in term {}{archive}{disk}",
        coordinator.name,
        moment(coordinator.since_unix_ms),
        coordinator.term
    )
}

/// What is known before a run is complete.
fn progress_lines(status: &v1::Status) -> anyhow::Result<Vec<String>> {
    let so_far = decimal("solutions_so_far", &status.solutions_so_far)?;
    let mut lines = vec![labelled(
        "solutions:",
        &format!("{} so far", thousands(so_far)),
    )];
    if let Some(estimate) = &status.estimate {
        let text = format!(
            "{} ({} to {} with {} % confidence)",
            thousands(decimal("estimate.solutions", &estimate.solutions)?),
            thousands(decimal("estimate.low", &estimate.low)?),
            thousands(decimal("estimate.high", &estimate.high)?),
            estimate.confidence * 100.0,
        );
        lines.push(labelled("estimate:", &text));
    }
    // Only ever shown, and never negative.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let per_second = status.solutions_per_second as u128;
    let left = match status.eta_seconds {
        Some(seconds) => format!(", {} left", span(seconds)),
        None => String::new(),
    };
    let text = format!("{} solutions a second{left}", thousands(per_second));
    lines.push(labelled("speed:", &text));
    Ok(lines)
}

fn result_text(result: &v1::Result) -> anyhow::Result<String> {
    let solutions = thousands(decimal("result.solutions", &result.solutions)?);
    if !result.disputed_tasks.is_empty() {
        return Ok(format!(
            "DISPUTED, no total: the counts of some tasks contradict each other, the others add up \
             to {solutions}"
        ));
    }
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
pub fn status_json(status: &v1::Status) -> anyhow::Result<Value> {
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
            "confirmed": status.tasks_confirmed,
            "compared": status.tasks_compared,
            "quarantined_tasks": rechecks.quarantined_tasks,
        },
        "reason": status.reason,
        "coordinator": status.coordinator.as_ref().map(|coordinator| json!({
            "name": coordinator.name,
            "since_unix_ms": coordinator.since_unix_ms,
            "term": coordinator.term,
            "archive_behind_ms": coordinator.archive_behind_ms,
            "disk_free_bytes": coordinator.disk_free_bytes,
        })),
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
        "disputed_tasks": result.disputed_tasks,
        "checks": result.checks.iter().map(|check| json!({
            "name": check.name,
            "outcome": check.outcome,
            "reason": check.reason,
        })).collect::<Vec<_>>(),
        "seconds": result.seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::WIDTH;

    #[test]
    fn the_largest_figures_fit_eighty_columns() {
        let large = u128::MAX.to_string();
        let status = v1::Status {
            run: Some(v1::Run {
                run: u64::MAX,
                spec: Some(v1::PlanSpec {
                    n: 32,
                    layout: v1::Layout::FirstRows.into(),
                    task_cost: 1,
                }),
                state: v1::RunState::Contradicted.into(),
                ..v1::Run::default()
            }),
            tasks_total: 4_000_000,
            tasks_done: 1_000_001,
            tasks_leased: 999_999,
            tasks_pending: 1_999_999,
            tasks_parked: 1,
            solutions_so_far: large.clone(),
            estimate: Some(v1::Estimate {
                solutions: large.clone(),
                low: large.clone(),
                high: large,
                confidence: 0.95,
            }),
            eta_seconds: Some(1e9),
            solutions_per_second: 1e15,
            rechecks: Some(v1::Rechecks {
                quarantined_tasks: (1_000_000..1_000_100).collect(),
                ..v1::Rechecks::default()
            }),
            reason: "every worker that could count this ".repeat(7),
            coordinator: Some(v1::Coordinator {
                name: "queens-coordinator-7.cluster.local (process 4194304)".to_owned(),
                since_unix_ms: u64::MAX,
                term: u64::MAX,
                archive_behind_ms: Some(u64::MAX),
                disk_free_bytes: Some(1),
            }),
            ..v1::Status::default()
        };
        let text = status_text(&status, Some(WIDTH)).unwrap();
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "method rows (first-rows)",
            "95 % confidence",
            "1000099",
            "1 parked",
            "its disk is nearly full: 1.0 B left",
        ] {
            assert!(words.contains(part), "'{part}' in\n{text}");
        }
    }
}
