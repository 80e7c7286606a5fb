//! The plans of the runs that this worker serves, made here from their specs.

use std::collections::VecDeque;

use common::{
    plan::{Plan, PlanSpec},
    sync::Grant,
};

/// Plans of so many runs are kept.
const KEPT: usize = 8;

/// Why a grant cannot be counted here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadGrant {
    /// There is no such plan in this program.
    #[error("{0}")]
    Spec(String),
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

type Made = Result<Plan, BadGrant>;

/// The latest plans, the latest last; failures are kept too, so that they cost nothing again.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    kept: VecDeque<(PlanSpec, Made)>,
}

impl Plans {
    /// The plan that `grant` belongs to, which contains its task.
    pub(crate) async fn get(&mut self, grant: &Grant) -> Made {
        let plan = self.of_spec(grant.spec).await?;
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
        Ok(plan)
    }

    async fn of_spec(&mut self, spec: PlanSpec) -> Made {
        if let Some(index) = self.kept.iter().position(|(kept, _)| *kept == spec) {
            return self.kept[index].1.clone();
        }
        // A large board's plan may take a while to make, which must not stop the runtime.
        let made = tokio::task::spawn_blocking(move || Plan::new(spec)).await;
        let made = match made {
            Ok(Ok(plan)) => Ok(plan),
            Ok(Err(bad)) => Err(BadGrant::Spec(bad.to_string())),
            Err(panic) => Err(BadGrant::Spec(format!("making the plan failed: {panic}"))),
        };
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((spec, made.clone()));
        made
    }
}
