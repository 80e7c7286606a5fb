//! One run: its tasks, their leases, and the sets that follow from their counts.
//!
//! Several private sets mirror each task's stage. Only methods of [`Run`] modify them; each keeps the
//! sets consistent, and `audit` verifies them in every simulation.

mod leases;
mod lifecycle;
mod parking;
mod pending;
mod rate;
mod recounts;
mod sample;
mod stages;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU16,
};

use common::{
    board::Board,
    crew_layout::PlanNeeds,
    messages::sync::WorkerInfo,
    method::Layout,
    plan::{Plan, PlanSpec},
};

pub(crate) use self::{
    leases::{Lease, Purpose, SingleHolders},
    lifecycle::Lifecycle,
    parking::{Parking, should_park},
    pending::Pending,
    rate::Rate,
    recounts::Recounts,
    sample::RunSample,
};

use self::leases::Leases;
use crate::{
    clock::Ticks,
    fleet::WorkerIx,
    ledger::{
        Recheck, RecheckSampler, RunManifest, RunState, Settings, Stage, StoredRun, TaskCount,
        Tasks,
        tasks::{TaskIx, id},
    },
};

/// Maximum shown time since the last call; workers usually call again earlier.
const MAX_SHOWN_UNCONFIRMED_MS: u64 = 30_000;

/// Done tasks that wait for a recheck, by the author of the first count.
/// The value is when the wait began; tasks whose recheck is in progress are not in the queue.
pub(crate) type RecheckQueue = BTreeMap<(WorkerIx, TaskIx), Ticks>;

/// Rechecks of a run.
#[derive(Debug, Default)]
struct Rechecks {
    queue: RecheckQueue,
    /// Cost of the rechecks of machines' first counts.
    first_cost: u64,
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) manifest: RunManifest,
    pub(crate) plan: Plan,
    memory: MemoryNeeds,
    life: Lifecycle,
    tasks: Tasks,
    pub(crate) leases: Leases,
    pending: Pending,
    parking: Parking,
    pub(crate) recounts: Recounts,
    rechecks: Rechecks,
    sample: RunSample,
    pub(crate) time: CountingTime,
    /// Number of rechecks that agreed.
    pub(crate) agreed: u64,
    /// Number of counts that differed from a standing one.
    pub(crate) conflicts: u64,
    /// Workers whose counts came implausibly fast.
    pub(crate) implausible: BTreeSet<WorkerIx>,
}

/// Time in which the tasks of a run were counted.
#[derive(Debug, Default)]
pub(crate) struct CountingTime {
    /// In this process and earlier ones.
    pub(crate) counted_ms: u64,
    /// The same since the last call of a holder. It is counted once a holder calls: a lost one may have stopped
    /// immediately.
    unconfirmed_ms: u64,
    pub(crate) rate: Rate,
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
pub(crate) fn memory_bytes(worker: &WorkerInfo) -> u64 {
    worker.memory_bytes_per_thread.saturating_mul(worker.threads.into())
}

impl Run {
    pub(crate) fn new(
        stored: StoredRun,
        plan: Plan,
        tasks: Tasks,
        sampler: RecheckSampler,
    ) -> Self {
        let StoredRun { manifest, state, settings } = stored;
        Self {
            memory: MemoryNeeds { needs: PlanNeeds::new(&plan), known: RefCell::default() },
            life: Lifecycle::of(state, settings),
            leases: Leases::new(tasks.size()),
            pending: Pending::default(),
            parking: Parking::default(),
            recounts: Recounts::new(manifest.run, sampler),
            rechecks: Rechecks::default(),
            sample: RunSample::new(&tasks),
            time: CountingTime::default(),
            agreed: 0,
            conflicts: 0,
            implausible: BTreeSet::new(),
            manifest,
            plan,
            tasks,
        }
    }

    /// Creates the placeholder of a forgotten run: cancelled, on the smallest board.
    pub(crate) fn forgotten(manifest: RunManifest) -> Self {
        let board = Board::new(1).expect("the smallest board");
        let plan = Plan::new(PlanSpec::new(board, Layout::FirstRows)).expect("a plan");
        let cancelled =
            StoredRun { state: RunState::Cancelled, ..StoredRun::new(manifest, Recheck::Auto) };
        let tasks = Tasks::new(&plan);
        Self::new(cancelled, plan, tasks, RecheckSampler::new([0; 32]))
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    pub(crate) fn state(&self) -> RunState {
        self.life.state
    }

    pub(crate) fn recheck(&self) -> Recheck {
        self.life.settings.recheck
    }

    pub(crate) fn settings(&self) -> Settings {
        self.life.settings
    }

    pub(crate) fn set_priority(&mut self, priority: i32) {
        self.life.settings.priority = priority;
    }

    pub(crate) fn rechecks(&self) -> &RecheckQueue {
        &self.rechecks.queue
    }

    pub(crate) fn parking(&self) -> &Parking {
        &self.parking
    }

    pub(crate) fn pending(&self) -> &Pending {
        &self.pending
    }

    pub(crate) fn sample(&self) -> &RunSample {
        &self.sample
    }

    /// Returns the tasks without a count that block the end: all pending tasks are missed ones, and no worker
    /// delivered these in the time in which their first lease was fresh.
    pub(crate) fn overdue(&self, now: Ticks) -> impl Iterator<Item = TaskIx> + '_ {
        let has_other = self.tasks.number(Stage::Pending) > self.pending.missed() as u64;
        self.leases.overdue(now).filter(move |_| !has_other)
    }

    pub(crate) fn all_tasks(&self) -> std::ops::Range<TaskIx> {
        self.tasks.all()
    }

    /// Advances the run's time; without a connected holder the time that no holder has confirmed is dropped.
    pub(crate) fn advance_time(&mut self, ms: Ticks) {
        let ms = self.time.unconfirmed_ms + ms;
        self.time.unconfirmed_ms = if self.leases.connected == 0 { 0 } else { ms };
    }

    /// Counts the time up to now: a holder of one of the run's tasks has called.
    pub(crate) fn confirm_time(&mut self) {
        self.time.counted_ms += std::mem::take(&mut self.time.unconfirmed_ms);
    }

    /// Returns the run's minimum memory, in bytes, if the worker has less.
    pub(crate) fn lacks_memory(&self, worker: &WorkerInfo) -> Option<u64> {
        let threads = u16::try_from(worker.threads).unwrap_or(u16::MAX);
        let threads = NonZeroU16::new(threads).unwrap_or(NonZeroU16::MIN);
        let least = self.memory.of(threads);
        (memory_bytes(worker) < least).then_some(least)
    }

    /// Returns the run's minimum memory with one thread, in bytes.
    pub(crate) fn least_bytes(&self) -> u64 {
        self.memory.of(NonZeroU16::MIN)
    }

    /// Returns the time of counting; at least 1, since 0 means "not recorded".
    pub(crate) fn elapsed_ms(&self) -> u64 {
        self.time.counted_ms.max(1)
    }

    /// Returns the time of counting for display, including a short time without calls.
    pub(crate) fn shown_ms(&self) -> u64 {
        self.time.counted_ms + self.time.unconfirmed_ms.min(MAX_SHOWN_UNCONFIRMED_MS)
    }

    pub(crate) fn cost(&self, task: TaskIx) -> u64 {
        self.plan.task_cost(id(task))
    }

    /// Returns the next task that was never granted.
    pub(crate) fn next_fresh(&self) -> Option<TaskIx> {
        self.pending.next_fresh(&self.plan, &self.tasks)
    }

    /// Returns the tasks at and after the next one that was never granted.
    pub(crate) fn upcoming(&self) -> impl Iterator<Item = TaskIx> + '_ {
        self.pending.upcoming(&self.plan)
    }

    /// Returns the workers of a task's failed attempts.
    pub(crate) fn failed(&self, task: TaskIx) -> &[WorkerIx] {
        self.parking.failed(task)
    }

    pub(crate) fn disputed_counts(&self, task: TaskIx) -> &[TaskCount] {
        self.tasks.disputed().get(&task).map_or(&[], Vec::as_slice)
    }

    /// Returns the `number` tasks with the lowest ranks, which is the same in all calls.
    pub(crate) fn required_recounts(&self, number: u64) -> &[TaskIx] {
        self.recounts.required(&self.tasks, number)
    }

    /// Returns whether the first count of a worker stands without a referee's recount.
    pub(crate) fn has_first_count(&self, worker: WorkerIx) -> bool {
        self.recounts.has_first_count(&self.tasks, worker)
    }
}
