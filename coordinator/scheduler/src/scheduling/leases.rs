//! Leases: grant, renewal, adoption and end.

use std::collections::BTreeSet;

use common::{
    count::Orientation,
    messages::{
        limits,
        run::{Epoch, LeaseKey, Proof, TaskRef},
        sync::{Grant, HeldLease, Revocation, SyncReply, SyncRequest},
    },
};

use super::Scheduler;
use crate::{
    choosing::{BARRED, Choice},
    fleet::{LeaseIx, RunIx, WorkerIx},
    ledger::{
        Change, LeaseEvent, OpenState, OpenTask, RunManifest, RunState, Stage,
        tasks::{self, TaskIx},
    },
    run::{Lease, Purpose, should_park},
};

/// Reason for a lease's end without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEnd {
    /// Returned without a failure.
    Released,
    /// The worker vanished before it started: no failure, but other tasks go first.
    Vanished,
    /// The worker vanished after it had started.
    Failed,
    /// The worker says that it cannot count the task.
    Reported,
}

impl LeaseEnd {
    /// Returns how a lease ends whose failure says nothing about its task: other tasks go first.
    const fn without_failure(self) -> Self {
        match self {
            Self::Failed | Self::Reported => Self::Vanished,
            Self::Released | Self::Vanished => self,
        }
    }

    /// Returns how the lease of a vanished worker ends. Nobody owes the tasks of a package.
    fn of_vanished(lease: &Lease) -> Self {
        match lease.started {
            _ if lease.return_unix_ms > 0 => Self::Released,
            Some(_) => Self::Failed,
            None => Self::Vanished,
        }
    }
}

/// Reason for the refusal of a lease whose proof is not valid for its worker.
pub(super) const UNPROVEN: &str = "this coordinator did not grant this lease to this worker: use the coordinator, the token and \
                                   the spool directory with which the task was leased";

/// Reason for the end of a package's lease, whatever ended it.
const NOT_AWAY: &str =
    "the package is no longer away: it was revoked, or its promised return has passed";

/// Maximum number of fresh leases of one task.
pub(super) const MAX_HOLDERS: usize = 2;

/// Number of times that a lease is granted before it is released unseen.
/// Replies may be lost, but hardly five in a row.
const MAX_UNSEEN_GRANTS: u8 = 5;

impl Scheduler {
    /// Leases a task, in a package if there is a promised return.
    pub(super) fn lease(
        &mut self,
        run: RunIx,
        worker: WorkerIx,
        choice: Choice,
        return_unix_ms: u64,
    ) -> Grant {
        let Choice { task, purpose, orientation } = choice;
        let epoch = self.runs[run].epoch(task).saturating_add(1);
        let lease =
            Lease { orientation, is_timed: true, ..Lease::new(epoch, purpose, self.clock.ticks()) };
        let granted_unix_ms = self.clock.wall(self.clock.ticks()).0;
        let lease = Lease { granted_unix_ms, return_unix_ms, is_proven: true, ..lease };
        self.install((run, task), worker, lease);
        self.grant_of((run, task), worker)
    }

    /// Adds a lease to all indexes; the worker must not hold the task yet.
    fn install(&mut self, (run, task): LeaseIx, worker: WorkerIx, lease: Lease) {
        let cost = self.runs[run].cost(task);
        let fresh_until = lease.granted + self.snapshot().fresh_ms(worker, cost);
        let lease = Lease { fresh_until, ..lease };
        let is_stored = lease.purpose == Purpose::Count;
        self.runs[run].add_lease(task, worker, lease, self.clock.ticks());
        let now = self.clock.ticks();
        let known = self.workers.get_mut(worker);
        if known.leases.is_empty() {
            known.busy_since = now;
        }
        known.leases.insert((run, task));
        known.leased_cost = known.leased_cost.saturating_add(cost);
        if is_stored {
            self.note_lease((run, task), LeaseEvent::Leased);
        }
    }

    /// Stores the leases and failed attempts of an open task after a change. Those of other tasks may be lost.
    pub(super) fn note_lease(&mut self, (run, task): LeaseIx, event: LeaseEvent) {
        let in_run = &self.runs[run];
        let state = match in_run.tasks().stage(task) {
            // Its row is that of its counts.
            Stage::Done | Stage::Disputed => return,
            Stage::Pending => OpenState::Pending,
            Stage::Parked => OpenState::Parked,
            Stage::Leased => {
                let newest = in_run.leases_of(task).iter().max_by_key(|(_, lease)| lease.epoch);
                let (holder, lease) = newest.expect("a leased task has a holder");
                let until = self.clock.wall(self.clock.ticks() + self.snapshot().lease_ms()).0;
                OpenState::Leased {
                    worker: self.workers[*holder].id,
                    epoch: Epoch(lease.epoch),
                    until_unix_ms: until.max(lease.return_unix_ms),
                }
            }
        };
        let failed = in_run.failed(task).iter().map(|worker| self.workers[*worker].id).collect();
        self.changes.push_back(Change::Lease {
            run: in_run.manifest.run,
            task: tasks::id(task),
            event,
            after: OpenTask { state, failed },
        });
    }

    /// Returns the grant of a lease that the worker holds.
    pub(super) fn grant_of(&self, (run, task): LeaseIx, worker: WorkerIx) -> Grant {
        let lease = self.runs[run].lease(task, worker).expect("held");
        let RunManifest { run, plan, spec, .. } = self.runs[run].manifest;
        let Lease { purpose, orientation, granted_unix_ms, return_unix_ms, .. } = *lease;
        let bare = LeaseKey {
            task: TaskRef { run, plan, task: tasks::id(task) },
            epoch: Epoch(lease.epoch),
            granted_unix_ms,
            return_unix_ms,
            proof: Proof::default(),
        };
        let lease = self.proofs.prove(bare, self.workers[worker].id, purpose, orientation);
        Grant { lease, spec, orientation }
    }

    /// Removes a lease; the task's stage is left to the caller.
    fn remove(&mut self, worker: WorkerIx, (run, task): LeaseIx) -> Option<Lease> {
        let cost = self.runs[run].cost(task);
        let known = self.workers.find_mut(worker)?;
        if known.leases.remove(&(run, task)) {
            known.leased_cost = known.leased_cost.saturating_sub(cost);
        }
        self.runs[run].remove_lease(task, worker)
    }

    /// Ends all leases of a task and leaves its stage alone.
    pub(super) fn remove_all(&mut self, run: RunIx, task: TaskIx) {
        while let Some(&(holder, _)) = self.runs[run].leases_of(task).first() {
            self.remove(holder, (run, task));
        }
    }

    /// Ends a lease without a result.
    pub(super) fn end_lease(&mut self, worker: WorkerIx, key: LeaseIx, end: LeaseEnd) {
        let (run, task) = key;
        let Some(lease) = self.remove(worker, key) else {
            return;
        };
        if matches!(end, LeaseEnd::Vanished | LeaseEnd::Failed) {
            self.workers.set_vanished(worker, true);
        }
        match lease.purpose {
            Purpose::Count => {
                // An attempt fails once: an adopted lease names one that ended or was lost.
                let end = if lease.is_timed { end } else { end.without_failure() };
                self.end_attempt(worker, key, end);
            }
            // The wait goes on: a recheck that is leased again and again becomes the referee's.
            Purpose::Recheck => drop(self.runs[run].add_recheck(task, lease.queued)),
            // If the task is still disputed, another referee may take it.
            Purpose::Recount => {}
        }
    }

    fn end_attempt(&mut self, worker: WorkerIx, key: LeaseIx, end: LeaseEnd) {
        let (run, task) = key;
        // New identities are free, so their failures say nothing about a task that the referee can count.
        let is_known =
            self.workers[worker].reputation.has_counted || !self.snapshot().counts_itself(run);
        let end = if is_known { end } else { end.without_failure() };
        let is_failed = matches!(end, LeaseEnd::Failed | LeaseEnd::Reported);
        let in_run = &mut self.runs[run];
        if is_failed {
            self.workers.pin(worker);
            in_run.note_failed(task, worker);
        }
        let is_left = !in_run.is_held(task) && in_run.tasks().stage(task) == Stage::Leased;
        let is_parked = is_left && is_failed && should_park(in_run.failed(task));
        match is_left {
            true if is_parked => in_run.park(task, self.clock.ticks()),
            true => in_run.return_task(task, end == LeaseEnd::Vanished),
            false => {}
        }
        let event = match is_failed {
            true => LeaseEvent::Failed(self.workers[worker].id),
            false => LeaseEvent::Released,
        };
        self.note_lease(key, event);
        if is_parked {
            self.note_lease(key, LeaseEvent::Parked);
        }
    }

    /// Ends the leases of a lost worker; it has failed the tasks that it had started.
    pub(super) fn lose(&mut self, worker: WorkerIx) {
        let leases = self.snapshot().leases_of(worker);
        let ends: Vec<_> = leases.map(|(key, lease)| (key, LeaseEnd::of_vanished(lease))).collect();
        for (key, end) in ends {
            self.end_lease(worker, key, end);
        }
    }

    /// Ends the leases of a worker that gets no more work, without failures.
    pub(super) fn release_all(&mut self, worker: WorkerIx) {
        for key in self.snapshot().leases_of(worker).map(|(key, _)| key).collect::<Vec<_>>() {
            self.end_lease(worker, key, LeaseEnd::Released);
        }
    }

    /// Compares a worker's inventory with its leases; repeats grants that it may lack.
    pub(super) fn take_inventory(
        &mut self,
        worker: WorkerIx,
        request: &SyncRequest,
        restarted: bool,
        reply: &mut SyncReply,
    ) {
        let known = self.workers.get_mut(worker);
        known.round += 1;
        let under_way = request.held.iter().filter(|held| held.started).count();
        known.crews = u32::try_from(under_way).unwrap_or(u32::MAX);
        let mut bytes = limits::REVOCATION_BYTES;
        let (failed, held): (Vec<_>, Vec<_>) = request.held.iter().partition(|held| held.failed);
        for held in held {
            if let Err(reason) = self.renew(worker, held) {
                let size = limits::REVOCATION_FRAME_BYTES + reason.len();
                let Some(remaining) = bytes.checked_sub(size) else {
                    continue;
                };
                bytes = remaining;
                reply.revoked.push(Revocation { lease: held.lease, reason });
            }
        }
        // Last, so that a call ends no task's lease twice, however often it names the task.
        let failures = failed.into_iter().filter_map(|held| self.take_failure(worker, &held.lease));
        let mut declined: BTreeSet<_> = failures.collect();
        let round = self.workers.get(worker).round;
        let missing = self.snapshot().leases_of(worker).filter(|(_, lease)| lease.round != round);
        let missing: Vec<_> = missing.map(|(key, lease)| (key, lease.clone())).collect();
        let wants_work = request.seconds_wanted > 0.0 || request.package.is_some();
        let wants_more = wants_work && !request.draining;
        for (key, lease) in missing {
            // A row on disk does not say under which epoch its worker holds the task: an older lease may have been
            // adopted. So a restart repeats no grant.
            let send_again = wants_more
                && lease.is_proven
                && !lease.seen
                && !restarted
                && lease.grants < MAX_UNSEEN_GRANTS
                && reply.grants.len() < self.config.grants_per_sync
                && self.runs[key.0].grants();
            if send_again {
                self.runs[key.0].change_lease(key.1, worker, |lease| lease.grants += 1);
                reply.grants.push(self.grant_of(key, worker));
                continue;
            }
            let end = match restarted && lease.seen {
                true => LeaseEnd::of_vanished(&lease),
                false => LeaseEnd::Released,
            };
            let was_ignored = lease.seen || lease.grants >= MAX_UNSEEN_GRANTS;
            if end == LeaseEnd::Released && was_ignored && !request.draining {
                declined.insert(key.0);
            }
            self.end_lease(worker, key, end);
        }
        let now = self.clock.ticks();
        for run in declined {
            self.workers.get_mut(worker).decline(run, now, self.config.lease_ms);
        }
    }

    /// Ends the lease of a task that its worker cannot count; returns the run.
    fn take_failure(&mut self, worker: WorkerIx, lease: &LeaseKey) -> Option<RunIx> {
        let (run, task) = self.snapshot().find(lease.task).ok()?;
        let known = self.runs[run].lease(task, worker)?;
        let is_its = known.epoch == lease.epoch.0
            && (known.is_proven || self.proven(worker, lease).is_some());
        is_its.then(|| {
            self.end_lease(worker, (run, task), LeaseEnd::Reported);
            run
        })
    }

    /// Returns the orientation of a lease that was granted to a worker; `None` if it was not.
    pub(super) fn proven(&self, worker: WorkerIx, lease: &LeaseKey) -> Option<Orientation> {
        self.proofs.granted(lease, self.workers[worker].id).map(|(_, orientation)| orientation)
    }

    /// Renews or adopts a lease that a worker names, or returns why it cannot.
    fn renew(&mut self, worker: WorkerIx, held: &HeldLease) -> Result<(), String> {
        let key = self.snapshot().find(held.lease.task)?;
        let LeaseKey { epoch: Epoch(epoch), granted_unix_ms, return_unix_ms, .. } = held.lease;
        let now = self.clock.ticks();
        let now_unix_ms = self.clock.wall(now).0;
        // Only a lease that this process has not verified needs the hash: workers name all theirs in each call.
        let known = self.runs[key.0].lease(key.1, worker);
        let orientation = match known.filter(|of| of.is_proven && of.epoch == epoch) {
            Some(known) => known.orientation,
            None => self.proven(worker, &held.lease).ok_or(UNPROVEN)?,
        };
        match known {
            // A package is away or not: an operator's revocation is final, like the promised return.
            _ if return_unix_ms > 0 && known.is_none_or(|of| of.epoch != epoch) => {
                return Err(NOT_AWAY.to_owned());
            }
            Some(_) => {}
            None => self.adopt(worker, key, epoch, held.started).map_err(str::to_owned)?,
        }
        let (run, task) = key;
        let cost_done = held.cost_done.min(self.runs[run].cost(task));
        let round = self.workers.get(worker).round;
        let age_ms = now_unix_ms.saturating_sub(granted_unix_ms);
        self.runs[run].change_lease(task, worker, |lease| {
            (lease.seen, lease.round, lease.cost_done) = (true, round, cost_done);
            if held.started {
                lease.started.get_or_insert(now);
            }
            if !lease.is_proven && lease.epoch == epoch {
                (lease.orientation, lease.is_proven) = (orientation, true);
                // Neither a restart nor the loss of sled makes a lease younger.
                (lease.granted_unix_ms, lease.return_unix_ms) = (granted_unix_ms, return_unix_ms);
                let fresh_ms = lease.fresh_until - lease.granted;
                lease.granted = lease.granted.min(now.saturating_sub(age_ms));
                lease.fresh_until = lease.granted + fresh_ms;
            }
        });
        Ok(())
    }

    /// Adopts a lease that the scheduler does not know: it ended, or a restart lost it.
    fn adopt(
        &mut self,
        worker: WorkerIx,
        (run, task): LeaseIx,
        epoch: u64,
        is_started: bool,
    ) -> Result<(), &'static str> {
        let known = self.workers.get(worker);
        if self.workers.is_barred(worker) {
            return Err(BARRED);
        }
        if known.leases.len() >= self.config.leases_per_worker {
            return Err("the worker holds too many leases");
        }
        let in_run = &self.runs[run];
        match in_run.state() {
            RunState::Running => {}
            RunState::Paused if is_started => {}
            RunState::Paused => return Err("the run is paused"),
            RunState::Cancelled => return Err("the run is cancelled"),
            RunState::Complete | RunState::Contradicted | RunState::Disputed => {
                return Err("the run is finished");
            }
        }
        let copies = self.snapshot().fresh_holders(run, task);
        match in_run.tasks().stage(task) {
            Stage::Pending => {}
            Stage::Leased if is_started && copies < MAX_HOLDERS => {}
            Stage::Leased => return Err("the task is now leased to another worker"),
            Stage::Done => return Err("the task is done"),
            Stage::Parked if is_started => self.unpark_task(run, task),
            Stage::Parked => return Err("the task is parked"),
            Stage::Disputed => return Err("the task is disputed: its counts differ"),
        }
        self.note_epoch((run, task), epoch);
        let lease = Lease::new(epoch, Purpose::Count, self.clock.ticks());
        self.install((run, task), worker, lease);
        Ok(())
    }

    pub(super) fn restore_lease(&mut self, key: LeaseIx, worker: WorkerIx, epoch: u64) {
        let lease = Lease::new(epoch, Purpose::Count, self.clock.ticks());
        let changes = self.changes.len();
        self.install(key, worker, lease);
        // The lease is already on disk.
        self.changes.truncate(changes);
    }
}
