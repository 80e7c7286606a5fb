//! The outcome of a finished run: total, symmetric solutions and checks.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use common::{
    board::Board,
    count::CountError,
    messages::run::RunId,
    plan::TaskId,
    solutions::{
        published::published_counts,
        symmetric::{half_turn_branch, half_turn_branches, quarter_turn},
        tally::{BadTally, Counts},
    },
};
use scheduler::{
    RunSummary,
    checks::{self, Check, CheckOutcome, Evidence},
    ledger::{Fold, RunManifest, RunState, SymmetricCounts, TrustRecord},
};

use super::{Driver, DriverError, request::Request};

/// The result of a finished run, derived from its records.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub run: RunId,
    /// all(N): the sum of the run's records, without disputed tasks.
    pub solutions: u128,
    /// Total and symmetric solutions; an error if they contradict each other.
    pub counts: Result<Counts, BadTally>,
    /// Whether the counts match the published ones; `None` if none are published.
    pub matches_published: Option<bool>,
    /// Time during which tasks were counted, by monotonic clocks.
    pub seconds: f64,
    /// The remaining wall-clock time from the run's creation to its last record.
    pub waiting_seconds: f64,
    pub checks: Vec<Check>,
    /// The first 100 disputed tasks of a run that ended without a referee.
    pub disputed: Vec<TaskId>,
}

impl Outcome {
    pub(super) fn new(
        manifest: &RunManifest,
        solutions: u128,
        symmetric: SymmetricCounts,
        (fold, evidence, trust): (&Fold, Evidence, &[TrustRecord]),
    ) -> Self {
        let board = manifest.spec.board;
        let counts = Counts::new(solutions, symmetric.half_turn, symmetric.quarter_turn);
        let matches_published = published_counts(board).map(|published| counts == Ok(published));
        let mut checks = checks::of_counts(&evidence);
        checks.extend(checks::of_journal(fold.lines, fold.tasks_done()));
        if evidence.disputed.is_empty() {
            checks.extend(checks::of_total(board, Some(&counts), matches_published));
        }
        checks.push(checks::of_self_tests(fold, trust));
        checks.push(checks::of_independence());
        Self {
            run: manifest.run,
            solutions,
            counts,
            matches_published,
            // Exact below 2^53 ms.
            seconds: fold.elapsed.ms() as f64 / 1000.0,
            waiting_seconds: fold.elapsed.waiting_ms() as f64 / 1000.0,
            checks,
            disputed: evidence.disputed,
        }
    }

    /// Returns the run's final state.
    pub fn state(&self) -> RunState {
        let failed = |check: &Check| check.outcome == CheckOutcome::Failed;
        match self.checks.iter().any(failed) {
            _ if !self.disputed.is_empty() => RunState::Disputed,
            true => RunState::Contradicted,
            false => RunState::Complete,
        }
    }
}

impl Outcome {
    /// Returns whether no check failed and there is evidence for the total.
    /// The evidence is the published total, or a bound on the wrong counts.
    pub fn is_verified(&self) -> bool {
        let is_bounded =
            self.checks.iter().any(|of| of.name == "referee" && of.outcome == CheckOutcome::Passed);
        self.state() == RunState::Complete && (self.matches_published == Some(true) || is_bounded)
    }
}

impl Driver {
    /// Finishes the runs that have all their records but no outcome, if any.
    /// Returns whether it finished one.
    pub(super) fn finish_counted_runs(&mut self) -> Result<bool, DriverError> {
        let mut any = false;
        while let Some(run) = self.scheduler.poll_finished() {
            any |= self.try_finish(run)?;
        }
        Ok(any)
    }

    /// Derives the outcomes of runs that an earlier process finished.
    pub(super) fn finish_restored_runs(&mut self) -> Result<(), DriverError> {
        for RunSummary { manifest, state, .. } in self.scheduler.snapshot().runs() {
            match state {
                RunState::Complete | RunState::Contradicted | RunState::Disputed => {
                    self.try_finish(manifest.run)?;
                }
                RunState::Running | RunState::Paused | RunState::Cancelled => {}
            }
        }
        Ok(())
    }

    /// Finishes a run whose symmetric solutions are stored, and returns true.
    /// Otherwise starts a thread that counts them, which takes minutes from N = 26 on.
    fn try_finish(&mut self, run: RunId) -> Result<bool, DriverError> {
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
        thread::Builder::new().name("symmetric".to_owned()).spawn(move || {
            if let Some(symmetric) = counting.count(&stop) {
                let (request, _) =
                    Request::new(true, move |driver| driver.symmetric_counted(run, symmetric));
                // If the driver has stopped, the next start counts the solutions again.
                let _ = finished.blocking_send(request);
            }
        })?;
        Ok(false)
    }

    /// Stores the counts of [`Self::try_finish`]'s thread and finishes the run.
    fn symmetric_counted(
        &mut self,
        run: RunId,
        symmetric: Result<SymmetricCounts, CountError>,
    ) -> Result<(), DriverError> {
        // The total on disk must have the counts of this group.
        self.commit()?;
        self.finishing.remove(&run);
        let symmetric = symmetric.map_err(|why| DriverError::Symmetric { run, why })?;
        if self.summary(run).is_none() {
            // The run was deleted.
            return Ok(());
        }
        if let Err(error) = self.store.keep_symmetric(run, symmetric) {
            tracing::warn!(
                "run {run}: cannot store its symmetric solutions: {error}; the next start recounts them"
            );
        }
        self.finish(run, symmetric)
    }

    /// Derives the outcome of a run and its final state.
    fn finish(&mut self, run: RunId, symmetric: SymmetricCounts) -> Result<(), DriverError> {
        let Some(summary) = self.summary(run) else {
            return Ok(());
        };
        let scheduled = match (self.scheduler.snapshot().total(run), summary.state) {
            (Some(total), _) => Some(total),
            // Without a total, compare the sum of the undisputed tasks.
            (None, RunState::Disputed) => self.scheduler.snapshot().solutions_so_far(run),
            // A conflicting count has reopened the run: it will finish again.
            (None, _) => return Ok(()),
        };
        let scheduled = scheduled.transpose().map_err(|why| DriverError::Tally { run, why })?;
        let fold = self.store.refold(run)?;
        let solutions = fold.total().map_err(|why| DriverError::Tally { run, why })?;
        if let Some(scheduled) = scheduled.filter(|scheduled| *scheduled != solutions) {
            return Err(DriverError::Total { run, stored: solutions, scheduled });
        }
        let manifest = summary.manifest;
        let evidence = Evidence::of(&fold, |task| Some(self.scheduler.snapshot().rank(run, task)));
        let trust = self.store.trust()?;
        let seen = (&fold, evidence, trust.as_slice());
        let outcome = Outcome::new(&manifest, solutions, symmetric, seen);
        let state = self.scheduler.conclude(run, outcome.state() == RunState::Complete);
        // If a count became void meanwhile, the run continues.
        if !matches!(state, Some(RunState::Running | RunState::Paused)) {
            self.concluded.push(outcome);
        }
        Ok(())
    }
}

/// A count in progress of the solutions that rotations map to themselves.
#[derive(Debug)]
pub(super) struct Symmetric {
    board: Board,
    next: AtomicU64,
    /// Number of counted branches.
    done: AtomicU64,
}

impl Symmetric {
    pub(super) fn new(board: Board) -> Self {
        Self { board, next: AtomicU64::new(0), done: AtomicU64::new(0) }
    }

    /// Returns the counted part of the branches, 0 to 1.
    pub(super) fn part(&self) -> f64 {
        self.done.load(Ordering::Relaxed) as f64 / half_turn_branches(self.board) as f64
    }

    /// Counts on all cores; returns `None` once `stop` is set.
    /// Takes seconds up to N = 24, minutes for N = 27.
    pub(super) fn count(&self, stop: &AtomicBool) -> Option<Result<SymmetricCounts, CountError>> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let check_stop = || match stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let branches = || {
            let mut sum = 0u64;
            loop {
                let branch = self.next.fetch_add(1, Ordering::Relaxed);
                if branch >= half_turn_branches(self.board) {
                    return Ok(sum);
                }
                sum = sum
                    .checked_add(half_turn_branch(self.board, branch, &check_stop)?)
                    .ok_or(CountError::Overflow)?;
                self.done.fetch_add(1, Ordering::Relaxed);
            }
        };
        let parts: Vec<Result<u64, CountError>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..cores).map(|_| scope.spawn(branches)).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().expect("counting symmetric solutions panicked")
            };
            threads.into_iter().map(join).collect()
        });
        let sum = parts
            .into_iter()
            .try_fold(0u64, |sum, part| sum.checked_add(part?).ok_or(CountError::Overflow));
        match sum {
            Err(CountError::Cancelled) => None,
            Err(error @ (CountError::Overflow | CountError::Device)) => Some(Err(error)),
            Ok(half_turn) => {
                Some(Ok(SymmetricCounts { half_turn, quarter_turn: quarter_turn(self.board) }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use common::method::Layout;
    use scheduler::{Millis, checks::Sample};

    use super::*;
    use crate::driver::new_manifest;

    fn outcome(n: u8, solutions: u128) -> Outcome {
        let board = Board::new(n).unwrap();
        let plan = kit::plan(n, Layout::FirstRows, 1_000_000);
        let manifest = new_manifest(&plan, 0, Millis(1));
        let symmetric = Symmetric::new(board).count(&AtomicBool::new(false));
        let seen: (_, _, &[_]) = (&Fold::new(&manifest, &plan), Evidence::default(), &[]);
        Outcome::new(&manifest, solutions, symmetric.unwrap().unwrap(), seen)
    }

    #[test]
    fn a_right_total_is_complete_and_a_wrong_one_contradicted() {
        let right = outcome(12, 14_200);
        assert_eq!((right.matches_published, right.state()), (Some(true), RunState::Complete));
        assert_eq!(right.counts.unwrap().fundamental(), 1787);
        // 14,201 contradicts Burnside's formula, 14,208 only the published count.
        for (wrong, consistent) in [(14_201, false), (14_208, true)] {
            let wrong = outcome(12, wrong);
            assert_eq!(wrong.counts.is_ok(), consistent);
            assert_eq!(wrong.matches_published, Some(false));
            assert_eq!(wrong.state(), RunState::Contradicted);
        }
    }

    #[test]
    fn a_total_is_verified_only_by_a_published_one_or_a_bound() {
        let unpublished = |recounts, outcome| Outcome {
            matches_published: None,
            checks: checks::of_counts(&Evidence {
                tasks: 400,
                sample: Sample { recounts, ..Sample::default() },
                ..Evidence::default()
            }),
            ..outcome
        };
        assert!(outcome(12, 14_200).is_verified());
        assert!(!outcome(12, 14_208).is_verified());
        assert!(!unpublished(0, outcome(12, 14_200)).is_verified());
        assert!(unpublished(1, outcome(12, 14_200)).is_verified());
    }

    #[test]
    fn counting_stops_on_request() {
        let board = Board::new(26).unwrap();
        assert_eq!(Symmetric::new(board).count(&AtomicBool::new(true)), None);
    }
}
