//! Plans: the ordered list of units of a run, and its division into tasks.
//!
//! A [`Plan`] is a pure function of its [`PlanSpec`]. The [`PlanHash`] identifies both, so programs
//! that divide a board differently can never mix their counts.

mod example;
pub(crate) mod spec;

use std::{ops::Range, sync::Arc};

pub use example::Example;
pub use spec::{BadHash, BadSpec, MapPanel, MapSpan, PlanHash, PlanSpec, TaskId};

use crate::{frames, method::Layout, rows};

/// A plan; cheap to clone.
#[derive(Clone, Debug)]
pub struct Plan {
    spec: PlanSpec,
    hash: PlanHash,
    division: Division,
}

/// Division of the board by a method.
#[derive(Clone, Debug)]
pub(crate) enum Division {
    Rows(Arc<rows::Division>),
    Frames(Arc<frames::Division>),
}

/// Calls a function of the method's division.
macro_rules! by_method {
    ($plan:ident, |$division:ident| $call:expr) => {
        match &$plan.division {
            Division::Rows($division) => $call,
            Division::Frames($division) => $call,
        }
    };
}

impl Plan {
    /// Maximum number of tasks; the coordinator stores a row for each.
    pub const MAX_TASKS: u64 = spec::MAX_TASKS;

    /// Creates the plan of `spec`.
    ///
    /// ```
    /// use common::{board::Board, method::Layout, plan::{Plan, PlanSpec}};
    ///
    /// let plan = Plan::new(PlanSpec::new(Board::new(14)?, Layout::Frames))?;
    /// let tasks = plan.lease_order().map(|task| plan.task_units(task));
    /// assert_eq!(tasks.map(|units| units.end - units.start).sum::<u64>(), plan.units());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(spec: PlanSpec) -> Result<Self, BadSpec> {
        if spec.task_cost == 0 {
            return Err(BadSpec::ZeroTaskCost);
        }
        let division = match spec.layout {
            Layout::FirstRows | Layout::Border => {
                Division::Rows(Arc::new(rows::Division::new(&spec)))
            }
            Layout::Frames => Division::Frames(Arc::new(frames::Division::new(&spec)?)),
        };
        let plan = Self { spec, hash: PlanHash::of(&spec), division };
        if plan.tasks() > Self::MAX_TASKS {
            let PlanSpec { board, layout, task_cost } = spec;
            return Err(BadSpec::TooManyTasks { layout, board, task_cost, tasks: plan.tasks() });
        }
        Ok(plan)
    }

    pub fn spec(&self) -> &PlanSpec {
        &self.spec
    }

    /// Returns the hash of spec and rules: equal hashes mean equal units and tasks.
    pub fn hash(&self) -> PlanHash {
        self.hash
    }

    pub fn units(&self) -> u64 {
        by_method!(self, |division| division.units())
    }

    pub fn tasks(&self) -> u64 {
        by_method!(self, |division| division.tasks())
    }

    pub fn contains(&self, task: TaskId) -> bool {
        task.0 < self.tasks()
    }

    /// Returns the units of a task: consecutive, and never empty.
    ///
    /// Tasks in natural order cover all units.
    ///
    /// # Panics
    /// If the plan has no such task.
    pub fn task_units(&self, task: TaskId) -> Range<u64> {
        assert!(self.contains(task), "task {task} of {}", self.tasks());
        by_method!(self, |division| division.task_units(task))
    }

    /// Returns the estimated cost of a task, at least 1, in microseconds of one core.
    ///
    /// The core is that of the reference machine with its best kernel. Only ratios matter, because
    /// the speed of workers is measured.
    ///
    /// # Panics
    /// If the plan has no such task.
    pub fn task_cost(&self, task: TaskId) -> u64 {
        assert!(self.contains(task), "task {task} of {}", self.tasks());
        by_method!(self, |division| division.task_cost(task))
    }

    /// Returns [`Self::task_cost`] of every task in natural order.
    pub fn task_costs(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.tasks()).map(|task| self.task_cost(TaskId(task)))
    }

    /// Returns an upper bound on the weighted count of a task.
    ///
    /// # Panics
    /// If the plan has no such task.
    pub fn task_limit(&self, task: TaskId) -> u64 {
        assert!(self.contains(task), "task {task} of {}", self.tasks());
        by_method!(self, |division| division.task_limit(task))
    }

    /// Returns the task at `position` of the plan's fixed pseudo-random order.
    ///
    /// This order is a permutation of all tasks, so its first tasks are always a random sample.
    ///
    /// # Panics
    /// If `position` is not below the number of tasks.
    pub fn task_at(&self, position: u64) -> TaskId {
        TaskId(permute(self.hash.order_key(), self.tasks(), position))
    }

    /// Returns all tasks in lease order.
    pub fn lease_order(&self) -> impl Iterator<Item = TaskId> + '_ {
        (0..self.tasks()).map(|position| self.task_at(position))
    }

    pub(crate) fn division(&self) -> &Division {
        &self.division
    }

    /// Returns the columns that a unit allows in each row, as bits.
    ///
    /// # Panics
    /// If the plan has no such unit.
    pub fn allowed(&self, unit: u64) -> Vec<u32> {
        by_method!(self, |division| division.allowed(unit))
    }

    /// Returns the panels of the task map.
    ///
    /// Method `frames` has a panel per kind of frame and number of queens, with a row per A and a
    /// column per C by rank. Method `rows` has one panel, for the first two queens of a unit.
    pub fn panels(&self) -> Vec<MapPanel> {
        by_method!(self, |division| division.panels())
    }

    /// Returns the meaning of a panel's rows and columns.
    pub fn axes(&self) -> [&'static str; 2] {
        match self.division() {
            Division::Rows(rows) => rows.axes(),
            Division::Frames(_) => ["A, the columns of P", "C, the columns of R"],
        }
    }

    /// Visits the map positions of these units, in order.
    ///
    /// # Panics
    /// If the plan has fewer units.
    pub fn spans(&self, units: Range<u64>, visit: &mut dyn FnMut(MapSpan)) {
        assert!(units.end <= self.units(), "units {units:?}");
        by_method!(self, |division| division.spans(units, visit))
    }
}

/// Rounds of the Feistel network; four are enough, since the order is not a secret.
const ROUNDS: u64 = 6;

/// Returns the image of `index` under the permutation of `0..size` with this key.
///
/// A Feistel network permutes the smallest power of four that is at least `size`; images outside
/// are permuted again ("cycle walking"), at most four times on average.
///
/// # Panics
/// If `index` is not below `size`.
fn permute(key: u64, size: u64, index: u64) -> u64 {
    assert!(index < size, "position {index} of {size}");
    let half_bits = (64 - (size - 1).leading_zeros()).div_ceil(2);
    let half_mask = (1u64 << half_bits) - 1;
    let mut image = index;
    loop {
        let (mut left, mut right) = (image >> half_bits, image & half_mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ mix(key ^ mix(round ^ right << 8)) & half_mask);
        }
        image = left << half_bits | right;
        if image < size {
            return image;
        }
    }
}

/// Applies the finalizer of SplitMix64 (Steele, Lea, Flood 2014), a bijection.
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use crate::test_fixture::plan_of_cost;

    #[test]
    fn tasks_cover_each_frame_of_the_panels_once() {
        for n in 4..=15 {
            let plan = plan_of_cost(n, Layout::Frames, 1_000);
            let panels = plan.panels();
            let mut seen = BTreeSet::new();
            for task in 0..plan.tasks() {
                let units = plan.task_units(TaskId(task));
                plan.spans(units, &mut |span| {
                    let panel = &panels[span.panel];
                    assert!(span.row < panel.rows && span.columns.end <= panel.columns);
                    for column in span.columns {
                        assert!(seen.insert((span.panel, span.row, column)), "N = {n}");
                    }
                });
            }
            assert_eq!(seen.len() as u64, plan.units(), "N = {n}");
        }
    }

    #[test]
    fn each_cell_of_the_rows_panel_has_consecutive_units() {
        for layout in [Layout::FirstRows, Layout::Border] {
            for n in 1..=12 {
                let plan = plan_of_cost(n, layout, 1_000);
                let panels = plan.panels();
                assert_eq!(panels.len(), 1);
                let mut places = Vec::new();
                plan.spans(0..plan.units(), &mut |span| {
                    assert!(span.row < panels[0].rows && span.columns.end <= panels[0].columns);
                    assert_eq!(span.columns.end - span.columns.start, 1);
                    places.push((span.row, span.columns.start));
                });
                places.dedup();
                let distinct: BTreeSet<_> = places.iter().collect();
                assert_eq!(distinct.len(), places.len(), "N = {n}, {layout:?}: one run each");
            }
        }
    }

    #[test]
    fn every_size_is_permuted() {
        for size in (1..300).chain([1000, 4096, 4097, 65_537]) {
            let mut seen = vec![false; size];
            for index in 0..size {
                let image = permute(0x5eed, size as u64, index as u64);
                let image = usize::try_from(image).unwrap();
                assert!(!std::mem::replace(&mut seen[image], true), "size {size}, index {index}");
            }
        }
    }

    #[test]
    fn the_order_is_frozen_and_depends_on_the_key() {
        let first = |key| (0..8).map(|index| permute(key, 1000, index)).collect::<Vec<_>>();
        assert_eq!(first(1), FROZEN_FOR_KEY_1);
        assert_ne!(first(1), first(2));
    }

    /// Frozen: another order requires a new plan version.
    const FROZEN_FOR_KEY_1: [u64; 8] = [342, 691, 375, 359, 230, 871, 231, 491];
}
