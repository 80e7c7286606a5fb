//! Why a run makes no progress, or a worker gets no task.

use common::text::{age, plural, span};

use crate::{
    choosing::MAX_SCANNED,
    fleet::{RunIx, WorkerIx},
    ledger::{RunState, Stage, TaskCount},
    run::{Run, memory_bytes},
    snapshot::Snapshot,
};

const NO_WORKERS: &str = "no workers connected: start one with `worker` here, or on another machine with \
                          the join string that `queensctl token create --role worker --name NAME` prints";

impl<'a> Snapshot<'a> {
    pub(crate) fn run_stall_reason(self, number: RunIx) -> String {
        let run = &self.runs[number];
        match run.state() {
            RunState::Running => {
                if let Some(verifying) = self.verifying(number) {
                    return verifying.to_string();
                }
            }
            RunState::Paused => return "the run is paused".to_owned(),
            RunState::Disputed => return self.dispute_reason(number).unwrap_or_default(),
            RunState::Complete if run.is_rechecking() => {
                let (made, asked) = run.rechecking();
                return format!("complete, rechecking {made} of {asked}");
            }
            RunState::Cancelled | RunState::Complete | RunState::Contradicted => {
                return String::new();
            }
        }
        if self.workers.live() == 0 {
            return match run.leases.away {
                0 => NO_WORKERS.to_owned(),
                away => format!(
                    "{} in packages, and no worker is connected",
                    plural(away as u64, "task")
                ),
            };
        }
        // A recheck in progress does not explain why tasks are pending.
        let is_idle = match run.tasks().number(Stage::Pending) {
            0 => run.held().next().is_none(),
            _ => run.tasks().number(Stage::Leased) == 0,
        };
        if is_idle && let Some((other, why)) = self.waits_for(number) {
            return format!("waiting for run {} ({why})", self.runs[other].manifest.run);
        }
        if let Some(reason) = self.recheck_reason(number) {
            return reason;
        }
        if is_idle {
            return self.stall_reason(number);
        }
        // Other tasks make progress, but no referee can count the disputed ones.
        let reason = self.dispute_reason(number).filter(|_| !self.is_refereed(number));
        reason.unwrap_or_default()
    }

    /// Returns the run that a run without progress waits for, and why.
    fn waits_for(self, number: RunIx) -> Option<(RunIx, &'static str)> {
        let run = &self.runs[number];
        if let Some(other) = self.served_before(number) {
            let why = match self.runs[other].settings().priority > run.settings().priority {
                true => "higher priority",
                false => "same priority, served first",
            };
            return Some((other, why));
        }
        let mut holding = None;
        for worker in self.active_workers(number).map(|worker| self.workers.get(worker)) {
            if worker.paused.is_empty() {
                // A worker that holds tasks of no other run gets some at its next call.
                holding = Some(worker.runs().find(|&of| of != number)?);
            }
        }
        let other = holding.filter(|_| run.tasks().number(Stage::Pending) > 0)?;
        Some((other, "its tasks were leased first"))
    }

    /// Returns a run whose pending tasks are leased before those of this run.
    pub(crate) fn served_before(self, number: RunIx) -> Option<RunIx> {
        let mut before = self.order.iter().copied().take_while(|&other| other != number);
        before.find(|&other| self.runs[other].grants() && self.runs[other].has_waiting())
    }

    /// Returns what the last rechecks of a run wait for; empty if a worker makes one at its next call.
    /// Returns `None` if some are being made, if tasks are not done, or if no worker may make any.
    pub(crate) fn recheck_reason(self, run_ix: RunIx) -> Option<String> {
        let run = &self.runs[run_ix];
        let awaited = run.awaited_rechecks();
        let mut held = run.held().flat_map(|task| run.leases_of(task));
        if !run.is_counted() || awaited == 0 || held.any(|(_, lease)| lease.started.is_some()) {
            return None;
        }
        let may_make = |worker: &WorkerIx| {
            let known = self.workers.get(*worker);
            let choice = || {
                let of_others = self.choose_recheck(run_ix, *worker);
                of_others.or_else(|| self.choose_own_recheck(run_ix, *worker))
            };
            known.paused.is_empty() && (known.runs().any(|of| of == run_ix) || choice().is_some())
        };
        let makers: Vec<_> =
            self.active_workers(run_ix).take(MAX_SCANNED).filter(may_make).collect();
        let is_idle = |worker: &WorkerIx| self.workers.get(*worker).runs().all(|of| of == run_ix);
        match makers.len() {
            0 => None,
            _ if makers.iter().any(is_idle) => Some(String::new()),
            number => Some(format!(
                "every task is done; awaiting {}, behind tasks of other runs on {}",
                plural(awaited as u64, "recheck"),
                plural(number as u64, "worker")
            )),
        }
    }

    /// Returns why no run has a task for a worker that could get one.
    pub(crate) fn idle_reason(self, worker: WorkerIx) -> String {
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

    fn no_run_reason(self) -> String {
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

    fn parked_reason(self, run: &Run, parked: u64) -> String {
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
    pub(crate) fn dispute_reason(self, run: RunIx) -> Option<String> {
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
    fn reason_not_granted(self, run: RunIx) -> String {
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
    pub(crate) fn stall_reason(self, run_ix: RunIx) -> String {
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
