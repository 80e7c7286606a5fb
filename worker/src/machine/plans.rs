//! The plans of the runs that this worker serves, made here from their specs.

use std::collections::VecDeque;

use common::{
    plan::{BadSpec, Plan, PlanSpec},
    sync::Grant,
};

use super::{LeaseKey, Work};

/// Plans of so many runs are kept.
const KEPT: usize = 8;

/// Why there is no plan of a spec here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlan {
    /// Nobody has one.
    #[error(transparent)]
    Spec(#[from] BadSpec),
    /// Making it panicked.
    #[error("making the plan panicked: this is a fault of the program")]
    Panicked,
}

/// Why a grant cannot be counted here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadGrant {
    /// There is no such plan in this program.
    #[error(transparent)]
    Spec(#[from] NoPlan),
    /// Coordinator and worker divide the board differently.
    #[error(
        "the coordinator's plan for N = {n} has hash {theirs}, this worker's has {ours}: install \
         the same release on both"
    )]
    Hash { n: u8, theirs: String, ours: String },
    /// The plan has no such task.
    #[error("the plan for N = {n} has {tasks} tasks, so there is no task {task}")]
    Task { n: u8, tasks: u64, task: u64 },
}

/// A plan, or why there is none.
type Made = Result<Plan, NoPlan>;

/// The latest plans, the latest last; failures are kept too, so that they cost nothing again.
#[derive(Debug, Default)]
pub(super) struct Plans {
    kept: VecDeque<(PlanSpec, Made)>,
}

impl Plans {
    /// What came of making the plan of `spec`, if that was tried lately.
    pub(super) fn find(&self, spec: &PlanSpec) -> Option<&Made> {
        let (_, made) = self.kept.iter().find(|(kept, _)| kept == spec)?;
        Some(made)
    }

    pub(super) fn keep(&mut self, spec: PlanSpec, made: Made) {
        self.kept.retain(|(kept, _)| *kept != spec);
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((spec, made));
    }
}

/// The work that `grant` gives, whose plan was `made` here from its spec.
pub(super) fn work(grant: &Grant, made: &Made) -> Result<Work, BadGrant> {
    let plan = made.clone()?;
    let n = grant.spec.board.n();
    if plan.hash() != grant.task.plan {
        return Err(BadGrant::Hash {
            n,
            theirs: grant.task.plan.to_string(),
            ours: plan.hash().to_string(),
        });
    }
    if !plan.contains(grant.task.task) {
        return Err(BadGrant::Task {
            n,
            tasks: plan.tasks(),
            task: grant.task.task.0,
        });
    }
    Ok(Work::new(LeaseKey::granted(grant), plan, grant.orientation))
}

#[cfg(test)]
mod tests {
    use common::plan::PlanHash;

    use super::*;
    use crate::testing::{grant, plan};

    #[test]
    fn a_grant_is_work_only_if_both_sides_divide_the_board_alike() {
        let plan = plan(8);
        let made = Ok(plan.clone());
        let good = grant(&plan, plan.tasks() - 1);
        let got = work(&good, &made).unwrap();
        assert_eq!(got.lease, LeaseKey::granted(&good));
        assert_eq!(
            (got.plan.hash(), got.orientation),
            (plan.hash(), good.orientation)
        );

        let beyond = work(&grant(&plan, plan.tasks()), &made).unwrap_err();
        let tasks = plan.tasks();
        assert_eq!(
            beyond,
            BadGrant::Task {
                n: 8,
                tasks,
                task: tasks
            }
        );
        let mut strange = good;
        strange.task.plan = PlanHash::try_from([7; 32].as_slice()).unwrap();
        let error = work(&strange, &made).unwrap_err();
        assert!(matches!(error, BadGrant::Hash { n: 8, .. }), "{error}");
        let error = work(&good, &Err(NoPlan::Panicked)).unwrap_err();
        assert_eq!(error, BadGrant::Spec(NoPlan::Panicked));
    }

    #[test]
    fn the_latest_plans_are_kept() {
        let mut plans = Plans::default();
        let all: Vec<_> = (6u8..).take(KEPT + 1).map(plan).collect();
        for plan in &all {
            assert!(plans.find(plan.spec()).is_none());
            plans.keep(*plan.spec(), Ok(plan.clone()));
            // The same again takes no place.
            plans.keep(*plan.spec(), Ok(plan.clone()));
        }
        assert!(plans.find(all[0].spec()).is_none());
        for plan in &all[1..] {
            let found = plans.find(plan.spec()).unwrap().as_ref().unwrap();
            assert_eq!(found.hash(), plan.hash());
        }
        plans.keep(*all[1].spec(), Err(NoPlan::Panicked));
        assert!(plans.find(all[1].spec()).unwrap().is_err());
        assert!(plans.find(all[2].spec()).is_some());
    }
}
