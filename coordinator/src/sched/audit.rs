//! Consistency of the scheduler's own books, for simulations and tests.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Scheduler,
    index::{RunIx, TaskIx},
    leases::COPIES,
    run::Run,
    tasks::Stage,
    worker::Purpose,
};

/// Books that disagree.
#[derive(Debug, thiserror::Error)]
pub enum Imbalance {
    /// A number or a set is not what its members make it.
    #[error("{what}: {kept} kept, {counted} counted")]
    Kept {
        /// Which.
        what: &'static str,
        /// As it is kept.
        kept: String,
        /// As it was counted anew.
        counted: String,
    },
    /// A task is not where its stage wants it.
    #[error("task {task} {how}")]
    Task {
        /// The task.
        task: u32,
        /// In which way.
        how: &'static str,
    },
    /// A worker holds what it should not.
    #[error("worker {worker} {how}")]
    Worker {
        /// Its number in this scheduler.
        worker: u32,
        /// In which way.
        how: &'static str,
    },
}

impl Imbalance {
    fn of(task: TaskIx, how: &'static str) -> Self {
        Self::Task { task, how }
    }
}

impl Scheduler {
    /// Recounts everything that is kept in more than one place; an error names what disagrees.
    /// Takes time in proportion to the number of tasks.
    pub fn audit(&self) -> Result<(), Imbalance> {
        for (number, run) in self.runs.iter().enumerate() {
            audit_stages(run)?;
            self.audit_leases(number)?;
        }
        for (number, worker) in self.workers.iter() {
            if !worker.leases.is_empty() && worker.deadline.is_none() {
                let how = "holds leases without a deadline";
                return Err(Imbalance::Worker {
                    worker: number,
                    how,
                });
            }
            if worker.leases.len() > self.config.leases_per_worker {
                let how = "holds too many leases";
                return Err(Imbalance::Worker {
                    worker: number,
                    how,
                });
            }
        }
        let live_threads: u64 = self
            .workers
            .live_ones()
            .map(|worker| self.workers.get(worker).threads_at_work())
            .sum();
        equal(
            "live threads",
            self.workers.live_threads(),
            live_threads.max(1),
        )
    }

    fn audit_leases(&self, number: RunIx) -> Result<(), Imbalance> {
        let run = &self.runs[number];
        let mut holders: BTreeMap<TaskIx, BTreeSet<_>> = BTreeMap::new();
        let mut alone = [BTreeSet::new(), BTreeSet::new()];
        let mut cost = 0u64;
        for (name, worker) in self.workers.iter() {
            for (&(of, task), lease) in worker.leases.range((number, 0)..=(number, TaskIx::MAX)) {
                debug_assert_eq!(of, number);
                let stage = match lease.purpose {
                    Purpose::Count => Stage::Leased,
                    Purpose::Recheck => Stage::Done,
                    Purpose::Decide => Stage::Quarantined,
                };
                equal("stage of a leased task", run.tasks().stage(task), stage)?;
                if lease.epoch > run.tasks().epoch(task) || lease.epoch == 0 {
                    return Err(Imbalance::of(task, "is leased under no epoch of its own"));
                }
                holders.entry(task).or_default().insert(name);
                cost += lease.cost_done;
                let copies = run.holders_of(task).len();
                if copies == 1 && lease.purpose != Purpose::Decide {
                    alone[usize::from(lease.started)].insert((lease.granted, task));
                }
            }
        }
        equal("cost under way", run.cost_under_way(), cost)?;
        equal("tasks held by one worker", run.alone(), &alone)?;
        equal("leased tasks", run.held().len(), holders.len())?;
        for (task, held_by) in run.held() {
            let in_run: BTreeSet<_> = held_by.iter().copied().collect();
            equal("holders", &in_run, &holders[task])?;
            if held_by.len() > COPIES || in_run.len() != held_by.len() {
                return Err(Imbalance::of(*task, "is held by too many, or twice by one"));
            }
        }
        for &task in run.contested() {
            equal("holders of a contested task", run.is_held(task), false)?;
        }
        for &task in run.seconds().running() {
            if !run.is_held(task) {
                return Err(Imbalance::of(task, "is rechecked by nobody"));
            }
        }
        Ok(())
    }
}

fn audit_stages(run: &Run) -> Result<(), Imbalance> {
    let tasks = || 0..TaskIx::try_from(run.tasks().len()).expect("at most MAX_TASKS");
    let stages = [
        Stage::Pending,
        Stage::Leased,
        Stage::Done,
        Stage::Parked,
        Stage::Quarantined,
    ];
    for stage in stages {
        let members: Vec<_> = tasks()
            .filter(|&task| run.tasks().stage(task) == stage)
            .collect();
        let cost: u64 = members.iter().map(|&task| run.cost(task)).sum();
        equal(
            "tasks of a stage",
            run.tasks().number(stage),
            members.len() as u64,
        )?;
        equal("cost of a stage", run.tasks().cost(stage), cost)?;
    }
    let in_stage = |stage, set: &BTreeSet<TaskIx>| {
        let wrong = set.iter().find(|&&task| run.tasks().stage(task) != stage);
        wrong.map_or(Ok(()), |&task| Err(Imbalance::of(task, other_than(stage))))
    };
    in_stage(Stage::Pending, run.returned())?;
    in_stage(Stage::Parked, run.parking().tasks())?;
    equal(
        "parked tasks",
        run.parking().tasks().len() as u64,
        run.tasks().number(Stage::Parked),
    )?;
    if let Some(task) = run.shaken().difference(run.returned()).next() {
        return Err(Imbalance::of(*task, "was taken away and has not come back"));
    }
    in_stage(Stage::Quarantined, run.quarantined())?;
    in_stage(Stage::Quarantined, run.contested())?;
    in_stage(Stage::Done, run.seconds().running())?;
    let mut waiting = 0;
    for (first, seconds) in run.seconds().waiting() {
        waiting += seconds.len();
        let by_first =
            |task: &&TaskIx| run.tasks().done(**task).map(|done| done.worker) == Some(first);
        if let Some(task) = seconds.keys().find(|task| !by_first(task)) {
            return Err(Imbalance::of(
                *task,
                "is to be counted again, not as its worker's",
            ));
        }
    }
    equal(
        "second counts that wait",
        run.seconds().number_waiting(),
        waiting,
    )?;
    let upcoming: BTreeSet<_> = run.upcoming().collect();
    for task in tasks() {
        match run.tasks().stage(task) {
            Stage::Pending => {
                let comes_up = run.returned().contains(&task) || upcoming.contains(&task);
                if run.is_held(task) || !comes_up {
                    return Err(Imbalance::of(task, "is pending, and held or lost"));
                }
            }
            Stage::Leased => {
                if !run.is_held(task) {
                    return Err(Imbalance::of(task, "is leased, and nobody holds it"));
                }
            }
            Stage::Done | Stage::Parked => {}
            Stage::Quarantined => {
                if !run.contested().contains(&task) && !run.is_held(task) {
                    return Err(Imbalance::of(task, "is contested, and nobody decides it"));
                }
            }
        }
    }
    Ok(())
}

fn other_than(stage: Stage) -> &'static str {
    match stage {
        Stage::Pending => "is not pending",
        Stage::Leased => "is not leased",
        Stage::Done => "is not done",
        Stage::Parked => "is not parked",
        Stage::Quarantined => "is not quarantined",
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(
    what: &'static str,
    kept: T,
    counted: T,
) -> Result<(), Imbalance> {
    if kept == counted {
        Ok(())
    } else {
        Err(Imbalance::Kept {
            what,
            kept: format!("{kept:?}"),
            counted: format!("{counted:?}"),
        })
    }
}
