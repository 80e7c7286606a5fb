//! What a completed run comes to: the total, the counts of symmetric solutions, and the checks.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use common::{
    board::Board,
    count::CountError,
    known::known_counts,
    plan::TaskId,
    run::RunId,
    symmetric::{HalfTurn, quarter_turn},
    tally::{BadTally, Counts},
};

use crate::{
    checks::{self, Check, Evidence},
    ledger::{Fold, RunManifest, RunState, SymmetricCounts, TrustRecord},
};

/// The end of a run, derived anew from its records whenever it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The run.
    pub run: RunId,
    /// all(N): the fold of the run's records.
    pub solutions: u128,
    /// With the symmetric solutions; or why the total cannot be right.
    pub counts: Result<Counts, BadTally>,
    /// How the counts compare with the published ones.
    pub known: Known,
    /// How long coordinators had served the run when its last record was accepted, in seconds. Time
    /// in which none ran does not count, and clocks that are set change nothing.
    pub seconds: f64,
    /// What was checked, and what came of it.
    pub checks: Vec<Check>,
    /// Tasks whose counts contradict each other with nobody left to decide, the first hundred of
    /// them: `solutions` is the sum of the others then, and no total.
    pub disputed: Vec<TaskId>,
}

/// How counts compare with the published ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// They are the published counts.
    Matches,
    /// They are not.
    Differs,
    /// Nobody has published any.
    Unknown,
}

impl Known {
    /// The word used in JSON and on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Matches => "matches",
            Self::Differs => "differs",
            Self::Unknown => "unknown",
        }
    }
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
        let known = match known_counts(board) {
            None => Known::Unknown,
            Some(published) if counts == Ok(published) => Known::Matches,
            Some(_) => Known::Differs,
        };
        let published = match known {
            Known::Matches => Some(true),
            Known::Differs => Some(false),
            Known::Unknown => None,
        };
        let mut checks = checks::of_counts(&evidence);
        checks.extend(checks::of_journal(fold.lines(), fold.tasks_done()));
        if evidence.disputed.is_empty() {
            checks.extend(checks::of_total(board, Some(&counts), published));
        }
        checks.push(checks::of_canaries(fold, trust));
        checks.push(checks::of_independence());
        Self {
            run: manifest.run,
            solutions,
            counts,
            known,
            // Exact below 2^53 ms.
            #[expect(clippy::cast_precision_loss)]
            seconds: fold.elapsed_ms() as f64 / 1000.0,
            checks,
            disputed: evidence.disputed,
        }
    }

    /// The state of a run that ends so.
    pub fn state(&self) -> RunState {
        if !self.disputed.is_empty() {
            return RunState::Disputed;
        }
        match (&self.counts, self.known) {
            (Ok(_), Known::Matches) => RunState::Complete,
            (Ok(_), Known::Unknown) => {
                let failed = |check: &Check| check.outcome == checks::CheckOutcome::Failed;
                match self.checks.iter().any(failed) {
                    true => RunState::Contradicted,
                    false => RunState::Complete,
                }
            }
            (Ok(_), Known::Differs) | (Err(_), _) => RunState::Contradicted,
        }
    }
}

/// The solutions that rotations fix, and how far they are counted.
#[derive(Debug)]
pub(super) struct Symmetric {
    board: Board,
    next: AtomicU64,
    /// Branches that are counted.
    done: AtomicU64,
}

impl Symmetric {
    pub(super) fn new(board: Board) -> Self {
        Self {
            board,
            next: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    /// The part of the branches that is counted, 0 to 1.
    pub(super) fn part(&self) -> f64 {
        self.done.load(Ordering::Relaxed) as f64 / HalfTurn::new(self.board).branches() as f64
    }

    /// Counts them on all cores; `None` once `stop` is set. Seconds up to N = 24, minutes for N = 27.
    pub(super) fn count(&self, stop: &AtomicBool) -> Option<Result<SymmetricCounts, CountError>> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let half_turn = HalfTurn::new(self.board);
        let go_on = || match stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let branches = || {
            let mut sum = 0u64;
            loop {
                let branch = self.next.fetch_add(1, Ordering::Relaxed);
                if branch >= half_turn.branches() {
                    return Ok(sum);
                }
                sum = sum
                    .checked_add(half_turn.branch(branch, &go_on)?)
                    .ok_or(CountError::Overflow)?;
                self.done.fetch_add(1, Ordering::Relaxed);
            }
        };
        let parts: Vec<Result<u64, CountError>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..cores).map(|_| scope.spawn(branches)).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .expect("counting symmetric solutions panicked")
            };
            threads.into_iter().map(join).collect()
        });
        let sum = parts.into_iter().try_fold(0u64, |sum, part| {
            sum.checked_add(part?).ok_or(CountError::Overflow)
        });
        match sum {
            Err(CountError::Cancelled) => None,
            Err(CountError::Overflow) => Some(Err(CountError::Overflow)),
            Ok(half_turn) => Some(Ok(SymmetricCounts {
                half_turn,
                quarter_turn: quarter_turn(self.board),
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use common::{
        method::Layout,
        plan::{Plan, PlanSpec},
    };

    use super::*;
    use crate::{driver::new_manifest, sched::Millis};

    fn outcome(n: u8, solutions: u128) -> Outcome {
        let board = Board::new(n).unwrap();
        let plan = Plan::new(PlanSpec::new(board, Layout::FirstRows)).unwrap();
        let manifest = new_manifest(&plan, 0, Millis(1));
        let symmetric = Symmetric::new(board).count(&AtomicBool::new(false));
        let seen: (_, _, &[_]) = (&Fold::new(&manifest, &plan), Evidence::default(), &[]);
        Outcome::new(&manifest, solutions, symmetric.unwrap().unwrap(), seen)
    }

    #[test]
    fn a_right_total_is_complete_and_a_wrong_one_contradicted() {
        let right = outcome(12, 14_200);
        assert_eq!(
            (right.known, right.state()),
            (Known::Matches, RunState::Complete)
        );
        assert_eq!(right.counts.unwrap().unique(), 1787);
        // 14,201 contradicts Burnside's formula, 14,208 only the published count.
        for (wrong, consistent) in [(14_201, false), (14_208, true)] {
            let wrong = outcome(12, wrong);
            assert_eq!(wrong.counts.is_ok(), consistent);
            assert_eq!(
                (wrong.known, wrong.state()),
                (Known::Differs, RunState::Contradicted)
            );
        }
    }

    #[test]
    fn every_small_board_agrees_with_the_published_counts() {
        for n in 1..=16 {
            let published = known_counts(Board::new(n).unwrap()).unwrap();
            assert_eq!(outcome(n, published.all()).known, Known::Matches, "N = {n}");
        }
    }

    #[test]
    fn counting_stops_when_told() {
        let board = Board::new(26).unwrap();
        assert_eq!(Symmetric::new(board).count(&AtomicBool::new(true)), None);
    }
}
