//! When a worker has nothing to stay for.

use std::time::{Duration, Instant};

/// How long the worker has been without work, and whether more can come. Told the time, never reads
/// a clock.
///
/// Only the coordinator knows that a run is over. A worker that has heard so ends after the timeout,
/// whether the coordinator is still there or has ended too; one that has not waits for a coordinator
/// that is away, which may only be restarting.
#[derive(Debug)]
pub(super) struct Idleness {
    /// `None`: the worker stays whatever happens.
    timeout: Option<Duration>,
    /// A worker that has not counted anything was started early, and stays.
    has_counted: bool,
    /// The coordinator's last word on whether every run is over.
    all_runs_over: bool,
    /// Since when all this holds.
    since: Option<Instant>,
}

impl Idleness {
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            has_counted: false,
            all_runs_over: false,
            since: None,
        }
    }

    /// A task was counted.
    pub(super) fn counted(&mut self) {
        self.has_counted = true;
    }

    /// The coordinator has answered.
    pub(super) fn heard(&mut self, all_runs_over: bool) {
        self.all_runs_over = all_runs_over;
    }

    /// When the worker should end, if nothing changes; `holds`: it holds leases.
    pub(super) fn until(&mut self, holds: bool, now: Instant) -> Option<Instant> {
        if holds || !self.has_counted || !self.all_runs_over {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        Some(since + self.timeout?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(300);

    fn done(timeout: Option<Duration>) -> Idleness {
        let mut idleness = Idleness::new(timeout);
        idleness.counted();
        idleness.heard(true);
        idleness
    }

    #[test]
    fn a_worker_whose_runs_are_over_ends_after_the_timeout() {
        let now = Instant::now();
        let mut idleness = done(Some(TIMEOUT));
        assert_eq!(idleness.until(false, now), Some(now + TIMEOUT));
        let later = now + TIMEOUT / 2;
        assert_eq!(idleness.until(false, later), Some(now + TIMEOUT));
    }

    #[test]
    fn new_work_begins_the_time_anew() {
        let now = Instant::now();
        let mut idleness = done(Some(TIMEOUT));
        idleness.until(false, now);
        assert_eq!(idleness.until(true, now), None);
        let later = now + TIMEOUT;
        assert_eq!(idleness.until(false, later), Some(later + TIMEOUT));
        idleness.heard(false);
        assert_eq!(idleness.until(false, later), None, "a run was submitted");
        idleness.heard(true);
        let end = later + TIMEOUT;
        assert_eq!(idleness.until(false, end), Some(end + TIMEOUT));
    }

    #[test]
    fn who_has_not_counted_or_not_heard_stays() {
        let now = Instant::now();
        let mut early = Idleness::new(Some(TIMEOUT));
        early.heard(true);
        assert_eq!(early.until(false, now), None);
        let mut unaware = Idleness::new(Some(TIMEOUT));
        unaware.counted();
        assert_eq!(unaware.until(false, now), None);
        assert_eq!(done(None).until(false, now), None);
    }
}
