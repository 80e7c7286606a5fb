//! Consistency of the scheduler's state, for simulations and tests.

use std::{collections::BTreeSet, fmt};

use crate::{
    fleet::RunIx,
    ledger::{Stage, tasks::TaskIx},
    run::{Purpose, Run},
    snapshot::Snapshot,
};

/// A mismatch within the scheduler's state.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Mismatch(String);

fn audit_stages(run: &Run) -> Result<(), Mismatch> {
    let tasks = run.tasks();
    for stage in Stage::ALL {
        let members: Vec<_> = run.all_tasks().filter(|&task| tasks.stage(task) == stage).collect();
        let cost: u64 = members.iter().map(|&task| run.cost(task)).sum();
        equal("tasks of a stage", tasks.number(stage), members.len() as u64)?;
        equal("cost of a stage", tasks.cost(stage), cost)?;
    }
    let returned = run.pending().returned().iter().map(|task| (task, Stage::Pending));
    let parked = run.parking().tasks().iter().map(|task| (task, Stage::Parked));
    let disputed = run.tasks().disputed().keys().map(|task| (task, Stage::Disputed));
    for (&task, stage) in returned.chain(parked).chain(disputed) {
        equal("stage of a queued task", tasks.stage(task), stage)?;
    }
    equal("parked tasks", run.parking().tasks().len() as u64, tasks.number(Stage::Parked))?;
    equal("disputed tasks", run.tasks().disputed().len() as u64, tasks.number(Stage::Disputed))?;
    let is_consistent = run.pending().is_consistent(|task| !run.failed(task).is_empty());
    check(is_consistent, format_args!("the sets of returned tasks"), "differ")?;
    for &(author, task) in run.rechecks().keys() {
        let is_by_author = tasks.done(task).is_some_and(|done| done.first.author == author);
        check_task(is_by_author, task, "has a recheck under another author")?;
        check_task(!run.is_held(task), task, "is queued for a recheck while a worker holds it")?;
    }
    let upcoming: BTreeSet<_> = run.upcoming().collect();
    for task in run.all_tasks() {
        let is_held = run.is_held(task);
        match tasks.stage(task) {
            Stage::Pending => {
                let comes_up = run.pending().returned().contains(&task) || upcoming.contains(&task);
                check_task(!is_held && comes_up, task, "is pending, and held or lost")?;
            }
            Stage::Leased => check_task(is_held, task, "is leased, and no worker holds it")?,
            Stage::Done | Stage::Parked | Stage::Disputed => {}
        }
    }
    Ok(())
}

fn check_task(holds: bool, task: TaskIx, otherwise: &str) -> Result<(), Mismatch> {
    check(holds, format_args!("task {task}"), otherwise)
}

fn check(holds: bool, subject: fmt::Arguments, otherwise: &str) -> Result<(), Mismatch> {
    if holds { Ok(()) } else { Err(Mismatch(format!("{subject} {otherwise}"))) }
}

fn equal<T: PartialEq + fmt::Debug>(name: &str, found: T, expected: T) -> Result<(), Mismatch> {
    let is_equal = found == expected;
    let difference = || format!("{name}: {found:?}, expected {expected:?}");
    if is_equal { Ok(()) } else { Err(Mismatch(difference())) }
}
impl<'a> Snapshot<'a> {
    /// Verifies all data that is stored more than once; an error names the mismatch.
    /// Takes time in proportion to the number of tasks.
    pub fn audit(self) -> Result<(), Mismatch> {
        for (number, run) in self.runs.iter().enumerate() {
            audit_stages(run)?;
            self.audit_leases(number)?;
        }
        for (number, worker) in self.workers.iter() {
            let who = format_args!("worker {number}");
            let is_expected =
                worker.leases.is_empty() || worker.deadline.is_some() || worker.is_away();
            check(is_expected, who, "holds leases without a deadline")?;
            let is_allowed = worker.leases.len() <= self.config.leases_per_worker;
            check(is_allowed, who, "holds too many leases")?;
        }
        let live_threads: u64 =
            self.workers.connected().map(|worker| self.workers.get(worker).threads_at_work()).sum();
        equal("live threads", self.workers.live_threads(), live_threads.max(1))
    }

    fn audit_leases(self, number: RunIx) -> Result<(), Mismatch> {
        let run = &self.runs[number];
        check(run.leases.is_consistent(), format_args!("run {number}"), "has stale leases")?;
        for task in run.held() {
            let leases = run.leases_of(task);
            let holders: BTreeSet<_> = leases.iter().map(|(worker, _)| worker).collect();
            check_task(holders.len() == leases.len(), task, "is held twice by one worker")?;
            for (worker, lease) in leases {
                let holder = self.workers.find(*worker);
                let is_listed =
                    holder.is_some_and(|holder| holder.leases.contains(&(number, task)));
                check_task(is_listed, task, "has a lease that its worker does not list")?;
                let stage = match lease.purpose {
                    Purpose::Count => Stage::Leased,
                    Purpose::Recheck => Stage::Done,
                    Purpose::Recount => Stage::Disputed,
                };
                equal("stage of a leased task", run.tasks().stage(task), stage)?;
                let is_issued = (1..=run.epoch(task)).contains(&lease.epoch);
                check_task(is_issued, task, "is leased under an epoch that was not issued")?;
            }
        }
        for (worker, known) in self.workers.iter() {
            for &(_, task) in known.leases.range((number, 0)..=(number, TaskIx::MAX)) {
                check_task(run.lease(task, worker).is_some(), task, "is listed without a lease")?;
            }
        }
        Ok(())
    }
}
