//! Packages: tasks that a worker takes away in a file, for machines that cannot reach the coordinator.
//!
//! A package is an ordinary worker with an identity of its own, which calls twice: it requests tasks, and names
//! them once they are in its file. Then it is *away*: the coordinator expects its next call at the promised return,
//! which is part of the proofs. Its leases never keep a run from ending: once nothing else is pending, they are
//! revoked, and its counts are accepted whenever they arrive.

use common::{
    sync::{PackageLimits, PackageRequest, SyncReply},
    text::{plural, span, thousands},
};

use super::{
    Scheduler,
    leases::{BARRED, LeaseEnd},
};
use crate::{
    clock::Ticks,
    fleet::{LeaseIx, OWN_REFEREE, RunIx, WorkerIx},
    ledger::Stage,
    run::Lease,
};

/// Maximum number of tasks of one package.
const MAX_TASKS: usize = 4_096;

/// Denominator of the part of a run's tasks that the packages of a token may hold, unless no other token counts.
const MAX_PART: u64 = 20;

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
        let (run, most, reason) = match self.package_room(worker, request, limits) {
            Ok(room) => room,
            Err(reason) => return reply.reason = reason,
        };
        let now_unix_ms = self.clock.wall(self.clock.ticks()).0;
        let return_unix_ms = now_unix_ms.saturating_add(request.away_ms);
        let mut cost = request.core_seconds * 1e6;
        for _ in 0..most {
            let Some(choice) = self.choose_uncounted(run, worker).filter(|_| cost > 0.0) else {
                break;
            };
            cost -= self.runs[run].cost(choice.task) as f64;
            reply.grants.push(self.lease(run, worker, choice, return_unix_ms));
        }
        reply.reason = match (reply.grants.len() >= most, reply.grants.is_empty()) {
            (true, _) => reason,
            (false, true) => format!("run {} has no pending tasks", self.runs[run].manifest.run),
            (false, false) => String::new(),
        };
    }

    /// Returns the run of a package, its maximum number of tasks, and the limit that reduced it, if one did; an error is
    /// the reason for none.
    fn package_room(
        &self,
        worker: WorkerIx,
        request: &PackageRequest,
        limits: PackageLimits,
    ) -> Result<(RunIx, usize, String), String> {
        if self.workers.is_barred(worker) {
            return Err(BARRED.to_owned());
        }
        if self.is_on_probation(worker) {
            return Err("wrong counts with this token: its machines get no packages".to_owned());
        }
        if !self.workers.get(worker).leases.is_empty() {
            return Err(
                "the worker holds leases: a package needs an identity of its own".to_owned()
            );
        }
        if request.away_ms > limits.away_seconds.saturating_mul(1_000) {
            return Err(format!(
                "packages of this token return within {}: give a shorter --expires, or ask the operator for a \
                 token with more (--packages)",
                span(limits.away_seconds as f64)
            ));
        }
        let named = |run: &RunIx| {
            let manifest = &self.runs[*run].manifest;
            let board = format!("N={}", manifest.spec.board);
            let is_named = manifest.run.to_string().starts_with(&request.run);
            is_named || request.run == "last" || request.run.eq_ignore_ascii_case(&board)
        };
        let served = self.order.iter().copied().filter(|&run| self.runs[run].grants());
        let mut served = served.filter(named);
        let run = match request.run.as_str() {
            "" => served.next(),
            _ => served.max_by_key(|&run| (self.runs[run].manifest.created_unix_ms, run)),
        };
        let run = run.ok_or_else(|| match request.run.as_str() {
            "" => "no run is running: submit one with queensctl".to_owned(),
            run => format!("no running run is called '{run}' (see `queensctl runs`)"),
        })?;
        let of_token = self.workers.of_same_token(worker);
        let away: Vec<LeaseIx> = of_token.flat_map(|other| self.away_leases(other)).collect();
        let in_run = away.iter().filter(|(of, _)| *of == run).count();
        let tasks = self.runs[run].tasks().size();
        let token = self.workers.token(worker);
        let is_other = |of: WorkerIx| of != OWN_REFEREE && self.workers.token(of) != token;
        let has_others = self.has_other_token(run, worker)
            || self.runs[run].recounts.first_counts().any(|(author, _)| is_other(author));
        let part = if has_others { tasks.div_ceil(MAX_PART) } else { u64::MAX };
        let part = usize::try_from(part).unwrap_or(usize::MAX);
        let wanted = request.tasks as usize;
        let limits = [
            (wanted, String::new()),
            (MAX_TASKS, format!("a package holds at most {} tasks", thousands(MAX_TASKS as u128))),
            (
                (limits.tasks as usize).saturating_sub(away.len()),
                format!(
                    "packages of this token hold at most {}, and {} are away",
                    plural(limits.tasks, "task"),
                    thousands(away.len() as u128)
                ),
            ),
            (
                part.saturating_sub(in_run),
                format!(
                    "packages of one token hold at most {} of this run while other tokens count",
                    plural(part as u64, "task")
                ),
            ),
        ];
        let (most, reason) = limits.into_iter().min_by_key(|(most, _)| *most).expect("four limits");
        if most == 0 { Err(reason) } else { Ok((run, most, reason)) }
    }

    /// Returns a worker's leases that are in a package.
    fn away_leases(&self, worker: WorkerIx) -> impl Iterator<Item = LeaseIx> + '_ {
        self.leases_of(worker).filter(|(_, lease)| lease.return_unix_ms > 0).map(|(key, _)| key)
    }

    /// Lets a worker be away until its promised return if it has named all leases of its package and holds no others.
    pub(super) fn leave_with_package(&mut self, worker: WorkerIx) {
        let returns = |(_, lease): (LeaseIx, &Lease)| lease.return_unix_ms * u64::from(lease.seen);
        let first = self.leases_of(worker).map(returns).next();
        if let Some(return_unix_ms @ 1..) = first
            && self.leases_of(worker).map(returns).all(|of| of == return_unix_ms)
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
        for (run, task) in self.leases_of(worker).map(|(key, _)| key).collect::<Vec<_>>() {
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
