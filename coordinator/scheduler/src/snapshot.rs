//! A read-only view of all runs and workers: decisions and statuses are its functions, so none changes anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use common::{
    messages::{
        run::{RunId, TaskRef, WorkerId},
        sync::SyncRequest,
    },
    plan::{Plan, TaskId},
};

use crate::{
    clock::{SchedulerClock, Ticks},
    config::Config,
    fleet::{LeaseIx, REFERENCE_SPEED, Referee, RunIx, WorkerIx, Workers},
    ledger::{
        RecheckSampler, Record, Stage, TaskCount,
        tasks::{self, TaskIx},
    },
    run::{Lease, Run},
};

/// Multiple of a worker's expected time for which its lease is fresh.
const FRESH_FACTOR: f64 = 3.0;

/// The same before the worker's speed is known: it may be a slow machine.
const FIRST_FRESH_FACTOR: f64 = 12.0;

/// Slowdown of the slowest thread that is expected, relative to the reference thread. A worker that states a lower
/// speed does not keep its leases fresh for longer.
const MAX_SLOWDOWN: f64 = 5.0;

/// Maximum time for which a lease is fresh, beside the time of its own task.
const MAX_FRESH_MS: f64 = 600_000.0;

/// Maximum part of two sync intervals in the time for which a lease is fresh.
const MAX_FRESH_SYNC_MS: Ticks = 30_000;

/// Regular syncs per second of all workers together.
/// The coordinator could serve far more, but these also submit results.
const SYNCS_PER_SECOND: u64 = 50;

/// Factor by which short syncs may be more frequent than regular ones.
const SHORT_SYNCS: u64 = 20;

/// Minimum interval between two syncs.
const MIN_SYNC_MS: Ticks = 500;

/// Time to the next sync of a worker that got nothing but may get something soon.
const IDLE_SYNC_MS: Ticks = 1_000;

/// All runs and workers of a scheduler at one time.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    pub(crate) config: &'a Config,
    pub(crate) clock: &'a SchedulerClock,
    pub(crate) runs: &'a [Run],
    pub(crate) by_id: &'a BTreeMap<RunId, RunIx>,
    /// The runs in the order in which they are served.
    pub(crate) order: &'a [RunIx],
    pub(crate) workers: &'a Workers,
    /// Workers and the times of their suspect counts, in the unit of `Done::accepted_s`.
    pub(crate) suspect_windows: &'a [(WorkerIx, RangeInclusive<u32>)],
    pub(crate) sampler: &'a RecheckSampler,
    pub(crate) referee: &'a Referee,
}

impl<'a> Snapshot<'a> {
    /// Returns a task's secret rank; referees recount the tasks with the lowest ranks.
    pub fn rank(self, run: RunId, task: TaskId) -> u64 {
        self.sampler.rank(run, task)
    }

    pub fn plan(self, run: RunId) -> Option<&'a Plan> {
        self.by_id.get(&run).map(|&run| &self.runs[run].plan)
    }

    /// Returns whether a worker is barred.
    pub fn is_barred(self, worker: WorkerId) -> bool {
        self.workers.is_known_barred(worker)
    }

    /// Returns whether tasks of `run` are granted to `worker` at present.
    pub(crate) fn serves(self, run: RunIx, worker: WorkerIx) -> bool {
        self.runs[run].grants() && self.is_eligible(run, worker)
    }

    /// Returns whether `worker` has memory for tasks of `run` and accepts them.
    /// A worker that has not called since the start passes: its memory is unknown.
    fn is_eligible(self, run: RunIx, worker: WorkerIx) -> bool {
        let known = self.workers.get(worker);
        let has_room =
            || known.session.is_none() || self.runs[run].lacks_memory(&known.info).is_none();
        !known.declines(run, self.clock.ticks()) && has_room()
    }

    /// Returns the active workers on other machines that have called since the start.
    pub(crate) fn on_other_machine(
        self,
        run: RunIx,
        worker: WorkerIx,
    ) -> impl Iterator<Item = WorkerIx> {
        self.active_workers(run).filter(move |&other| {
            let is_known = self.workers.get(other).session.is_some();
            is_known && !self.workers.same_machine(worker, other)
        })
    }

    /// Returns the first run of a higher priority that has pending tasks or rechecks for a worker.
    pub(crate) fn pending_before(self, run: RunIx, worker: WorkerIx) -> Option<RunIx> {
        let priority = self.runs[run].settings().priority;
        let higher = self.order.iter().copied();
        let mut higher = higher.take_while(|&of| self.runs[of].settings().priority > priority);
        higher.find(|&of| {
            let has_work = || {
                self.runs[of].tasks().number(Stage::Pending) > 0
                    || self.choose_recheck(of, worker).is_some()
                    || self.choose_own_recheck(of, worker).is_some()
            };
            self.serves(of, worker) && has_work()
        })
    }

    /// Returns a run's active workers: connected, eligible, not draining or barred.
    pub(crate) fn active_workers(self, run: RunIx) -> impl Iterator<Item = WorkerIx> {
        self.workers.connected().filter(move |&worker| {
            let is_excluded = self.workers.get(worker).draining || self.workers.is_barred(worker);
            !is_excluded && self.is_eligible(run, worker)
        })
    }

    /// Returns whether an active worker with a different token than this one delivers counts.
    /// Nobody waits for idle strangers.
    pub(crate) fn has_other_token(self, run: RunIx, worker: WorkerIx) -> bool {
        let token = self.workers.token(worker);
        let mut others = self.active_workers(run);
        others.any(|other| self.workers.token(other) != token && self.delivers(run, other))
    }

    /// Returns whether a worker holds a fresh lease of a run, or has delivered a count recently.
    fn delivers(self, run: RunIx, worker: WorkerIx) -> bool {
        let known = self.workers.get(worker);
        let tasks = self.runs[run].tasks();
        let patience_ms = || self.fresh_ms(worker, tasks.total_cost() / tasks.size());
        known.tasks_done > 0 && self.clock.ticks() < known.busy_since + patience_ms()
            || self
                .leases_of(worker)
                .any(|((of, _), lease)| of == run && self.is_fresh(worker, lease))
    }

    pub(crate) fn active_tokens(self, run: RunIx) -> BTreeSet<Option<&'a str>> {
        self.active_workers(run).map(|worker| self.workers.token(worker)).collect()
    }

    /// Finds the run and task that a worker names, or returns why there is none.
    pub(crate) fn find(self, task: TaskRef) -> Result<LeaseIx, String> {
        let Some(&run) = self.by_id.get(&task.run) else {
            return Err(format!("this coordinator has no run {}: drop its tasks", task.run));
        };
        let TaskRef { run: name, plan: theirs, task } = task;
        let (ours, tasks) = (self.runs[run].manifest.plan, self.runs[run].tasks().size());
        if theirs != ours {
            return Err(format!(
                "run {name} has plan {ours}, but the worker has plan {theirs}: use a worker of the \
                 coordinator's version"
            ));
        }
        if task.0 >= tasks {
            let last = tasks - 1;
            return Err(format!("run {name} has tasks 0 to {last}, and no task {task}: drop it"));
        }
        Ok((run, tasks::index(task)))
    }

    pub(crate) fn leases_of(self, worker: WorkerIx) -> impl Iterator<Item = (LeaseIx, &'a Lease)> {
        let keys = self.workers.find(worker).into_iter().flat_map(|known| &known.leases);
        keys.map(move |&(run, task)| {
            ((run, task), self.runs[run].lease(task, worker).expect("held"))
        })
    }

    /// Returns whether a lease may keep others from its task: it has not aged, and its holder is not paused.
    pub(crate) fn is_fresh(self, holder: WorkerIx, lease: &Lease) -> bool {
        let is_paused = || self.workers.find(holder).is_some_and(|known| !known.paused.is_empty());
        self.clock.ticks() < lease.fresh_until && !is_paused()
    }

    /// Returns the number of fresh leases of a task.
    pub(crate) fn fresh_holders(self, run: RunIx, task: TaskIx) -> usize {
        let leases = self.runs[run].leases_of(task).iter();
        leases.filter(|(holder, lease)| self.is_fresh(*holder, lease)).count()
    }

    /// Returns how long after its grant a lease of a task of this cost is fresh: a multiple of the expected time
    /// of what the worker was granted before it and of the task itself.
    pub(crate) fn fresh_ms(self, worker: WorkerIx, cost: u64) -> Ticks {
        let known = self.workers.get(worker);
        let threads = f64::from(known.info.threads.max(1));
        let (speed, factor) = match known.speed.per_second() {
            Some(speed) => (speed.max(REFERENCE_SPEED * threads / MAX_SLOWDOWN), FRESH_FACTOR),
            None => (REFERENCE_SPEED * threads, FIRST_FRESH_FACTOR),
        };
        let queued_ms = 1_000.0 * known.leased_cost as f64 / speed;
        let own_ms = 1_000.0 * cost as f64 * threads / speed;
        let syncs_ms = (2 * self.regular_sync_ms()).min(MAX_FRESH_SYNC_MS) as f64;
        let fresh_ms = factor * (queued_ms + own_ms) + syncs_ms;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let fresh_ms = fresh_ms.min(MAX_FRESH_MS + factor * own_ms) as Ticks;
        fresh_ms
    }

    /// Returns the duration of leases: at least three regular sync intervals.
    pub(crate) fn lease_ms(self) -> Ticks {
        self.config.lease_ms.max(3 * self.regular_sync_ms())
    }

    /// Returns the regular interval between two syncs of a worker.
    pub(crate) fn regular_sync_ms(self) -> Ticks {
        self.config.sync_floor_ms.max(self.spread_ms())
    }

    /// Returns the interval at which all workers together make [`SYNCS_PER_SECOND`].
    fn spread_ms(self) -> Ticks {
        self.workers.live() as u64 * 1_000 / SYNCS_PER_SECOND
    }

    /// Returns the time until a worker's next sync, before jitter.
    pub(crate) fn sync_ms(self, worker: WorkerIx, request: &SyncRequest) -> Ticks {
        let regular = self.regular_sync_ms();
        let spread = self.spread_ms() / SHORT_SYNCS;
        let shortest = MIN_SYNC_MS.max(spread).min(regular);
        let idle = IDLE_SYNC_MS.max(spread).min(regular);
        let known = self.workers.get(worker);
        let barred = self.workers.is_barred(worker);
        let expects_nothing = barred || request.draining || request.seconds_wanted <= 0.0;
        if known.leases.is_empty() {
            return if expects_nothing { regular } else { idle };
        }
        let Some(speed) = known.speed.per_second() else {
            return shortest;
        };
        let remaining = self.leases_of(worker).map(|((run, task), lease)| {
            self.runs[run].cost(task).saturating_sub(lease.cost_done) as f64
        });
        let cost: f64 = remaining.sum();
        let half_way = cost / speed * 500.0;
        if half_way >= regular as f64 {
            return regular;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let half_way = half_way.max(0.0) as Ticks;
        half_way.max(shortest)
    }

    /// Creates a record of a count of which nothing else is known.
    pub(crate) fn record_of(self, (run, task): LeaseIx, count: &TaskCount) -> Record {
        let in_run = &self.runs[run];
        Record {
            run: in_run.manifest.run,
            task: tasks::id(task),
            epoch: common::messages::run::Epoch(in_run.epoch(task)),
            count: count.count,
            worker: self.workers[count.author].id,
            principal: self.workers[count.author].principal.clone(),
            version: String::new(),
            kernel: count.kernel,
            orientation: count.orientation,
            duration_us: 0,
            accepted_unix_ms: self.clock.wall(self.clock.ticks()).0,
            elapsed_ms: in_run.elapsed_ms(),
        }
    }
}
