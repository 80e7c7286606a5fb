//! When a worker shall call again, and why it got nothing.

use common::sync::{SyncReply, SyncRequest};

use super::{
    Scheduler,
    clock::Ticks,
    index::{TaskIx, WorkerIx},
    run::{Run, memory_bytes},
    tasks::Stage,
};
use crate::{ledger::RunState, text::plural};

/// Regular syncs that the coordinator wants to serve in a second, all workers together: far fewer than it
/// can, since results come with them.
const SYNCS_PER_SECOND: u64 = 50;

/// Short syncs are allowed this much more often than regular ones, all workers together.
const SHORT_SYNCS: u64 = 20;

impl Scheduler {
    /// The regular time between two syncs of a worker.
    pub(super) fn regular_sync_ms(&self) -> Ticks {
        let spread = self.workers.live() as u64 * 1_000 / SYNCS_PER_SECOND;
        self.config.sync_floor_ms.max(spread)
    }

    /// The next sync of a worker, before jitter.
    fn sync_ms(&self, worker: WorkerIx, request: &SyncRequest) -> Ticks {
        let regular = self.regular_sync_ms();
        let spread = self.workers.live() as u64 * 1_000 / (SYNCS_PER_SECOND * SHORT_SYNCS);
        let shortest = self.config.least_sync_ms.max(spread).min(regular);
        let dry = self.config.dry_sync_ms.max(spread).min(regular);
        let known = self.workers.get(worker);
        let barred = self.workers.standing(worker).is_barred();
        let waits_for_no_one = barred || request.draining || request.seconds_wanted <= 0.0;
        if known.leases.is_empty() {
            return if waits_for_no_one { regular } else { dry };
        }
        let Some(speed) = known.cost_per_second() else {
            return shortest;
        };
        let cost: f64 = known
            .leases
            .iter()
            .map(|(&(run, task), lease)| {
                self.runs[run].cost(task).saturating_sub(lease.cost_done) as f64
            })
            .sum();
        let half_way = cost / speed * 500.0;
        if half_way >= regular as f64 {
            return regular;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let half_way = half_way.max(0.0) as Ticks;
        half_way.max(shortest)
    }

    /// Completes a reply: when to call next, how long leases last, why nothing was granted.
    pub(super) fn pace(&mut self, worker: WorkerIx, request: &SyncRequest, reply: &mut SyncReply) {
        let next = self.sync_ms(worker, request);
        reply.next_sync_ms = self.jitter.spread(next);
        self.workers.get_mut(worker).due = self.clock.ticks() + reply.next_sync_ms;
        reply.lease_ms = self.lease_ms();
        reply.all_runs_over = !self.runs.iter().any(Run::is_open);
        self.workers.get_mut(worker).knows_the_end = reply.all_runs_over;
        if reply.grants.is_empty() && reply.reason.is_empty() {
            reply.reason = self.why_nothing(worker, request);
        }
    }

    fn why_nothing(&self, worker: WorkerIx, request: &SyncRequest) -> String {
        let known = self.workers.get(worker);
        let now = self.clock.ticks();
        if self.workers.standing(worker).is_barred() {
            return self.why_barred(worker).to_string();
        }
        if known.told_to_drain {
            return "an operator has this worker stop: start it again to have it count".to_owned();
        }
        if !known.paused.is_empty() {
            return format!("the worker pauses: {}", known.paused);
        }
        if request.draining {
            return "the worker is draining".to_owned();
        }
        if request.seconds_wanted <= 0.0 || request.seconds_wanted.is_nan() {
            return "the worker asked for nothing".to_owned();
        }
        if known.leases.len() >= self.config.leases_per_worker {
            return format!(
                "the worker holds {} leases, the most allowed",
                known.leases.len()
            );
        }
        let declined = known
            .declined
            .iter()
            .find(|declined| now < declined.until && self.runs[declined.run].grants());
        if let Some(declined) = declined {
            return format!(
                "the worker gave back tasks of run {} unworked {} times: it is asked again in {} s; \
                 its log says why",
                self.runs[declined.run].manifest().run,
                declined.times,
                (declined.until - now).div_ceil(1_000)
            );
        }
        let mut served = self.order.iter().filter(|&&run| self.runs[run].grants());
        let first = served.clone().next();
        let lacking =
            served.find_map(|&run| Some((run, self.runs[run].lacks_memory(&known.info)?)));
        if let Some((run, least)) = lacking {
            let manifest = self.runs[run].manifest();
            return format!(
                "tasks of run {} (N = {}) take at least {least} bytes of memory with {} threads, and \
                 the worker has {}: give it more with --memory, or fewer --threads",
                manifest.run,
                manifest.spec.board,
                known.info.threads,
                memory_bytes(&known.info)
            );
        }
        match first {
            Some(&run) => {
                let why = self.why_still(run);
                if why.is_empty() {
                    "the last tasks go out one a thread: call again when a thread is idle"
                        .to_owned()
                } else {
                    why
                }
            }
            None => self.why_no_run(),
        }
    }

    fn why_no_run(&self) -> String {
        let state = |state| self.runs.iter().find(move |run| run.state() == state);
        if let Some(paused) = state(RunState::Paused) {
            return format!("run {} is paused", paused.manifest().run);
        }
        if self
            .runs
            .iter()
            .any(|run| run.is_announced() && run.state() == RunState::Running)
        {
            return "every task is counted".to_owned();
        }
        if self.runs.is_empty() {
            return "there is no run: submit one with queensctl".to_owned();
        }
        "every run is over: submit one with queensctl".to_owned()
    }

    fn why_parked(&self, run: &Run, parked: u64) -> String {
        let next = match (run.parking().on_trial(), run.parking().next_trial_at()) {
            (Some(task), _) => format!("task {task} is tried again"),
            (None, at) => {
                let left = at.unwrap_or(0).saturating_sub(self.clock.ticks());
                format!("the next is tried again in {} s", left.div_ceil(1_000))
            }
        };
        format!(
            "{parked} tasks are parked after failed attempts; {next}, `queensctl retry {}` tries all \
             at once",
            run.manifest().run
        )
    }

    /// Whose counts contradict each other, and for whom the task waits.
    pub(super) fn why_contested(&self, run: &Run, task: TaskIx) -> String {
        let counts: Vec<_> = run
            .reports(task)
            .iter()
            .map(|report| format!("{} by {}", report.count, self.workers.shown(report.worker)))
            .collect();
        let others = match run.quarantined().len() {
            0 | 1 => String::new(),
            more => format!(" ({} more tasks are contested)", more - 1),
        };
        format!(
            "task {task} was counted as {} and waits for a worker that has not counted it{others}",
            counts.join(", ")
        )
    }

    /// Why a running run has nothing that could be granted to anyone; empty when it has.
    pub(super) fn why_still(&self, run: usize) -> String {
        let run = &self.runs[run];
        let number = |stage| run.tasks().number(stage);
        let (leased, parked) = (number(Stage::Leased), number(Stage::Parked));
        if number(Stage::Pending) > 0 {
            return String::new();
        }
        let mut parts = Vec::new();
        if leased > 0 {
            parts.push(format!("{} leased", plural(leased, "task")));
        }
        if parked > 0 {
            parts.push(self.why_parked(run, parked));
        }
        if let Some(&first) = run.quarantined().first() {
            parts.push(self.why_contested(run, first));
        }
        let second = run.seconds().number();
        if second > 0 {
            parts.push(format!(
                "{} to be counted a second time",
                plural(second, "task")
            ));
        }
        if parts.is_empty() {
            return "every task is counted".to_owned();
        }
        format!("nothing is pending: {}", parts.join(", "))
    }
}
