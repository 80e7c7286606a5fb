//! Check of the self-tests of the workers that counted.

use std::{collections::BTreeMap, ops::RangeInclusive};

use common::{messages::run::WorkerId, text::plural};

use super::{Check, CheckOutcome, check};
use crate::ledger::{Fold, Trust, TrustRecord, tasks::seconds};

/// Recorded self-tests of one worker.
#[derive(Debug, Default)]
struct SelfTests {
    passed: u64,
    /// Times before failed self-tests, in the unit of [`Done::accepted_s`](crate::ledger::Done::accepted_s).
    suspect: Vec<RangeInclusive<u32>>,
}

/// Checks that the authors of a run's standing counts passed their self-tests.
pub fn of_self_tests(fold: &Fold, trust: &[TrustRecord]) -> Check {
    let mut self_tests: BTreeMap<WorkerId, SelfTests> = BTreeMap::new();
    for record in trust {
        let tests = self_tests.entry(record.worker).or_default();
        match record.trust {
            Trust::Barred | Trust::Trusted => {}
            Trust::SelfTestFailed { from_unix_ms } => {
                tests.suspect.push(seconds(from_unix_ms)..=seconds(record.since_unix_ms));
            }
            Trust::SelfTestPassed { passed } => tests.passed = passed.max(tests.passed),
        }
    }
    // By author, the number of suspect counts that no other machine has confirmed.
    let mut authors: BTreeMap<WorkerId, u64> = BTreeMap::new();
    for (_, done) in fold.done() {
        let (worker, principal) = fold.author(done.first.author);
        if principal.is_referee() {
            continue;
        }
        let is_suspect = self_tests
            .get(worker)
            .is_some_and(|tests| tests.suspect.iter().any(|window| done.was_accepted_in(window)));
        *authors.entry(*worker).or_default() +=
            u64::from(is_suspect && !done.confirmed.elsewhere());
    }
    let open: u64 = authors.values().sum();
    let of = |worker: &WorkerId| self_tests.get(worker);
    let passed = authors.keys().filter_map(of).map(|own| own.passed).fold(0, u64::saturating_add);
    let silent = authors.keys().filter(|id| of(id).is_none_or(|own| own.passed == 0)).count();
    let failed = authors.keys().filter_map(of).filter(|own| !own.suspect.is_empty()).count() as u64;
    let workers = plural(authors.len() as u64, "worker");
    let (outcome, reason) = if open > 0 {
        let open = plural(open, "count");
        let reason = format!(
            "{open} of threads that then failed their self-test, not confirmed by another machine"
        );
        (CheckOutcome::Failed, reason)
    } else if silent > 0 {
        let reason = format!("because {silent} of {workers} reported no passed self-test");
        (CheckOutcome::NotPossible, reason)
    } else {
        let passed = plural(passed, "passed self-test");
        let failed = match failed {
            0 => "none failed".to_owned(),
            some => format!(
                "threads of {} failed later, and other machines have since confirmed their counts",
                plural(some, "worker")
            ),
        };
        (CheckOutcome::Passed, format!("{workers} reported {passed}, {failed}"))
    };
    check("self_tests", outcome, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{EntryKind, Record, test_records};

    #[test]
    fn the_check_fails_while_a_suspect_count_is_not_confirmed_by_another_machine() {
        let record = |worker, task, accepted_unix_ms| Record {
            accepted_unix_ms,
            ..test_records::record(task, worker, 1)
        };
        let counts = [(1, 0, 100_000), (1, 1, 200_000), (2, 2, 200_000)];
        let mut entries: Vec<_> = counts
            .map(|(worker, task, at)| EntryKind::Accepted.of(record(worker, task, at)))
            .into();
        let passed =
            |worker, passed| test_records::trust(worker, Trust::SelfTestPassed { passed }, 1);
        let mut trust = vec![passed(1, 4), passed(1, 9), passed(3, 7)];
        let expect = |entries: &[_], trust: &[TrustRecord], outcome, text: &str| {
            let check = of_self_tests(&test_records::fold(entries), trust);
            assert!(check.outcome == outcome && check.reason.contains(text), "{check:?}");
        };
        expect(&entries, &trust, CheckOutcome::NotPossible, "1 of 2 workers");
        trust.push(passed(2, 1_000));
        expect(&entries, &trust, CheckOutcome::Passed, "1,009 passed self-tests, none failed");
        // From 150 s to 250 s, and before the first count: one count is suspect.
        for (from_unix_ms, since) in [(150_000, 250_000), (10_000, 20_000)] {
            trust.push(test_records::trust(1, Trust::SelfTestFailed { from_unix_ms }, since));
        }
        expect(&entries, &trust, CheckOutcome::Failed, "1 count of");
        // Only another machine's recheck confirms it.
        entries.push(EntryKind::Confirmed.of(record(1, 1, 300_000)));
        expect(&entries, &trust, CheckOutcome::Failed, "1 count of");
        entries.push(EntryKind::Confirmed.of(record(2, 1, 300_000)));
        expect(&entries, &trust, CheckOutcome::Passed, "threads of 1 worker failed");
    }
}
