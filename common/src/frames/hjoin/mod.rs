//! HJoin: counting the disjoint pairs of two lists of keys.
//!
//! Keys are half boards; a pair without a common bit is a whole solution. Both lists are sorted into
//! a grid by their most contested bits, X1 and X2. For every pair of patterns (g1, g2) the
//! candidates are the top keys with X1 = g1 and X2 disjoint from g2, and the bottom keys with
//! X2 = g2 and X1 disjoint from g1: every pair that is disjoint in those bits meets in exactly one
//! leaf, where only the other bits are left to test. The lists of large leaves are sorted by a few of
//! those, X3, so that much is passed over there (`bands`).

mod bands;
mod choose;
#[cfg(test)]
pub(crate) mod fault;
mod gather;
mod grid;
mod keys;
mod lanes;
mod layout;
mod leaf;
mod planes;
mod rotate;
mod scalar;
mod scatter;
mod sort;
mod sparse;
mod split;
mod walk;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(test)]
mod tests;

use std::{collections::HashMap, ops::ControlFlow};

use self::{
    bands::Limits,
    choose::{Chooser, LONG_LISTS},
    gather::{Buffer, SLACK, TILE},
    grid::{Grid, Rest, Sorting},
    keys::{Slices, Typical},
    lanes::Lanes,
    layout::{ByteTables, Layout, Order, most_cell_bits},
    leaf::Tables,
    sort::Scratch,
    sparse::{Sparse, SparseJoin, SparsePairs, SparseRows},
    walk::{Gathered, Walk, WalkTiles},
};
use crate::{
    count::CountError,
    crew,
    kernel::{Kernel, KernelName},
};

pub use keys::{KeyMaker, Keys};
pub use layout::Side;

/// Told the fraction of a join done since the call before (they add up to one); `Break` stops it.
pub type OnProgress<'a> = &'a mut dyn FnMut(f64) -> ControlFlow<()>;

/// Pairs between two calls of [`OnProgress`]: a few milliseconds.
const PAIRS_A_CALL: usize = 1 << 30;

/// One of the two lists that a half of a frame is divided into, each weighted on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Half boards whose row set lies strictly inside its bounds: nearly all of them, kept in a
    /// grid.
    Inner,
    /// Half boards whose row set lies on a bound: few, or none, kept in a plain list.
    Bound,
}

impl Part {
    /// So many keys that going through them once for every row of a grid takes a fraction of a
    /// second; a longer list belongs into a grid, whatever it is of.
    pub const MOST_BOUND_KEYS: usize = 1 << 16;
}

/// Pairs of keys up to which a join is too short for several threads: some milliseconds.
const PAIRS_OF_ONE: usize = 1 << 32;

/// Joins lists of keys; keeps its buffers from one join to the next.
#[derive(Debug)]
pub struct HJoin {
    kernel: Kernel,
    /// From where on leaves are banded.
    limits: Limits,
    /// [`Self::SHORT_LIST`], or less in tests.
    short_list: usize,
    /// [`PAIRS_OF_ONE`], or fewer in tests.
    pairs_of_one: usize,
    /// In how many rounds long lists are sorted.
    rounds: usize,
    layout: Layout,
    chooser: Chooser,
    /// The layouts chosen for short lists, by about how long these are, and how many joins each served.
    chosen: HashMap<[u32; 2], (Layout, u32)>,
    /// For rests of up to 32 bits.
    short: Buffers<u32>,
    /// For longer rests: keys of many bits in short lists.
    long: Buffers<u64>,
    /// Typical keys of lists that are not held.
    typical: [Vec<u64>; 2],
    scratch: Scratch,
    sorting: Sorting,
    /// For kernels without an instruction that takes keys apart: of the top and the bottom list.
    apart: [ByteTables; 2],
}

#[derive(Debug, Default)]
struct Buffers<W> {
    /// The inner parts, by side.
    grids: [Grid<W>; 2],
    /// The parts on a bound, by side.
    bounds: [Sparse<W>; 2],
    members: Vec<Member<W>>,
}

/// What each thread needs.
#[derive(Debug, Default)]
struct Member<W> {
    gathered: Box<Gathered<W>>,
    candidates: [Buffer<W>; 2],
    tables: Tables,
}

/// The most keys of a list that are joined at a time: offsets are 32 bits.
const MOST_KEYS: usize = 1 << 31;

impl HJoin {
    /// The most bits of a key.
    pub const MOST_BITS: u32 = 62;

    /// Lists of so many keys are sorted where they are; longer ones need not be held.
    pub const SHORT_LIST: usize = 1 << 18;

    /// The most rounds to sort a list in: with more, its rests take most of the memory anyway.
    pub const MOST_ROUNDS: usize = 4;

    /// A join on `threads` threads of keys with `key_bits` bits, at most [`Self::MOST_BITS`]; bit 0 is
    /// the one that is set in both lists most often, and so on downwards.
    pub fn new(kernel: Kernel, key_bits: u32, threads: usize) -> Self {
        assert!(key_bits <= Self::MOST_BITS, "keys of {key_bits} bits");
        Self {
            kernel,
            limits: Limits::MEASURED,
            short_list: Self::SHORT_LIST,
            pairs_of_one: PAIRS_OF_ONE,
            rounds: 1,
            // What empty byte tables are of.
            layout: Layout::undivided(0),
            chooser: Chooser::default(),
            chosen: HashMap::new(),
            short: Buffers::new(threads),
            long: Buffers::new(threads),
            typical: Default::default(),
            scratch: Scratch::default(),
            sorting: Sorting::new(threads),
            apart: Default::default(),
        }
    }

    /// The number of pairs (u in `top`, v in `bottom`) with `u & v == 0`.
    ///
    /// # Errors
    /// `Cancelled` when `progress` breaks, `Overflow` when the number passes 64 bits.
    pub fn count(
        &mut self,
        top: &[u64],
        bottom: &[u64],
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError> {
        let any = |keys: &[u64]| keys.iter().fold(0, |any, key| any | key);
        let contested = any(top) & any(bottom);
        self.start(contested, Keys::List(top), Keys::List(bottom));
        let pairs = top.len() as f64 * bottom.len() as f64;
        let mut total = 0_u64;
        for top in top.chunks(MOST_KEYS) {
            self.set_slice(Side::Top, top, progress)?;
            for bottom in bottom.chunks(MOST_KEYS) {
                self.set_slice(Side::Bottom, bottom, progress)?;
                let share = top.len() as f64 * bottom.len() as f64 / pairs;
                let count =
                    self.join(Part::Inner, Part::Inner, &mut |done| progress(share * done))?;
                total = total.checked_add(count).ok_or(CountError::Overflow)?;
            }
        }
        Ok(total)
    }

    fn set_slice(
        &mut self,
        side: Side,
        keys: &[u64],
        progress: OnProgress<'_>,
    ) -> Result<(), CountError> {
        let slices = Slices(keys);
        let keys = if keys.len() <= self.short_list {
            Keys::List(keys)
        } else {
            Keys::Made(&slices)
        };
        self.set(side, Part::Inner, keys, progress)
    }

    /// Empties all parts and chooses the grids for lists like these: the lists themselves, or a
    /// piece of each of the lengths that are going to be joined at a time. Only `contested` bits may
    /// be set in both a key of one half and one of the other.
    pub fn start(&mut self, contested: u64, top: Keys<'_>, bottom: Keys<'_>) {
        self.short.clear();
        self.long.clear();
        let layout = self.layout_for(contested, top, bottom);
        if layout == self.layout {
            return;
        }
        self.layout = layout;
        let extracts = match self.kernel.name() {
            KernelName::Avx2 | KernelName::Avx512 => true,
            KernelName::Scalar | KernelName::Neon => false,
        };
        if !extracts {
            self.apart[Side::Top as usize].set(self.layout.order(Side::Top));
            self.apart[Side::Bottom as usize].set(self.layout.order(Side::Bottom));
        }
    }

    /// A layout chosen for lists like these before, or chosen now.
    fn layout_for(&mut self, contested: u64, top: Keys<'_>, bottom: Keys<'_>) -> Layout {
        let lengths = [about(top.number()), about(bottom.number())];
        if let Some((chosen, uses)) = self.chosen.get_mut(&lengths) {
            let layout = chosen.with_rest_of(contested);
            if *uses < MOST_USES && layout.rest_bits() <= 32 {
                *uses += 1;
                return layout;
            }
        }
        let [above, below] = &mut self.typical;
        let both = top.number() + bottom.number();
        let (top, bottom) = (Typical::new(top, above), Typical::new(bottom, below));
        let layout = self.chooser.choose(contested, top, bottom, self.limits);
        if both < SHORT {
            self.chosen.insert(lengths, (layout, 1));
        }
        layout
    }

    /// The number of disjoint pairs of one part of the top half and one of the bottom half.
    ///
    /// # Errors
    /// `Cancelled` when `progress` breaks, `Overflow` when the number passes 64 bits.
    pub fn join(
        &mut self,
        top: Part,
        bottom: Part,
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError> {
        let parts = (top, bottom);
        let limits = (self.limits, self.pairs_of_one);
        if self.layout.rest_bits() <= 32 {
            self.short
                .join(self.kernel, parts, self.layout, limits, progress)
        } else {
            self.long
                .join(self.kernel, parts, self.layout, limits, progress)
        }
    }

    /// Sorts lists that are not held in so many rounds from now on, at most [`Self::MOST_ROUNDS`]: while
    /// they are sorted, they take so many times less memory, and are made so many times.
    pub fn set_rounds(&mut self, rounds: usize) {
        assert!((1..=Self::MOST_ROUNDS).contains(&rounds), "{rounds} rounds");
        self.rounds = rounds;
    }

    /// As if all lists were long: shared by a crew, made as they are sorted, with banded leaves of so
    /// many bits of X3, 1 to 3.
    pub(super) fn lower_limits(&mut self, x3_bits: usize) {
        (self.short_list, self.pairs_of_one) = (0, 0);
        self.limits = Limits {
            join: 0,
            tile: [0, 1, 2].map(|bit| if bit < x3_bits { 0 } else { usize::MAX }),
        };
    }

    /// Short joins, too, on all threads.
    #[cfg(test)]
    pub(super) fn share_short_joins(&mut self) {
        self.pairs_of_one = 0;
    }

    /// About the most memory, in bytes, that joining two lists of so many keys takes beside the lists, and
    /// where they are not held, in all, when they are sorted in so many rounds.
    pub fn memory_bytes(key_bits: u32, threads: usize, keys: usize, rounds: usize) -> u64 {
        let keys = keys.min(MOST_KEYS);
        let (longer, both) = (keys as u64, 2 * keys as u64);
        let threads = threads as u64;
        let cell_bits = most_cell_bits(keys, keys);
        let rest = if cell_bits < LONG_LISTS || key_bits as usize > 32 + cell_bits {
            8
        } else {
            4
        };
        let rows = 1 << cell_bits.div_ceil(2);
        // The longest row may be some times as long as others.
        let row = 4 * longer / rows;
        let sorting = if longer > Self::SHORT_LIST as u64 {
            scatter::memory_bytes(longer / rounds as u64, rows, threads)
                + threads * (8 * row + 8 * rows)
        } else {
            sort::memory_bytes(longer, 1 << cell_bits)
        };
        // Of a tile, of both lists, and what is gathered of it for a leaf; in bands, where lists are long.
        let buffers = if rest == 8 { 24 } else { 160 };
        let gathered = rest * (both.min(2 * TILE as u64 * row) / 2 + buffers * SLACK as u64);
        let rests = rest * (both + 4 * SLACK as u64);
        rests + sorting + threads * gathered + 2 * Layout::most_offset_bytes(keys, keys)
    }

    /// Replaces one part of one half's keys: at most 2^31 of them.
    ///
    /// # Errors
    /// `Cancelled` when `progress` breaks.
    pub fn set(
        &mut self,
        side: Side,
        part: Part,
        keys: Keys<'_>,
        progress: OnProgress<'_>,
    ) -> Result<(), CountError> {
        let number = keys.number();
        assert!(number <= MOST_KEYS, "{number} keys in one list");
        let order = (self.layout.order(side), &self.apart[side as usize]);
        let to = (side, part);
        let set = if self.layout.rest_bits() <= 32 {
            let memory = (self.rounds, &mut self.scratch, &mut self.sorting);
            self.short
                .set(self.kernel, to, order, keys, memory, progress)
        } else {
            let memory = (self.rounds, &mut self.scratch, &mut self.sorting);
            self.long
                .set(self.kernel, to, order, keys, memory, progress)
        };
        match set {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CountError::Cancelled),
        }
    }
}

/// The same number for lengths that are near each other, two for every power of two.
fn about(length: usize) -> u32 {
    let bits = usize::BITS - length.leading_zeros();
    let is_in_upper_half = bits > 1 && length >> (bits - 2) & 1 == 1;
    2 * bits + u32::from(is_in_upper_half)
}

/// Joins of short lists that a layout serves: neighbouring frames look alike, and choosing a layout costs
/// more than a better one gains. Frames further away do not.
const MOST_USES: u32 = 8;

/// Keys, of both lists together, up to which lists are short.
const SHORT: usize = 1 << 15;

impl<W: Rest> Buffers<W> {
    fn new(threads: usize) -> Self {
        let mut members = Vec::new();
        members.resize_with(threads, Member::default);
        Self {
            grids: Default::default(),
            bounds: Default::default(),
            members,
        }
    }

    fn clear(&mut self) {
        self.grids.iter_mut().for_each(Grid::clear);
        self.bounds.iter_mut().for_each(Sparse::clear);
    }

    fn set(
        &mut self,
        kernel: Kernel,
        (side, part): (Side, Part),
        order: (Order, &ByteTables),
        keys: Keys<'_>,
        (rounds, scratch, sorting): (usize, &mut Scratch, &mut Sorting),
        progress: OnProgress<'_>,
    ) -> ControlFlow<()> {
        let (grid, bound) = (
            &mut self.grids[side as usize],
            &mut self.bounds[side as usize],
        );
        match (part, keys) {
            (Part::Inner, Keys::List(keys)) => {
                let to = Sorted::Grid(grid, scratch);
                dispatch(kernel, Fill { to, order, keys });
            }
            (Part::Inner, Keys::Made(maker)) => {
                let list = (maker, rounds);
                return grid.fill_made(kernel, order, list, sorting, &mut |_| progress(0.0));
            }
            (Part::Bound, Keys::List(keys)) => {
                let to = Sorted::Sparse(bound);
                dispatch(kernel, Fill { to, order, keys });
            }
            (Part::Bound, Keys::Made(maker)) => {
                let mut keys = Vec::with_capacity(maker.keys());
                (0..maker.groups()).for_each(|group| maker.make(group, &mut keys));
                let (to, keys) = (Sorted::Sparse(bound), &keys);
                dispatch(kernel, Fill { to, order, keys });
            }
        }
        ControlFlow::Continue(())
    }

    fn join(
        &mut self,
        kernel: Kernel,
        parts: (Part, Part),
        layout: Layout,
        (limits, pairs_of_one): (Limits, usize),
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError> {
        // As many members as lists of these lengths are worth.
        let crew = |members: usize, top: usize, bottom: usize| {
            let is_short = top.saturating_mul(bottom) <= pairs_of_one;
            if is_short { 1 } else { members }
        };
        let ([top, bottom], [few_tops, few_bottoms]) = (&self.grids, &self.bounds);
        let members = &mut self.members[..];
        let (side, few, many) = match parts {
            (Part::Inner, Part::Inner) if top.is_empty() || bottom.is_empty() => {
                return nothing(progress);
            }
            (Part::Inner, Part::Inner) => {
                let walk = Walk::new((layout, limits), top, bottom);
                let steps = walk.steps() as f64;
                let crew = crew(members.len(), top.len(), bottom.len());
                let on_done = &mut |done: u64| progress(done as f64 / steps);
                let results = crew::run(&mut members[..crew], on_done, |member, tell| {
                    let Member {
                        gathered, tables, ..
                    } = member;
                    let walk = &walk;
                    dispatch(
                        kernel,
                        WalkTiles {
                            walk,
                            gathered,
                            tables,
                            tell,
                        },
                    )
                });
                return sum(results);
            }
            (Part::Bound, Part::Bound) => {
                let (top, bottom) = (few_tops, few_bottoms);
                let join = SparsePairs {
                    top,
                    bottom,
                    progress,
                };
                return dispatch(kernel, join);
            }
            (Part::Bound, Part::Inner) => (Side::Top, few_tops, bottom),
            (Part::Inner, Part::Bound) => (Side::Bottom, few_bottoms, top),
        };
        if few.is_empty() || many.is_empty() {
            return nothing(progress);
        }
        let join = SparseJoin::new((layout, side), few, many);
        let steps = f64::from(join.steps());
        let crew = crew(members.len(), few.len(), many.len());
        let on_done = &mut |done: u64| progress(done as f64 / steps);
        let results = crew::run(&mut members[..crew], on_done, |member, tell| {
            let Member {
                candidates: gathered,
                tables,
                ..
            } = member;
            let join = &join;
            dispatch(
                kernel,
                SparseRows {
                    join,
                    gathered,
                    tables,
                    tell,
                },
            )
        });
        sum(results)
    }
}

/// No pairs at all.
fn nothing(progress: OnProgress<'_>) -> Result<u64, CountError> {
    match progress(1.0) {
        ControlFlow::Continue(()) => Ok(0),
        ControlFlow::Break(()) => Err(CountError::Cancelled),
    }
}

fn sum(results: ControlFlow<(), Vec<Result<u64, CountError>>>) -> Result<u64, CountError> {
    let ControlFlow::Continue(results) = results else {
        return Err(CountError::Cancelled);
    };
    results.into_iter().try_fold(0_u64, |sum, part| {
        sum.checked_add(part?).ok_or(CountError::Overflow)
    })
}

/// Work whose inner loops are written for any instruction set.
trait Work {
    type Result;

    /// Does it; reached only where the instruction set of `L` is there.
    fn run<L: Lanes>(self) -> Self::Result;
}

fn dispatch<W: Work>(kernel: Kernel, work: W) -> W::Result {
    match kernel.name() {
        KernelName::Scalar => work.run::<scalar::Words>(),
        // SAFETY: a `Kernel` exists only after its features were seen on this CPU.
        #[cfg(target_arch = "x86_64")]
        KernelName::Avx2 => unsafe { on_avx2(work) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        KernelName::Avx512 => unsafe { on_avx512(work) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        KernelName::Neon => unsafe { on_neon(work) },
        #[cfg(target_arch = "x86_64")]
        KernelName::Neon => unreachable!("no kernel of another architecture exists"),
        #[cfg(target_arch = "aarch64")]
        KernelName::Avx2 | KernelName::Avx512 => {
            unreachable!("no kernel of another architecture exists")
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        KernelName::Avx2 | KernelName::Avx512 | KernelName::Neon => {
            unreachable!("no kernel of another architecture exists")
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
#[inline(never)]
fn on_avx2<W: Work>(work: W) -> W::Result {
    work.run::<avx2::Avx2>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
#[inline(never)]
fn on_avx512<W: Work>(work: W) -> W::Result {
    work.run::<avx512::Avx512>()
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
#[inline(never)]
fn on_neon<W: Work>(work: W) -> W::Result {
    work.run::<neon::Neon>()
}

/// Taking the keys of a list apart.
struct Fill<'a, W> {
    to: Sorted<'a, W>,
    order: (Order, &'a ByteTables),
    keys: &'a [u64],
}

/// Where the keys go.
enum Sorted<'a, W> {
    Grid(&'a mut Grid<W>, &'a mut Scratch),
    Sparse(&'a mut Sparse<W>),
}

impl<W: Rest> Work for Fill<'_, W> {
    type Result = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        match self.to {
            Sorted::Grid(grid, scratch) => grid.fill::<L>(self.order, self.keys, scratch),
            Sorted::Sparse(list) => list.fill::<L>(self.order, self.keys),
        }
    }
}
