//! Counting a range of units of any plan: one call, whatever the method and the kernel.

use std::ops::Range;

use crate::{
    frames,
    plan::{Division, Plan},
    rows,
};

pub use crate::setup::{CountError, Orientation, Setup, SetupError, Unwatched, Watch};

/// Counts units of one plan; keeps its buffers from one call to the next.
#[derive(Debug)]
pub struct Counter(Method);

#[derive(Debug)]
enum Method {
    Rows(rows::Counter),
    Frames(Box<frames::Counter>),
}

impl Counter {
    /// A counter for units of `plan`.
    pub fn new(plan: &Plan, setup: &Setup) -> Result<Self, SetupError> {
        Ok(Self(match plan.division() {
            Division::Rows(division) => Method::Rows(rows::Counter::new(division.clone(), setup)?),
            Division::Frames(division) => {
                Method::Frames(Box::new(frames::Counter::new(division.clone(), setup)?))
            }
        }))
    }

    /// The weighted number of solutions in `units`: summed over all units of the plan, this is
    /// all(N). The buffers stay usable after an error.
    ///
    /// ```
    /// use common::{board::Board, count::*, method::Layout, plan::*};
    ///
    /// let plan = Plan::new(PlanSpec::new(Board::new(10)?, Layout::Frames))?;
    /// let mut counter = Counter::new(&plan, &Setup::best(1 << 26))?;
    /// let first = counter.count(0..5, &Unwatched)?;
    /// assert_eq!(first + counter.count(5..plan.units(), &Unwatched)?, 724);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn count(&mut self, units: Range<u64>, watch: &dyn Watch) -> Result<u64, CountError> {
        match &mut self.0 {
            Method::Rows(rows) => rows.count(units, watch),
            Method::Frames(frames) => frames.count(units, watch),
        }
    }
}
