//! Packages: tasks that a worker takes away in a file, for machines that cannot reach the coordinator.
//!
//! A package is an ordinary worker with an identity of its own, which calls twice: it requests tasks, and names
//! them once they are in its file. Then it is *away*: the coordinator expects its next call at the promised return,
//! which is part of the proofs. Its leases never keep a run from ending: once nothing else is pending, they are
//! revoked, and its counts are accepted whenever they arrive.

use common::messages::sync::{PackageLimits, PackageRequest, SyncReply};

use super::{Scheduler, leases::LeaseEnd};
use crate::{
    clock::Ticks,
    fleet::{LeaseIx, RunIx, WorkerIx},
    ledger::Stage,
    run::Lease,
};

impl Scheduler {
    /// Grants the tasks of a package, unless the reply repeats its grants.
    pub(super) fn grant_package(
        &mut self,
        worker: WorkerIx,
        request: &PackageRequest,
        limits: PackageLimits,
        reply: &mut SyncReply,
    ) {
        if !reply.grants.is_empty() {
            return;
        }
        let (run, most, reason) = match self.snapshot().package_room(worker, request, limits) {
            Ok(room) => room,
            Err(reason) => return reply.reason = reason,
        };
        let now_unix_ms = self.clock.wall(self.clock.ticks()).0;
        let return_unix_ms = now_unix_ms.saturating_add(request.away_ms);
        let mut cost = request.core_seconds * 1e6;
        let mut has_rechecks = true;
        for _ in 0..most {
            let now = self.snapshot();
            let recheck = has_rechecks.then(|| now.choose_recheck_of_token(run, worker)).flatten();
            // Each look takes time in proportion to the rechecks that wait for others.
            has_rechecks = recheck.is_some();
            let choice = recheck.or_else(|| now.choose_uncounted(run, worker));
            let Some(choice) = choice.filter(|_| cost > 0.0) else { break };
            cost -= self.runs[run].cost(choice.task) as f64;
            reply.grants.push(self.lease(run, worker, choice, return_unix_ms));
        }
        reply.reason = match (reply.grants.len() >= most, reply.grants.is_empty()) {
            (true, _) => reason,
            (false, true) => format!("run {} has no pending tasks", self.runs[run].manifest.run),
            (false, false) => String::new(),
        };
    }

    /// Lets a worker be away until its promised return if it has named all leases of its package and holds no others.
    pub(super) fn leave_with_package(&mut self, worker: WorkerIx) {
        let returns = |(_, lease): (LeaseIx, &Lease)| lease.return_unix_ms * u64::from(lease.seen);
        let first = self.snapshot().leases_of(worker).map(returns).next();
        if let Some(return_unix_ms @ 1..) = first
            && self.snapshot().leases_of(worker).map(returns).all(|of| of == return_unix_ms)
        {
            self.be_away(worker, return_unix_ms);
        }
    }

    fn be_away(&mut self, worker: WorkerIx, return_unix_ms: u64) {
        let now = self.clock.ticks();
        let away_ms: Ticks = return_unix_ms.saturating_sub(self.clock.wall(now).0);
        self.workers.leave(worker, now + away_ms);
    }

    /// Restores a package from its leases on disk, which last longer than any other.
    pub(super) fn restore_package(&mut self, worker: WorkerIx, return_unix_ms: u64) {
        for (run, task) in self.snapshot().leases_of(worker).map(|(key, _)| key).collect::<Vec<_>>()
        {
            self.runs[run]
                .change_lease(task, worker, |lease| lease.return_unix_ms = return_unix_ms);
        }
        self.be_away(worker, return_unix_ms);
    }

    /// Revokes all packages of a run that has nothing else pending; returns whether there were any.
    pub(super) fn revoke_packages(&mut self, run: RunIx) -> bool {
        let in_run = &self.runs[run];
        if in_run.leases.away == 0 || in_run.tasks().number(Stage::Pending) > 0 {
            return false;
        }
        let held = in_run.held().flat_map(|task| {
            let away = in_run.leases_of(task).iter().filter(|(_, lease)| lease.return_unix_ms > 0);
            away.map(move |&(holder, _)| (holder, (run, task)))
        });
        for (holder, key) in held.collect::<Vec<_>>() {
            self.end_lease(holder, key, LeaseEnd::Released);
        }
        true
    }
}
