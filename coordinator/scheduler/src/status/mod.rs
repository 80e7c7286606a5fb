//! Status of runs and workers, for display.

mod audit;
mod map;
mod reasons;

use std::{cmp::Reverse, ops::Range, sync::Arc};

use common::{
    estimate::sample::Estimate,
    messages::{
        run::{RunId, WorkerId},
        sync::WorkerInfo,
    },
    plan::TaskId,
    solutions::tally::{self, BadTally},
};

pub use self::{
    audit::Mismatch,
    map::{MapState, TaskView},
};

use crate::{
    choosing::Verifying,
    clock::{Millis, Ticks},
    fleet::{RefereeStatus, RunIx, WorkerIx},
    ledger::{Confirmation, RunManifest, RunState, Stage, tasks},
    run,
    snapshot::Snapshot,
};

/// Maximum number of disputed tasks in a status.
const MAX_LISTED_TASKS: usize = 100;

/// Maximum number of implausibly fast workers in a status.
const MAX_LISTED_WORKERS: usize = 10;

/// Maximum number of workers in a status: at most a tenth of the largest message.
pub const STATUS_WORKERS: usize = 200;

/// Minimum lateness of a call that makes a worker silent; a worker that calls rarely may be late by half its interval.
const SILENT_AFTER_MS: u64 = 10_000;

/// Numbers of a run's tasks by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskNumbers {
    pub total: u64,
    pub done: u64,
    pub leased: u64,
    /// Leased tasks that a thread has started.
    pub counting: u64,
    pub pending: u64,
    pub parked: u64,
    pub disputed: u64,
}

/// Rechecks and recounts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rechecks {
    pub agreed: u64,
    /// Counts that differed from a standing one, settled since or not.
    pub conflicts: u64,
    /// Done tasks whose count a second one confirmed.
    pub confirmed: u64,
    /// Done tasks whose count the referee confirmed.
    pub recounted: u64,
    /// The first hundred disputed tasks.
    pub disputed: Vec<TaskId>,
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    pub manifest: RunManifest,
    pub state: RunState,
    pub priority: i32,
    pub tasks: TaskNumbers,
    /// Whether workers may get its pending tasks now: the run is running, and no run before it has any.
    pub is_served: bool,
    /// Done part of the predicted cost, 0 to 1, including tasks in progress.
    pub fraction_done: f64,
    /// Seconds to the end at the speed of the last minutes.
    /// `None` while that speed is 0 or the run is stalled.
    pub eta_seconds: Option<f64>,
    /// Time during which tasks of the run were being counted.
    pub counting_seconds: f64,
    /// Total of the run, once all checks passed; set by the owner.
    pub solutions: Option<u128>,
    /// Whether evidence supports that total; set by the owner.
    pub verified: bool,
    /// The random recounts that the run waits for, if it waits for nothing else.
    pub verifying: Option<Verifying>,
    /// Whether counts of the run are checked again, while its result stays published.
    pub is_rechecking: bool,
    /// The token that cancelled the run; set by the owner.
    pub cancelled_by: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RunStatus {
    pub run: RunSummary,
    /// The sum of the standing counts.
    pub solutions_so_far: u128,
    /// Speed over the last minutes.
    pub solutions_per_second: f64,
    /// Estimate of the total from a sample of done tasks; `None` if that is too small.
    pub estimate: Option<Estimate>,
    /// Time since the run's creation, less [`RunSummary::counting_seconds`].
    /// It is 0 once the run is cancelled.
    pub waiting_seconds: f64,
    pub rechecks: Rechecks,
    /// The first 200 connected or away workers: those that need attention, then the fastest.
    pub workers: Vec<WorkerStatus>,
    /// All connected or away workers.
    pub worker_totals: WorkerTotals,
    /// The coordinator's own referee.
    pub referee: RefereeStatus,
    /// The first ten workers whose counts came faster than any known machine could make them.
    pub implausible: Vec<String>,
    /// What the run waits for or rechecks; empty otherwise.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// Holds leases.
    Working,
    /// Holds no lease.
    Idle,
    /// Is late with a call, and its leases are still valid.
    Silent,
    /// Counts nothing at present, for a reason that it gives.
    Paused,
    Draining,
    /// Has drained and exited.
    Stopped,
    /// Has taken its tasks away in a package; its promised return has not passed.
    Away,
    /// Holds leases from before the coordinator's start and has not called since.
    Reconnecting,
    /// Has not called for the duration of a lease.
    Lost,
    /// Returned wrong counts and gets no work.
    Barred,
}

impl WorkerState {
    pub const ALL: [Self; 10] = [
        Self::Working,
        Self::Idle,
        Self::Silent,
        Self::Paused,
        Self::Draining,
        Self::Stopped,
        Self::Away,
        Self::Reconnecting,
        Self::Lost,
        Self::Barred,
    ];

    const fn needs_attention(self) -> bool {
        matches!(self, Self::Silent | Self::Reconnecting | Self::Lost | Self::Barred)
    }

    /// Returns the state's name in JSON and for display.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Idle => "idle",
            Self::Silent => "silent",
            Self::Paused => "paused",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::Away => "away",
            Self::Reconnecting => "reconnecting",
            Self::Lost => "lost",
            Self::Barred => "barred",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkerStatus {
    pub id: WorkerId,
    pub info: WorkerInfo,
    pub state: WorkerState,
    /// Threads that failed their self-test and were stopped.
    pub failed_threads: u32,
    /// Whether the last reply to the worker said that all runs are finished.
    pub notified_finished: bool,
    /// Number of leases.
    pub leases: u64,
    /// Tasks in progress at the worker's last call, each by a crew of threads.
    pub crews: u32,
    /// Reason for the pause; empty if the worker is not paused.
    pub paused: String,
    /// Promised return of the worker's package; `None` unless it is away.
    pub away_until_unix_ms: Option<u64>,
    /// Time at which others get the tasks of a silent worker; `None` unless it is silent.
    pub lost_at_unix_ms: Option<u64>,
    /// The task in progress for the longest time, and that time in milliseconds.
    pub current_task: Option<(TaskId, u64)>,
    /// Number of the worker's tasks done since the coordinator's start.
    pub tasks_done: u64,
    pub last_seen_ms_ago: u64,
    /// Predicted cost (microseconds of a reference core) per second; 0 until measured, and while the worker is silent.
    pub cost_per_second: f64,
}

#[derive(Clone, Debug)]
pub enum WorkersPart {
    /// Workers at these positions in the order of [`RunStatus::workers`].
    ByAttention(Range<usize>),
    /// Up to `most` after an identity; the order is stable while workers come and go.
    ById { after: Option<WorkerId>, most: usize },
}

/// Selected workers, and the numbers of all.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkersPage {
    pub workers: Vec<WorkerStatus>,
    pub totals: WorkerTotals,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerTotals {
    by_state: [StateTotals; WorkerState::ALL.len()],
    /// Workers with failed threads.
    pub failing: u64,
    /// Threads that failed their self-test.
    pub failed_threads: u64,
    /// Time since the last call of any worker.
    pub last_call_ms_ago: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateTotals {
    pub workers: u64,
    pub threads: u64,
    /// Tasks that these workers have counted since the coordinator's start.
    pub tasks_done: u64,
}

impl WorkerTotals {
    pub fn of(&self, state: WorkerState) -> StateTotals {
        self.by_state[state as usize]
    }

    /// Returns the numbers of workers in any state; packages that are away are none.
    pub fn all(&self) -> StateTotals {
        let add = |sum: StateTotals, of: StateTotals| StateTotals {
            workers: sum.workers + of.workers,
            threads: sum.threads + of.threads,
            tasks_done: sum.tasks_done + of.tasks_done,
        };
        let states = WorkerState::ALL.into_iter().filter(|state| *state != WorkerState::Away);
        states.map(|state| self.of(state)).fold(StateTotals::default(), add)
    }
}

fn fraction_done(run: &run::Run) -> f64 {
    let under_way = run.leases.cost_done.min(run.tasks().cost(Stage::Leased));
    let done = (run.tasks().cost(Stage::Done) + under_way) as f64;
    (done / run.tasks().total_cost().max(1) as f64).min(1.0)
}

fn task_numbers(run: &run::Run) -> TaskNumbers {
    let number = |stage| run.tasks().number(stage);
    TaskNumbers {
        total: run.tasks().size(),
        done: number(Stage::Done),
        leased: number(Stage::Leased),
        counting: run.counting(),
        pending: number(Stage::Pending),
        parked: number(Stage::Parked),
        disputed: number(Stage::Disputed),
    }
}
impl<'a> Snapshot<'a> {
    /// Returns the total of a run, computed from its tasks' counts.
    /// `None` until every task is done and no recheck is awaited.
    pub fn total(self, run: RunId) -> Option<Result<u128, BadTally>> {
        let run = &self.runs[*self.by_id.get(&run)?];
        run.all_done().then(|| tally::total(run.tasks().counts()))
    }

    /// Returns the sum of the standing counts.
    pub fn solutions_so_far(self, run: RunId) -> Option<Result<u128, BadTally>> {
        let run = &self.runs[*self.by_id.get(&run)?];
        Some(tally::total(run.tasks().counts()))
    }

    pub fn status(self, run: RunId, now: Millis) -> Option<RunStatus> {
        let number = *self.by_id.get(&run)?;
        let run = &self.runs[number];
        let (per_second, _) = self.live_rate(number, self.clock.at(now));
        let age_ms = match run.state() {
            RunState::Cancelled => 0,
            _ => now.0.saturating_sub(run.manifest.created_unix_ms),
        };
        let disputed = run.tasks().disputed().keys().map(|&task| tasks::id(task));
        let confirmed = Confirmation::ALL[1..].iter();
        let implausible = run.implausible.iter().take(MAX_LISTED_WORKERS);
        let implausible = implausible.map(|&worker| self.workers.shown(worker));
        let away = self.workers.iter().filter(|(_, worker)| worker.is_away());
        let live = self.workers.connected().chain(away.map(|(number, _)| number)).collect();
        let WorkersPage { workers, totals: worker_totals } =
            self.by_attention(live, 0..STATUS_WORKERS, now);
        Some(RunStatus {
            run: self.summary(number, self.clock.at(now)),
            // A sum of 64-bit counts of at most MAX_TASKS tasks fits 128 bits.
            solutions_so_far: tally::total(run.tasks().counts()).unwrap_or(u128::MAX),
            solutions_per_second: per_second,
            estimate: run.sample().estimate(),
            waiting_seconds: age_ms.saturating_sub(run.shown_ms()) as f64 / 1e3,
            rechecks: Rechecks {
                agreed: run.agreed,
                conflicts: run.conflicts,
                confirmed: confirmed.map(|&level| run.tasks().number_confirmed(level)).sum(),
                recounted: run.tasks().number_confirmed(Confirmation::Referee),
                disputed: disputed.take(MAX_LISTED_TASKS).collect(),
            },
            workers,
            worker_totals,
            referee: self.referee(),
            implausible: implausible.collect(),
            reason: self.run_stall_reason(number),
        })
    }

    fn summary(self, number: RunIx, now: Ticks) -> RunSummary {
        let run = &self.runs[number];
        RunSummary {
            manifest: run.manifest.clone(),
            state: run.state(),
            priority: run.settings().priority,
            tasks: task_numbers(run),
            is_served: run.state() == RunState::Running && self.served_before(number).is_none(),
            fraction_done: fraction_done(run),
            eta_seconds: self.eta_seconds(number, now),
            counting_seconds: run.shown_ms() as f64 / 1e3,
            solutions: None,
            verified: false,
            verifying: self.verifying(number),
            is_rechecking: run.is_rechecking(),
            cancelled_by: None,
        }
    }

    fn eta_seconds(self, number: RunIx, now: Ticks) -> Option<f64> {
        let run = &self.runs[number];
        if let Some(verifying) = self.verifying(number) {
            return verifying.seconds.filter(|_| run.state() == RunState::Running);
        }
        let (_, cost_per_second) = self.live_rate(number, now);
        let moving = cost_per_second > 0.0 && run.state() == RunState::Running;
        let total = run.tasks().total_cost().max(1) as f64;
        let rechecks = run.awaited_rechecks() as f64 / run.tasks().size() as f64;
        let left = (1.0 - fraction_done(run)) * (1.0 + run.recheck().fraction()) + rechecks;
        (moving && self.run_stall_reason(number).is_empty()).then(|| left * total / cost_per_second)
    }

    /// Returns solutions and cost per second of a run, less what its silent workers contributed to this mean.
    fn live_rate(self, number: RunIx, now: Ticks) -> (f64, f64) {
        let rate = &self.runs[number].time.rate;
        let (solutions, cost) = rate.per_second(now);
        let window_ms = rate.window_ms(now) as f64;
        let since = |worker: WorkerIx| now.saturating_sub(self.workers.get(worker).seen);
        let late = self.workers.connected().take_while(|&worker| since(worker) > SILENT_AFTER_MS);
        let silent = late.filter(|&worker| {
            let holds = self.workers.get(worker).runs().any(|run| run == number);
            holds && self.worker_state_at(worker, now) == WorkerState::Silent
        });
        let gone = silent.map(|worker| {
            let speed = self.workers.get(worker).speed.per_second().unwrap_or(0.0);
            speed * (1.0 - since(worker) as f64 / window_ms).max(0.0)
        });
        let left = (1.0 - gone.sum::<f64>() / cost.max(1.0)).max(0.0);
        (solutions * left, cost * left)
    }

    /// Returns all runs in the order in which they are served.
    pub fn runs(self) -> Vec<RunSummary> {
        self.order.iter().map(|&number| self.summary(number, self.clock.ticks())).collect()
    }

    /// Returns the name of a worker that has called since the start.
    pub fn worker_name(self, worker: WorkerId) -> Option<&'a str> {
        let name = self.workers.with_id(worker)?.info.name.as_str();
        Some(name).filter(|name| !name.is_empty())
    }

    /// Returns identity and state of every known worker.
    pub fn worker_states(self, now: Millis) -> impl Iterator<Item = (WorkerId, WorkerState)> {
        let numbers = self.workers.iter().map(|(number, _)| number);
        numbers.map(move |number| (self.workers[number].id, self.worker_state(number, now)))
    }

    /// Returns a selection of the known workers.
    pub fn workers(self, part: &WorkersPart, now: Millis) -> WorkersPage {
        let mut all: Vec<_> = self.workers.iter().map(|(number, _)| number).collect();
        match part {
            WorkersPart::ByAttention(places) => self.by_attention(all, places.clone(), now),
            WorkersPart::ById { after, most } => {
                let totals = self.totals(&all, now);
                all.retain(|&number| after.is_none_or(|after| self.workers[number].id > after));
                all.sort_unstable_by_key(|&number| self.workers[number].id);
                all.truncate(*most);
                self.page(&all, totals, now)
            }
        }
    }

    /// Returns workers by position: those that need attention, then the fastest.
    fn by_attention(
        self,
        mut workers: Vec<WorkerIx>,
        places: Range<usize>,
        now: Millis,
    ) -> WorkersPage {
        let totals = self.totals(&workers, now);
        workers.sort_by_cached_key(|&number| {
            let worker = self.workers.get(number);
            let needs_attention =
                worker.failed_threads > 0 || self.worker_state(number, now).needs_attention();
            // Non-negative floats sort like their bits.
            let speed = worker.speed.per_second().unwrap_or(0.0).to_bits();
            (Reverse((needs_attention, speed)), self.workers[number].id)
        });
        let end = places.end.min(workers.len());
        self.page(workers.get(places.start.min(end)..end).unwrap_or_default(), totals, now)
    }

    fn page(self, shown: &[WorkerIx], totals: WorkerTotals, now: Millis) -> WorkersPage {
        let workers = shown.iter().map(|&number| self.worker_status(number, now)).collect();
        WorkersPage { workers, totals }
    }

    fn totals(self, workers: &[WorkerIx], now: Millis) -> WorkerTotals {
        let mut totals = WorkerTotals::default();
        for &number in workers {
            let worker = self.workers.get(number);
            let of_state = &mut totals.by_state[self.worker_state(number, now) as usize];
            of_state.workers += 1;
            of_state.threads += u64::from(worker.info.threads);
            of_state.tasks_done += worker.tasks_done;
            totals.failing += u64::from(worker.failed_threads > 0);
            totals.failed_threads += u64::from(worker.failed_threads);
            let ago = self.clock.at(now).saturating_sub(worker.seen);
            totals.last_call_ms_ago = Some(totals.last_call_ms_ago.map_or(ago, |min| min.min(ago)));
        }
        totals
    }

    fn worker_state(self, number: WorkerIx, now: Millis) -> WorkerState {
        self.worker_state_at(number, self.clock.at(now))
    }

    fn worker_state_at(self, number: WorkerIx, now: Ticks) -> WorkerState {
        let worker = self.workers.get(number);
        let barred = self.workers.is_barred(number);
        let silent_from = worker.due + ((worker.due - worker.seen) / 2).max(SILENT_AFTER_MS);
        if barred {
            WorkerState::Barred
        } else if worker.is_away() {
            WorkerState::Away
        } else if worker.has_stopped {
            WorkerState::Stopped
        } else if worker.deadline.is_none_or(|deadline| deadline <= now) {
            WorkerState::Lost
        } else if worker.session.is_none() {
            WorkerState::Reconnecting
        } else if silent_from <= now {
            WorkerState::Silent
        } else if !worker.paused.is_empty() && !worker.drain_requested {
            WorkerState::Paused
        } else if worker.draining {
            WorkerState::Draining
        } else if worker.leases.is_empty() {
            WorkerState::Idle
        } else {
            WorkerState::Working
        }
    }

    fn worker_status(self, number: WorkerIx, now: Millis) -> WorkerStatus {
        let (worker, state) = (self.workers.get(number), self.worker_state(number, now));
        WorkerStatus {
            id: self.workers[number].id,
            info: worker.info.clone(),
            state,
            failed_threads: worker.failed_threads,
            notified_finished: worker.notified_finished,
            leases: worker.leases.len() as u64,
            crews: worker.crews,
            paused: worker.paused.clone(),
            away_until_unix_ms: (state == WorkerState::Away)
                .then(|| self.clock.wall(worker.forget_at.unwrap_or_default()).0),
            lost_at_unix_ms: worker
                .deadline
                .filter(|_| state == WorkerState::Silent)
                .map(|at| self.clock.wall(at).0),
            current_task: self.current_task(number, now),
            tasks_done: worker.tasks_done,
            last_seen_ms_ago: self.clock.at(now).saturating_sub(worker.seen),
            cost_per_second: match state {
                WorkerState::Silent | WorkerState::Lost => 0.0,
                _ => worker.speed.per_second().unwrap_or(0.0),
            },
        }
    }

    /// Returns a worker's longest-running task, and the milliseconds since the call that named it as started.
    fn current_task(self, number: WorkerIx, now: Millis) -> Option<(TaskId, u64)> {
        let started = self.leases_of(number).filter_map(|(key, lease)| Some((lease.started?, key)));
        let (started, (_, task)) = started.min()?;
        Some((tasks::id(task), self.clock.at(now).saturating_sub(started)))
    }
}
