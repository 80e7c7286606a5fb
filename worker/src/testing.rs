//! Fixtures of this crate's tests.

use std::{
    num::NonZeroU16,
    sync::{Arc, mpsc},
    time::Duration,
};

use cli::memory::MemorySize;
use common::{
    compute::kernel::{Kernel, KernelName},
    count::{CountError, CounterConfig, Orientation, ProgressSink as _},
    messages::{
        run::{Epoch, LeaseKey, Partial, Proof, RunId, SessionId, TaskRef},
        sync::{Acknowledgement, Grant, SyncReply, SyncRequest, Verdict, WorkerInfo},
    },
    method::Layout,
    plan::{Plan, TaskId},
    self_test::SelfTestError,
    test_fixture::plan_of_cost,
};

use crate::{
    config::ComputeBudget,
    engine::{JobOutcome, JobResult, Settings, Work},
    pool::{CountTask, Job, MakeCounter},
};

/// The run of all tests.
pub(crate) const RUN: RunId = RunId(0xa1);

/// Returns a plan of many tasks on a small board.
pub(crate) fn plan(n: u8) -> Plan {
    plan_of_cost(n, Layout::FirstRows, 1)
}

pub(crate) fn task_ref(plan: &Plan, task: u64) -> TaskRef {
    TaskRef { run: RUN, plan: plan.hash(), task: TaskId(task) }
}

/// Returns the lease of a task of `plan` under its first epoch.
pub(crate) fn lease(plan: &Plan, task: u64) -> LeaseKey {
    LeaseKey {
        task: task_ref(plan, task),
        epoch: Epoch(1),
        granted_unix_ms: 1_700_000_000_000,
        return_unix_ms: 0,
        proof: Proof(0xef),
    }
}

pub(crate) fn work(plan: &Plan, task: u64) -> Work {
    Work::new(lease(plan, task), plan.clone(), Orientation::Upright)
}

pub(crate) fn grant(plan: &Plan, task: u64) -> Grant {
    Grant { lease: lease(plan, task), spec: *plan.spec(), orientation: Orientation::Upright }
}

/// Returns the result of a task of `plan` on one thread.
pub(crate) fn result(plan: &Plan, task: u64, outcome: JobOutcome) -> JobResult {
    let duration = Duration::from_millis(1500);
    let (kernel, threads) = (KernelName::Scalar, NonZeroU16::MIN);
    JobResult { work: work(plan, task), outcome, kernel, duration, threads }
}

/// Returns a partial of the rotated board with the largest possible count.
pub(crate) fn sample_partial(task: u64, epoch: u64) -> Partial {
    Partial {
        lease: LeaseKey { epoch: Epoch(epoch), ..lease(&plan(10), task) },
        count: u64::MAX,
        kernel: KernelName::Scalar,
        orientation: Orientation::Rotated,
        duration_us: 12,
    }
}

/// Returns settings for two threads and spooled results; `None`: without a spool.
pub(crate) fn settings(unacknowledged: Option<Vec<Partial>>) -> Settings {
    Settings {
        info: WorkerInfo {
            session: SessionId(6),
            name: "tester".to_owned(),
            version: "0".to_owned(),
            kernel: KernelName::Scalar,
            threads: 2,
            memory_bytes_per_thread: 1 << 24,
            ..WorkerInfo::default()
        },
        idle_timeout: Some(Duration::from_secs(60)),
        drain_limit: Duration::from_secs(25),
        unacknowledged,
        failed_before: false,
    }
}

/// Returns a reply without content; the next call is due in 10 s.
pub(crate) fn quiet() -> SyncReply {
    SyncReply {
        next_sync_ms: 10_000,
        lease_ms: 60_000,
        self_test_stored: true,
        ..SyncReply::default()
    }
}

/// Returns the acknowledgement of a lease's result.
pub(crate) fn acknowledge(lease: &LeaseKey, verdict: Verdict) -> Acknowledgement {
    Acknowledgement { lease: *lease, verdict, reason: "a reason".to_owned() }
}

/// Returns the tasks of the leases that a request lists.
pub(crate) fn held(request: &SyncRequest) -> Vec<u64> {
    request.held.iter().map(|held| held.lease.task.task.0).collect()
}

/// Returns a budget of `threads` with 16 MiB each.
pub(crate) fn budget(threads: u32) -> ComputeBudget {
    ComputeBudget {
        threads: threads.to_string().parse().unwrap(),
        memory: MemorySize::new(u64::from(threads) << 24).unwrap(),
        crews: None,
        kernel: Kernel::SCALAR,
    }
}

/// Creates counters that count with `count`.
pub(crate) fn counters(
    count: impl Fn(&CounterConfig, &Job) -> Result<u64, CountError> + Clone + Send + Sync + 'static,
) -> Arc<MakeCounter> {
    Arc::new(move |_: &Plan, setup: &CounterConfig, _: Option<&_>| {
        let (count, setup) = (count.clone(), *setup);
        Ok(Box::new(move |job: &Job| count(&setup, job)) as CountTask)
    })
}

/// Creates counters that run until cancelled, and a channel of their setups.
pub(crate) fn endless() -> (Arc<MakeCounter>, mpsc::Receiver<CounterConfig>) {
    let (sender, started) = mpsc::channel();
    let make = counters(move |setup, job| {
        // Not every test waits for the start.
        let _ = sender.send(*setup);
        while job.advance(0).is_continue() {
            std::thread::yield_now();
        }
        Err(CountError::Cancelled)
    });
    (make, started)
}

/// Returns the error of a failed self-test.
pub(crate) fn wrong() -> SelfTestError {
    SelfTestError::Count { what: "a known board".to_owned(), found: 93, known: 92 }
}
