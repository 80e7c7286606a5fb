//! Leases of a run's tasks.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{
        TaskIx, WorkerIx,
        clock::Ticks,
        worker::{Lease, Purpose},
    },
    Run,
};
use crate::ledger::Stage;

/// Minimum time from the first lease of a task until the coordinator's referee may count it.
const MIN_OVERDUE_MS: Ticks = 30_000;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Leases {
    by_task: BTreeMap<TaskIx, Vec<(WorkerIx, Lease)>>,
    pub(crate) single: SingleHolders,
    /// Tasks with several holders, by the time from which at most one of their leases is fresh.
    pub(crate) crowded: BTreeSet<(Ticks, TaskIx)>,
    /// Number of leases in packages.
    pub(crate) away: usize,
    /// Number of the other leases.
    pub(super) connected: usize,
    /// Done cost of all leased tasks, as their workers report it.
    pub(crate) cost_done: u64,
}

/// Leased tasks with a single holder, by the time of the grant.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SingleHolders {
    pub(crate) not_started: BTreeSet<(Ticks, TaskIx)>,
    pub(crate) started: BTreeSet<(Ticks, TaskIx)>,
}

impl Leases {
    pub(super) fn is_empty(&self) -> bool {
        self.by_task.is_empty()
    }

    fn change<T>(
        &mut self,
        task: TaskIx,
        change: impl FnOnce(&mut Vec<(WorkerIx, Lease)>) -> T,
    ) -> T {
        let mut leases = self.by_task.remove(&task).unwrap_or_default();
        self.count(task, &leases, false);
        let result = change(&mut leases);
        self.count(task, &leases, true);
        if !leases.is_empty() {
            self.by_task.insert(task, leases);
        }
        result
    }

    /// Adds the leases of a task to the cost and the single holders, or removes them.
    fn count(&mut self, task: TaskIx, leases: &[(WorkerIx, Lease)], add: bool) {
        let cost: u64 = leases.iter().map(|(_, lease)| lease.cost_done).sum();
        self.cost_done = match add {
            true => self.cost_done.saturating_add(cost),
            false => self.cost_done.saturating_sub(cost),
        };
        let away = leases.iter().filter(|(_, lease)| lease.return_unix_ms > 0).count();
        for (sum, number) in [(&mut self.away, away), (&mut self.connected, leases.len() - away)] {
            *sum = if add { *sum + number } else { *sum - number };
        }
        if leases.len() > 1 {
            let mut ends: Vec<_> = leases.iter().map(|(_, lease)| lease.fresh_until).collect();
            ends.sort_unstable();
            let key = (ends[ends.len() - 2], task);
            match add {
                true => self.crowded.insert(key),
                false => self.crowded.remove(&key),
            };
        }
        // A referee's lease of a disputed task gets no backup copies; a package's is revoked instead.
        if let [(_, lease)] = leases
            && lease.purpose != Purpose::Recount
            && lease.return_unix_ms == 0
        {
            let single = match lease.started.is_some() {
                true => &mut self.single.started,
                false => &mut self.single.not_started,
            };
            match add {
                true => single.insert((lease.granted, task)),
                false => single.remove(&(lease.granted, task)),
            };
        }
    }

    /// Returns whether the cost and the single holders follow from the leases.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut again = Self { by_task: self.by_task.clone(), ..Self::default() };
        self.by_task.iter().for_each(|(&task, leases)| again.count(task, leases, true));
        again == *self
    }
}

impl Run {
    pub(crate) fn lease(&self, task: TaskIx, worker: WorkerIx) -> Option<&Lease> {
        let of_worker = self.leases_of(task).iter().find(|(holder, _)| *holder == worker);
        of_worker.map(|(_, lease)| lease)
    }

    /// Returns the leases of a task, with their holders.
    pub(crate) fn leases_of(&self, task: TaskIx) -> &[(WorkerIx, Lease)] {
        self.leases.by_task.get(&task).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn is_held(&self, task: TaskIx) -> bool {
        self.leases.by_task.contains_key(&task)
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = TaskIx> + '_ {
        self.leases.by_task.keys().copied()
    }

    /// Returns the number of leased tasks that a thread has started.
    pub(crate) fn counting(&self) -> u64 {
        let is_counting = |(task, leases): &(&TaskIx, &Vec<(WorkerIx, Lease)>)| {
            self.tasks.stage(**task) == Stage::Leased
                && leases.iter().any(|(_, lease)| lease.started.is_some())
        };
        self.leases.by_task.iter().filter(is_counting).count() as u64
    }

    /// Adds a lease, and moves its task to the stage that it requires.
    pub(crate) fn add_lease(
        &mut self,
        task: TaskIx,
        worker: WorkerIx,
        mut lease: Lease,
        now: Ticks,
    ) {
        self.raise_epoch(task, lease.epoch);
        self.rate.begin(now);
        match lease.purpose {
            Purpose::Count => {
                let overdue_at = lease.fresh_until.max(now + MIN_OVERDUE_MS);
                self.overdue_at.entry(task).or_insert(overdue_at);
                if self.tasks.stage(task) != Stage::Leased {
                    self.enter(task, Stage::Leased);
                }
            }
            Purpose::Recheck => {
                let done = self.tasks.done(task).expect("rechecked tasks are done");
                // A second holder's recheck has waited as long as the first's.
                let held = self.leases_of(task).iter().map(|(_, lease)| lease.queued).min();
                let queued = self.rechecks.remove(&(done.first.author, task)).or(held);
                lease.queued = queued.unwrap_or(now);
            }
            Purpose::Recount => {}
        }
        self.leases.change(task, |leases| leases.push((worker, lease)));
    }

    pub(crate) fn remove_lease(&mut self, task: TaskIx, worker: WorkerIx) -> Option<Lease> {
        self.leases.change(task, |leases| {
            let at = leases.iter().position(|(holder, _)| *holder == worker)?;
            Some(leases.remove(at).1)
        })
    }

    pub(crate) fn change_lease(
        &mut self,
        task: TaskIx,
        worker: WorkerIx,
        change: impl FnOnce(&mut Lease),
    ) {
        self.leases.change(task, |leases| {
            let lease = leases.iter_mut().find(|(holder, _)| *holder == worker);
            lease.map(|(_, lease)| change(lease)).expect("held");
        });
    }

    /// Raises a task's highest epoch to at least this one.
    pub(crate) fn raise_epoch(&mut self, task: TaskIx, epoch: u64) {
        let highest = &mut self.epochs[task as usize];
        *highest = epoch.max(*highest);
    }

    /// Skips all epochs up to this one: a crash may have lost their leases.
    pub(crate) fn raise_epochs(&mut self, epoch: u64) {
        for highest in &mut self.epochs {
            *highest = epoch.max(*highest);
        }
    }

    /// Returns a task of a cancelled run to its queue after its leases were dropped.
    pub(crate) fn drop_leased(&mut self, task: TaskIx, now: Ticks) {
        match self.tasks.stage(task) {
            Stage::Leased => self.enter(task, Stage::Pending),
            Stage::Done => drop(self.add_recheck(task, now)),
            Stage::Pending | Stage::Parked | Stage::Disputed => {}
        }
    }
}
