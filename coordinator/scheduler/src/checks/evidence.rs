//! Evidence of checked counts in a run's journal, and the bound on wrong counts.

use std::collections::BTreeSet;

use common::plan::TaskId;

use crate::ledger::{
    Confirmation, Fold, Principal, Stage,
    tasks::{TaskIx, id},
};

const MAX_LISTED_TASKS: usize = 100;

/// Evidence for the counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Tasks of the plan.
    pub tasks: u64,
    /// Standing counts by level of confirmation.
    pub levels: [u64; Confirmation::ALL.len()],
    /// Number of tokens with which workers made the standing counts.
    pub tokens: u64,
    /// The random recounts.
    pub sample: Sample,
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
    /// `rank` returns a task's rank if the key is known. Only the order of the ranks makes a recount random,
    /// not who made or caused it: a task of the sample without a recount counts as wrong. The bound holds for
    /// samples of all sizes at once, so the sample is the one with the least bound.
    pub fn of(fold: &Fold, rank: impl Fn(TaskId) -> Option<u64>) -> Self {
        let tasks = &fold.tasks;
        let replaced = |task: &&TaskIx| tasks.done(**task).is_some() && !tasks.is_recounted(**task);
        let mut evidence = Self {
            tasks: tasks.size(),
            levels: Confirmation::ALL.map(|level| tasks.number_confirmed(level)),
            disagreements: fold.disagreements,
            voided: fold.voided,
            replaced: fold.replaced.iter().filter(replaced).count() as u64,
            disputed: tasks.disputed().keys().take(MAX_LISTED_TASKS).copied().map(id).collect(),
            disputed_number: tasks.number(Stage::Disputed),
            ..Self::default()
        };
        let authors = fold.done().map(|(_, done)| &fold.author(done.first.author).1);
        let workers = authors.filter(|author| !author.is_referee());
        evidence.tokens = workers.map(Principal::token).collect::<BTreeSet<_>>().len() as u64;
        let order = tasks.all().map(|task| Some((rank(id(task))?, tasks.is_recounted(task), task)));
        let mut order: Vec<_> = order.collect::<Option<_>>().unwrap_or_default();
        order.sort_unstable();
        evidence.sample = Sample::best(
            evidence.tasks,
            order.into_iter().map(|(_, is_recounted, task)| {
                is_recounted.then(|| fold.found_wrong.contains(&task))
            }),
        );
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
        (self.sample.recounts > 0).then(|| {
            let open = self.tasks - self.at(Confirmation::Referee);
            self.sample.at_most_wrong(self.tasks).saturating_add(self.replaced).min(open)
        })
    }
}

/// Confidence of a bound: it fails in at most one of twenty cases.
const CONFIDENCE: f64 = 0.95;

/// The first tasks in the secret order of random recounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Number of recounted tasks.
    pub recounts: u64,
    /// Number of recounted tasks whose count was wrong and was corrected.
    pub wrong: u64,
    /// Number of tasks that are not recounted; they may all be wrong.
    pub missing: u64,
}

impl Sample {
    /// Returns the sample with the least bound.
    ///
    /// `order` holds whether each task's count was found wrong, in the order of the ranks; `None` if the task
    /// is not recounted.
    fn best(tasks: u64, order: impl Iterator<Item = Option<bool>>) -> Self {
        let (mut least, mut best) = (tasks, Self::default());
        let mut sample = Self::default();
        let mut order = order.peekable();
        while let Some(found) = order.next() {
            match found {
                Some(wrong) => {
                    sample.recounts += 1;
                    sample.wrong += u64::from(wrong);
                }
                None => sample.missing += 1,
            }
            // A task without a recount only loosens the bound.
            let ends = found.is_some() && order.peek().is_none_or(Option::is_none);
            if ends && sample.likeliest(tasks) <= least + sample.wrong {
                let bound = sample.at_most_wrong(tasks);
                if bound <= least {
                    (least, best) = (bound, sample);
                }
            }
        }
        best
    }

    /// Returns the 95 % upper bound on the wrong counts that remain among `tasks`, whenever it is read.
    ///
    /// It is the largest number K of wrong counts that the prior-posterior ratio does not exclude, less
    /// those that were found. With a uniform prior on K, the ratio exceeds 20 where the sample has a
    /// probability below 1/20 of its mean over all K, which is 1/(size + 1). For the true K that happens at
    /// any size of the sample in at most a twentieth of the runs (Ville's inequality), so it does not matter
    /// who chooses when the run ends. The only assumption about the authors of wrong counts is that they
    /// chose the tasks without knowing anything about the order.
    pub fn at_most_wrong(&self, tasks: u64) -> u64 {
        let size = self.recounts + self.missing;
        let least = (1.0 - CONFIDENCE) / (size as f64 + 1.0);
        let found = self.wrong + self.missing;
        most_possible(tasks, (size, found), least, self.likeliest(tasks)) - self.wrong
    }

    /// Returns the most likely number of wrong counts among `tasks`.
    fn likeliest(&self, tasks: u64) -> u64 {
        let size = self.recounts + self.missing;
        ((self.wrong + self.missing) * (tasks + 1)).checked_div(size).unwrap_or_default().min(tasks)
    }
}

/// Returns the 95 % upper bound on wrong counts if none was found in a random sample of a size that was
/// fixed beforehand.
pub fn at_most_wrong_if_size_is_fixed(tasks: u64, size: u64) -> u64 {
    most_possible(tasks, (size, 0), 1.0 - CONFIDENCE, 0)
}

/// Returns the largest number of wrong counts of which `found` are in a random sample with a probability
/// above `least`. The probability falls from `likeliest` on.
fn most_possible(tasks: u64, (size, found): (u64, u64), least: f64, likeliest: u64) -> u64 {
    let ln_factorial = |n: u64| libm::lgamma(n as f64 + 1.0);
    let ln_choose = |n, k| ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k);
    let right = size - found;
    let is_possible = |wrong| {
        let ways = ln_choose(wrong, found) + ln_choose(tasks - wrong, right);
        (ways - ln_choose(tasks, size)) > least.ln()
    };
    let (mut most, mut beyond) = (likeliest, tasks - right + 1);
    while beyond - most > 1 {
        let middle = most.midpoint(beyond);
        match is_possible(middle) {
            true => most = middle,
            false => beyond = middle,
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use common::{
        board::Board,
        method::Layout,
        plan::{Plan, PlanSpec},
        text::thousands,
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
                tokens: 1,
                // Of the ranks 0 to 4, those of tasks 6 and 4 are recounted.
                sample: Sample { recounts: 2, wrong: 1, missing: 3 },
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
        let one = Sample { recounts: 1, ..Sample::default() };
        assert_eq!(before.sample, one);
        let missed = one.at_most_wrong(replaced.tasks);
        assert_eq!((before.at_most_wrong(), replaced.replaced), (Some(missed), 1));
        let all = replaced.tasks - 1;
        assert_eq!(replaced.at_most_wrong(), Some((missed + 1).min(all)));
        entries.push(Settled.of(recount(2, 5)));
        let recounted = evidence(&entries, rank);
        assert_eq!((recounted.replaced, recounted.at_most_wrong()), (0, Some(missed.min(all - 1))));
    }

    #[test]
    fn tasks_of_the_sample_without_a_recount_count_as_wrong() {
        let sample = |rank: &dyn Fn(TaskId) -> Option<u64>, recounted: &[u64]| {
            let entries = recounted.iter().map(|&task| {
                let first = EntryKind::Accepted.of(record(task, ONE, 4));
                [first, EntryKind::Settled.of(recount(task, 4))]
            });
            evidence(&entries.collect::<Vec<_>>().concat(), rank).sample
        };
        let of = |recounts, missing| Sample { recounts, wrong: 0, missing };
        let tasks = test_records::plan().tasks();
        let by_number = |task: TaskId| Some(task.0);
        assert_eq!(sample(&by_number, &[]), of(0, 0));
        // One recount after a gap lowers the bound less than the gap raises it, and three lower it more.
        assert_eq!(sample(&by_number, &[0, 1, 2, 3, 4, 6]), of(5, 0));
        assert_eq!(sample(&by_number, &[0, 1, 2, 3, 4, 6, 7, 8]), of(8, 1));
        assert_eq!([of(5, 0), of(6, 1), of(8, 1)].map(|of| of.at_most_wrong(tasks)), [11, 12, 10]);
        let reversed = |task: TaskId| Some(tasks - task.0);
        assert_eq!(sample(&reversed, &[19, 20]), of(2, 0));
        // A task with the rank of one without a recount may be after it.
        let tied = |task: TaskId| Some(task.0.min(5));
        assert_eq!(sample(&tied, &[0, 1, 2, 3, 4, 5]), of(5, 0));
        assert_eq!(sample(&|_| None, &[0, 1]), of(0, 0), "the key is lost");
    }

    #[test]
    fn bounds_match_the_documentation() {
        let table = include_str!("../../../../docs/verification.md");
        let sizes = [1_000, 10_000, 1_000_000];
        for percent in [1, 2, 5, 10, 20, 50, 95] {
            let bounds = sizes.map(|tasks| {
                thousands(found(tasks / 100 * percent, 0).at_most_wrong(tasks).into())
            });
            let row = format!("| {percent} % | {} |", bounds.join(" | "));
            assert!(table.contains(&row), "{row} in docs/verification.md");
        }
    }

    fn found(recounts: u64, wrong: u64) -> Sample {
        Sample { recounts, wrong, missing: 0 }
    }

    #[test]
    fn bounds_are_exact() {
        for (tasks, recounts, wrong, most) in [
            (0, 0, 0, 0),
            (50, 0, 0, 50),
            (50, 50, 0, 0),
            (50, 50, 7, 0),
            (60, 5, 5, 55),
            // C(5, 3) / C(8, 3) = 10/56 and C(5, 5) / C(8, 5) = 1/56 exceed 1/120; the latter is for K = 3.
            (8, 5, 0, 3),
            // One wrong count of 20 escapes with probability 1/20 > 1/400; two never do.
            (20, 19, 0, 1),
            (657, 164, 0, 27),
            (4_975, 228, 0, 176),
            (20_000, 400, 0, 440),
            (2_074_046, 9_971, 0, 2_530),
        ] {
            let bound = found(recounts, wrong).at_most_wrong(tasks);
            assert_eq!(bound, most, "{tasks} {recounts} {wrong}");
        }
        for (tasks, size, most) in [
            (0, 0, 0),
            (50, 50, 0),
            (50, 0, 50),
            (19, 18, 1),
            // C(3, 2) / C(8, 2) = 3/28; C(3, 3) / C(8, 3) = 1/56.
            (8, 5, 2),
            (657, 164, 10),
            (4_975, 228, 63),
            (2_074_046, 9_971, 621),
        ] {
            assert_eq!(at_most_wrong_if_size_is_fixed(tasks, size), most, "{tasks} {size}");
        }
    }

    /// Returns the probability that `hits` of `wrong` counts are selected, as a product.
    fn exactly(hits: u64, wrong: u64, (all, sampled): (u64, u64)) -> f64 {
        let choose = |of: u64, some: u64| -> f64 {
            (0..some).map(|at| of.saturating_sub(at) as f64 / (some - at) as f64).product()
        };
        choose(wrong, hits) * choose(all - wrong, sampled - hits) / choose(all, sampled)
    }

    #[test]
    fn the_bound_is_the_largest_possible_number() {
        for (all, size) in [(60, 10), (200, 40), (97, 31), (730, 15)] {
            for wrong in [0, 1, 2, 5, 9] {
                let sample = found(size, wrong);
                let bound = wrong + sample.at_most_wrong(all);
                let least = 0.05 / (size as f64 + 1.0);
                let is_possible = |total| exactly(wrong, total, (all, size)) > least;
                let largest = (wrong..=all - size + wrong).rev().find(|&total| is_possible(total));
                assert_eq!(Some(bound), largest, "{all} {sample:?}");
            }
        }
    }

    /// A liar may decide when the run ends, and hold tasks until then.
    #[test]
    fn the_bound_holds_at_any_time() {
        const TASKS: usize = 150;
        const RUNS: usize = 200;
        let mut rng = StdRng::seed_from_u64(21);
        for (lies, held) in [(3, 0), (5, 0), (20, 0), (60, 0), (12, 6), (12, 12)] {
            let is_outside = |_: &usize| {
                let mut of = Sample::default();
                let order = sample(&mut rng, TASKS, TASKS);
                // The first tasks are lies, and the first of those are held.
                order.into_iter().any(|task| {
                    let is_held = (task as u64) < held;
                    of.missing += u64::from(is_held);
                    of.recounts += u64::from(!is_held);
                    of.wrong += u64::from(!is_held && (task as u64) < lies);
                    lies - of.wrong > of.at_most_wrong(TASKS as u64)
                })
            };
            let outside = (0..RUNS).filter(is_outside).count();
            assert!(outside * 20 <= RUNS, "{lies} lies, {held} held: {outside} of {RUNS}");
        }
    }
}
