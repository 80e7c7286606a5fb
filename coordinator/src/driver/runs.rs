//! Operators' commands on runs and workers, and queries about runs.

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use common::{
    messages::run::{RunId, WorkerId},
    plan::Plan,
};
use scheduler::{
    Command, ControlError, REFEREE, RunStatus, RunSummary, WorkerState, WorkersPart,
    ledger::Recheck,
};
use store::{JournalCursor, JournalEntry, RunManifest, RunState, StoreError, StoredRun};
use view::text::{method_name, plural};

use super::{
    Driver, DriverError, LOCAL_WORKER, Outcome, RequestError, request::By, serving::Serving,
};

#[derive(Clone, Debug)]
pub struct Submission {
    pub manifest: RunManifest,
    /// Plan, made by the caller because planning may take seconds.
    pub plan: Plan,
    /// Whether to start a new run even if one of this board and layout exists.
    pub new_run: bool,
    pub recheck: Recheck,
}

#[derive(Clone, Debug)]
pub struct StatusReport {
    pub status: RunStatus,
    /// Outcome, once the run is finished and checked.
    pub outcome: Option<Outcome>,
    /// Counted part of the symmetric solutions, 0 to 1, once all tasks are done.
    pub finishing: Option<f64>,
    pub serving: Option<Arc<Serving>>,
}

/// Consecutive journal lines of one run.
#[derive(Clone, Debug)]
pub struct JournalPage {
    /// Sequence number, entry, and the line as stored.
    pub lines: Vec<(u64, JournalEntry, String)>,
    /// Start of the next page; `None` after the last.
    pub next: Option<JournalCursor>,
}

/// Lines per page: one page blocks the driver for about a millisecond.
const PAGE_LINES: usize = 1000;

impl Driver {
    /// Starts a run, or returns the one that a request with the same key started.
    pub(super) fn submit(
        &mut self,
        submission: Submission,
        by: &By,
    ) -> Result<RunSummary, RequestError> {
        let Submission { manifest, plan, new_run, recheck } = submission;
        let runs = self.scheduler.snapshot().runs();
        if let Some(key) = &manifest.key
            && let Some(run) = runs.iter().find(|run| run.manifest.key.as_ref() == Some(key))
        {
            return match run.manifest.spec == manifest.spec {
                true => Ok(run.clone()),
                false => Err(RequestError::KeyUsed { key: key.clone(), run: run.manifest.run }),
            };
        }
        let spec = manifest.spec;
        let same = runs.iter().find(|run| {
            let stored = run.manifest.spec;
            let is_cancelled = run.state == RunState::Cancelled;
            !is_cancelled && (stored.board, stored.layout) == (spec.board, spec.layout)
        });
        match same {
            Some(run) if !new_run => Err(RequestError::RunExists {
                run: run.manifest.run,
                n: spec.board.n(),
                method: method_name(spec.layout),
                state: run.state,
            }),
            Some(_) | None => Ok(self.create(&manifest, plan, recheck, by)?),
        }
    }

    pub(super) fn create(
        &mut self,
        manifest: &RunManifest,
        plan: Plan,
        recheck: Recheck,
        by: &By,
    ) -> Result<RunSummary, StoreError> {
        self.store.create(manifest, recheck)?;
        let run = manifest.run;
        self.scheduler.add_run(StoredRun::new(manifest.clone(), recheck), plan);
        self.warn_of_referee_memory(run);
        let spec = manifest.spec;
        let tasks = self.scheduler.snapshot().plan(run).map_or(0, Plan::tasks);
        let (n, method, tasks) = (spec.board, spec.layout.method().name(), plural(tasks, "task"));
        let text = format!("N = {n}, method {method}, {tasks}, submitted");
        self.note(Some(run), ("submitted", &text), by);
        self.store_notes();
        Ok(self.summary(manifest.run).expect("created just now"))
    }

    /// Applies a command and commits it separately. If the store rejects it, the
    /// command is undone and its caller gets the inner error. The outer error stops the driver.
    pub(super) fn control(
        &mut self,
        run: RunId,
        command: Command,
        by: By,
    ) -> Result<Result<RunSummary, RequestError>, DriverError> {
        let Some(before) = self.summary(run) else {
            return Ok(Err(ControlError::NoSuchRun(run).into()));
        };
        if command == Command::Cancel && before.state == RunState::Cancelled {
            // The first cancellation stays on record.
            return Ok(Ok(before));
        }
        // Committed first: if the command cannot be stored, other changes must not be lost with it.
        let now = self.clock.now();
        self.scheduler.advance(now);
        self.commit()?;
        if let Err(error) = self.scheduler.control(run, command, now) {
            return Ok(Err(error.into()));
        }
        self.collect_changes();
        if let Err(error) = self.store.apply(&self.changes) {
            if !error.changed_nothing() {
                return Err(error.into());
            }
            self.changes.clear();
            self.scheduler.undo_command();
            return Ok(Err(error.into()));
        }
        let durable = std::mem::take(&mut self.changes);
        self.note_command(run, command, &by);
        self.store_notes();
        self.announce(&durable);
        if command == Command::Cancel
            && let Some(by) = by
        {
            self.cancelled_by.insert(run, by);
        }
        Ok(self.summary(run).ok_or_else(|| ControlError::NoSuchRun(run).into()))
    }

    /// Readmits a worker, by its name or a prefix of its identity. Returns both.
    pub(super) fn trust(&mut self, name: &str, by: &By) -> Result<String, RequestError> {
        let (id, shown) = if name == "referee" {
            (REFEREE, "the coordinator's own referee".to_owned())
        } else {
            let recorded = self.store.trust()?;
            let recorded = recorded.into_iter().map(|record| (record.worker, record.name));
            let (id, known) = named(name, recorded.chain(self.known_workers()))?;
            (id, format!("{known} ({id})"))
        };
        if !self.scheduler.snapshot().is_barred(id) {
            return Err(RequestError::NotBarred(shown));
        }
        self.scheduler.readmit(id);
        self.note(None, ("trusted", &format!("{shown} was readmitted")), by);
        Ok(shown)
    }

    /// Drains a worker, by its name or a prefix of its identity. Returns both. Workers that are gone make no name
    /// ambiguous.
    pub(super) fn drain(&mut self, name: &str, by: &By) -> Result<String, RequestError> {
        let is_present = |state| !matches!(state, WorkerState::Stopped | WorkerState::Lost);
        let (id, known) = match named(name, self.workers_in(is_present)) {
            Err(RequestError::NoWorker(_)) => named(name, self.known_workers())?,
            found => found?,
        };
        let shown = format!("{known} ({id})");
        if id == LOCAL_WORKER {
            return Err(RequestError::LocalWorker);
        }
        if !self.scheduler.drain(id) {
            return Err(RequestError::NotConnected(shown));
        }
        self.note(None, ("drained", &format!("{shown} is being drained")), by);
        Ok(shown)
    }

    /// Returns identities and names of the workers that have called.
    pub(super) fn known_workers(&self) -> impl Iterator<Item = (WorkerId, String)> + use<> {
        self.workers_in(|_| true)
    }

    fn workers_in(
        &self,
        selects: fn(WorkerState) -> bool,
    ) -> impl Iterator<Item = (WorkerId, String)> + use<> {
        let all = WorkersPart::ById { after: None, most: usize::MAX };
        let workers = self.scheduler.snapshot().workers(&all, self.clock.now()).workers;
        let selected = workers.into_iter().filter(move |worker| selects(worker.state));
        selected.map(|worker| (worker.id, worker.info.name))
    }

    /// Deletes a finished run. The outer error stops the driver.
    pub(super) fn delete(
        &mut self,
        run: RunId,
        by: By,
    ) -> Result<Result<RunSummary, RequestError>, DriverError> {
        // Commit first: the counts in this group cannot be stored once their run is deleted.
        self.commit()?;
        Ok(self.delete_committed(run, by))
    }

    fn delete_committed(&mut self, run: RunId, by: By) -> Result<RunSummary, RequestError> {
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
        self.forget_notes(run);
        let text = format!("run {run} (N = {}) deleted", summary.manifest.spec.board);
        self.note(None, ("deleted", &text), &by);
        self.store_notes();
        self.concluded.retain(|outcome| outcome.run != run);
        self.outcomes.send_if_modified(|outcomes| outcomes.remove(&run).is_some());
        self.cancelled_by.remove(&run);
        Ok(summary)
    }

    pub(super) fn runs(&self) -> Vec<RunSummary> {
        self.scheduler.snapshot().runs().into_iter().map(|run| self.with_outcome(run)).collect()
    }

    /// Adds the outcome of a run, and the token that cancelled it.
    fn with_outcome(&self, mut summary: RunSummary) -> RunSummary {
        let run = summary.manifest.run;
        summary.cancelled_by = self.cancelled_by.get(&run).cloned();
        if let Some(outcome) = self.outcomes.borrow().get(&run) {
            summary.counting_seconds = outcome.seconds;
            let right = outcome.state() == RunState::Complete;
            summary.solutions = right.then_some(outcome.solutions);
            summary.verified = outcome.is_verified();
        }
        summary
    }

    pub(super) fn summary(&self, run: RunId) -> Option<RunSummary> {
        self.runs().into_iter().find(|summary| summary.manifest.run == run)
    }

    pub(super) fn status(&self, run: Option<RunId>) -> Option<StatusReport> {
        let run = match run {
            Some(run) => run,
            None => served_first(&self.scheduler.snapshot().runs())?,
        };
        let status = self.scheduler.snapshot().status(run, self.clock.now())?;
        Some(StatusReport {
            status: RunStatus { run: self.with_outcome(status.run), ..status },
            outcome: self.outcomes.borrow().get(&run).cloned(),
            finishing: self.finishing.get(&run).map(|count| count.part()),
            serving: None,
        })
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
        let next = self.store.journal(run, from, &mut |sequence, entry, line| {
            lines.push((sequence, entry.clone(), line.to_owned()));
            full = lines.len() == PAGE_LINES;
            if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(Some(JournalPage { lines, next: full.then_some(next) }))
    }
}

/// Returns the first running run, or else the newest run.
pub fn served_first(runs: &[RunSummary]) -> Option<RunId> {
    let running = runs.iter().find(|run| run.state == RunState::Running);
    let newest = || runs.iter().max_by_key(|run| run.manifest.created_unix_ms);
    Some(running.or_else(newest)?.manifest.run)
}

/// Returns the only worker with this name or prefix of its identity.
fn named(
    name: &str,
    workers: impl Iterator<Item = (WorkerId, String)>,
) -> Result<(WorkerId, String), RequestError> {
    let matches: BTreeMap<_, _> =
        workers.filter(|(id, known)| known == name || id.to_string().starts_with(name)).collect();
    let mut matches = matches.into_iter();
    match (matches.next(), matches.len()) {
        (Some(worker), 0) => Ok(worker),
        (None, _) => Err(RequestError::NoWorker(name.to_owned())),
        (Some(_), more) => {
            Err(RequestError::AmbiguousWorker { name: name.to_owned(), workers: more + 1 })
        }
    }
}
