//! One run: its tasks, what waits, what is out, what is odd.
//!
//! A task's stage is mirrored in several sets. They are all private here, and who changes one is a method
//! that changes the others with it, and says what the owner has to know.

mod ends;
mod holding;
mod stages;

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

pub(super) use self::ends::Before;
use super::{
    clock::Ticks,
    index::{TaskIx, WorkerIx},
    parking::Parking,
    rate::Rate,
    seconds::Seconds,
    tasks::{How, Stage, TaskTable},
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
struct Odd {
    /// Whose attempts failed, in order.
    failed: Vec<WorkerIx>,
    /// Who counted it again, and how, without adding anything: nobody is asked the same twice.
    tried: Vec<(WorkerIx, Orientation)>,
    /// Its contradicting counts, in order.
    reports: Vec<Report>,
    /// The one of them on which two machines had agreed before it was contradicted.
    agreed: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Run {
    manifest: RunManifest,
    plan: Plan,
    least_memory: LeastMemory,
    state: RunState,
    tasks: TaskTable,
    /// How far above a task's highest known epoch there may be leases that a crash lost.
    lost_epochs: u64,
    /// Pending tasks at lower positions of the handing-out order are in `returned`.
    cursor: u64,
    returned: BTreeSet<TaskIx>,
    /// Those of `returned` that a worker took away when it vanished: nobody knows how far it was, so
    /// they come after those that were never handed out.
    shaken: BTreeSet<TaskIx>,
    parking: Parking,
    /// Quarantined tasks that nobody is counting.
    contested: BTreeSet<TaskIx>,
    /// From which of them on they are looked at next for a worker, where that is not the first.
    contested_from: BTreeMap<WorkerIx, TaskIx>,
    /// How much of it is counted a second time.
    recheck: Recheck,
    seconds: Seconds,
    quarantined: BTreeSet<TaskIx>,
    /// Who holds each leased task.
    holders: BTreeMap<TaskIx, Vec<WorkerIx>>,
    /// Leased tasks that one worker alone counts, by the time of the grant: those not
    /// begun, and those begun.
    alone: [BTreeSet<(Ticks, TaskIx)>; 2],
    odd: BTreeMap<TaskIx, Odd>,
    /// Leases that live, and what their workers say is done of them.
    cost_under_way: u64,
    agreed: u64,
    conflicts: u64,
    rate: Rate,
    finished: Finished,
    /// How long earlier processes served it.
    served_before_ms: u64,
    /// When this one began to.
    served_since: Ticks,
    /// Since when nothing but contested tasks is left that nobody counts.
    stuck_since: Option<Ticks>,
    /// Completion was announced and nothing has contradicted it since.
    announced: bool,
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
            contested_from: BTreeMap::new(),
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

    pub(super) fn manifest(&self) -> &RunManifest {
        &self.manifest
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn tasks(&self) -> &TaskTable {
        &self.tasks
    }

    pub(super) fn state(&self) -> RunState {
        self.state
    }

    /// How much of it is counted a second time.
    pub(super) fn recheck(&self) -> Recheck {
        self.recheck
    }

    pub(super) fn parking(&self) -> &Parking {
        &self.parking
    }

    /// Its second counts that are wanted or under way.
    pub(super) fn seconds(&self) -> &Seconds {
        &self.seconds
    }

    /// Pending tasks that came back.
    pub(super) fn returned(&self) -> &BTreeSet<TaskIx> {
        &self.returned
    }

    /// Those of [`Self::returned`] that a vanished worker took away.
    pub(super) fn shaken(&self) -> &BTreeSet<TaskIx> {
        &self.shaken
    }

    /// Quarantined tasks that nobody is counting.
    pub(super) fn contested(&self) -> &BTreeSet<TaskIx> {
        &self.contested
    }

    /// So many of them at most, in turn for this worker.
    pub(super) fn next_contested(&self, worker: WorkerIx, most: usize) -> Vec<TaskIx> {
        let from = self.contested_from.get(&worker).copied().unwrap_or(0);
        let (later, earlier) = (self.contested.range(from..), self.contested.range(..from));
        later.chain(earlier).take(most).copied().collect()
    }

    /// None of these is for this worker: others come next.
    pub(super) fn look_on(&mut self, worker: WorkerIx, seen: &[TaskIx]) {
        match seen.last() {
            Some(&last) if seen.len() < self.contested.len() => {
                self.contested_from.insert(worker, last + 1);
            }
            Some(_) | None => drop(self.contested_from.remove(&worker)),
        }
    }

    pub(super) fn quarantined(&self) -> &BTreeSet<TaskIx> {
        &self.quarantined
    }

    /// How much is done, as far as its tasks say something of those to come.
    pub(super) fn finished(&self) -> &Finished {
        &self.finished
    }

    pub(super) fn rate(&self) -> &Rate {
        &self.rate
    }

    /// Second counts that agreed, and counts that contradicted others.
    pub(super) fn agreed_and_conflicts(&self) -> (u64, u64) {
        (self.agreed, self.conflicts)
    }

    /// The count on which two machines had agreed before a task was contradicted.
    pub(super) fn agreed_before(&self, task: TaskIx) -> Option<u64> {
        self.odd.get(&task).and_then(|odd| odd.agreed)
    }

    /// The highest epoch that may name a lease of a task, whether or not a crash lost it.
    pub(super) fn highest_epoch(&self, task: TaskIx) -> u64 {
        self.tasks.epoch(task).saturating_add(self.lost_epochs)
    }

    /// Every task that it has.
    pub(super) fn all_tasks(&self) -> std::ops::Range<TaskIx> {
        0..TaskIx::try_from(self.tasks.len()).expect("at most MAX_TASKS")
    }

    /// It is served from now on.
    pub(super) fn serve_from(&mut self, now: Ticks) {
        self.served_since = now;
    }

    /// How long earlier processes served it, found on disk, in milliseconds.
    pub(super) fn restore_elapsed(&mut self, elapsed_ms: u64) {
        self.served_before_ms = elapsed_ms;
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
}

/// A task's name.
pub(super) fn id(task: TaskIx) -> TaskId {
    TaskId(u64::from(task))
}

/// The index of a task that the plan has.
pub(super) fn index(task: TaskId) -> TaskIx {
    TaskIx::try_from(task.0).expect("below MAX_TASKS")
}
