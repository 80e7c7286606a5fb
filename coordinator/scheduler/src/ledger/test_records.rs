//! Builders of records for tests.

use common::{
    board::Board,
    compute::kernel::KernelName,
    count::Orientation,
    messages::run::{Epoch, RunId, WorkerId},
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
};

use super::{Fold, JournalEntry, Principal, Record, RunManifest, Trust, TrustRecord};

pub(crate) const RUN: RunId = RunId(3);

/// Returns the plan of N = 8 with the smallest tasks.
pub(crate) fn plan() -> Plan {
    let spec = PlanSpec::new(Board::new(8).unwrap(), Layout::FirstRows);
    Plan::new(PlanSpec { task_cost: 1, ..spec }).unwrap()
}

pub(crate) fn manifest(plan: &Plan) -> RunManifest {
    RunManifest::new(RUN, plan, 0, 1_000)
}

/// Creates a count by a worker on a separate machine, without a token.
pub(crate) fn record(task: u64, worker: u64, count: u64) -> Record {
    Record {
        run: RUN,
        task: TaskId(task),
        epoch: Epoch(worker),
        count,
        worker: WorkerId(worker.into()),
        principal: Principal::new(worker, None),
        version: "1.0".to_owned(),
        kernel: KernelName::Scalar,
        orientation: Orientation::Upright,
        duration_us: 5,
        accepted_unix_ms: 2_000,
        elapsed_ms: 100 * worker,
    }
}

/// Creates a change of the trust in a worker on a separate machine.
pub(crate) fn trust(worker: u64, trust: Trust, since_unix_ms: u64) -> TrustRecord {
    TrustRecord {
        worker: WorkerId(worker.into()),
        principal: Principal::new(worker + 1, None),
        name: String::new(),
        trust,
        reason: String::new(),
        since_unix_ms,
    }
}

pub(crate) fn fold(entries: &[JournalEntry]) -> Fold {
    let plan = plan();
    let mut fold = Fold::new(&manifest(&plan), &plan);
    for (entry, sequence) in entries.iter().zip(1..) {
        fold.take(&plan, entry, sequence).unwrap();
    }
    fold
}
