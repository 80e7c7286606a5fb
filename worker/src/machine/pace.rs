//! When to call the coordinator.

use std::time::{Duration, Instant};

/// Between two calls at least.
const BUSY: Duration = Duration::from_millis(25);

/// Between two calls of a worker that has work for long, at least.
const COMFORTABLE: Duration = Duration::from_millis(250);

/// The longest wait between attempts to reach a coordinator.
const LONGEST_BACKOFF: Duration = Duration::from_secs(100);

/// Until the coordinator says when it wants to hear from this worker.
const FIRST_PERIOD: Duration = Duration::from_secs(15);

/// The times of the calls, past and next. Told the time, never reads a clock.
#[derive(Debug)]
pub(super) struct Pace {
    last: Instant,
    /// By when the coordinator wants the next call.
    by: Instant,
    period: Duration,
    /// The last call asked for work and got none: only the coordinator's time brings more.
    starved: bool,
    failures: u32,
    /// No call before this, whatever happens: set after a failure.
    retry: Option<Instant>,
}

/// What makes a call urgent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// A partial has not been sent, or a lease should be given back.
    pub(super) news: bool,
    /// The threads could soon be without work.
    pub(super) low: bool,
    /// For how long the waiting work lasts.
    pub(super) lasts: Duration,
}

impl Pace {
    /// The first call is due at once.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last: now,
            by: now,
            period: FIRST_PERIOD,
            starved: false,
            failures: 0,
            retry: None,
        }
    }

    /// When the next call is due.
    pub(super) fn due(&self, needs: Needs) -> Instant {
        if let Some(retry) = self.retry {
            return retry;
        }
        if !(needs.news || needs.low && !self.starved) {
            return self.by;
        }
        // A well-supplied worker collects its results for a while, the longer the less often the
        // coordinator wants to hear from it; one that runs dry calls as fast as is decent.
        let comfortable = (self.period / 15).clamp(COMFORTABLE, Duration::from_secs(10));
        let wait = (needs.lasts / 4).clamp(BUSY, comfortable);
        self.by.min(self.last + wait)
    }

    /// A call begins.
    pub(super) fn started(&mut self, now: Instant) {
        self.last = now;
        self.retry = None;
    }

    /// The call succeeded; the coordinator wants the next one after `next`.
    pub(super) fn answered(&mut self, now: Instant, next: Duration, starved: bool) {
        self.period = next.max(BUSY);
        self.by = now + self.period;
        self.starved = starved;
        self.failures = 0;
    }

    /// The call failed. The wait until the next attempt: up to 1 s, doubling to 100 s, of which
    /// `jitter` (0 to 1) is taken, so that a fleet does not come back as one.
    pub(super) fn failed(&mut self, now: Instant, jitter: f64) -> Duration {
        let most = Duration::from_secs(1 << self.failures.min(7)).min(LONGEST_BACKOFF);
        self.failures = self.failures.saturating_add(1);
        let wait = most.mul_f64(jitter.clamp(0.0, 1.0));
        self.retry = Some(now + wait);
        wait
    }

    /// How often in a row calls have failed.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) fn period(&self) -> Duration {
        self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Needs = Needs {
        news: false,
        low: false,
        lasts: Duration::from_secs(100),
    };
    const NEWS: Needs = Needs { news: true, ..CALM };
    const DRY: Needs = Needs {
        news: false,
        low: true,
        lasts: Duration::ZERO,
    };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn served(now: Instant, starved: bool) -> Pace {
        let mut pace = Pace::new(now);
        assert_eq!(pace.due(CALM), now);
        pace.started(now);
        pace.answered(now, ms(15_000), starved);
        pace
    }

    #[test]
    fn a_calm_worker_calls_when_it_is_told_to() {
        let now = Instant::now();
        assert_eq!(served(now, false).due(CALM), now + ms(15_000));
    }

    #[test]
    fn results_are_collected_for_a_while_and_an_empty_queue_is_urgent() {
        let now = Instant::now();
        let pace = served(now, false);
        assert_eq!(pace.due(NEWS), now + ms(1_000));
        assert_eq!(pace.due(DRY), now + BUSY);
        let lasts = ms(2_000);
        assert_eq!(pace.due(Needs { lasts, ..DRY }), now + ms(500));
    }

    #[test]
    fn who_got_nothing_waits_for_the_coordinators_time_but_delivers_results() {
        let now = Instant::now();
        let pace = served(now, true);
        assert_eq!(pace.due(DRY), now + ms(15_000));
        assert_eq!(pace.due(Needs { news: true, ..DRY }), now + BUSY);
    }

    #[test]
    fn failures_back_off_with_full_jitter_and_one_success_forgets_them() {
        let now = Instant::now();
        let mut pace = served(now, false);
        let mut waits = Vec::new();
        for _ in 0..9 {
            pace.started(now);
            waits.push(pace.failed(now, 1.0).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        assert_eq!(pace.due(DRY), now + ms(100_000), "no urgency shortens it");
        pace.started(now);
        assert_eq!(pace.failed(now, 0.25), ms(25_000));
        pace.started(now);
        pace.answered(now, ms(15_000), false);
        assert_eq!(pace.due(DRY), now + BUSY);
        assert_eq!(pace.failed(now, 0.5), ms(500));
    }

    #[test]
    fn no_answer_makes_a_worker_call_without_pause() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.started(now);
        pace.answered(now, Duration::ZERO, true);
        assert_eq!(pace.due(CALM), now + BUSY);
    }
}
