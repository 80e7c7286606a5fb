//! Joining a short list with a long one: the short list has far fewer keys than the grid has cells,
//! so that its keys are gone through one by one instead of cell by cell.

use super::{
    OnProgress, Work,
    bands::Banded,
    gather::{Buffer, Row},
    grid::{Grid, Rest},
    lanes::Lanes,
    layout::{ByteTables, Layout, Order, Side},
    leaf::{Tables, Tally},
    sort::Apart,
};
use crate::count::CountError;

/// A short list: its keys, taken apart and sorted by their major patterns.
#[derive(Debug, Default)]
pub(super) struct Sparse<W> {
    keys: Vec<SparseKey<W>>,
}

/// A key, taken apart.
#[derive(Clone, Copy, Debug)]
struct SparseKey<W> {
    major: u32,
    minor: u32,
    rest: W,
}

impl<W: Rest> Sparse<W> {
    /// Forgets the keys.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
    }

    #[inline(always)]
    pub(super) fn fill<L: Lanes>(&mut self, order: (Order, &ByteTables), keys: &[u64]) {
        let apart = Apart::new::<L>(order);
        self.keys.clear();
        self.keys.extend(keys.iter().map(|&key| SparseKey {
            major: pattern(apart.major::<L>(key)),
            minor: pattern(apart.minor::<L>(key)),
            rest: apart.rest::<L, W>(key),
        }));
        self.keys.sort_unstable_by_key(|key| key.major);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "patterns have few bits")]
fn pattern(bits: u64) -> u32 {
    bits as u32
}

/// A join of a short list of one half with the grid of the other.
pub(super) struct SparseJoin<'a, W> {
    pub(super) layout: Layout,
    /// The half that the short list is of.
    pub(super) side: Side,
    pub(super) few: &'a Sparse<W>,
    pub(super) many: &'a Grid<W>,
    pub(super) gathered: &'a mut [Buffer<W>; 2],
    pub(super) tables: &'a mut Tables,
    pub(super) progress: OnProgress<'a>,
}

impl<W: Rest> Work for SparseJoin<'_, W> {
    type Result = Result<u64, CountError>;

    /// Goes through the rows of the grid, which have one X1 (or X2) each: a key of the short list
    /// that has no bit in common with it there is matched with those keys of the row that have no
    /// bit in common with it in X2 (or X1).
    #[inline(always)]
    fn run<L: Lanes>(mut self) -> Result<u64, CountError> {
        let order = self.layout.order(self.side);
        let rows = if self.few.keys.is_empty() || self.many.is_empty() {
            0
        } else {
            1_u32 << order.minor_bits
        };
        let mut total = 0_u64;
        let (mut pairs, mut told) = (0, 0);
        for pattern in 0..rows {
            let row = self.many.row(pattern as usize, order.major_bits);
            let count = self.row::<L>(pattern, row, &mut pairs);
            total = total.checked_add(count).ok_or(CountError::Overflow)?;
            if pairs >= super::PAIRS_A_CALL {
                let done = f64::from(pattern + 1 - told) / f64::from(rows);
                if (self.progress)(done).is_break() {
                    return Err(CountError::Cancelled);
                }
                (pairs, told) = (0, pattern + 1);
            }
        }
        let left = if rows == 0 {
            1.0
        } else {
            f64::from(rows - told) / f64::from(rows)
        };
        if (self.progress)(left).is_break() {
            return Err(CountError::Cancelled);
        }
        Ok(total)
    }
}

impl<W: Rest> SparseJoin<'_, W> {
    /// The disjoint pairs of one row; adds the pairs tested to `pairs`.
    #[inline(always)]
    fn row<L: Lanes>(&mut self, pattern: u32, row: Row<'_, W>, pairs: &mut usize) -> u64 {
        if row.len() == 0 {
            return 0;
        }
        let [short, long] = &mut *self.gathered;
        let mut tally = Tally::<L>::new();
        for alike in self.few.keys.chunk_by(|a, b| a.major == b.major) {
            short.clear(alike.len());
            for key in alike {
                short.push_if(key.rest, key.minor & pattern == 0);
            }
            let probes = short.list();
            if probes.1 == 0 {
                continue;
            }
            let candidates = row.gather(alike[0].major as usize, long);
            *pairs += probes.1 * candidates.1;
            // SAFETY: gathered lists have the slack that leaves read; the instruction set is
            // there, since the kernel got us here.
            unsafe {
                let lists = (Banded::one(probes), Banded::one(candidates));
                let rest = (self.layout.rest_bits(), 0);
                self.tables
                    .count::<L, W, false>(rest, lists.0, lists.1, &mut tally)
            };
        }
        tally.total()
    }
}

/// Keys of the top half between two calls of [`OnProgress`] where every pair is looked at.
const TOPS_A_CALL: usize = 1 << 10;

/// A join of two short lists, pair by pair.
pub(super) struct SparsePairs<'a, W> {
    pub(super) top: &'a Sparse<W>,
    pub(super) bottom: &'a Sparse<W>,
    pub(super) progress: OnProgress<'a>,
}

impl<W: Rest> Work for SparsePairs<'_, W> {
    type Result = Result<u64, CountError>;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Result<u64, CountError> {
        let disjoint = |u: &SparseKey<W>, v: &SparseKey<W>| {
            // X1 is the major pattern of one and the minor one of the other.
            (u.major & v.minor) | (u.minor & v.major) == 0 && u.rest.bits() & v.rest.bits() == 0
        };
        let mut count = 0;
        for tops in self.top.keys.chunks(TOPS_A_CALL) {
            for u in tops {
                let below = self.bottom.keys.iter().filter(|v| disjoint(u, v));
                count += below.count() as u64;
            }
            let done = tops.len() as f64 / self.top.keys.len() as f64;
            if (self.progress)(done).is_break() {
                return Err(CountError::Cancelled);
            }
        }
        if self.top.keys.is_empty() && (self.progress)(1.0).is_break() {
            return Err(CountError::Cancelled);
        }
        Ok(count)
    }
}
