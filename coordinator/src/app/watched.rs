//! Watching runs to their end: progress on stderr, results on stdout.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write as _},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use common::run::RunId;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use super::{Report, progress::Progress};
use crate::{
    driver::{DriverHandle, Outcome},
    exit::Exit,
    sched::RunSummary,
    store::RunState,
};

/// How often the progress is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Which runs are waited for, and how they are told of.
pub(super) struct Watched {
    pub(super) driver: DriverHandle,
    /// The run of the command line; without one, all runs count.
    pub(super) target: Option<RunId>,
    pub(super) exit_when_done: bool,
    pub(super) json: bool,
}

impl Watched {
    /// Prints every result as it comes; returns when all that was waited for is done.
    pub(super) async fn until_done(&self) -> anyhow::Result<Exit> {
        let mut outcomes = self.driver.outcomes();
        let mut progress = Progress::new();
        let mut printed = BTreeSet::new();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.print_new(&mut outcomes, &mut printed, &progress)
                .await?;
            if self.exit_when_done
                && let Some(exit) = self.exit(&outcomes.borrow().clone()).await?
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

    async fn print_new(
        &self,
        outcomes: &mut watch::Receiver<BTreeMap<RunId, Outcome>>,
        printed: &mut BTreeSet<RunId>,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let all = outcomes.borrow_and_update().clone();
        for outcome in all.into_values() {
            if printed.insert(outcome.run) {
                let report = self.report(outcome).await?;
                progress.aside(|| self.print(&report))?;
            }
        }
        Ok(())
    }

    async fn report(&self, outcome: Outcome) -> anyhow::Result<Report> {
        let status = self.driver.status(Some(outcome.run)).await?;
        let status = status
            .ok_or_else(|| anyhow!("run {} is gone", outcome.run))?
            .status;
        Ok(Report {
            board: status.manifest.spec.board,
            method: status.manifest.spec.layout.method(),
            tasks: status.tasks.total,
            outcome,
        })
    }

    fn print(&self, report: &Report) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        let written = match self.json {
            true => writeln!(out, "{}", report.json()),
            false => writeln!(out, "{}", report.line()),
        };
        written
            .and_then(|()| out.flush())
            .context("cannot print the result")
    }

    /// How to exit, once nothing is left to wait for.
    async fn exit(&self, outcomes: &BTreeMap<RunId, Outcome>) -> anyhow::Result<Option<Exit>> {
        let runs = self.driver.runs().await?;
        let mut exit = Exit::Success;
        let waited_for =
            |run: &&RunSummary| self.target.is_none_or(|target| target == run.manifest.run);
        for RunSummary {
            manifest, state, ..
        } in runs.iter().filter(waited_for)
        {
            match (outcomes.get(&manifest.run), state) {
                (Some(outcome), _) if outcome.state() == RunState::Contradicted => {
                    exit = Exit::Contradicted;
                }
                (Some(_), _) => {}
                (None, RunState::Cancelled) if self.target.is_some() => {
                    return Err(anyhow!("run {} was cancelled", manifest.run));
                }
                (None, RunState::Cancelled) => {}
                (
                    None,
                    RunState::Running
                    | RunState::Paused
                    | RunState::Complete
                    | RunState::Contradicted,
                ) => return Ok(None),
            }
        }
        Ok(Some(exit))
    }
}
