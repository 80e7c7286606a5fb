//! What a worker has done in its life.

use std::{fmt, time::Duration};

/// What a worker has done between its start and its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Tasks counted.
    pub counted: u64,
    /// Partials that the coordinator took.
    pub accepted: u64,
    /// Partials that the coordinator had before.
    pub duplicates: u64,
    /// Partials that contradict another worker's.
    pub conflicts: u64,
    /// Partials that the coordinator refused.
    pub refused: u64,
    /// Leases taken back by the coordinator.
    pub revoked: u64,
    /// Leases given back uncounted.
    pub abandoned: u64,
    /// Partials that still wait for an answer; on disk unless the worker had no spool.
    pub unacknowledged: u64,
    /// Time that all threads together spent with tasks.
    pub busy: Duration,
    /// Time that all threads together waited between two tasks.
    pub idle: Duration,
}

impl Summary {
    /// The part of the threads' time between their first and their last task that was spent
    /// waiting, 0 to 1.
    pub fn idle_fraction(&self) -> f64 {
        let whole = (self.busy + self.idle).as_secs_f64();
        if whole > 0.0 {
            self.idle.as_secs_f64() / whole
        } else {
            0.0
        }
    }
}

/// "1 task", "2 tasks".
pub(crate) fn plural(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{s}")
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} counted in {:.1} s of one core, {:.2} % idle between tasks; {} accepted",
            plural(self.counted, "task"),
            self.busy.as_secs_f64(),
            100.0 * self.idle_fraction(),
            self.accepted,
        )?;
        for (number, what) in [
            (self.duplicates, "known before"),
            (self.conflicts, "in conflict"),
            (self.refused, "refused"),
            (self.revoked, "taken back"),
            (self.abandoned, "given back"),
            (self.unacknowledged, "still to be acknowledged"),
        ] {
            if number > 0 {
                write!(f, ", {number} {what}")?;
            }
        }
        Ok(())
    }
}
