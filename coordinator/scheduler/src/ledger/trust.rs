//! Stored changes of the trust in workers.

use common::messages::run::WorkerId;

use super::{Principal, fold::cut};

/// Maximum length of a stored name or reason.
const MAX_TEXT_BYTES: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Returned a wrong count: gets no work in any run of the data directory.
    Barred,
    /// Readmitted by an operator after a repair.
    Trusted,
    /// Some threads failed their self-test.
    /// The worker's unconfirmed counts from `from_unix_ms` to this record are rechecked.
    SelfTestFailed { from_unix_ms: u64 },
    /// The worker has passed this many self-tests since its process started.
    SelfTestPassed { passed: u64 },
}

/// A change of the trust in a worker, valid for all runs of the data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustRecord {
    pub worker: WorkerId,
    pub principal: Principal,
    /// Display name.
    pub name: String,
    pub trust: Trust,
    /// The reason, for display.
    pub reason: String,
    pub since_unix_ms: u64,
}

impl Trust {
    /// Returns the change's name in files and reports.
    pub const fn stored(self) -> &'static str {
        match self {
            Self::Barred => "barred",
            Self::Trusted => "trusted",
            Self::SelfTestFailed { .. } => "self_test_failed",
            Self::SelfTestPassed { .. } => "self_test_passed",
        }
    }
}

impl TrustRecord {
    /// Returns the record with its texts cut to their limits.
    pub fn bounded(&self) -> Self {
        let mut record = self.clone();
        cut(&mut record.name, MAX_TEXT_BYTES);
        cut(&mut record.reason, MAX_TEXT_BYTES);
        record
    }
}

#[cfg(test)]
mod tests {
    use super::{super::test_records, *};

    #[test]
    fn stored_words_are_frozen() {
        let all = [
            Trust::Barred,
            Trust::Trusted,
            Trust::SelfTestFailed { from_unix_ms: 1 },
            Trust::SelfTestPassed { passed: 1 },
        ];
        let words = ["barred", "trusted", "self_test_failed", "self_test_passed"];
        assert_eq!(all.map(Trust::stored), words);
    }

    #[test]
    fn texts_from_outside_are_cut() {
        let [name, reason] = ["n", "r"].map(|text| text.repeat(MAX_TEXT_BYTES + 1));
        let record = TrustRecord { name, reason, ..test_records::trust(1, Trust::Barred, 0) };
        let kept = record.bounded();
        assert_eq!([kept.name.len(), kept.reason.len()], [MAX_TEXT_BYTES; 2]);
    }
}
