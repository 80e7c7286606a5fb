//! Counting ranges of frames: each frame by the whole crew, or by one member.
//!
//! Members that share a frame wait for each other several times, which slows down small
//! frames. Members that count separate frames finish at different times, and each has only its
//! share of the memory. The split between the two modes minimizes the estimated time.

use std::{
    cmp::Reverse,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::{
    frame_counter::{FrameCounter, Progress, Settings},
    memory::{Budget, LimitsByClass},
    plan::Division,
    quarter::QuarterCache,
};
use crate::{
    compute::{
        crew::{Crew, OnDone},
        setup::{self, CountError, CounterConfig, ProgressSink, SetupError},
    },
    join::Accelerator,
};

/// Counter for frames; keeps its buffers between calls.
#[derive(Debug)]
pub struct Counter {
    settings: Settings,
    budget: Budget,
    cache: QuarterCache,
    crew: Arc<Crew>,
    /// Counter that uses the whole crew, unless `alone` has the memory.
    together: Option<FrameCounter>,
    /// Counters of single members: one per member, or none.
    alone: Vec<FrameCounter>,
}

impl Counter {
    pub(crate) fn new(division: Arc<Division>, config: &CounterConfig) -> Result<Self, SetupError> {
        let threads = usize::from(config.threads.get());
        let budget = Budget::new(config.memory_bytes, &division, threads)?;
        let mut counter = Self {
            settings: Settings { division, kernel: config.kernel, orientation: config.orientation },
            cache: QuarterCache::new(budget.cache_bytes),
            budget,
            crew: Arc::new(Crew::new(threads)),
            together: None,
            alone: Vec::new(),
        };
        counter.together();
        Ok(counter)
    }

    /// Joins frames on `accelerator`, one at a time.
    pub(crate) fn set_accelerator(&mut self, accelerator: Accelerator) {
        self.budget.alone = None;
        self.together().set_accelerator(accelerator);
    }

    pub(crate) fn take_accelerated(&mut self) -> bool {
        self.together().take_accelerated()
    }

    /// Returns the counter that uses the whole crew.
    fn together(&mut self) -> &mut FrameCounter {
        self.alone = Vec::new();
        self.together.get_or_insert_with(|| {
            FrameCounter::new(&self.settings, self.crew.clone(), self.budget.together.clone())
        })
    }

    pub(crate) fn count(
        &mut self,
        units: Range<u64>,
        progress: &dyn ProgressSink,
    ) -> Result<u64, CountError> {
        let Split { together, alone } =
            split(&self.settings.division, units, self.crew.size(), self.budget.alone.as_deref());
        let mut sum = 0_u64;
        for unit in together {
            let on_done = &mut |done| progress.advance(done);
            self.together();
            let Self { settings, cache, together, .. } = self;
            let together = together.as_mut().expect("created above");
            let count = count_unit(together, &settings.division, cache, unit, on_done)?;
            sum = sum.checked_add(count).ok_or(CountError::Overflow)?;
        }
        if !alone.is_empty() {
            let count = self.count_alone(&alone, progress)?;
            sum = sum.checked_add(count).ok_or(CountError::Overflow)?;
        }
        Ok(sum)
    }

    /// Counts these units; each member repeatedly takes the next one.
    fn count_alone(
        &mut self,
        units: &[u64],
        progress: &dyn ProgressSink,
    ) -> Result<u64, CountError> {
        self.together = None;
        let limits = self.budget.alone.as_ref().expect("some units fit");
        let settings = &self.settings;
        self.alone.resize_with(self.crew.size(), || {
            FrameCounter::new(settings, Arc::new(Crew::new(1)), limits.clone())
        });
        let (next, cache) = (AtomicUsize::new(0), &self.cache);
        let on_done = &mut |done| progress.advance(done);
        let counts = self.crew.run(&mut self.alone, on_done, |counter, reporter| {
            let mut sum = 0_u64;
            while let Some(&unit) = units.get(next.fetch_add(1, Relaxed)) {
                let on_done = &mut |done| reporter.done(done);
                let count = count_unit(counter, &settings.division, cache, unit, on_done)?;
                sum = sum.checked_add(count).ok_or(CountError::Overflow)?;
            }
            Ok(sum)
        });
        setup::sum(counts)
    }

    /// Makes small frames use every optimization for large ones.
    ///
    /// The whole crew then counts them in pieces of about `keys` keys, makes lists while it sorts
    /// them, and uses banded leaves.
    pub(crate) fn lower_limits(&mut self, keys: usize, x3_bits: usize) {
        let limits = self.budget.with_limit(keys);
        self.budget.alone = None;
        self.together().lower_limits(limits, x3_bits);
    }
}

/// Returns the weighted count of one unit.
fn count_unit(
    counter: &mut FrameCounter,
    division: &Division,
    cache: &QuarterCache,
    unit: u64,
    on_done: OnDone<'_>,
) -> Result<u64, CountError> {
    let mut progress = Progress::new(on_done, division.unit_cost(unit));
    let count = counter.count(division.frame(unit), cache, &mut progress)?;
    progress.finish()?;
    Ok(count)
}

/// Units in the order of counting.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    /// Counted by the whole crew, one after the other.
    pub(super) together: Vec<u64>,
    /// Counted by single members.
    pub(super) alone: Vec<u64>,
}

/// Maximum cost of a frame counted alone; ranges with costlier ones are shared.
const MAX_ALONE_US: u64 = 2_000_000;

const SHARED_OVERHEAD_US: u64 = 5_000;

/// Time to pass the memory from one mode to the other.
const SWITCH_US: u64 = 50_000;

/// Ranges with more units have so many small ones that balancing is unnecessary.
const MAX_BALANCED: usize = 1 << 10;

/// Factor on estimated lengths of lists that must still fit in a member's memory.
const MARGIN: usize = 2;

/// Splits a range among `members`, each with the limits `alone`.
pub(super) fn split(
    division: &Division,
    units: Range<u64>,
    members: usize,
    alone: Option<&LimitsByClass>,
) -> Split {
    let all = |units: Range<u64>| Split { together: units.collect(), ..Split::default() };
    let Some(limits) = alone else {
        return all(units);
    };
    if members == 1 || units.end - units.start < members as u64 {
        return all(units);
    }
    let mut costs = Vec::new();
    for unit in units.clone() {
        let (cost, frame) = (division.unit_cost(unit), division.frame(unit));
        let [whole, ..] = limits.of(frame.class()).most;
        if cost > MAX_ALONE_US || division.unit_keys(unit).saturating_mul(MARGIN) > whole {
            return all(units);
        }
        costs.push((cost, unit));
    }
    // Largest first; neighbors of similar cost stay together, because they share lists.
    costs.sort_by_key(|&(cost, _)| Reverse(cost.max(1).ilog2()));
    let together = if costs.len() > MAX_BALANCED {
        0
    } else {
        best_split(&costs.iter().map(|&(cost, _)| cost).collect::<Vec<_>>(), members)
    };
    let units: Vec<u64> = costs.into_iter().map(|(_, unit)| unit).collect();
    let (together, alone) = units.split_at(together);
    Split { together: together.to_vec(), alone: alone.to_vec() }
}

/// Returns the number of leading frames to count with the whole crew.
fn best_split(costs: &[u64], members: usize) -> usize {
    let each = members as u64;
    let mut before = 0;
    let time = |together: usize| {
        if together > 0 {
            before += costs[together - 1].div_ceil(each) + SHARED_OVERHEAD_US;
        }
        let both = together > 0 && together < costs.len();
        before + finish_time(&costs[together..], members) + if both { SWITCH_US } else { 0 }
    };
    let times: Vec<u64> = (0..=costs.len()).map(time).collect();
    (0..times.len()).min_by_key(|&at| times[at]).unwrap_or(0)
}

/// Returns when the last member finishes, if each takes the next frame when free.
fn finish_time(costs: &[u64], members: usize) -> u64 {
    let mut ends = vec![0; members];
    for cost in costs {
        let first = ends.iter_mut().min().expect("a crew has members");
        *first += cost;
    }
    ends.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_frames_are_counted_alone_if_all_end_at_about_the_same_time() {
        for (costs, members, expected) in [
            (vec![10_000; 100], 2, 0),
            (vec![1_000_000; 4], 2, 0),
            // One member would wait for a second, or for a quarter of one.
            (vec![1_000_000; 5], 2, 5),
            (vec![250_000; 101], 2, 1),
            (vec![1_000_000; 3], 4, 3),
            // The other member takes as long as the first one.
            (vec![900_000, 300_000, 300_000, 300_000], 2, 0),
            (vec![900_000, 300_000], 2, 2),
            (vec![1_000; 3], 8, 0),
        ] {
            assert_eq!(best_split(&costs, members), expected, "{costs:?} by {members}");
        }
    }
}
