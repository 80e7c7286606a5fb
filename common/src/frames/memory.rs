//! How a crew's memory budget is divided.

use super::{geometry::Kind, hjoin::HJoin, plan::Division};
use crate::count::SetupError;

/// What a crew may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// Quarter lists kept for later frames, in bytes.
    pub(super) shelf_bytes: u64,
    /// By class of frames: half boards of one half held at a time, in keys; one row set's more for
    /// the last.
    keys: Vec<((Kind, u32), usize)>,
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
        let needs: Vec<Need> = division
            .classes()
            .map(|class| Need::new(class, division))
            .collect();
        let least = needs.iter().map(|need| need.bytes(need.least_keys(), join));
        let least = least.max().unwrap_or(0);
        if given < least {
            return Err(SetupError::Memory { given, least });
        }
        let shelf_bytes = (given / SHELF_PART).min(given - least);
        let keys = |need: &Need| (need.class, need.most_keys(given - shelf_bytes, join));
        Ok(Self {
            shelf_bytes,
            keys: needs.iter().map(keys).collect(),
        })
    }

    /// Gives every class this limit.
    #[cfg(test)]
    pub(super) fn set_limit(&mut self, limit: usize) {
        for (_, keys) in &mut self.keys {
            *keys = limit;
        }
    }

    /// The most half boards of one half of a frame of `class` to hold at a time.
    pub(super) fn keys(&self, class: (Kind, u32)) -> usize {
        let known = self.keys.iter().find(|known| known.0 == class);
        known.expect("every class has its share").1
    }
}

/// What the frames of a class need.
struct Need {
    class: (Kind, u32),
    quarter_bytes: u64,
    row_set_keys: usize,
}

impl Need {
    fn new(class: (Kind, u32), division: &Division) -> Self {
        Self {
            class,
            quarter_bytes: division.quarter_bytes(class),
            row_set_keys: division.row_set_keys(class),
        }
    }

    fn least_keys(&self) -> usize {
        LEAST_KEYS.max(2 * self.row_set_keys)
    }

    /// Memory in bytes for joining so many half boards of either half, on so many threads.
    fn bytes(&self, keys: usize, join: &HJoin) -> u64 {
        // A piece may pass its limit by a row set.
        let keys = keys.saturating_add(self.row_set_keys);
        // Short lists are held, and what a thread makes for a long one.
        let held = 2 * keys.min(HJoin::SHORT_LIST) + join.threads() * self.row_set_keys;
        self.quarter_bytes + (size_of::<u64>() * held) as u64 + join.memory_bytes(keys, keys)
    }

    /// The most half boards that fit in so many bytes, where the least do.
    fn most_keys(&self, bytes: u64, join: &HJoin) -> usize {
        let mut keys = self.least_keys();
        for step in (0..40).rev().map(|bit| 1usize << bit) {
            if self.bytes(keys.saturating_add(step), join) <= bytes {
                keys += step;
            }
        }
        keys
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
            let join = HJoin::new(Kernel::SCALAR, 2 * u32::from(n) - 2, 1);
            let Err(SetupError::Memory { given: 1, least }) = Budget::new(1, &division, &join)
            else {
                panic!("N = {n} in one byte");
            };
            let smallest = Budget::new(least, &division, &join).unwrap();
            let larger = Budget::new(10 * least, &division, &join).unwrap();
            for class in division.classes() {
                let (few, many) = (smallest.keys(class), larger.keys(class));
                assert!(LEAST_KEYS <= few && few < many, "N = {n}, {class:?}");
            }
        }
    }
}
