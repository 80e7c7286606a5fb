//! A pause: nothing is counted for a while, and nothing is lost by it.

use std::time::{Duration, Instant};

use super::patience::Patience;

/// Since when nothing is begun any more, and why.
#[derive(Debug)]
pub(super) struct Pause {
    why: String,
    patience: Patience,
}

impl Pause {
    /// From now on. What was begun may be finished as it may in a stop that takes `limit`.
    pub(super) fn new(why: String, now: Instant, limit: Duration) -> Self {
        Self {
            why,
            patience: Patience::new(now, limit),
        }
    }

    /// The same pause, for another reason.
    pub(super) fn go_on(&mut self, why: String) {
        self.why = why;
    }

    /// For people.
    pub(super) fn why(&self) -> &str {
        &self.why
    }

    /// For what was begun.
    pub(super) fn patience(&self) -> Patience {
        self.patience
    }
}
