//! Sync intervals, and the reasons for empty replies.

use common::{
    sync::SyncRequest,
    text::{age, plural, span},
};

use super::Scheduler;
use crate::{
    clock::Ticks,
    fleet::{RunIx, WorkerIx},
    ledger::{RunState, Stage, TaskCount},
    run::{Run, memory_bytes},
};

/// Regular syncs per second of all workers together.
/// The coordinator could serve far more, but these also submit results.
const SYNCS_PER_SECOND: u64 = 50;

/// Factor by which short syncs may be more frequent than regular ones.
const SHORT_SYNCS: u64 = 20;

/// Minimum interval between two syncs.
const MIN_SYNC_MS: Ticks = 500;

/// Time to the next sync of a worker that got nothing but may get something soon.
const IDLE_SYNC_MS: Ticks = 1_000;

impl Scheduler {
    /// Returns the interval at which all workers together make [`SYNCS_PER_SECOND`].
    fn spread_ms(&self) -> Ticks {
        self.workers.live() as u64 * 1_000 / SYNCS_PER_SECOND
    }

    /// Returns the regular interval between two syncs of a worker.
    pub(super) fn regular_sync_ms(&self) -> Ticks {
        self.config.sync_floor_ms.max(self.spread_ms())
    }

    /// Returns the time until a worker's next sync, before jitter.
    fn sync_ms(&self, worker: WorkerIx, request: &SyncRequest) -> Ticks {
        let regular = self.regular_sync_ms();
        let spread = self.spread_ms() / SHORT_SYNCS;
        let shortest = MIN_SYNC_MS.max(spread).min(regular);
        let idle = IDLE_SYNC_MS.max(spread).min(regular);
        let known = self.workers.get(worker);
        let barred = self.workers.is_barred(worker);
        let expects_nothing = barred || request.draining || request.seconds_wanted <= 0.0;
        if known.leases.is_empty() {
            return if expects_nothing { regular } else { idle };
        }
        let Some(speed) = known.speed.per_second() else {
            return shortest;
        };
        let remaining = self.leases_of(worker).map(|((run, task), lease)| {
            self.runs[run].cost(task).saturating_sub(lease.cost_done) as f64
        });
        let cost: f64 = remaining.sum();
        let half_way = cost / speed * 500.0;
        if half_way >= regular as f64 {
            return regular;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let half_way = half_way.max(0.0) as Ticks;
        half_way.max(shortest)
    }

    /// Sets the time until a worker's next sync; returns it.
    pub(super) fn next_sync_ms(&mut self, worker: WorkerIx, request: &SyncRequest) -> Ticks {
        let next = self.sync_ms(worker, request);
        let next = self.jitter.spread(next);
        self.workers.get_mut(worker).due = self.clock.ticks() + next;
        next
    }

    /// Returns why no run has a task for a worker that could get one.
    pub(super) fn idle_reason(&self, worker: WorkerIx) -> String {
        let known = self.workers.get(worker);
        let now = self.clock.ticks();
        let declined = known
            .declined
            .iter()
            .find(|declined| now < declined.until && self.runs[declined.run].grants());
        if let Some(declined) = declined {
            return format!(
                "the worker declined tasks of run {} {} times; next offer in {} s (see its log)",
                self.runs[declined.run].manifest.run,
                declined.times,
                (declined.until - now).div_ceil(1_000)
            );
        }
        let mut served = self.order.iter().filter(|&&run| self.runs[run].grants());
        let first = served.clone().next();
        let lacking =
            served.find_map(|&run| Some((run, self.runs[run].lacks_memory(&known.info)?)));
        if let Some((run, least)) = lacking {
            let manifest = &self.runs[run].manifest;
            return format!(
                "tasks of run {} (N = {}) need at least {least} bytes of memory with {} threads, but \
                 the worker has {}: raise --memory or lower --threads",
                manifest.run,
                manifest.spec.board,
                known.info.threads,
                memory_bytes(&known.info)
            );
        }
        match first {
            Some(&run) => {
                let why = self.stall_reason(run);
                if !why.is_empty() {
                    why
                } else if self.is_unproven(worker) {
                    "workers with this token took tasks and returned none: one task at a time until the first count"
                        .to_owned()
                } else {
                    "only the last tasks remain: one per idle thread".to_owned()
                }
            }
            None => self.no_run_reason(),
        }
    }

    fn no_run_reason(&self) -> String {
        let state = |state| self.runs.iter().find(move |run| run.state() == state);
        if let Some(paused) = state(RunState::Paused) {
            return format!("run {} is paused", paused.manifest.run);
        }
        if self.runs.iter().any(|run| run.is_announced() && run.state() == RunState::Running) {
            return "all tasks are done".to_owned();
        }
        // Deleted runs leave a place in `runs`.
        if self.order.is_empty() {
            return "there is no run: submit one with queensctl".to_owned();
        }
        "all runs are finished: submit one with queensctl".to_owned()
    }

    fn parked_reason(&self, run: &Run, parked: u64) -> String {
        let next = match (run.parking().on_trial(), run.parking().next_trial_at()) {
            (Some(task), _) => format!("task {task} is being retried"),
            (None, at) => {
                let wait_ms = at.unwrap_or(0).saturating_sub(self.clock.ticks());
                format!("the next is retried in {} s", wait_ms.div_ceil(1_000))
            }
        };
        format!(
            "{} parked after failed attempts; {next} (`queensctl retry {}` retries all now)",
            plural(parked, "task"),
            run.manifest.run
        )
    }

    /// Returns what disputed tasks wait for, and the counts of the first of them.
    pub(super) fn dispute_reason(&self, run: RunIx) -> Option<String> {
        let disputed = self.runs[run].tasks().disputed();
        let (task, counts) = disputed.first_key_value()?;
        let shown = |of: &TaskCount| format!("{} by {}", of.count, self.workers.shown(of.author));
        let counts: Vec<_> = counts.iter().map(shown).collect();
        let disputed = disputed.len();
        let waits = match self.is_refereed(run) {
            true => format!(
                "waiting for the referee: {}, about {}",
                plural(disputed, "disputed task"),
                age(self.referee_seconds(run, self.runs[run].tasks().disputed().keys()).max(1.0)),
            ),
            false if self.referee().broken => {
                "the coordinator's own machine is broken and its referee has stopped".to_owned()
            }
            false => format!(
                "{}, which no referee can count: start the coordinator with --referee and enough \
                 --referee-memory, or a worker whose token is trusted",
                plural(disputed, "disputed task")
            ),
        };
        Some(format!("{waits}; task {task} was counted as {}", counts.join(", ")))
    }

    /// Returns why no connected worker gets pending tasks of a run; empty if one may at its next call.
    fn reason_not_granted(&self, run: RunIx) -> String {
        let (mut lacks, mut has_paused, mut connected) = (None, false, 0);
        for worker in self.workers.connected() {
            let known = self.workers.get(worker);
            connected += 1;
            let least = known.session.and_then(|_| self.runs[run].lacks_memory(&known.info));
            match (least, known.paused.is_empty(), known.draining || self.workers.is_barred(worker))
            {
                (Some(least), ..) => lacks = lacks.max(Some(least)),
                (None, false, _) => has_paused = true,
                (None, true, true) => {}
                (None, true, false) => return String::new(),
            }
        }
        let all = match connected {
            1 => "the only connected worker".to_owned(),
            number => format!("none of {number} connected workers can count: each"),
        };
        match (has_paused, lacks) {
            (true, None) => format!("{all} is paused"),
            (true, Some(_)) => format!("{all} is paused or lacks memory"),
            (false, Some(least)) => {
                format!("{all} lacks memory: give it {least} bytes by --memory, or lower --threads")
            }
            (false, None) => format!("{all} is stopping or barred: start another"),
        }
    }

    /// Returns why a run does not move; empty if a worker may get pending tasks.
    pub(super) fn stall_reason(&self, run_ix: RunIx) -> String {
        let run = &self.runs[run_ix];
        if let Some(verifying) = self.verifying(run_ix) {
            return verifying.to_string();
        }
        let number = |stage| run.tasks().number(stage);
        let (leased, parked) = (number(Stage::Leased), number(Stage::Parked));
        if number(Stage::Pending) > 0 {
            return self.reason_not_granted(run_ix);
        }
        let mut parts = Vec::new();
        if leased > 0 {
            parts.push(format!("{} leased", plural(leased, "task")));
        }
        if parked > 0 {
            parts.push(self.parked_reason(run, parked));
        }
        parts.extend(self.dispute_reason(run_ix));
        let due = run.awaited_rechecks();
        if due > 0 {
            parts.push(format!("{} to be rechecked", plural(due, "task")));
        }
        if !parts.is_empty() {
            return format!("nothing is pending: {}", parts.join(", "));
        }
        match self.recount_wait_ms(run_ix) {
            Some(ms) => {
                let wait = span(ms as f64 / 1e3);
                format!("waiting at most {wait} for the referee's random recounts")
            }
            None => "all tasks are done".to_owned(),
        }
    }
}
