//! Interface of a join of key lists, and the join that tests every pair.

use std::{fmt, ops::ControlFlow};

use crate::compute::setup::{CountError, go_on};

/// A half of a frame.
///
/// The top list is sorted by (X1, X2), the bottom list by (X2, X1), so that all keys in a row of either
/// grid share the pattern that a leaf fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Top,
    Bottom,
}

/// One of the two lists of a half, each with its own weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Nearly all keys, stored in a grid: row sets strictly inside a frame's bounds.
    Inner,
    /// Few or no keys, stored in a plain list: row sets on a bound.
    Bound,
}

impl Part {
    /// Maximum length of a plain list.
    ///
    /// Scanning it for every row of a grid takes a fraction of a second.
    pub const MAX_BOUND_KEYS: usize = 1 << 16;
}

/// Join that counts the disjoint pairs of the keys of two halves.
///
/// Frames use a join through this trait only, so an accelerator could implement it; `docs/method.md`
/// has the data volumes. [`Self::start`] is called first for each frame. Then the
/// parts of either half are set and joined in any order, and set again if a half comes in pieces.
pub trait DisjointPairs: fmt::Debug {
    /// Removes all keys and prepares for lists like these.
    ///
    /// Only `shared_bits` may be set in both a key of one half and one of the other.
    fn start(&mut self, shared_bits: u64, top: Keys<'_>, bottom: Keys<'_>);

    /// Replaces one part of a half: at most 2^31 keys, in any order.
    ///
    /// # Errors
    /// `Cancelled` if `progress` returns `Break`.
    fn set(
        &mut self,
        side: Side,
        part: Part,
        keys: Keys<'_>,
        progress: OnProgress<'_>,
    ) -> Result<(), CountError>;

    /// Returns the number of disjoint pairs of two parts.
    ///
    /// # Errors
    /// `Cancelled` if `progress` returns `Break`, `Overflow` if the number exceeds 64 bits.
    fn join(
        &mut self,
        top: Part,
        bottom: Part,
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError>;
}

/// A join on another device than the CPU.
///
/// The CPU joins what is too small for it. Long lists are given as [`Keys::Made`], and
/// [`KeyMaker::keys`] is an estimate then.
#[derive(Debug)]
pub struct Accelerator {
    pub join: Box<dyn DisjointPairs + Send>,
    /// Maximum length of a list, and of both together.
    pub most_keys: usize,
    /// Minimum pairs of both lists.
    pub min_pairs: u64,
    /// Maximum length of a list that is given as [`Keys::List`].
    pub held_keys: usize,
}

/// Maker of a list's keys, called repeatedly so that long lists need not be held.
pub trait KeyMaker: Sync {
    fn groups(&self) -> usize;

    /// Returns the number of keys in all groups.
    fn keys(&self) -> usize;

    /// Appends the keys of a group.
    fn make(&self, group: usize, keys: &mut Vec<u64>);

    /// Appends about one in 64 of the keys of a group, spread evenly over it.
    fn make_some(&self, group: usize, keys: &mut Vec<u64>);

    /// Visits pairs of lists: the keys of the group are the ORs of their disjoint pairs.
    ///
    /// The ORs may have a bit that is not shared and not in the keys. A slice may be visited repeatedly; all stay in
    /// place as long as the maker.
    fn quarters(&self, group: usize, visit: &mut dyn FnMut(&[u64], &[u64]));
}

#[derive(Clone, Copy)]
pub enum Keys<'a> {
    List(&'a [u64]),
    /// Keys made on demand.
    Made(&'a dyn KeyMaker),
}

impl Keys<'_> {
    pub fn number(self) -> usize {
        match self {
            Self::List(keys) => keys.len(),
            Self::Made(maker) => maker.keys(),
        }
    }
}

/// Approximate maximum number of keys made for a sample.
const MAX_SAMPLED_KEYS: usize = 1 << 17;

/// Sample of the keys of a list.
#[derive(Clone, Copy)]
pub(crate) struct KeySample<'a> {
    pub(crate) keys: &'a [u64],
    /// Number of keys of the list.
    pub(crate) total: usize,
}

impl<'a> KeySample<'a> {
    /// Takes the keys, or makes a sample in `memory`.
    pub(crate) fn new(keys: Keys<'a>, memory: &'a mut Vec<u64>) -> Self {
        let total = keys.number();
        let keys = match keys {
            Keys::List(keys) => keys,
            Keys::Made(maker) => {
                memory.clear();
                let step = (total / 64).div_ceil(MAX_SAMPLED_KEYS).max(1);
                for group in (0..maker.groups()).step_by(step) {
                    maker.make_some(group, memory);
                }
                memory
            }
        };
        Self { keys, total }
    }
}

/// A held list presented as a [`KeyMaker`].
pub(crate) struct Slices<'a>(pub(crate) &'a [u64]);

impl Slices<'_> {
    const LENGTH: usize = 1 << 14;

    fn group(&self, group: usize) -> &[u64] {
        let start = group * Self::LENGTH;
        &self.0[start..self.0.len().min(start + Self::LENGTH)]
    }
}

impl KeyMaker for Slices<'_> {
    fn groups(&self) -> usize {
        self.0.len().div_ceil(Self::LENGTH)
    }

    fn keys(&self) -> usize {
        self.0.len()
    }

    fn make(&self, group: usize, keys: &mut Vec<u64>) {
        keys.extend_from_slice(self.group(group));
    }

    fn make_some(&self, group: usize, keys: &mut Vec<u64>) {
        keys.extend(self.group(group).iter().step_by(64));
    }

    fn quarters(&self, group: usize, visit: &mut dyn FnMut(&[u64], &[u64])) {
        visit(&[0], self.group(group));
    }
}

/// Callback for the fraction done since the previous call; `Break` stops the join.
pub type OnProgress<'a> = &'a mut dyn FnMut(f64) -> ControlFlow<()>;

/// Pairs between two calls of [`OnProgress`]: a few milliseconds.
pub(crate) const PAIRS_PER_CALL: u64 = 1 << 30;

/// Join that tests every pair: fastest for short lists, and the reference in tests.
#[derive(Debug, Default)]
pub struct PlainJoin {
    keys: [[Vec<u64>; 2]; 2],
}

/// Keys of the top half between two calls of [`OnProgress`].
const TOPS_PER_CALL: usize = 1 << 10;

impl DisjointPairs for PlainJoin {
    fn start(&mut self, _shared_bits: u64, _top: Keys<'_>, _bottom: Keys<'_>) {
        self.keys.as_flattened_mut().iter_mut().for_each(Vec::clear);
    }

    fn set(
        &mut self,
        side: Side,
        part: Part,
        keys: Keys<'_>,
        progress: OnProgress<'_>,
    ) -> Result<(), CountError> {
        let held = &mut self.keys[side as usize][part as usize];
        held.clear();
        match keys {
            Keys::List(keys) => held.extend_from_slice(keys),
            Keys::Made(maker) => {
                for group in 0..maker.groups() {
                    maker.make(group, held);
                    go_on(progress(0.0))?;
                }
            }
        }
        Ok(())
    }

    fn join(
        &mut self,
        top: Part,
        bottom: Part,
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError> {
        let top = &self.keys[Side::Top as usize][top as usize];
        let bottom = &self.keys[Side::Bottom as usize][bottom as usize];
        count_pairs(top, bottom, |u, v| u & v == 0, progress)
    }
}

/// Counts the disjoint pairs of two lists.
#[inline(always)]
pub(crate) fn count_pairs<T>(
    top: &[T],
    bottom: &[T],
    disjoint: impl Fn(&T, &T) -> bool,
    progress: OnProgress<'_>,
) -> Result<u64, CountError> {
    let mut count = 0;
    for tops in top.chunks(TOPS_PER_CALL) {
        for u in tops {
            count += bottom.iter().filter(|v| disjoint(u, v)).count() as u64;
        }
        go_on(progress(tops.len() as f64 / top.len() as f64))?;
    }
    if top.is_empty() {
        go_on(progress(1.0))?;
    }
    Ok(count)
}
