//! Which run of a data directory the command line means.

use std::path::Path;

use common::{plan::PlanSpec, run::RunId};

use crate::store::{RunManifest, RunState, StoredRun};

use super::Options;

/// The data directory holds something else than what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// Other runs.
    #[error(
        "{dir} holds {held}, not {asked}; give another --data-dir for a new run, or leave out --n to \
         serve what is there"
    )]
    OtherRun {
        /// The directory.
        dir: String,
        /// What is there.
        held: String,
        /// What was asked for.
        asked: String,
    },
    /// The run asked for, but given up.
    #[error(
        "{dir} holds run {run}, which was cancelled; give another --data-dir to count the board anew"
    )]
    Cancelled {
        /// The directory.
        dir: String,
        /// The run.
        run: RunId,
    },
    /// No run at all, and none asked for, by a command that ends with its run.
    #[error("{dir} holds no run; give --n to start one")]
    Nothing {
        /// The directory.
        dir: String,
    },
}

/// The stored run to resume; `None` for a new one, or when all that is there is to be served.
pub(super) fn choose(
    options: &Options,
    asked: Option<&PlanSpec>,
    stored: &[StoredRun],
) -> Result<Option<RunManifest>, Foreign> {
    let dir = shown(&options.data_dir);
    let Some(asked) = asked else {
        return match stored {
            [] if options.exits_when_done() => Err(Foreign::Nothing { dir }),
            _ => Ok(None),
        };
    };
    if stored.is_empty() {
        return Ok(None);
    }
    let same = |run: &&StoredRun| {
        let held = &run.manifest.spec;
        let same_cost = options.task_cost.is_none() || held.task_cost == asked.task_cost;
        (held.board, held.layout) == (asked.board, asked.layout) && same_cost
    };
    // The newest of several: it is the one last asked for.
    let Some(found) = stored.iter().rfind(same) else {
        return Err(Foreign::OtherRun {
            dir,
            held: listed(stored),
            asked: described(asked),
        });
    };
    match found.state {
        RunState::Cancelled => Err(Foreign::Cancelled {
            dir,
            run: found.manifest.run,
        }),
        RunState::Running | RunState::Paused | RunState::Complete | RunState::Contradicted => {
            Ok(Some(found.manifest.clone()))
        }
    }
}

/// A path for people.
pub(super) fn shown(dir: &Path) -> String {
    dir.display().to_string()
}

fn described(spec: &PlanSpec) -> String {
    let PlanSpec {
        board,
        layout,
        task_cost,
    } = spec;
    format!("N = {board}, {layout}, task cost {task_cost}")
}

fn listed(stored: &[StoredRun]) -> String {
    let described = |run: &StoredRun| {
        format!(
            "run {} ({})",
            run.manifest.run,
            described(&run.manifest.spec)
        )
    };
    match stored {
        [one] => described(one),
        [first, ..] => format!("{} runs, the first {}", stored.len(), described(first)),
        [] => "no run".to_owned(),
    }
}
