//! Giving leases, taking them back, and reading a worker's inventory.

use common::{
    count::Orientation,
    run::{Epoch, TaskRef},
    sync::{Grant, HeldLease, Revocation, SyncReply, SyncRequest},
};
use proto::limits;

use super::{
    Scheduler,
    clock::Ticks,
    index::{LeaseIx, RunIx, TaskIx, WorkerIx},
    parking::too_often,
    rejection::Rejection,
    run,
    tasks::Stage,
    worker::{Lease, Purpose},
};
use crate::ledger::{Change, RunState};

/// Why a lease ends without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nobody's fault.
    Released,
    /// The worker vanished before it had begun: nobody's fault either, but others go first.
    Vanished,
    /// The worker's attempt failed.
    Failed,
}

impl End {
    /// How the lease of a worker ends that vanished.
    fn of_vanished(lease: &Lease) -> Self {
        if lease.started || lease.spoilt {
            Self::Failed
        } else {
            Self::Vanished
        }
    }
}

/// How many workers may count one task at the same time: a third would only repeat what two do.
pub(super) const COPIES: usize = 2;

/// A lease granted this often without ever turning up in the worker's inventory is taken back: replies
/// are lost, but not five in a row.
const GRANTS_UNSEEN: u8 = 5;

/// A worker that gave back leases of a run unworked this often in a row gets no more of it for the time
/// of a lease: it cannot count it, or will not.
pub(super) const DECLINES: u32 = 3;

impl Scheduler {
    /// Leases a task, and returns what the worker is told.
    pub(super) fn lease(
        &mut self,
        (run, task): LeaseIx,
        worker: WorkerIx,
        purpose: Purpose,
        orientation: Orientation,
    ) -> Grant {
        let epoch = self.runs[run].tasks().epoch(task).saturating_add(1);
        let lease = Lease {
            epoch,
            purpose,
            turned: orientation == Orientation::Turned,
            seen: false,
            grants: 1,
            started: false,
            spoilt: false,
            cost_done: 0,
            granted: self.clock.ticks(),
            round: self.workers.get(worker).round,
        };
        self.install((run, task), worker, lease);
        self.grant_of((run, task), worker)
    }

    /// Puts a lease in its places. The worker must not hold the task, and has done nothing of it yet.
    fn install(&mut self, (run, task): LeaseIx, worker: WorkerIx, lease: Lease) {
        let until = self.clock.ticks() + self.lease_ms();
        let change = Change::Leased {
            run: self.runs[run].manifest().run,
            task: run::id(task),
            worker: self.workers.id(worker),
            epoch: Epoch(lease.epoch),
            until_unix_ms: self.clock.wall(until).0,
        };
        let now = self.clock.ticks();
        self.runs[run].begin(task, (lease.epoch, lease.purpose), now);
        self.changes.push_back(change);
        self.unindex_alone(run, task);
        self.runs[run].add_holder(task, worker);
        self.workers
            .get_mut(worker)
            .leases
            .insert((run, task), lease);
        self.index_alone(run, task);
    }

    /// What the worker is told of a lease it holds.
    pub(super) fn grant_of(&self, (run, task): LeaseIx, worker: WorkerIx) -> Grant {
        let lease = &self.workers.get(worker).leases[&(run, task)];
        let run = &self.runs[run];
        Grant {
            task: run.task_ref(task),
            epoch: Epoch(lease.epoch),
            spec: run.manifest().spec,
            orientation: if lease.turned {
                Orientation::Turned
            } else {
                Orientation::Upright
            },
        }
    }

    /// The one holder of a leased task, if it has no other. Leases that decide a dispute get no backup
    /// copies: whoever could say something new is asked at once.
    fn single_holder(&self, run: RunIx, task: TaskIx) -> Option<&Lease> {
        let &[worker] = self.runs[run].holders_of(task) else {
            return None;
        };
        let lease = self.workers.get(worker).leases.get(&(run, task))?;
        (lease.purpose != Purpose::Decide).then_some(lease)
    }

    fn unindex_alone(&mut self, run: RunIx, task: TaskIx) {
        if let Some(lease) = self.single_holder(run, task) {
            let since = (lease.granted, lease.started);
            self.runs[run].unindex_alone(task, since);
        }
    }

    fn index_alone(&mut self, run: RunIx, task: TaskIx) {
        if let Some(lease) = self.single_holder(run, task) {
            let since = (lease.granted, lease.started);
            self.runs[run].index_alone(task, since);
        }
    }

    /// Takes a lease out of all its places; the task's stage is left to the caller.
    fn remove(&mut self, worker: WorkerIx, (run, task): LeaseIx) -> Option<Lease> {
        self.unindex_alone(run, task);
        let lease = self.workers.find_mut(worker)?.leases.remove(&(run, task))?;
        self.runs[run].drop_holder(task, worker, lease.cost_done);
        self.index_alone(run, task);
        Some(lease)
    }

    /// Every lease of a task ends because the task is decided.
    pub(super) fn remove_all(&mut self, run: RunIx, task: TaskIx) {
        for holder in self.runs[run].holders_of(task).to_vec() {
            self.remove(holder, (run, task));
        }
        self.runs[run].end_seconds(task);
    }

    /// A lease ends without a result.
    pub(super) fn end_lease(&mut self, worker: WorkerIx, key: LeaseIx, end: End) {
        let (run, task) = key;
        let Some(lease) = self.remove(worker, key) else {
            return;
        };
        match lease.purpose {
            Purpose::Count => self.end_attempt(worker, key, lease.epoch, end),
            Purpose::Recheck => {
                let now = self.clock.ticks();
                self.runs[run].give_up_second(task, now);
            }
            // One worker at a time decides, for as long as the task is quarantined.
            Purpose::Decide => self.runs[run].contest(task),
        }
    }

    fn end_attempt(&mut self, worker: WorkerIx, (run, task): LeaseIx, epoch: u64, end: End) {
        let name = self.workers.id(worker);
        let in_run = &mut self.runs[run];
        let (run_id, task_id) = (in_run.manifest().run, run::id(task));
        let epoch = Epoch(epoch);
        match end {
            End::Released | End::Vanished => self.changes.push_back(Change::Released {
                run: run_id,
                task: task_id,
                epoch,
            }),
            End::Failed => {
                self.workers.pin(worker);
                in_run.note_failed(task, worker);
                self.changes.push_back(Change::Expired {
                    run: run_id,
                    task: task_id,
                    epoch,
                    worker: name,
                });
            }
        }
        if in_run.is_held(task) || in_run.tasks().stage(task) != Stage::Leased {
            return;
        }
        if end == End::Failed && too_often(in_run.failed(task)) {
            in_run.park(task, self.clock.ticks());
            self.changes.push_back(Change::Parked {
                run: run_id,
                task: task_id,
            });
        } else {
            in_run.come_back(task, end == End::Vanished);
        }
    }

    /// A worker that has not called in time has failed what it had begun.
    pub(super) fn lose(&mut self, worker: WorkerIx) {
        let leases = self.workers.get(worker).leases.iter();
        let ends: Vec<_> = leases
            .map(|(&key, lease)| (key, End::of_vanished(lease)))
            .collect();
        for (key, end) in ends {
            self.end_lease(worker, key, end);
        }
    }

    /// A worker gets nothing more: its tasks have failed in nothing.
    pub(super) fn release_all(&mut self, worker: WorkerIx) {
        let leases = &self.workers.get(worker).leases;
        for key in leases.keys().copied().collect::<Vec<_>>() {
            self.end_lease(worker, key, End::Released);
        }
    }

    /// Compares what the worker says it holds with what it was given; sends again the grants that
    /// may never have arrived.
    pub(super) fn take_inventory(
        &mut self,
        worker: WorkerIx,
        request: &SyncRequest,
        (restarted, reply): (bool, &mut SyncReply),
    ) {
        let known = self.workers.get_mut(worker);
        known.round += 1;
        let under_way = request.held.iter().filter(|held| held.started).count();
        known.crews = u32::try_from(under_way).unwrap_or(u32::MAX);
        let mut bytes = limits::REVOCATION_BYTES;
        for held in &request.held {
            if let Err(rejection) = self.renew(worker, held) {
                let reason = rejection.to_string();
                let size = limits::REVOCATION_FRAME_BYTES + reason.len();
                let Some(left) = bytes.checked_sub(size) else {
                    continue;
                };
                bytes = left;
                reply.revoked.push(Revocation {
                    task: held.task,
                    epoch: held.epoch,
                    reason,
                });
            }
        }
        let known = self.workers.get(worker);
        let missing: Vec<_> = known
            .leases
            .iter()
            .filter(|(_, lease)| lease.round != known.round)
            .map(|(&key, lease)| (key, lease.clone()))
            .collect();
        let wants_more = request.seconds_wanted > 0.0 && !request.draining;
        let mut given_back = Vec::new();
        for (key, lease) in missing {
            let send_again = wants_more
                && !lease.seen
                && !lease.spoilt
                && !restarted
                && lease.grants < GRANTS_UNSEEN
                && reply.grants.len() < self.config.grants_per_sync
                && self.runs[key.0].grants();
            if send_again {
                let lease = self.workers.get_mut(worker).leases.get_mut(&key);
                lease.expect("missing from the call, not here").grants += 1;
                reply.grants.push(self.grant_of(key, worker));
                continue;
            }
            let end = if restarted && lease.seen {
                End::of_vanished(&lease)
            } else if lease.spoilt {
                End::Failed
            } else {
                End::Released
            };
            let unworked = lease.seen || lease.grants >= GRANTS_UNSEEN;
            if end == End::Released && unworked && !request.draining && !given_back.contains(&key.0)
            {
                given_back.push(key.0);
            }
            self.end_lease(worker, key, end);
        }
        let (now, limits) = (self.clock.ticks(), (DECLINES, self.config.lease_ms));
        for run in given_back {
            self.workers.get_mut(worker).decline(run, now, limits);
        }
    }

    /// Finds the run and the task that a worker speaks of, or says what is wrong.
    pub(super) fn find(&self, task: TaskRef) -> Result<LeaseIx, Rejection> {
        let Some(&run) = self.by_id.get(&task.run) else {
            return Err(Rejection::NoSuchRun(task.run));
        };
        let ours = self.runs[run].manifest().plan;
        if task.plan != ours {
            return Err(Rejection::OtherPlan {
                run: task.run,
                ours,
                theirs: task.plan,
            });
        }
        if task.task.0 >= self.runs[run].tasks().len() {
            return Err(Rejection::NoSuchTask {
                run: task.run,
                last: self.runs[run].tasks().len() - 1,
                task: task.task.0,
            });
        }
        Ok((run, run::index(task.task)))
    }

    /// The epoch as it was issued for the task, or what is wrong with it.
    pub(super) fn issued(&self, (run, task): LeaseIx, epoch: Epoch) -> Result<u64, Rejection> {
        let highest = self.runs[run].highest_epoch(task);
        if (1..=highest).contains(&epoch.0) {
            return Ok(epoch.0);
        }
        Err(Rejection::NeverLeased {
            task,
            epoch: epoch.0,
        })
    }

    /// Renews or takes up a lease that a worker names; an error says why it is not the worker's.
    fn renew(&mut self, worker: WorkerIx, held: &HeldLease) -> Result<(), Rejection> {
        let key = self.find(held.task)?;
        let epoch = self.issued(key, held.epoch)?;
        if !self.workers.get(worker).leases.contains_key(&key) {
            self.adopt(worker, key, (epoch, held))?;
        }
        let (run, task) = key;
        self.unindex_alone(run, task);
        let cost_done = held.cost_done.min(self.runs[run].cost(task));
        let known = self.workers.get_mut(worker);
        let round = known.round;
        let lease = known.leases.get_mut(&key).expect("held");
        let before = std::mem::replace(&mut lease.cost_done, cost_done);
        lease.round = round;
        lease.seen = true;
        lease.started |= held.started;
        self.runs[run].progress(before, cost_done);
        self.index_alone(run, task);
        Ok(())
    }

    /// Takes up a lease that the scheduler no longer knows of: it ended, or a restart lost it.
    fn adopt(
        &mut self,
        worker: WorkerIx,
        (run, task): LeaseIx,
        (epoch, held): (u64, &HeldLease),
    ) -> Result<(), Rejection> {
        let known = self.workers.get(worker);
        if self.workers.standing(worker).is_barred() {
            return Err(self.why_barred(worker));
        }
        if known.leases.len() >= self.config.leases_per_worker {
            return Err(Rejection::TooManyLeases);
        }
        let in_run = &self.runs[run];
        match in_run.state() {
            RunState::Running | RunState::Paused => {}
            RunState::Cancelled => return Err(Rejection::RunCancelled),
            RunState::Complete | RunState::Contradicted | RunState::Disputed => {
                return Err(Rejection::RunOver);
            }
        }
        let copies = in_run.holders_of(task).len();
        match in_run.tasks().stage(task) {
            Stage::Pending => {}
            Stage::Leased if held.started && copies < COPIES => {}
            Stage::Leased => return Err(Rejection::LeasedElsewhere),
            Stage::Done => return Err(Rejection::Counted),
            Stage::Parked if held.started => self.let_out(run, task),
            Stage::Parked => return Err(Rejection::SetAside),
            Stage::Quarantined => return Err(Rejection::Quarantined),
        }
        let lease = Lease {
            epoch,
            purpose: Purpose::Count,
            turned: false,
            seen: true,
            grants: 1,
            started: held.started,
            spoilt: false,
            cost_done: 0,
            granted: self.clock.ticks(),
            round: self.workers.get(worker).round,
        };
        self.install((run, task), worker, lease);
        Ok(())
    }

    /// Leases found on disk keep their workers for a while.
    pub(super) fn restore_lease(&mut self, key: LeaseIx, worker: WorkerIx, epoch: u64) {
        let lease = Lease {
            epoch,
            purpose: Purpose::Count,
            turned: false,
            seen: false,
            grants: 1,
            started: false,
            spoilt: false,
            cost_done: 0,
            granted: self.clock.ticks(),
            round: 0,
        };
        let changes = self.changes.len();
        self.install(key, worker, lease);
        // It is on disk already.
        self.changes.truncate(changes);
    }

    /// How long leases last: never shorter than a few regular syncs.
    pub(super) fn lease_ms(&self) -> Ticks {
        self.config.lease_ms.max(3 * self.regular_sync_ms())
    }
}
