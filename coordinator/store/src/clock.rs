//! The driver's only clock.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use scheduler::Millis;

/// A clock in milliseconds since 1970 that never goes back.
/// It reads the wall clock once and adds the time of the monotonic clock. A correction of the wall clock
/// thus neither expires all leases nor keeps one forever.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    Measured {
        start: Instant,
        start_unix_ms: u64,
    },
    /// Shows these milliseconds since 1970, for simulations.
    Simulated(&'static AtomicU64),
}

impl Clock {
    /// Creates a clock that agrees with the wall clock now.
    pub fn start() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::Measured { start: Instant::now(), start_unix_ms: millis(since_1970) }
    }

    /// Returns the current time.
    pub fn now(&self) -> Millis {
        Millis(match self {
            Self::Measured { start, start_unix_ms } => {
                start_unix_ms.saturating_add(millis(start.elapsed()))
            }
            Self::Simulated(now_unix_ms) => now_unix_ms.load(Relaxed),
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
