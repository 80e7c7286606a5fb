//! A coordinator's messages as text, JSON and figures.

mod alerts;
mod history;
pub mod json;
mod lists;
mod run_view;
mod status;
pub mod text;
mod workers;

use anyhow::{Context as _, anyhow};
use common::{board::Board, messages::run::RunId, method::Layout, plan::PlanSpec};
use proto::v1;

use self::run_view::reference_value;

pub use self::{
    alerts::{Alert, AlertKind, FINISHING},
    history::{History, Point},
    lists::{
        CREDIT_COLUMNS, RUN_COLUMNS, RunSelector, SelectableRun, cost_text, credit_row,
        credits_table, event_line, event_subject, event_text, events_table, listed, plan_text,
        run_row, run_text, runs_table,
    },
    run_view::{Figure, Figures, Rating, RunView, SHOWN_WORKERS},
    status::{check_line, grouped, outcome_json, result_lines, status_text},
    workers::{WORKER_COLUMNS, WORKER_LEGEND, WorkerRow, worker_rows, workers_table},
};

/// The validated parts of a [`v1::Run`].
pub struct Run {
    pub run: RunId,
    pub board: Board,
    pub layout: Layout,
    pub state: v1::RunState,
    /// The state, with the operator who cancelled the run.
    pub state_text: String,
}

pub fn run_of(run: &v1::Run) -> anyhow::Result<Run> {
    let spec = run.spec.ok_or_else(|| anyhow!("run.spec: must be set"))?;
    let spec = PlanSpec::try_from(spec).context("run.spec")?;
    Ok(Run {
        run: RunId(run.run),
        board: spec.board,
        layout: spec.layout,
        state: run.state(),
        state_text: match run.cancelled_by.as_str() {
            "" => run.state().to_string(),
            by => format!("{} by {by}", run.state()),
        },
    })
}
