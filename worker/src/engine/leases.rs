//! Leases on their way through the worker: grants without a plan, work, results.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroU16,
    time::{Duration, Instant},
};

use common::{
    compute::kernel::KernelName,
    count::{Orientation, SetupError},
    messages::{
        run::LeaseKey,
        sync::{Grant, HeldLease},
    },
    plan::{Plan, PlanSpec},
};

/// A leased task for the pool.
#[derive(Clone, Debug)]
pub struct Work {
    pub lease: LeaseKey,
    pub plan: Plan,
    pub orientation: Orientation,
    /// Cost in the unit of [`Plan::task_cost`].
    pub cost: u64,
}

impl Work {
    /// Creates the work of `lease`; `plan` must contain its task.
    pub fn new(lease: LeaseKey, plan: Plan, orientation: Orientation) -> Self {
        Self { cost: plan.task_cost(lease.task.task), lease, plan, orientation }
    }
}

/// Started work that ended, with its outcome.
#[derive(Debug)]
pub struct JobResult {
    pub work: Work,
    pub outcome: JobOutcome,
    /// What counted.
    pub kernel: KernelName,
    /// Time of all threads together.
    pub duration: Duration,
    pub threads: NonZeroU16,
}

/// The outcome of started work.
#[derive(Debug)]
pub enum JobOutcome {
    /// The weighted count of the task.
    Counted(u64),
    Cancelled,
    Failed(Failure),
}

/// Reason why a task has no count.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// This worker cannot count tasks of this plan.
    #[error("{0}; raise --memory or lower --threads")]
    Setup(#[from] SetupError),
    #[error("the weighted count exceeds 64 bits")]
    Overflow,
    #[error("the counting thread panicked: {0}")]
    Panic(String),
}

/// Work that waits for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backlog {
    pub(super) tasks: usize,
    pub(super) cost: u64,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) work: Work,
    /// Time at which a slot started the work.
    pub(super) started: Option<Instant>,
    /// Finished part of the work's cost, as last reported.
    pub(super) cost_done: u64,
}

/// The leases of unfinished work; those without a plan are in [`Grants`].
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

    /// Adds work that waits for a slot; its lease must be new.
    pub(super) fn insert(&mut self, work: Work) {
        let held = Held { work, started: None, cost_done: 0 };
        self.backlog.tasks += 1;
        self.backlog.cost = self.backlog.cost.saturating_add(held.work.cost);
        let before = self.held.insert(held.work.lease, held);
        debug_assert!(before.is_none(), "a lease is inserted once");
    }

    /// Notes that a slot started the work.
    pub(super) fn start(&mut self, lease: LeaseKey, now: Instant) {
        if let Some(held) = self.held.get_mut(&lease)
            && held.started.is_none()
        {
            held.started = Some(now);
            self.backlog.tasks -= 1;
            self.backlog.cost = self.backlog.cost.saturating_sub(held.work.cost);
        }
    }

    /// Notes the finished part of the work's cost.
    pub(super) fn progress(&mut self, lease: LeaseKey, cost_done: u64) {
        if let Some(held) = self.held.get_mut(&lease) {
            held.cost_done = cost_done.min(held.work.cost);
        }
    }

    pub(super) fn remove(&mut self, lease: LeaseKey) -> Option<Held> {
        let held = self.held.remove(&lease)?;
        if held.started.is_none() {
            self.backlog.tasks -= 1;
            self.backlog.cost = self.backlog.cost.saturating_sub(held.work.cost);
        }
        Some(held)
    }

    pub(super) fn filter(&self, fits: impl Fn(&Held) -> bool) -> Vec<LeaseKey> {
        let fitting = self.held.iter().filter(|(_, held)| fits(held));
        fitting.map(|(lease, _)| *lease).collect()
    }

    pub(super) fn inventory(&self) -> impl Iterator<Item = HeldLease> {
        self.held.iter().map(|(lease, held)| HeldLease {
            lease: *lease,
            cost_done: held.cost_done,
            started: held.started.is_some(),
            failed: false,
        })
    }
}

/// Maximum number of cached plans.
const MAX_PLANS: usize = 8;

/// Time for which a worker requests no work after a task that it cannot count.
pub(super) const REFUSAL: Duration = Duration::from_secs(60);

/// The most recent plans and the grants that wait for theirs.
#[derive(Debug, Default)]
pub(super) struct Grants {
    /// Plans, newest last, including failed ones, which are not retried.
    plans: VecDeque<(PlanSpec, Result<Plan, String>)>,
    /// Grants whose plans are being created.
    waiting: Vec<Grant>,
    refusing_until: Option<Instant>,
}

impl Grants {
    /// Returns the number of grants that wait for their plan.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the leases that wait for their plan.
    pub(super) fn leases(&self) -> impl Iterator<Item = LeaseKey> {
        self.waiting.iter().map(|grant| grant.lease)
    }

    /// Returns the work of a grant, or why this worker cannot count it.
    ///
    /// `None` if its plan must be created first.
    pub(super) fn work(&self, grant: &Grant) -> Option<Result<Work, String>> {
        let (_, plan) = self.plans.iter().find(|(spec, _)| *spec == grant.spec)?;
        let (board, task) = (grant.spec.board, grant.lease.task.task);
        Some(match plan {
            Err(error) => Err(error.clone()),
            Ok(plan) if plan.hash() != grant.lease.task.plan => Err(format!(
                "the coordinator's plan for N = {board} has hash {}, this worker's has {}: install the \
                 same release on both",
                grant.lease.task.plan,
                plan.hash()
            )),
            Ok(plan) if !plan.contains(task) => Err(format!(
                "the plan for N = {board} has {} tasks, so there is no task {task}",
                plan.tasks()
            )),
            Ok(plan) => Ok(Work::new(grant.lease, plan.clone(), grant.orientation)),
        })
    }

    /// Stores a grant until its plan is ready; returns whether it is the plan's first.
    pub(super) fn wait(&mut self, grant: Grant) -> bool {
        let is_first = self.waiting.iter().all(|other| other.spec != grant.spec);
        self.waiting.push(grant);
        is_first
    }

    /// Adds a plan and returns the grants that waited for it.
    pub(super) fn add_plan(&mut self, spec: PlanSpec, plan: Result<Plan, String>) -> Vec<Grant> {
        self.plans.retain(|(other, _)| *other != spec);
        if self.plans.len() == MAX_PLANS {
            self.plans.pop_front();
        }
        self.plans.push_back((spec, plan));
        self.waiting.extract_if(.., |grant| grant.spec == spec).collect()
    }

    /// Drops a waiting grant and returns whether there was one.
    pub(super) fn remove(&mut self, lease: LeaseKey) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|grant| grant.lease != lease);
        self.waiting.len() < before
    }

    /// Drops all waiting grants and returns their number.
    pub(super) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.waiting).len()
    }

    /// Returns the time until which the worker requests no work.
    pub(super) fn refusing_until(&self, now: Instant) -> Option<Instant> {
        self.refusing_until.filter(|until| now < *until)
    }

    /// Requests no work for a while; returns whether this is news.
    pub(super) fn refuse(&mut self, now: Instant) -> bool {
        let is_news = self.refusing_until(now).is_none();
        self.refusing_until = Some(now + REFUSAL);
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{grant, plan};

    #[test]
    fn the_most_recent_plans_are_cached() {
        let mut grants = Grants::default();
        let plans: Vec<_> = (6u8..).take(MAX_PLANS + 1).map(plan).collect();
        for plan in &plans {
            assert!(grants.work(&grant(plan, 0)).is_none());
            // Adding the same plan again evicts no other.
            (0..2).for_each(|_| drop(grants.add_plan(*plan.spec(), Ok(plan.clone()))));
        }
        let mut lookups = plans.iter().map(|plan| grants.work(&grant(plan, 0)));
        assert!(lookups.next().unwrap().is_none());
        assert!(lookups.all(|work| matches!(work, Some(Ok(_)))));
    }
}
