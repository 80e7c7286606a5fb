//! Who holds which task.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{
        clock::Ticks,
        index::{TaskIx, WorkerIx},
        tasks::Stage,
        worker::Purpose,
    },
    Run,
};

impl Run {
    /// Who holds a task.
    pub(in crate::sched) fn holders_of(&self, task: TaskIx) -> &[WorkerIx] {
        self.holders.get(&task).map_or(&[], Vec::as_slice)
    }

    /// Whether anybody does.
    pub(in crate::sched) fn is_held(&self, task: TaskIx) -> bool {
        self.holders.contains_key(&task)
    }

    /// Every task that somebody holds, with who does.
    pub(in crate::sched) fn held(&self) -> &BTreeMap<TaskIx, Vec<WorkerIx>> {
        &self.holders
    }

    /// Tasks that one worker alone holds, by the time of the grant: those not begun, and those begun.
    pub(in crate::sched) fn alone(&self) -> &[BTreeSet<(Ticks, TaskIx)>; 2] {
        &self.alone
    }

    /// What the workers say is done of the leases that live, as cost.
    pub(in crate::sched) fn cost_under_way(&self) -> u64 {
        self.cost_under_way
    }

    /// A lease begins: the task is where its purpose wants it.
    pub(in crate::sched) fn begin(
        &mut self,
        task: TaskIx,
        (epoch, purpose): (u64, Purpose),
        now: Ticks,
    ) {
        self.tasks.raise_epoch(task, epoch);
        self.rate.begin(now);
        match purpose {
            Purpose::Count => {
                if self.tasks.stage(task) != Stage::Leased {
                    self.enter(task, Stage::Leased);
                }
            }
            Purpose::Recheck => {
                let done = self.tasks.done(task).expect("rechecked tasks are done");
                self.seconds.begin(task, done.worker);
            }
            Purpose::Decide => drop(self.contested.remove(&task)),
        }
    }

    /// One more worker holds a task.
    pub(in crate::sched) fn add_holder(&mut self, task: TaskIx, worker: WorkerIx) {
        self.holders.entry(task).or_default().push(worker);
    }

    /// A worker holds a task no longer, of which it had done so much.
    pub(in crate::sched) fn drop_holder(&mut self, task: TaskIx, worker: WorkerIx, cost_done: u64) {
        self.progress(cost_done, 0);
        if let Some(holders) = self.holders.get_mut(&task) {
            holders.retain(|&holder| holder != worker);
            if holders.is_empty() {
                self.holders.remove(&task);
            }
        }
    }

    /// A lease of which so much was done is so far now.
    pub(in crate::sched) fn progress(&mut self, before: u64, now: u64) {
        self.cost_under_way = self.cost_under_way.saturating_sub(before) + now;
    }

    /// One worker alone holds a task, by a lease that was granted then and has begun or not.
    pub(in crate::sched) fn index_alone(&mut self, task: TaskIx, (granted, begun): (Ticks, bool)) {
        self.alone[usize::from(begun)].insert((granted, task));
    }

    /// That is so no longer.
    pub(in crate::sched) fn unindex_alone(
        &mut self,
        task: TaskIx,
        (granted, begun): (Ticks, bool),
    ) {
        self.alone[usize::from(begun)].remove(&(granted, task));
    }

    /// Nobody counts a task a second time any more, since it is decided.
    pub(in crate::sched) fn end_seconds(&mut self, task: TaskIx) {
        self.seconds.end(task);
    }

    /// A second count ends without a result: unless somebody else counts it, it is wanted as before.
    pub(in crate::sched) fn give_up_second(&mut self, task: TaskIx, now: Ticks) {
        if !self.is_held(task) && self.seconds.end(task) {
            self.want_second(task, now);
        }
    }

    /// Nobody decides a contested task any more.
    pub(in crate::sched) fn contest(&mut self, task: TaskIx) {
        self.contested.insert(task);
    }

    /// An epoch that was found on disk.
    pub(in crate::sched) fn restore_epoch(&mut self, task: TaskIx, epoch: u64) {
        self.tasks.raise_epoch(task, epoch);
    }

    /// Goes on from the epochs on disk by a leap; up to `lost` ahead of them there may be leases that a
    /// crash lost.
    pub(in crate::sched) fn leap_epochs(&mut self, leap: u64, lost: u64) {
        self.tasks.raise_epochs(leap);
        self.lost_epochs = lost;
    }

    /// A task of a run that was given up, whose leases are gone; they were for its second count if
    /// `is_second`.
    pub(in crate::sched) fn drop_leased(&mut self, task: TaskIx, is_second: bool, now: Ticks) {
        match self.tasks.stage(task) {
            Stage::Leased => self.enter(task, Stage::Pending),
            Stage::Quarantined => self.contest(task),
            Stage::Done if is_second => drop(self.want_second(task, now)),
            Stage::Done | Stage::Pending | Stage::Parked => {}
        }
    }
}
