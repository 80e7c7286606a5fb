//! Grants: selection and number of the tasks that a worker gets.

use std::ops::Bound;

use common::{
    count::Orientation,
    limits,
    sync::{Grant, Revocation, SyncReply, SyncRequest},
};

use super::{
    Scheduler,
    leases::{BARRED, LeaseEnd},
};
use crate::{
    clock::Ticks,
    fleet::{REFERENCE_SPEED, RunIx, WorkerIx},
    ledger::{
        Stage,
        tasks::{self, TaskIx},
    },
    run::{Purpose, SingleHolders},
};

/// Maximum number of candidates of one kind that are considered.
pub(super) const MAX_SCANNED: usize = 64;

/// Maximum work in one reply, in seconds at the worker's measured speed.
/// This much is lost if the worker vanishes.
const GRANT_SECONDS: f64 = 300.0;

/// Maximum number of tasks per thread of a new worker.
/// Its speed is unknown, or its first counts wait for a recheck that another machine could make.
const FIRST_TASKS_PER_THREAD: usize = 2;

/// Last part of a run's cost, which is granted as one task per thread.
const SINGLES_FRACTION: f64 = 0.02;

/// Age of a lease at which another worker may get a backup copy.
pub(super) const BACKUP_AFTER_MS: Ticks = 10_000;

/// Work that may still be granted in one reply.
#[derive(Clone, Copy, Debug)]
struct Budget {
    cost: f64,
    /// Number of tasks granted regardless of their cost.
    tasks_at_least: usize,
    tasks_at_most: usize,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.tasks_at_most == 0 || (self.cost <= 0.0 && self.tasks_at_least == 0)
    }

    fn spend(&mut self, cost: u64) {
        self.cost -= cost as f64;
        self.tasks_at_least = self.tasks_at_least.saturating_sub(1);
        self.tasks_at_most = self.tasks_at_most.saturating_sub(1);
    }
}

/// A task chosen for a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) task: TaskIx,
    pub(super) purpose: Purpose,
    pub(super) orientation: Orientation,
}

impl Scheduler {
    /// Grants tasks; an error is why there are none.
    pub(super) fn grant(
        &mut self,
        worker: WorkerIx,
        request: &SyncRequest,
        reply: &mut SyncReply,
    ) -> Result<(), String> {
        self.check_grantable(worker, request)?;
        let seconds_wanted = request.seconds_wanted + self.yield_to_higher(worker, reply);
        if seconds_wanted.is_nan() || seconds_wanted <= 0.0 {
            return Err("the worker requested no work".to_owned());
        }
        let mut budget = self.budget(worker, seconds_wanted, reply);
        if self.is_on_probation(worker) || self.is_unproven(worker) {
            let held = self.workers.get(worker).leases.len();
            budget.tasks_at_most = budget.tasks_at_most.min(1_usize.saturating_sub(held));
        }
        let now = self.clock.ticks();
        for run in self.order.clone() {
            if !self.serves(run, worker, now) {
                continue;
            }
            let mut within = self.share(run, worker, budget);
            if self.pending_before(run, worker).is_some() {
                // They would be revoked in the worker's next call.
                let known = self.workers.get(worker);
                let idle = (known.info.threads as usize).saturating_sub(known.leases.len());
                within.tasks_at_most = within.tasks_at_most.min(idle);
            }
            while !within.is_spent() {
                let mut choice = self.choose(run, worker);
                if choice.is_none() && self.revoke_packages(run) {
                    choice = self.choose(run, worker);
                }
                let Some(choice) = choice else {
                    break;
                };
                reply.grants.push(self.lease(run, worker, choice, 0));
                let cost = self.runs[run].cost(choice.task);
                within.spend(cost);
                budget.spend(cost);
            }
        }
        if reply.grants.is_empty() {
            self.grant_copies(worker, budget, reply);
        }
        if reply.grants.is_empty() { Err(self.idle_reason(worker)) } else { Ok(()) }
    }

    /// Checks that a worker may get tasks of any run; an error says why not.
    fn check_grantable(&self, worker: WorkerIx, request: &SyncRequest) -> Result<(), String> {
        let known = self.workers.get(worker);
        let refusal = if self.workers.is_barred(worker) {
            BARRED
        } else if self.is_held_back(worker) {
            "wrong counts with this token: its machines get work one by one, as they are checked"
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

    /// Revokes the leases that a worker has not started and whose runs have a lower priority than one that has
    /// tasks for it. Returns the time of the worker for them, for which it gets other work.
    fn yield_to_higher(&mut self, worker: WorkerIx, reply: &mut SyncReply) -> f64 {
        let lowest =
            self.workers.get(worker).runs().min_by_key(|&run| self.runs[run].settings().priority);
        let Some(higher) = lowest.and_then(|lowest| self.pending_before(lowest, worker)) else {
            return 0.0;
        };
        let priority = self.runs[higher].settings().priority;
        let is_lower = |run: RunIx| self.runs[run].settings().priority < priority;
        let waiting = self.leases_of(worker).filter(|&((run, _), lease)| {
            is_lower(run) && lease.started.is_none() && lease.purpose == Purpose::Count
        });
        let reason =
            format!("run {} has a higher priority", self.runs[higher].manifest.run.short());
        let size = |reason: &str| limits::REVOCATION_FRAME_BYTES + reason.len();
        let used: usize = reply.revoked.iter().map(|gone| size(&gone.reason)).sum();
        let room = limits::REVOCATION_BYTES.saturating_sub(used) / size(&reason);
        let waiting: Vec<_> = waiting.map(|(key, _)| key).take(room).collect();
        let mut cost = 0;
        for key in waiting {
            let lease = self.grant_of(key, worker).lease;
            reply.grants.retain(|again| again.lease != lease);
            reply.revoked.push(Revocation { lease, reason: reason.clone() });
            self.end_lease(worker, key, LeaseEnd::Released);
            cost += self.runs[key.0].cost(key.1);
        }
        let known = self.workers.get(worker);
        let assumed = REFERENCE_SPEED * f64::from(known.info.threads.max(1));
        cost as f64 / known.speed.per_second().unwrap_or(assumed)
    }

    /// Returns the first run of a higher priority that has pending tasks or rechecks for a worker.
    fn pending_before(&self, run: RunIx, worker: WorkerIx) -> Option<RunIx> {
        let (priority, now) = (self.runs[run].settings().priority, self.clock.ticks());
        let higher = self.order.iter().copied();
        let mut higher = higher.take_while(|&of| self.runs[of].settings().priority > priority);
        higher.find(|&of| {
            let has_work = || {
                self.runs[of].tasks().number(Stage::Pending) > 0
                    || self.choose_recheck(of, worker).is_some()
                    || self.choose_own_recheck(of, worker).is_some()
            };
            self.serves(of, worker, now) && has_work()
        })
    }

    /// Returns whether tasks of `run` are granted to `worker` at present.
    fn serves(&self, run: RunIx, worker: WorkerIx, now: Ticks) -> bool {
        self.runs[run].grants() && self.is_eligible(run, worker, now)
    }

    /// Returns whether `worker` has memory for tasks of `run` and accepts them.
    /// A worker that has not called since the start passes: its memory is unknown.
    pub(super) fn is_eligible(&self, run: RunIx, worker: WorkerIx, now: Ticks) -> bool {
        let known = self.workers.get(worker);
        let has_room =
            || known.session.is_none() || self.runs[run].lacks_memory(&known.info).is_none();
        !known.declines(run, now) && has_room()
    }

    /// Returns the active workers on other machines that have called since the start.
    pub(super) fn on_other_machine(
        &self,
        run: RunIx,
        worker: WorkerIx,
    ) -> impl Iterator<Item = WorkerIx> + '_ {
        self.active_workers(run).filter(move |&other| {
            let is_known = self.workers.get(other).session.is_some();
            is_known && !self.workers.same_machine(worker, other)
        })
    }

    /// Computes the budget from request and measured speed, less repeated grants.
    fn budget(&self, worker: WorkerIx, seconds_wanted: f64, reply: &SyncReply) -> Budget {
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
        let first = FIRST_TASKS_PER_THREAD.saturating_mul(threads as usize).saturating_sub(held);
        // A new machine gets few tasks until its first counts are rechecked.
        let now = self.clock.ticks();
        let mut served = self.order.iter();
        let awaits_recheck = self.workers[worker].reputation.awaits_first_recheck()
            && served.any(|&run| {
                self.serves(run, worker, now) && self.on_other_machine(run, worker).next().is_some()
            });
        // A machine that had little to do looks slow: each idle thread gets a task.
        let tasks_at_least = (threads as usize).saturating_sub(held);
        match known.speed.per_second() {
            Some(speed) => Budget {
                cost: seconds * speed - sent_again,
                tasks_at_least,
                tasks_at_most: match awaits_recheck {
                    true => tasks_at_most.min(first),
                    false => tasks_at_most,
                },
            },
            None => Budget {
                cost: seconds * REFERENCE_SPEED * f64::from(threads) - sent_again,
                tasks_at_least,
                tasks_at_most: tasks_at_most.min(first),
            },
        }
    }

    /// Narrows a budget toward the end of a run so that all workers finish together.
    /// It allows half of the worker's share of the pending cost, and single tasks in the last part.
    fn share(&self, run: RunIx, worker: WorkerIx, budget: Budget) -> Budget {
        if self.workers.live() <= 1 {
            return budget;
        }
        let known = self.workers.get(worker);
        let threads = known.info.threads.max(1);
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
        Budget {
            cost: budget.cost.min(pending * part / 2.0),
            tasks_at_least: budget.tasks_at_least.max(idle_threads),
            ..budget
        }
    }

    /// Chooses the next task of `run` for `worker` that no worker holds.
    fn choose(&mut self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        let is_referee = self.workers.is_referee(worker);
        let recount = is_referee.then(|| self.choose_recount(run, worker)).flatten();
        recount
            .map(|(choice, _)| choice)
            .or_else(|| self.choose_recheck(run, worker))
            .or_else(|| self.choose_uncounted(run, worker))
            .or_else(|| self.choose_own_recheck(run, worker))
    }

    pub(super) fn choose_uncounted(&mut self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
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
    fn first_count_of(&self, run: RunIx, worker: WorkerIx, task: TaskIx) -> Choice {
        let in_run = &self.runs[run];
        let epoch = in_run.epoch(task);
        let alone = self.on_other_machine(run, worker).next().is_none();
        let is_rotated =
            !alone && self.sampler.rotates(in_run.manifest.run, tasks::id(task), epoch);
        let orientation = if is_rotated { Orientation::Rotated } else { Orientation::Upright };
        Choice { task, purpose: Purpose::Count, orientation }
    }

    /// Chooses a returned task; `again` includes orphans, and the worker's own failures if only workers count.
    fn choose_returned(&self, run: RunIx, worker: WorkerIx, again: bool) -> Option<TaskIx> {
        let in_run = &self.runs[run];
        let has_failed = |task: &TaskIx| in_run.failed(*task).contains(&worker);
        let is_deferred = |task: &TaskIx| match again {
            true => {
                in_run.recounts.under_way.contains_key(task)
                    || self.counts_itself(run) && has_failed(task)
            }
            false => in_run.pending().is_orphaned(*task) || has_failed(task),
        };
        in_run
            .pending()
            .returned()
            .iter()
            .take(MAX_SCANNED)
            .find(|task| !is_deferred(task))
            .copied()
    }

    /// Grants an idle worker backup copies of tasks that others have held for a while.
    fn grant_copies(&mut self, worker: WorkerIx, mut budget: Budget, reply: &mut SyncReply) {
        let known = self.workers.get(worker);
        let idle = (known.info.threads as usize).saturating_sub(known.leases.len());
        budget.tasks_at_most = budget.tasks_at_most.min(idle);
        let now = self.clock.ticks();
        for run in self.order.clone() {
            let served = self.serves(run, worker, now);
            while served && !budget.is_spent() {
                let Some(task) = self.choose_straggler(run, worker) else {
                    break;
                };
                let choice = match self.runs[run].tasks().stage(task) {
                    Stage::Done => self.recheck_of(run, task),
                    Stage::Pending | Stage::Leased | Stage::Parked | Stage::Disputed => {
                        self.first_count_of(run, worker, task)
                    }
                };
                reply.grants.push(self.lease(run, worker, choice, 0));
                budget.spend(self.runs[run].cost(task));
            }
        }
    }

    /// Chooses a straggler: the last task not started, or the one started longest ago.
    /// It has at most one fresh lease; a single holder starts its newest task last. A machine does not recheck its
    /// own count.
    fn choose_straggler(&self, run: RunIx, worker: WorkerIx) -> Option<TaskIx> {
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
        not_started
            .range(ripe)
            .rev()
            .take(scan)
            .find(suits)
            .or_else(|| started.range(ripe).take(scan).find(suits))
            .or_else(|| in_run.leases.crowded.range(..=(now, TaskIx::MAX)).take(scan).find(suits))
            .map(|&(_, task)| task)
    }
}
