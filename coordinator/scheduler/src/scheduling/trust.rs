//! Trust in workers: reputation, bars, and the counts of barred machines.

use std::{collections::BTreeSet, ops::RangeInclusive};

use common::{messages::sync::SyncRequest, text::plural};

use super::Scheduler;
use crate::{
    clock::MAX_STEP_MS,
    fleet::{LeaseIx, OWN_REFEREE, RunIx, WorkerIx},
    ledger::{
        Change, Confirmation, EntryKind, Principal, RunState, Trust, TrustRecord, tasks::seconds,
    },
};

/// Failed self-tests per token and hour that are stored.
const REPORTS_PER_TOKEN: usize = 100;

const HOUR_S: u32 = 3_600;

/// Returns a suspect time; one without a beginning includes the next hour.
fn suspected(from_s: u32, until_s: u32) -> RangeInclusive<u32> {
    from_s..=until_s.saturating_add(if from_s == 0 { HOUR_S } else { 0 })
}

/// Returns the part of a suspect time before the report.
fn reported(window: &RangeInclusive<u32>) -> RangeInclusive<u32> {
    let later_s = if *window.start() == 0 { HOUR_S } else { 0 };
    *window.start()..=window.end().saturating_sub(later_s)
}

impl Scheduler {
    /// Bars a machine that was found wrong.
    /// Its counts are voided unless another token or a referee confirmed them, but not in the task `except`.
    ///
    /// A machine does not condemn its neighbors. If many with its token were wrong, one count of each machine that
    /// nobody has confirmed is rechecked by another token or a referee before the machine gets more work.
    pub(super) fn bar(&mut self, worker: WorkerIx, reason: &str, except: Option<LeaseIx>) {
        if self.workers.is_barred(worker) {
            return;
        }
        self.workers.bar(worker);
        self.note_trust(worker, Trust::Barred, reason);
        self.release_all(worker);
        self.recheck_distrusted();
        self.void_all(except);
    }

    /// Queues a recheck of one count of each distrusted machine.
    pub(super) fn recheck_distrusted(&mut self) {
        let (workers, now) = (&self.workers, self.clock.ticks());
        for run in self.runs.iter_mut().filter(|run| run.is_live()) {
            let firsts =
                run.recounts.first_counts().filter(|&(worker, _)| workers.is_distrusted(worker));
            for task in firsts.map(|(_, &task)| task).collect::<Vec<_>>() {
                run.add_recheck(task, now);
            }
        }
    }

    /// Voids the counts of barred machines in all runs that are not cancelled, except those of one task.
    fn void_all(&mut self, except: Option<LeaseIx>) {
        for run in 0..self.runs.len() {
            if self.runs[run].state() == RunState::Cancelled {
                continue;
            }
            if self.snapshot().keeps_result(run) {
                let barred: BTreeSet<_> =
                    self.workers.all().filter(|&worker| self.workers.is_barred(worker)).collect();
                self.recheck(run, |_, _, done| {
                    let is_barred = |author| barred.contains(&author);
                    let is_confirmed = match done.confirmed {
                        Confirmation::Referee => true,
                        Confirmation::OtherToken => {
                            !done.second.is_some_and(|(author, ..)| is_barred(author))
                        }
                        _ => false,
                    };
                    is_barred(done.first.author) && !is_confirmed
                });
                continue;
            }
            self.void_counts_of_barred(run, except);
            self.announce_if_done(run);
        }
    }

    /// Voids the counts of barred machines in a run, except those of one task.
    pub(super) fn void_counts_of_barred(&mut self, run: RunIx, except: Option<LeaseIx>) {
        if !self.workers.barred.is_empty() {
            for task in self.runs[run].all_tasks() {
                if except != Some((run, task)) {
                    self.void_counts((run, task), None);
                }
            }
        }
    }

    /// Voids the counts of barred machines of a task, and of `also`, unless another token or a referee agreed.
    /// The task then has the state that its other counts give it. Barred machines confirm nothing.
    /// Recounts of a stopped referee stay: the disputes wait for another one.
    pub(super) fn void_counts(&mut self, key: LeaseIx, also: Option<WorkerIx>) {
        let (run, task) = key;
        let (confirmed, state) =
            (self.runs[run].tasks().done(task), self.runs[run].tasks().state(task));
        let is_void = |worker| {
            also == Some(worker) || worker != OWN_REFEREE && self.workers.is_barred(worker)
        };
        let is_kept = confirmed.is_some_and(|done| done.confirmed >= Confirmation::OtherToken)
            && state.counts().iter().any(|count| !is_void(count.author));
        if is_kept || state.is_final() {
            return;
        }
        let (mut void, remaining): (Vec<_>, Vec<_>) =
            state.counts().into_iter().partition(|count| is_void(count.author));
        if void.is_empty() {
            return;
        }
        // Different counts last: once the task is done, it retains only two of its equal counts.
        void.sort_by_key(|count| remaining.first().is_none_or(|other| other.count != count.count));
        self.remove_all(run, task);
        for count in void {
            // The remaining counts may be final by now, and one entry voids all counts of a worker.
            let state = self.runs[run].tasks().state(task);
            if !state.is_final() && state.counts().iter().any(|other| other.author == count.author)
            {
                let record = self.snapshot().record_of(key, &count);
                self.journal(key, EntryKind::Voided, count, record);
            }
        }
        // Only done tasks are rechecked.
        self.runs[run].add_recheck(task, self.clock.ticks());
        self.reopen_if_finished(run, true);
    }

    /// Stores a change of the trust in a worker.
    pub(super) fn note_trust(&mut self, worker: WorkerIx, trust: Trust, reason: &str) {
        self.changes.push_back(Change::Trust(TrustRecord {
            worker: self.workers[worker].id,
            principal: self.workers[worker].principal.clone(),
            name: self.workers.name(worker).to_owned(),
            trust,
            reason: reason.to_owned(),
            since_unix_ms: self.clock.wall(self.clock.ticks()).0,
        }));
    }

    /// Restores a change of the trust in a worker; call before [`Self::restore_run`].
    pub fn restore_trust(&mut self, record: &TrustRecord) {
        let worker = self.workers.pinned(record.worker);
        // An operator may have readmitted a worker that had not called.
        if record.principal != Principal::default() {
            self.workers.identify(worker, &record.principal);
        }
        let since_s = seconds(record.since_unix_ms);
        match record.trust {
            Trust::Barred => {
                self.workers.reputation_mut(worker).has_counted = true;
                self.workers.bar(worker);
            }
            Trust::Trusted => self.workers.readmit(worker),
            Trust::SelfTestFailed { from_unix_ms } => {
                let window = suspected(seconds(from_unix_ms), since_s);
                self.suspect_windows.push((worker, window));
            }
            Trust::SelfTestPassed { passed } => {
                self.workers.raise_stored_self_tests(worker, passed)
            }
        }
    }

    /// Voids counts of barred machines that a crash left.
    pub(super) fn void_barred_counts(&mut self) {
        if self.workers.all().any(|worker| self.workers.is_barred(worker)) {
            self.void_all(None);
        }
    }

    /// Applies a worker's self-test report.
    /// If more threads than before have failed, its counts since the last passed test are rechecked.
    /// A worker whose report was stored states no suspect time: then only its display is restored.
    pub(super) fn take_self_tests(&mut self, worker: WorkerIx, request: &SyncRequest) {
        let report = request.self_test;
        let is_full = request.partials.len() >= self.config.partials_per_sync;
        let known = self.workers.get_mut(worker);
        let has_new_failures =
            report.failed_threads > known.failed_threads && report.suspect_window_ms > 0;
        let is_suspect = has_new_failures || known.has_more_suspect_results;
        known.failed_threads = known.failed_threads.max(report.failed_threads);
        known.has_more_suspect_results = is_suspect && is_full;
        // A worker to which no task refers has no suspect counts. Its report would reserve its index forever, and
        // identities are free.
        if !is_suspect || !self.workers[worker].pinned {
            return;
        }
        let window_ms = report.suspect_window_ms;
        // The scheduler's time may be ahead of the worker's by one step.
        let reach_ms = window_ms.saturating_add(MAX_STEP_MS);
        let now = self.clock.steady(self.clock.ticks());
        let mut window = seconds(now.0.saturating_sub(reach_ms))..=seconds(now.0);
        self.workers.reputation_mut(worker).reset();
        let Some(is_stored) = self.note_suspect_window(worker, &mut window) else { return };
        let wall = self.clock.wall(self.clock.ticks());
        let are_all = *window.start() == 0;
        let from_unix_ms = if are_all { 0 } else { wall.0.min(now.0).saturating_sub(reach_ms) };
        let threads = plural(report.failed_threads, "thread");
        let what = match are_all {
            // A process whose first self-test fails does not know since when earlier processes were wrong.
            true => "all its counts".to_owned(),
            false => format!("its counts of the last {} s", window_ms / 1_000),
        };
        let reason = format!("{threads} failed the self-test: {what} are rechecked");
        if is_stored {
            self.note_trust(worker, Trust::SelfTestFailed { from_unix_ms }, &reason);
        }
        for run in 0..self.runs.len() {
            if self.runs[run].state() != RunState::Cancelled {
                self.recheck(run, |_, _, done| {
                    let is_unconfirmed = done.first.author == worker && !done.confirmed.elsewhere();
                    is_unconfirmed && done.was_accepted_in(&window)
                });
            }
        }
    }

    /// Rechecks the counts of a complete run that a report made suspect, unless another machine confirmed them.
    pub(super) fn recheck_suspect(&mut self, run: RunIx) {
        let windows = self.suspect_windows.iter();
        let windows: Vec<_> = windows.map(|(worker, of)| (*worker, reported(of))).collect();
        self.recheck(run, |_, _, done| {
            let is_suspect = |(worker, window): &(WorkerIx, RangeInclusive<u32>)| {
                *worker == done.first.author && done.was_accepted_in(window)
            };
            !done.confirmed.elsewhere() && windows.iter().any(is_suspect)
        });
    }

    /// Notes a suspect time of a worker, and returns whether to store it; `None` if an earlier one includes it.
    /// A caller can report failures in each call. So the second report in an hour makes all counts of a machine
    /// suspect, and those of the next hour as they arrive: further reports add nothing. A restart restores the same.
    fn note_suspect_window(
        &mut self,
        worker: WorkerIx,
        window: &mut RangeInclusive<u32>,
    ) -> Option<bool> {
        let now = *window.end();
        let recent = |of: &RangeInclusive<u32>| of.end().saturating_add(HOUR_S) > now;
        let recent = self.suspect_windows.iter().filter(|(_, of)| recent(of));
        let own = recent.clone().filter(|(other, _)| *other == worker).map(|(_, of)| of);
        if own.clone().any(|of| *of.start() == 0 && *of.end() > now) {
            return None;
        }
        let has_earlier = own.count() > 0;
        let token = self.workers.token(worker);
        let is_full = recent.filter(|(other, _)| self.workers.token(*other) == token).count()
            >= REPORTS_PER_TOKEN;
        if has_earlier {
            *window = 0..=now;
        }
        if !is_full {
            self.suspect_windows.push((worker, suspected(*window.start(), now)));
        }
        Some(!is_full)
    }

    /// Stores the number of self-tests that a worker has passed, if it has grown.
    pub(super) fn note_self_tests(&mut self, worker: WorkerIx) {
        let passed = self.workers.get(worker).self_tests_passed;
        if passed > self.workers[worker].stored_self_tests {
            self.workers.raise_stored_self_tests(worker, passed);
            let reason = "its threads passed their self-tests";
            self.note_trust(worker, Trust::SelfTestPassed { passed }, reason);
        }
    }
}
