//! How long this thread has worked.

use std::{fs, time::Instant};

/// Below this many seconds the kernel's account is too coarse: some kernels keep it in ticks.
const SHORT: f64 = 0.1;

/// Started with a piece of work.
pub(super) struct Stopwatch {
    start: Instant,
    on_cpu: Option<f64>,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self {
            start: Instant::now(),
            on_cpu: on_cpu(),
        }
    }

    /// Seconds that this thread has run since, by the kernel's own account where there is one (Linux),
    /// so that whatever else the machine does is left out; seconds on the clock elsewhere, and of short
    /// work.
    pub(super) fn seconds(&self) -> f64 {
        let on_clock = self.start.elapsed().as_secs_f64();
        match (self.on_cpu, on_cpu()) {
            (Some(before), Some(now)) if on_clock >= SHORT => now - before,
            _ => on_clock,
        }
    }
}

fn on_cpu() -> Option<f64> {
    let account = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = account.split(' ').next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}
