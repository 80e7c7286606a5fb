//! What the worker has leased: what waits for a slot, and what is in one.

use std::{collections::BTreeMap, time::Instant};

use common::sync::HeldLease;

use super::{LeaseKey, Work};

/// What waits for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backlog {
    pub(super) tasks: usize,
    pub(super) cost: u64,
}

/// A leased task.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) work: Work,
    /// When a slot began it.
    pub(super) begun: Option<Instant>,
    /// The part of its cost that is done, as it was last told.
    pub(super) cost_done: u64,
}

impl Held {
    /// The part of its cost that is still to be done.
    pub(super) fn cost_left(&self) -> u64 {
        self.work.cost.saturating_sub(self.cost_done)
    }
}

/// All leases that the coordinator should hear of as held.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: BTreeMap<LeaseKey, Held>,
    backlog: Backlog,
}

impl Leases {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn contains(&self, lease: &LeaseKey) -> bool {
        self.held.contains_key(lease)
    }

    pub(super) fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Takes work that waits for a slot.
    pub(super) fn insert(&mut self, work: Work) {
        let held = Held {
            work,
            begun: None,
            cost_done: 0,
        };
        self.backlog.tasks += 1;
        self.backlog.cost = self.backlog.cost.saturating_add(held.work.cost);
        let before = self.held.insert(held.work.lease, held);
        debug_assert!(before.is_none(), "whoever inserts has looked");
    }

    /// A slot began it.
    pub(super) fn begin(&mut self, lease: LeaseKey, now: Instant) {
        if let Some(held) = self.held.get_mut(&lease)
            && held.begun.is_none()
        {
            held.begun = Some(now);
            self.backlog.tasks -= 1;
            self.backlog.cost = self.backlog.cost.saturating_sub(held.work.cost);
        }
    }

    /// So much of its cost is done.
    pub(super) fn progress(&mut self, lease: LeaseKey, cost_done: u64) {
        if let Some(held) = self.held.get_mut(&lease) {
            held.cost_done = cost_done.min(held.work.cost);
        }
    }

    pub(super) fn remove(&mut self, lease: LeaseKey) -> Option<Held> {
        let held = self.held.remove(&lease)?;
        if held.begun.is_none() {
            self.backlog.tasks -= 1;
            self.backlog.cost = self.backlog.cost.saturating_sub(held.work.cost);
        }
        Some(held)
    }

    /// The leases of which this holds.
    pub(super) fn which(&self, fits: impl Fn(&Held) -> bool) -> Vec<LeaseKey> {
        let fitting = self.held.iter().filter(|(_, held)| fits(held));
        fitting.map(|(lease, _)| *lease).collect()
    }

    /// As the coordinator hears of them.
    pub(super) fn inventory(&self) -> impl Iterator<Item = HeldLease> {
        self.held.iter().map(|(lease, held)| HeldLease {
            task: lease.task,
            epoch: lease.epoch,
            cost_done: held.cost_done,
            started: held.begun.is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use common::plan::Plan;

    use super::*;
    use crate::testing;

    /// Work of which each task costs something else.
    fn work(plan: &Plan, task: u64) -> Work {
        Work {
            cost: 10 + task,
            ..testing::work(plan, task)
        }
    }

    fn three() -> (Plan, Leases) {
        let plan = testing::plan(10);
        let mut leases = Leases::default();
        (0..3).for_each(|task| leases.insert(work(&plan, task)));
        (plan, leases)
    }

    fn cost(plan: &Plan, tasks: impl IntoIterator<Item = u64>) -> u64 {
        let of = |task| work(plan, task).cost;
        tasks.into_iter().map(of).sum()
    }

    #[test]
    fn what_waits_is_what_no_slot_has_begun() {
        let now = Instant::now();
        let (plan, mut leases) = three();
        let waits = |leases: &Leases| (leases.len(), leases.backlog().tasks, leases.backlog().cost);
        assert_eq!(waits(&leases), (3, 3, cost(&plan, 0..3)));
        let lease = work(&plan, 1).lease;
        leases.begin(lease, now);
        leases.begin(lease, now);
        assert_eq!(waits(&leases), (3, 2, cost(&plan, [0, 2])));
        leases.remove(work(&plan, 0).lease).unwrap();
        assert!(leases.remove(work(&plan, 0).lease).is_none());
        assert_eq!(waits(&leases), (2, 1, cost(&plan, [2])));
        assert_eq!(leases.remove(lease).unwrap().begun, Some(now));
        assert_eq!(waits(&leases), (1, 1, cost(&plan, [2])));
        leases.begin(lease, now);
        assert!(!leases.contains(&lease) && leases.contains(&work(&plan, 2).lease));
    }

    #[test]
    fn the_inventory_says_what_is_begun_and_how_far_it_is() {
        let (plan, mut leases) = three();
        let [first, second, third] = [0, 1, 2].map(|task| work(&plan, task));
        leases.begin(second.lease, Instant::now());
        leases.progress(second.lease, 1);
        leases.begin(third.lease, Instant::now());
        leases.progress(third.lease, third.cost + 1);
        let told = leases.inventory();
        let told: Vec<_> = told
            .map(|held| (held.task, held.epoch, held.cost_done, held.started))
            .collect();
        let of = |work: &Work, done, started| (work.lease.task, work.lease.epoch, done, started);
        let expected = [
            of(&first, 0, false),
            of(&second, 1, true),
            of(&third, third.cost, true),
        ];
        assert_eq!(told, expected);
        assert_eq!(leases.which(|held| held.cost_left() == 0), [third.lease]);
        let begun = leases.which(|held| held.begun.is_some());
        assert_eq!(begun, [second.lease, third.lease]);
    }
}
