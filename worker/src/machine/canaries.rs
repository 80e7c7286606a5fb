//! Slots that failed their canaries.

use std::time::Instant;

use common::sync::FailedCanaries;

/// How many threads have failed, and since when nothing that they counted is proven.
#[derive(Debug, Default)]
pub(super) struct Canaries {
    threads: u32,
    proven: Option<Instant>,
    /// One of them was never proven: it may have counted for the process before this one.
    never: bool,
    passed: u64,
}

impl Canaries {
    /// A thread that was last proven then, or never, has failed, and stopped.
    pub(super) fn failed(&mut self, proven: Option<Instant>) {
        self.threads += 1;
        self.never |= proven.is_none();
        self.proven = self.proven.into_iter().chain(proven).min();
    }

    /// A thread has counted what is known right.
    pub(super) fn passed(&mut self) {
        self.passed += 1;
    }

    /// How many threads have failed.
    pub(super) fn threads(&self) -> u32 {
        self.threads
    }

    /// As the coordinator hears of it now.
    pub(super) fn report(&self, now: Instant) -> FailedCanaries {
        let unproven = match self.proven {
            _ if self.never => u128::MAX,
            Some(proven) => now.saturating_duration_since(proven).as_millis(),
            None => 0,
        };
        FailedCanaries {
            threads: self.threads,
            unproven_ms: u64::try_from(unproven).unwrap_or(u64::MAX),
            passed: self.passed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_earliest_proof_counts_and_ages() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut canaries = Canaries::default();
        assert_eq!(canaries.report(at(9)), FailedCanaries::default());
        for proven in [at(5), at(3), at(4)] {
            canaries.passed();
            canaries.failed(Some(proven));
        }
        let report = |threads, unproven_ms| FailedCanaries {
            threads,
            unproven_ms,
            passed: 3,
        };
        assert_eq!(canaries.threads(), 3);
        assert_eq!(canaries.report(at(9)), report(3, 6_000));
        assert_eq!(canaries.report(at(10)), report(3, 7_000));
        canaries.failed(None);
        assert_eq!(canaries.report(at(10)), report(4, u64::MAX));
    }
}
