//! Which tasks a worker gets, and how many.

use std::ops::Bound;

use common::{
    count::Orientation,
    sync::{SyncReply, SyncRequest},
};

use super::{
    Scheduler,
    clock::Ticks,
    index::{LeaseIx, RunIx, TaskIx, WorkerIx},
    run,
    tasks::Stage,
    worker::Purpose,
};

/// How many candidates of one kind are looked at before another kind is tried.
pub(super) const SCAN: usize = 64;

/// Cost a second of one thread of the reference machine: costs are its microseconds.
const REFERENCE_SPEED: f64 = 1e6;

/// The most work in one grant, in seconds of the worker at its measured speed: what a worker that
/// vanishes takes away, and what its spool may have to hold.
const GRANT_SECONDS: f64 = 300.0;

/// The most tasks a thread of a worker whose speed is unknown, or of which no count was compared yet
/// although another machine is there to do it: one to count and one to go on with.
const FIRST_TASKS_PER_THREAD: usize = 2;

/// The part of a run's cost, at its end, that is handed out in single tasks a thread, so that all workers
/// finish together.
const SINGLES_FRACTION: f64 = 0.02;

/// The age from which a lease under way is worth a backup copy: an idle thread asks about once a second.
pub(super) const BACKUP_AFTER_MS: Ticks = 10_000;

/// What may still be granted in one reply.
#[derive(Clone, Copy, Debug)]
struct Budget {
    cost: f64,
    /// Tasks given whatever they cost.
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

/// A task for a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) task: TaskIx,
    pub(super) purpose: Purpose,
    pub(super) orientation: Orientation,
}

impl Scheduler {
    /// Grants a worker as much as it wants and should have.
    pub(super) fn grant(&mut self, worker: WorkerIx, request: &SyncRequest, reply: &mut SyncReply) {
        let barred = self.workers.standing(worker).is_barred();
        let stops = request.draining || self.workers.get(worker).told_to_drain;
        let wants = request.seconds_wanted > 0.0 && !stops && !barred;
        if !wants {
            return;
        }
        let mut budget = self.budget(worker, request.seconds_wanted, reply);
        let now = self.clock.ticks();
        for run in self.order.clone() {
            let served = self.serves(run, worker, now);
            if !served {
                continue;
            }
            let mut within = self.share(run, worker, budget);
            while !within.is_spent() {
                let Some(choice) = self.choose(run, worker) else {
                    break;
                };
                self.give((run, worker), choice, reply);
                let cost = self.runs[run].cost(choice.task);
                within.spend(cost);
                budget.spend(cost);
            }
        }
        if reply.grants.is_empty() {
            self.grant_copies(worker, budget, reply);
        }
    }

    /// Whether tasks of `run` are handed to `worker` at present.
    fn serves(&self, run: RunIx, worker: WorkerIx, now: Ticks) -> bool {
        self.runs[run].grants() && self.would_count(run, worker, now)
    }

    /// Whether `worker` could count tasks of `run`, and would not give them back. How much memory one has
    /// that has not called since the start nobody knows.
    pub(super) fn would_count(&self, run: RunIx, worker: WorkerIx, now: Ticks) -> bool {
        let known = self.workers.get(worker);
        let has_room =
            || known.session.is_none() || self.runs[run].lacks_memory(&known.info).is_none();
        !known.declines(run, now) && has_room()
    }

    /// Live workers on another machine than this one's to which tasks of `run` are given. Whoever cannot
    /// count them is not waited for.
    pub(super) fn elsewhere(
        &self,
        run: RunIx,
        worker: WorkerIx,
    ) -> impl Iterator<Item = WorkerIx> + '_ {
        let now = self.clock.ticks();
        let others = self.workers.elsewhere(worker);
        others.filter(move |&other| self.would_count(run, other, now))
    }

    fn give(&mut self, (run, worker): (RunIx, WorkerIx), choice: Choice, reply: &mut SyncReply) {
        let Choice {
            task,
            purpose,
            orientation,
        } = choice;
        let grant = self.lease((run, task), worker, purpose, orientation);
        reply.grants.push(grant);
    }

    /// By the worker's wish and measured speed, less what is sent again.
    fn budget(&self, worker: WorkerIx, seconds_wanted: f64, reply: &SyncReply) -> Budget {
        let known = self.workers.get(worker);
        let threads = known.info.threads.max(1);
        let held = known.leases.len();
        let seconds = seconds_wanted.min(GRANT_SECONDS);
        let room = self.config.leases_per_worker.saturating_sub(held);
        let tasks_at_most = self
            .config
            .grants_per_sync
            .saturating_sub(reply.grants.len())
            .min(room);
        let sent_again: f64 = reply
            .grants
            .iter()
            .map(|grant| self.cost_of(grant.task))
            .sum();
        let first = FIRST_TASKS_PER_THREAD
            .saturating_mul(threads as usize)
            .saturating_sub(held);
        // What nobody has looked at yet shall not be much.
        let now = self.clock.ticks();
        let mut served = self.order.iter();
        let unseen = self.workers.standing(worker).awaits_comparison()
            && served.any(|&run| {
                self.serves(run, worker, now) && self.elsewhere(run, worker).next().is_some()
            });
        match known.cost_per_second() {
            Some(speed) => Budget {
                cost: seconds * speed - sent_again,
                tasks_at_least: 0,
                tasks_at_most: match unseen {
                    true => tasks_at_most.min(first),
                    false => tasks_at_most,
                },
            },
            None => Budget {
                cost: seconds * REFERENCE_SPEED * f64::from(threads) - sent_again,
                tasks_at_least: (threads as usize).saturating_sub(held),
                tasks_at_most: tasks_at_most.min(first),
            },
        }
    }

    fn cost_of(&self, task: common::run::TaskRef) -> f64 {
        let run = self.by_id.get(&task.run);
        run.map_or(0.0, |&run| {
            self.runs[run].plan().task_cost(task.task) as f64
        })
    }

    /// Narrows a budget towards the end of a run, so that all workers finish together: at most half
    /// of the worker's share of what is pending, and single tasks in the last part.
    fn share(&self, run: RunIx, worker: WorkerIx, budget: Budget) -> Budget {
        if self.workers.live() <= 1 {
            return budget;
        }
        let known = self.workers.get(worker);
        let threads = known.info.threads.max(1);
        let tasks = &self.runs[run].tasks();
        let pending = tasks.cost(Stage::Pending) as f64;
        let idle_threads = (threads as usize).saturating_sub(known.leases.len());
        let singles = pending < SINGLES_FRACTION * tasks.cost_of_all() as f64;
        if singles {
            return Budget {
                tasks_at_most: budget.tasks_at_most.min(idle_threads),
                ..budget
            };
        }
        let part = f64::from(threads) / self.workers.live_threads() as f64;
        Budget {
            cost: budget.cost.min(pending * part / 2.0),
            tasks_at_least: budget.tasks_at_least.max(idle_threads),
            ..budget
        }
    }

    /// The next task of `run` for `worker`, if there is one that nobody holds.
    fn choose(&mut self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        self.choose_contested(run, worker)
            .or_else(|| self.choose_second(run, worker))
            .or_else(|| self.choose_uncounted(run, worker))
            .or_else(|| self.choose_own_second(run, worker))
    }

    fn choose_uncounted(&mut self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        let task = self
            .choose_returned(run, worker, false)
            .or_else(|| self.runs[run].next_fresh())
            .or_else(|| self.choose_returned(run, worker, true))?;
        Some(self.count(run, worker, task))
    }

    /// A first count, either way round by lot where somebody else could count it again: what is
    /// turned then says nothing of whether it is a second count.
    fn count(&self, run: RunIx, worker: WorkerIx, task: TaskIx) -> Choice {
        let in_run = &self.runs[run];
        let epoch = in_run.tasks().epoch(task);
        let alone = self.elsewhere(run, worker).next().is_none();
        let turned = !alone
            && self
                .draw
                .turned(in_run.manifest().run, run::id(task), epoch);
        Choice {
            task,
            purpose: Purpose::Count,
            orientation: match turned {
                true => Orientation::Turned,
                false => Orientation::Upright,
            },
        }
    }

    /// A task that came back; `again`: even one that this worker failed on, or that somebody took
    /// away and vanished.
    fn choose_returned(&self, run: RunIx, worker: WorkerIx, again: bool) -> Option<TaskIx> {
        let in_run = &self.runs[run];
        let shaken =
            |task| in_run.shaken().contains(task) || in_run.failed(*task).contains(&worker);
        let mut returned = in_run.returned().iter().take(SCAN);
        returned.find(|task| again || !shaken(task)).copied()
    }

    /// Nothing waits anywhere: a worker with idle threads gets copies of tasks that others hold
    /// without having begun them, or have held for long.
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
                    Stage::Done => self.second(run, task),
                    Stage::Pending | Stage::Leased | Stage::Parked | Stage::Quarantined => {
                        self.count(run, worker, task)
                    }
                };
                self.give((run, worker), choice, reply);
                budget.spend(self.runs[run].cost(task));
            }
        }
    }

    /// A task that one other worker alone holds: the last of those not begun, which it would begin
    /// last, else the one begun longest ago. A second count is no business of the machine that made
    /// the first.
    fn choose_straggler(&self, run: RunIx, worker: WorkerIx) -> Option<TaskIx> {
        let in_run = &self.runs[run];
        let now = self.clock.ticks();
        let before = now.checked_sub(BACKUP_AFTER_MS)?;
        let ripe = (Bound::Unbounded, Bound::Included((before, TaskIx::MAX)));
        let [waiting, begun] = in_run.alone();
        let suits = |&&(_, task): &&(u64, TaskIx)| {
            let key: LeaseIx = (run, task);
            let first = in_run.tasks().done(task).map(|done| done.worker);
            !self.workers.get(worker).leases.contains_key(&key)
                && !in_run.failed(task).contains(&worker)
                && first.is_none_or(|first| !self.workers.same_machine(first, worker))
        };
        let scan = SCAN + self.workers.get(worker).leases.len();
        waiting
            .range(ripe)
            .rev()
            .take(scan)
            .find(suits)
            .or_else(|| begun.range(ripe).take(scan).find(suits))
            .map(|&(_, task)| task)
    }
}
