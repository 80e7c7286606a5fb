//! What is thought of workers.

use common::run::WorkerId;

use super::{Principal, fold::cut};

/// The most bytes of a name or a reason that are kept.
const MAX_WORDS_BYTES: usize = 256;

/// What is thought of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A count of it was wrong: what nobody has confirmed is counted again.
    Doubted,
    /// It gets nothing more, in any run of the data directory.
    Barred,
    /// An operator trusts it again, after a repair.
    Trusted,
    /// Threads of it counted what is known wrong: what it counted since they last counted it right, and
    /// nobody has confirmed, is counted again.
    Unproven {
        /// From when on, in milliseconds since 1970; until the fact itself.
        from_unix_ms: u64,
    },
    /// Its threads have counted what is known right.
    Proven {
        /// How often, since its process began.
        proofs: u64,
    },
}

/// From when on what is thought of whom, and why. It belongs to the data directory, not to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustRecord {
    /// The worker.
    pub worker: WorkerId,
    /// On whose word it counted.
    pub principal: Principal,
    /// Its name, for people.
    pub name: String,
    /// What is thought of it.
    pub trust: Trust,
    /// How many of its counts were found wrong until then.
    pub faults: u64,
    /// Why, for people.
    pub reason: String,
    /// Since when, in milliseconds since 1970.
    pub since_unix_ms: u64,
}

impl Trust {
    /// The word in files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Doubted => "doubted",
            Self::Barred => "barred",
            Self::Trusted => "trusted",
            Self::Unproven { .. } => "unproven",
            Self::Proven { .. } => "proven",
        }
    }
}

impl TrustRecord {
    /// As it is kept: texts from outside are cut.
    pub(crate) fn bounded(&self) -> Self {
        let mut record = self.clone();
        cut(&mut record.name, MAX_WORDS_BYTES);
        cut(&mut record.reason, MAX_WORDS_BYTES);
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_files() {
        let all = [
            Trust::Doubted,
            Trust::Barred,
            Trust::Trusted,
            Trust::Unproven { from_unix_ms: 1 },
            Trust::Proven { proofs: 1 },
        ];
        let words = ["doubted", "barred", "trusted", "unproven", "proven"];
        assert_eq!(all.map(Trust::name), words);
    }

    #[test]
    fn words_from_outside_are_cut() {
        let record = TrustRecord {
            worker: WorkerId(1),
            principal: Principal::new(1, None),
            name: "n".repeat(MAX_WORDS_BYTES + 1),
            trust: Trust::Doubted,
            faults: 1,
            reason: "r".repeat(MAX_WORDS_BYTES + 1),
            since_unix_ms: 0,
        };
        let kept = record.bounded();
        let lengths = (kept.name.len(), kept.reason.len());
        assert_eq!(lengths, (MAX_WORDS_BYTES, MAX_WORDS_BYTES));
    }
}
