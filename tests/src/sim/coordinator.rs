//! The coordinator's process: the scheduler with its disk, following the driver's protocol.

use std::collections::BTreeMap;

use common::{
    plan::TaskId,
    run::{Epoch, RunId},
    sync::{SyncReply, SyncRequest},
};
use coordinator::{
    sched::{Command, Millis, Scheduler},
    store::{Change, RunState, Trust},
};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{disk::Disk, ledger::Ledger, scenario::Scenario};

/// The one run.
pub(super) const RUN: RunId = RunId(0x51);

/// A run of the coordinator's program, from start to crash.
#[derive(Debug)]
pub(super) struct Coordinator {
    pub(super) scheduler: Scheduler,
}

/// The process died while it did something.
#[derive(Debug)]
pub(super) struct Crashed;

/// What survives the process, and what watches it.
pub(super) struct Surroundings {
    pub(super) scenario: Scenario,
    pub(super) disk: Disk,
    pub(super) ledger: Ledger,
    pub(super) rng: ChaCha8Rng,
    pub(super) steps: u64,
}

impl Coordinator {
    /// Loads everything from disk.
    pub(super) fn start(around: &mut Surroundings, now: Millis) -> Self {
        let (stored, rows) = around.disk.load(RUN);
        let jitter = around.rng.random();
        let mut scheduler = Scheduler::new(around.scenario.config.clone(), jitter);
        let plan = around.scenario.truth.plan.clone();
        scheduler.draw_by([around.scenario.seed.to_be_bytes()[7]; 32]);
        for record in around.disk.trust() {
            scheduler.restore_distrust(record.worker, record.trust == Trust::Barred);
        }
        scheduler.add_run(&stored.manifest, plan, stored.state);
        scheduler.restore_recheck(RUN, around.scenario.recheck);
        around.ledger.restarted(&rows);
        for row in rows {
            scheduler.restore_task(RUN, row);
        }
        scheduler.restored(now);
        around.ledger.compare(&scheduler, RUN);
        Self { scheduler }
    }

    /// Serves one message; `Err` when the process dies on the way.
    pub(super) fn sync(
        &mut self,
        around: &mut Surroundings,
        request: &SyncRequest,
        now: Millis,
    ) -> Result<SyncReply, Crashed> {
        let reply = self.scheduler.sync(request, now);
        self.keep(around)?;
        let counts: BTreeMap<(TaskId, Epoch), u64> = super::worker::Worker::counts(request);
        around.ledger.acknowledged(&reply, &counts);
        assert!(
            !reply.grants.is_empty() || !reply.reason.is_empty(),
            "seed {}: nothing granted for no reason",
            around.scenario.seed
        );
        self.conclude(around)?;
        Ok(reply)
    }

    pub(super) fn advance(
        &mut self,
        around: &mut Surroundings,
        now: Millis,
    ) -> Result<(), Crashed> {
        self.scheduler.advance(now);
        self.keep(around)?;
        self.conclude(around)
    }

    pub(super) fn control(
        &mut self,
        around: &mut Surroundings,
        command: Command,
        now: Millis,
    ) -> Result<(), Crashed> {
        // A run that is over by now refuses; that is the operator's surprise, not a fault.
        let _state = self.scheduler.control(RUN, command, now);
        self.keep(around)
    }

    fn conclude(&mut self, around: &mut Surroundings) -> Result<(), Crashed> {
        while let Some(run) = self.scheduler.poll_finished() {
            let total = self.scheduler.total(run);
            let agrees = total == Some(Ok(around.scenario.truth.total));
            let undecided = self.state() == RunState::Disputed;
            assert!(
                agrees || undecided || around.scenario.faults.liars > 0,
                "seed {}: total {total:?}",
                around.scenario.seed
            );
            self.scheduler.conclude(run, agrees);
        }
        self.keep(around)
    }

    /// Brings every decision to the disk, unless the process dies before, or half way.
    fn keep(&mut self, around: &mut Surroundings) -> Result<(), Crashed> {
        let mut changes: Vec<Change> =
            std::iter::from_fn(|| self.scheduler.poll_change()).collect();
        around.ledger.decided(&changes);
        let dies = around
            .rng
            .random_bool(around.scenario.faults.crash_in_message);
        if dies {
            changes.truncate(around.rng.random_range(0..=changes.len()));
        }
        around.ledger.kept(&changes);
        let flush = around.rng.random_bool(0.1);
        around.disk.apply(changes, flush);
        if dies {
            return Err(Crashed);
        }
        around.steps += 1;
        if around.steps.is_multiple_of(16) {
            around.ledger.compare(&self.scheduler, RUN);
        }
        Ok(())
    }

    pub(super) fn state(&self) -> RunState {
        self.scheduler.runs()[0].state
    }
}
