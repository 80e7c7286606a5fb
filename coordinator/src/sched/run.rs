//! One run: its tasks, what waits, what is out, what is odd.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU16,
};

use common::{
    board::Board,
    count::Orientation,
    crews::PlanNeeds,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
    run::TaskRef,
    sample::Finished,
    sync::WorkerInfo,
};

use super::{
    clock::Ticks,
    index::{TaskIx, WorkerIx},
    parking::Parking,
    rate::Rate,
    seconds::Seconds,
    tasks::{Done, How, Stage, TaskTable},
};
use crate::ledger::{Recheck, RunManifest, RunState};

/// One of several counts of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) count: u64,
    pub(super) worker: WorkerIx,
    pub(super) how: How,
}

/// What happened to a task besides being counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Odd {
    /// Whose attempts failed, in order.
    pub(super) failed: Vec<WorkerIx>,
    /// Who counted it again, and how, without adding anything: nobody is asked the same twice.
    pub(super) tried: Vec<(WorkerIx, Orientation)>,
    /// Its contradicting counts, in order.
    pub(super) reports: Vec<Report>,
    /// The one of them on which two machines had agreed before it was contradicted.
    pub(super) agreed: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) manifest: RunManifest,
    pub(super) plan: Plan,
    least_memory: LeastMemory,
    pub(super) state: RunState,
    pub(super) tasks: TaskTable,
    /// How far above a task's highest known epoch there may be leases that a crash lost.
    pub(super) lost_epochs: u64,
    /// Pending tasks at lower positions of the handing-out order are in `returned`.
    cursor: u64,
    pub(super) returned: BTreeSet<TaskIx>,
    /// Those of `returned` that a worker took away when it vanished: nobody knows how far it was, so
    /// they come after those that were never handed out.
    pub(super) shaken: BTreeSet<TaskIx>,
    pub(super) parking: Parking,
    /// Quarantined tasks that nobody is counting.
    pub(super) contested: BTreeSet<TaskIx>,
    /// How much of it is counted a second time.
    pub(super) recheck: Recheck,
    pub(super) seconds: Seconds,
    pub(super) quarantined: BTreeSet<TaskIx>,
    /// Who holds each leased task.
    pub(super) holders: BTreeMap<TaskIx, Vec<WorkerIx>>,
    /// Leased tasks that one worker alone counts, by the time of the grant: those not
    /// begun, and those begun.
    pub(super) alone: [BTreeSet<(Ticks, TaskIx)>; 2],
    pub(super) odd: BTreeMap<TaskIx, Odd>,
    /// Leases that live, and what their workers say is done of them.
    pub(super) cost_under_way: u64,
    pub(super) agreed: u64,
    pub(super) conflicts: u64,
    pub(super) rate: Rate,
    pub(super) finished: Finished,
    /// How long earlier processes served it.
    pub(super) served_before_ms: u64,
    /// When this one began to.
    pub(super) served_since: Ticks,
    /// Since when nothing but contested tasks is left that nobody counts.
    pub(super) stuck_since: Option<Ticks>,
    /// Completion was announced and nothing has contradicted it since.
    pub(super) announced: bool,
}

/// The least memory with which so many threads can count tasks of a run. It is asked for at every
/// grant, and for frames it is sought over all their classes: so it is kept, by the number of threads.
#[derive(Debug)]
struct LeastMemory {
    needs: PlanNeeds,
    known: RefCell<BTreeMap<NonZeroU16, u64>>,
}

impl LeastMemory {
    fn of_plan(plan: &Plan) -> Self {
        Self {
            needs: PlanNeeds::new(plan),
            known: RefCell::default(),
        }
    }

    /// In bytes.
    fn of(&self, threads: NonZeroU16) -> u64 {
        let mut known = self.known.borrow_mut();
        *known
            .entry(threads)
            .or_insert_with(|| self.needs.least_bytes(threads))
    }
}

/// What all threads of a worker may hold together, in bytes.
pub(super) fn memory_bytes(worker: &WorkerInfo) -> u64 {
    worker
        .memory_bytes_per_thread
        .saturating_mul(worker.threads.into())
}

impl Run {
    pub(super) fn new(manifest: RunManifest, plan: Plan, state: RunState) -> Self {
        let tasks = TaskTable::new(&plan);
        Self {
            manifest,
            least_memory: LeastMemory::of_plan(&plan),
            plan,
            state,
            tasks,
            lost_epochs: 0,
            cursor: 0,
            returned: BTreeSet::new(),
            shaken: BTreeSet::new(),
            parking: Parking::default(),
            contested: BTreeSet::new(),
            recheck: Recheck::default(),
            seconds: Seconds::default(),
            quarantined: BTreeSet::new(),
            holders: BTreeMap::new(),
            alone: [BTreeSet::new(), BTreeSet::new()],
            odd: BTreeMap::new(),
            cost_under_way: 0,
            agreed: 0,
            conflicts: 0,
            rate: Rate::default(),
            finished: Finished::default(),
            served_before_ms: 0,
            served_since: 0,
            stuck_since: None,
            announced: false,
        }
    }

    /// What stays of a run that is forgotten: a cancelled one of the smallest board.
    pub(super) fn husk(manifest: RunManifest) -> Self {
        let board = Board::new(1).expect("the smallest board");
        let plan = Plan::new(PlanSpec::new(board, Layout::FirstRows));
        Self::new(manifest, plan.expect("it has a plan"), RunState::Cancelled)
    }

    /// The least memory with which a worker can count its tasks, if this one has less, in bytes.
    pub(super) fn lacks_memory(&self, worker: &WorkerInfo) -> Option<u64> {
        let threads = u16::try_from(worker.threads).unwrap_or(u16::MAX);
        let threads = NonZeroU16::new(threads).unwrap_or(NonZeroU16::MIN);
        let least = self.least_memory.of(threads);
        (memory_bytes(worker) < least).then_some(least)
    }

    /// How long it has been served, in milliseconds of the scheduler's own time; at least 1, which
    /// tells it from a time that was not recorded.
    pub(super) fn elapsed_ms(&self, now: Ticks) -> u64 {
        let here = now.saturating_sub(self.served_since);
        self.served_before_ms.saturating_add(here).max(1)
    }

    pub(super) fn task_ref(&self, task: TaskIx) -> TaskRef {
        TaskRef {
            run: self.manifest.run,
            plan: self.manifest.plan,
            task: id(task),
        }
    }

    pub(super) fn cost(&self, task: TaskIx) -> u64 {
        self.plan.task_cost(id(task))
    }

    /// Moves a task to a stage and keeps every set that mirrors the stages.
    pub(super) fn enter(&mut self, task: TaskIx, stage: Stage) {
        let before = self.tasks.stage(task);
        if before == Stage::Done {
            self.forget_count(task);
        }
        self.leave(task, before);
        self.tasks.enter(task, self.cost(task), stage);
        match stage {
            Stage::Pending => drop(self.returned.insert(task)),
            Stage::Parked => {}
            Stage::Quarantined => {
                self.quarantined.insert(task);
                self.contested.insert(task);
            }
            Stage::Leased | Stage::Done => {}
        }
    }

    fn leave(&mut self, task: TaskIx, stage: Stage) {
        match stage {
            Stage::Pending => {
                self.returned.remove(&task);
                self.shaken.remove(&task);
            }
            Stage::Parked => self.parking.leave(task),
            Stage::Quarantined => {
                self.quarantined.remove(&task);
                self.contested.remove(&task);
            }
            Stage::Done => {
                let done = self.tasks.done(task).expect("stage is done");
                self.seconds.forget(task, done.worker);
            }
            Stage::Leased => {}
        }
    }

    /// Sets a task aside after too many failed attempts.
    pub(super) fn park(&mut self, task: TaskIx, now: Ticks) {
        self.enter(task, Stage::Parked);
        self.parking.park(task, now);
    }

    /// Takes a count as the task's.
    pub(super) fn accept(&mut self, task: TaskIx, done: Done) {
        self.leave(task, self.tasks.stage(task));
        let cost = self.cost(task);
        self.tasks.accept(task, cost, done);
        self.finished.add(done.count, cost);
        self.odd.remove(&task);
    }

    fn forget_count(&mut self, task: TaskIx) {
        if let Some(done) = self.tasks.done(task) {
            self.finished.remove(done.count, self.cost(task));
        }
    }

    /// The next task that was never handed out.
    pub(super) fn next_fresh(&mut self) -> Option<TaskIx> {
        while self.cursor < self.tasks.len() {
            let task = index(self.plan.task_at(self.cursor));
            if self.tasks.stage(task) == Stage::Pending && !self.returned.contains(&task) {
                return Some(task);
            }
            self.cursor += 1;
        }
        None
    }

    /// The tasks whose turn has not come.
    pub(super) fn upcoming(&self) -> impl Iterator<Item = TaskIx> + '_ {
        (self.cursor..self.tasks.len()).map(|position| index(self.plan.task_at(position)))
    }

    pub(super) fn failed(&self, task: TaskIx) -> &[WorkerIx] {
        self.odd.get(&task).map_or(&[], |odd| &odd.failed)
    }

    /// Whether a worker has counted a contested task, or one to be counted again, in this way.
    pub(super) fn has_tried(&self, task: TaskIx, way: (WorkerIx, Orientation)) -> bool {
        let reported = |report: &Report| (report.worker, report.how.orientation) == way;
        self.odd
            .get(&task)
            .is_some_and(|odd| odd.tried.contains(&way) || odd.reports.iter().any(reported))
    }

    pub(super) fn reports(&self, task: TaskIx) -> &[Report] {
        self.odd.get(&task).map_or(&[], |odd| &odd.reports)
    }

    /// Everything is counted, nothing is disputed and no second count is awaited.
    pub(super) fn all_done(&self) -> bool {
        self.tasks.number(Stage::Done) == self.tasks.len() && self.seconds.number() == 0
    }

    /// Its tasks are not all counted, and may be granted now or once it is resumed.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, RunState::Running | RunState::Paused) && !self.announced
    }

    /// Tasks are granted.
    pub(super) fn grants(&self) -> bool {
        match self.state {
            RunState::Running => !self.announced,
            // Somebody may have come who can decide.
            RunState::Disputed => !self.contested.is_empty(),
            RunState::Paused
            | RunState::Cancelled
            | RunState::Complete
            | RunState::Contradicted => false,
        }
    }

    /// It came to an end, which a later count may undo.
    pub(super) fn is_over(&self) -> bool {
        match self.state {
            RunState::Complete | RunState::Contradicted | RunState::Disputed => true,
            RunState::Running | RunState::Paused | RunState::Cancelled => false,
        }
    }

    /// Work that nobody holds.
    pub(super) fn has_waiting(&self) -> bool {
        self.tasks.number(Stage::Pending) > 0
            || !self.contested.is_empty()
            || self.seconds.number_waiting() > 0
    }

    pub(super) fn note_arrival(&mut self, count: u64, cost: u64, now: Ticks) {
        self.rate.add(count, cost, now);
    }
}

/// A task's name.
pub(super) fn id(task: TaskIx) -> TaskId {
    TaskId(u64::from(task))
}

/// The index of a task that the plan has.
pub(super) fn index(task: TaskId) -> TaskIx {
    TaskIx::try_from(task.0).expect("below MAX_TASKS")
}
