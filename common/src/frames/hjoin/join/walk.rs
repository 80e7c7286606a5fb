//! Visiting every pair of patterns of two grids.
//!
//! The mathematics: `docs/method.md`, “Every disjoint pair in exactly one leaf”.

use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::progress::PAIRS_A_CALL;
use crate::{
    crew::Tell,
    frames::hjoin::{
        grid::{
            bands::{BandedRow, Dividing, NarrowedRows},
            cells::Grid,
            gather::{Buffer, TILE, TILE_BITS},
            portions::{MostKeys, Portions},
        },
        layout::{
            roles::KeyLayout,
            x3::{Limits, X3Places},
        },
        leaf::sliced::{Tables, Tally},
    },
    setup::CountError,
    simd::{Rest, Set, Work},
};

/// A join under way, whose members take one tile after the other.
pub(crate) struct Walk<'a, W> {
    layout: KeyLayout,
    limits: Limits,
    /// The most keys of a row to narrow at a time.
    row_keys: usize,
    top: &'a Grid<W>,
    bottom: &'a Grid<W>,
    tiles: Tiles,
    /// The next tile.
    next: AtomicUsize,
}

impl<'a, W: Rest> Walk<'a, W> {
    pub(crate) fn new(
        layout: KeyLayout,
        limits: Limits,
        row_keys: usize,
        top: &'a Grid<W>,
        bottom: &'a Grid<W>,
    ) -> Self {
        let tiles = Tiles::new(layout, top.len(), bottom.len());
        Self {
            layout,
            limits,
            row_keys,
            top,
            bottom,
            tiles,
            next: AtomicUsize::new(0),
        }
    }

    /// How many pairs of patterns there are to visit: so many steps are told.
    pub(crate) fn steps(&self) -> u64 {
        1 << (self.layout.x1_bits() + self.layout.x2_bits())
    }
}

/// So many times as many keys of the top grid are narrowed at a time as of a row: the rows of the bottom grid
/// are narrowed again for each portion of them.
const TOPS: usize = 4;

/// Keys gathered for one tile, and for one leaf of it.
#[derive(Debug, Default)]
pub(crate) struct Gathered<W> {
    tops: NarrowedRows<W>,
    bottom: NarrowedRows<W>,
    dividing: Dividing<W>,
    pub(super) leaf: [Buffer<W>; 2],
}

impl<W: Rest> Gathered<W> {
    /// About the most bytes that it takes, where so many keys of a row are narrowed at a time.
    pub(crate) fn most_bytes(row_keys: usize) -> u64 {
        // Rows of the top grid; one of the bottom grid, what is divided of it, and a leaf's two lists.
        Buffer::<W>::bytes(TOPS * row_keys) + 4 * Buffer::<W>::bytes(row_keys)
    }
}

/// What one member does of a walk.
pub(crate) struct WalkTiles<'a, 'b, W> {
    pub(crate) walk: &'a Walk<'a, W>,
    pub(crate) gathered: &'a mut Gathered<W>,
    pub(crate) tables: &'a mut Tables,
    pub(crate) tell: &'a mut Tell<'b>,
}

impl<W: Rest> Work for WalkTiles<'_, '_, W> {
    type Result = Result<u64, CountError>;

    /// Visits pairs of patterns, tile by tile, so that the rows of both grids that a tile needs stay
    /// in the caches, and are narrowed to what it needs of them only once.
    #[inline(always)]
    fn run<S: Set>(mut self, set: S) -> Result<u64, CountError> {
        let Walk {
            tiles, ref next, ..
        } = *self.walk;
        let (mut total, mut pairs, mut visited) = (0_u64, 0, 0);
        while let Some(tile) = tiles.tile(next.fetch_add(1, Relaxed)) {
            visited += (tile.0.len() * tile.1.len()) as u64;
            let x3 = self.x3(&tile);
            let count = if const { W::WORDS == 1 } && x3.number > 0 {
                let (member, pairs) = (&mut self, &mut pairs);
                set.apart(BandedTile {
                    member,
                    tile,
                    x3,
                    pairs,
                })
            } else {
                self.tile::<S, false>(set, tile, x3, &mut pairs)
            };
            total = total.checked_add(count).ok_or(CountError::Overflow)?;
            if pairs >= PAIRS_A_CALL {
                if self.tell.done(visited).is_break() {
                    return Err(CountError::Cancelled);
                }
                (pairs, visited) = (0, 0);
            }
        }
        if self.tell.done(visited).is_break() {
            return Err(CountError::Cancelled);
        }
        Ok(total)
    }
}

impl<W: Rest> WalkTiles<'_, '_, W> {
    /// The disjoint pairs with X1 and X2 in these ranges, in leaves that are banded if there are bits of
    /// X3; adds the pairs tested to `pairs`.
    #[inline(always)]
    fn tile<S: Set, const BANDED: bool>(
        &mut self,
        set: S,
        (tile1, tile2): Tile,
        x3: X3Places,
        pairs: &mut usize,
    ) -> u64 {
        let Walk {
            layout,
            row_keys,
            top: top_grid,
            bottom: bottom_grid,
            ..
        } = *self.walk;
        let (x1_bits, x2_bits) = (layout.x1_bits(), layout.x2_bits());
        let (high1, high2) = (tile1.start >> TILE_BITS, tile2.start >> TILE_BITS);
        let Gathered {
            tops: narrowed_tops,
            bottom: narrowed_bottom,
            dividing,
            leaf: [leaf_top, leaf_bottom],
        } = &mut *self.gathered;
        let mut tally = Tally::<S::Bits>::new();
        let most = |times: usize| MostKeys {
            row: row_keys,
            all: row_keys.saturating_mul(times),
        };
        for portion in Portions::new(top_grid, x2_bits, high2, most(TOPS), tile1) {
            let row = |g1| top_grid.row(g1, x2_bits);
            let spans = portion.spans;
            narrowed_tops.clear(portion.keys);
            for (at, g1) in portion.rows.clone().enumerate() {
                // SAFETY: spans of this row, of no more cells than a tile's; there is room for all of the
                // portion.
                unsafe { narrowed_tops.add::<S::Bits>(at, row(g1), spans, x3, dividing) };
            }
            let mut tops = [BandedRow::empty(); TILE];
            for ((at, g1), top) in portion.rows.clone().enumerate().zip(&mut tops) {
                // SAFETY: as it was made just now.
                *top = unsafe { narrowed_tops.row(at, row(g1), spans, x3.number) };
            }
            for g2 in tile2.clone() {
                let row = bottom_grid.row(g2, x1_bits);
                if row.len() == 0 {
                    continue;
                }
                for below in Portions::new(bottom_grid, x1_bits, high1, most(1), g2..g2 + 1) {
                    narrowed_bottom.clear(below.keys);
                    // SAFETY: as above.
                    let bottom = unsafe {
                        narrowed_bottom.add::<S::Bits>(0, row, below.spans, x3, dividing);
                        narrowed_bottom.row(0, row, below.spans, x3.number)
                    };
                    for (g1, top) in portion.rows.clone().zip(&tops) {
                        let above = top.gather(g2 % TILE, leaf_top);
                        if above.list.length == 0 {
                            continue;
                        }
                        let below = bottom.gather(g1 % TILE, leaf_bottom);
                        if below.list.length == 0 {
                            continue;
                        }
                        *pairs += above.list.length * below.list.length;
                        // SAFETY: gathered lists have the slack that leaves read; the instruction set is
                        // there, since the kernel got us here.
                        unsafe {
                            self.tables.count::<S, W, BANDED>(
                                set,
                                layout.rest_bits(),
                                x3.number,
                                above,
                                below,
                                &mut tally,
                            );
                        };
                    }
                }
            }
        }
        tally.total()
    }

    /// The bits of X3 for a tile: the more, the longer the lists of its leaves are.
    #[inline(always)]
    fn x3(&self, (tile1, tile2): &Tile) -> X3Places {
        let Walk {
            layout,
            limits,
            top,
            bottom,
            ..
        } = *self.walk;
        if !layout.has_x3() {
            return X3Places::default();
        }
        let (x1_bits, x2_bits) = (layout.x1_bits(), layout.x2_bits());
        let (high1, high2) = (tile1.start >> TILE_BITS, tile2.start >> TILE_BITS);
        let above = |g1| {
            let row = top.row(g1, x2_bits);
            row.keys_of(row.wanted(high2, TILE_BITS))
        };
        let below = |g2| {
            let row = bottom.row(g2, x1_bits);
            row.keys_of(row.wanted(high1, TILE_BITS))
        };
        let above: usize = tile1.clone().map(above).sum();
        let below: usize = tile2.clone().map(below).sum();
        let pairs = (above / tile1.len()) * (below / tile2.len());
        layout.x3_places(limits.bits(pairs))
    }
}

/// A tile whose leaves are banded.
struct BandedTile<'a, 'b, 'c, W> {
    member: &'a mut WalkTiles<'b, 'c, W>,
    tile: Tile,
    x3: X3Places,
    pairs: &'a mut usize,
}

impl<W: Rest> Work for BandedTile<'_, '_, '_, W> {
    type Result = u64;

    #[inline(always)]
    fn run<S: Set>(self, set: S) -> u64 {
        self.member
            .tile::<S, true>(set, self.tile, self.x3, self.pairs)
    }
}

/// The patterns of X1 and those of X2 that a tile is made of.
type Tile = (Range<usize>, Range<usize>);

/// The tiles of a join, in the order in which they are visited.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    /// Patterns of X1 and of X2.
    x1: usize,
    x2: usize,
    /// Whether those with the same patterns of X2 come one after the other, instead of those with the same
    /// patterns of X1.
    by_x2: bool,
}

impl Tiles {
    /// Those of lists with so many keys. All of the other list is gone through for the 16 rows of one that
    /// stay in the caches meanwhile: that list which is gone through less.
    fn new(layout: KeyLayout, tops: usize, bottoms: usize) -> Self {
        let patterns = |bits: u32| 1_usize << bits;
        let (x1, x2) = (patterns(layout.x1_bits()), patterns(layout.x2_bits()));
        let by_x2 = x2.div_ceil(TILE) * tops < x1.div_ceil(TILE) * bottoms;
        Self { x1, x2, by_x2 }
    }

    /// Number `at`.
    fn tile(self, at: usize) -> Option<Tile> {
        let Self { x1, x2, by_x2 } = self;
        let (tiles1, tiles2) = (x1.div_ceil(TILE), x2.div_ceil(TILE));
        let (at1, at2) = if by_x2 {
            (at % tiles1, at / tiles1)
        } else {
            (at / tiles2, at % tiles2)
        };
        let range = |at: usize, all: usize| at * TILE..((at + 1) * TILE).min(all);
        (at < tiles1 * tiles2).then(|| (range(at1, x1), range(at2, x2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_pair_of_patterns_is_in_one_tile() {
        for (x1, x2) in [(1, 1), (2, 64), (16, 16), (128, 8), (32, 256)] {
            for by_x2 in [false, true] {
                let tiles = Tiles { x1, x2, by_x2 };
                let mut seen = HashSet::new();
                for at in 0.. {
                    let Some((tile1, tile2)) = tiles.tile(at) else {
                        break;
                    };
                    for g1 in tile1 {
                        for g2 in tile2.clone() {
                            assert!(seen.insert((g1, g2)), "({g1}, {g2}) twice");
                        }
                    }
                }
                assert_eq!(seen.len(), x1 * x2);
            }
        }
    }
}
