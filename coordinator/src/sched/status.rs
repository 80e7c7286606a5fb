//! What people see of runs and workers.

use common::{
    plan::TaskId,
    run::RunId,
    sample::Estimate,
    sync::WorkerInfo,
    tally::{self, BadTally},
};

use super::{
    Millis, Scheduler,
    index::{RunIx, WorkerIx},
    run,
    tasks::Stage,
};
use crate::ledger::{RunManifest, RunState};

/// Quarantined tasks named in a status at most.
const NAMED_TASKS: usize = 100;

/// A worker is called silent when its call is late by as long as it was told to wait, and by this.
const SILENT_AFTER_MS: u64 = 10_000;

/// How many tasks of a run are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskNumbers {
    /// All.
    pub total: u64,
    /// Counted.
    pub done: u64,
    /// Leased and not counted.
    pub leased: u64,
    /// Waiting to be leased.
    pub pending: u64,
    /// Set aside after too many failed attempts.
    pub parked: u64,
    /// With contradicting counts.
    pub quarantined: u64,
}

/// Second counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rechecks {
    /// Tasks that were counted again and agreed.
    pub agreed: u64,
    /// Tasks whose counts disagreed, decided since or not.
    pub conflicts: u64,
    /// Done tasks whose second count is awaited.
    pub awaited: u64,
    /// Done tasks whose count a second one confirmed.
    pub confirmed: u64,
    /// Of these, the ones drawn by lot whose second count another machine made.
    pub compared: u64,
    /// Tasks whose counts disagree now, the first hundred of them.
    pub quarantined: Vec<TaskId>,
}

/// Everything about one run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStatus {
    /// What it is.
    pub manifest: RunManifest,
    /// How far it is.
    pub state: RunState,
    /// Its tasks.
    pub tasks: TaskNumbers,
    /// The fold of the accepted counts.
    pub solutions_so_far: u128,
    /// Part of its predicted cost that is done, 0 to 1, running tasks included.
    pub fraction_done: f64,
    /// Solutions counted a second, over the last minutes.
    pub solutions_per_second: f64,
    /// What is left by predicted cost, at the speed of the last minutes; `None` while that is 0.
    pub eta_seconds: Option<f64>,
    /// What the done tasks, a random sample, say of the total; `None` before there are enough.
    pub estimate: Option<Estimate>,
    /// Second counts.
    pub rechecks: Rechecks,
    /// Every live worker.
    pub workers: Vec<WorkerStatus>,
    /// Why nothing moves; empty while something does.
    pub reason: String,
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// What it is.
    pub manifest: RunManifest,
    /// How far it is.
    pub state: RunState,
    /// Its tasks.
    pub tasks: TaskNumbers,
}

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It holds leases.
    Working,
    /// It holds none.
    Idle,
    /// It has not called when it was told to, and its leases still last.
    Silent,
    /// It counts nothing for the time being, and says why.
    Paused,
    /// It is stopping.
    Draining,
    /// It has stopped and holds nothing more.
    Left,
    /// It holds leases and has not called since the coordinator started.
    Awaited,
    /// It has not called for the time of a lease.
    Lost,
    /// Its counts were wrong: it gets nothing more.
    Barred,
}

impl WorkerState {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Working,
        Self::Idle,
        Self::Silent,
        Self::Paused,
        Self::Draining,
        Self::Left,
        Self::Awaited,
        Self::Lost,
        Self::Barred,
    ];

    /// The word shown to people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Idle => "idle",
            Self::Silent => "silent",
            Self::Paused => "paused",
            Self::Draining => "draining",
            Self::Left => "left",
            Self::Awaited => "awaited",
            Self::Lost => "lost",
            Self::Barred => "barred",
        }
    }
}

/// One worker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerStatus {
    /// As it described itself last.
    pub info: WorkerInfo,
    /// What it is doing.
    pub state: WorkerState,
    /// Its counting threads that counted what is known wrong, and were stopped.
    pub failed_threads: u32,
    /// It was told that every run is over, so that it need not wait for more.
    pub knows_the_end: bool,
    /// Leases it holds.
    pub leases: u64,
    /// Tasks that it was counting when it called last, each by a crew of its threads.
    pub crews: u32,
    /// Why it counts nothing for the time being; empty while it does.
    pub paused: String,
    /// Tasks it finished since the coordinator started.
    pub tasks_done: u64,
    /// Time since its last call, in milliseconds.
    pub last_seen_ms_ago: u64,
    /// Its speed in predicted cost (microseconds of a reference core) a second; 0 until measured.
    pub cost_per_second: f64,
}

impl Scheduler {
    /// The total of a run: the fold of its tasks' counts, checked. `None` until every task is
    /// counted, nothing is disputed and no second count is awaited.
    pub fn total(&self, run: RunId) -> Option<Result<u128, BadTally>> {
        let run = &self.runs[*self.by_id.get(&run)?];
        run.all_done().then(|| tally::total(run.tasks().counts()))
    }

    /// The fold of the counts accepted so far.
    pub fn solutions_so_far(&self, run: RunId) -> Option<Result<u128, BadTally>> {
        let run = &self.runs[*self.by_id.get(&run)?];
        Some(tally::total(run.tasks().counts()))
    }

    /// Everything about one run.
    pub fn status(&self, run: RunId, now: Millis) -> Option<RunStatus> {
        let number = *self.by_id.get(&run)?;
        let run = &self.runs[number];
        let (per_second, cost_per_second) = run.rate().per_second(self.clock.at(now));
        let total = run.tasks().cost_of_all().max(1) as f64;
        let under_way = run.cost_under_way().min(run.tasks().cost(Stage::Leased));
        let fraction_done = ((run.tasks().cost(Stage::Done) + under_way) as f64 / total).min(1.0);
        let (agreed, conflicts) = run.agreed_and_conflicts();
        let moving = cost_per_second > 0.0 && run.state() == RunState::Running;
        Some(RunStatus {
            manifest: run.manifest().clone(),
            state: run.state(),
            tasks: task_numbers(run),
            // A sum of 64-bit counts of at most MAX_TASKS tasks fits 128 bits.
            solutions_so_far: tally::total(run.tasks().counts()).unwrap_or(u128::MAX),
            fraction_done,
            solutions_per_second: per_second,
            eta_seconds: moving.then(|| (1.0 - fraction_done) * total / cost_per_second),
            estimate: run
                .finished()
                .estimate(run.tasks().len(), u128::from(run.tasks().cost_of_all())),
            rechecks: Rechecks {
                agreed,
                conflicts,
                awaited: run.seconds().number() as u64,
                confirmed: run.tasks().agreed().confirmed,
                compared: run.tasks().agreed().compared,
                quarantined: run
                    .quarantined()
                    .iter()
                    .take(NAMED_TASKS)
                    .map(|&task| run::id(task))
                    .collect(),
            },
            workers: self
                .workers
                .live_ones()
                .map(|worker| self.worker_status(worker, now))
                .collect(),
            reason: self.why_nothing_moves(number),
        })
    }

    fn why_nothing_moves(&self, number: RunIx) -> String {
        let run = &self.runs[number];
        match run.state() {
            RunState::Running => {}
            RunState::Paused => return "the run is paused".to_owned(),
            RunState::Disputed => {
                let first = run.quarantined().first();
                return first.map_or_else(String::new, |&task| self.why_contested(run, task));
            }
            RunState::Cancelled | RunState::Complete | RunState::Contradicted => {
                return String::new();
            }
        }
        if self.workers.live() == 0 {
            return "no worker is connected".to_owned();
        }
        let higher = self
            .order
            .iter()
            .take_while(|&&other| other != number)
            .find(|&&other| self.runs[other].grants() && self.runs[other].has_waiting());
        if let Some(&other) = higher
            && run.held().is_empty()
        {
            return format!("run {} goes first", self.runs[other].manifest().run);
        }
        if run.held().is_empty() {
            return self.why_still(number);
        }
        // The rest goes on, and still somebody has to be found for these.
        let mut contested = run.contested().iter();
        let stuck = contested.find(|&&task| !self.somebody_may_decide(number, task));
        stuck.map_or_else(String::new, |&task| self.why_contested(run, task))
    }

    /// Every run, in the order in which they are served.
    pub fn runs(&self) -> Vec<RunSummary> {
        self.order
            .iter()
            .map(|&run| {
                let run = &self.runs[run];
                RunSummary {
                    manifest: run.manifest().clone(),
                    state: run.state(),
                    tasks: task_numbers(run),
                }
            })
            .collect()
    }

    /// Every worker that is remembered.
    pub fn workers(&self, now: Millis) -> Vec<WorkerStatus> {
        self.workers
            .iter()
            .map(|(number, _)| self.worker_status(number, now))
            .collect()
    }

    fn worker_state(&self, number: WorkerIx, now: Millis) -> WorkerState {
        let worker = self.workers.get(number);
        let barred = self.workers.standing(number).is_barred();
        let now = self.clock.at(now);
        let silent_from = worker.due + (worker.due - worker.seen).max(SILENT_AFTER_MS);
        if barred {
            WorkerState::Barred
        } else if worker.left {
            WorkerState::Left
        } else if worker.deadline.is_none_or(|deadline| deadline <= now) {
            WorkerState::Lost
        } else if worker.session.is_none() {
            WorkerState::Awaited
        } else if silent_from <= now {
            WorkerState::Silent
        } else if !worker.paused.is_empty() && !worker.told_to_drain {
            WorkerState::Paused
        } else if worker.draining {
            WorkerState::Draining
        } else if worker.leases.is_empty() {
            WorkerState::Idle
        } else {
            WorkerState::Working
        }
    }

    fn worker_status(&self, number: WorkerIx, now: Millis) -> WorkerStatus {
        let worker = self.workers.get(number);
        WorkerStatus {
            info: worker.info.clone(),
            state: self.worker_state(number, now),
            failed_threads: worker.failed_threads,
            knows_the_end: worker.knows_the_end,
            leases: worker.leases.len() as u64,
            crews: worker.crews,
            paused: worker.paused.clone(),
            tasks_done: worker.tasks_done,
            last_seen_ms_ago: self.clock.at(now).saturating_sub(worker.seen),
            cost_per_second: worker.cost_per_second().unwrap_or(0.0),
        }
    }
}

fn task_numbers(run: &run::Run) -> TaskNumbers {
    let number = |stage| run.tasks().number(stage);
    TaskNumbers {
        total: run.tasks().len(),
        done: number(Stage::Done),
        leased: number(Stage::Leased),
        pending: number(Stage::Pending),
        parked: number(Stage::Parked),
        quarantined: number(Stage::Quarantined),
    }
}
