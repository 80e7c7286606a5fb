//! Failed self-tests, drains and pauses: how a worker and its threads stop.

use std::time::{Duration, Instant};

use common::messages::sync::SelfTestReport;

use super::{ExitReason, leases::Held};

/// Maximum time for submitting results in a long drain.
const SUBMISSION: Duration = Duration::from_secs(15);

/// The time in which started tasks may finish.
#[derive(Clone, Copy, Debug)]
pub(super) struct GracePeriod {
    since: Instant,
    grace: Duration,
}

impl GracePeriod {
    /// Creates the grace period of a drain or pause that takes at most `limit`.
    ///
    /// The rest of `limit` is for submitting results.
    pub(super) fn new(since: Instant, limit: Duration) -> Self {
        Self { since, grace: (limit * 2 / 5).max(limit.saturating_sub(SUBMISSION)) }
    }

    /// Returns when all remaining tasks are released.
    pub(super) fn ends(self) -> Instant {
        self.since + self.grace
    }

    /// Returns whether work will not finish in time.
    ///
    /// `speed` is in cost per second and thread.
    pub(super) fn cannot_finish(self, held: &Held, speed: f64) -> bool {
        #[allow(clippy::cast_precision_loss)] // An estimate.
        let remaining = held.work.cost.saturating_sub(held.cost_done) as f64 / speed;
        // A task that has made no progress for a long time may take arbitrarily long.
        let started = held.started.unwrap_or(self.since);
        let ran = self.since.saturating_duration_since(started);
        let stuck = held.cost_done == 0 && ran > self.grace;
        remaining > self.grace.as_secs_f64() || stuck
    }
}

/// Delay of the next call after progress.
const NEXT: Duration = Duration::from_millis(25);

/// Delay of the next call without progress.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Drain {
    reason: ExitReason,
    since: Instant,
    limit: Duration,
    /// Time at which the next call is due.
    due: Instant,
    final_sync: FinalSync,
    /// Whether no call is needed: leases expire, and results are in the spool.
    may_leave: bool,
}

/// Progress of the first call after the last change of the inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FinalSync {
    NotSent,
    InFlight,
    Confirmed,
}

impl Drain {
    /// Starts a drain of at most `limit`.
    pub(super) fn new(reason: ExitReason, since: Instant, limit: Duration) -> Self {
        Self { reason, since, limit, due: since, final_sync: FinalSync::NotSent, may_leave: false }
    }

    /// Returns when the worker exits, even with results left.
    pub(super) fn ends(&self) -> Instant {
        self.since + self.limit
    }

    /// Notes a change of the inventory.
    pub(super) fn changed(&mut self) {
        self.final_sync = FinalSync::NotSent;
    }

    /// Returns when the next call is due, if one is needed.
    pub(super) fn call_at(&self) -> Option<Instant> {
        (self.final_sync != FinalSync::Confirmed).then_some(self.due)
    }

    /// Notes the start of a call.
    pub(super) fn called(&mut self) {
        self.final_sync = FinalSync::InFlight;
    }

    /// Notes a reply; `open` if it granted leases or results are left.
    ///
    /// The worker ignores grants: absence from the next inventory releases them.
    pub(super) fn answered(&mut self, now: Instant, open: bool, progress: bool) {
        let is_final = self.final_sync == FinalSync::InFlight && !open;
        self.final_sync = if is_final { FinalSync::Confirmed } else { FinalSync::NotSent };
        self.due = now + if progress { NEXT } else { RETRY };
    }

    /// Notes a lost call.
    pub(super) fn unanswered(&mut self, now: Instant, may_leave: bool) {
        self.final_sync = FinalSync::NotSent;
        self.may_leave = may_leave;
        self.due = now + RETRY;
    }

    /// Returns why the worker exits now; `empty` if no leases or results are left.
    pub(super) fn end(&self, now: Instant, empty: bool) -> Option<ExitReason> {
        let is_done = empty && self.final_sync == FinalSync::Confirmed;
        (is_done || self.may_leave || now >= self.ends()).then_some(self.reason)
    }
}

#[derive(Debug, Default)]
pub(super) struct SelfTests {
    pub(super) passed: u64,
    /// Number of threads that failed and stopped.
    pub(super) failed: u32,
    /// Whether a thread of an earlier process failed, and the coordinator may not have known.
    failed_before: bool,
    /// Earliest time at which a failed thread last passed a self-test: later results are suspect.
    suspect_from: Option<Instant>,
    /// Whether all results are suspect: a thread that failed never passed.
    are_all_suspect: bool,
    /// Whether the current call has all suspect results.
    in_call: bool,
}

impl SelfTests {
    pub(super) fn new(failed_before: bool) -> Self {
        Self { failed_before, are_all_suspect: failed_before, ..Self::default() }
    }

    /// Notes that a thread failed, and when it last passed a self-test, if ever.
    pub(super) fn note_failed(&mut self, last_passed: Option<Instant>) {
        self.failed += 1;
        self.are_all_suspect |= last_passed.is_none();
        self.suspect_from = self.suspect_from.into_iter().chain(last_passed).min();
        self.in_call = false;
    }

    /// Returns whether results are suspect, and the coordinator may not know or have them all.
    pub(super) fn has_suspects(&self) -> bool {
        self.are_all_suspect || self.suspect_from.is_some()
    }

    /// Notes the start of a call; `all` if it has all results.
    pub(super) fn called(&mut self, all: bool) {
        self.in_call = all;
    }

    /// Notes a reply; `stored` if the coordinator has stored the report.
    pub(super) fn answered(&mut self, stored: bool) {
        if stored && self.in_call {
            (self.are_all_suspect, self.suspect_from) = (false, None);
        }
    }

    /// Returns the report for the coordinator.
    pub(super) fn report(&self, now: Instant) -> SelfTestReport {
        let suspect_window = match self.suspect_from {
            _ if self.are_all_suspect => u128::MAX,
            Some(from) => now.saturating_duration_since(from).as_millis().max(1),
            None => 0,
        };
        SelfTestReport {
            failed_threads: self.failed + u32::from(self.failed_before),
            suspect_window_ms: u64::try_from(suspect_window).unwrap_or(u64::MAX),
            tests_passed: self.passed,
        }
    }
}

#[cfg(test)]
mod tests {
    use common::plan::Plan;

    use super::*;
    use crate::{
        engine::Work,
        testing::{plan, work},
    };

    const COST: u64 = 1_000;

    fn held(plan: &Plan, now: Instant, for_seconds: u64, cost_done: u64) -> Held {
        Held {
            work: Work { cost: COST, ..work(plan, 0) },
            started: Some(now - Duration::from_secs(for_seconds)),
            cost_done,
        }
    }

    #[test]
    fn a_task_that_outlasts_the_grace_period_cannot_finish() {
        let now = Instant::now() + Duration::from_secs(1_000);
        let plan = plan(12);
        for (limit, grace) in [(5, 2), (20, 8), (25, 10), (300, 285)] {
            let grace_period = GracePeriod::new(now, Duration::from_secs(limit));
            assert_eq!(grace_period.ends(), now + Duration::from_secs(grace));
        }
        let grace_period = GracePeriod::new(now, Duration::from_secs(25));
        // With nothing done, the task takes just over and just under ten seconds.
        let seconds = |seconds: f64| COST as f64 / seconds;
        assert!(grace_period.cannot_finish(&held(&plan, now, 1, 0), seconds(10.5)));
        assert!(!grace_period.cannot_finish(&held(&plan, now, 1, 0), seconds(9.5)));
        assert!(!grace_period.cannot_finish(&held(&plan, now, 1, COST / 2), seconds(10.5)));
        assert!(!grace_period.cannot_finish(&held(&plan, now, 1, 0), seconds(10.0)));
        // Without progress, although the task should have finished long ago.
        assert!(!grace_period.cannot_finish(&held(&plan, now, 10, 0), seconds(1.0)));
        assert!(grace_period.cannot_finish(&held(&plan, now, 11, 0), seconds(1.0)));
        assert!(!grace_period.cannot_finish(&held(&plan, now, 11, 1), seconds(1.0)));
    }
}
