//! Which tasks a worker gets, and how many.

mod packages;
mod rechecks;
mod recounts;

use std::ops::Bound;

use common::{
    count::Orientation,
    messages::sync::{Grant, SyncReply, SyncRequest},
};

pub use self::recounts::{Recount, RecountPurpose, Verifying};

use crate::{
    clock::Ticks,
    fleet::{REFERENCE_SPEED, RunIx, WorkerIx},
    ledger::{
        Stage,
        tasks::{self, TaskIx},
    },
    run::{Purpose, SingleHolders},
    snapshot::Snapshot,
};

/// Reason for the refusals of a barred machine.
pub(crate) const BARRED: &str = "this machine is barred after a wrong count and gets no more work: \
                                 check its memory and cooling, then have an operator readmit it";

/// Reason for the refusals of a machine on probation.
const HELD_BACK: &str =
    "wrong counts with this token: its machines get work one by one, as they are checked";

/// Maximum number of candidates of one kind that are considered.
pub(crate) const MAX_SCANNED: usize = 64;

/// Maximum work in one reply, in seconds at the worker's measured speed.
/// This much is lost if the worker vanishes.
const GRANT_SECONDS: f64 = 300.0;

/// Maximum number of tasks per thread of a new worker.
/// Its speed is unknown, or its first counts wait for a recheck that another machine could make.
const FIRST_TASKS_PER_THREAD: usize = 2;

/// Last part of a run's cost, which is granted as one task per thread.
const SINGLES_FRACTION: f64 = 0.02;

/// Age of a lease at which another worker may get a backup copy.
const BACKUP_AFTER_MS: Ticks = 10_000;

/// Work that may still be granted in one reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    cost: f64,
    /// Number of tasks granted regardless of their cost.
    tasks_at_least: usize,
    pub(crate) tasks_at_most: usize,
}

impl Budget {
    pub(crate) fn is_spent(&self) -> bool {
        self.tasks_at_most == 0 || (self.cost <= 0.0 && self.tasks_at_least == 0)
    }

    pub(crate) fn spend(&mut self, cost: u64) {
        self.cost -= cost as f64;
        self.tasks_at_least = self.tasks_at_least.saturating_sub(1);
        self.tasks_at_most = self.tasks_at_most.saturating_sub(1);
    }
}

/// A task chosen for a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) task: TaskIx,
    pub(crate) purpose: Purpose,
    pub(crate) orientation: Orientation,
}

impl<'a> Snapshot<'a> {
    /// Checks that a worker may get tasks of any run; an error says why not.
    pub(crate) fn check_grantable(
        self,
        worker: WorkerIx,
        request: &SyncRequest,
    ) -> Result<(), String> {
        let known = self.workers.get(worker);
        let refusal = if self.workers.is_barred(worker) {
            BARRED
        } else if self.is_held_back(worker) {
            HELD_BACK
        } else if known.drain_requested {
            "drained by an operator; restart the worker to resume"
        } else if !known.paused.is_empty() {
            return Err(format!("the worker is paused: {}", known.paused));
        } else if request.draining {
            "the worker is draining"
        } else if known.leases.len() >= self.config.leases_per_worker {
            return Err(format!("the worker holds {} leases, the maximum", known.leases.len()));
        } else {
            return Ok(());
        };
        Err(refusal.to_owned())
    }

    /// Computes the budget from request and measured speed, less repeated grants.
    pub(crate) fn budget(self, worker: WorkerIx, seconds_wanted: f64, reply: &SyncReply) -> Budget {
        let known = self.workers.get(worker);
        let threads = known.info.threads.max(1);
        let held = known.leases.len();
        let seconds = seconds_wanted.min(GRANT_SECONDS);
        let room = self.config.leases_per_worker.saturating_sub(held);
        let tasks_at_most =
            self.config.grants_per_sync.saturating_sub(reply.grants.len()).min(room);
        let cost_of = |grant: &Grant| {
            self.runs[self.by_id[&grant.lease.task.run]].plan.task_cost(grant.lease.task.task)
                as f64
        };
        let sent_again: f64 = reply.grants.iter().map(cost_of).sum();
        // A new machine gets few tasks until its first counts are rechecked.
        let awaits_recheck = || {
            let may_recheck = |&run| {
                self.serves(run, worker) && self.on_other_machine(run, worker).next().is_some()
            };
            self.workers[worker].reputation.awaits_first_recheck()
                && self.order.iter().any(may_recheck)
        };
        let speed = known.speed.per_second();
        let most_held = if self.is_on_probation(worker) || self.is_unproven(worker) {
            1
        } else if speed.is_none() || awaits_recheck() {
            FIRST_TASKS_PER_THREAD.saturating_mul(threads as usize)
        } else {
            usize::MAX
        };
        Budget {
            cost: seconds * speed.unwrap_or(REFERENCE_SPEED * f64::from(threads)) - sent_again,
            // A machine that had little to do looks slow: each idle thread gets a task.
            tasks_at_least: (threads as usize).saturating_sub(held),
            tasks_at_most: tasks_at_most.min(most_held.saturating_sub(held)),
        }
    }

    /// Narrows a budget toward the end of a run so that all workers finish together.
    /// With its leases, the worker has at most half of its share of the pending cost, however often it calls; in the
    /// last part it gets single tasks.
    pub(crate) fn share(self, run: RunIx, worker: WorkerIx, mut budget: Budget) -> Budget {
        let known = self.workers.get(worker);
        let threads = known.info.threads.max(1);
        if self.pending_before(run, worker).is_some() {
            // More would be revoked in the worker's next call.
            let idle = (known.info.threads as usize).saturating_sub(known.leases.len());
            budget.tasks_at_most = budget.tasks_at_most.min(idle);
        }
        if self.workers.live() <= 1 {
            return budget;
        }
        let tasks = &self.runs[run].tasks();
        let pending = tasks.cost(Stage::Pending) as f64;
        // Leases of runs that are served later do not keep threads from the tasks of this one.
        let earlier = &self.order[..=self.order.iter().position(|&of| of == run).unwrap_or(0)];
        let held = known.leases.iter().filter(|(of, _)| earlier.contains(of)).count();
        let idle_threads = (threads as usize).saturating_sub(held);
        let singles = pending < SINGLES_FRACTION * tasks.total_cost() as f64;
        if singles {
            return Budget { tasks_at_most: budget.tasks_at_most.min(idle_threads), ..budget };
        }
        let part = f64::from(threads) / self.workers.live_threads() as f64;
        let of_run = known.leases.range((run, 0)..=(run, TaskIx::MAX));
        let waiting: u64 = of_run.map(|&(_, task)| self.runs[run].cost(task)).sum();
        let most = (pending + waiting as f64) * part / 2.0;
        Budget {
            cost: budget.cost.min(most - waiting as f64),
            tasks_at_least: budget.tasks_at_least.max(idle_threads),
            ..budget
        }
    }

    /// Chooses the next task of `run` for `worker` that no worker holds.
    pub(crate) fn choose(self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        let is_referee = self.workers.is_referee(worker);
        let recount = is_referee.then(|| self.choose_recount(run, worker)).flatten();
        recount
            .map(|(choice, _)| choice)
            .or_else(|| self.choose_recheck(run, worker))
            .or_else(|| self.choose_uncounted(run, worker))
            .or_else(|| self.choose_own_recheck(run, worker))
    }

    pub(crate) fn choose_uncounted(self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        let task = self
            .choose_returned(run, worker, false)
            .or_else(|| self.runs[run].next_fresh())
            .or_else(|| {
                let again = !self.gets_only_fresh_tasks(run, worker);
                again.then(|| self.choose_returned(run, worker, true)).flatten()
            })?;
        Some(self.first_count_of(run, worker, task))
    }

    /// Chooses a first count, rotated at random if another machine could recheck it.
    /// This way the orientation does not reveal rechecks.
    fn first_count_of(self, run: RunIx, worker: WorkerIx, task: TaskIx) -> Choice {
        let in_run = &self.runs[run];
        let epoch = in_run.epoch(task);
        let alone = self.on_other_machine(run, worker).next().is_none();
        let is_rotated =
            !alone && self.sampler.rotates(in_run.manifest.run, tasks::id(task), epoch);
        let orientation = if is_rotated { Orientation::Rotated } else { Orientation::Upright };
        Choice { task, purpose: Purpose::Count, orientation }
    }

    /// Chooses a returned task; `again` includes orphans, and the worker's own failures if only workers count.
    fn choose_returned(self, run: RunIx, worker: WorkerIx, again: bool) -> Option<TaskIx> {
        let in_run = &self.runs[run];
        let has_failed = |task: &TaskIx| in_run.failed(*task).contains(&worker);
        let is_deferred = |task: &TaskIx| match again {
            true => {
                in_run.recounts.under_way.contains_key(task)
                    || self.counts_itself(run) && has_failed(task)
            }
            false => in_run.pending().is_orphaned(*task) || has_failed(task),
        };
        let pending = in_run.pending();
        let missed = pending.returned().iter().take(MAX_SCANNED).find(|task| !is_deferred(task));
        // However many tasks this worker has failed, they hide no other.
        missed.copied().into_iter().chain(pending.first_intact()).min()
    }

    /// Chooses a straggler: the last task not started, or the one started longest ago.
    /// It has at most one fresh lease; a single holder starts its newest task last. A machine does not recheck its
    /// own count.
    pub(crate) fn choose_straggler(self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        if self.gets_only_fresh_tasks(run, worker) {
            return None;
        }
        let in_run = &self.runs[run];
        let now = self.clock.ticks();
        let before = now.checked_sub(BACKUP_AFTER_MS)?;
        let ripe = (Bound::Unbounded, Bound::Included((before, TaskIx::MAX)));
        let SingleHolders { not_started, started } = &in_run.leases.single;
        let suits = |&&(_, task): &&(u64, TaskIx)| {
            let first = in_run.tasks().done(task).map(|done| done.first.author);
            !self.workers.get(worker).leases.contains(&(run, task))
                && !in_run.failed(task).contains(&worker)
                && first.is_none_or(|first| !self.workers.same_machine(first, worker))
        };
        let scan = MAX_SCANNED + self.workers.get(worker).leases.len();
        let &(_, task) = not_started
            .range(ripe)
            .rev()
            .take(scan)
            .find(suits)
            .or_else(|| started.range(ripe).take(scan).find(suits))
            .or_else(|| {
                in_run.leases.crowded.range(..=(now, TaskIx::MAX)).take(scan).find(suits)
            })?;
        Some(match in_run.tasks().stage(task) {
            Stage::Done => self.recheck_of(run, task),
            Stage::Pending | Stage::Leased | Stage::Parked | Stage::Disputed => {
                self.first_count_of(run, worker, task)
            }
        })
    }
}
