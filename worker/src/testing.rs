//! What several tests of this crate build on.

use common::{
    board::Board,
    count::Orientation,
    kernel::KernelName,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
    run::{Epoch, Partial, RunId, TaskRef},
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
