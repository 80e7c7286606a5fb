//! A run's tasks as a map: where each stands, many of them in one cell.

use std::ops::Range;

use common::{
    plan::{Plan, TaskId},
    run::RunId,
};

use super::{Scheduler, run, tasks::Stage};
use crate::ledger::Confirmed;

/// Consecutive tasks of a run, divided into cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMap {
    /// The tasks that are told of.
    pub tasks: Range<u64>,
    /// Tasks in one cell; the last may hold fewer.
    pub per_cell: u64,
    /// The cells, in the plan's natural order.
    pub cells: Vec<MapCell>,
}

/// Where one task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has it.
    Waiting,
    /// A worker has it.
    Leased,
    /// Counted once.
    Done,
    /// Counted a second time, with the same result.
    Confirmed,
    /// Set aside after failed attempts.
    Parked,
    /// Its counts contradict each other.
    Contested,
}

/// How many tasks of a cell are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCell {
    /// Nobody has them.
    pub waiting: u32,
    /// A worker has them.
    pub leased: u32,
    /// Counted once.
    pub done: u32,
    /// Counted a second time, with the same result.
    pub confirmed: u32,
    /// Set aside after failed attempts.
    pub parked: u32,
    /// Their counts contradict each other.
    pub contested: u32,
}

/// One task, looked at closely.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    /// Its name.
    pub task: TaskId,
    /// One word for where it stands.
    pub state: &'static str,
    /// Its units in the plan.
    pub units: Range<u64>,
    /// Estimated microseconds of one reference core.
    pub cost: u64,
    /// Its accepted count.
    pub count: Option<u64>,
    /// The names of those who hold it, or whose count stands.
    pub workers: Vec<String>,
    /// Attempts that failed.
    pub failed: u64,
    /// Its contradicting counts.
    pub reports: Vec<u64>,
}

impl Scheduler {
    /// The tasks `wanted` of a run in at most `cells` cells; `None` if there is no such run. It looks at
    /// every task of the range.
    pub fn task_map(&self, run: RunId, wanted: Range<u64>, cells: u64) -> Option<TaskMap> {
        let run = &self.runs[*self.by_id.get(&run)?];
        let end = wanted.end.min(run.tasks().len());
        let tasks = wanted.start.min(end)..end;
        let per_cell = (tasks.end - tasks.start).div_ceil(cells.max(1)).max(1);
        let mut map = Vec::new();
        let mut start = tasks.start;
        while start < tasks.end {
            let end = (start + per_cell).min(tasks.end);
            let mut cell = MapCell::default();
            for task in start..end {
                cell.add(standing(run, run::index(TaskId(task))));
            }
            map.push(cell);
            start = end;
        }
        Some(TaskMap {
            tasks,
            per_cell,
            cells: map,
        })
    }

    /// The plan of a run and where each of its tasks stands, in the plan's natural order; `None` if there
    /// is no such run.
    pub fn standings(&self, run: RunId) -> Option<(Plan, Vec<Standing>)> {
        let run = &self.runs[*self.by_id.get(&run)?];
        let tasks = (0..run.tasks().len()).map(|task| standing(run, run::index(TaskId(task))));
        Some((run.plan().clone(), tasks.collect()))
    }

    /// One task of a run; `None` if there is no such run or task.
    pub fn task_view(&self, run: RunId, task: TaskId) -> Option<TaskView> {
        let run = &self.runs[*self.by_id.get(&run)?];
        if !run.plan().contains(task) {
            return None;
        }
        let at = run::index(task);
        let done = run.tasks().done(at);
        // One that has not called since the start has no name yet.
        let name = |worker| match self.workers.name(worker) {
            "" => self.workers.shown(worker),
            name => name.to_owned(),
        };
        let holders = run.holders_of(at).iter().copied();
        let whose = done.map(|done| done.worker).into_iter().chain(holders);
        let confirmed = done.is_some_and(|done| done.confirmed != Confirmed::No);
        Some(TaskView {
            task,
            state: match run.tasks().stage(at) {
                Stage::Pending => "waiting",
                Stage::Leased => "leased",
                Stage::Done if confirmed => "confirmed",
                Stage::Done => "done",
                Stage::Parked => "parked",
                Stage::Quarantined => "contested",
            },
            units: run.plan().task_units(task),
            cost: run.cost(at),
            count: done.map(|done| done.count),
            workers: whose.map(name).collect(),
            failed: run.failed(at).len() as u64,
            reports: run.reports(at).iter().map(|report| report.count).collect(),
        })
    }
}

impl MapCell {
    /// One task more.
    pub fn add(&mut self, standing: Standing) {
        let number = match standing {
            Standing::Waiting => &mut self.waiting,
            Standing::Leased => &mut self.leased,
            Standing::Done => &mut self.done,
            Standing::Confirmed => &mut self.confirmed,
            Standing::Parked => &mut self.parked,
            Standing::Contested => &mut self.contested,
        };
        *number += 1;
    }
}

fn standing(run: &run::Run, task: u32) -> Standing {
    match run.tasks().stage(task) {
        Stage::Pending => Standing::Waiting,
        Stage::Leased => Standing::Leased,
        Stage::Done if run.tasks().is_confirmed(task) => Standing::Confirmed,
        Stage::Done => Standing::Done,
        Stage::Parked => Standing::Parked,
        Stage::Quarantined => Standing::Contested,
    }
}
