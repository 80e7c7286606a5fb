//! Work that comes in, and work that cannot be counted here.

use std::time::{Duration, Instant};

use common::{
    board::Board,
    count::SetupError,
    plan::{Plan, PlanHash},
    sync::Grant,
};

use super::{Ended, Failure, LeaseKey, Machine, Order, plans};
use crate::memory::MemorySize;

/// After so many panics of counting threads the program is not to be trusted.
const MOST_PANICS: u32 = 3;

/// For how long no work is asked for after some that cannot be counted here.
const REFUSING: Duration = Duration::from_secs(60);

impl Machine {
    /// Takes a grant, unless it is here already: grants may be repeated.
    pub(super) fn take(&mut self, grant: Grant, now: Instant) {
        let lease = LeaseKey::granted(&grant);
        let awaited = |grant: &Grant| LeaseKey::granted(grant) == lease;
        if self.leases.contains(&lease)
            || self.outbox.contains(&lease)
            || self.awaiting.iter().any(awaited)
        {
            return;
        }
        if self.plans.find(&grant.spec).is_some() {
            self.admit(grant, now);
            return;
        }
        if !self.awaiting.iter().any(|other| other.spec == grant.spec) {
            self.orders.push_back(Order::MakePlan(grant.spec));
        }
        self.awaiting.push(grant);
    }

    /// Orders what was granted, if it can be counted here.
    pub(super) fn admit(&mut self, grant: Grant, now: Instant) {
        let Some(made) = self.plans.find(&grant.spec) else {
            return;
        };
        match plans::work(&grant, made) {
            Ok(work) => {
                self.leases.insert(work.clone());
                self.orders.push_back(Order::Count(work));
            }
            Err(bad) => {
                self.given_up = true;
                self.refuse_work(&format!("run {}: {bad}", grant.task.run), now);
            }
        }
    }

    /// Asks for no work for a while, because some cannot be counted here. Says so once a while.
    fn refuse_work(&mut self, why: &str, now: Instant) {
        if !self.is_refusing(now) {
            tracing::error!(
                "{why}; its tasks are given back and no work is taken for {} s",
                REFUSING.as_secs()
            );
        }
        self.refusing_until = Some(now + REFUSING);
    }

    pub(super) fn failed(&mut self, plan: &Plan, failure: &Failure, now: Instant) {
        match failure {
            Failure::Overflow => {}
            Failure::Panic(_) => {
                self.panics += 1;
                if self.panics >= MOST_PANICS {
                    let panics = self.panics;
                    self.stop(Ended::Faulty { panics }, now);
                }
            }
            Failure::Setup(error) => {
                let hash = plan.hash();
                self.give_up_plan(hash);
                self.refuse_work(&self.why_not(error, plan.spec().board), now);
            }
        }
    }

    fn why_not(&self, error: &SetupError, board: Board) -> String {
        let SetupError::Memory { given, least } = *error;
        let threads = u64::from(self.info.threads);
        let size = |bytes: u64| MemorySize::at_least(bytes.saturating_mul(threads));
        format!(
            "this worker cannot count N = {board}: that needs at least --memory {} with --threads \
             {threads}, and there are {}",
            size(least).as_option(),
            size(given)
        )
    }

    /// Gives back the waiting work of a plan that cannot be counted here.
    fn give_up_plan(&mut self, plan: PlanHash) {
        self.give_up_where(|held| held.begun.is_none() && held.work.plan.hash() == plan);
    }
}
