//! Evidence of checked counts in a run's journal, and the bound on wrong counts.

use common::plan::TaskId;

use crate::ledger::{Confirmation, Fold, TaskState};

const MAX_LISTED_TASKS: usize = 100;

/// Evidence for the counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Tasks of the plan.
    pub tasks: u64,
    /// Standing counts by level of confirmation.
    pub levels: [u64; Confirmation::ALL.len()],
    /// Number of random recounts: recounted tasks before the first gap in rank order.
    pub recounts: u64,
    /// Number of random recounts that found the standing count wrong.
    pub wrong: u64,
    /// Counts that were voided because their machine or token was barred.
    pub voided: u64,
    /// Standing counts that replace voided ones, without a recount.
    pub replaced: u64,
    /// Number of counts that differed from a standing one.
    pub disagreements: u64,
    /// The first hundred tasks that are still disputed.
    pub disputed: Vec<TaskId>,
    /// Number of all disputed tasks.
    pub disputed_number: u64,
}

impl Evidence {
    /// Extracts the evidence from the fold of a run's journal.
    ///
    /// `rank` returns a task's rank if the key is known. Recounts after the first gap in rank order do not
    /// count as random: workers may have caused them.
    pub fn of(fold: &Fold, rank: impl Fn(TaskId) -> Option<u64>) -> Self {
        let mut disputed = fold.disputed();
        let disputed_number = disputed.len() as u64;
        disputed.truncate(MAX_LISTED_TASKS);
        let mut evidence = Self {
            tasks: fold.tasks(),
            disagreements: fold.disagreements,
            voided: fold.voided,
            disputed,
            disputed_number,
            ..Self::default()
        };
        let mut gap = u64::MAX;
        let mut recounted = Vec::new();
        for task in (0..fold.tasks()).map(TaskId) {
            let row = fold.row(task);
            let state = row.map(|row| &row.state);
            let by_referee = state.is_some_and(TaskState::is_final);
            if let Some(TaskState::Done { confirmed, .. }) = state {
                evidence.levels[*confirmed as usize] += 1;
                evidence.replaced += u64::from(!by_referee && row.is_some_and(|row| row.replaced));
            }
            match rank(task) {
                Some(rank) if by_referee => recounted.push((rank, task)),
                Some(rank) => gap = gap.min(rank),
                None => gap = 0,
            }
        }
        recounted.retain(|(rank, _)| *rank < gap);
        evidence.recounts = recounted.len() as u64;
        let wrong = recounted.iter().filter(|(_, task)| fold.found_wrong.contains(task));
        evidence.wrong = wrong.count() as u64;
        evidence
    }

    /// Returns the number of standing counts with this level of confirmation.
    pub const fn at(&self, level: Confirmation) -> u64 {
        self.levels[level as usize]
    }

    /// Returns the number of standing counts that only workers confirmed.
    pub fn by_rechecks(&self) -> u64 {
        self.levels[Confirmation::SameMachine as usize..Confirmation::Referee as usize].iter().sum()
    }

    /// Returns the 95 % upper bound on wrong counts; `None` without random recounts.
    ///
    /// A count that replaces a voided one may be wrong unless it was recounted too: its author knows that the
    /// task's first count was not among the random recounts.
    pub fn at_most_wrong(&self) -> Option<u64> {
        (self.recounts > 0).then(|| {
            let open = self.tasks - self.at(Confirmation::Referee);
            let missed = max_wrong_counts(self.tasks, self.recounts, self.wrong);
            missed.saturating_add(self.replaced).min(open)
        })
    }
}

/// Confidence of a bound: it fails in at most one of twenty cases.
pub const CONFIDENCE: f64 = 0.95;

/// Returns the upper confidence bound on the wrong counts that remain.
///
/// Of `tasks` counts the referee recounted `recounts` at random and corrected `found` wrong ones. The bound
/// follows from the hypergeometric distribution. It is the largest number K of wrong counts of which at most
/// `found` are among the recounted ones with probability above 1 − [`CONFIDENCE`], less `found`. The only
/// assumption about the authors of wrong counts is that they could not predict the selection.
pub fn max_wrong_counts(tasks: u64, recounts: u64, found: u64) -> u64 {
    let (all, sampled, hits) = (tasks as f64, recounts as f64, found as f64);
    // `ln_exactly` is the logarithm, since it may be tiny, of P(exactly `found` wrong counts were recounted);
    // `at_most` is P(at most `found`). Both start at `found` wrong counts in total.
    let first = (0..found).map(|before| ((sampled - before as f64) / (all - before as f64)).ln());
    let mut ln_exactly = first.sum::<f64>();
    let mut at_most = 1.0;
    for wrong in found..tasks {
        let others = all - wrong as f64;
        at_most -= ln_exactly.exp() * (sampled - hits) / others;
        if at_most <= 1.0 - CONFIDENCE {
            return wrong - found;
        }
        let next = wrong as f64 + 1.0;
        ln_exactly += (next / (next - hits) * (others - sampled + hits) / others).ln();
    }
    tasks - recounts
}

#[cfg(test)]
mod tests {
    use common::{
        board::Board,
        method::Layout,
        plan::{Plan, PlanSpec},
    };
    use rand::{SeedableRng as _, rngs::StdRng, seq::index::sample};

    use super::*;
    use crate::ledger::{EntryKind, JournalEntry, Principal, Record, test_records};

    fn record(task: u64, (machine, token): (u64, Option<&str>), count: u64) -> Record {
        let principal = Principal::new(machine, token);
        Record { principal, ..test_records::record(task, machine, count) }
    }

    fn recount(task: u64, count: u64) -> Record {
        Record { principal: Principal::referee(), ..test_records::record(task, 9, count) }
    }

    fn evidence(entries: &[JournalEntry], rank: impl Fn(TaskId) -> Option<u64>) -> Evidence {
        Evidence::of(&test_records::fold(entries), rank)
    }

    const ONE: (u64, Option<&str>) = (1, Some("a"));
    const TWO: (u64, Option<&str>) = (2, Some("a"));
    const THREE: (u64, Option<&str>) = (3, Some("b"));

    #[test]
    fn evidence_follows_from_the_journal() {
        use EntryKind::{Accepted, Confirmed, Disputed, Recounted, Settled, Voided};
        let entries = [
            Accepted.of(record(0, ONE, 4)),
            Accepted.of(record(1, ONE, 4)),
            Confirmed.of(record(1, ONE, 4)),
            Accepted.of(record(2, ONE, 4)),
            Confirmed.of(record(2, TWO, 4)),
            // A stronger confirmation, and then a weaker one.
            Accepted.of(record(3, ONE, 4)),
            Confirmed.of(record(3, ONE, 4)),
            Confirmed.of(record(3, THREE, 4)),
            Confirmed.of(record(3, TWO, 4)),
            // Decided by the referee.
            Accepted.of(record(4, ONE, 4)),
            Disputed.of(record(4, THREE, 5)),
            Settled.of(recount(4, 4)),
            // Not decided.
            Accepted.of(record(5, ONE, 4)),
            Disputed.of(record(5, TWO, 5)),
            Disputed.of(record(5, THREE, 6)),
            // Found wrong by a recount.
            Accepted.of(record(6, ONE, 4)),
            Recounted.of(recount(6, 3)),
            Settled.of(recount(6, 3)),
            Accepted.of(record(7, ONE, 4)),
            Voided.of(record(7, ONE, 4)),
        ];
        let found = evidence(&entries, |task| Some(task.0.abs_diff(6)));
        assert_eq!(
            found,
            Evidence {
                tasks: found.tasks,
                levels: [1, 1, 1, 1, 2],
                recounts: 1,
                wrong: 1,
                voided: 1,
                replaced: 0,
                disagreements: 3,
                disputed: vec![TaskId(5)],
                disputed_number: 1,
            }
        );
    }

    #[test]
    fn at_most_a_hundred_disputed_tasks_are_listed() {
        let spec = PlanSpec::new(Board::new(12).unwrap(), Layout::Border);
        let plan = Plan::new(PlanSpec { task_cost: 1, ..spec }).unwrap();
        let mut fold = Fold::new(&test_records::manifest(&plan), &plan);
        let number = plan.tasks().min(130);
        assert!(number > 100);
        for (task, sequence) in (0..number).zip((1..).step_by(2)) {
            let first = EntryKind::Accepted.of(record(task, ONE, 0));
            let second = EntryKind::Disputed.of(record(task, THREE, 1));
            fold.take(&plan, &first, sequence).unwrap();
            fold.take(&plan, &second, sequence + 1).unwrap();
        }
        let found = Evidence::of(&fold, |_| None);
        assert_eq!((found.disputed_number, found.disputed.len()), (number, 100));
    }

    #[test]
    fn counts_that_replace_voided_ones_loosen_the_bound_until_they_are_recounted() {
        use EntryKind::{Accepted, Settled, Voided};
        let mut entries = vec![
            Accepted.of(record(0, ONE, 4)),
            Settled.of(recount(0, 4)),
            Accepted.of(record(2, ONE, 4)),
            Voided.of(record(2, ONE, 4)),
        ];
        let rank = |task: TaskId| Some(task.0);
        let before = evidence(&entries, rank);
        entries.push(Accepted.of(record(2, THREE, 5)));
        let replaced = evidence(&entries, rank);
        let missed = max_wrong_counts(replaced.tasks, 1, 0);
        assert_eq!((before.at_most_wrong(), replaced.replaced), (Some(missed), 1));
        let all = replaced.tasks - 1;
        assert_eq!(replaced.at_most_wrong(), Some((missed + 1).min(all)));
        entries.push(Settled.of(recount(2, 5)));
        let recounted = evidence(&entries, rank);
        assert_eq!((recounted.replaced, recounted.at_most_wrong()), (0, Some(missed.min(all - 1))));
    }

    #[test]
    fn random_recounts_are_those_before_the_first_gap() {
        let entries = [0, 1, 3].map(|task| {
            [EntryKind::Accepted.of(record(task, ONE, 4)), EntryKind::Settled.of(recount(task, 4))]
        });
        let entries = entries.concat();
        assert_eq!(evidence(&entries, |task| Some(task.0)).recounts, 2);
        let last = evidence(&entries, |task| Some(u64::MAX - task.0));
        assert_eq!((last.recounts, last.at_most_wrong()), (0, None));
        assert_eq!(evidence(&entries, |_| None).recounts, 0, "the key is lost");
        // A task with the rank of the gap may be after it.
        assert_eq!(evidence(&entries, |task| Some(task.0.min(1))).recounts, 1);
        assert_eq!(last.tasks, test_records::plan().tasks());
    }

    #[test]
    fn bounds_match_the_documentation() {
        let table = include_str!("../../../../docs/verification.md");
        for (percent, wrong) in [(1, 298), (2, 148), (5, 58), (10, 28), (20, 13), (50, 4), (95, 0)]
        {
            // With this many tasks, sampling without replacement makes no difference.
            let all = 100_000_000;
            assert_eq!(max_wrong_counts(all, all / 100 * percent, 0), wrong, "{percent} %");
            let row = format!("| {percent} % | {wrong} |");
            assert!(table.contains(&row), "{row} in docs/verification.md");
        }
    }

    #[test]
    fn extreme_bounds_are_exact() {
        assert_eq!(max_wrong_counts(0, 0, 0), 0);
        assert_eq!(max_wrong_counts(50, 50, 0), 0);
        assert_eq!(max_wrong_counts(50, 50, 7), 0);
        assert_eq!(max_wrong_counts(50, 0, 0), 50);
        assert_eq!(max_wrong_counts(60, 5, 5), 55);
        // One wrong count of 20 escapes with probability 1/20, which is not above 5 %.
        assert_eq!(max_wrong_counts(20, 19, 0), 0);
        assert_eq!(max_wrong_counts(19, 18, 0), 1);
        // C(3, 2) / C(8, 2) = 3/28; C(3, 3) / C(8, 3) = 1/56.
        assert_eq!(max_wrong_counts(8, 5, 0), 2);
    }

    /// Returns P(at most `found` of `wrong` are selected), as a sum of products.
    fn at_most(found: u64, wrong: u64, (all, sampled): (u64, u64)) -> f64 {
        let choose = |of: u64, some: u64| -> f64 {
            (0..some).map(|at| of.saturating_sub(at) as f64 / (some - at) as f64).product()
        };
        let exactly =
            |hit| choose(wrong, hit) * choose(all - wrong, sampled - hit) / choose(all, sampled);
        (0..=found.min(wrong)).map(exactly).sum()
    }

    #[test]
    fn the_bound_is_the_largest_plausible_number() {
        for (all, sampled) in [(60, 10), (200, 40), (97, 31), (730, 15)] {
            for found in [0, 1, 2, 5, 9] {
                let bound = found + max_wrong_counts(all, sampled, found);
                assert!(
                    at_most(found, bound, (all, sampled)) > 0.05,
                    "{all} {sampled} {found}: {bound}"
                );
                let more = at_most(found, bound + 1, (all, sampled));
                assert!(more <= 0.05, "{all} {sampled} {found}: {bound}, {more}");
            }
        }
    }

    #[test]
    fn the_bound_holds_if_many_wrong_counts_are_found() {
        let mut rng = StdRng::seed_from_u64(21);
        let (all, wrong, recounts) = (5_000usize, 823u64, 300usize);
        let holds = (0..1_000).filter(|_| {
            let sampled = sample(&mut rng, all, recounts);
            let found = sampled.iter().filter(|&task| (task as u64) < wrong).count() as u64;
            wrong - found <= max_wrong_counts(all as u64, recounts as u64, found)
        });
        assert!(holds.count() >= 930);
    }
}
