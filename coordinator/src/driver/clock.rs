//! The driver's only clock.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::sched::Millis;

/// Milliseconds since 1970 that never go back while the process lives: the wall clock is read once,
/// later times add what the monotonic clock measured. A wall clock that somebody sets, or that a
/// time server corrects, can so neither expire every lease at once nor keep one for ever.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    Measured { start: Instant, start_unix_ms: u64 },
    Told(&'static AtomicU64),
}

impl Clock {
    /// A clock that agrees with the wall clock now.
    pub fn start() -> Self {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self(Source::Measured {
            start: Instant::now(),
            start_unix_ms: millis(since_1970),
        })
    }

    /// A clock that shows these milliseconds since 1970, for whoever drives time.
    pub const fn told(now_unix_ms: &'static AtomicU64) -> Self {
        Self(Source::Told(now_unix_ms))
    }

    /// Now.
    pub fn now(&self) -> Millis {
        Millis(match self.0 {
            Source::Measured {
                start,
                start_unix_ms,
            } => start_unix_ms.saturating_add(millis(start.elapsed())),
            Source::Told(now_unix_ms) => now_unix_ms.load(Relaxed),
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
