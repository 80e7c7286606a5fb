//! The tasks of a run in compact form: 33 bytes per task.

use std::{collections::BTreeMap, ops::RangeInclusive};

use common::{
    compute::kernel::KernelName,
    count::Orientation,
    plan::{Plan, TaskId},
};

use super::{AuthorIx, Confirmation, EntryKind, TaskCount, TaskState};

/// Index of a task, below [`Plan::MAX_TASKS`].
pub type TaskIx = u32;

/// Stage of a task: its [`TaskState`] without the counts; a task without a count is pending, leased or parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Pending,
    Leased,
    Done,
    Parked,
    Disputed,
}

impl Stage {
    pub const ALL: [Self; 5] =
        [Self::Pending, Self::Leased, Self::Done, Self::Parked, Self::Disputed];
}

/// A standing count, and the equal one that confirms it best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub first: TaskCount,
    pub second: Option<(AuthorIx, KernelName, Orientation)>,
    pub confirmed: Confirmation,
    /// Time of acceptance, in Unix seconds, or [`UNKNOWN_S`].
    pub accepted_s: u32,
}

impl Done {
    /// Returns whether the count was accepted in this time, as far as known.
    pub fn was_accepted_in(&self, window: &RangeInclusive<u32>) -> bool {
        self.accepted_s == UNKNOWN_S || window.contains(&self.accepted_s)
    }

    /// Returns the equal count that confirms the standing one best.
    pub fn second(&self) -> Option<TaskCount> {
        let equal = |(author, kernel, orientation)| TaskCount {
            count: self.first.count,
            author,
            kernel,
            orientation,
        };
        self.second.map(equal)
    }
}

/// An unknown time of acceptance.
pub const UNKNOWN_S: u32 = u32::MAX;

/// Converts Unix milliseconds to the unit of [`Done::accepted_s`].
pub fn seconds(unix_ms: u64) -> u32 {
    u32::try_from(unix_ms / 1_000).unwrap_or(u32::MAX)
}

/// Returns the time of acceptance of the count that stands after a journaled one of this time.
/// If others were voided, it is not known when the remaining count was accepted.
pub fn accepted_s(kind: EntryKind, unix_ms: u64) -> u32 {
    if kind == EntryKind::Voided { UNKNOWN_S } else { seconds(unix_ms) }
}

/// The tasks of a run, their counts, and sums over them.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    stages: Vec<Stage>,
    /// Counts by task; 0 unless the task is done.
    done: Vec<Done>,
    disputed: BTreeMap<TaskIx, Vec<TaskCount>>,
    /// Numbers and costs of the tasks by stage.
    numbers: [u64; Stage::ALL.len()],
    costs: [u64; Stage::ALL.len()],
    /// Numbers of done tasks by level of confirmation.
    levels: [u64; Confirmation::ALL.len()],
}

impl Tasks {
    /// Creates the tasks of a plan, all pending.
    pub fn new(plan: &Plan) -> Self {
        let size = usize::try_from(plan.tasks()).expect("at most MAX_TASKS");
        let costs = (0..plan.tasks()).map(|task| plan.task_cost(TaskId(task)));
        let mut tasks = Self {
            stages: vec![Stage::Pending; size],
            done: vec![Done::default(); size],
            disputed: BTreeMap::new(),
            numbers: [0; Stage::ALL.len()],
            costs: [0; Stage::ALL.len()],
            levels: [0; Confirmation::ALL.len()],
        };
        tasks.numbers[Stage::Pending as usize] = plan.tasks();
        tasks.costs[Stage::Pending as usize] = costs.fold(0, u64::saturating_add);
        tasks
    }

    /// Returns the number of all tasks.
    pub fn size(&self) -> u64 {
        self.stages.len() as u64
    }

    pub fn all(&self) -> std::ops::Range<TaskIx> {
        0..TaskIx::try_from(self.stages.len()).expect("at most MAX_TASKS")
    }

    pub fn number(&self, stage: Stage) -> u64 {
        self.numbers[stage as usize]
    }

    pub fn cost(&self, stage: Stage) -> u64 {
        self.costs[stage as usize]
    }

    pub fn total_cost(&self) -> u64 {
        self.costs.iter().fold(0, |sum, cost| sum.saturating_add(*cost))
    }

    pub fn stage(&self, task: TaskIx) -> Stage {
        self.stages[task as usize]
    }

    /// Returns the state that a task's counts give it.
    pub fn state(&self, task: TaskIx) -> TaskState {
        match self.stage(task) {
            Stage::Pending | Stage::Leased | Stage::Parked => TaskState::Open,
            Stage::Done => {
                let done = &self.done[task as usize];
                let (first, confirmed) = (done.first, done.confirmed);
                TaskState::Done { first, second: done.second(), confirmed }
            }
            Stage::Disputed => TaskState::Disputed { counts: self.disputed[&task].clone() },
        }
    }

    /// Gives a task of this cost the state that its counts decide.
    /// The time of acceptance is that of the first count, unless it stood before.
    pub fn set(&mut self, task: TaskIx, cost: u64, state: TaskState, accepted_s: u32) {
        match state {
            TaskState::Open => self.enter(task, cost, Stage::Pending),
            TaskState::Disputed { counts } => {
                self.enter(task, cost, Stage::Disputed);
                self.disputed.insert(task, counts);
            }
            TaskState::Done { first, second, confirmed } => {
                let before = self.done(task).filter(|done| done.first.author == first.author);
                let accepted_s = before.map_or(accepted_s, |done| done.accepted_s);
                let second = second.map(|of| (of.author, of.kernel, of.orientation));
                self.accept(task, cost, Done { first, second, confirmed, accepted_s });
            }
        }
    }

    /// Moves a task of this cost to a stage, and forgets its counts.
    pub fn enter(&mut self, task: TaskIx, cost: u64, stage: Stage) {
        let from = std::mem::replace(&mut self.stages[task as usize], stage);
        match from {
            Stage::Done => {
                let done = &mut self.done[task as usize];
                done.first.count = 0;
                self.levels[done.confirmed as usize] -= 1;
            }
            Stage::Disputed => drop(self.disputed.remove(&task)),
            Stage::Pending | Stage::Leased | Stage::Parked => {}
        }
        self.numbers[from as usize] -= 1;
        self.costs[from as usize] = self.costs[from as usize].saturating_sub(cost);
        self.numbers[stage as usize] += 1;
        self.costs[stage as usize] = self.costs[stage as usize].saturating_add(cost);
    }

    /// Makes `done` the standing count of a task of this cost.
    pub fn accept(&mut self, task: TaskIx, cost: u64, done: Done) {
        self.enter(task, cost, Stage::Done);
        self.done[task as usize] = done;
        self.levels[done.confirmed as usize] += 1;
    }

    /// Replaces the numbers of all authors.
    pub fn renumber(&mut self, to: impl Fn(AuthorIx) -> AuthorIx) {
        for (done, stage) in self.done.iter_mut().zip(&self.stages) {
            if *stage == Stage::Done {
                done.first.author = to(done.first.author);
                done.second = done.second.map(|(author, how, turned)| (to(author), how, turned));
            }
        }
        let disputed = self.disputed.values_mut().flatten();
        disputed.for_each(|count| count.author = to(count.author));
    }

    /// Returns the number of standing counts with this level of confirmation.
    pub fn number_confirmed(&self, level: Confirmation) -> u64 {
        self.levels[level as usize]
    }

    /// Returns the standing count of a task.
    pub fn done(&self, task: TaskIx) -> Option<Done> {
        (self.stage(task) == Stage::Done).then(|| self.done[task as usize])
    }

    /// Returns whether a referee has counted a task.
    pub fn is_recounted(&self, task: TaskIx) -> bool {
        self.done(task).is_some_and(|done| done.confirmed == Confirmation::Referee)
    }

    /// Returns the count of every task; 0 unless it is done.
    pub fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.done.iter().map(|done| done.first.count)
    }

    /// Returns the disputed tasks with their counts, in order of arrival.
    pub fn disputed(&self) -> &BTreeMap<TaskIx, Vec<TaskCount>> {
        &self.disputed
    }
}

/// Returns the index of a task that the plan has.
pub fn index(task: TaskId) -> TaskIx {
    TaskIx::try_from(task.0).expect("below MAX_TASKS")
}

pub fn id(task: TaskIx) -> TaskId {
    TaskId(task.into())
}

#[cfg(test)]
mod tests {
    use super::{super::test_records, *};

    #[test]
    fn levels_follow_the_standing_counts() {
        let mut tasks = Tasks::new(&test_records::plan());
        assert_eq!(size_of::<Done>() + size_of::<Stage>(), 33);
        let first = TaskCount { count: 1, kernel: KernelName::Avx2, ..TaskCount::default() };
        let second = Some((3, KernelName::Avx2, Orientation::Upright));
        let done = |confirmed| Done { first, second, confirmed, accepted_s: 0 };
        let levels = |tasks: &Tasks| Confirmation::ALL.map(|of| tasks.number_confirmed(of));
        tasks.accept(0, 1, done(Confirmation::None));
        assert_eq!(levels(&tasks), [1, 0, 0, 0, 0]);
        tasks.accept(0, 1, done(Confirmation::Referee));
        assert_eq!(levels(&tasks), [0, 0, 0, 0, 1], "the same task");
        assert_eq!(tasks.done(0), Some(done(Confirmation::Referee)));
        let counts = vec![first, TaskCount { count: 2, author: 3, ..first }];
        tasks.set(0, 1, TaskState::Disputed { counts: counts.clone() }, 0);
        assert_eq!((levels(&tasks), tasks.done(0)), ([0; 5], None));
        assert_eq!(tasks.state(0), TaskState::Disputed { counts });
        assert_eq!(tasks.counts().sum::<u64>(), 0);
        tasks.enter(0, 1, Stage::Pending);
        assert!(tasks.disputed().is_empty());
    }

    #[test]
    fn times_are_stored_in_whole_seconds() {
        let stored = [0, 999, 1_000, 86_400_000, u64::MAX].map(seconds);
        assert_eq!(stored, [0, 0, 1, 86_400, u32::MAX]);
    }
}
