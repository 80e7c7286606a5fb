//! Which tasks a package may hold.

use common::{
    messages::sync::{PackageLimits, PackageRequest},
    text::{plural, span, thousands},
};

use super::{BARRED, Choice, HELD_BACK};
use crate::{
    fleet::{LeaseIx, OWN_REFEREE, RunIx, WorkerIx},
    snapshot::Snapshot,
};

/// Maximum number of tasks of one package.
const MAX_TASKS: usize = 4_096;

/// Denominator of the part of a run's tasks that the packages of a token may hold, unless no other token counts.
const MAX_PART: u64 = 20;

impl<'a> Snapshot<'a> {
    /// Returns the run of a package, its maximum number of tasks, and the limit that reduced it, if one did; an error
    /// is the reason for none.
    pub(crate) fn package_room(
        self,
        worker: WorkerIx,
        request: &PackageRequest,
        limits: PackageLimits,
    ) -> Result<(RunIx, usize, String), String> {
        if self.workers.is_barred(worker) {
            return Err(BARRED.to_owned());
        }
        if self.is_held_back(worker) {
            return Err(HELD_BACK.to_owned());
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
        let checked = if self.is_on_probation(worker) { 1 } else { usize::MAX };
        let limits = [
            (wanted, String::new()),
            (checked, HELD_BACK.to_owned()),
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
        let (most, reason) = limits.into_iter().min_by_key(|(most, _)| *most).expect("five limits");
        if most == 0 { Err(reason) } else { Ok((run, most, reason)) }
    }

    /// Returns a worker's leases that are in a package.
    fn away_leases(self, worker: WorkerIx) -> impl Iterator<Item = LeaseIx> {
        self.leases_of(worker).filter(|(_, lease)| lease.return_unix_ms > 0).map(|(key, _)| key)
    }

    /// Chooses a recheck of a count with the same token. If all workers are away with packages, nobody else makes it;
    /// counts with other tokens do not wait for a package to return.
    pub(crate) fn choose_recheck_of_token(self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        let choice = self.choose_recheck(run, worker)?;
        let first = self.runs[run].tasks().done(choice.task)?.first.author;
        (self.workers.token(first) == self.workers.token(worker)).then_some(choice)
    }
}
