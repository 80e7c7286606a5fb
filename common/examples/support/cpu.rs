//! CPU time of this thread.

use std::{fs, sync::LazyLock, time::Instant};

/// Returns the CPU seconds of this thread (Linux), or wall seconds elsewhere.
pub(crate) fn seconds() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let on_cpu = fs::read_to_string("/proc/thread-self/schedstat").ok();
    on_cpu
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok())
        .map_or_else(|| START.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}
