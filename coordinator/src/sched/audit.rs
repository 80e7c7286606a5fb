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

impl Scheduler {
    /// Recounts everything that is kept in more than one place; an error names what disagrees.
    /// Takes time in proportion to the number of tasks.
    pub fn audit(&self) -> Result<(), String> {
        for (number, run) in self.runs.iter().enumerate() {
            audit_stages(run)?;
            self.audit_leases(number)?;
        }
        for (number, worker) in self.workers.iter() {
            if !worker.leases.is_empty() && worker.deadline.is_none() {
                return Err(format!("worker {number} holds leases without a deadline"));
            }
            if worker.leases.len() > self.config.leases_per_worker {
                return Err(format!("worker {number} holds {}", worker.leases.len()));
            }
        }
        let live_threads: u64 = self
            .workers
            .live_ones()
            .map(|worker| u64::from(self.workers.get(worker).info.threads))
            .sum();
        equal(
            "live threads",
            self.workers.live_threads(),
            live_threads.max(1),
        )
    }

    fn audit_leases(&self, number: RunIx) -> Result<(), String> {
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
                equal("stage of a leased task", run.tasks.stage(task), stage)?;
                if lease.epoch > run.tasks.epoch(task) || lease.epoch == 0 {
                    return Err(format!("task {task} is leased under {}", lease.epoch));
                }
                holders.entry(task).or_default().insert(name);
                cost += lease.cost_done;
                let copies = run.holders.get(&task).map_or(0, Vec::len);
                if copies == 1 && lease.purpose != Purpose::Decide {
                    alone[usize::from(lease.started)].insert((lease.granted, task));
                }
            }
        }
        equal("cost under way", run.cost_under_way, cost)?;
        equal("tasks held by one worker", &run.alone, &alone)?;
        equal("leased tasks", run.holders.len(), holders.len())?;
        for (task, held_by) in &run.holders {
            let in_run: BTreeSet<_> = held_by.iter().copied().collect();
            equal("holders", &in_run, &holders[task])?;
            if held_by.len() > COPIES || in_run.len() != held_by.len() {
                return Err(format!("task {task} is held by {held_by:?}"));
            }
        }
        for &task in &run.contested {
            equal("holders of a contested task", run.holders.get(&task), None)?;
        }
        for &task in run.seconds.running() {
            if !run.holders.contains_key(&task) {
                return Err(format!("nobody rechecks task {task}"));
            }
        }
        Ok(())
    }
}

fn audit_stages(run: &Run) -> Result<(), String> {
    let tasks = || 0..TaskIx::try_from(run.tasks.len()).expect("at most MAX_TASKS");
    let stages = [
        Stage::Pending,
        Stage::Leased,
        Stage::Done,
        Stage::Parked,
        Stage::Quarantined,
    ];
    for stage in stages {
        let members: Vec<_> = tasks()
            .filter(|&task| run.tasks.stage(task) == stage)
            .collect();
        let cost: u64 = members.iter().map(|&task| run.cost(task)).sum();
        equal(
            "tasks of a stage",
            run.tasks.number(stage),
            members.len() as u64,
        )?;
        equal("cost of a stage", run.tasks.cost(stage), cost)?;
    }
    let in_stage = |stage, set: &BTreeSet<TaskIx>| {
        let wrong = set.iter().find(|&&task| run.tasks.stage(task) != stage);
        wrong.map_or(Ok(()), |task| Err(format!("task {task} is not {stage:?}")))
    };
    in_stage(Stage::Pending, &run.returned)?;
    in_stage(Stage::Parked, run.parking.tasks())?;
    equal(
        "parked tasks",
        run.parking.tasks().len() as u64,
        run.tasks.number(Stage::Parked),
    )?;
    if let Some(task) = run.shaken.difference(&run.returned).next() {
        return Err(format!("task {task} was taken away and has not come back"));
    }
    in_stage(Stage::Quarantined, &run.quarantined)?;
    in_stage(Stage::Quarantined, &run.contested)?;
    in_stage(Stage::Done, run.seconds.running())?;
    let mut waiting = 0;
    for (first, seconds) in run.seconds.waiting() {
        waiting += seconds.len();
        let by_first =
            |task: &&TaskIx| run.tasks.done(**task).map(|done| done.worker) == Some(first);
        if let Some(task) = seconds.keys().find(|task| !by_first(task)) {
            return Err(format!(
                "task {task} is to be counted again, not as worker {first}'s"
            ));
        }
    }
    equal(
        "second counts that wait",
        run.seconds.number_waiting(),
        waiting,
    )?;
    let upcoming: BTreeSet<_> = run.upcoming().collect();
    for task in tasks() {
        match run.tasks.stage(task) {
            Stage::Pending => {
                let comes_up = run.returned.contains(&task) || upcoming.contains(&task);
                if run.holders.contains_key(&task) || !comes_up {
                    return Err(format!("pending task {task} is held, or lost"));
                }
            }
            Stage::Leased => {
                if !run.holders.contains_key(&task) {
                    return Err(format!("nobody holds leased task {task}"));
                }
            }
            Stage::Done | Stage::Parked => {}
            Stage::Quarantined => {
                if !run.contested.contains(&task) && !run.holders.contains_key(&task) {
                    return Err(format!("nobody decides task {task}"));
                }
            }
        }
    }
    Ok(())
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, kept: T, counted: T) -> Result<(), String> {
    if kept == counted {
        Ok(())
    } else {
        Err(format!("{what}: {kept:?} kept, {counted:?} counted"))
    }
}
