//! Referees: their recounts decide disputed and randomly selected tasks.
//! No task is decided by votes.
//!
//! Referees are the coordinator's own counting thread, which calls [`Scheduler::next_recount`], and workers
//! with a trusted token. None of them referees a count of its own machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use common::{
    count::Orientation,
    kernel::KernelName,
    plan::{PlanHash, TaskId},
    published::published_counts,
    run::RunId,
    tally,
    text::{age, thousands},
};

use super::{
    Scheduler,
    grants::{Choice, MAX_SCANNED},
    rechecks::RECHECK_WAIT_MS,
};
use crate::{
    clock::{Millis, Ticks},
    fleet::{LeaseIx, OWN_REFEREE, REFERENCE_SPEED, RunIx, Speed, WorkerIx},
    ledger::{
        Confirmation, Done, EntryKind, Recheck, Record, RunState, Stage, TaskCount, TaskState,
        Trust,
        tasks::{self, TaskIx},
    },
    run::{Lease, Purpose},
};

/// Maximum fraction of the tasks that trusted workers recount at random.
/// Without it, a fleet of trusted workers alone would count everything twice.
const MAX_TRUSTED_FRACTION: f64 = 0.1;

/// Time that a run waits at its end for a referee to appear.
const REFEREE_WAIT_MS: Ticks = 60_000;

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
    /// Whether the run waits for nothing else: the task is counted at normal priority.
    pub blocks_end: bool,
    /// Whether this is the task's second recount, with another kernel if available.
    pub again: bool,
}

/// The coordinator's own referee.
#[derive(Debug, Default)]
pub(super) struct Referee {
    threads: u32,
    memory_bytes: u64,
    /// Runs of which the referee could not count a task for lack of memory.
    given_up: BTreeSet<RunIx>,
    speed: Speed,
}

/// Status of the coordinator's own referee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefereeStatus {
    /// Number of threads; 0 if there is no referee.
    pub threads: u32,
    /// Whether the referee has stopped after a wrong count.
    pub broken: bool,
    /// Number of tasks in progress.
    pub counting: u64,
}

impl Scheduler {
    /// Sets the number of the referee's threads and the memory of each.
    /// Without threads disputes wait for a trusted worker.
    pub fn set_referee(&mut self, threads: u32, memory_bytes: u64) {
        (self.referee.threads, self.referee.memory_bytes) = (threads, memory_bytes);
        if threads == 0 {
            self.runs.iter_mut().for_each(|run| run.recounts.under_way.clear());
        }
    }

    /// Returns the memory that a referee thread needs for a run and the memory it has.
    /// Both are in bytes; `None` if it suffices, or there is no referee.
    pub fn referee_lacks(&self, run: RunId) -> Option<(u64, u64)> {
        let Referee { threads, memory_bytes, .. } = self.referee;
        let least_bytes = self.runs[*self.by_id.get(&run)?].least_bytes();
        (threads > 0 && least_bytes > memory_bytes).then_some((least_bytes, memory_bytes))
    }

    pub fn referee(&self) -> RefereeStatus {
        let counting = self.runs.iter().map(|run| run.recounts.under_way.len() as u64).sum();
        RefereeStatus { threads: self.referee.threads, broken: self.is_broken(), counting }
    }

    /// Assigns a task, disputed if `disputes_alone`, to the coordinator's referee.
    /// The recount ends with [`Self::recounted`] or [`Self::recount_abandoned`].
    pub fn next_recount(&mut self, disputes_alone: bool, now: Millis) -> Option<Recount> {
        self.advance(now);
        let served = self.order.iter().copied().filter(|&run| self.counts_itself(run));
        // A run that waits only for the referee does not wait for random recounts of runs in progress.
        let (ending, counting): (Vec<_>, Vec<_>) = served.partition(|&run| self.is_verifying(run));
        let mut served = ending.into_iter().chain(counting);
        let (run, choice, purpose) = served.find_map(|run| {
            let (choice, purpose) = self.choose_recount(run, OWN_REFEREE)?;
            let decides = matches!(purpose, RecountPurpose::Dispute | RecountPurpose::Overdue);
            let suits = !disputes_alone || decides;
            suits.then_some((run, choice, purpose))
        })?;
        let in_run = &mut self.runs[run];
        in_run.recounts.under_way.insert(choice.task, self.clock.ticks());
        let blocks_end = match purpose {
            RecountPurpose::Dispute => in_run.has_only_disputes(),
            RecountPurpose::Random => self.is_verifying(run),
            RecountPurpose::Overdue => true,
            RecountPurpose::Recheck => in_run.is_counted(),
            RecountPurpose::First => false,
        };
        let in_run = &self.runs[run];
        Some(Recount {
            run: in_run.manifest.run,
            plan: in_run.manifest.plan,
            task: tasks::id(choice.task),
            orientation: choice.orientation,
            purpose,
            blocks_end,
            again: in_run.disputed_counts(choice.task).iter().any(|of| of.author == OWN_REFEREE),
        })
    }

    /// Applies the referee's count of a task from [`Self::next_recount`].
    pub fn recounted(
        &mut self,
        recount: &Recount,
        count: u64,
        kernel: KernelName,
        duration_us: u64,
        now: Millis,
    ) {
        self.advance(now);
        let Some((key, since)) = self.end_recount(recount) else { return };
        let (run, task) = key;
        let took_ms = self.clock.ticks() - since;
        self.referee.speed.measure(self.runs[run].cost(task), took_ms);
        if self.is_broken() || self.runs[run].state() == RunState::Cancelled {
            return;
        }
        if count > self.runs[run].plan.task_limit(recount.task) {
            return self.stop_referee(&format!("{count} solutions of task {task} are impossible"));
        }
        let count =
            TaskCount { count, author: OWN_REFEREE, kernel, orientation: recount.orientation };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let record = Record { version, duration_us, ..self.record_of(key, &count) };
        let is_open = self.runs[run].tasks().state(task) == TaskState::Open;
        match recount.purpose {
            // It is a count like any other: a different one makes a dispute.
            RecountPurpose::Overdue if is_open => self.accept(key, count, record),
            _ => self.take_recount(key, count, record),
        }
    }

    /// Ends a recount without a count; `for_memory` excludes the run from further ones.
    pub fn recount_abandoned(&mut self, recount: &Recount, for_memory: bool) {
        if let Some(((run, _), _)) = self.end_recount(recount)
            && for_memory
        {
            self.referee.given_up.insert(run);
        }
    }

    fn end_recount(&mut self, recount: &Recount) -> Option<(LeaseIx, Ticks)> {
        let (run, task) = (*self.by_id.get(&recount.run)?, tasks::index(recount.task));
        self.runs[run].recounts.under_way.remove(&task).map(|since| ((run, task), since))
    }

    /// Returns whether the coordinator's own referee has stopped after a wrong count.
    fn is_broken(&self) -> bool {
        self.workers.barred.contains(&OWN_REFEREE)
    }

    /// Returns whether the coordinator itself recounts tasks of a run.
    pub(super) fn counts_itself(&self, run: RunIx) -> bool {
        self.runs[run].grants() && self.can_count_itself(run)
    }

    /// Returns whether the coordinator itself can recount tasks of a run, once it is resumed.
    pub(super) fn can_count_itself(&self, run: RunIx) -> bool {
        let Referee { threads, memory_bytes, ref given_up, .. } = self.referee;
        let able = threads > 0 && !self.is_broken() && !given_up.contains(&run);
        able && self.runs[run].least_bytes() <= memory_bytes
    }

    /// Returns whether any referee counts tasks of a run.
    pub(super) fn is_refereed(&self, run: RunIx) -> bool {
        let has_trusted = || self.trusted_workers(run).next().is_some();
        self.counts_itself(run) || self.runs[run].grants() && has_trusted()
    }

    /// Returns the connected trusted workers that count tasks of a run.
    fn trusted_workers(&self, run: RunIx) -> impl Iterator<Item = WorkerIx> + '_ {
        self.active_workers(run).filter(|&worker| self.workers.is_referee(worker))
    }

    /// Chooses the next task of a run for a referee.
    /// Disputes come first, then tasks that nobody delivers, first counts of machines that are held back until
    /// they are checked, random recounts, other first counts, and rechecks (without [`Recheck::All`], only
    /// overdue ones at the end).
    pub(super) fn choose_recount(
        &self,
        run: RunIx,
        by: WorkerIx,
    ) -> Option<(Choice, RecountPurpose)> {
        let in_run = &self.runs[run];
        let mut disputes = in_run.unassigned_disputes();
        if let Some(choice) = disputes.find_map(|task| self.recount_disputed(run, task, by)) {
            return Some((choice, RecountPurpose::Dispute));
        }
        if in_run.is_finished() && !in_run.is_rechecking() {
            return None;
        }
        let (all, now) = (in_run.recheck() == Recheck::All, self.clock.ticks());
        // Nothing that a worker holds keeps the run from its end.
        if by == OWN_REFEREE
            && let Some(task) =
                in_run.overdue(now).find(|&task| !self.is_being_delivered(run, task))
        {
            let purpose = Purpose::Count;
            let choice = Choice { task, purpose, orientation: Orientation::Upright };
            return Some((choice, RecountPurpose::Overdue));
        }
        let suits = |&task: &TaskIx| {
            let done = in_run.tasks().done(task);
            let open = done.filter(|done| done.confirmed < Confirmation::Referee);
            !self.is_being_delivered(run, task)
                && open.is_some_and(|done| self.may_recount(&done, by))
        };
        let firsts = |held_back: bool| {
            let unchecked = in_run.recounts.first_counts().filter(move |&(worker, _)| {
                let is_checked = self.workers[worker].reputation.is_checked;
                let waits = !is_checked && !self.workers.is_barred(worker);
                waits && (!held_back || self.is_on_probation(worker))
            });
            unchecked.map(|(_, task)| (task, RecountPurpose::First))
        };
        // The threshold rests on speeds that workers state: until the last count an idle referee goes beyond it.
        let rest = if by == OWN_REFEREE && !in_run.is_counted() { 1.0 } else { 0.0 };
        let random = |below| {
            let tasks = in_run.recounts.below(below).take(MAX_SCANNED);
            tasks.map(|task| (task, RecountPurpose::Random))
        };
        let required = match self.is_verifying(run) {
            true => in_run.required_recounts(self.config.recounts),
            false => &[],
        };
        let required = required.iter().map(|task| (task, RecountPurpose::Random));
        // Rechecks whose holders do not deliver.
        let is_ending = by == OWN_REFEREE && in_run.is_counted();
        let held: Vec<_> = if is_ending { in_run.held().collect() } else { Vec::new() };
        let rechecks = in_run
            .rechecks()
            .iter()
            .take(if all || in_run.is_counted() { MAX_SCANNED } else { 0 })
            .filter(|&(_, &since)| all || now >= since + RECHECK_WAIT_MS)
            .map(|((_, task), _)| (task, RecountPurpose::Recheck));
        let (&task, purpose) = firsts(true)
            .chain(random(self.threshold(run)))
            .chain(required)
            .chain(firsts(false))
            .chain(rechecks)
            .chain(held.iter().map(|task| (task, RecountPurpose::Recheck)))
            .chain(random(rest))
            .find(|(task, _)| suits(task))?;
        Some((self.recheck_of(run, task), purpose))
    }

    /// Returns whether the coordinator's referee is counting a task, or a worker with a fresh lease.
    ///
    /// A fresh lease of a recheck does not count once the recheck has waited longer than the lease is fresh:
    /// others may have held it before.
    fn is_being_delivered(&self, run: RunIx, task: TaskIx) -> bool {
        let now = self.clock.ticks();
        let delivers = |&(holder, ref lease): &(WorkerIx, Lease)| {
            let patience_ms = RECHECK_WAIT_MS + (lease.fresh_until - lease.granted);
            let is_stale = lease.purpose == Purpose::Recheck && now > lease.queued + patience_ms;
            self.is_fresh(holder, lease) && !is_stale
        };
        self.runs[run].recounts.under_way.contains_key(&task)
            || self.runs[run].leases_of(task).iter().any(delivers)
    }

    /// Returns whether a referee may recount a done task.
    /// The coordinator's own referee repeats its own count, which then stands alone, in the other orientation.
    fn may_recount(&self, done: &Done, by: WorkerIx) -> bool {
        let second = done.second.map(|(worker, ..)| worker);
        let authors = [done.first.author].into_iter().chain(second);
        let mut others = authors.filter(|&author| author != OWN_REFEREE);
        !others.any(|author| self.workers.same_machine(author, by))
    }

    /// Returns the required random recounts of a run that waits for nothing else; `None` if it may end.
    ///
    /// Without them nothing bounds the wrong counts, however fast workers say they are. A published total
    /// that matches replaces them.
    pub(super) fn verifying(&self, run: RunIx) -> Option<Verifying> {
        if !self.is_verifying(run) {
            return None;
        }
        let required = self.runs[run].required_recounts(self.config.recounts);
        let (made, missing): (Vec<_>, Vec<_>) =
            required.iter().partition(|&&task| self.runs[run].tasks().is_recounted(task));
        let seconds = || self.referee_seconds(run, missing.iter().copied());
        Some(Verifying {
            made: made.len() as u64,
            required: required.len() as u64,
            seconds: self.can_count_itself(run).then(seconds),
        })
    }

    /// Returns whether [`Self::verifying`] returns recounts. Every count asks for this, so the cheap conditions come first.
    fn is_verifying(&self, run: RunIx) -> bool {
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
    fn has_referee_for(&self, run: RunIx, mut tasks: impl Iterator<Item = TaskIx>) -> bool {
        let trusted: Vec<_> = self.trusted_workers(run).collect();
        let may_recount = |task| {
            let done = self.runs[run].tasks().done(task);
            done.is_some_and(|done| trusted.iter().any(|&by| self.may_recount(&done, by)))
        };
        let in_grace =
            self.clock.ticks() < self.config.lease_ms && self.workers.has_trusted_token();
        in_grace || tasks.any(may_recount)
    }

    /// Returns a referee's recount of a disputed task unless it is a party or made two.
    /// The orientation is opposite to that of the referee's own recount, or else of the first count.
    fn recount_disputed(&self, run: RunIx, task: TaskIx, by: WorkerIx) -> Option<Choice> {
        let counts = self.runs[run].disputed_counts(task);
        let own = || counts.iter().filter(|of| of.author == by);
        let first = own().next().or(counts.first())?;
        let (_, plain) = self.recounts_among(counts);
        (!self.is_party(&plain, by) && own().count() < 2).then(|| Choice {
            task,
            purpose: Purpose::Recount,
            orientation: first.orientation.rotated(),
        })
    }

    /// Returns the fraction of a run's tasks that referees recount at random.
    /// The fraction is their measured speed divided by that of the fleet.
    fn threshold(&self, run: RunIx) -> f64 {
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
    fn own_speed(&self) -> f64 {
        self.referee.speed.per_second().unwrap_or(REFERENCE_SPEED)
    }

    /// Returns the seconds that the coordinator's referee takes for tasks of a run.
    pub(super) fn referee_seconds<'a>(
        &self,
        run: RunIx,
        tasks: impl Iterator<Item = &'a TaskIx>,
    ) -> f64 {
        let cost: f64 = tasks.map(|&task| self.runs[run].cost(task) as f64).sum();
        cost / (self.own_speed() * f64::from(self.referee.threads.max(1)))
    }

    /// Returns whether a worker's machine has made one of these counts.
    fn is_party(&self, counts: &[TaskCount], worker: WorkerIx) -> bool {
        counts.iter().any(|of| self.workers.same_machine(of.author, worker))
    }

    /// Divides the counts of a task, in their order, into recounts and others.
    /// A trusted worker's count is a recount if other machines counted the task before and its own did not.
    fn recounts_among(&self, counts: &[TaskCount]) -> (Vec<TaskCount>, Vec<TaskCount>) {
        let (mut recounts, mut plain) = (Vec::new(), Vec::new());
        for (at, &of) in counts.iter().enumerate() {
            let is_trusted =
                at > 0 && self.workers[of.author].trusted && !self.is_party(&plain, of.author);
            let is_recount = is_trusted || of.author == OWN_REFEREE;
            if is_recount { recounts.push(of) } else { plain.push(of) }
        }
        (recounts, plain)
    }

    /// Returns whether a worker's next count of a task is a recount by a referee.
    pub(super) fn is_recount(&self, (run, task): LeaseIx, worker: WorkerIx) -> bool {
        let state = self.runs[run].tasks().state(task);
        let counts = state.counts();
        // A recount that stands, since the others are void, is a count like any other.
        let plain = match state.standing() {
            Some(_) => counts.clone(),
            None => self.recounts_among(&counts).1,
        };
        self.workers.is_referee(worker) && !counts.is_empty() && !self.is_party(&plain, worker)
    }

    /// Applies a referee's count of a task.
    pub(super) fn take_recount(&mut self, key: LeaseIx, count: TaskCount, record: Record) {
        let (run, task) = key;
        let before = self.runs[run].tasks().state(task);
        let mut counts = before.counts();
        // A repeated message is not a second recount, which has the other orientation. A task without
        // counts was reopened: its next count will be checked.
        if counts.contains(&count) || counts.is_empty() {
            return;
        }
        counts.push(count);
        let mut own = counts.iter().filter(|of| of.author == count.author);
        let contradicts_itself = own.any(|of| of.count != count.count);
        let is_settled = match before.standing() {
            Some(stands) if before.is_final() => {
                if stands != count.count {
                    self.blame_author(key, &count, stands);
                }
                return;
            }
            Some(stands) => stands == count.count,
            None => {
                let wins = || self.final_count(&counts).is_some_and(|of| of.count == count.count);
                !contradicts_itself && wins()
            }
        };
        if is_settled {
            return self.settle(key, count, record);
        }
        let contradicts_total = self.contradicts_total(key, &count);
        self.remove_all(run, task);
        self.journal(key, EntryKind::Recounted, count, record);
        self.reopen_if_finished(run, contradicts_total);
        if contradicts_itself {
            self.blame(count.author, &format!("its two counts of task {task} differ"), None);
            self.void_counts(key, Some(count.author));
            // Another referee's count may be final now.
            self.settle_if_final(key);
        }
    }

    /// Returns the final count of a disputed task, if there is one.
    ///
    /// A referee made it twice, or once after an equal count of a worker while no two tokens agree against
    /// it. No other referee that is connected, or that recounted the task twice, made a different count.
    fn final_count(&self, counts: &[TaskCount]) -> Option<TaskCount> {
        let (recounts, plain) = self.recounts_among(counts);
        let is_repeated =
            |of: &TaskCount| recounts.iter().filter(|other| other.author == of.author).count() > 1;
        // After a restart, a worker is unknown until it calls.
        let in_grace = self.clock.ticks() < self.config.lease_ms;
        let is_connected = |worker| match worker {
            OWN_REFEREE => self.referee.threads > 0 && !self.is_broken(),
            _ => self.workers.find(worker).map_or(in_grace, |known| known.deadline.is_some()),
        };
        let agree = |one: &TaskCount, other: &TaskCount| {
            let [one_token, other_token] = [one, other].map(|of| self.workers.token(of.author));
            one.count == other.count && one_token != other_token
        };
        let is_final = |of: &&TaskCount| {
            let mut others = recounts.iter().filter(|other| other.count != of.count);
            let is_opposed = others.any(|other| is_repeated(other) || is_connected(other.author));
            let against = || plain.iter().filter(|other| other.count != of.count);
            let is_backed = || {
                // A later count may be a copy: conflicts are no secret.
                let mut earlier = counts.iter().take_while(|other| *other != *of);
                earlier.any(|other| other.count == of.count && plain.contains(other))
                    && !against().any(|one| against().any(|other| agree(one, other)))
            };
            let is_able = of.author != OWN_REFEREE || !self.is_broken();
            is_able && !is_opposed && (is_repeated(of) || is_backed())
        };
        recounts.iter().find(is_final).copied()
    }

    /// Bars a machine that was found wrong, or stops the coordinator's own referee.
    fn blame(&mut self, worker: WorkerIx, reason: &str, except: Option<LeaseIx>) {
        match worker {
            OWN_REFEREE => self.stop_referee(reason),
            _ => self.bar(worker, reason, except),
        }
    }

    /// Blames the author of a count that differs from the final one; returns why.
    pub(super) fn blame_author(&mut self, key: LeaseIx, of: &TaskCount, right: u64) -> String {
        let reason = format!("it counted {} for task {}, the referee {right}", of.count, key.1);
        self.blame(of.author, &reason, Some(key));
        reason
    }

    /// Stops the coordinator's own referee after a wrong count, until readmission.
    fn stop_referee(&mut self, why: &str) {
        self.workers.bar(OWN_REFEREE);
        let reason = format!(
            "the coordinator's own machine is broken and its referee has stopped: {why}; check memory and \
             cooling"
        );
        self.note_trust(OWN_REFEREE, Trust::Barred, &reason);
    }

    /// Makes a referee's count final and bars the authors of different ones.
    fn settle(&mut self, key: LeaseIx, count: TaskCount, record: Record) {
        let (run, task) = key;
        let was_disputed = self.runs[run].state() == RunState::Disputed
            && self.runs[run].tasks().stage(task) == Stage::Disputed;
        let reopens = was_disputed || self.contradicts_total(key, &count);
        self.remove_all(run, task);
        let counts = self.runs[run].tasks().state(task).counts();
        let (right, wrong): (Vec<_>, Vec<_>) =
            counts.into_iter().partition(|other| other.count == count.count);
        let losers: BTreeMap<_, _> =
            wrong.iter().rev().map(|other| (other.author, other)).collect();
        for loser in losers.into_values() {
            self.blame_author(key, loser, count.count);
        }
        for winner in right.iter().filter(|other| other.author != count.author) {
            self.workers.reputation_mut(winner.author).confirm(Confirmation::Referee);
        }
        self.journal(key, EntryKind::Settled, count, record);
        self.reopen_if_finished(run, reopens);
        self.announce_if_done(run);
    }

    /// Returns whether a count differs from the one of its task in the run's total: the first, which stands,
    /// or stood until others of a complete run differed.
    fn contradicts_total(&self, (run, task): LeaseIx, count: &TaskCount) -> bool {
        let in_run = &self.runs[run];
        let state = in_run.tasks().state(task);
        let is_in_total = state.standing().is_some() || in_run.is_rechecking();
        is_in_total && state.counts().first().is_some_and(|first| first.count != count.count)
    }

    /// Returns whether a run whose tasks are all done waits for random recounts.
    pub(super) fn awaits_recounts(&mut self, run: RunIx) -> bool {
        let now = self.clock.ticks();
        let is_verifying = self.runs[run].all_done() && self.is_verifying(run);
        let limit_ms = if is_verifying { Some(Ticks::MAX) } else { self.recount_wait_ms(run) };
        let Some(limit_ms) = limit_ms else { return false };
        now < self.runs[run].done_since(now).saturating_add(limit_ms)
    }

    /// Returns how long a run whose tasks are all done may wait for random recounts; `None` if none is due.
    /// The run waits for a hundredth of its counting time or one mean task, whichever is longer.
    pub(super) fn recount_wait_ms(&self, run: RunIx) -> Option<Ticks> {
        let in_run = &self.runs[run];
        let is_due = in_run.all_done()
            && self.is_refereed(run)
            && in_run.recounts.below(self.threshold(run)).next().is_some();
        let mean = in_run.tasks().total_cost() as f64 / in_run.tasks().size() as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let mean_ms = (1_000.0 * mean / self.own_speed()) as Ticks;
        is_due.then(|| (in_run.elapsed_ms() / 100).max(mean_ms))
    }

    /// Removes the rechecks of a run that wait for another token.
    /// Unconfirmed counts stay queued for another machine with the same token, or the coordinator's referee.
    fn remove_waits_for_tokens(&mut self, run: RunIx) {
        let (tokens, in_run) = (self.active_tokens(run), &self.runs[run]);
        let is_removed = |&&(author, task): &&(WorkerIx, TaskIx)| {
            let token = self.workers.token(author);
            let mut others = self.on_other_machine(run, author);
            let done = in_run.tasks().done(task);
            tokens.iter().any(|other| *other != token)
                && (done.is_some_and(|done| done.confirmed.elsewhere())
                    || !self.counts_itself(run)
                        && others.all(|other| self.workers.token(other) != token))
        };
        let removed: Vec<_> = in_run.rechecks().keys().filter(is_removed).copied().collect();
        for (_, task) in removed {
            self.runs[run].remove_recheck(task);
        }
    }

    /// Returns whether a referee counts a disputed task of a run, or may count one.
    fn has_referee_for_disputes(&self, run: RunIx) -> bool {
        let own = self.counts_itself(run).then_some(OWN_REFEREE);
        let in_run = &self.runs[run];
        let referees = || self.trusted_workers(run).chain(own);
        in_run.tasks().disputed().keys().any(|&task| {
            in_run.is_being_counted(task)
                || referees().any(|by| self.recount_disputed(run, task, by).is_some())
        })
    }

    /// Settles a disputed task if it has a final count.
    fn settle_if_final(&mut self, key: LeaseIx) {
        if let Some(count) = self.final_count(self.runs[key.0].disputed_counts(key.1)) {
            let record = self.record_of(key, &count);
            self.settle(key, count, record);
        }
    }

    /// Ends the waits of runs that have lasted long enough.
    /// Runs wait for random recounts, with [`Recheck::All`] for rechecks by another token, and for a referee.
    pub(super) fn end_waits(&mut self, now: Ticks) {
        for run in 0..self.runs.len() {
            self.runs[run].wait_for_tokens(now);
            if self.runs[run].has_waited_for_tokens(now) {
                self.remove_waits_for_tokens(run);
            }
            self.announce_if_done(run);
            let waits = self.runs[run].is_rechecking()
                || matches!(self.runs[run].state(), RunState::Running | RunState::Disputed);
            let stalled = waits && self.runs[run].has_only_disputes() && self.workers.live() > 0;
            if !stalled || self.has_referee_for_disputes(run) {
                self.runs[run].clear_stall();
                continue;
            }
            // A referee that contradicted a count may have left.
            for task in self.runs[run].tasks().disputed().keys().copied().collect::<Vec<_>>() {
                self.settle_if_final((run, task));
            }
            let is_over = now >= self.runs[run].stalled_since(now) + REFEREE_WAIT_MS;
            if is_over && self.runs[run].has_only_disputes() {
                self.runs[run].clear_stall();
                if let Some(change) = self.runs[run].end_disputed() {
                    self.finished.push_back(self.runs[run].manifest.run);
                    self.changes.push_back(change);
                }
            }
        }
    }
}
