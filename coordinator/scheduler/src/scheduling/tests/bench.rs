//! A scheduler driven by scripts, with its workers and its time.

use std::{
    collections::{BTreeMap, HashSet},
    str::FromStr,
    sync::{Arc, LazyLock},
};

use common::{
    compute::kernel::KernelName,
    count::Orientation,
    messages::{
        run::{Epoch, LeaseKey, Partial, Proof, RunId, SessionId, TaskRef, WorkerId},
        sync::{
            Grant, HeldLease, PackageLimits, SelfTestReport, SyncReply, SyncRequest, WorkerInfo,
        },
    },
    method::Layout,
    plan::{Plan, TaskId},
    test_fixture::{ExactCounts, plan},
};

use super::super::*;
use crate::{
    Recount, RunStatus,
    ledger::{Fold, Recheck, RunManifest, Settings, StoredTasks},
    run::Purpose,
};

pub(super) const RUN: RunId = RunId(7);

/// N = 8, with the smallest possible tasks.
static TRUTH: LazyLock<ExactCounts> = LazyLock::new(|| ExactCounts::new(8, Layout::FirstRows));

/// N = 12: hundreds of tasks.
static MANY: LazyLock<ExactCounts> = LazyLock::new(|| ExactCounts::new(12, Layout::Border));

/// N = 20: hundreds of tasks of different costs, without counts.
static LONG: LazyLock<Plan> = LazyLock::new(|| plan(20, Layout::Border));

/// A worker that a script drives: its leases, and its reports.
#[derive(Clone)]
pub(super) struct ScriptedWorker {
    pub(super) id: WorkerId,
    pub(super) info: WorkerInfo,
    pub(super) held: Vec<Grant>,
    pub(super) wants: f64,
    /// Whether the worker reports all its leases as started.
    started: bool,
    cost_done: u64,
    token: Option<Arc<str>>,
    trusted: bool,
    max_machines: Option<u32>,
    packages: PackageLimits,
    /// Duration reported for each count.
    duration_us: u64,
    /// The error in the counts of every n-th task, and n.
    lies: (u64, u64),
    passed: u64,
}

/// Parses a number, a name or a text.
pub(super) fn read<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("'{word}' is not valid"))
}

impl ScriptedWorker {
    fn new(id: u128) -> Self {
        Self {
            id: WorkerId(id),
            info: WorkerInfo {
                session: SessionId(1),
                name: format!("worker-{id}"),
                version: "1".to_owned(),
                kernel: KernelName::Scalar,
                threads: 1,
                memory_bytes_per_thread: 1 << 30,
                machine: u64::try_from(id).unwrap() + 1,
                ..WorkerInfo::default()
            },
            held: Vec::new(),
            wants: 60.0,
            started: false,
            cost_done: 0,
            token: None,
            trusted: false,
            max_machines: None,
            packages: PackageLimits::default(),
            duration_us: 1_000,
            lies: (0, 1),
            passed: 0,
        }
    }

    /// Sets a property, as `NAME=VALUE` or `NAME`.
    pub(super) fn set(&mut self, word: &str) {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "threads" => self.info.threads = read(value),
            "session" => self.info.session = SessionId(read(value)),
            "host" => self.info.machine = read(value),
            "kernel" => self.info.kernel = read(value),
            "memory" => self.info.memory_bytes_per_thread = read(value),
            "wants" => self.wants = read(value),
            "started" => self.started = true,
            "done" => self.cost_done = read(value),
            "token" => self.token = Some(value.into()),
            "trusted" => self.trusted = true,
            "machines" => self.max_machines = Some(read(value)),
            "away" => self.packages.away_seconds = read(value),
            "packages" => self.packages.tasks = read(value),
            "us" => self.duration_us = read(value),
            "passed" => self.passed = read(value),
            "lies" => {
                let (wrong, every) = value.split_once('%').unwrap_or((value, "1"));
                self.lies = (read(wrong), read(every));
            }
            other => panic!("{other}"),
        }
    }

    fn caller(&self) -> Caller {
        Caller {
            worker: self.id,
            token: self.token.clone(),
            public_name: None,
            trusted: self.trusted,
            max_machines: self.max_machines.and_then(std::num::NonZeroU32::new),
            packages: self.packages,
            machine: u64::try_from(self.id.0).unwrap() + 1,
        }
    }

    pub(super) fn request(&self) -> SyncRequest {
        let (started, cost_done) = (self.started, self.cost_done);
        let held =
            |grant: &Grant| HeldLease { lease: grant.lease, cost_done, started, failed: false };
        SyncRequest {
            worker: self.info.clone(),
            held: self.held.iter().map(held).collect(),
            partials: Vec::new(),
            seconds_wanted: self.wants,
            draining: false,
            self_test: SelfTestReport { tests_passed: self.passed, ..SelfTestReport::default() },
            paused: String::new(),
            package: None,
        }
    }

    /// Takes the grants of a reply, and drops the revoked leases.
    fn take(&mut self, reply: &SyncReply) {
        for grant in &reply.grants {
            if !self.held.contains(grant) {
                self.held.push(*grant);
            }
        }
        let revoked: HashSet<_> = reply.revoked.iter().map(|gone| gone.lease).collect();
        self.held.retain(|grant| !revoked.contains(&grant.lease));
    }
}

/// The store's key.
const KEY: [u8; 32] = [
    0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1,
];

/// A scheduler, its workers by number, and its time.
pub(super) struct Bench {
    pub(super) scheduler: Scheduler,
    pub(super) workers: BTreeMap<u128, ScriptedWorker>,
    pub(super) now: u64,
    config: Config,
    pub(super) threads: u32,
    pub(super) plan: &'static Plan,
    counts: &'static [u64],
    /// The recounts that were assigned.
    pub(super) recounts: Vec<Recount>,
    /// All decisions so far.
    pub(super) history: Vec<Change>,
}

impl Bench {
    /// Creates a scheduler with these settings; by default no task is rechecked.
    pub(super) fn new(settings: &[&str]) -> Self {
        let (mut plan, mut counts) = (&TRUTH.plan, &TRUTH.counts[..]);
        let mut config = Config::default();
        let (mut recheck, mut threads, mut elapsed_ms) = (Recheck::Millionths(0), 0, 0);
        for line in settings {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            match name {
                "recheck" => recheck = read(value),
                "referee" => threads = 1,
                "elapsed" => elapsed_ms = 1_000 * read::<u64>(value),
                "many" => (plan, counts) = (&MANY.plan, &MANY.counts),
                "long" => (plan, counts) = (&LONG, &[]),
                "recounts" => config.recounts = read(value),
                "grants-per-sync" => config.grants_per_sync = read(value),
                "partials-per-sync" => config.partials_per_sync = read(value),
                "leases-per-worker" => config.leases_per_worker = read(value),
                "workers" => config.workers = read(value),
                "workers-per-token" => config.workers_per_token = read(value),
                other => panic!("{other}"),
            }
        }
        let mut scheduler = Scheduler::new(config.clone(), 1);
        scheduler.set_key(KEY);
        scheduler.restored(Millis(0), 1);
        let run = StoredRun::new(RunManifest::new(RUN, plan, 0, 0), recheck);
        scheduler.add_run(run, plan.clone());
        scheduler.runs[0].time.counted_ms = elapsed_ms;
        scheduler.set_referee(threads, 1 << 30);
        Self {
            scheduler,
            workers: BTreeMap::new(),
            now: 0,
            config,
            threads,
            plan,
            counts,
            recounts: Vec::new(),
            history: Vec::new(),
        }
    }

    /// Creates a scheduler and takes steps.
    pub(super) fn after(settings: &[&str], steps: &[&str]) -> Self {
        let mut bench = Self::new(settings);
        steps.iter().for_each(|steps| drop(bench.steps(steps)));
        bench
    }

    pub(super) fn run(&self) -> &Run {
        &self.scheduler.runs[0]
    }

    pub(super) fn worker(&mut self, id: u128) -> &mut ScriptedWorker {
        self.workers.entry(id).or_insert_with(|| ScriptedWorker::new(id))
    }

    pub(super) fn task(&self, task: u64) -> TaskRef {
        TaskRef { run: RUN, plan: self.plan.hash(), task: TaskId(task) }
    }

    pub(super) fn truth(&self, task: TaskId) -> u64 {
        self.counts.get(usize::try_from(task.0).unwrap()).copied().unwrap_or(0)
    }

    /// Reads a count: `TASK`, with `r` for the orientation that was not granted.
    /// `!`, for an invalid proof, `@EPOCH` and `+WRONG` may follow: the excess, `most` for the highest count, `more` for one above.
    pub(super) fn count(&self, id: u128, word: &str) -> (Grant, u64) {
        let (word, wrong) = word.split_once('+').unwrap_or((word, "0"));
        let (word, epoch) = word.split_once('@').unwrap_or((word, "1"));
        let (word, is_forged) = word.strip_suffix('!').map_or((word, false), |word| (word, true));
        let rotated = word.strip_suffix('r');
        let task = self.task(read(rotated.unwrap_or(word)));
        let held = self.workers[&id].held.iter().find(|grant| grant.lease.task == task);
        let mut grant = held.copied().unwrap_or_else(|| self.earlier(id, task, read(epoch)));
        if rotated.is_some() {
            grant = self.granted(id, grant.lease, grant.orientation.rotated());
        }
        if is_forged {
            grant.lease.proof.0 ^= 1;
        }
        let count = match wrong {
            "most" => self.plan.task_limit(task.task),
            "more" => self.plan.task_limit(task.task) + 1,
            wrong => self.truth(task.task) + read::<u64>(wrong),
        };
        (grant, count)
    }

    /// Returns a lease that the coordinator granted to a worker earlier, under this epoch.
    fn earlier(&self, id: u128, task: TaskRef, epoch: u64) -> Grant {
        let (epoch, proof) = (Epoch(epoch), Proof::default());
        let lease = LeaseKey { task, epoch, granted_unix_ms: 0, return_unix_ms: 0, proof };
        self.granted(id, lease, Orientation::Upright)
    }

    /// Returns the grant of a lease, with a valid proof.
    pub(super) fn granted(&self, id: u128, lease: LeaseKey, orientation: Orientation) -> Grant {
        let worker = self.workers[&id].id;
        let lease = self.scheduler.proofs.prove(lease, worker, Purpose::Count, orientation);
        Grant { lease, spec: *self.plan.spec(), orientation }
    }

    pub(super) fn partial(&self, id: u128, grant: &Grant, count: u64) -> Partial {
        let worker = &self.workers[&id];
        Partial {
            lease: grant.lease,
            count,
            kernel: worker.info.kernel,
            orientation: grant.orientation,
            duration_us: worker.duration_us,
        }
    }

    /// Makes a worker's call, and verifies the state that it leaves.
    pub(super) fn call(&mut self, id: u128, request: &SyncRequest) -> SyncReply {
        let caller = self.workers[&id].caller();
        let reply = self.scheduler.sync_by(&caller, request, Millis(self.now));
        if self.workers.len() < 50 {
            self.scheduler.snapshot().audit().unwrap();
        }
        self.worker(id).take(&reply);
        reply
    }

    /// Lets a worker submit its counts of all its leases, and request more.
    pub(super) fn finish(&mut self, id: u128) -> SyncReply {
        let held = std::mem::take(&mut self.worker(id).held);
        let worker = &self.workers[&id];
        let (wrong, every) = worker.lies;
        let partials = held.iter().map(|grant| {
            let task = grant.lease.task.task;
            let lie = if task.0 % every == 0 { wrong } else { 0 };
            self.partial(id, grant, self.truth(task) + lie)
        });
        let request = SyncRequest { partials: partials.collect(), ..worker.request() };
        self.call(id, &request)
    }

    /// Advances the time in steps that the scheduler's clock follows.
    pub(super) fn wait(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now = end.min(self.now + 50_000);
            self.scheduler.advance(Millis(self.now));
            self.scheduler.snapshot().audit().unwrap();
        }
    }

    /// Assigns the next recount to the coordinator's referee.
    pub(super) fn assign(&mut self, urgent_only: bool) -> Option<Recount> {
        self.scheduler.next_recount(urgent_only, Millis(self.now))
    }

    /// Lets the referee count a task; its count is too high by `wrong`.
    pub(super) fn settle(&mut self, recount: &Recount, wrong: u64) {
        let count = self.truth(recount.task) + wrong;
        self.scheduler.recounted(recount, count, KernelName::Scalar, 5, Millis(self.now));
        self.scheduler.snapshot().audit().unwrap();
    }

    /// Lets these workers and the referee count until `is_over`, a second at a time.
    /// Returns the numbers of their records by kind.
    pub(super) fn drive(
        &mut self,
        workers: &[&str],
        is_refereed: bool,
        is_over: fn(&mut Self) -> bool,
    ) -> String {
        let (start, before) = (self.now, self.history.len());
        while !is_over(self) {
            self.now += 1_000;
            assert!(self.now < start + 10_000_000, "no end: {}", self.state());
            workers.iter().for_each(|id| drop(self.finish(read(id))));
            while let Some(recount) = is_refereed.then(|| self.assign(false)).flatten() {
                self.settle(&recount, 0);
            }
        }
        self.decisions();
        let mut kinds = BTreeMap::<_, u64>::new();
        for change in &self.history[before..] {
            if let Change::Recorded(entry) = change {
                *kinds.entry(format!("{:?}", entry.kind).to_lowercase()).or_default() += 1;
            }
        }
        let kinds: Vec<_> = kinds.iter().map(|(kind, number)| format!("{number} {kind}")).collect();
        format!("{} s, {}, {}", (self.now - start) / 1_000, kinds.join(", "), self.total())
    }

    pub(super) fn total(&self) -> String {
        let truth: u64 = self.counts.iter().sum();
        match self.scheduler.snapshot().total(RUN) {
            None => "no total".to_owned(),
            Some(total) if total == Ok(truth.into()) => "total right".to_owned(),
            Some(total) => format!("total wrong by {}", total.unwrap() - u128::from(truth)),
        }
    }

    /// Restarts the coordinator with all its decisions on disk.
    pub(super) fn restart(&mut self) {
        let mut settings = Settings { priority: 0, ..self.run().settings() };
        let (mut state, mut trust) = (RunState::Running, Vec::new());
        let manifest = RunManifest::new(RUN, self.plan, 0, 0);
        let mut fold = Fold::new(&manifest, self.plan);
        let mut open = BTreeMap::new();
        for (change, sequence) in self.history.iter().zip(1..) {
            match change {
                Change::Lease { task, after, .. } => drop(open.insert(*task, after.clone())),
                Change::Recorded(entry) => {
                    fold.take(self.plan, entry, sequence).unwrap();
                    open.remove(&entry.record.task);
                }
                Change::Trust(record) => trust.push(record.bounded()),
                Change::State { state: new, .. } => state = *new,
                Change::Settings { settings: new, .. } => settings = *new,
            }
        }
        self.scheduler = Scheduler::new(self.config.clone(), 2);
        self.scheduler.set_key(KEY);
        let trusted = self.workers.values().filter(|worker| worker.trusted);
        self.scheduler.restore_trusted_tokens(trusted.filter_map(|worker| worker.token.clone()));
        trust.iter().for_each(|record| self.scheduler.restore_trust(record));
        let stored = StoredTasks { fold, open: open.into_iter().collect() };
        let run = StoredRun { manifest, state, settings };
        self.scheduler.restore_run(run, self.plan.clone(), stored);
        self.scheduler.set_referee(self.threads, 1 << 30);
        self.scheduler.restored(Millis(self.now), 2);
        self.scheduler.snapshot().audit().unwrap();
        self.recounts.clear();
    }

    pub(super) fn status(&self) -> RunStatus {
        self.scheduler.snapshot().status(RUN, Millis(self.now)).unwrap()
    }
}
