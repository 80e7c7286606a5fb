//! What the driver tells operators.

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use common::{
    plan::Plan,
    run::{RunId, WorkerId},
};

use super::{
    Driver, DriverError, LOCAL_WORKER, Outcome, RequestError,
    handle::{Serving, WorkerError},
};
use crate::{
    ledger::{Change, Recheck},
    sched::{Command, ControlError, RunStatus, RunSummary},
    store::{JournalCursor, JournalEntry, RunManifest, RunState, StoreError},
};

/// All that is told of a run.
#[derive(Clone, Debug)]
pub struct StatusReport {
    /// Tasks, speed and estimate.
    pub status: RunStatus,
    /// Set once the run is counted and checked.
    pub outcome: Option<Outcome>,
    /// Every task is done, and this part of the symmetric solutions is counted, 0 to 1.
    pub finishing: Option<f64>,
    /// Who serves the run, where that was said.
    pub serving: Option<Arc<Serving>>,
}

/// Consecutive journal lines of one run.
#[derive(Clone, Debug)]
pub struct JournalPage {
    /// Sequence number, meaning, and the line as it stands in the journal.
    pub lines: Vec<(u64, JournalEntry, String)>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<JournalCursor>,
}

/// Lines of one page: the driver is held up by a page for a millisecond or so.
const PAGE: usize = 1000;

impl Driver {
    pub(super) fn create(
        &mut self,
        manifest: &RunManifest,
        plan: Plan,
        recheck: Recheck,
    ) -> Result<RunSummary, StoreError> {
        self.store.create(manifest)?;
        let run = manifest.run;
        if recheck != Recheck::default()
            && let Err(error) = self.store.apply(&[Change::Recheck { run, recheck }])
        {
            // Not what was asked for, so nobody is to find it.
            return Err(match self.store.delete(run) {
                Ok(()) => error.unkept(),
                Err(_) => error,
            });
        }
        self.scheduler.add_run(manifest, plan, RunState::Running);
        self.scheduler.restore_recheck(run, recheck);
        Ok(self.summary(manifest.run).expect("created just now"))
    }

    /// Follows a command, and keeps its word on its own: where it cannot be kept, it is taken back
    /// and only the one who asked is told. The outer error ends the driver.
    pub(super) fn control(
        &mut self,
        run: RunId,
        command: Command,
    ) -> Result<Result<RunSummary, RequestError>, DriverError> {
        if self.summary(run).is_none() {
            return Ok(Err(ControlError::NoSuchRun(run).into()));
        }
        self.commit()?;
        if let Err(error) = self.scheduler.control(run, command, self.clock.now()) {
            return Ok(Err(error.into()));
        }
        self.collect_changes();
        if let Err(error) = self.store.apply(&self.changes) {
            if !error.kept_nothing() {
                return Err(error.into());
            }
            self.changes.clear();
            self.scheduler.take_back();
            return Ok(Err(error.into()));
        }
        let kept = std::mem::take(&mut self.changes);
        self.announce(&kept);
        let after = self.summary(run).ok_or(ControlError::NoSuchRun(run));
        Ok(after.map_err(RequestError::from))
    }

    /// Trusts a worker again, by its name or the start of its identity. Returns its name and identity.
    pub(super) fn trust(&mut self, name: &str) -> Result<String, RequestError> {
        let kept = self.store.trust()?;
        let kept = kept.into_iter().map(|record| (record.worker, record.name));
        let (id, known) = named(name, kept.chain(self.known_workers()))?;
        self.scheduler.trust(id);
        Ok(format!("{known} ({id})"))
    }

    /// Has a worker stop in good order, by its name or the start of its identity. Returns its name and
    /// identity.
    pub(super) fn drain(&mut self, name: &str) -> Result<String, RequestError> {
        let (id, known) = named(name, self.known_workers())?;
        let shown = format!("{known} ({id})");
        if id == LOCAL_WORKER {
            return Err(WorkerError::Local.into());
        }
        match self.scheduler.drain(id) {
            true => Ok(shown),
            false => Err(WorkerError::Gone(shown).into()),
        }
    }

    /// Identities and names of the workers that have called.
    fn known_workers(&self) -> impl Iterator<Item = (WorkerId, String)> + use<> {
        let workers = self.scheduler.workers(self.clock.now());
        workers
            .into_iter()
            .map(|worker| (worker.info.id, worker.info.name))
    }

    /// Removes a run that is over.
    pub(super) fn delete(&mut self, run: RunId) -> Result<RunSummary, RequestError> {
        let summary = self.summary(run).ok_or(ControlError::NoSuchRun(run))?;
        match summary.state {
            RunState::Running | RunState::Paused => return Err(ControlError::Live(run).into()),
            RunState::Cancelled
            | RunState::Complete
            | RunState::Contradicted
            | RunState::Disputed => {}
        }
        self.store.delete(run)?;
        self.scheduler.forget_run(run);
        self.concluded.retain(|outcome| outcome.run != run);
        self.outcomes
            .send_if_modified(|outcomes| outcomes.remove(&run).is_some());
        Ok(summary)
    }

    pub(super) fn summary(&self, run: RunId) -> Option<RunSummary> {
        let mut runs = self.scheduler.runs().into_iter();
        runs.find(|summary| summary.manifest.run == run)
    }

    pub(super) fn status(&self, run: Option<RunId>) -> Option<StatusReport> {
        let run = match run {
            Some(run) => run,
            None => self.served_first()?,
        };
        Some(StatusReport {
            status: self.scheduler.status(run, self.clock.now())?,
            outcome: self.outcomes.borrow().get(&run).cloned(),
            finishing: self.finishing.get(&run).map(|count| count.part()),
            serving: None,
        })
    }

    /// The first running run; without one, the run created last.
    fn served_first(&self) -> Option<RunId> {
        let runs = self.scheduler.runs();
        let running = runs.iter().find(|run| run.state == RunState::Running);
        let newest = || runs.iter().max_by_key(|run| run.manifest.created_unix_ms);
        Some(running.or_else(newest)?.manifest.run)
    }

    pub(super) fn journal_page(
        &self,
        run: RunId,
        from: JournalCursor,
    ) -> Result<Option<JournalPage>, StoreError> {
        if self.summary(run).is_none() {
            return Ok(None);
        }
        let mut lines = Vec::new();
        let mut full = false;
        let next = self
            .store
            .journal(run, from, &mut |sequence, entry, line| {
                lines.push((sequence, entry.clone(), line.to_owned()));
                full = lines.len() == PAGE;
                match full {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })?;
        Ok(Some(JournalPage {
            lines,
            next: full.then_some(next),
        }))
    }
}

/// The one worker of this name, or whose identity begins so.
fn named(
    name: &str,
    workers: impl Iterator<Item = (WorkerId, String)>,
) -> Result<(WorkerId, String), WorkerError> {
    let found: BTreeMap<_, _> = workers
        .filter(|(id, known)| known == name || id.to_string().starts_with(name))
        .collect();
    let mut found = found.into_iter();
    match (found.next(), found.len()) {
        (Some(worker), 0) => Ok(worker),
        (None, _) => Err(WorkerError::NoSuchWorker(name.to_owned())),
        (Some(_), more) => Err(WorkerError::Ambiguous {
            name: name.to_owned(),
            workers: more + 1,
        }),
    }
}
