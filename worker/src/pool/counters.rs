//! The counters that one thread keeps between tasks.

use common::{
    count::{CountError, Counter, Orientation, Setup, SetupError, Watch},
    crews::Crew,
    kernel::Kernel,
    method::Method,
    plan::{Plan, PlanHash},
};

use super::Job;

/// What counts the tasks of one plan.
pub(crate) trait CountTask {
    /// The weighted count of the job's task, told to the job as it goes on.
    fn count(&mut self, job: &Job) -> Result<u64, CountError>;
}

impl CountTask for Counter {
    fn count(&mut self, job: &Job) -> Result<u64, CountError> {
        let watch: &dyn Watch = job;
        let work = &job.work;
        self.count(work.plan.task_units(work.lease.task.task), watch)
    }
}

/// Makes what counts the tasks of a plan.
pub(crate) type MakeCounter =
    dyn Fn(&Plan, &Setup) -> Result<Box<dyn CountTask>, SetupError> + Send + Sync;

/// How the real pool counts.
pub(crate) fn real_counter(plan: &Plan, setup: &Setup) -> Result<Box<dyn CountTask>, SetupError> {
    Ok(Box::new(Counter::new(plan, setup)?))
}

/// The counters of the last few plans, the latest last.
pub(super) struct Counters<'a> {
    make: &'a MakeCounter,
    kernel: Kernel,
    kept: Vec<Kept>,
}

struct Kept {
    plan: PlanHash,
    orientation: Orientation,
    counter: Box<dyn CountTask>,
}

impl<'a> Counters<'a> {
    /// None yet.
    pub(super) fn new(make: &'a MakeCounter, kernel: Kernel) -> Self {
        Self {
            make,
            kernel,
            kept: Vec::new(),
        }
    }

    /// Whether there are any.
    pub(super) fn keeps_any(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The counter of `crew` for `job`, made if it is not kept.
    pub(super) fn get(&mut self, job: &Job, crew: Crew) -> Result<&mut dyn CountTask, SetupError> {
        let (plan, orientation) = (job.work.plan.hash(), job.work.orientation);
        let found = self
            .kept
            .iter()
            .position(|kept| kept.plan == plan && kept.orientation == orientation);
        let kept = match found {
            Some(index) => self.kept.remove(index),
            None => {
                self.make_room(job.work.plan.spec().layout.method());
                let setup = Setup {
                    kernel: self.kernel,
                    threads: crew.threads,
                    memory_bytes: crew.memory_bytes,
                    orientation,
                };
                Kept {
                    plan,
                    orientation,
                    counter: (self.make)(&job.work.plan, &setup)?,
                }
            }
        };
        let last = self.kept.push_mut(kept);
        Ok(last.counter.as_mut())
    }

    /// A counter may use all of the crew's memory, so that only methods that hardly use any may
    /// keep several.
    fn make_room(&mut self, newcomer: Method) {
        let others = match newcomer {
            Method::Rows => 3,
            Method::Frames => 0,
        };
        let surplus = self.kept.len().saturating_sub(others);
        self.kept.drain(..surplus);
    }

    /// Forgets all counters: after a panic, none can be trusted.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }
}
