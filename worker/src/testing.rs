//! What several tests of this crate build on.

use std::sync::{Arc, mpsc};

use common::{
    board::Board,
    canary::Wrong,
    count::{CountError, Orientation, Setup, SetupError, Watch},
    kernel::KernelName,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
    run::{Epoch, Partial, RunId, TaskRef},
    sync::Grant,
};

use crate::{
    machine::{LeaseKey, Work},
    pool::{CountTask, Job, MakeCounter},
};

/// The run that all tests speak of.
pub(crate) const RUN: RunId = RunId(0xa1);

/// A plan of many tasks on a small board.
pub(crate) fn plan(n: u8) -> Plan {
    let spec = PlanSpec {
        task_cost: 1,
        ..PlanSpec::new(Board::new(n).unwrap(), Layout::FirstRows)
    };
    Plan::new(spec).unwrap()
}

/// A task of `plan` in [`RUN`].
pub(crate) fn task_ref(plan: &Plan, task: u64) -> TaskRef {
    TaskRef {
        run: RUN,
        plan: plan.hash(),
        task: TaskId(task),
    }
}

/// The lease of a task of `plan` under its first epoch.
pub(crate) fn lease(plan: &Plan, task: u64) -> LeaseKey {
    LeaseKey {
        task: task_ref(plan, task),
        epoch: Epoch(1),
    }
}

/// The same lease's work.
pub(crate) fn work(plan: &Plan, task: u64) -> Work {
    Work::new(lease(plan, task), plan.clone(), Orientation::Upright)
}

/// The grant of that lease.
pub(crate) fn grant(plan: &Plan, task: u64) -> Grant {
    Grant {
        task: task_ref(plan, task),
        epoch: Epoch(1),
        spec: *plan.spec(),
        orientation: Orientation::Upright,
    }
}

/// A partial whose every field is unlike its default.
pub(crate) fn sample_partial(task: u64, epoch: u64) -> Partial {
    Partial {
        task: task_ref(&plan(8), task),
        epoch: Epoch(epoch),
        count: u64::MAX,
        kernel: KernelName::Scalar,
        orientation: Orientation::Turned,
        duration_us: 12,
    }
}

/// Counts until it is cancelled; says when it has begun.
struct Endless(mpsc::Sender<()>);

impl CountTask for Endless {
    fn count(&mut self, job: &Job) -> Result<u64, CountError> {
        // Who only wants it to be endless does not listen.
        let _ = self.0.send(());
        while job.advance(0).is_continue() {
            std::thread::yield_now();
        }
        Err(CountError::Cancelled)
    }
}

/// Counters that never come to an end by themselves, and word of each task that one has begun.
pub(crate) fn endless() -> (Arc<MakeCounter>, mpsc::Receiver<()>) {
    let (begun, begins) = mpsc::channel();
    let make = move |_: &Plan, _: &Setup| -> Result<Box<dyn CountTask>, SetupError> {
        Ok(Box::new(Endless(begun.clone())))
    };
    (Arc::new(make), begins)
}

/// What a canary says of a thread that counts wrong.
pub(crate) fn wrong() -> Wrong {
    Wrong::Count {
        what: "a known board".to_owned(),
        found: 93,
        known: 92,
    }
}

/// Counters that panic.
pub(crate) fn panicking() -> Arc<MakeCounter> {
    struct Panicking;
    impl CountTask for Panicking {
        fn count(&mut self, _: &Job) -> Result<u64, CountError> {
            panic!("no memory is whole")
        }
    }
    Arc::new(
        |_: &Plan, _: &Setup| -> Result<Box<dyn CountTask>, SetupError> { Ok(Box::new(Panicking)) },
    )
}
