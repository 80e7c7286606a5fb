//! Visiting every pair of patterns of two grids, tile by tile.
//!
//! The 16 rows of one list stay in the caches while all of the other list is scanned, so the order
//! of the tiles is the one that scans less.

use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::{
    grid::{
        Grid,
        bands::{BandedRow, FilteredRows, PartitionBuffers},
        gather::{Buffer, GridRow, TILE, TILE_BITS},
        tile_rows::{MaxKeys, Portions, PrefilteredRows},
    },
    interface::PAIRS_PER_CALL,
    layout::{JoinLimits, KeyLayout, X3Places},
    leaf::{Tables, Tally},
    pairs_of,
};
use crate::{
    compute::{
        crew::ProgressReporter,
        setup::{CountError, go_on},
    },
    simd::{Residual, Set, Work},
};

/// A join in progress, whose members take one stretch of tiles after the other.
pub(crate) struct Walk<'a, W> {
    layout: KeyLayout,
    limits: &'a JoinLimits,
    top: &'a Grid<W>,
    bottom: &'a Grid<W>,
    tiles: Tiles,
    next: AtomicUsize,
}

impl<'a, W: Residual> Walk<'a, W> {
    pub(crate) fn new(
        layout: KeyLayout,
        limits: &'a JoinLimits,
        members: usize,
        top: &'a Grid<W>,
        bottom: &'a Grid<W>,
    ) -> Self {
        let tiles = Tiles::new(layout, (top.len(), bottom.len()), limits, members);
        Self { layout, limits, top, bottom, tiles, next: AtomicUsize::new(0) }
    }

    /// Returns the number of pattern pairs, which is the number of reported steps.
    pub(crate) fn steps(&self) -> u64 {
        1 << (self.layout.x1_bits() + self.layout.x2_bits())
    }

    /// Returns the rows of a tile in both grids.
    #[inline(always)]
    fn rows(&self, (tile1, tile2): &Tile) -> Rows<'a, W> {
        let (x1_bits, x2_bits) = (self.layout.x1_bits(), self.layout.x2_bits());
        let mut rows = Rows { top: [GridRow::empty(); TILE], bottom: [GridRow::empty(); TILE] };
        for (row, g1) in rows.top.iter_mut().zip(tile1.clone()) {
            *row = self.top.row(g1, x2_bits);
        }
        for (row, g2) in rows.bottom.iter_mut().zip(tile2.clone()) {
            *row = self.bottom.row(g2, x1_bits);
        }
        rows
    }

    /// Prefilters the rows of a stretch, given its first tile; returns whether it did.
    #[inline(always)]
    fn prefilter(&self, tile: &Tile, prefiltered: &mut PrefilteredRows<W>) -> bool {
        let Self { tiles, layout, .. } = *self;
        if tiles.stretch == 1 {
            return false;
        }
        let rows = self.rows(tile);
        let (tile1, tile2) = tile;
        let (rows, bits, exclude) = if tiles.by_x2 {
            (&rows.bottom[..tile2.len()], layout.x1_bits(), tile1.start)
        } else {
            (&rows.top[..tile1.len()], layout.x2_bits(), tile2.start)
        };
        let low_bits = tiles.stretch.ilog2() + TILE_BITS;
        debug_assert!(low_bits <= bits);
        let most = self.limits.prefilter_bytes / size_of::<W>();
        prefiltered.fill(rows, exclude >> low_bits, low_bits, most)
    }
}

/// Rows of a tile in both grids; rows that a grid lacks are empty.
#[derive(Clone, Copy)]
struct Rows<'a, W> {
    top: [GridRow<'a, W>; TILE],
    bottom: [GridRow<'a, W>; TILE],
}

/// Keys of the top grid filtered at a time, as a multiple of a row's keys.
///
/// The rows of the bottom grid are filtered again for each portion.
const TOPS: usize = 4;

/// Keys gathered for one tile, and for one leaf of it.
#[derive(Debug, Default)]
pub(crate) struct Gathered<W> {
    tops: FilteredRows<W>,
    bottom: FilteredRows<W>,
    dividing: PartitionBuffers<W>,
    prefiltered: PrefilteredRows<W>,
    pub(super) leaf: [Buffer<W>; 2],
}

impl<W: Residual> Gathered<W> {
    /// Estimates the maximum bytes for this many keys per row.
    pub(crate) fn max_bytes(row_keys: usize) -> u64 {
        // Rows of the top grid; one row of the bottom grid, its divided part, and a leaf's two lists.
        Buffer::<W>::bytes(TOPS * row_keys) + 4 * Buffer::<W>::bytes(row_keys)
    }
}

/// Work of one member.
pub(crate) struct WalkTiles<'a, 'b, W> {
    pub(crate) walk: &'a Walk<'a, W>,
    pub(crate) gathered: &'a mut Gathered<W>,
    pub(crate) tables: &'a mut Tables,
    pub(crate) reporter: &'a mut ProgressReporter<'b>,
}

impl<W: Residual> Work for WalkTiles<'_, '_, W> {
    type Result = Result<u64, CountError>;

    /// Visits pairs of patterns tile by tile.
    ///
    /// The rows that a tile needs then stay in the caches and are filtered only once.
    #[inline(always)]
    fn run<S: Set>(mut self, set: S) -> Result<u64, CountError> {
        let Walk { tiles, ref next, .. } = *self.walk;
        let (mut total, mut pairs, mut visited) = (0_u64, 0, 0);
        let mut prefiltered = std::mem::take(&mut self.gathered.prefiltered);
        let (mut stretch, mut is_prefiltered) = (0..0, false);
        loop {
            if stretch.is_empty() {
                stretch = tiles.stretch(next.fetch_add(1, Relaxed));
                let Some(first) = tiles.tile(stretch.start) else {
                    break;
                };
                is_prefiltered = self.walk.prefilter(&first, &mut prefiltered);
            }
            let tile = stretch.next().and_then(|at| tiles.tile(at)).expect("a non-empty stretch");
            let mut rows = self.walk.rows(&tile);
            if is_prefiltered {
                let (rows, number) = if tiles.by_x2 {
                    (&mut rows.bottom, tile.1.len())
                } else {
                    (&mut rows.top, tile.0.len())
                };
                let rows = rows[..number].iter_mut().enumerate();
                rows.for_each(|(at, row)| *row = prefiltered.row(at));
            }
            visited += (tile.0.len() * tile.1.len()) as u64;
            let x3 = self.x3(&tile, &rows);
            let count = if const { W::WORDS == 1 } && x3.number > 0 {
                let (member, pairs) = (&mut self, &mut pairs);
                set.run_separately(BandedTile { member, tile, rows: &rows, x3, pairs })
            } else {
                self.tile::<S, false>(set, tile, &rows, x3, &mut pairs)
            };
            total = total.checked_add(count).ok_or(CountError::Overflow)?;
            if pairs >= PAIRS_PER_CALL {
                go_on(self.reporter.done(visited))?;
                (pairs, visited) = (0, 0);
            }
        }
        self.gathered.prefiltered = prefiltered;
        go_on(self.reporter.done(visited))?;
        Ok(total)
    }
}

impl<W: Residual> WalkTiles<'_, '_, W> {
    /// Counts the disjoint pairs of a tile; adds the tested ones to `pairs`.
    ///
    /// Leaves are banded if X3 has bits.
    #[inline(always)]
    fn tile<S: Set, const BANDED: bool>(
        &mut self,
        set: S,
        (tile1, tile2): Tile,
        rows: &Rows<'_, W>,
        x3: X3Places,
        pairs: &mut u64,
    ) -> u64 {
        let Walk { layout, limits, .. } = *self.walk;
        let max_row = limits.row_bytes / size_of::<W>();
        let (high1, high2) = (tile1.start >> TILE_BITS, tile2.start >> TILE_BITS);
        let Gathered {
            tops: filtered_tops,
            bottom: filtered_bottom,
            dividing,
            leaf: [leaf_top, leaf_bottom],
            ..
        } = &mut *self.gathered;
        let mut tally = Tally::<S::Bits>::new();
        let most = |times: usize| MaxKeys { row: max_row, all: max_row.saturating_mul(times) };
        for portion in Portions::new(&rows.top, high2, most(TOPS), 0..tile1.len()) {
            let row = |near1: usize| rows.top[near1];
            let spans = portion.spans;
            filtered_tops.clear(portion.keys);
            for (at, near1) in portion.rows.clone().enumerate() {
                // SAFETY: the spans belong to this row and have at most `TILE` cells; there is
                // room for the portion.
                unsafe { filtered_tops.add::<S::Bits>(at, row(near1), spans, x3, dividing) };
            }
            let mut tops = [BandedRow::empty(); TILE];
            for ((at, near1), top) in portion.rows.clone().enumerate().zip(&mut tops) {
                // SAFETY: the row was added with these spans and bits above.
                *top = unsafe { filtered_tops.row(at, row(near1), spans, x3.number) };
            }
            for near2 in 0..tile2.len() {
                let row = rows.bottom[near2];
                if row.len() == 0 {
                    continue;
                }
                for below in Portions::new(&rows.bottom, high1, most(1), near2..near2 + 1) {
                    filtered_bottom.clear(below.keys);
                    // SAFETY: as above.
                    let bottom = unsafe {
                        filtered_bottom.add::<S::Bits>(0, row, below.spans, x3, dividing);
                        filtered_bottom.row(0, row, below.spans, x3.number)
                    };
                    for (near1, top) in portion.rows.clone().zip(&tops) {
                        let above = top.gather(near2, leaf_top);
                        if above.list.length == 0 {
                            continue;
                        }
                        let below = bottom.gather(near1, leaf_bottom);
                        if below.list.length == 0 {
                            continue;
                        }
                        *pairs += pairs_of(above.list.length, below.list.length);
                        // SAFETY: gathered lists have the slack that leaves read; the kernel proves
                        // the instruction set.
                        unsafe {
                            self.tables.count::<S, W, BANDED>(
                                set,
                                layout.residual_bits(),
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

    /// Chooses the bits of X3 for a tile: more for longer lists.
    #[inline(always)]
    fn x3(&self, (tile1, tile2): &Tile, rows: &Rows<'_, W>) -> X3Places {
        let Walk { layout, limits, .. } = *self.walk;
        if !layout.has_x3() {
            return X3Places::default();
        }
        let (high1, high2) = (tile1.start >> TILE_BITS, tile2.start >> TILE_BITS);
        let keys = |rows: &[GridRow<'_, W>], exclude| {
            let keys = |row: &GridRow<'_, W>| row.keys_of(row.wanted(exclude, TILE_BITS));
            rows.iter().map(keys).sum::<usize>()
        };
        let above = keys(&rows.top[..tile1.len()], high2);
        let below = keys(&rows.bottom[..tile2.len()], high1);
        let pairs = pairs_of(above / tile1.len(), below / tile2.len());
        layout.x3_places(limits.bands.bits(pairs))
    }
}

/// Work on a tile with banded leaves.
struct BandedTile<'a, 'b, 'c, W> {
    member: &'a mut WalkTiles<'b, 'c, W>,
    tile: Tile,
    rows: &'a Rows<'a, W>,
    x3: X3Places,
    pairs: &'a mut u64,
}

impl<W: Residual> Work for BandedTile<'_, '_, '_, W> {
    type Result = u64;

    #[inline(always)]
    fn run<S: Set>(self, set: S) -> u64 {
        self.member.tile::<S, true>(set, self.tile, self.rows, self.x3, self.pairs)
    }
}

/// Ranges of X1 and X2 patterns of a tile.
type Tile = (Range<usize>, Range<usize>);

/// Tiles of a join, in the order of visiting.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    /// Number of patterns of X1 and X2.
    x1: usize,
    x2: usize,
    /// Whether tiles with the same patterns of X2, not X1, are consecutive.
    by_x2: bool,
    /// Length of a stretch, a power of two.
    ///
    /// Its tiles are consecutive and have the same high bits of the other pattern.
    stretch: usize,
}

impl Tiles {
    /// Orders the tiles so that less of the other list is scanned.
    fn new(
        layout: KeyLayout,
        (tops, bottoms): (usize, usize),
        limits: &JoinLimits,
        members: usize,
    ) -> Self {
        let patterns = |bits: u32| 1_usize << bits;
        let (x1, x2) = (patterns(layout.x1_bits()), patterns(layout.x2_bits()));
        let by_x2 = x2.div_ceil(TILE) * tops < x1.div_ceil(TILE) * bottoms;
        let (tiles, others) =
            (x1.div_ceil(TILE) * x2.div_ceil(TILE), if by_x2 { x1 } else { x2 }.div_ceil(TILE));
        let stretch = 1 << others.ilog2().div_ceil(2);
        let is_worth = others.ilog2() >= limits.min_far_bits
            && limits.prefilter_bytes > 0
            && tiles / stretch >= limits.min_stretches * members;
        let stretch = if is_worth { stretch } else { 1 };
        Self { x1, x2, by_x2, stretch }
    }

    /// Returns the tiles of stretch number `at`.
    fn stretch(self, at: usize) -> Range<usize> {
        at * self.stretch..(at + 1) * self.stretch
    }

    fn tile(self, at: usize) -> Option<Tile> {
        let Self { x1, x2, by_x2, .. } = self;
        let (tiles1, tiles2) = (x1.div_ceil(TILE), x2.div_ceil(TILE));
        let (at1, at2) =
            if by_x2 { (at % tiles1, at / tiles1) } else { (at / tiles2, at % tiles2) };
        let range = |at: usize, all: usize| at * TILE..((at + 1) * TILE).min(all);
        (at < tiles1 * tiles2).then(|| (range(at1, x1), range(at2, x2)))
    }
}
