//! Watching runs to their end: progress on stderr, results on stdout.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use common::run::RunId;
use tokio::time::{MissedTickBehavior, interval};
use worker::terminal::{aside, note};

use super::{Report, progress::Progress, report::print_line};
use crate::{
    driver::{DriverHandle, Outcome},
    exit::Exit,
    sched::RunSummary,
    store::RunState,
    text::{one_line, tell},
};

/// How often the progress is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Said after a result by a coordinator that does not end with it.
const SERVES_ON: &str =
    "serving on: `queensctl submit` starts another run, Ctrl-C ends this program";

/// Which runs are waited for, and how they are told of.
pub(super) struct Watched {
    pub(super) driver: DriverHandle,
    /// The run of the command line; without one, all runs count.
    pub(super) target: Option<RunId>,
    pub(super) exit_when_done: bool,
    pub(super) json: bool,
    /// Runs that were over before, and that nobody asked for now.
    pub(super) old: BTreeSet<RunId>,
}

impl Watched {
    /// Prints every result as it comes; returns when all that was waited for is done.
    pub(super) async fn until_done(&self) -> anyhow::Result<Exit> {
        let mut outcomes = self.driver.outcomes();
        let mut progress = Progress::new();
        let mut printed = BTreeMap::new();
        let mut old = self.old.clone();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // The states first: an outcome that is there afterwards was not withdrawn before.
            let runs = self.driver.runs().await?;
            // The guard ends with the statement; while it lives the driver cannot go on.
            let all = outcomes.borrow_and_update().clone();
            self.print_new(&all, &mut printed, &mut old).await?;
            if self.exit_when_done
                && let Some(exit) = self.exit(&runs, &all)?
            {
                return Ok(exit);
            }
            tokio::select! {
                changed = outcomes.changed() => changed.context("the driver ended")?,
                _ = look.tick() => {
                    if let Some(report) = self.driver.status(self.target).await? {
                        progress.show(&report);
                    }
                }
            }
        }
    }

    /// Prints what was not printed before, and was not over before that; a total that was withdrawn
    /// since is printed again, as it is then.
    async fn print_new(
        &self,
        all: &BTreeMap<RunId, Outcome>,
        printed: &mut BTreeMap<RunId, Outcome>,
        old: &mut BTreeSet<RunId>,
    ) -> anyhow::Result<()> {
        for run in withdrawn(all, printed) {
            let Some(report) = self.driver.status(Some(run)).await? else {
                continue;
            };
            let spec = report.status.manifest.spec;
            tell(&format!(
                "run {run} (N = {}): a later count contradicts the total printed before, which no \
                 longer holds; the tasks in question are counted again",
                spec.board
            ));
        }
        for outcome in all.values() {
            // Who asked for one result gets one, whatever else the data directory holds.
            let unasked = self.exit_when_done && self.target.is_some_and(|run| run != outcome.run);
            if unasked || printed.get(&outcome.run) == Some(outcome) {
                continue;
            }
            // A run that was deleted meanwhile has nothing more to say.
            if !old.remove(&outcome.run)
                && let Some(report) = Report::of(&self.driver, outcome.clone()).await?
            {
                aside(|| self.print(&report))?;
                if !self.exit_when_done {
                    note(SERVES_ON);
                }
            }
            printed.insert(outcome.run, outcome.clone());
        }
        Ok(())
    }

    fn print(&self, report: &Report) -> anyhow::Result<()> {
        let printed = match self.json {
            true => print_line(&report.json().to_string()),
            false => print_line(&report.text()),
        };
        match printed {
            // The result is kept, and other runs are waiting to be served.
            Err(error) if !self.exit_when_done => {
                tell(&format!("error: {}", one_line(&error)));
                Ok(())
            }
            printed => printed,
        }
    }

    /// How to exit, once nothing is left to wait for.
    fn exit(
        &self,
        runs: &[RunSummary],
        outcomes: &BTreeMap<RunId, Outcome>,
    ) -> anyhow::Result<Option<Exit>> {
        let mut exit = Exit::Success;
        let waited_for =
            |run: &&RunSummary| self.target.is_none_or(|target| target == run.manifest.run);
        for RunSummary {
            manifest, state, ..
        } in runs.iter().filter(waited_for)
        {
            match (state, outcomes.get(&manifest.run)) {
                (
                    RunState::Complete | RunState::Contradicted | RunState::Disputed,
                    Some(outcome),
                ) => {
                    if outcome.state() != RunState::Complete {
                        exit = Exit::Contradicted;
                    }
                }
                (RunState::Cancelled, _) if self.target.is_some() => {
                    return Err(anyhow!("run {} was cancelled", manifest.run));
                }
                (RunState::Cancelled, _) => {}
                // An outcome beside a run that runs again is one that is being withdrawn.
                (RunState::Running | RunState::Paused, _)
                | (RunState::Complete | RunState::Contradicted | RunState::Disputed, None) => {
                    return Ok(None);
                }
            }
        }
        Ok(Some(exit))
    }
}

/// The runs whose total was printed and no longer stands.
fn withdrawn(all: &BTreeMap<RunId, Outcome>, printed: &mut BTreeMap<RunId, Outcome>) -> Vec<RunId> {
    let gone: Vec<_> = printed
        .keys()
        .filter(|run| !all.contains_key(run))
        .copied()
        .collect();
    for run in &gone {
        printed.remove(run);
    }
    gone
}
