//! Which of several counts of a task is right, if that can be said.
//!
//! Identities cost nothing: whoever wants two can have them. So machines vote, not identities, each
//! with its latest word; a count needs two of them; and machines that nobody has seen before do
//! not outvote one that others have agreed with, under whatever identities: see [`decide`]. Machines name themselves, tokens are
//! given out: where holders of several tokens disagree, the tokens that vouch for a count are what
//! matters, not how many machines one of them names.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Scheduler,
    index::{RunIx, TaskIx, WorkerIx},
};

/// What speaks for one count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Support {
    /// Machines whose word has proved good before.
    pub(super) known: usize,
    /// Tokens that vouch for them, where the counts of the task came with more than one; else 0.
    pub(super) tokens: usize,
    /// All machines.
    pub(super) machines: usize,
}

/// The count on which two machines agree and that has more support than any other, if there is one.
/// Without a known machine on its side it must lead by `lead` machines; or, where more tokens than
/// one are involved, by `lead` tokens.
pub(super) fn decide(support: &BTreeMap<u64, Support>, lead: usize) -> Option<u64> {
    let (&count, &best) = support.iter().max_by_key(|&(_, support)| *support)?;
    let others = support.iter().filter(|&(&other, _)| other != count);
    let next = others
        .map(|(_, &support)| support)
        .max()
        .unwrap_or_default();
    let leads = match best.known {
        0 if next.known > 0 => false,
        0 if best.tokens > 0 => best.tokens >= next.tokens + lead,
        0 => best.machines >= next.machines + lead,
        _ => best > next,
    };
    (best.machines >= 2 && leads).then_some(count)
}

impl Scheduler {
    /// What speaks for each count of a contested task.
    pub(super) fn support(&self, run: RunIx, task: TaskIx) -> BTreeMap<u64, Support> {
        let in_run = &self.runs[run];
        // A worker that changed its mind has its latest word.
        let mut words: Vec<(WorkerIx, u64)> = Vec::new();
        for report in in_run.reports(task) {
            words.retain(|&(by, _)| by != report.worker);
            words.push((report.worker, report.count));
        }
        let named = words.iter().filter_map(|word| self.workers.token(word.0));
        let many_tokens = named.collect::<BTreeSet<_>>().len() > 1;
        // Those that came without one, over loopback, are on one word too: their operator's.
        let tokens_of = |count| {
            let of = words.iter().filter(|word| word.1 == count);
            let tokens = of.map(|word| self.workers.token(word.0));
            tokens.collect::<BTreeSet<_>>().len()
        };
        let mut support: BTreeMap<u64, Support> = BTreeMap::new();
        for (at, &(worker, count)) in words.iter().enumerate() {
            let has_spoken = words[..at]
                .iter()
                .any(|&(by, same)| same == count && self.workers.same_machine(by, worker));
            let support = support.entry(count).or_default();
            if !has_spoken {
                support.machines += 1;
                support.known += usize::from(self.workers.is_known(worker));
            }
            if many_tokens {
                support.tokens = tokens_of(count);
            }
        }
        // Two machines had agreed on it; one of them is among the reports.
        let agreed = in_run.agreed_before(task);
        if let Some(support) = agreed.and_then(|count| support.get_mut(&count)) {
            support.machines += 1;
            support.known += 1;
        }
        support
    }

    /// The right count of a contested task, once that can be said. Where nobody is known, two against
    /// one are enough only while there is nobody else to ask.
    pub(super) fn decided_count(&self, run: RunIx, task: TaskIx) -> Option<u64> {
        let reports = self.runs[run].reports(task);
        let first = reports.first()?.worker;
        let lead = match self.others_wait(run, task, first) {
            true => 2,
            false => 1,
        };
        decide(&self.support(run, task), lead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(known: usize, machines: usize) -> Support {
        Support {
            known,
            tokens: 0,
            machines,
        }
    }

    #[test]
    fn tokens_go_before_machines_and_two_machines_are_needed() {
        let of = |tokens, machines| Support {
            known: 0,
            tokens,
            machines,
        };
        for (first, second, lead, decided) in [
            // One token with any number of machines does not overturn two, nor one another.
            (of(2, 2), of(1, 9), 1, Some(1)),
            (of(2, 2), of(1, 9), 2, None),
            (of(3, 3), of(1, 9), 2, Some(1)),
            (of(1, 2), of(1, 1), 1, None),
            (of(2, 3), of(2, 2), 1, None),
            // Two tokens on one machine are no second opinion.
            (of(2, 1), of(1, 1), 1, None),
        ] {
            let both = [(1, first), (2, second)];
            assert_eq!(decide(&both.into(), lead), decided, "{both:?}");
        }
        // A known machine goes before tokens.
        let known = Support {
            known: 1,
            ..of(1, 2)
        };
        assert_eq!(decide(&[(1, known), (2, of(3, 3))].into(), 2), Some(1));
    }

    #[test]
    fn two_machines_decide_unless_somebody_better_known_disagrees() {
        for (votes, decided) in [
            // (count, machines known to be good, machines)
            (&[(1, 0, 1), (2, 0, 1)][..], None),
            (&[(1, 0, 2)], Some(1)),
            (&[(1, 0, 1), (2, 0, 2)], None),
            (&[(1, 0, 2), (2, 0, 2)], None),
            (&[(1, 0, 1), (2, 0, 3)], Some(2)),
            (&[(1, 1, 1), (2, 0, 2)], None),
            (&[(1, 1, 1), (2, 0, 9)], None),
            (&[(1, 1, 2), (2, 0, 2)], Some(1)),
            (&[(1, 1, 2), (2, 1, 1)], Some(1)),
            (&[(1, 1, 1), (2, 1, 2), (3, 1, 1)], Some(2)),
            (&[(1, 2, 2), (2, 2, 2)], None),
            (&[(1, 2, 2), (2, 1, 3)], Some(1)),
            (&[], None),
        ] {
            let support = votes
                .iter()
                .map(|&(count, known, machines)| (count, plain(known, machines)));
            assert_eq!(decide(&support.collect(), 2), decided, "{votes:?}");
        }
    }

    #[test]
    fn a_lead_of_one_is_enough_where_nobody_else_can_be_asked() {
        let of = |machines| plain(0, machines);
        let decided = |first, second| decide(&[(1, of(first)), (2, of(second))].into(), 1);
        assert_eq!(decided(1, 2), Some(2));
        assert_eq!(decided(2, 2), None);
        assert_eq!(decided(1, 1), None);
    }
}
