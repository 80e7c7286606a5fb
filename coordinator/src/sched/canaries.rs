//! What workers say of their canaries: known boards that every counting thread counts at its start and
//! hourly.

use common::sync::SyncRequest;

use super::{
    Scheduler,
    clock::{MAX_STEP_MS, Ticks},
    index::WorkerIx,
    workers::Workers,
};
use crate::{
    ledger::{RunState, Trust, TrustRecord},
    text::plural,
};

/// A moment of own time, as it is kept with every count.
pub(super) fn seconds(at: Ticks) -> u32 {
    u32::try_from(at / 1_000).unwrap_or(u32::MAX)
}

impl Scheduler {
    /// Takes a worker's word on its canaries. Where more threads than before have failed, what it
    /// counted since is counted again, and that is kept.
    pub(super) fn take_canaries(&mut self, worker: WorkerIx, request: &SyncRequest) {
        let said = request.failed_canaries;
        let full = request.partials.len() >= self.config.partials_per_sync;
        let known = self.workers.get_mut(worker);
        let news = said.threads > known.failed_threads;
        let unproven = news || known.has_unproven_left;
        known.failed_threads = known.failed_threads.max(said.threads);
        known.has_unproven_left = unproven && full;
        if unproven {
            self.doubt_since(worker, said.unproven_ms);
        }
    }

    fn doubt_since(&mut self, worker: WorkerIx, unproven_ms: u64) {
        // Own time may have run ahead of the worker's by one step.
        let reach = unproven_ms.saturating_add(MAX_STEP_MS);
        let now = self.clock.ticks();
        let from_s = seconds(now.saturating_sub(reach));
        let from_unix_ms = self.clock.wall(now).0.saturating_sub(reach);
        self.workers.standing_mut(worker).unproven();
        let threads = self.workers.get(worker).failed_threads;
        let what = match unproven_ms {
            // A process that fails at its start says nothing of how long those before it went wrong.
            u64::MAX => "what it ever counted".to_owned(),
            _ => format!("what it counted in the {} s before", unproven_ms / 1_000),
        };
        let reason = format!(
            "{} of it counted known boards wrong: {what} is counted again",
            plural(threads, "thread"),
        );
        self.note_trust(worker, Trust::Unproven { from_unix_ms }, &reason);
        for run in 0..self.runs.len() {
            if self.runs[run].state() != RunState::Cancelled {
                self.count_again(run, |done| {
                    done.worker == worker
                        && !done.confirmed.elsewhere()
                        && done.accepted_s >= from_s
                });
            }
        }
    }

    /// What was thought of a worker, in the order in which it was: before its tasks are restored.
    pub fn restore_trust(&mut self, record: &TrustRecord) {
        let worker = self.workers.pinned(record.worker);
        match record.trust {
            Trust::Doubted => self.restore_distrust(record.worker, false),
            Trust::Barred => self.restore_distrust(record.worker, true),
            Trust::Trusted => {
                // What it counted before the repair is as doubtful as it was.
                if self.workers.standing(worker).is_doubted() {
                    self.unproven.push((worker, 0..=record.since_unix_ms));
                }
                self.workers.standing_mut(worker).trust();
            }
            Trust::Unproven { from_unix_ms } => {
                let window = from_unix_ms..=record.since_unix_ms;
                self.unproven.push((worker, window));
            }
            Trust::Proven { proofs } => raise(&mut self.workers, worker, proofs),
        }
    }

    /// Keeps how often a worker has proved itself, with its first accepted count.
    pub(super) fn note_first_proofs(&mut self, worker: WorkerIx) {
        if *self.workers.proofs_kept(worker) == 0 {
            self.note_proofs(worker);
        }
    }

    /// The same at the end of a run, for all workers that have counted.
    pub(super) fn note_all_proofs(&mut self) {
        let counted = self
            .workers
            .iter()
            .filter(|(_, known)| known.tasks_done > 0);
        let counted: Vec<_> = counted.map(|(worker, _)| worker).collect();
        for worker in counted {
            self.note_proofs(worker);
        }
    }

    fn note_proofs(&mut self, worker: WorkerIx) {
        let proofs = self.workers.get(worker).proofs;
        if proofs > *self.workers.proofs_kept(worker) {
            raise(&mut self.workers, worker, proofs);
            let reason = "its threads counted known boards right";
            self.note_trust(worker, Trust::Proven { proofs }, reason);
        }
    }
}

fn raise(workers: &mut Workers, worker: WorkerIx, proofs: u64) {
    let kept = workers.proofs_kept(worker);
    *kept = proofs.max(*kept);
}
