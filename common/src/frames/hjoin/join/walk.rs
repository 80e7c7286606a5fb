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
            gather::{Buffer, GridRow, TILE, TILE_BITS},
            portions::{MostKeys, Portions},
            shortened::Shortened,
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
    narrowing: Narrowing,
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
        narrowing: Narrowing,
        top: &'a Grid<W>,
        bottom: &'a Grid<W>,
    ) -> Self {
        let tiles = Tiles::new(layout, (top.len(), bottom.len()), narrowing);
        Self {
            layout,
            limits,
            narrowing,
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

    /// The rows of a tile of either grid.
    #[inline(always)]
    fn rows(&self, (tile1, tile2): &Tile) -> Rows<'a, W> {
        let (x1_bits, x2_bits) = (self.layout.x1_bits(), self.layout.x2_bits());
        let mut rows = Rows {
            top: [GridRow::empty(); TILE],
            bottom: [GridRow::empty(); TILE],
        };
        for (row, g1) in rows.top.iter_mut().zip(tile1.clone()) {
            *row = self.top.row(g1, x2_bits);
        }
        for (row, g2) in rows.bottom.iter_mut().zip(tile2.clone()) {
            *row = self.bottom.row(g2, x1_bits);
        }
        rows
    }

    /// Shortens the rows that all tiles of a stretch have, given its first one; returns whether it did.
    #[inline(always)]
    fn shorten(&self, tile: &Tile, shortened: &mut Shortened<W>) -> bool {
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
        shortened.fill(
            rows,
            exclude >> low_bits,
            low_bits,
            self.narrowing.most_short,
        )
    }
}

/// The rows of a tile, or as many of either grid as it has.
#[derive(Clone, Copy)]
struct Rows<'a, W> {
    top: [GridRow<'a, W>; TILE],
    bottom: [GridRow<'a, W>; TILE],
}

/// How much a join narrows at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Narrowing {
    /// The most keys of a row, for a tile.
    pub(crate) most_row: usize,
    /// The most keys of all of a tile's rows of one grid, for a stretch of tiles.
    pub(crate) most_short: usize,
    /// The least bits beside those of a tile that a pattern has where rows are narrowed for several tiles: with
    /// fewer, they have so few cells that narrowing them for each tile takes little.
    pub(crate) least_far_bits: u32,
    /// The members that take stretches.
    pub(crate) members: usize,
}

/// The least stretches for each member, so that all are done at about the same time.
const LEAST_STRETCHES: usize = 32;

/// So many times as many keys of the top grid are narrowed at a time as of a row: the rows of the bottom grid
/// are narrowed again for each portion of them.
const TOPS: usize = 4;

/// Keys gathered for one tile, and for one leaf of it.
#[derive(Debug, Default)]
pub(crate) struct Gathered<W> {
    tops: NarrowedRows<W>,
    bottom: NarrowedRows<W>,
    dividing: Dividing<W>,
    shortened: Shortened<W>,
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
        let mut shortened = std::mem::take(&mut self.gathered.shortened);
        let (mut stretch, mut is_short) = (0..0, false);
        loop {
            if stretch.is_empty() {
                stretch = tiles.stretch(next.fetch_add(1, Relaxed));
                let Some(first) = tiles.tile(stretch.start) else {
                    break;
                };
                is_short = self.walk.shorten(&first, &mut shortened);
            }
            let tile = stretch.next().and_then(|at| tiles.tile(at)).expect("begun");
            let mut rows = self.walk.rows(&tile);
            if is_short {
                let (rows, number) = if tiles.by_x2 {
                    (&mut rows.bottom, tile.1.len())
                } else {
                    (&mut rows.top, tile.0.len())
                };
                let rows = rows[..number].iter_mut().enumerate();
                rows.for_each(|(at, row)| *row = shortened.row(at));
            }
            visited += (tile.0.len() * tile.1.len()) as u64;
            let x3 = self.x3(&tile, &rows);
            let count = if const { W::WORDS == 1 } && x3.number > 0 {
                let (member, pairs) = (&mut self, &mut pairs);
                set.apart(BandedTile {
                    member,
                    tile,
                    rows: &rows,
                    x3,
                    pairs,
                })
            } else {
                self.tile::<S, false>(set, tile, &rows, x3, &mut pairs)
            };
            total = total.checked_add(count).ok_or(CountError::Overflow)?;
            if pairs >= PAIRS_A_CALL {
                if self.tell.done(visited).is_break() {
                    return Err(CountError::Cancelled);
                }
                (pairs, visited) = (0, 0);
            }
        }
        self.gathered.shortened = shortened;
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
        rows: &Rows<'_, W>,
        x3: X3Places,
        pairs: &mut usize,
    ) -> u64 {
        let Walk {
            layout,
            narrowing: Narrowing { most_row, .. },
            ..
        } = *self.walk;
        let (high1, high2) = (tile1.start >> TILE_BITS, tile2.start >> TILE_BITS);
        let Gathered {
            tops: narrowed_tops,
            bottom: narrowed_bottom,
            dividing,
            leaf: [leaf_top, leaf_bottom],
            ..
        } = &mut *self.gathered;
        let mut tally = Tally::<S::Bits>::new();
        let most = |times: usize| MostKeys {
            row: most_row,
            all: most_row.saturating_mul(times),
        };
        for portion in Portions::new(&rows.top, high2, most(TOPS), 0..tile1.len()) {
            let row = |near1: usize| rows.top[near1];
            let spans = portion.spans;
            narrowed_tops.clear(portion.keys);
            for (at, near1) in portion.rows.clone().enumerate() {
                // SAFETY: spans of this row, of no more cells than a tile's; there is room for all of the
                // portion.
                unsafe { narrowed_tops.add::<S::Bits>(at, row(near1), spans, x3, dividing) };
            }
            let mut tops = [BandedRow::empty(); TILE];
            for ((at, near1), top) in portion.rows.clone().enumerate().zip(&mut tops) {
                // SAFETY: as it was made just now.
                *top = unsafe { narrowed_tops.row(at, row(near1), spans, x3.number) };
            }
            for near2 in 0..tile2.len() {
                let row = rows.bottom[near2];
                if row.len() == 0 {
                    continue;
                }
                for below in Portions::new(&rows.bottom, high1, most(1), near2..near2 + 1) {
                    narrowed_bottom.clear(below.keys);
                    // SAFETY: as above.
                    let bottom = unsafe {
                        narrowed_bottom.add::<S::Bits>(0, row, below.spans, x3, dividing);
                        narrowed_bottom.row(0, row, below.spans, x3.number)
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
        let pairs = (above / tile1.len()) * (below / tile2.len());
        layout.x3_places(limits.bits(pairs))
    }
}

/// A tile whose leaves are banded.
struct BandedTile<'a, 'b, 'c, W> {
    member: &'a mut WalkTiles<'b, 'c, W>,
    tile: Tile,
    rows: &'a Rows<'a, W>,
    x3: X3Places,
    pairs: &'a mut usize,
}

impl<W: Rest> Work for BandedTile<'_, '_, '_, W> {
    type Result = u64;

    #[inline(always)]
    fn run<S: Set>(self, set: S) -> u64 {
        self.member
            .tile::<S, true>(set, self.tile, self.rows, self.x3, self.pairs)
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
    /// So many of these, a power of two, have the same highest bits of the other pattern, too: the rows that they
    /// share are narrowed by these bits once for all of them.
    stretch: usize,
}

impl Tiles {
    /// Those of lists with so many keys. All of the other list is gone through for the 16 rows of one that
    /// stay in the caches meanwhile: that list which is gone through less.
    fn new(layout: KeyLayout, (tops, bottoms): (usize, usize), narrowing: Narrowing) -> Self {
        let patterns = |bits: u32| 1_usize << bits;
        let (x1, x2) = (patterns(layout.x1_bits()), patterns(layout.x2_bits()));
        let by_x2 = x2.div_ceil(TILE) * tops < x1.div_ceil(TILE) * bottoms;
        let (tiles, others) = (
            x1.div_ceil(TILE) * x2.div_ceil(TILE),
            if by_x2 { x1 } else { x2 }.div_ceil(TILE),
        );
        let stretch = 1 << others.ilog2().div_ceil(2);
        let is_worth = others.ilog2() >= narrowing.least_far_bits
            && narrowing.most_short > 0
            && tiles / stretch >= LEAST_STRETCHES * narrowing.members;
        let stretch = if is_worth { stretch } else { 1 };
        Self {
            x1,
            x2,
            by_x2,
            stretch,
        }
    }

    /// The tiles of stretch number `at`.
    fn stretch(self, at: usize) -> Range<usize> {
        at * self.stretch..(at + 1) * self.stretch
    }

    /// Number `at`.
    fn tile(self, at: usize) -> Option<Tile> {
        let Self { x1, x2, by_x2, .. } = self;
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
    use crate::{
        crew::Crew,
        frames::hjoin::{
            grid::sort::Scratch,
            layout::{
                order::{ByteTables, Dissection},
                roles::Side,
            },
        },
        kernel::Kernel,
        simd::dispatch,
    };
    use std::{collections::HashSet, ops::ControlFlow};

    struct Fill<'a>(&'a mut Grid<u32>, Dissection<'a>, &'a [u64]);

    impl Work for Fill<'_> {
        type Result = ();

        #[inline(always)]
        fn run<S: Set>(self, _set: S) {
            self.0
                .fill::<S::Bits>(self.1, self.2, &mut Scratch::default());
        }
    }

    fn grid(kernel: Kernel, layout: KeyLayout, side: Side, keys: &[u64]) -> Grid<u32> {
        let (mut tables, order) = (ByteTables::default(), layout.order(side));
        tables.set(order);
        let tables = &tables;
        let mut grid = Grid::default();
        dispatch(kernel, Fill(&mut grid, Dissection { order, tables }, keys));
        grid
    }

    #[test]
    fn rows_shortened_or_not_find_the_same() {
        let random = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let list = |seed: u64| {
            (0..1500).map(move |i| random(seed + i) & random(!seed - i) & 0xf_ffff_ffff)
        };
        let (top, bottom): (Vec<u64>, Vec<u64>) = (list(1).collect(), list(1 << 40).collect());
        let below = |u: u64| bottom.iter().filter(|&&v| u & v == 0).count() as u64;
        let expected: u64 = top.iter().map(|&u| below(u)).sum();
        assert!(expected > 0);
        for (x1_bits, x2_bits) in [(9, 6), (5, 9), (8, 8), (3, 8)] {
            let bits = 0..x1_bits + x2_bits;
            let layout = bits.fold(KeyLayout::undivided(0xf_ffff_ffff), |layout, bit| {
                if bit < x1_bits {
                    layout.with_x1(1 << bit)
                } else {
                    layout.with_x2(1 << bit)
                }
            });
            for kernel in Kernel::available() {
                let above = grid(kernel, layout, Side::Top, &top);
                let below = grid(kernel, layout, Side::Bottom, &bottom);
                for most_short in [0, 100, usize::MAX] {
                    let narrowing = Narrowing {
                        most_row: 50,
                        most_short,
                        least_far_bits: 1,
                        members: 0,
                    };
                    let limits = Limits {
                        join: usize::MAX,
                        tile: [usize::MAX; 3],
                    };
                    let walk = Walk::new(layout, limits, narrowing, &above, &below);
                    assert_eq!(walk.tiles.stretch > 1, most_short > 0);
                    let members = &mut [(Gathered::default(), Tables::default())];
                    let mut told = 0;
                    let on_done = &mut |done: u64| {
                        told += done;
                        ControlFlow::Continue(())
                    };
                    let counts = Crew::new(1).run(members, on_done, |(gathered, tables), tell| {
                        dispatch(
                            kernel,
                            WalkTiles {
                                walk: &walk,
                                gathered,
                                tables,
                                tell,
                            },
                        )
                    });
                    let ControlFlow::Continue(counts) = counts else {
                        panic!("nobody cancelled");
                    };
                    assert_eq!(
                        counts,
                        [Ok(expected)],
                        "{kernel}, {x1_bits}, {x2_bits}, {most_short}"
                    );
                    assert_eq!(told, walk.steps());
                }
            }
        }
    }

    #[test]
    fn every_pair_of_patterns_is_in_one_tile_of_one_stretch() {
        for (x1, x2) in [(1, 1), (2, 64), (16, 16), (128, 8), (32, 256)] {
            for (by_x2, stretch) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
                let tiles = Tiles {
                    x1,
                    x2,
                    by_x2,
                    stretch,
                };
                let mut seen = HashSet::new();
                for at in (0..).flat_map(|at| tiles.stretch(at)) {
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
