//! A planned stop: no new work, what is nearly done is finished, every result is handed in.

use std::time::{Duration, Instant};

use super::{Ended, patience::Patience};

/// Between two calls that get on.
const AGAIN: Duration = Duration::from_millis(25);

/// Between two calls that do not.
const RETRY: Duration = Duration::from_secs(1);

/// How far a planned stop has come.
#[derive(Debug)]
pub(super) struct Drain {
    why: Ended,
    since: Instant,
    limit: Duration,
    patience: Patience,
    /// When the next call is due.
    due: Instant,
    heard: Heard,
    /// Nothing is lost if the coordinator never hears of it.
    may_leave: bool,
}

/// Whether the coordinator has seen the whole inventory, in a call that began after its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    /// A call that tells it is on its way.
    Soon,
    All,
}

impl Drain {
    /// A stop that takes `limit` at most.
    pub(super) fn new(why: Ended, since: Instant, limit: Duration) -> Self {
        Self {
            why,
            since,
            limit,
            patience: Patience::new(since, limit),
            due: since,
            heard: Heard::Nothing,
            may_leave: false,
        }
    }

    /// For what was begun.
    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    /// When the worker leaves, whatever it has not handed in.
    pub(super) fn ends(&self) -> Instant {
        self.since + self.limit
    }

    /// The inventory has changed.
    pub(super) fn changed(&mut self) {
        self.heard = Heard::Nothing;
    }

    /// When the next call is due, if there is something to tell.
    pub(super) fn call_at(&self) -> Option<Instant> {
        (self.heard != Heard::All).then_some(self.due)
    }

    /// A call begins.
    pub(super) fn called(&mut self) {
        self.heard = Heard::Soon;
    }

    /// The coordinator has answered; `open`: it granted something, or there is more to tell. What is
    /// granted is not taken: absent from the next inventory, it is released.
    pub(super) fn answered(&mut self, now: Instant, open: bool, progress: bool) {
        let is_all = self.heard == Heard::Soon && !open;
        self.heard = if is_all { Heard::All } else { Heard::Nothing };
        self.due = now + if progress { AGAIN } else { RETRY };
    }

    /// It has not; `may_leave`: nothing is lost if it never does, since leases run out.
    pub(super) fn unanswered(&mut self, now: Instant, may_leave: bool) {
        self.heard = Heard::Nothing;
        self.may_leave = may_leave;
        self.due = now + RETRY;
    }

    /// Whether the worker ends now, and why; `empty`: neither leases nor results are left.
    pub(super) fn end(&self, now: Instant, empty: bool) -> Option<Ended> {
        let is_done = empty && self.heard == Heard::All;
        (is_done || self.may_leave || now >= self.ends()).then_some(self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(25);

    fn drain(now: Instant) -> Drain {
        Drain::new(Ended::Told, now, LIMIT)
    }

    #[test]
    fn it_ends_once_the_coordinator_has_heard_all() {
        let now = Instant::now();
        let mut drain = drain(now);
        assert_eq!(drain.call_at(), Some(now));
        assert_eq!(drain.end(now, true), None, "nobody knows");
        drain.called();
        assert_eq!(drain.end(now, true), None);
        drain.answered(now, false, true);
        assert_eq!(
            (drain.call_at(), drain.end(now, true)),
            (None, Some(Ended::Told))
        );
        assert_eq!(drain.end(now, false), None, "something is left");
        drain.changed();
        assert_eq!(drain.call_at(), Some(now + AGAIN));
        assert_eq!(drain.end(now, true), None);
    }

    #[test]
    fn an_answer_to_an_older_call_or_with_grants_is_not_the_last() {
        let now = Instant::now();
        let mut older = drain(now);
        older.answered(now, false, false);
        assert_eq!(
            (older.call_at(), older.end(now, true)),
            (Some(now + RETRY), None)
        );
        let mut open = drain(now);
        open.called();
        open.answered(now, true, true);
        assert_eq!(
            (open.call_at(), open.end(now, true)),
            (Some(now + AGAIN), None)
        );
        let mut changed = drain(now);
        changed.called();
        changed.changed();
        changed.answered(now, false, true);
        assert_eq!(changed.end(now, true), None);
    }

    #[test]
    fn without_an_answer_it_tries_until_its_limit_or_leaves_what_is_safe() {
        let now = Instant::now();
        let mut drain = drain(now);
        drain.called();
        drain.unanswered(now, false);
        assert_eq!(drain.call_at(), Some(now + RETRY));
        assert_eq!(drain.end(now + LIMIT - RETRY, false), None);
        assert_eq!(drain.end(now + LIMIT, false), Some(Ended::Told));
        assert_eq!(drain.ends(), now + LIMIT);
        drain.unanswered(now, true);
        assert_eq!(drain.end(now, false), Some(Ended::Told));
    }
}
