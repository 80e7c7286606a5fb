//! Which done tasks a referee recounts first.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use common::messages::run::RunId;

use crate::{
    clock::Ticks,
    fleet::WorkerIx,
    ledger::{
        Confirmation, Recheck, RecheckSampler, Tasks,
        tasks::{TaskIx, id},
    },
};

/// Maximum size of a run that ranks all its tasks.
/// Larger ones rank only the lowest eighth: no referee reaches more.
const MAX_FULLY_RANKED: u64 = 100_000;

/// Done tasks by their secret ranks, and the tasks that a referee counts now.
#[derive(Debug)]
pub(crate) struct Recounts {
    run: RunId,
    sampler: RecheckSampler,
    /// The tasks that the coordinator's referee is counting, and since when.
    pub(crate) under_way: BTreeMap<TaskIx, Ticks>,
    /// Done tasks that no referee has counted, by rank.
    order: BTreeSet<(u64, TaskIx)>,
    /// The tasks with the lowest ranks, whose random recounts are required, in their order.
    required: OnceCell<Vec<TaskIx>>,
    /// Tasks whose standing count a void one changed: they are recounted first.
    replaced: BTreeSet<TaskIx>,
    /// One done task of each author.
    first_counts: BTreeMap<WorkerIx, TaskIx>,
}

impl Recounts {
    pub(super) fn new(run: RunId, sampler: RecheckSampler) -> Self {
        Self {
            run,
            sampler,
            under_way: BTreeMap::new(),
            order: BTreeSet::new(),
            required: OnceCell::new(),
            replaced: BTreeSet::new(),
            first_counts: BTreeMap::new(),
        }
    }

    /// Returns a task's place among the random recounts.
    /// A count that replaces a void one is first: workers know that the task was not recounted.
    fn rank(&self, task: TaskIx) -> u64 {
        match self.replaced.contains(&task) {
            true => 0,
            false => self.sampler.rank(self.run, id(task)),
        }
    }

    /// Adds a task whose count did not stand before.
    pub(super) fn add(&mut self, tasks: &Tasks, task: TaskIx) {
        let Some(done) = tasks.done(task) else { return };
        let rank = self.rank(task);
        let is_low = tasks.size() <= MAX_FULLY_RANKED || rank < u64::MAX / 8;
        if is_low && done.confirmed < Confirmation::Referee {
            self.order.insert((rank, task));
        }
        let author = done.first.author;
        let first = self.first_counts.entry(author).or_insert(task);
        if tasks.done(*first).is_none_or(|other| other.first.author != author) {
            *first = task;
        }
    }

    /// Removes a task that a referee has counted, or that is no longer done.
    pub(super) fn remove(&mut self, task: TaskIx) {
        self.order.remove(&(self.rank(task), task));
    }

    /// Notes that a void count changed the standing one.
    pub(super) fn replace(&mut self, task: TaskIx) {
        self.remove(task);
        self.replaced.insert(task);
    }

    pub(super) fn restore_replaced(&mut self, replaced: &BTreeSet<TaskIx>) {
        self.replaced.clone_from(replaced);
    }

    /// Returns whether the standing count of a task replaces a void one.
    pub(crate) fn is_replaced(&self, task: TaskIx) -> bool {
        self.replaced.contains(&task)
    }

    /// Returns whether a task is selected at random for a recheck.
    pub(super) fn selects(&self, task: TaskIx, recheck: Recheck) -> bool {
        self.sampler.selects(self.run, id(task), recheck)
    }

    /// Returns the done tasks to recount whose rank is below this fraction, by rank.
    pub(crate) fn below(&self, fraction: f64) -> impl Iterator<Item = &TaskIx> {
        // Saturates at the ends.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let end = (fraction * 2f64.powi(64)) as u64;
        self.order.range(..(end, TaskIx::MAX)).map(|(_, task)| task)
    }

    /// Large runs do not rank all their tasks before the end, since each rank takes a hash.
    pub(super) fn required(&self, tasks: &Tasks, number: u64) -> &[TaskIx] {
        self.required.get_or_init(|| {
            let rank = |task| (self.sampler.rank(self.run, id(task)), task);
            let mut ranked: Vec<_> = tasks.all().map(rank).collect();
            ranked.sort_unstable();
            ranked.truncate(usize::try_from(number).unwrap_or(usize::MAX));
            ranked.into_iter().map(|(_, task)| task).collect()
        })
    }

    pub(super) fn has_first_count(&self, tasks: &Tasks, worker: WorkerIx) -> bool {
        let done = self.first_counts.get(&worker).and_then(|&task| tasks.done(task));
        done.is_some_and(|done| {
            done.first.author == worker && done.confirmed < Confirmation::Referee
        })
    }

    /// Returns one done task of each author.
    pub(crate) fn first_counts(&self) -> impl Iterator<Item = (WorkerIx, &TaskIx)> {
        self.first_counts.iter().map(|(&worker, task)| (worker, task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Done, Stage, TaskCount, test_records};

    #[test]
    fn recounts_go_by_rank_and_a_count_that_replaces_a_void_one_goes_first() {
        let plan = test_records::plan();
        let mut tasks = Tasks::new(&plan);
        let mut recounts = Recounts::new(test_records::RUN, RecheckSampler::new([1; 32]));
        let by = |author| Done {
            first: TaskCount { author, ..TaskCount::default() },
            ..Done::default()
        };
        for task in 0..4 {
            tasks.accept(task, 1, by(task / 2));
            recounts.add(&tasks, task);
        }
        let mut by_rank: Vec<TaskIx> = (0..4).collect();
        by_rank.sort_by_key(|&task| recounts.rank(task));
        let order = |recounts: &Recounts| recounts.below(1.0).copied().collect::<Vec<_>>();
        assert_eq!(order(&recounts), by_rank);
        assert_eq!(recounts.first_counts().collect::<Vec<_>>(), [(0, &0), (1, &2)]);
        let last = by_rank[3];
        recounts.replace(last);
        recounts.add(&tasks, last);
        assert_eq!(order(&recounts), [&[last], &by_rank[..3]].concat());
        assert!(recounts.is_replaced(last));
        recounts.remove(last);
        assert_eq!(order(&recounts), by_rank[..3]);
        // The first count of the second author is gone: another of its tasks takes the place.
        assert!(recounts.has_first_count(&tasks, 1));
        tasks.enter(2, 1, Stage::Pending);
        assert!(!recounts.has_first_count(&tasks, 1));
        recounts.add(&tasks, 3);
        assert_eq!(recounts.first_counts().last(), Some((1, &3)));
    }
}
