//! The driver's only clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::sched::Millis;

/// Milliseconds since 1970 that never go back while the process lives: the wall clock is read once,
/// later times add what the monotonic clock measured. A wall clock that somebody sets, or that a
/// time server corrects, can so neither expire every lease at once nor keep one for ever.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    start_unix_ms: u64,
}

impl Clock {
    /// A clock that agrees with the wall clock now.
    pub fn start() -> Self {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            start: Instant::now(),
            start_unix_ms: millis(since_1970),
        }
    }

    /// Now.
    pub fn now(&self) -> Millis {
        Millis(
            self.start_unix_ms
                .saturating_add(millis(self.start.elapsed())),
        )
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
