//! The totals of a worker, for its summary at exit.

use std::{fmt, time::Duration};

use common::text::plural;

/// Totals of a worker since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    pub counted: u64,
    pub accepted: u64,
    /// Results that the coordinator already had.
    pub duplicates: u64,
    /// Results that differ from another worker's.
    pub conflicts: u64,
    pub refused: u64,
    /// Those of them that stay in the spool.
    pub kept: u64,
    /// Leases that the coordinator revoked.
    pub revoked: u64,
    /// Leases released uncounted.
    pub released: u64,
    /// Results without an acknowledgement; on disk unless the worker has no spool.
    pub unacknowledged: u64,
    /// Time that all threads together spent on tasks.
    pub busy: Duration,
    /// Time of all threads together between two tasks.
    pub idle: Duration,
}

impl Summary {
    /// Returns the idle part of the time between the first and the last task, 0 to 1.
    pub fn idle_fraction(&self) -> f64 {
        let total = (self.busy + self.idle).as_secs_f64();
        if total > 0.0 { self.idle.as_secs_f64() / total } else { 0.0 }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} completed, {}; {} accepted",
            plural(self.counted, "task"),
            match self.busy.as_secs_f64() {
                // An idle part of so short a time describes only the calls.
                busy @ ..1.0 => format!("{busy:.3} thread-seconds"),
                busy =>
                    format!("{busy:.1} thread-seconds, {:.2} % idle", 100.0 * self.idle_fraction()),
            },
            self.accepted,
        )?;
        for (number, what) in [
            (self.duplicates, "duplicate"),
            (self.conflicts, "in conflict"),
            (self.refused, "refused"),
            (self.kept, "of them kept"),
            (self.revoked, "revoked"),
            (self.released, "released"),
            (self.unacknowledged, "unacknowledged"),
        ] {
            if number > 0 {
                write!(f, ", {number} {what}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_contains_thread_times_and_nonzero_numbers() {
        let second = Duration::from_secs(1);
        let summary = Summary {
            counted: 2,
            accepted: 1,
            refused: 1,
            busy: 3 * second,
            idle: second,
            ..Summary::default()
        };
        let expected = "2 tasks completed, 3.0 thread-seconds, 25.00 % idle; 1 accepted, 1 refused";
        assert_eq!(summary.to_string(), expected);
        let short = Summary { busy: second / 40, ..summary };
        let expected = "2 tasks completed, 0.025 thread-seconds; 1 accepted, 1 refused";
        assert_eq!(short.to_string(), expected);
        assert_eq!(Summary::default().idle_fraction(), 0.0);
    }
}
