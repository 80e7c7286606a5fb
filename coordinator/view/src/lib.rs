//! A coordinator's messages as text, JSON and figures.

mod history;
mod lists;
mod run_view;
mod status;
pub mod text;

use anyhow::{Context as _, anyhow};
use common::{board::Board, kernel::KernelName, method::Layout, plan::PlanSpec, run::RunId};
use proto::v1;

pub use self::{
    history::{History, Point},
    lists::{
        RUN_COLUMNS, RunSelector, SelectableRun, WORKER_COLUMNS, WORKER_LEGEND, WorkerRow,
        event_json, event_line, event_subject, event_text, events_table, listed, plan_text,
        run_json, run_row, run_text, runs_table, worker_json, worker_rows, worker_totals_json,
        workers_table,
    },
    run_view::{Alert, FINISHING, Figure, RunView, SHOWN_WORKERS, reference_value},
    status::{check_line, grouped, outcome_json, result_lines, status_json, status_text},
};

/// The validated parts of a [`v1::Run`].
pub struct Run {
    pub run: RunId,
    pub board: Board,
    pub layout: Layout,
    pub state: &'static str,
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
        state: state(run.state()),
        state_text: match run.cancelled_by.as_str() {
            "" => state(run.state()).to_owned(),
            by => format!("{} by {by}", state(run.state())),
        },
    })
}

/// Returns a state's name, the same in text and JSON.
pub fn state(state: v1::RunState) -> &'static str {
    match state {
        v1::RunState::Unspecified => "unknown",
        v1::RunState::Running => "running",
        v1::RunState::Paused => "paused",
        v1::RunState::Cancelled => "cancelled",
        v1::RunState::Complete => "complete",
        v1::RunState::Contradicted => "contradicted",
        v1::RunState::Disputed => "disputed",
        v1::RunState::Verifying => "verifying",
    }
}

pub fn kernel(kernel: v1::Kernel) -> String {
    let known = KernelName::ALL.into_iter().find(|&known| v1::Kernel::from(known) == kernel);
    known.map_or_else(|| "unknown".to_owned(), |known| known.to_string())
}
