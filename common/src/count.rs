//! Counting a range of units of any plan: one call, whatever the method and the kernel.

use std::{
    num::NonZeroU16,
    ops::{ControlFlow, Range},
};

use crate::{
    frames,
    kernel::Kernel,
    plan::{Division, Plan},
    rows,
};

/// What a count is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The instruction set of the inner loops.
    pub kernel: Kernel,
    /// How many threads count together: a crew. The count is the same for any number. Method `rows`
    /// uses one: its units are so many and so small that threads are better given tasks of their own.
    pub threads: NonZeroU16,
    /// The most memory that the counter may hold, all threads together, in bytes.
    pub memory_bytes: u64,
    /// Through which data the same number is computed.
    pub orientation: Orientation,
}

impl Setup {
    /// One thread with the best kernel of this CPU, in so many bytes of memory.
    ///
    /// ```
    /// use common::count::{Orientation, Setup};
    ///
    /// let setup = Setup::best(1 << 30);
    /// assert_eq!(setup.threads.get(), 1);
    /// assert_eq!(setup.orientation, Orientation::Upright);
    /// ```
    pub fn best(memory_bytes: u64) -> Self {
        Self {
            kernel: Kernel::best(),
            threads: NonZeroU16::MIN,
            memory_bytes,
            orientation: Orientation::Upright,
        }
    }
}

/// Two ways through different data to the same counts: what a recheck should vary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orientation {
    /// As the plan states its units.
    #[default]
    Upright,
    /// Every unit given a half turn first (`rows`: mirrored).
    Turned,
}

/// Told of progress from inside the count, and asked whether to go on.
///
/// Called often enough to cancel promptly (many times a second), seldom enough to cost nothing.
pub trait Watch {
    /// `cost_done` of the work was done since the call before, in the unit of [`Plan::task_cost`].
    /// Answer `Break` to stop counting.
    fn advance(&self, cost_done: u64) -> ControlFlow<()>;
}

/// Goes on to the end and tells nobody.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn advance(&self, _cost_done: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Why a range of units has no count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    /// The [`Watch`] said to stop.
    #[error("cancelled")]
    Cancelled,
    /// The weighted count does not fit 64 bits.
    #[error("the weighted count of this range passes 64 bits")]
    Overflow,
}

/// Why nothing can be counted with a [`Setup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The memory budget is too small for this plan.
    #[error(
        "{given} bytes of memory are too few for this board: its counting threads together need at \
         least {least}"
    )]
    Memory {
        /// The budget given, in bytes for all threads together.
        given: u64,
        /// The smallest budget that works, in bytes for all threads together.
        least: u64,
    },
}

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
