//! The driver's only clock.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{SystemTime, UNIX_EPOCH},
};

use scheduler::Millis;

/// A clock in milliseconds since 1970, which may jump in either direction.
///
/// It reads the wall clock each time: the monotonic clock stops while the machine sleeps, and stored times and
/// those of other machines follow corrections. It does not stand still after a correction backwards, either: with
/// a clock that was a day ahead, no lease would expire for a day. The scheduler's own time follows jumps in
/// bounded steps.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The wall clock of this machine.
    Wall,
    /// Shows these milliseconds since 1970, for simulations.
    Simulated(&'static AtomicU64),
}

impl Clock {
    /// Returns the wall clock.
    pub fn start() -> Self {
        Self::Wall
    }

    /// Returns the current time.
    pub fn now(&self) -> Millis {
        Millis(match self {
            Self::Wall => {
                let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
            }
            Self::Simulated(now_unix_ms) => now_unix_ms.load(Relaxed),
        })
    }
}
