//! What a count is made with, who watches it, and why it may end without a number.

use std::{num::NonZeroU16, ops::ControlFlow};

use crate::kernel::Kernel;

/// What a count is made with.
///
/// ```
/// use std::num::NonZeroU16;
///
/// use common::{board::Board, count::*, method::Layout, plan::*};
///
/// // A crew of two in 64 MiB.
/// let threads = NonZeroU16::new(2).expect("not zero");
/// let setup = Setup { threads, ..Setup::best(64 << 20) };
/// let plan = Plan::new(PlanSpec::new(Board::new(13)?, Layout::Frames))?;
/// assert_eq!(Counter::new(&plan, &setup)?.count(0..plan.units(), &Unwatched)?, 73_712);
/// // What is too little is refused, and the least that is enough is named.
/// let refused = Counter::new(&plan, &Setup { memory_bytes: 1, ..setup });
/// assert!(matches!(refused, Err(SetupError::Memory { given: 1, least }) if least < 64 << 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
/// ```
/// use std::ops::ControlFlow;
///
/// use common::{board::Board, count::*, method::Layout, plan::*};
///
/// struct Impatient;
///
/// impl Watch for Impatient {
///     fn advance(&self, _cost_done: u64) -> ControlFlow<()> {
///         ControlFlow::Break(())
///     }
/// }
///
/// let plan = Plan::new(PlanSpec::new(Board::new(14)?, Layout::Frames))?;
/// let mut counter = Counter::new(&plan, &Setup::best(1 << 28))?;
/// let stopped = counter.count(0..plan.units(), &Impatient);
/// assert_eq!(stopped, Err(CountError::Cancelled));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Called often enough to cancel promptly (many times a second), seldom enough to cost nothing.
pub trait Watch {
    /// `cost_done` of the work was done since the call before, in the unit of [`Plan::task_cost`](crate::plan::Plan::task_cost).
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

/// What a crew needs for the tasks of a plan, in bytes.
pub(crate) struct Needs {
    /// The smallest budget that works.
    pub(crate) least: u64,
    /// With this much, the lists of typical tasks need not be cut into pieces.
    pub(crate) whole: u64,
}
