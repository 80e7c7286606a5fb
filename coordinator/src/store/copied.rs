//! How far a copy that follows is behind.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Up to when everything is in the archive. Shared between who copies and who tells.
#[derive(Clone, Debug)]
pub struct Copied(Arc<Mutex<Instant>>);

impl Copied {
    /// All that was kept before `when` is there.
    pub fn up_to(when: Instant) -> Self {
        Self(Arc::new(Mutex::new(when)))
    }

    /// The age of the oldest thing that may be lacking.
    pub fn behind(&self) -> Duration {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .elapsed()
    }

    /// All that was kept before `when` is there.
    #[cfg(feature = "archive")]
    pub(super) fn moves(&self, when: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = when;
    }
}
