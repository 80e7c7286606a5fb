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
mod gather;
mod grid;
mod lanes;
mod layout;
mod leaf;
mod planes;
mod rotate;
mod scalar;
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
    choose::Chooser,
    gather::{Buffer, SLACK},
    grid::{Grid, Rest},
    lanes::Lanes,
    layout::{ByteTables, Layout, Order, Side},
    leaf::Tables,
    sort::Scratch,
    sparse::{Sparse, SparseJoin, SparsePairs},
    walk::{Gathered, Join},
};
use crate::{
    count::CountError,
    kernel::{Kernel, KernelName},
};

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

/// Joins lists of keys on one thread; keeps its buffers from one join to the next.
#[derive(Debug)]
pub struct HJoin {
    kernel: Kernel,
    key_bits: u32,
    /// From where on leaves are banded.
    limits: Limits,
    layout: Layout,
    chooser: Chooser,
    /// The layouts chosen for short lists, by about how long these are, and how many joins each served.
    chosen: HashMap<[u32; 2], (Layout, u32)>,
    /// For rests of up to 32 bits.
    short: Buffers<u32>,
    /// For longer rests: keys of many bits in short lists.
    long: Buffers<u64>,
    tables: Tables,
    scratch: Scratch,
    /// For kernels without an instruction that takes keys apart: of the top and the bottom list.
    apart: [ByteTables; 2],
}

#[derive(Debug, Default)]
struct Buffers<W> {
    /// The inner parts, by side.
    grids: [Grid<W>; 2],
    /// The parts on a bound, by side.
    bounds: [Sparse<W>; 2],
    gathered: Box<Gathered<W>>,
    candidates: [Buffer<W>; 2],
}

/// The most keys of a list that are joined at a time: offsets are 32 bits.
const MOST_KEYS: usize = 1 << 31;

impl HJoin {
    /// The most bits of a key.
    pub const MOST_BITS: u32 = 62;

    /// A join of keys with `key_bits` bits, at most [`Self::MOST_BITS`]; bit 0 is the one that is
    /// set in both lists most often, and so on downwards.
    pub fn new(kernel: Kernel, key_bits: u32) -> Self {
        assert!(key_bits <= Self::MOST_BITS, "keys of {key_bits} bits");
        Self {
            kernel,
            key_bits,
            limits: Limits::MEASURED,
            // What empty byte tables are of.
            layout: Layout::undivided(0),
            chooser: Chooser::default(),
            chosen: HashMap::new(),
            short: Buffers::default(),
            long: Buffers::default(),
            tables: Tables::new(),
            scratch: Scratch::default(),
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
        self.start(any(top) & any(bottom), top, bottom);
        let pairs = top.len() as f64 * bottom.len() as f64;
        let mut total = 0_u64;
        for top in top.chunks(MOST_KEYS) {
            self.set_top(Part::Inner, top);
            for bottom in bottom.chunks(MOST_KEYS) {
                self.set_bottom(Part::Inner, bottom);
                let share = top.len() as f64 * bottom.len() as f64 / pairs;
                let count =
                    self.join(Part::Inner, Part::Inner, &mut |done| progress(share * done))?;
                total = total.checked_add(count).ok_or(CountError::Overflow)?;
            }
        }
        Ok(total)
    }

    /// Empties all parts and chooses the grids for lists like these: the lists themselves, or a
    /// piece of each of the lengths that are going to be joined at a time. Only `contested` bits may
    /// be set in both a key of one half and one of the other.
    pub fn start(&mut self, contested: u64, top: &[u64], bottom: &[u64]) {
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
    fn layout_for(&mut self, contested: u64, top: &[u64], bottom: &[u64]) -> Layout {
        let lengths = [about(top.len()), about(bottom.len())];
        if let Some((chosen, uses)) = self.chosen.get_mut(&lengths) {
            let layout = chosen.with_rest_of(contested);
            if *uses < MOST_USES && layout.rest_bits() <= 32 {
                *uses += 1;
                return layout;
            }
        }
        let layout = self.chooser.choose(contested, top, bottom, self.limits);
        if top.len() + bottom.len() < SHORT {
            self.chosen.insert(lengths, (layout, 1));
        }
        layout
    }

    /// Replaces one part of the top half's keys: at most 2^31 of them.
    pub fn set_top(&mut self, part: Part, keys: &[u64]) {
        self.set(Side::Top, part, keys);
    }

    /// Replaces one part of the bottom half's keys: at most 2^31 of them.
    pub fn set_bottom(&mut self, part: Part, keys: &[u64]) {
        self.set(Side::Bottom, part, keys);
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
        let (kernel, tables) = (self.kernel, &mut self.tables);
        let layout = (self.layout, self.limits);
        if self.layout.rest_bits() <= 32 {
            self.short.join(kernel, parts, layout, tables, progress)
        } else {
            self.long.join(kernel, parts, layout, tables, progress)
        }
    }

    /// About the most memory, in bytes, that joining lists of these lengths takes beside the lists.
    pub fn memory_bytes(&self, top: usize, bottom: usize) -> u64 {
        let (top, bottom) = (top.min(MOST_KEYS), bottom.min(MOST_KEYS));
        let (longer, both) = (top.max(bottom) as u64, (top + bottom) as u64);
        let rest = if both < 1 << 20 || self.key_bits > 56 {
            8
        } else {
            4
        };
        // The rests, buffers for a quarter of them, sorting, offsets.
        let rests = rest * (both + both / 4 + 4 * SLACK as u64);
        rests + sort::memory_bytes(longer) + 2 * Layout::most_offset_bytes(top, bottom)
    }

    fn set(&mut self, side: Side, part: Part, keys: &[u64]) {
        assert!(keys.len() <= MOST_KEYS, "{} keys in one list", keys.len());
        let order = (self.layout.order(side), &self.apart[side as usize]);
        let scratch = &mut self.scratch;
        if self.layout.rest_bits() <= 32 {
            self.short
                .set(self.kernel, side, part, (order, keys, scratch));
        } else {
            self.long
                .set(self.kernel, side, part, (order, keys, scratch));
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
    fn clear(&mut self) {
        self.grids.iter_mut().for_each(Grid::clear);
        self.bounds.iter_mut().for_each(Sparse::clear);
    }

    fn set(
        &mut self,
        kernel: Kernel,
        side: Side,
        part: Part,
        (order, keys, scratch): ((Order, &ByteTables), &[u64], &mut Scratch),
    ) {
        let to = match part {
            Part::Inner => Sorted::Grid(&mut self.grids[side as usize], scratch),
            Part::Bound => Sorted::Sparse(&mut self.bounds[side as usize]),
        };
        dispatch(kernel, Fill { to, order, keys });
    }

    fn join(
        &mut self,
        kernel: Kernel,
        parts: (Part, Part),
        (layout, limits): (Layout, Limits),
        tables: &mut Tables,
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError> {
        let ([top, bottom], [few_tops, few_bottoms]) = (&self.grids, &self.bounds);
        let (side, few, many) = match parts {
            (Part::Inner, Part::Inner) => {
                let gathered = &mut self.gathered;
                let join = Join {
                    layout,
                    limits,
                    top,
                    bottom,
                    gathered,
                    tables,
                    progress,
                };
                return dispatch(kernel, join);
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
        let join = SparseJoin {
            layout,
            side,
            few,
            many,
            gathered: &mut self.candidates,
            tables,
            progress,
        };
        dispatch(kernel, join)
    }
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
