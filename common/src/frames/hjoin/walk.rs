//! Visiting every pair of patterns of two grids.

use std::ops::Range;

use super::{
    OnProgress, PAIRS_A_CALL, Work,
    gather::{Buffer, Row, TILE, TILE_BITS},
    grid::{Grid, Rest},
    lanes::Lanes,
    layout::Layout,
    leaf::{Tables, Tally},
};
use crate::count::CountError;

/// A join under way.
pub(super) struct Join<'a, W> {
    pub(super) layout: Layout,
    pub(super) top: &'a Grid<W>,
    pub(super) bottom: &'a Grid<W>,
    pub(super) gathered: &'a mut Gathered<W>,
    pub(super) tables: &'a mut Tables,
    pub(super) progress: OnProgress<'a>,
}

/// Keys gathered for one tile, and for one leaf of it.
#[derive(Debug, Default)]
pub(super) struct Gathered<W> {
    tile_tops: [Buffer<W>; TILE],
    tile_bottom: Buffer<W>,
    leaf_top: Buffer<W>,
    leaf_bottom: Buffer<W>,
}

impl<W: Rest> Work for Join<'_, W> {
    type Result = Result<u64, CountError>;

    #[inline(always)]
    fn run<L: Lanes>(mut self) -> Result<u64, CountError> {
        if self.top.is_empty() || self.bottom.is_empty() {
            let cancelled = (self.progress)(1.0).is_break();
            return if cancelled {
                Err(CountError::Cancelled)
            } else {
                Ok(0)
            };
        }
        self.walk::<L>()
    }
}

impl<W: Rest> Join<'_, W> {
    /// Visits every pair of patterns, tile by tile, so that the rows of both grids that a tile
    /// needs stay in the caches, and are narrowed to what it needs of them only once.
    #[inline(always)]
    fn walk<L: Lanes>(&mut self) -> Result<u64, CountError> {
        let (x1, x2) = (1 << self.layout.x1_bits(), 1 << self.layout.x2_bits());
        let (mut total, mut pairs) = (0_u64, 0);
        let (mut visited, mut told) = (0, 0);
        for tile1 in tiles(x1) {
            for tile2 in tiles(x2) {
                visited += tile1.len() * tile2.len();
                let count = self.tile::<L>((tile1.clone(), tile2), &mut pairs);
                total = total.checked_add(count).ok_or(CountError::Overflow)?;
                if pairs >= PAIRS_A_CALL || visited == x1 * x2 {
                    if (self.progress)((visited - told) as f64 / (x1 * x2) as f64).is_break() {
                        return Err(CountError::Cancelled);
                    }
                    (pairs, told) = (0, visited);
                }
            }
        }
        Ok(total)
    }

    /// The disjoint pairs with X1 and X2 in these ranges; adds the pairs tested to `pairs`.
    #[inline(always)]
    fn tile<L: Lanes>(
        &mut self,
        (tile1, tile2): (Range<usize>, Range<usize>),
        pairs: &mut usize,
    ) -> u64 {
        let (x1_bits, x2_bits) = (self.layout.x1_bits(), self.layout.x2_bits());
        let Gathered {
            tile_tops,
            tile_bottom,
            leaf_top,
            leaf_bottom,
        } = &mut *self.gathered;
        let mut offsets = [[0; TILE + 1]; TILE];
        let mut tops = [Row::empty(); TILE];
        let buffers = tile_tops.iter_mut().zip(&mut offsets);
        for ((g1, top), (buffer, offsets)) in tile1.clone().zip(&mut tops).zip(buffers) {
            let row = self.top.row(g1, x2_bits);
            *top = row.narrow((tile2.start >> TILE_BITS, TILE_BITS), offsets, buffer);
        }
        let mut tally = Tally::<L>::new();
        for g2 in tile2 {
            let row = self.bottom.row(g2, x1_bits);
            if row.len() == 0 {
                continue;
            }
            let mut offsets = [0; TILE + 1];
            let bottom = row.narrow(
                (tile1.start >> TILE_BITS, TILE_BITS),
                &mut offsets,
                tile_bottom,
            );
            for (g1, top) in tile1.clone().zip(&tops) {
                let above = top.gather(g2 % TILE, leaf_top);
                if above.1 == 0 {
                    continue;
                }
                let below = bottom.gather(g1 % TILE, leaf_bottom);
                if below.1 == 0 {
                    continue;
                }
                *pairs += above.1 * below.1;
                // SAFETY: gathered lists have the slack that leaves read; the instruction set is
                // there, since the kernel got us here.
                unsafe { self.tables.count(self.layout, above, below, &mut tally) };
            }
        }
        tally.total()
    }
}

/// The patterns below `patterns` in ranges of a tile's side.
fn tiles(patterns: usize) -> impl Iterator<Item = Range<usize>> {
    (0..patterns)
        .step_by(TILE)
        .map(move |start| start..(start + TILE).min(patterns))
}
