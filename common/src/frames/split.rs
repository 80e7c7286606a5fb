//! Which frames of a range a crew counts together, and which its members count alone.
//!
//! Members who share a frame wait for each other some times in it, which small frames do not repay. But
//! members who count frames of their own end at different times, each with as much memory as the crew
//! has for one frame, divided by all. So many small frames are counted alone, as many as make the whole
//! shortest by their estimated costs, and all others together.

use std::{cmp::Reverse, ops::Range};

use super::{memory::LimitsByClass, plan::Division};

/// Units, in the order in which they are to be counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    /// By the crew, one after the other.
    pub(super) together: Vec<u64>,
    /// By its members, each the next one.
    pub(super) alone: Vec<u64>,
}

/// A frame of this cost, in microseconds of the reference machine, is never counted alone: a range that
/// has any is counted together.
const MOST_ALONE: u64 = 2_000_000;

/// What a frame costs a crew of any size on top of its share of it, in microseconds.
const WAITING: u64 = 5_000;

/// What it takes to give the memory of one way to count to the other, in microseconds.
const CHANGE: u64 = 50_000;

/// Ranges of more units have so many small ones that no care is needed.
const MANY: usize = 1 << 10;

/// Lists that are this many times as long as estimated still fit in a member's memory.
const MARGIN: usize = 2;

/// Splits a range among `members`, each of whom has these limits when alone, if that is possible at all.
pub(super) fn split(
    division: &Division,
    units: Range<u64>,
    members: usize,
    alone: Option<&LimitsByClass>,
) -> Split {
    let all = |units: Range<u64>| Split {
        together: units.collect(),
        ..Split::default()
    };
    let Some(limits) = alone else {
        return all(units);
    };
    if members == 1 || units.end - units.start < members as u64 {
        return all(units);
    }
    let mut costs = Vec::new();
    for unit in units.clone() {
        let (cost, frame) = (division.unit_cost(unit), division.frame(unit));
        let whole = limits.of((frame.kind, frame.queens)).in_one_round();
        if cost > MOST_ALONE || division.unit_keys(unit).saturating_mul(MARGIN) > whole {
            return all(units);
        }
        costs.push((cost, unit));
    }
    // The largest first, but neighbours of about the same cost stay side by side: they have lists in common.
    costs.sort_by_key(|&(cost, _)| Reverse(cost.max(1).ilog2()));
    let together = if costs.len() > MANY {
        0
    } else {
        best(
            &costs.iter().map(|&(cost, _)| cost).collect::<Vec<_>>(),
            members,
        )
    };
    let units: Vec<u64> = costs.into_iter().map(|(_, unit)| unit).collect();
    let (together, alone) = units.split_at(together);
    Split {
        together: together.to_vec(),
        alone: alone.to_vec(),
    }
}

/// How many of these frames to count together, from the first one on.
fn best(costs: &[u64], members: usize) -> usize {
    let each = members as u64;
    let mut before = 0;
    let time = |together: usize| {
        if together > 0 {
            before += costs[together - 1].div_ceil(each) + WAITING;
        }
        let both = together > 0 && together < costs.len();
        before + ending(&costs[together..], members) + if both { CHANGE } else { 0 }
    };
    let times: Vec<u64> = (0..=costs.len()).map(time).collect();
    (0..times.len()).min_by_key(|&at| times[at]).unwrap_or(0)
}

/// When the last of the members ends, each of whom takes the next of these frames when it ends one.
fn ending(costs: &[u64], members: usize) -> u64 {
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
            // The others count for as long as the first one.
            (vec![900_000, 300_000, 300_000, 300_000], 2, 0),
            (vec![900_000, 300_000], 2, 2),
            (vec![1_000; 3], 8, 0),
        ] {
            assert_eq!(best(&costs, members), expected, "{costs:?} by {members}");
        }
    }
}
