//! The driver's only clock.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use scheduler::Millis;

/// A clock in milliseconds since 1970 that never goes back: it reads the wall clock once and adds the time
/// of the monotonic clock. So a correction of the wall clock neither expires all leases nor keeps one
/// forever.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    Measured { start: Instant, start_unix_ms: u64 },
    Told(&'static AtomicU64),
}

impl Clock {
    /// Creates a clock that agrees with the wall clock now.
    pub fn start() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(Source::Measured { start: Instant::now(), start_unix_ms: millis(since_1970) })
    }

    /// Creates a clock that shows these milliseconds since 1970, for simulations.
    pub const fn told(now_unix_ms: &'static AtomicU64) -> Self {
        Self(Source::Told(now_unix_ms))
    }

    /// Returns the current time.
    pub fn now(&self) -> Millis {
        Millis(match self.0 {
            Source::Measured { start, start_unix_ms } => {
                start_unix_ms.saturating_add(millis(start.elapsed()))
            }
            Source::Told(now_unix_ms) => now_unix_ms.load(Relaxed),
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
