//! From the last record of a run to its outcome.

use std::{sync::Arc, thread};

use common::{count::CountError, run::RunId};

use super::{Driver, DriverError, Outcome, handle::Request, outcome::Symmetric};
use crate::{
    checks::Evidence,
    sched::RunSummary,
    store::{RunState, SymmetricCounts},
};

impl Driver {
    /// Brings every run that has all its records and no outcome yet to its end. Returns whether
    /// one got there at once.
    pub(super) fn finish_counted_runs(&mut self) -> Result<bool, DriverError> {
        let mut ended = false;
        while let Some(run) = self.scheduler.poll_finished() {
            ended |= self.bring_to_end(run)?;
        }
        Ok(ended)
    }

    /// The same for runs that an earlier process completed: their outcome is derived anew.
    pub(super) fn finish_restored_runs(&mut self) -> Result<(), DriverError> {
        for RunSummary {
            manifest, state, ..
        } in self.scheduler.runs()
        {
            match state {
                RunState::Complete | RunState::Contradicted | RunState::Disputed => {
                    self.bring_to_end(manifest.run)?;
                }
                RunState::Running | RunState::Paused | RunState::Cancelled => {}
            }
        }
        Ok(())
    }

    /// Finishes a run whose symmetric solutions are kept. Without them it starts to count them, on
    /// a thread of its own, because that may take minutes from N = 26 on, and returns false.
    fn bring_to_end(&mut self, run: RunId) -> Result<bool, DriverError> {
        let Some(manifest) = self.summary(run).map(|summary| summary.manifest) else {
            return Ok(false);
        };
        if self.finishing.contains_key(&run) {
            return Ok(false);
        }
        if let Some(symmetric) = self.store.symmetric(run)? {
            self.finish(run, symmetric)?;
            return Ok(true);
        }
        let counting = Arc::new(Symmetric::new(manifest.spec.board));
        self.finishing.insert(run, Arc::clone(&counting));
        let stop = Arc::clone(&self.stop_counting);
        let finished = self.loopback.clone();
        thread::Builder::new()
            .name("symmetric".to_owned())
            .spawn(move || {
                if let Some(symmetric) = counting.count(&stop) {
                    // The driver may have stopped meanwhile; the next start counts again.
                    let _ = finished.blocking_send(Request::Finished(run, symmetric));
                }
            })?;
        Ok(false)
    }

    /// Keeps what the thread of [`Self::bring_to_end`] counted, and finishes the run.
    pub(super) fn symmetric_counted(
        &mut self,
        run: RunId,
        symmetric: Result<SymmetricCounts, CountError>,
    ) -> Result<(), DriverError> {
        self.finishing.remove(&run);
        let symmetric = symmetric.map_err(|why| DriverError::Symmetric { run, why })?;
        if self.summary(run).is_none() {
            // Deleted meanwhile.
            return Ok(());
        }
        if let Err(error) = self.store.keep_symmetric(run, symmetric) {
            // They can be counted again.
            tracing::warn!(
                "run {run}: the next start counts the symmetric solutions anew: {error}"
            );
        }
        self.finish(run, symmetric)
    }

    /// Derives the outcome of a run and keeps the state that follows from it.
    fn finish(&mut self, run: RunId, symmetric: SymmetricCounts) -> Result<(), DriverError> {
        // Without a total, a contradicting count has opened the run again meanwhile: it will be
        // counted to the end and come back.
        let Some(summary) = self.summary(run) else {
            return Ok(());
        };
        let scheduled = match (self.scheduler.total(run), summary.state) {
            (Some(total), _) => Some(total),
            // Not a total, but all that there is to add up.
            (None, RunState::Disputed) => self.scheduler.solutions_so_far(run),
            (None, _) => return Ok(()),
        };
        let scheduled = scheduled
            .transpose()
            .map_err(|why| DriverError::Tally { run, why })?;
        let fold = self.store.refold(run)?;
        let solutions = fold
            .total()
            .map_err(|why| DriverError::Tally { run, why })?;
        if let Some(scheduled) = scheduled.filter(|scheduled| *scheduled != solutions) {
            return Err(DriverError::Total {
                run,
                stored: solutions,
                scheduled,
            });
        }
        let manifest = summary.manifest;
        let evidence = Evidence::of(&fold, |task| self.scheduler.is_drawn(run, task));
        let trust = self.store.trust()?;
        let seen = (&fold, evidence, trust.as_slice());
        let outcome = Outcome::new(&manifest, solutions, symmetric, seen);
        self.scheduler
            .conclude(run, outcome.state() == RunState::Complete);
        self.concluded.push(outcome);
        Ok(())
    }
}
