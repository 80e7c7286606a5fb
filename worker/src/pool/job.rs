//! One leased task on its way through the pool.

use std::{
    ops::ControlFlow,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use common::{
    count::{Orientation, Watch},
    plan::Plan,
};

use crate::lease::LeaseKey;

/// A leased task with its progress. The counting thread writes, the link reads; all orderings are
/// relaxed, since each value stands alone and a late look costs nothing.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) lease: LeaseKey,
    pub(crate) plan: Plan,
    pub(crate) orientation: Orientation,
    /// In the unit of [`Plan::task_cost`].
    pub(crate) cost: u64,
    cost_done: AtomicU64,
    started: OnceLock<Instant>,
    cancelled: AtomicBool,
}

impl Job {
    /// The task of `lease`, which `plan` must contain.
    pub(crate) fn new(lease: LeaseKey, plan: Plan, orientation: Orientation) -> Self {
        Self {
            cost: plan.task_cost(lease.task.task),
            lease,
            plan,
            orientation,
            cost_done: AtomicU64::new(0),
            started: OnceLock::new(),
            cancelled: AtomicBool::new(false),
        }
    }

    /// The part of the cost that is done; never more than all of it.
    pub(crate) fn cost_done(&self) -> u64 {
        self.cost_done.load(Relaxed).min(self.cost)
    }

    /// When a thread began it, if one did.
    pub(crate) fn started(&self) -> Option<Instant> {
        self.started.get().copied()
    }

    pub(super) fn start(&self, now: Instant) {
        // A job is taken from the queue once, so this is never the second time.
        let _ = self.started.set(now);
    }

    /// Asks the thread that counts it to stop at the next chance.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }
}

impl Watch for Job {
    fn advance(&self, cost_done: u64) -> ControlFlow<()> {
        self.cost_done.fetch_add(cost_done, Relaxed);
        if self.is_cancelled() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}
