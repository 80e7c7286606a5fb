//! States and details of the tasks of a run, for display.

use std::ops::Range;

use common::{
    messages::run::RunId,
    plan::{Plan, TaskId},
};

use crate::{
    clock::Millis,
    ledger::{
        Confirmation, Stage,
        tasks::{self, TaskIx, UNKNOWN_S},
    },
    run::Run,
    snapshot::Snapshot,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapState {
    Pending,
    /// Waits at a worker.
    Leased,
    /// A worker counts it.
    Counting,
    /// Counted once.
    Done,
    /// Confirmed by a recheck or the referee.
    Confirmed,
    Parked,
    Disputed,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    pub task: TaskId,
    pub state: MapState,
    /// Units of the task in the plan.
    pub units: Range<u64>,
    /// Estimated microseconds of one reference core.
    pub cost: u64,
    pub count: Option<u64>,
    /// Names of the author of its count and of its holders, those that count it first.
    pub workers: Vec<String>,
    /// Age of the count, if known.
    pub accepted_ms_ago: Option<u64>,
    /// Confirmation of the count, if it was rechecked.
    pub confirmed_by: Option<&'static str>,
    /// Number of failed attempts.
    pub failed: u64,
    /// Conflicting counts of a disputed task.
    pub reports: Vec<u64>,
}

impl MapState {
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Leased,
        Self::Counting,
        Self::Done,
        Self::Confirmed,
        Self::Parked,
        Self::Disputed,
    ];

    /// Returns the state's name in JSON and for display.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Leased => "leased",
            Self::Counting => "counting",
            Self::Done => "done",
            Self::Confirmed => "confirmed",
            Self::Parked => "parked",
            Self::Disputed => "disputed",
        }
    }
}

fn map_state(run: &Run, task: TaskIx) -> MapState {
    match run.tasks().stage(task) {
        Stage::Pending => MapState::Pending,
        Stage::Leased => {
            let is_counted = run.leases_of(task).iter().any(|(_, lease)| lease.started.is_some());
            if is_counted { MapState::Counting } else { MapState::Leased }
        }
        Stage::Done => match run.tasks().done(task).map(|done| done.confirmed) {
            None | Some(Confirmation::None) => MapState::Done,
            Some(_) => MapState::Confirmed,
        },
        Stage::Parked => MapState::Parked,
        Stage::Disputed => MapState::Disputed,
    }
}
impl<'a> Snapshot<'a> {
    /// Returns a run's plan and its tasks' states in natural order; `None` if unknown.
    pub fn map_states(self, run: RunId) -> Option<(Plan, Vec<MapState>)> {
        let run = &self.runs[*self.by_id.get(&run)?];
        Some((run.plan.clone(), run.all_tasks().map(|task| map_state(run, task)).collect()))
    }

    /// Returns the details of a task; `None` if there is no such run or task.
    pub fn task_view(self, run: RunId, task: TaskId, now: Millis) -> Option<TaskView> {
        let run = &self.runs[*self.by_id.get(&run)?];
        if !run.plan.contains(task) {
            return None;
        }
        let at = tasks::index(task);
        let done = run.tasks().done(at);
        let now_ms = self.clock.steady(self.clock.at(now)).0;
        // A worker that has not called since the start has no name yet.
        let name = |worker| match self.workers.name(worker) {
            "" => self.workers.shown(worker),
            name => name.to_owned(),
        };
        let (counting, waiting): (Vec<_>, Vec<_>) =
            run.leases_of(at).iter().partition(|(_, lease)| lease.started.is_some());
        let holders = counting.into_iter().chain(waiting).map(|(worker, _)| *worker);
        let authors = done.map(|done| done.first.author).into_iter().chain(holders);
        Some(TaskView {
            task,
            state: map_state(run, at),
            units: run.plan.task_units(task),
            cost: run.cost(at),
            count: done.map(|done| done.first.count),
            workers: authors.map(name).collect(),
            accepted_ms_ago: done
                .filter(|done| done.accepted_s != UNKNOWN_S)
                .map(|done| now_ms.saturating_sub(u64::from(done.accepted_s) * 1000)),
            confirmed_by: done.and_then(|done| match done.confirmed {
                Confirmation::None => None,
                Confirmation::SameMachine => Some("the same machine, with the board rotated"),
                Confirmation::SameToken => Some("another machine"),
                Confirmation::OtherToken => Some("another machine with another token"),
                Confirmation::Referee => Some("the referee"),
            }),
            failed: run.failed(at).len() as u64,
            reports: run.disputed_counts(at).iter().map(|of| of.count).collect(),
        })
    }
}
