//! What is told on the way.

use std::ops::ControlFlow;

/// Told the fraction of a join done since the call before (they add up to one); `Break` stops it.
pub type OnProgress<'a> = &'a mut dyn FnMut(f64) -> ControlFlow<()>;

/// Pairs between two calls of [`OnProgress`]: a few milliseconds.
pub(crate) const PAIRS_A_CALL: usize = 1 << 30;
