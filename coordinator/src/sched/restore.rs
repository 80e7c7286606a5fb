//! Taking up what is found on disk, before anybody is served.

use common::run::{RunId, WorkerId};

use super::{
    Millis, Scheduler,
    index::{RunIx, TaskIx},
    run,
    tasks::{Done, How},
    worker::unknown_worker,
};
use crate::ledger::{Confirmed, Recheck, TaskRow, TaskState, Vote};

/// A crash may lose the last leases from disk, but not from their workers. Each life of the
/// coordinator therefore goes on from what is on disk by a random leap of at most this much, so that
/// no epoch names two leases, and takes epochs up to some such leaps ahead for lost ones.
const EPOCH_LEAP: u64 = 1 << 22;

/// A worker whose leases ended so long before the start is hardly there any more.
const LONG_GONE_MS: u64 = 24 * 60 * 60 * 1_000;

impl Scheduler {
    /// How much of a run is counted twice, if that was ever said: before its tasks are restored.
    ///
    /// # Panics
    /// If there is no such run.
    pub fn restore_recheck(&mut self, run: RunId, recheck: Recheck) {
        let run = self.by_id[&run];
        self.runs[run].restore_recheck(recheck);
    }

    /// How long earlier processes have served a run that was added before, in milliseconds.
    ///
    /// # Panics
    /// If there is no such run.
    pub fn restore_elapsed(&mut self, run: RunId, elapsed_ms: u64) {
        let run = self.by_id[&run];
        self.runs[run].restore_elapsed(elapsed_ms);
    }

    /// What is on disk of one task of a run that was added before.
    ///
    /// # Panics
    /// If there is no such run, or the run no such task.
    pub fn restore_task(&mut self, run: RunId, row: TaskRow) {
        let run = self.by_id[&run];
        let task = run::index(row.task);
        let epoch = row.epoch.0;
        let failed: Vec<_> = row
            .failed
            .into_iter()
            .map(|worker| self.workers.pinned(worker))
            .collect();
        let in_run = &mut self.runs[run];
        in_run.restore_epoch(task, epoch);
        in_run.restore_failed(task, failed);
        match row.state {
            TaskState::Pending => {}
            TaskState::Leased {
                worker,
                until_unix_ms,
            } => {
                let live = in_run.is_live();
                let worker = self
                    .workers
                    .remember(&unknown_worker(worker), self.config.workers);
                if let Some(worker) = worker
                    && live
                {
                    self.restore_lease((run, task), worker, epoch);
                    let until = &mut self.workers.get_mut(worker).leased_until_ms;
                    *until = until_unix_ms.max(*until);
                }
            }
            TaskState::Done { vote, confirmed } => {
                self.restore_done((run, task), &vote, confirmed);
            }
            TaskState::Quarantined { votes, confirmed } => {
                self.restore_reports((run, task), &votes, confirmed);
            }
            TaskState::Parked => in_run.park(task, self.clock.ticks()),
        }
    }

    /// An accepted count that was found on disk.
    fn restore_done(&mut self, (run, task): (RunIx, TaskIx), vote: &Vote, confirmed: Confirmed) {
        let worker = self.workers.pinned(vote.worker);
        self.workers.restore_principal(worker, &vote.principal);
        let in_run = &mut self.runs[run];
        let drawn = self
            .draw
            .chosen(in_run.manifest().run, run::id(task), in_run.recheck());
        let done = Done {
            count: vote.count,
            worker,
            how: How::of(vote),
            confirmed,
            drawn,
            accepted_s: 0,
        };
        in_run.accept(task, done);
        if confirmed.elsewhere() {
            self.workers.standing_mut(worker).agreed();
            return;
        }
        let open = in_run.is_live();
        let unproven = self.unproven.iter().filter(|(by, _)| *by == worker);
        let mut windows = unproven.map(|(_, window)| window);
        let doubted = self.workers.standing(worker).faults() > 0
            || windows.any(|window| window.contains(&vote.accepted_unix_ms));
        if open && (doubted || (drawn && confirmed == Confirmed::No)) {
            in_run.want_second(task, 0);
        }
    }

    /// Everything on disk was given: from now on workers are served. Leases found on disk last for
    /// the grace period, but not those of workers that were not heard of for a day: a coordinator that
    /// starts every few minutes would wait for them for ever. If one is there all the same, its counts are
    /// taken as they come.
    pub fn restored(&mut self, now: Millis) {
        let ticks = self.clock.read(now);
        let waiting: Vec<_> = self
            .workers
            .iter()
            .filter(|(_, worker)| !worker.leases.is_empty())
            .map(|(number, worker)| {
                let long_gone = now.0.saturating_sub(worker.leased_until_ms) > LONG_GONE_MS;
                (number, long_gone)
            })
            .collect();
        for (worker, long_gone) in waiting {
            let grace = match long_gone {
                true => 0,
                false => self.config.grace_ms,
            };
            self.workers.expect_by(worker, ticks + grace);
        }
        let leap = self.jitter.below(EPOCH_LEAP);
        for run in 0..self.runs.len() {
            self.runs[run].leap_epochs(leap, 4 * EPOCH_LEAP);
            self.announce_if_done(run);
        }
    }

    /// Found on disk: counts of this worker were wrong, and if `barred` more than once.
    pub fn restore_distrust(&mut self, worker: WorkerId, barred: bool) {
        let worker = self.workers.pinned(worker);
        let standing = self.workers.standing_mut(worker);
        match barred {
            false => standing.restore_doubt(),
            true => standing.restore_bar(),
        }
    }
}
