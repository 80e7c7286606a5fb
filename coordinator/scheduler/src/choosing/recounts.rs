//! Referees: their recounts decide disputed and randomly selected tasks.
//! No task is decided by votes.
//!
//! Referees are the coordinator's own counting thread, which calls [`crate::Scheduler::next_recount`], and workers
//! with a trusted token. None of them referees a count of its own machine.

use std::fmt;

use common::{
    count::Orientation,
    messages::run::RunId,
    plan::{PlanHash, TaskId},
    solutions::{published::published_counts, tally},
    text::{age, thousands},
};

use super::{Choice, MAX_SCANNED, rechecks::RECHECK_WAIT_MS};
use crate::{
    clock::Ticks,
    fleet::{OWN_REFEREE, REFERENCE_SPEED, Referee, RefereeStatus, RunIx, WorkerIx},
    ledger::{
        Confirmation, Done, Recheck, RunState,
        tasks::{self, TaskIx},
    },
    run::{Lease, Purpose},
    snapshot::Snapshot,
};

/// Maximum fraction of the tasks that trusted workers recount at random.
/// Without it, a fleet of trusted workers alone would count everything twice.
const MAX_TRUSTED_FRACTION: f64 = 0.1;

/// Chooses a task of a run for a referee.
type ChooseRecount<'a> = fn(Snapshot<'a>, RunIx, WorkerIx) -> Option<(Choice, RecountPurpose)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecountPurpose {
    /// The counts of the task conflict.
    Dispute,
    /// Random selection; the bound on wrong counts rests on these recounts.
    Random,
    /// The task has the first count of a machine that was not checked yet.
    First,
    /// The task awaits a recheck that no worker makes, or its run rechecks all tasks.
    Recheck,
    /// The task has no count, and its holders do not deliver.
    Overdue,
}

/// The required random recounts of a run whose tasks are all done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verifying {
    pub made: u64,
    pub required: u64,
    /// Time that the coordinator's referee takes for the missing ones; `None` if it makes none.
    pub seconds: Option<f64>,
}

impl fmt::Display for Verifying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [made, required] = [self.made, self.required].map(|number| thousands(number.into()));
        write!(f, "counted, {made} of {required} random recounts")?;
        if let Some(seconds) = self.seconds {
            write!(f, ", about {}", age(seconds.max(1.0)))?;
        }
        f.write_str("; `--referee 8` or a trusted worker shorten this")
    }
}

/// A task for the coordinator's own referee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recount {
    pub run: RunId,
    pub plan: PlanHash,
    pub task: TaskId,
    pub orientation: Orientation,
    pub purpose: RecountPurpose,
    /// Whether the task is counted at normal priority and without interruptions: its counts conflict, nobody delivers
    /// it, or the run waits for nothing else. Other recounts are interrupted for it.
    pub is_urgent: bool,
    /// Whether this is the task's second recount, with another kernel if available.
    pub again: bool,
}

impl<'a> Snapshot<'a> {
    pub fn referee(self) -> RefereeStatus {
        let counting = self.runs.iter().map(|run| run.recounts.under_way.len() as u64).sum();
        RefereeStatus { threads: self.referee.threads, broken: self.is_broken(), counting }
    }

    /// Returns the memory that a referee thread needs for a run and the memory it has.
    /// Both are in bytes; `None` if it suffices, or there is no referee.
    pub fn referee_lacks(self, run: RunId) -> Option<(u64, u64)> {
        let &Referee { threads, memory_bytes, .. } = self.referee;
        let least_bytes = self.runs[*self.by_id.get(&run)?].least_bytes();
        (threads > 0 && least_bytes > memory_bytes).then_some((least_bytes, memory_bytes))
    }

    /// Returns whether the coordinator's own referee has stopped after a wrong count.
    pub(crate) fn is_broken(self) -> bool {
        self.workers.barred.contains(&OWN_REFEREE)
    }

    /// Returns whether the coordinator itself recounts tasks of a run.
    pub(crate) fn counts_itself(self, run: RunIx) -> bool {
        self.runs[run].grants() && self.can_count_itself(run)
    }

    /// Returns whether the coordinator itself can recount tasks of a run, once it is resumed.
    pub(crate) fn can_count_itself(self, run: RunIx) -> bool {
        let &Referee { threads, memory_bytes, ref given_up, .. } = self.referee;
        let able = threads > 0 && !self.is_broken() && !given_up.contains(&run);
        able && self.runs[run].least_bytes() <= memory_bytes
    }

    /// Returns whether any referee counts tasks of a run.
    pub(crate) fn is_refereed(self, run: RunIx) -> bool {
        let has_trusted = || self.trusted_workers(run).next().is_some();
        self.counts_itself(run) || self.runs[run].grants() && has_trusted()
    }

    /// Returns the connected trusted workers that count tasks of a run.
    fn trusted_workers(self, run: RunIx) -> impl Iterator<Item = WorkerIx> {
        self.active_workers(run).filter(|&worker| self.workers.is_referee(worker))
    }

    /// Chooses the next task for the coordinator's referee, with `urgent_only` one that may interrupt another recount.
    pub(crate) fn next_recount(self, urgent_only: bool) -> Option<(RunIx, Recount)> {
        let served = self.order.iter().copied().filter(|&run| self.counts_itself(run));
        let served: Vec<_> = served.collect();
        // Nothing waits for random recounts of runs in progress: no dispute, no run that has all counts, and no machine
        // that is held back.
        let mut all = Self::RECOUNTS
            .into_iter()
            .flat_map(|choose| served.iter().map(move |&run| (choose, run)));
        let (run, choice, purpose, is_urgent) = all.find_map(|(choose, run)| {
            let (choice, purpose) = choose(self, run, OWN_REFEREE)?;
            let is_urgent = match purpose {
                RecountPurpose::Dispute | RecountPurpose::Overdue => true,
                RecountPurpose::Random => self.is_verifying(run),
                RecountPurpose::Recheck => self.runs[run].is_counted(),
                RecountPurpose::First => false,
            };
            (is_urgent || !urgent_only).then_some((run, choice, purpose, is_urgent))
        })?;
        let in_run = &self.runs[run];
        let recount = Recount {
            run: in_run.manifest.run,
            plan: in_run.manifest.plan,
            task: tasks::id(choice.task),
            orientation: choice.orientation,
            purpose,
            is_urgent,
            again: in_run.disputed_counts(choice.task).iter().any(|of| of.author == OWN_REFEREE),
        };
        Some((run, recount))
    }

    /// How recounts of a run are chosen, in order.
    const RECOUNTS: [ChooseRecount<'a>; 4] = [
        Self::choose_blocking_recount,
        Self::choose_awaited_recount,
        Self::choose_held_back,
        Self::choose_other_recount,
    ];

    /// Chooses the next task of a run for a referee.
    pub(crate) fn choose_recount(
        self,
        run: RunIx,
        by: WorkerIx,
    ) -> Option<(Choice, RecountPurpose)> {
        Self::RECOUNTS.iter().find_map(|choose| choose(self, run, by))
    }

    /// Chooses a disputed task, or else an overdue one that no worker is delivering.
    fn choose_blocking_recount(self, run: RunIx, by: WorkerIx) -> Option<(Choice, RecountPurpose)> {
        let in_run = &self.runs[run];
        let disputed = in_run.tasks().disputed().keys().copied();
        let mut disputes = disputed.filter(|&task| !self.is_being_delivered(run, task));
        if let Some(choice) = disputes.find_map(|task| self.recount_disputed(run, task, by)) {
            return Some((choice, RecountPurpose::Dispute));
        }
        // Nothing that a worker holds keeps the run from its end.
        if by != OWN_REFEREE || in_run.state() == RunState::Disputed {
            return None;
        }
        let mut overdue = in_run.overdue(self.clock.ticks());
        let task = overdue.find(|&task| !self.is_being_delivered(run, task))?;
        let choice = Choice { task, purpose: Purpose::Count, orientation: Orientation::Upright };
        Some((choice, RecountPurpose::Overdue))
    }

    /// Chooses a recount without which a run that has all counts does not end.
    fn choose_awaited_recount(self, run: RunIx, by: WorkerIx) -> Option<(Choice, RecountPurpose)> {
        let in_run = &self.runs[run];
        // Rechecks of all tasks take long: machines that are held back do not wait for them.
        let has_few = in_run.recheck() != Recheck::All || self.is_verifying(run);
        if !in_run.is_counted() || in_run.state() != RunState::Running || !has_few {
            return None;
        }
        let mut awaited = self.awaited_recounts(run, by);
        let (task, purpose) = awaited.find(|&(task, _)| self.awaits_recount(run, task, by))?;
        Some((self.recheck_of(run, task), purpose))
    }

    /// Returns the required random recounts if a run waits for them, and its rechecks (without [`Recheck::All`], only
    /// overdue ones at the end).
    fn awaited_recounts(
        self,
        run: RunIx,
        by: WorkerIx,
    ) -> impl Iterator<Item = (TaskIx, RecountPurpose)> + 'a {
        let in_run = &self.runs[run];
        let (all, now) = (in_run.recheck() == Recheck::All, self.clock.ticks());
        let required = match self.is_verifying(run) {
            true => in_run.required_recounts(self.config.recounts),
            false => &[],
        };
        let required = required.iter().map(|&task| (task, RecountPurpose::Random));
        // Rechecks whose holders do not deliver.
        let is_ending = by == OWN_REFEREE && in_run.is_counted();
        let held: Vec<_> = if is_ending { in_run.held().collect() } else { Vec::new() };
        let queued = in_run
            .rechecks()
            .iter()
            .take(if all || in_run.is_counted() { MAX_SCANNED } else { 0 })
            .filter(move |&(_, &since)| all || now >= since + RECHECK_WAIT_MS)
            .map(|(&(_, task), _)| task);
        let rechecks = queued.chain(held).map(|task| (task, RecountPurpose::Recheck));
        required.chain(rechecks)
    }

    /// Chooses a first count of a machine that is held back until it is checked.
    fn choose_held_back(self, run: RunIx, by: WorkerIx) -> Option<(Choice, RecountPurpose)> {
        let mut firsts = self.unchecked_firsts(run);
        let (_, task) = firsts.find(|&(worker, task)| {
            self.is_on_probation(worker) && self.awaits_recount(run, task, by)
        })?;
        Some((self.recheck_of(run, task), RecountPurpose::First))
    }

    /// Returns a first count of each machine that was not checked yet.
    fn unchecked_firsts(self, run: RunIx) -> impl Iterator<Item = (WorkerIx, TaskIx)> {
        let firsts = self.runs[run].recounts.first_counts().filter(move |&(worker, _)| {
            !self.workers[worker].reputation.is_checked && !self.workers.is_barred(worker)
        });
        firsts.map(|(worker, &task)| (worker, task))
    }

    /// Returns whether a referee may recount a done task, and no recount of it is in progress.
    /// Of a run that ended disputed, referees count only the disputed tasks.
    fn awaits_recount(self, run: RunIx, task: TaskIx, by: WorkerIx) -> bool {
        let in_run = &self.runs[run];
        let done = in_run.tasks().done(task);
        let open = done.filter(|done| done.confirmed < Confirmation::Referee);
        in_run.state() != RunState::Disputed
            && !self.is_being_delivered(run, task)
            && open.is_some_and(|done| self.may_recount(&done, by))
    }

    /// Chooses another task: random recounts come first, then first counts of machines, and rechecks.
    fn choose_other_recount(self, run: RunIx, by: WorkerIx) -> Option<(Choice, RecountPurpose)> {
        let in_run = &self.runs[run];
        // The threshold rests on speeds that workers state: until the last count an idle referee goes beyond it.
        let rest = if by == OWN_REFEREE && !in_run.is_counted() { 1.0 } else { 0.0 };
        let random = |below| {
            let tasks = in_run.recounts.below(below).take(MAX_SCANNED);
            tasks.map(|&task| (task, RecountPurpose::Random))
        };
        let firsts = self.unchecked_firsts(run).map(|(_, task)| (task, RecountPurpose::First));
        let (task, purpose) = random(self.threshold(run))
            .chain(firsts)
            .chain(self.awaited_recounts(run, by))
            .chain(random(rest))
            .find(|&(task, _)| self.awaits_recount(run, task, by))?;
        Some((self.recheck_of(run, task), purpose))
    }

    /// Returns whether the coordinator's referee is counting a task, or a worker with a fresh lease.
    ///
    /// Workers cannot keep a task from the referee by taking it again and again: a fresh lease does not count once
    /// its recheck is due, or its task overdue, for longer than the lease is fresh.
    fn is_being_delivered(self, run: RunIx, task: TaskIx) -> bool {
        let (in_run, now) = (&self.runs[run], self.clock.ticks());
        let delivers = |&(holder, ref lease): &(WorkerIx, Lease)| {
            let due = match lease.purpose {
                Purpose::Count => in_run.overdue_at(task),
                Purpose::Recheck => Some(lease.queued + RECHECK_WAIT_MS),
                Purpose::Recount => None,
            };
            let is_stale = due.is_some_and(|due| now > due + (lease.fresh_until - lease.granted));
            self.is_fresh(holder, lease) && !is_stale
        };
        in_run.recounts.under_way.contains_key(&task) || in_run.leases_of(task).iter().any(delivers)
    }

    /// Returns whether a referee may recount a done task.
    /// The coordinator's own referee repeats its own count, which then stands alone, in the other orientation.
    fn may_recount(self, done: &Done, by: WorkerIx) -> bool {
        let second = done.second.map(|(worker, ..)| worker);
        let authors = [done.first.author].into_iter().chain(second);
        let mut others = authors.filter(|&author| author != OWN_REFEREE);
        !others.any(|author| self.workers.same_machine(author, by))
    }

    /// Returns a referee's recount of a disputed task unless it is a party, holds the task or made two recounts.
    /// The orientation is opposite to that of the referee's own recount, or else of the first count.
    fn recount_disputed(self, run: RunIx, task: TaskIx, by: WorkerIx) -> Option<Choice> {
        let counts = self.runs[run].disputed_counts(task);
        let own = || counts.iter().filter(|of| of.author == by);
        let first = own().next().or(counts.first())?;
        let (_, plain) = self.recounts_among(counts);
        let holds = self.runs[run].lease(task, by).is_some();
        (!self.is_party(&plain, by) && !holds && own().count() < 2).then(|| Choice {
            task,
            purpose: Purpose::Recount,
            orientation: first.orientation.rotated(),
        })
    }

    /// Returns the fraction of a run's tasks that referees recount at random.
    /// The fraction is their measured speed divided by that of the fleet.
    fn threshold(self, run: RunIx) -> f64 {
        let speed = |worker: WorkerIx| {
            let known = self.workers.get(worker);
            let assumed = REFERENCE_SPEED * known.threads_at_work() as f64;
            known.speed.per_second().unwrap_or(assumed)
        };
        let fleet = self.active_workers(run).map(speed).sum();
        let trusted = self.trusted_workers(run).map(speed).sum::<f64>();
        let own = match self.counts_itself(run) {
            true => f64::from(self.referee.threads) * self.own_speed(),
            false => 0.0,
        };
        match fleet {
            0.0 => 1.0,
            fleet => own / fleet + (trusted / fleet).min(MAX_TRUSTED_FRACTION),
        }
    }

    /// Returns the cost per second of one thread of the coordinator's referee.
    fn own_speed(self) -> f64 {
        self.referee.speed.per_second().unwrap_or(REFERENCE_SPEED)
    }

    /// Returns the seconds that the coordinator's referee takes for tasks of a run.
    pub(crate) fn referee_seconds<'b>(
        self,
        run: RunIx,
        tasks: impl Iterator<Item = &'b TaskIx>,
    ) -> f64 {
        self.own_seconds(tasks.map(|&task| self.runs[run].cost(task) as f64).sum())
    }

    fn own_seconds(self, cost: f64) -> f64 {
        cost / (self.own_speed() * f64::from(self.referee.threads.max(1)))
    }

    /// Returns the required random recounts of a run that waits for nothing else; `None` if it may end.
    ///
    /// Without them nothing bounds the wrong counts, however fast workers say they are. A published total
    /// that matches replaces them.
    pub(crate) fn verifying(self, run: RunIx) -> Option<Verifying> {
        if !self.is_verifying(run) {
            return None;
        }
        let required = self.runs[run].required_recounts(self.config.recounts);
        let tasks = self.runs[run].tasks();
        let made = required.iter().filter(|&&task| tasks.is_recounted(task)).count() as u64;
        let required = required.len() as u64;
        // Idle workers ask for this in every call, so the costs of the tasks are not added up.
        let mean = tasks.total_cost() as f64 / tasks.size() as f64;
        let seconds = || self.own_seconds((required - made) as f64 * mean);
        Some(Verifying { made, required, seconds: self.can_count_itself(run).then(seconds) })
    }

    /// Returns whether [`Self::verifying`] returns recounts. Every count asks for this, so the cheap conditions come
    /// first.
    pub(crate) fn is_verifying(self, run: RunIx) -> bool {
        let in_run = &self.runs[run];
        if !in_run.is_open() || !in_run.is_rechecked() {
            return false;
        }
        let required = in_run.required_recounts(self.config.recounts).iter().copied();
        let mut missing = required.filter(|&task| !in_run.tasks().is_recounted(task)).peekable();
        if missing.peek().is_none()
            || !self.can_count_itself(run) && !self.has_referee_for(run, missing)
        {
            return false;
        }
        let published = published_counts(in_run.manifest.spec.board);
        published.is_none_or(|counts| tally::total(in_run.tasks().counts()) != Ok(counts.all()))
    }

    /// Returns whether a trusted worker recounts one of these tasks, or may connect again after a restart.
    fn has_referee_for(self, run: RunIx, mut tasks: impl Iterator<Item = TaskIx>) -> bool {
        let trusted: Vec<_> = self.trusted_workers(run).collect();
        let may_recount = |task| {
            let done = self.runs[run].tasks().done(task);
            done.is_some_and(|done| trusted.iter().any(|&by| self.may_recount(&done, by)))
        };
        let in_grace =
            self.clock.ticks() < self.config.lease_ms && self.workers.has_trusted_token();
        in_grace || tasks.any(may_recount)
    }

    /// Returns how long a run whose tasks are all done may wait for random recounts; `None` if none is due.
    /// The run waits for a hundredth of its counting time or one mean task, whichever is longer.
    pub(crate) fn recount_wait_ms(self, run: RunIx) -> Option<Ticks> {
        let in_run = &self.runs[run];
        let is_due = in_run.all_done()
            && self.is_refereed(run)
            && in_run.recounts.below(self.threshold(run)).next().is_some();
        let mean = in_run.tasks().total_cost() as f64 / in_run.tasks().size() as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let mean_ms = (1_000.0 * mean / self.own_speed()) as Ticks;
        is_due.then(|| (in_run.elapsed_ms() / 100).max(mean_ms))
    }

    /// Returns whether a referee counts a disputed task of a run, or may count one.
    pub(crate) fn has_referee_for_disputes(self, run: RunIx) -> bool {
        let own = self.counts_itself(run).then_some(OWN_REFEREE);
        let in_run = &self.runs[run];
        let referees = || self.trusted_workers(run).chain(own);
        in_run.tasks().disputed().keys().any(|&task| {
            self.is_being_delivered(run, task)
                || referees().any(|by| self.recount_disputed(run, task, by).is_some())
        })
    }
}
