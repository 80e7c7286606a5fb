//! Runs in a line, in a list and as JSON.

use common::{plan::PlanHash, run::RunId};
use proto::v1;
use serde_json::{Value, json};

use super::{Run, hexadecimal, run_of, state};
use crate::text::{Column, method_name, table};

/// A run in a line.
pub fn run_text(run: &v1::Run) -> String {
    match run_of(run) {
        Ok(Run {
            run: id,
            board,
            layout,
            state,
        }) => format!(
            "run {id}: N = {board}, method {}, {state}, priority {}",
            method_name(layout),
            run.priority
        ),
        Err(_) => format!(
            "run {}: of a kind that this program does not know",
            RunId(run.run)
        ),
    }
}

/// A run as JSON.
pub fn run_json(run: &v1::Run) -> Value {
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

/// A table that fits `width`.
pub fn runs_table(runs: &[v1::Run], width: Option<usize>) -> String {
    let columns = [
        Column::words("RUN"),
        Column::numbers("N"),
        Column::words("METHOD"),
        Column::words("STATE"),
        Column::numbers("PRIORITY"),
        Column::words("PLAN"),
    ];
    let row = |run: &v1::Run| {
        let known = run_of(run).ok();
        let plan = PlanHash::try_from(run.plan_hash.as_slice());
        vec![
            RunId(run.run).to_string(),
            run.spec.unwrap_or_default().n.to_string(),
            known.map_or_else(|| "unknown".to_owned(), |run| method_name(run.layout)),
            state(run.state()).to_owned(),
            run.priority.to_string(),
            plan.map_or_else(|_| "unknown".to_owned(), |plan| plan.short()),
        ]
    };
    let rows: Vec<_> = runs.iter().map(row).collect();
    table(&columns, &rows, width)
}
