//! Asking for runs: twice is once, unless another one is meant.

use common::{
    plan::Plan,
    run::{RunId, SubmitKey},
};

use super::{Driver, RequestError};
use crate::{
    ledger::Recheck,
    sched::RunSummary,
    store::{RunManifest, RunState},
    text::method_name,
};

/// A run that is asked for.
#[derive(Clone, Debug)]
pub struct Submission {
    /// What it is to be.
    pub manifest: RunManifest,
    /// Its plan, made by the one who asks: off the driver's thread.
    pub plan: Plan,
    /// Whether another run is meant where the board is there already.
    pub again: bool,
    /// How much of it is counted twice.
    pub recheck: Recheck,
}

/// Why a run that is asked for is not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The board is being counted, or was, by the same method.
    #[error(
        "run {run} is there already: N = {n}, method {method}, {state}; --again starts another run of the \
         board",
        state = state.name()
    )]
    Exists {
        /// The run that is there.
        run: RunId,
        /// Its board's side.
        n: u8,
        /// How it counts.
        method: String,
        /// How far it is.
        state: RunState,
    },
    /// The key belongs to a run that is not what is asked for now.
    #[error("key '{key}' was used for run {run}, which is not what is asked for; give another key")]
    KeyUsed {
        /// The key.
        key: SubmitKey,
        /// Whose it is.
        run: RunId,
    },
}

impl Driver {
    /// Starts a run, durably; or finds the one that the same request has started before.
    pub(super) fn submit(&mut self, submission: Submission) -> Result<RunSummary, RequestError> {
        let Submission {
            manifest,
            plan,
            again,
            recheck,
        } = submission;
        let runs = self.scheduler.runs();
        if let Some(key) = &manifest.key
            && let Some(run) = runs
                .iter()
                .find(|run| run.manifest.key.as_ref() == Some(key))
        {
            return match run.manifest.spec == manifest.spec {
                true => Ok(run.clone()),
                false => Err(SubmitError::KeyUsed {
                    key: key.clone(),
                    run: run.manifest.run,
                }
                .into()),
            };
        }
        let spec = manifest.spec;
        let same = runs.iter().find(|run| {
            let there = run.manifest.spec;
            let counted = run.state != RunState::Cancelled;
            counted && (there.board, there.layout) == (spec.board, spec.layout)
        });
        match same {
            Some(run) if !again => Err(SubmitError::Exists {
                run: run.manifest.run,
                n: spec.board.n(),
                method: method_name(spec.layout),
                state: run.state,
            }
            .into()),
            Some(_) | None => Ok(self.create(&manifest, plan, recheck)?),
        }
    }
}
