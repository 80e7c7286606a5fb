//! How long what was begun may go on once counting is to end.

use std::time::{Duration, Instant};

use super::leases::Held;

/// What handing results in takes at most, where a stop may take long.
const HANDING_IN: Duration = Duration::from_secs(15);

/// A time from now on in which a task may be finished.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    since: Instant,
    grace: Duration,
}

impl Patience {
    /// In a stop that takes `limit` at most: the rest of it is for handing results in.
    pub(super) fn new(since: Instant, limit: Duration) -> Self {
        Self {
            since,
            grace: (limit * 2 / 5).max(limit.saturating_sub(HANDING_IN)),
        }
    }

    /// When everything that is still counted is given up.
    pub(super) fn ends(self) -> Instant {
        self.since + self.grace
    }

    /// Whether work that was begun will outlast it, at this speed: cost counted in a second of one
    /// thread.
    pub(super) fn is_hopeless(self, held: &Held, speed: f64) -> bool {
        #[allow(clippy::cast_precision_loss)] // An estimate.
        let left = held.cost_left() as f64 / speed;
        // What has run for long and tells of no progress may be anywhere.
        let begun = held.begun.unwrap_or(self.since);
        let stuck = held.cost_done == 0 && self.since.saturating_duration_since(begun) > self.grace;
        left > self.grace.as_secs_f64() || stuck
    }
}

#[cfg(test)]
mod tests {
    use common::plan::Plan;

    use super::*;
    use crate::{
        machine::Work,
        testing::{plan, work},
    };

    const COST: u64 = 1_000;

    fn held(plan: &Plan, now: Instant, for_seconds: u64, cost_done: u64) -> Held {
        Held {
            work: Work {
                cost: COST,
                ..work(plan, 0)
            },
            begun: Some(now - Duration::from_secs(for_seconds)),
            cost_done,
        }
    }

    #[test]
    fn what_outlasts_the_grace_is_hopeless() {
        let now = Instant::now() + Duration::from_secs(1_000);
        let plan = plan(12);
        for (limit, grace) in [(5, 2), (20, 8), (25, 10), (300, 285)] {
            let patience = Patience::new(now, Duration::from_secs(limit));
            assert_eq!(patience.ends(), now + Duration::from_secs(grace));
        }
        let patience = Patience::new(now, Duration::from_secs(25));
        // With nothing done, it takes just over and just under ten seconds.
        let seconds = |seconds: f64| COST as f64 / seconds;
        assert!(patience.is_hopeless(&held(&plan, now, 1, 0), seconds(10.5)));
        assert!(!patience.is_hopeless(&held(&plan, now, 1, 0), seconds(9.5)));
        assert!(!patience.is_hopeless(&held(&plan, now, 1, COST / 2), seconds(10.5)));
        assert!(!patience.is_hopeless(&held(&plan, now, 1, 0), seconds(10.0)));
        // It should have been done long ago, and says nothing.
        assert!(!patience.is_hopeless(&held(&plan, now, 10, 0), seconds(1.0)));
        assert!(patience.is_hopeless(&held(&plan, now, 11, 0), seconds(1.0)));
        assert!(!patience.is_hopeless(&held(&plan, now, 11, 1), seconds(1.0)));
    }
}
