//! What the driver tells, as messages, and those as text and as JSON: one rendering for RPCs, pages and
//! programs.

mod facts;
mod history;
pub(crate) mod message;
mod runs;
mod status;
mod statuses;
mod workers;

use std::fmt::Write as _;

use anyhow::{Context as _, anyhow};
use common::{board::Board, method::Layout, plan::PlanSpec, run::RunId};
use proto::v1;

pub(crate) use self::{
    facts::{Alarm, reference_value},
    statuses::Statuses,
};
pub use self::{
    facts::{Facts, SHOWN_WORKERS, WORKER_HEADS, worker_rows},
    history::{History, Point},
    runs::{run_json, run_text, runs_table},
    status::{status_json, status_text},
    workers::{worker_json, workers_table},
};

/// The parts of a [`v1::Run`] that everything is told with.
pub(crate) struct Run {
    pub(crate) run: RunId,
    pub(crate) board: Board,
    pub(crate) layout: Layout,
    pub(crate) state: &'static str,
}

pub(crate) fn run_of(run: &v1::Run) -> anyhow::Result<Run> {
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
pub(crate) fn state(state: v1::RunState) -> &'static str {
    match state {
        v1::RunState::Unspecified => "unknown",
        v1::RunState::Running => "running",
        v1::RunState::Paused => "paused",
        v1::RunState::Cancelled => "cancelled",
        v1::RunState::Complete => "complete",
        v1::RunState::Contradicted => "contradicted",
        v1::RunState::Disputed => "disputed",
    }
}

pub(crate) fn kernel(kernel: v1::Kernel) -> &'static str {
    match kernel {
        v1::Kernel::Unspecified => "unknown",
        v1::Kernel::Scalar => "scalar",
        v1::Kernel::Avx2 => "avx2",
        v1::Kernel::Avx512 => "avx512",
        v1::Kernel::Neon => "neon",
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}
