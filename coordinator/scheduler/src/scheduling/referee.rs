//! The coordinator's own referee.

use common::compute::kernel::KernelName;

use super::Scheduler;
use crate::{
    choosing::{Recount, RecountPurpose},
    clock::{Millis, Ticks},
    fleet::{LeaseIx, OWN_REFEREE},
    ledger::{Record, RunState, TaskCount, TaskState, tasks},
};

impl Scheduler {
    /// Sets the number of the referee's threads and the memory of each.
    /// Without threads disputes wait for a trusted worker.
    pub fn set_referee(&mut self, threads: u32, memory_bytes: u64) {
        (self.referee.threads, self.referee.memory_bytes) = (threads, memory_bytes);
        if threads == 0 {
            self.runs.iter_mut().for_each(|run| run.recounts.under_way.clear());
        }
    }

    /// Assigns a task to the coordinator's referee, with `urgent_only` one that may interrupt another recount.
    /// The recount ends with [`Self::recounted`] or [`Self::recount_abandoned`].
    pub fn next_recount(&mut self, urgent_only: bool, now: Millis) -> Option<Recount> {
        self.advance(now);
        let (run, recount) = self.snapshot().next_recount(urgent_only)?;
        let under_way = &mut self.runs[run].recounts.under_way;
        under_way.insert(tasks::index(recount.task), self.clock.ticks());
        Some(recount)
    }

    /// Applies the referee's count of a task from [`Self::next_recount`].
    pub fn recounted(
        &mut self,
        recount: &Recount,
        count: u64,
        kernel: KernelName,
        duration_us: u64,
        now: Millis,
    ) {
        self.advance(now);
        let Some((key, since)) = self.end_recount(recount) else { return };
        let (run, task) = key;
        let took_ms = self.clock.ticks() - since;
        self.referee.speed.measure(self.runs[run].cost(task), took_ms);
        if self.snapshot().is_broken() || self.runs[run].state() == RunState::Cancelled {
            return;
        }
        if count > self.runs[run].plan.task_limit(recount.task) {
            return self.stop_referee(&format!("{count} solutions of task {task} are impossible"));
        }
        let count =
            TaskCount { count, author: OWN_REFEREE, kernel, orientation: recount.orientation };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let record = Record { version, duration_us, ..self.snapshot().record_of(key, &count) };
        let is_open = self.runs[run].tasks().state(task) == TaskState::Open;
        match recount.purpose {
            // It is a count like any other: a different one makes a dispute.
            RecountPurpose::Overdue if is_open => self.accept(key, count, record),
            _ => self.take_recount(key, count, record),
        }
    }

    /// Ends a recount without a count; `for_memory` excludes the run from further ones.
    pub fn recount_abandoned(&mut self, recount: &Recount, for_memory: bool) {
        if let Some(((run, _), _)) = self.end_recount(recount)
            && for_memory
        {
            self.referee.given_up.insert(run);
        }
    }

    fn end_recount(&mut self, recount: &Recount) -> Option<(LeaseIx, Ticks)> {
        let (run, task) = (*self.by_id.get(&recount.run)?, tasks::index(recount.task));
        self.runs[run].recounts.under_way.remove(&task).map(|since| ((run, task), since))
    }
}
