//! Work on its way through the pool.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use common::count::Watch;

use crate::machine::Work;

/// Work with its progress. The counting thread writes, the link reads; all orderings are relaxed,
/// since each value stands alone and a late look costs nothing.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    cost_done: AtomicU64,
    cancelled: AtomicBool,
}

impl Job {
    pub(crate) fn new(work: Work) -> Self {
        Self {
            work,
            cost_done: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
        }
    }

    /// The part of the cost that is done; never more than all of it.
    pub(crate) fn cost_done(&self) -> u64 {
        self.cost_done.load(Relaxed).min(self.work.cost)
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
