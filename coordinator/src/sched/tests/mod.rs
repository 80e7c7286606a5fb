//! Each rule of the scheduler, one test.

mod agreements;
mod audit;
mod canaries;
mod control;
mod disputes;
mod grants;
mod leases;
mod map;
mod pace;
mod parking;
mod results;
mod second_opinions;
mod sequences;
mod tokens;
mod trust;
mod workers;

use std::sync::LazyLock;

use common::{
    board::Board,
    count::Orientation,
    kernel::KernelName,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
    run::{Epoch, Partial, RunId, SessionId, TaskRef, WorkerId},
    sync::{FailedCanaries, Grant, HeldLease, SyncReply, SyncRequest, Verdict, WorkerInfo},
    truth::Truth,
};

use super::*;
use crate::{
    ledger::Recheck,
    store::{MemoryStore, Record, Store},
};

const RUN: RunId = RunId(7);

/// N = 8 in the smallest tasks there are.
static TRUTH: LazyLock<Truth> = LazyLock::new(|| Truth::new(8, Layout::FirstRows));

/// N = 12: hundreds of tasks.
static MANY: LazyLock<Truth> = LazyLock::new(|| Truth::new(12, Layout::Border));

/// N = 20: hundreds of tasks of different costs, which nobody here has counted.
static LONG: LazyLock<Plan> = LazyLock::new(|| {
    let board = common::board::Board::new(20).unwrap();
    Plan::new(PlanSpec::new(board, Layout::Border)).unwrap()
});

/// Another board, of which so much is counted twice.
fn scheduler_of(plan: &Plan, recheck: Recheck) -> Scheduler {
    let mut scheduler = Scheduler::new(Config::default(), 1);
    scheduler.restored(Millis(0));
    let manifest = manifest_of(plan, RUN, 0);
    scheduler.add_run(&manifest, plan.clone(), RunState::Running);
    scheduler.restore_recheck(RUN, recheck);
    scheduler
}

fn manifest(run: RunId, priority: i32) -> RunManifest {
    manifest_of(&TRUTH.plan, run, priority)
}

fn manifest_of(plan: &Plan, run: RunId, priority: i32) -> RunManifest {
    RunManifest {
        run,
        spec: *plan.spec(),
        plan: plan.hash(),
        plan_version: plan.spec().version(),
        priority,
        created_unix_ms: 0,
        key: None,
    }
}

fn scheduler_with(config: Config) -> Scheduler {
    let mut scheduler = Scheduler::new(config, 1);
    scheduler.restored(Millis(0));
    scheduler.add_run(&manifest(RUN, 0), TRUTH.plan.clone(), RunState::Running);
    scheduler
}

/// A run of which so much is counted twice.
fn rechecked(recheck: Recheck) -> Scheduler {
    let mut scheduler = scheduler();
    scheduler.restore_recheck(RUN, recheck);
    scheduler
}

fn scheduler() -> Scheduler {
    scheduler_with(Config::default())
}

/// The next life of the coordinator, with everything the first one decided on disk.
fn restarted(first: &mut Scheduler, config: Config) -> Scheduler {
    restarted_at(first, config, 0)
}

/// The same, at a time.
fn restarted_at(first: &mut Scheduler, config: Config, now: u64) -> Scheduler {
    let mut store = MemoryStore::new();
    let manifest = first.runs()[0].manifest.clone();
    store.create(&manifest).unwrap();
    store.apply(&changes(first)).unwrap();
    let mut second = Scheduler::new(config, 2);
    for record in store.trust().unwrap() {
        second.restore_trust(&record);
    }
    second.add_run(&manifest, TRUTH.plan.clone(), RunState::Running);
    second.restore_recheck(RUN, first.runs[0].recheck());
    store
        .scan(RUN, &mut |row| second.restore_task(RUN, row))
        .unwrap();
    second.restored(Millis(now));
    second.audit().unwrap();
    second
}

fn changes(scheduler: &mut Scheduler) -> Vec<Change> {
    std::iter::from_fn(|| scheduler.poll_change()).collect()
}

/// Until the run is over each worker says of what it gets the true count and `wrong` more; the time then.
fn until_over(
    scheduler: &mut Scheduler,
    workers: &mut [Puppet],
    wrong: impl Fn(WorkerId, TaskRef) -> u64,
) -> u64 {
    let mut now = 0;
    while scheduler.runs()[0].state == RunState::Running {
        now += 1_000;
        assert!(now < 500_000, "{:#?}", scheduler.status(RUN, Millis(now)));
        for worker in &mut *workers {
            worker.sync(scheduler, now);
            for grant in std::mem::take(&mut worker.held) {
                let count = truth(grant.task) + wrong(worker.info.id, grant.task);
                worker.say(scheduler, &grant, count);
            }
            scheduler.audit().unwrap();
        }
    }
    now
}

/// Every task done with its true count by as many workers as it takes.
fn drive(scheduler: &mut Scheduler, workers: &mut [Puppet], mut now: u64) -> u64 {
    for _ in 0..10_000 {
        if scheduler.poll_finished().is_some() {
            return now;
        }
        for worker in &mut *workers {
            worker.finish(scheduler, now);
            scheduler.audit().unwrap();
        }
        now += 1_000;
    }
    panic!("no end: {:#?}", scheduler.status(RUN, Millis(now)));
}

fn numbers(scheduler: &Scheduler) -> TaskNumbers {
    scheduler.runs()[0].tasks
}

fn task(task: u64) -> TaskRef {
    TaskRef {
        run: RUN,
        plan: TRUTH.plan.hash(),
        task: TaskId(task),
    }
}

fn truth(task: TaskRef) -> u64 {
    TRUTH.counts[usize::try_from(task.task.0).unwrap()]
}

/// A worker as the scheduler sees it: what it holds and what it says.
struct Puppet {
    info: WorkerInfo,
    held: Vec<Grant>,
    wants: f64,
    /// What it says of everything it holds.
    started: bool,
    /// The token that vouches for it.
    token: Option<Arc<str>>,
}

impl Puppet {
    fn new(id: u128) -> Self {
        Self {
            info: WorkerInfo {
                id: WorkerId(id),
                session: SessionId(1),
                name: format!("worker-{id}"),
                version: "1".to_owned(),
                kernel: KernelName::Scalar,
                threads: 1,
                memory_bytes_per_thread: 1 << 30,
                machine: u64::try_from(id).unwrap_or(0) + 1,
            },
            held: Vec::new(),
            wants: 60.0,
            started: false,
            token: None,
        }
    }

    fn request(&self) -> SyncRequest {
        SyncRequest {
            worker: self.info.clone(),
            held: self
                .held
                .iter()
                .map(|grant| HeldLease {
                    task: grant.task,
                    epoch: grant.epoch,
                    cost_done: 0,
                    started: self.started,
                })
                .collect(),
            partials: Vec::new(),
            seconds_wanted: self.wants,
            draining: false,
            failed_canaries: FailedCanaries::default(),
            paused: String::new(),
        }
    }

    fn take(&mut self, reply: &SyncReply) {
        for grant in &reply.grants {
            if !self.held.contains(grant) {
                self.held.push(*grant);
            }
        }
        let revoked = |grant: &Grant| {
            let lease = (grant.task, grant.epoch);
            reply
                .revoked
                .iter()
                .any(|gone| (gone.task, gone.epoch) == lease)
        };
        self.held.retain(|grant| !revoked(grant));
    }

    fn sync(&mut self, scheduler: &mut Scheduler, now: u64) -> SyncReply {
        let reply = scheduler.sync_by(self.token.as_ref(), &self.request(), Millis(now));
        self.take(&reply);
        reply
    }

    fn partial(&self, grant: &Grant, count: u64) -> Partial {
        Partial {
            task: grant.task,
            epoch: grant.epoch,
            count,
            kernel: self.info.kernel,
            orientation: grant.orientation,
            duration_us: 1_000,
        }
    }

    /// Finishes everything it holds with the true counts.
    fn finish(&mut self, scheduler: &mut Scheduler, now: u64) -> SyncReply {
        let partials = self
            .held
            .iter()
            .map(|grant| self.partial(grant, truth(grant.task)))
            .collect();
        self.held.clear();
        let request = SyncRequest {
            partials,
            ..self.request()
        };
        let reply = scheduler.sync_by(self.token.as_ref(), &request, Millis(now));
        self.take(&reply);
        reply
    }

    /// Calls, and wants nothing.
    fn say_nothing(&self, scheduler: &mut Scheduler) {
        let request = SyncRequest {
            seconds_wanted: 0.0,
            ..self.request()
        };
        let now = scheduler.clock.wall(scheduler.clock.ticks());
        scheduler.sync_by(self.token.as_ref(), &request, now);
    }

    /// Reports a count for a task, holding nothing and wanting nothing.
    fn say(&self, scheduler: &mut Scheduler, grant: &Grant, count: u64) -> (Verdict, String) {
        let request = SyncRequest {
            partials: vec![self.partial(grant, count)],
            seconds_wanted: 0.0,
            ..self.request()
        };
        let now = scheduler.clock.wall(scheduler.clock.ticks());
        let mut reply = scheduler.sync_by(self.token.as_ref(), &request, now);
        let answer = reply.acknowledgements.pop().unwrap();
        (answer.verdict, answer.reason)
    }
}

fn accepted(changes: &[Change]) -> Vec<&Record> {
    changes
        .iter()
        .filter_map(|change| match change {
            Change::Accepted(record) => Some(record),
            _ => None,
        })
        .collect()
}
