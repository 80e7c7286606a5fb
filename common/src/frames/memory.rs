//! How a thread's memory budget is divided.

use super::{hjoin::HJoin, plan::Division};
use crate::count::SetupError;

/// What one thread may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// Quarter lists kept for later frames, in bytes.
    pub(super) shelf_bytes: u64,
    /// Half boards of one half held at a time, in keys; one row set's more for the last.
    pub(super) keys: usize,
}

/// Pieces so small that a join would be mostly overhead.
const LEAST_KEYS: usize = 1 << 14;

/// Kept quarter lists are worth this part of the budget at most.
const SHELF_PART: u64 = 4;

impl Budget {
    /// Of `given` bytes.
    ///
    /// # Errors
    /// If not even the smallest pieces fit.
    pub(super) fn new(given: u64, division: &Division, join: &HJoin) -> Result<Self, SetupError> {
        let quarters = division.quarter_bytes();
        let row_set = division.row_set_keys();
        // A list of half boards is written before it is sorted, and may pass its limit by a row set.
        let needed = |keys: usize| {
            let lists = 2 * size_of::<u64>() as u64 * (keys + row_set) as u64;
            quarters + lists + join.memory_bytes(keys + row_set, keys + row_set)
        };
        let least_keys = LEAST_KEYS.max(4 * row_set);
        let least = needed(least_keys);
        if given < least {
            return Err(SetupError::Memory { given, least });
        }
        let shelf_bytes = (given / SHELF_PART).min(given - least);
        // The most keys that fit, between this many and twice as many again and again.
        let fits = |keys: usize| needed(keys) <= given - shelf_bytes;
        let mut keys = least_keys;
        for step in (0..40).rev().map(|bit| 1usize << bit) {
            if fits(keys.saturating_add(step)) {
                keys += step;
            }
        }
        Ok(Self { shelf_bytes, keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        board::Board,
        kernel::Kernel,
        method::Layout,
        plan::{Plan, PlanSpec},
    };

    #[test]
    fn the_refused_budget_names_the_smallest_that_works() {
        for n in [4, 13, 20, 23] {
            let mut spec = PlanSpec::new(Board::new(n).unwrap(), Layout::Frames);
            spec.task_cost = u64::MAX;
            assert!(Plan::new(spec).is_ok());
            let division = Division::new(&spec).unwrap();
            let join = HJoin::new(Kernel::SCALAR, 2 * u32::from(n) - 2);
            let Err(SetupError::Memory { given: 1, least }) = Budget::new(1, &division, &join)
            else {
                panic!("N = {n} in one byte");
            };
            let smallest = Budget::new(least, &division, &join).unwrap();
            assert!(smallest.keys >= LEAST_KEYS);
            let larger = Budget::new(10 * least, &division, &join).unwrap();
            assert!(larger.keys > smallest.keys, "N = {n}");
        }
    }
}
