//! Builders and fixtures for tests: plans, true counts, workers and databases.

mod port;
pub mod postgres;

pub use port::Port;

use std::{
    fmt::Display,
    io::{self, Write as _},
};

use common::{
    board::Board,
    compute::kernel::{Kernel, KernelName},
    count::{Counter, CounterConfig, NoProgress},
    messages::{
        run::{Epoch, LeaseKey, Partial, Proof, RunId, SessionId, TaskRef, WorkerId},
        sync::{Grant, HeldLease, SyncReply, SyncRequest, WorkerInfo},
    },
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Prints that this machine cannot test something.
pub fn not_tested(what: impl Display) {
    // The output of `eprintln!` is shown only if the test fails.
    let _ = writeln!(io::stderr(), "!! NOT TESTED: {what}");
}

/// Makes the plan of a board; `task_cost` is in microseconds of the reference core.
pub fn plan(n: u8, layout: Layout, task_cost: u64) -> Plan {
    let board = Board::new(n).expect("N is 1 to 32");
    Plan::new(PlanSpec { board, layout, task_cost }).expect("a plan of a small board")
}

/// Returns the first lease of a task, with an invalid proof.
pub fn grant(run: RunId, plan: &Plan, task: u64) -> Grant {
    let task = TaskRef { run, plan: plan.hash(), task: TaskId(task) };
    let (epoch, proof) = (Epoch(1), Proof::default());
    let lease = LeaseKey { task, epoch, granted_unix_ms: 0, return_unix_ms: 0, proof };
    Grant { lease, spec: *plan.spec(), orientation: Default::default() }
}

/// Counts a granted task, in the orientation of its grant.
pub fn count(grant: &Grant) -> Partial {
    let plan = Plan::new(grant.spec).expect("the coordinator made the same plan");
    let setup = CounterConfig {
        kernel: Kernel::SCALAR,
        orientation: grant.orientation,
        ..CounterConfig::best(1 << 30)
    };
    let mut counter = Counter::new(&plan, &setup).expect("enough memory");
    let units = plan.task_units(grant.lease.task.task);
    partial(grant, counter.count(units, &NoProgress).expect("the count is not cancelled"))
}

/// Returns the identity of a machine, which is its upper half, as in issued identities.
fn worker_id(machine: u64) -> WorkerId {
    WorkerId(u128::from(machine) << 64)
}

/// A worker that a test drives; it builds messages and counts nothing.
#[derive(Clone, Debug)]
pub struct FakeWorker {
    pub id: WorkerId,
    /// The description in every call: one thread with 1 GiB and the portable kernel.
    pub info: WorkerInfo,
    /// Leases that the worker holds.
    pub held: Vec<Grant>,
    /// Whether calls report all held tasks as started.
    pub started: bool,
    /// Seconds of work that each call requests.
    pub seconds_wanted: f64,
}

impl FakeWorker {
    /// Creates a worker on a separate machine; both have this number.
    pub fn new(number: u64) -> Self {
        let info = WorkerInfo {
            session: SessionId(1),
            name: format!("worker-{number}"),
            version: "0.0.0".to_owned(),
            kernel: KernelName::Scalar,
            threads: 1,
            memory_bytes_per_thread: 1 << 30,
            machine: number,
            ..WorkerInfo::default()
        };
        let id = worker_id(number);
        Self { id, info, held: Vec::new(), started: false, seconds_wanted: 0.0 }
    }

    /// Returns a call that renews all leases.
    pub fn request(&self) -> SyncRequest {
        let held = |grant: &Grant| HeldLease { started: self.started, ..held(grant) };
        SyncRequest {
            worker: self.info.clone(),
            held: self.held.iter().map(held).collect(),
            partials: Vec::new(),
            seconds_wanted: self.seconds_wanted,
            draining: false,
            self_test: Default::default(),
            paused: String::new(),
            package: None,
        }
    }

    /// Returns a call that submits these counts.
    pub fn report(&self, partials: Vec<Partial>) -> SyncRequest {
        SyncRequest { partials, ..self.request() }
    }

    /// Adds the leases of a reply and drops those that were revoked.
    pub fn take(&mut self, reply: &SyncReply) {
        let new = reply.grants.iter().filter(|grant| !self.held.contains(grant)).copied();
        self.held.extend(new.collect::<Vec<_>>());
        self.held.retain(|grant| reply.revoked.iter().all(|gone| gone.lease != grant.lease));
    }
}

/// Returns the inventory entry of a task that is not started.
pub fn held(grant: &Grant) -> HeldLease {
    HeldLease { lease: grant.lease, cost_done: 0, started: false, failed: false }
}

/// Returns a submission of a task that the portable kernel counted in 1 µs.
pub fn partial(grant: &Grant, count: u64) -> Partial {
    Partial {
        lease: grant.lease,
        count,
        kernel: KernelName::Scalar,
        orientation: grant.orientation,
        duration_us: 1,
    }
}

/// Returns a submission of the same count by another worker, which a coordinator with this store's secret had
/// granted the task. The proof is computed independently of the scheduler.
pub fn as_if_leased(secret: [u8; 32], worker: u64, partial: Partial) -> Partial {
    let LeaseKey { task, epoch, granted_unix_ms, return_unix_ms, .. } = partial.lease;
    let mut keyed = Hmac::<Sha256>::new_from_slice(&secret).expect("keys of any length");
    keyed.update(b"lease 1");
    keyed.update(task.plan.as_bytes());
    for number in [task.run.0, task.task.0, epoch.0, granted_unix_ms, return_unix_ms] {
        keyed.update(&number.to_be_bytes());
    }
    keyed.update(&worker_id(worker).0.to_be_bytes());
    // A first count, in the partial's orientation.
    keyed.update(&[0, partial.orientation as u8]);
    let hash = keyed.finalize().into_bytes();
    let proof = Proof(u128::from_be_bytes(*hash.first_chunk().expect("32 bytes")));
    Partial { lease: LeaseKey { proof, ..partial.lease }, ..partial }
}
