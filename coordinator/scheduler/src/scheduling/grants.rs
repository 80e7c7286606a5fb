//! Grants of the tasks that a worker gets.

use common::messages::{
    limits,
    sync::{Revocation, SyncReply, SyncRequest},
};

use super::{Scheduler, leases::LeaseEnd};
use crate::{
    choosing::Budget,
    fleet::{REFERENCE_SPEED, RunIx, WorkerIx},
    run::Purpose,
};

impl Scheduler {
    /// Grants tasks; an error is why there are none.
    pub(super) fn grant(
        &mut self,
        worker: WorkerIx,
        request: &SyncRequest,
        reply: &mut SyncReply,
    ) -> Result<(), String> {
        self.snapshot().check_grantable(worker, request)?;
        let seconds_wanted = request.seconds_wanted + self.yield_to_higher(worker, reply);
        if seconds_wanted.is_nan() || seconds_wanted <= 0.0 {
            return Err("the worker requested no work".to_owned());
        }
        let mut budget = self.snapshot().budget(worker, seconds_wanted, reply);
        for run in self.order.clone() {
            if !self.snapshot().serves(run, worker) {
                continue;
            }
            let mut within = self.snapshot().share(run, worker, budget);
            while !within.is_spent() {
                let mut choice = self.snapshot().choose(run, worker);
                if choice.is_none() && self.revoke_packages(run) {
                    choice = self.snapshot().choose(run, worker);
                }
                let Some(choice) = choice else {
                    break;
                };
                reply.grants.push(self.lease(run, worker, choice, 0));
                let cost = self.runs[run].cost(choice.task);
                within.spend(cost);
                budget.spend(cost);
            }
        }
        if reply.grants.is_empty() {
            self.grant_copies(worker, budget, reply);
        }
        if reply.grants.is_empty() { Err(self.snapshot().idle_reason(worker)) } else { Ok(()) }
    }

    /// Revokes the leases that a worker has not started and whose runs have a lower priority than one that has
    /// tasks for it. Returns the time of the worker for them, for which it gets other work.
    fn yield_to_higher(&mut self, worker: WorkerIx, reply: &mut SyncReply) -> f64 {
        let lowest =
            self.workers.get(worker).runs().min_by_key(|&run| self.runs[run].settings().priority);
        let Some(higher) = lowest.and_then(|lowest| self.snapshot().pending_before(lowest, worker))
        else {
            return 0.0;
        };
        let priority = self.runs[higher].settings().priority;
        let is_lower = |run: RunIx| self.runs[run].settings().priority < priority;
        // Recounts settle disputes, which come first.
        let waiting = self.snapshot().leases_of(worker).filter(|&((run, _), lease)| {
            is_lower(run) && lease.started.is_none() && lease.purpose != Purpose::Recount
        });
        let reason =
            format!("run {} has a higher priority", self.runs[higher].manifest.run.short());
        let size = |reason: &str| limits::REVOCATION_FRAME_BYTES + reason.len();
        let used: usize = reply.revoked.iter().map(|gone| size(&gone.reason)).sum();
        let room = limits::REVOCATION_BYTES.saturating_sub(used) / size(&reason);
        let waiting: Vec<_> = waiting.map(|(key, _)| key).take(room).collect();
        let mut cost = 0;
        for key in waiting {
            let lease = self.grant_of(key, worker).lease;
            reply.grants.retain(|again| again.lease != lease);
            reply.revoked.push(Revocation { lease, reason: reason.clone() });
            self.end_lease(worker, key, LeaseEnd::Released);
            cost += self.runs[key.0].cost(key.1);
        }
        let known = self.workers.get(worker);
        let assumed = REFERENCE_SPEED * f64::from(known.info.threads.max(1));
        cost as f64 / known.speed.per_second().unwrap_or(assumed)
    }

    /// Grants an idle worker backup copies of tasks that others have held for a while.
    fn grant_copies(&mut self, worker: WorkerIx, mut budget: Budget, reply: &mut SyncReply) {
        let known = self.workers.get(worker);
        let idle = (known.info.threads as usize).saturating_sub(known.leases.len());
        budget.tasks_at_most = budget.tasks_at_most.min(idle);
        for run in self.order.clone() {
            let served = self.snapshot().serves(run, worker);
            while served && !budget.is_spent() {
                let Some(choice) = self.snapshot().choose_straggler(run, worker) else {
                    break;
                };
                reply.grants.push(self.lease(run, worker, choice, 0));
                budget.spend(self.runs[run].cost(choice.task));
            }
        }
    }
}
