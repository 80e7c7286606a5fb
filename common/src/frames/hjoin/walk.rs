//! Visiting every pair of patterns of two grids.

use std::ops::Range;

use super::{
    OnProgress, PAIRS_A_CALL, Work,
    bands::{BandedRow, Bands, Limits, Marks, Places},
    gather::{Buffer, TILE, TILE_BITS},
    grid::{Grid, Rest},
    lanes::Lanes,
    layout::Layout,
    leaf::{Tables, Tally},
};
use crate::count::CountError;

/// A join under way.
pub(super) struct Join<'a, W> {
    pub(super) layout: Layout,
    pub(super) limits: Limits,
    pub(super) top: &'a Grid<W>,
    pub(super) bottom: &'a Grid<W>,
    pub(super) gathered: &'a mut Gathered<W>,
    pub(super) tables: &'a mut Tables,
    pub(super) progress: OnProgress<'a>,
}

/// Keys gathered for one tile, and for one leaf of it.
#[derive(Debug, Default)]
pub(super) struct Gathered<W> {
    tile_tops: [Bands<W>; TILE],
    tile_bottom: Bands<W>,
    marks: Marks,
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
                let tile = (tile1.clone(), tile2);
                let x3 = self.x3(&tile);
                let count = if const { W::WORDS == 1 } && x3.number > 0 {
                    let (join, pairs) = (&mut *self, &mut pairs);
                    L::apart(BandedTile {
                        join,
                        tile,
                        x3,
                        pairs,
                    })
                } else {
                    self.tile::<L, false>(tile, x3, &mut pairs)
                };
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

    /// The disjoint pairs with X1 and X2 in these ranges, in leaves that are banded if there are bits of
    /// X3; adds the pairs tested to `pairs`.
    #[inline(always)]
    fn tile<L: Lanes, const BANDED: bool>(
        &mut self,
        (tile1, tile2): (Range<usize>, Range<usize>),
        x3: Places,
        pairs: &mut usize,
    ) -> u64 {
        let (x1_bits, x2_bits) = (self.layout.x1_bits(), self.layout.x2_bits());
        let (high1, high2) = (tile1.start >> TILE_BITS, tile2.start >> TILE_BITS);
        let rest = (self.layout.rest_bits(), x3.number);
        let Gathered {
            tile_tops,
            tile_bottom,
            marks,
            leaf_top,
            leaf_bottom,
        } = &mut *self.gathered;
        let mut tops = [BandedRow::empty(); TILE];
        for ((g1, top), bands) in tile1.clone().zip(&mut tops).zip(tile_tops) {
            let row = self.top.row(g1, x2_bits);
            *top = bands.narrow::<L>(row, (high2, TILE_BITS), x3, marks);
        }
        let mut tally = Tally::<L>::new();
        for g2 in tile2 {
            let row = self.bottom.row(g2, x1_bits);
            if row.len() == 0 {
                continue;
            }
            let bottom = tile_bottom.narrow::<L>(row, (high1, TILE_BITS), x3, marks);
            for (g1, top) in tile1.clone().zip(&tops) {
                let above = top.gather(g2 % TILE, leaf_top);
                if above.list.1 == 0 {
                    continue;
                }
                let below = bottom.gather(g1 % TILE, leaf_bottom);
                if below.list.1 == 0 {
                    continue;
                }
                *pairs += above.list.1 * below.list.1;
                // SAFETY: gathered lists have the slack that leaves read; the instruction set is
                // there, since the kernel got us here.
                unsafe {
                    self.tables
                        .count::<L, W, BANDED>(rest, above, below, &mut tally);
                };
            }
        }
        tally.total()
    }

    /// The bits of X3 for a tile: the more, the longer the lists of its leaves are.
    #[inline(always)]
    fn x3(&self, (tile1, tile2): &(Range<usize>, Range<usize>)) -> Places {
        if !self.layout.has_x3() {
            return Places::default();
        }
        let (x1_bits, x2_bits) = (self.layout.x1_bits(), self.layout.x2_bits());
        let (high1, high2) = (tile1.start >> TILE_BITS, tile2.start >> TILE_BITS);
        let above = |g1| {
            let row = self.top.row(g1, x2_bits);
            row.narrowed_len((high2, TILE_BITS))
        };
        let below = |g2| {
            let row = self.bottom.row(g2, x1_bits);
            row.narrowed_len((high1, TILE_BITS))
        };
        let above: usize = tile1.clone().map(above).sum();
        let below: usize = tile2.clone().map(below).sum();
        let pairs = (above / tile1.len()) * (below / tile2.len());
        self.layout.x3_places(self.limits.bits(pairs))
    }
}

/// A tile whose leaves are banded.
struct BandedTile<'a, 'b, W> {
    join: &'a mut Join<'b, W>,
    tile: (Range<usize>, Range<usize>),
    x3: Places,
    pairs: &'a mut usize,
}

impl<W: Rest> Work for BandedTile<'_, '_, W> {
    type Result = u64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> u64 {
        self.join.tile::<L, true>(self.tile, self.x3, self.pairs)
    }
}

/// The patterns below `patterns` in ranges of a tile's side.
fn tiles(patterns: usize) -> impl Iterator<Item = Range<usize>> {
    (0..patterns)
        .step_by(TILE)
        .map(move |start| start..(start + TILE).min(patterns))
}
