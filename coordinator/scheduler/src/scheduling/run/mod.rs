//! One run: its tasks, queues and leases.
//!
//! Several private sets mirror each task's stage. Only methods of [`Run`] modify them; each keeps the
//! sets consistent, and `audit` verifies them in every simulation.

mod leases;
mod lifecycle;
mod stages;

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU16,
};

use common::{
    board::Board,
    crew_layout::PlanNeeds,
    method::Layout,
    plan::{Plan, PlanSpec},
    sample::RunEstimate,
    sync::WorkerInfo,
};

pub(super) use self::{leases::SingleHolders, lifecycle::Lifecycle};

use self::leases::Leases;
use super::{TaskIx, WorkerIx, clock::Ticks, parking::Parking, rate::Rate};
use crate::ledger::{
    Confirmation, Recheck, RecheckSampler, RunManifest, RunState, Settings, Stage, StoredRun,
    TaskCount, Tasks,
    tasks::{id, index},
};

/// Maximum shown time since the last call; workers usually call again earlier.
const MAX_SHOWN_UNCONFIRMED_MS: u64 = 30_000;

/// Done tasks that wait for a recheck, by the author of the first count.
/// The value is when the wait began; tasks whose recheck is in progress are not in the queue.
pub(super) type RecheckQueue = BTreeMap<(WorkerIx, TaskIx), Ticks>;

#[derive(Debug)]
pub(super) struct Run {
    pub(super) manifest: RunManifest,
    pub(super) plan: Plan,
    memory: MemoryNeeds,
    life: Lifecycle,
    tasks: Tasks,
    /// The highest epoch that may have been issued for each task.
    epochs: Vec<u64>,
    /// The workers of the failed attempts at each open task, in order.
    failed: BTreeMap<TaskIx, Vec<WorkerIx>>,
    sampler: RecheckSampler,
    rechecks: RecheckQueue,
    /// Cost of the rechecks of machines' first counts.
    first_rechecks_cost: u64,

    /// Position in the plan's order; pending tasks before it are in `returned`.
    cursor: u64,
    returned: BTreeSet<TaskIx>,
    /// The `returned` tasks of vanished workers: other tasks go first.
    orphaned: BTreeSet<TaskIx>,
    parking: Parking,
    /// The tasks that the coordinator's referee is counting, and since when.
    pub(super) recounting: BTreeMap<TaskIx, Ticks>,
    /// Done tasks that no referee has counted, by rank.
    recount_order: BTreeSet<(u64, TaskIx)>,
    /// The tasks with the lowest ranks, whose random recounts are required, in their order.
    required: OnceCell<Vec<TaskIx>>,
    /// Tasks whose standing count a void one changed: they are recounted first.
    replaced: BTreeSet<TaskIx>,
    /// One done task of each author.
    first_counts: BTreeMap<WorkerIx, TaskIx>,

    pub(super) leases: Leases,
    /// Tasks that were leased and are not done, with the time at which the first lease is no longer fresh.
    overdue_at: BTreeMap<TaskIx, Ticks>,

    /// Number of rechecks that agreed.
    pub(super) agreed: u64,
    /// Number of counts that differed from a standing one.
    pub(super) conflicts: u64,
    /// Workers whose counts came implausibly fast.
    pub(super) implausible: BTreeSet<WorkerIx>,
    pub(super) rate: Rate,
    /// The random sample of done tasks from which the total is estimated.
    pub(super) sample: RunEstimate,
    /// Position in the plan's order up to which `is_sampled` is set.
    sampled_to: u64,
    is_sampled: Vec<bool>,
    /// Time during which tasks were being counted, in this process and earlier ones.
    pub(super) counted_ms: u64,
    /// Time during which a worker held a task, since the last call of a holder.
    /// It is added to `counted_ms` once a holder calls: a lost one may have stopped immediately.
    unconfirmed_ms: u64,

    /// Start of the wait for another token, and how long counting had taken by then.
    counted_since: Option<(Ticks, u64)>,
    /// Time at which no recheck was awaited either.
    done_since: Option<Ticks>,
}

/// Minimum memory for tasks of a run, cached by number of threads.
/// Each grant needs it, and for `frames` it takes a search over all classes of frames.
#[derive(Debug)]
struct MemoryNeeds {
    needs: PlanNeeds,
    known: RefCell<BTreeMap<NonZeroU16, u64>>,
}

impl MemoryNeeds {
    /// Returns the minimum in bytes.
    fn of(&self, threads: NonZeroU16) -> u64 {
        let mut known = self.known.borrow_mut();
        *known.entry(threads).or_insert_with(|| self.needs.of(threads).least)
    }
}

/// Returns the memory limit of all threads of a worker together.
pub(super) fn memory_bytes(worker: &WorkerInfo) -> u64 {
    worker.memory_bytes_per_thread.saturating_mul(worker.threads.into())
}

impl Run {
    pub(super) fn new(
        stored: StoredRun,
        plan: Plan,
        tasks: Tasks,
        sampler: RecheckSampler,
    ) -> Self {
        let StoredRun { manifest, state, settings } = stored;
        Self {
            manifest,
            memory: MemoryNeeds { needs: PlanNeeds::new(&plan), known: RefCell::default() },
            plan,
            life: Lifecycle::of(state, settings),
            failed: BTreeMap::new(),
            sampler,
            rechecks: RecheckQueue::default(),
            first_rechecks_cost: 0,
            cursor: 0,
            returned: BTreeSet::new(),
            orphaned: BTreeSet::new(),
            parking: Parking::default(),
            recounting: BTreeMap::new(),
            recount_order: BTreeSet::new(),
            required: OnceCell::new(),
            replaced: BTreeSet::new(),
            first_counts: BTreeMap::new(),
            leases: Leases::default(),
            overdue_at: BTreeMap::new(),
            agreed: 0,
            conflicts: 0,
            implausible: BTreeSet::new(),
            rate: Rate::default(),
            sample: RunEstimate::of(tasks.size(), tasks.total_cost()),
            sampled_to: 0,
            is_sampled: vec![false; usize::try_from(tasks.size()).expect("at most MAX_TASKS")],
            epochs: vec![0; usize::try_from(tasks.size()).expect("at most MAX_TASKS")],
            tasks,
            counted_ms: 0,
            unconfirmed_ms: 0,
            counted_since: None,
            done_since: None,
        }
    }

    /// Creates the placeholder of a forgotten run: cancelled, on the smallest board.
    pub(super) fn forgotten(manifest: RunManifest) -> Self {
        let board = Board::new(1).expect("the smallest board");
        let plan = Plan::new(PlanSpec::new(board, Layout::FirstRows)).expect("a plan");
        let cancelled =
            StoredRun { state: RunState::Cancelled, ..StoredRun::new(manifest, Recheck::Auto) };
        let tasks = Tasks::new(&plan);
        Self::new(cancelled, plan, tasks, RecheckSampler::new([0; 32]))
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    pub(super) fn state(&self) -> RunState {
        self.life.state
    }

    pub(super) fn recheck(&self) -> Recheck {
        self.life.settings.recheck
    }

    pub(super) fn settings(&self) -> Settings {
        self.life.settings
    }

    pub(super) fn set_priority(&mut self, priority: i32) {
        self.life.settings.priority = priority;
    }

    pub(super) fn rechecks(&self) -> &RecheckQueue {
        &self.rechecks
    }

    pub(super) fn parking(&self) -> &Parking {
        &self.parking
    }

    /// Returns the pending tasks that workers returned.
    pub(super) fn returned(&self) -> &BTreeSet<TaskIx> {
        &self.returned
    }

    pub(super) fn orphaned(&self) -> &BTreeSet<TaskIx> {
        &self.orphaned
    }

    /// Returns the disputed tasks that no referee is counting.
    pub(super) fn unassigned_disputes(&self) -> impl Iterator<Item = TaskIx> + '_ {
        self.tasks.disputed().keys().copied().filter(|&task| !self.is_being_counted(task))
    }

    /// Returns whether a worker or the coordinator's referee is counting a task.
    pub(super) fn is_being_counted(&self, task: TaskIx) -> bool {
        self.is_held(task) || self.recounting.contains_key(&task)
    }

    /// Returns the tasks without a count that block the end: none is pending that nobody failed to deliver, and
    /// nobody delivered in the time in which their first lease was fresh.
    pub(super) fn overdue(&self, now: Ticks) -> impl Iterator<Item = TaskIx> + '_ {
        let has_failed =
            |task: &&TaskIx| self.orphaned.contains(task) || self.failed.contains_key(task);
        let failed = self.returned.iter().filter(has_failed).count() as u64;
        let has_fresh = self.tasks.number(Stage::Pending) > failed;
        let overdue = self.overdue_at.iter().filter(move |&(_, &at)| !has_fresh && at <= now);
        overdue.map(|(&task, _)| task)
    }

    pub(super) fn all_tasks(&self) -> std::ops::Range<TaskIx> {
        self.tasks.all()
    }

    /// Advances the run's time; without a connected holder the time that no holder has confirmed is dropped.
    pub(super) fn advance_time(&mut self, ms: Ticks) {
        self.unconfirmed_ms = if self.leases.connected == 0 { 0 } else { self.unconfirmed_ms + ms };
    }

    /// Counts the time up to now: a holder of one of the run's tasks has called.
    pub(super) fn confirm_time(&mut self) {
        self.counted_ms += std::mem::take(&mut self.unconfirmed_ms);
    }

    /// Returns the run's minimum memory, in bytes, if the worker has less.
    pub(super) fn lacks_memory(&self, worker: &WorkerInfo) -> Option<u64> {
        let threads = u16::try_from(worker.threads).unwrap_or(u16::MAX);
        let threads = NonZeroU16::new(threads).unwrap_or(NonZeroU16::MIN);
        let least = self.memory.of(threads);
        (memory_bytes(worker) < least).then_some(least)
    }

    /// Returns the run's minimum memory with one thread, in bytes.
    pub(super) fn least_bytes(&self) -> u64 {
        self.memory.of(NonZeroU16::MIN)
    }

    /// Returns the time of counting; at least 1, since 0 means "not recorded".
    pub(super) fn elapsed_ms(&self) -> u64 {
        self.counted_ms.max(1)
    }

    /// Returns the time of counting for display, including a short time without calls.
    pub(super) fn shown_ms(&self) -> u64 {
        self.counted_ms + self.unconfirmed_ms.min(MAX_SHOWN_UNCONFIRMED_MS)
    }

    pub(super) fn cost(&self, task: TaskIx) -> u64 {
        self.plan.task_cost(id(task))
    }

    /// Returns the next task that was never granted.
    pub(super) fn next_fresh(&mut self) -> Option<TaskIx> {
        while self.cursor < self.tasks.size() {
            let task = index(self.plan.task_at(self.cursor));
            if self.tasks.stage(task) == Stage::Pending && !self.returned.contains(&task) {
                return Some(task);
            }
            self.cursor += 1;
        }
        None
    }

    /// Returns the tasks at and after the cursor.
    pub(super) fn upcoming(&self) -> impl Iterator<Item = TaskIx> + '_ {
        (self.cursor..self.tasks.size()).map(|position| index(self.plan.task_at(position)))
    }

    /// Returns the highest epoch that may have been issued for a task; 0 if none.
    pub(super) fn epoch(&self, task: TaskIx) -> u64 {
        self.epochs[task as usize]
    }

    /// Returns the workers of a task's failed attempts.
    pub(super) fn failed(&self, task: TaskIx) -> &[WorkerIx] {
        self.failed.get(&task).map_or(&[], Vec::as_slice)
    }

    pub(super) fn disputed_counts(&self, task: TaskIx) -> &[TaskCount] {
        self.tasks.disputed().get(&task).map_or(&[], Vec::as_slice)
    }

    /// Returns the done tasks to recount whose rank is below this fraction, by rank.
    pub(super) fn recounts_below(&self, fraction: f64) -> impl Iterator<Item = &TaskIx> {
        // Saturates at the ends.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let end = (fraction * 2f64.powi(64)) as u64;
        self.recount_order.range(..(end, TaskIx::MAX)).map(|(_, task)| task)
    }

    /// Returns the `number` tasks with the lowest ranks, which is the same in all calls.
    /// Large runs do not rank all their tasks before the end, since each rank takes a hash.
    pub(super) fn required_recounts(&self, number: u64) -> &[TaskIx] {
        self.required.get_or_init(|| {
            let rank = |task| (self.sampler.rank(self.manifest.run, id(task)), task);
            let mut ranked: Vec<_> = self.all_tasks().map(rank).collect();
            ranked.sort_unstable();
            ranked.truncate(usize::try_from(number).unwrap_or(usize::MAX));
            ranked.into_iter().map(|(_, task)| task).collect()
        })
    }

    /// Returns whether the standing count of a task replaces a void one.
    pub(super) fn is_replaced(&self, task: TaskIx) -> bool {
        self.replaced.contains(&task)
    }

    /// Returns whether a referee has counted a task.
    pub(super) fn is_recounted(&self, task: TaskIx) -> bool {
        self.tasks.done(task).is_some_and(|done| done.confirmed == Confirmation::Referee)
    }

    /// Returns whether the first count of a worker stands without a referee's recount.
    pub(super) fn has_first_count(&self, worker: WorkerIx) -> bool {
        let done = self.first_counts.get(&worker).and_then(|&task| self.tasks.done(task));
        done.is_some_and(|done| {
            done.first.author == worker && done.confirmed < Confirmation::Referee
        })
    }

    /// Returns one done task of each author.
    pub(super) fn first_counts(&self) -> impl Iterator<Item = (WorkerIx, &TaskIx)> {
        self.first_counts.iter().map(|(&worker, task)| (worker, task))
    }
}
