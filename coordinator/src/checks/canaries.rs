//! Whether those who counted had proved that they count right.

use std::{collections::BTreeMap, ops::RangeInclusive};

use common::run::WorkerId;

use super::{Check, CheckOutcome, check};
use crate::{
    ledger::{Fold, TaskState, Trust, TrustRecord},
    text::plural,
};

/// What is on record of one worker's canaries.
#[derive(Debug, Default)]
struct OnRecord {
    proofs: u64,
    /// When it counted what may be wrong, in milliseconds since 1970.
    unproven: Vec<RangeInclusive<u64>>,
}

/// The check of the workers that made a run's accepted counts, by what was thought of workers.
pub fn of_canaries(fold: &Fold, trust: &[TrustRecord]) -> Check {
    let mut on_record: BTreeMap<WorkerId, OnRecord> = BTreeMap::new();
    for record in trust {
        let of = on_record.entry(record.worker).or_default();
        match record.trust {
            Trust::Doubted | Trust::Barred | Trust::Trusted => {}
            Trust::Unproven { from_unix_ms } => {
                of.unproven.push(from_unix_ms..=record.since_unix_ms);
            }
            Trust::Proven { proofs } => of.proofs = proofs.max(of.proofs),
        }
    }
    // By worker, how many of its counts are in an unproven time and confirmed by nobody else.
    let mut counters: BTreeMap<WorkerId, u64> = BTreeMap::new();
    for (_, row) in fold.rows() {
        let TaskState::Done { vote, confirmed } = &row.state else {
            continue;
        };
        let unproven = on_record.get(&vote.worker).is_some_and(|of| {
            let mut windows = of.unproven.iter();
            windows.any(|window| window.contains(&vote.accepted_unix_ms))
        });
        *counters.entry(vote.worker).or_default() += u64::from(unproven && !confirmed.elsewhere());
    }
    let open: u64 = counters.values().sum();
    let of = |worker: &WorkerId| on_record.get(worker);
    let proofs = counters.keys().filter_map(of).map(|of| of.proofs);
    let proofs = proofs.fold(0, u64::saturating_add);
    let silent = counters
        .keys()
        .filter(|worker| of(worker).is_none_or(|of| of.proofs == 0));
    let silent = silent.count();
    let failed = counters.keys().filter_map(of);
    let failed = failed.filter(|of| !of.unproven.is_empty()).count();
    let (outcome, reason) = if open > 0 {
        let reason = format!(
            "{} came from workers whose threads then counted known boards wrong, and no other machine \
             has confirmed them",
            plural(open, "count")
        );
        (CheckOutcome::Failed, reason)
    } else if silent > 0 {
        let reason = format!(
            "because {silent} of {} told of no proof on known boards",
            plural(counters.len() as u64, "worker")
        );
        (CheckOutcome::NotPossible, reason)
    } else {
        let again = match failed {
            0 => "none came out wrong".to_owned(),
            some => format!(
                "threads of {} failed later, and another machine has confirmed what they counted since",
                plural(some as u64, "worker")
            ),
        };
        let reason = format!(
            "{} counted, and told of {} on known boards; {again}",
            plural(counters.len() as u64, "worker"),
            plural(proofs, "proof")
        );
        (CheckOutcome::Passed, reason)
    };
    check("canaries", outcome, reason)
}

#[cfg(test)]
mod tests {
    use common::{
        board::Board,
        count::Orientation,
        kernel::KernelName,
        method::Layout,
        plan::{Plan, PlanSpec, TaskId},
        run::{Epoch, RunId},
    };

    use super::*;
    use crate::{
        driver::new_manifest,
        ledger::{JournalEntry, Principal, Record},
        sched::Millis,
    };

    fn record(worker: u64, task: u64, accepted_unix_ms: u64) -> Record {
        Record {
            run: RunId(1),
            task: TaskId(task),
            epoch: Epoch(1),
            count: 1,
            worker: WorkerId(worker.into()),
            principal: Principal::new(worker, None),
            version: String::new(),
            kernel: KernelName::Scalar,
            orientation: Orientation::Upright,
            duration_us: 1,
            accepted_unix_ms,
            elapsed_ms: 1,
        }
    }

    fn thought(worker: u64, trust: Trust, since_unix_ms: u64) -> TrustRecord {
        TrustRecord {
            worker: WorkerId(worker.into()),
            principal: Principal::new(worker, None),
            name: String::new(),
            trust,
            faults: 0,
            reason: String::new(),
            since_unix_ms,
        }
    }

    #[test]
    fn it_fails_while_an_unproven_count_is_nobody_elses_too() {
        let spec = PlanSpec {
            task_cost: 1,
            ..PlanSpec::new(Board::new(8).unwrap(), Layout::FirstRows)
        };
        let plan = Plan::new(spec).unwrap();
        let mut fold = Fold::new(&new_manifest(&plan, 0, Millis(1)), &plan);
        let mut sequence = 0;
        let mut take = |fold: &mut Fold, entry| {
            sequence += 1;
            fold.take(&plan, &entry, sequence).unwrap();
        };
        for (worker, task, at) in [(1, 0, 100), (1, 1, 200), (2, 2, 200)] {
            take(&mut fold, JournalEntry::Accepted(record(worker, task, at)));
        }
        let proven = |worker, proofs| thought(worker, Trust::Proven { proofs }, 1);
        let mut trust = vec![proven(1, 4), proven(1, 9), proven(3, 7)];
        let said = |fold: &Fold, trust: &[TrustRecord]| {
            let check = of_canaries(fold, trust);
            (check.outcome, check.reason)
        };
        let (outcome, reason) = said(&fold, &trust);
        assert_eq!(outcome, CheckOutcome::NotPossible);
        assert!(reason.contains("1 of 2 workers"), "{reason}");
        trust.push(proven(2, 1_000));
        let (outcome, reason) = said(&fold, &trust);
        assert_eq!(outcome, CheckOutcome::Passed);
        assert!(reason.contains("1,009 proofs"), "{reason}");
        // From 150 to 250, and before the first count: one count is open.
        for (from_unix_ms, since) in [(150, 250), (10, 20)] {
            trust.push(thought(1, Trust::Unproven { from_unix_ms }, since));
        }
        let (outcome, reason) = said(&fold, &trust);
        assert_eq!(outcome, CheckOutcome::Failed);
        assert!(reason.starts_with("1 count came"), "{reason}");
        // Its own second count changes nothing, another machine's does.
        take(&mut fold, JournalEntry::Confirmed(record(1, 1, 300)));
        assert_eq!(said(&fold, &trust).0, CheckOutcome::Failed);
        take(&mut fold, JournalEntry::Confirmed(record(2, 1, 300)));
        let (outcome, reason) = said(&fold, &trust);
        assert_eq!(outcome, CheckOutcome::Passed);
        assert!(reason.contains("threads of 1 worker failed"), "{reason}");
    }
}
