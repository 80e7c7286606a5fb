//! Counting a range of units of any plan, by any method and kernel.

use std::ops::Range;

use crate::{
    frames,
    join::Accelerator,
    plan::{Division, Plan},
    rows,
};

pub use crate::compute::setup::{
    CountError, CounterConfig, NoProgress, Orientation, ProgressSink, SetupError,
};

/// Counter for the units of one plan; reuses its buffers between calls.
#[derive(Debug)]
pub struct Counter(Method);

#[derive(Debug)]
enum Method {
    Rows(rows::Counter),
    Frames(Box<frames::Counter>),
}

impl Counter {
    pub fn new(plan: &Plan, config: &CounterConfig) -> Result<Self, SetupError> {
        Ok(Self(match plan.division() {
            Division::Rows(division) => Method::Rows(rows::Counter::new(division.clone(), config)?),
            Division::Frames(division) => {
                Method::Frames(Box::new(frames::Counter::new(division.clone(), config)?))
            }
        }))
    }

    /// Joins frames on `accelerator`; method `rows` has no use for it.
    #[must_use]
    pub fn with_accelerator(mut self, accelerator: Accelerator) -> Self {
        if let Method::Frames(frames) = &mut self.0 {
            frames.set_accelerator(accelerator);
        }
        self
    }

    /// Returns whether the accelerator has joined frames since the previous call.
    pub fn take_accelerated(&mut self) -> bool {
        match &mut self.0 {
            Method::Frames(frames) => frames.take_accelerated(),
            Method::Rows(_) => false,
        }
    }

    /// Returns the weighted number of solutions in `units`.
    ///
    /// The sum over all units of the plan is all(N). The counter stays usable after an error.
    pub fn count(
        &mut self,
        units: Range<u64>,
        progress: &dyn ProgressSink,
    ) -> Result<u64, CountError> {
        match &mut self.0 {
            Method::Rows(rows) => rows.count(units, progress),
            Method::Frames(frames) => frames.count(units, progress),
        }
    }
}
