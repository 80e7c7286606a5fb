//! Leases of a run's tasks.

use std::collections::{BTreeMap, BTreeSet};

use common::count::Orientation;

use super::Run;
use crate::{
    clock::Ticks,
    fleet::WorkerIx,
    ledger::{Stage, tasks::TaskIx},
};

/// Minimum time from the first lease of a task until the coordinator's referee may count it.
const MIN_OVERDUE_MS: Ticks = 30_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The first count of a task.
    #[default]
    Count,
    /// A recheck of a done task.
    Recheck,
    /// A referee's count of a disputed task.
    Recount,
}

/// A task leased to one worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lease {
    pub(crate) epoch: u64,
    pub(crate) purpose: Purpose,
    pub(crate) orientation: Orientation,
    /// Whether the worker has named the lease in a sync.
    pub(crate) seen: bool,
    /// Number of replies that granted the lease before it was seen.
    pub(crate) grants: u8,
    /// Time of the first call that said a thread has started the task.
    pub(crate) started: Option<Ticks>,
    pub(crate) cost_done: u64,
    pub(crate) granted: Ticks,
    /// The same by the wall clock; 0 in a lease found on disk until its worker names it.
    pub(crate) granted_unix_ms: u64,
    /// Promised return of the package that holds the lease; 0 for the lease of a connected worker.
    pub(crate) return_unix_ms: u64,
    /// Time from which the task waited for this recheck; 0 for other purposes.
    pub(crate) queued: Ticks,
    /// Time until which the worker may be expected to deliver; then the lease keeps nobody else from the task.
    pub(crate) fresh_until: Ticks,
    /// Whether this process granted the lease: its time from grant to count is known.
    pub(crate) is_timed: bool,
    /// Whether this process granted the lease or has verified its proof.
    pub(crate) is_proven: bool,
    /// Number of the worker's sync that last named the lease.
    pub(crate) round: u64,
}

impl Lease {
    /// Creates a lease that its worker has not named yet.
    pub(crate) fn new(epoch: u64, purpose: Purpose, granted: Ticks) -> Self {
        Self { epoch, purpose, granted, grants: 1, ..Self::default() }
    }
}

/// The leases of a run's tasks, and sums over them.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Leases {
    by_task: BTreeMap<TaskIx, Vec<(WorkerIx, Lease)>>,
    pub(crate) single: SingleHolders,
    /// Tasks with several holders, by the time from which at most one of their leases is fresh.
    pub(crate) crowded: BTreeSet<(Ticks, TaskIx)>,
    /// Number of leases in packages.
    pub(crate) away: usize,
    /// Number of the other leases.
    pub(crate) connected: usize,
    /// Done cost of all leased tasks, as their workers report it.
    pub(crate) cost_done: u64,
    /// The highest epoch that may have been issued for each task.
    epochs: Vec<u64>,
    /// Tasks that were leased and are not done, with the time at which the first lease is no longer fresh.
    overdue_at: BTreeMap<TaskIx, Ticks>,
}

/// Leased tasks with a single holder, by the time of the grant.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SingleHolders {
    pub(crate) not_started: BTreeSet<(Ticks, TaskIx)>,
    pub(crate) started: BTreeSet<(Ticks, TaskIx)>,
}

impl Leases {
    pub(super) fn new(tasks: u64) -> Self {
        let size = usize::try_from(tasks).expect("at most MAX_TASKS");
        Self { epochs: vec![0; size], ..Self::default() }
    }

    /// Returns the tasks that no worker delivered in the time in which their first lease was fresh.
    pub(super) fn overdue(&self, now: Ticks) -> impl Iterator<Item = TaskIx> + '_ {
        let overdue = self.overdue_at.iter().filter(move |&(_, &at)| at <= now);
        overdue.map(|(&task, _)| task)
    }

    /// Notes when a task becomes overdue, unless its first lease decides it.
    pub(super) fn note_overdue(&mut self, task: TaskIx, at: Ticks) {
        self.overdue_at.entry(task).or_insert(at);
    }

    pub(super) fn forget_overdue(&mut self, task: TaskIx) {
        self.overdue_at.remove(&task);
    }

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
        // Those of a disputed task get no backup copies.
        if leases.len() > 1 && leases.iter().all(|(_, lease)| lease.purpose != Purpose::Recount) {
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
        let mut again = Self {
            by_task: self.by_task.clone(),
            epochs: self.epochs.clone(),
            overdue_at: self.overdue_at.clone(),
            ..Self::default()
        };
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

    /// Returns when a task without a count becomes overdue; `None` if it was never leased.
    pub(crate) fn overdue_at(&self, task: TaskIx) -> Option<Ticks> {
        self.leases.overdue_at.get(&task).copied()
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
        self.time.rate.begin(now);
        match lease.purpose {
            Purpose::Count => {
                let overdue_at = lease.fresh_until.max(now + MIN_OVERDUE_MS);
                self.leases.note_overdue(task, overdue_at);
                if self.tasks.stage(task) != Stage::Leased {
                    self.enter(task, Stage::Leased);
                }
            }
            Purpose::Recheck => {
                let done = self.tasks.done(task).expect("rechecked tasks are done");
                // A second holder's recheck has waited as long as the first's.
                let held = self.leases_of(task).iter().map(|(_, lease)| lease.queued).min();
                let queued = self.rechecks.queue.remove(&(done.first.author, task)).or(held);
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

    /// Returns the highest epoch that may have been issued for a task; 0 if none.
    pub(crate) fn epoch(&self, task: TaskIx) -> u64 {
        self.leases.epochs[task as usize]
    }

    /// Raises a task's highest epoch to at least this one.
    pub(crate) fn raise_epoch(&mut self, task: TaskIx, epoch: u64) {
        let highest = &mut self.leases.epochs[task as usize];
        *highest = epoch.max(*highest);
    }

    /// Skips all epochs up to this one: a crash may have lost their leases.
    pub(crate) fn raise_epochs(&mut self, epoch: u64) {
        for highest in &mut self.leases.epochs {
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
