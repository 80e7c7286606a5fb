//! Configuration of a count, its progress callback, and its errors.

use std::{num::NonZeroU16, ops::ControlFlow};

use crate::compute::kernel::Kernel;

/// Configuration of a count.
///
/// ```
/// use std::num::NonZeroU16;
///
/// use common::{board::Board, count::*, method::Layout, plan::*};
///
/// // A crew of two in 64 MiB.
/// let threads = NonZeroU16::new(2).expect("not zero");
/// let config = CounterConfig { threads, ..CounterConfig::best(64 << 20) };
/// let plan = Plan::new(PlanSpec::new(Board::new(13)?, Layout::Frames))?;
/// assert_eq!(Counter::new(&plan, &config)?.count(0..plan.units(), &NoProgress)?, 73_712);
/// // Too little memory is refused with the smallest sufficient amount.
/// let refused = Counter::new(&plan, &CounterConfig { memory_bytes: 1, ..config });
/// assert!(matches!(refused, Err(SetupError::Memory { given: 1, least }) if least < 64 << 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterConfig {
    pub kernel: Kernel,
    /// Size of the crew. The count does not depend on it.
    ///
    /// Method `rows` uses one thread; its tasks are small, so each thread should get its own counter.
    pub threads: NonZeroU16,
    /// Maximum memory of all threads together.
    pub memory_bytes: u64,
    /// Orientation of the board, which changes the data but not the count.
    pub orientation: Orientation,
}

impl CounterConfig {
    /// Returns a configuration with one thread and the best kernel of this CPU.
    pub fn best(memory_bytes: u64) -> Self {
        Self {
            kernel: Kernel::best(),
            threads: NonZeroU16::MIN,
            memory_bytes,
            orientation: Orientation::Upright,
        }
    }
}

/// Orientation of the board during a count; rechecks use the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orientation {
    /// Units as the plan states them.
    #[default]
    Upright,
    /// Units rotated by 180° (`rows`: mirrored).
    Rotated,
}

crate::named!(Orientation, "orientation", as_str, Upright = "upright", Rotated = "rotated");

impl Orientation {
    pub const ALL: [Self; 2] = [Self::Upright, Self::Rotated];

    /// Returns the code in stored and signed bytes: its place in [`Self::ALL`].
    pub const fn code(self) -> u8 {
        match self {
            Self::Upright => 0,
            Self::Rotated => 1,
        }
    }

    pub const fn rotated(self) -> Self {
        match self {
            Self::Upright => Self::Rotated,
            Self::Rotated => Self::Upright,
        }
    }
}

/// Receiver of the progress of a count, which it may cancel.
///
/// Called many times per second, but too rarely to slow the count down.
pub trait ProgressSink {
    /// Reports the cost done since the previous call; returns `Break` to cancel.
    ///
    /// The unit is that of [`Plan::task_cost`](crate::plan::Plan::task_cost).
    fn advance(&self, cost_done: u64) -> ControlFlow<()>;
}

/// Sink that ignores progress and never cancels.
#[derive(Clone, Copy, Debug)]
pub struct NoProgress;

impl ProgressSink for NoProgress {
    fn advance(&self, _cost_done: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Reason why a range of units has no count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    #[error("cancelled")]
    Cancelled,
    /// The weighted count does not fit 64 bits.
    #[error("the weighted count of this range exceeds 64 bits")]
    Overflow,
    /// The device failed, and has logged why.
    #[error("the device failed")]
    Device,
}

/// Turns a `Break` of a progress callback into [`CountError::Cancelled`].
pub(crate) fn go_on<T>(progress: ControlFlow<(), T>) -> Result<T, CountError> {
    progress.continue_value().ok_or(CountError::Cancelled)
}

/// Adds up the counts of all members of a crew.
pub(crate) fn sum(
    results: ControlFlow<(), Vec<Result<u64, CountError>>>,
) -> Result<u64, CountError> {
    let add = |sum: u64, part: Result<u64, _>| sum.checked_add(part?).ok_or(CountError::Overflow);
    go_on(results)?.into_iter().try_fold(0, add)
}

/// Reason why a [`CounterConfig`] cannot count a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The memory budget is too small for this plan.
    #[error(
        "{} of memory is not enough for this board: its counting threads need at least {} together",
        mebibytes(*given as f64, f64::floor),
        mebibytes(*least as f64, f64::ceil)
    )]
    Memory {
        /// Given budget, in bytes for all threads together.
        given: u64,
        /// Smallest budget that works, in bytes for all threads together.
        least: u64,
    },
}

/// Formats a size; `round` keeps the minimum from being understated.
fn mebibytes(bytes: f64, round: fn(f64) -> f64) -> String {
    format!("{:.1} MiB", round(bytes / 104_857.6) / 10.0)
}

/// Memory that a crew needs for the tasks of a plan, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    pub least: u64,
    /// Enough to hold the lists of typical tasks whole.
    pub whole: u64,
    /// More than this makes no count faster.
    pub full: u64,
}
