//! HJoin: counting the disjoint pairs of two lists of keys.
//!
//! Keys are half boards; a pair without a common bit is a whole solution. Both lists are sorted into
//! a grid by their most contested bits, X1 and X2. For every pair of patterns (g1, g2) the
//! candidates are the top keys with X1 = g1 and X2 disjoint from g2, and the bottom keys with
//! X2 = g2 and X1 disjoint from g1: every pair that is disjoint in those bits meets in exactly one
//! leaf, where only the other bits are left to test. The lists of large leaves are sorted by a few of
//! those, X3, so that much is passed over there (`bands`).
//!
//! The mathematics: `docs/method.md`, “Every disjoint pair in exactly one leaf”.

mod grid;
mod join;
mod layout;
mod leaf;
mod pairs;
mod plain;

#[cfg(test)]
mod tests;

use std::{ops::ControlFlow, sync::Arc};

use self::{
    grid::{
        gather::{SLACK, TILE},
        scatter,
        sort::{self, Scratch},
        sorting::Sorting,
    },
    join::{
        parts::{Buffers, JoinLimits, SortMemory, ToJoin},
        walk::Gathered,
    },
    layout::{
        choose::{Chooser, LONG_LISTS},
        keys::{Slices, Typical},
        order::{ByteTables, Dissection},
        roles::{KeyLayout, most_cell_bits},
        x3::Limits,
    },
};
use crate::{
    crew::Crew,
    kernel::{Kernel, KernelName},
    setup::CountError,
};

#[cfg(test)]
pub(crate) use self::leaf::fault;
pub use self::{
    join::{parts::Part, progress::OnProgress},
    layout::{
        keys::{KeyMaker, Keys},
        roles::Side,
    },
    pairs::DisjointPairs,
    plain::PlainJoin,
};

/// Pairs of keys up to which a join is too short for several threads: some milliseconds.
const PAIRS_OF_ONE: usize = 1 << 32;

/// Bits of a pattern beside those of a tile from which on rows have so many cells that narrowing them for
/// several tiles first takes less time.
const LEAST_FAR_BITS: u32 = 4;

/// Bytes for rows that are narrowed for several tiles, where so many of one are narrowed for a tile: none where
/// these are the least.
fn short_bytes(row_bytes: usize) -> usize {
    HJoin::SHORT_ROWS * row_bytes.saturating_sub(HJoin::LEAST_ROW_BYTES)
}

/// Joins lists of keys; keeps its buffers from one join to the next.
#[derive(Debug)]
pub struct HJoin {
    kernel: Kernel,
    limits: JoinLimits,
    row_bytes: usize,
    short_bytes: usize,
    /// [`Self::SHORT_LIST`], or less in tests.
    short_list: usize,
    layout: KeyLayout,
    chooser: Chooser,
    /// For rests of up to 32 bits.
    short: Buffers<u32>,
    /// For longer rests: keys of many bits in short lists.
    long: Buffers<u64>,
    /// Typical keys of lists that are not held.
    typical: [Vec<u64>; 2],
    memory: SortMemory,
    /// For kernels without an instruction that takes keys apart: of the top and the bottom list.
    apart: [ByteTables; 2],
}

/// What a join could do without, at a loss or for more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Large leaves are sorted by X3.
    Bands,
    /// Rests have eight bytes where lists are so short that a grid of few cells is best.
    LongRests,
    /// Long lists are counted and put straight into grids of few cells, instead of being told apart by rows
    /// first.
    FewCells,
    /// Lists of up to [`HJoin::SHORT_LIST`] keys are held and sorted in one go.
    ShortLists,
    /// Long rows are gathered a portion at a time, so that threads take little memory: of use for that alone.
    Portions,
    /// Rows of many cells are narrowed for several tiles at a time first.
    Shortening,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Bands,
        Self::LongRests,
        Self::FewCells,
        Self::ShortLists,
        Self::Portions,
        Self::Shortening,
    ];
}

/// The most keys of a list that are joined at a time: offsets are 32 bits.
const MOST_KEYS: usize = 1 << 31;

impl HJoin {
    /// The most bits of a key.
    pub const MOST_BITS: u32 = 62;

    /// Lists of so many keys are sorted where they are; longer ones need not be held.
    pub const SHORT_LIST: usize = 1 << 18;

    /// Up to so many keys, where one thread makes and sorts them, making a list once and holding it takes less
    /// time than making it anew each time that it is gone through: it stays in a third-level cache.
    pub const MOST_HELD: usize = 1 << 21;

    /// The most rounds to sort a list in: with more, its rests take most of the memory anyway.
    pub const MOST_ROUNDS: usize = 4;

    /// The least bytes of a row that a thread narrows at a time, what it gathers for a tile or a leaf: rows are
    /// narrowed again for each part of what they are joined with, which is little beside leaves that large.
    pub const LEAST_ROW_BYTES: usize = 1 << 17;

    /// The most: no longer parts are worth their while, and these stay in a second-level cache.
    pub const MOST_ROW_BYTES: usize = 1 << 20;

    /// So many rows are narrowed for several tiles at a time, all that a tile has of one grid.
    pub const SHORT_ROWS: usize = TILE;

    /// A join on `threads` threads of keys with `key_bits` bits, at most [`Self::MOST_BITS`]; bit 0 is
    /// the one that is set in both lists most often, and so on downwards.
    pub fn new(kernel: Kernel, key_bits: u32, threads: usize) -> Self {
        Self::by(Arc::new(Crew::new(threads)), kernel, key_bits)
    }

    /// The same by a crew that does other work as well.
    pub(crate) fn by(crew: Arc<Crew>, kernel: Kernel, key_bits: u32) -> Self {
        assert!(key_bits <= Self::MOST_BITS, "keys of {key_bits} bits");
        Self {
            kernel,
            limits: JoinLimits {
                bands: Limits::MEASURED,
                pairs_of_one: PAIRS_OF_ONE,
                least_far_bits: LEAST_FAR_BITS,
            },
            row_bytes: Self::MOST_ROW_BYTES,
            short_bytes: short_bytes(Self::MOST_ROW_BYTES),
            short_list: Self::SHORT_LIST,
            // What empty byte tables are of.
            layout: KeyLayout::undivided(0),
            chooser: Chooser::new(kernel),
            short: Buffers::new(kernel, crew.clone()),
            long: Buffers::new(kernel, crew.clone()),
            typical: Default::default(),
            memory: SortMemory {
                rounds: 1,
                scratch: Scratch::default(),
                sorting: Sorting::new(crew),
            },
            apart: Default::default(),
        }
    }

    /// The same join without a mechanism: nothing else changes, so that a benchmark can tell what it gains.
    #[must_use]
    pub fn without(mut self, mechanism: Mechanism) -> Self {
        match mechanism {
            Mechanism::Bands => self.limits.bands.join = usize::MAX,
            Mechanism::LongRests => self.chooser.leave_no_long_rests(),
            Mechanism::FewCells => self.memory.sorting.always_by_rows(),
            Mechanism::ShortLists => self.short_list = 0,
            Mechanism::Portions => self.row_bytes = usize::MAX,
            Mechanism::Shortening => self.short_bytes = 0,
        }
        self
    }

    /// The number of pairs (u in `top`, v in `bottom`) with `u & v == 0`.
    ///
    /// ```
    /// use std::{ops::ControlFlow, sync::Arc};
    ///
    /// use common::{frames::hjoin::HJoin, kernel::Kernel};
    ///
    /// let mut join = HJoin::new(Kernel::best(), 3, 1);
    /// let go_on = &mut |_| ControlFlow::Continue(());
    /// let pairs = join.count(&[0b001, 0b110], &[0b010, 0b100, 0b001], go_on)?;
    /// assert_eq!(pairs, 3);
    /// # Ok::<(), common::count::CountError>(())
    /// ```
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

    /// Sorts lists that are not held in so many rounds from now on, at most [`Self::MOST_ROUNDS`]: while
    /// they are sorted, they take so many times less memory, and are made so many times.
    pub fn set_rounds(&mut self, rounds: usize) {
        assert!((1..=Self::MOST_ROUNDS).contains(&rounds), "{rounds} rounds");
        self.memory.rounds = rounds;
    }

    /// Lets every thread narrow so many bytes of a row at a time from now on, [`Self::MOST_ROW_BYTES`] to begin
    /// with: it takes eight times as much memory for what it gathers, and 16 times what is beyond the least.
    pub fn set_row_bytes(&mut self, row_bytes: usize) {
        self.row_bytes = row_bytes.clamp(Self::LEAST_ROW_BYTES, Self::MOST_ROW_BYTES);
        self.short_bytes = short_bytes(self.row_bytes);
    }

    /// As if all lists were long: shared by a crew, made as they are sorted, gathered in parts, with banded
    /// leaves of so many bits of X3, 1 to 3, and sorted by rows first if these are odd.
    pub(super) fn lower_limits(&mut self, x3_bits: usize) {
        (self.short_list, self.limits.pairs_of_one) = (0, 0);
        self.row_bytes = 200 << x3_bits;
        self.limits.least_far_bits = 1;
        if x3_bits % 2 == 1 {
            self.memory.sorting.always_by_rows();
        }
        self.limits.bands = Limits {
            join: 0,
            tile: [0, 1, 2].map(|bit| if bit < x3_bits { 0 } else { usize::MAX }),
        };
    }

    /// Short joins, too, on all threads.
    #[cfg(test)]
    pub(super) fn share_short_joins(&mut self) {
        self.limits.pairs_of_one = 0;
    }

    /// About the most memory, in bytes, that joining two lists of so many keys takes beside the lists, and
    /// where they are not held, in all, when they are sorted in so many rounds and rows are narrowed
    /// [`Self::LEAST_ROW_BYTES`] at a time.
    pub fn memory_bytes(
        key_bits: u32,
        threads: usize,
        longer: usize,
        shorter: usize,
        rounds: usize,
    ) -> u64 {
        let [keys, shorter] = [longer, shorter].map(|keys| keys.min(MOST_KEYS));
        let (longer, both) = (keys as u64, (keys + shorter) as u64);
        let threads = threads as u64;
        let cell_bits = most_cell_bits(keys, shorter);
        let rest = if cell_bits < LONG_LISTS || key_bits as usize > 32 + cell_bits {
            8
        } else {
            4
        };
        let rows = 1 << cell_bits.div_ceil(2);
        // The longest row may be some times as long as others.
        let row = 4 * longer / rows;
        let sorting = if longer > Self::SHORT_LIST as u64 {
            scatter::memory_bytes(longer, rows, threads, rounds as u64)
                + threads * (row / 4 + 8 * rows)
        } else {
            sort::memory_bytes(1 << cell_bits)
        };
        let gathered = if rest == 8 {
            Gathered::<u64>::most_bytes(keys.min(Self::LEAST_ROW_BYTES / 8))
        } else {
            Gathered::<u32>::most_bytes(keys.min(Self::LEAST_ROW_BYTES / 4))
        };
        let rests = rest * (both + 4 * SLACK as u64);
        rests + sorting + threads * gathered + 2 * KeyLayout::most_offset_bytes(keys, shorter)
    }
}

impl DisjointPairs for HJoin {
    fn start(&mut self, contested: u64, top: Keys<'_>, bottom: Keys<'_>) {
        self.short.clear();
        self.long.clear();
        let [above, below] = &mut self.typical;
        let (top, bottom) = (Typical::new(top, above), Typical::new(bottom, below));
        let layout = self
            .chooser
            .choose(contested, top, bottom, self.limits.bands);
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

    fn set(
        &mut self,
        side: Side,
        part: Part,
        keys: Keys<'_>,
        progress: OnProgress<'_>,
    ) -> Result<(), CountError> {
        let number = keys.number();
        assert!(number <= MOST_KEYS, "{number} keys in one list");
        let dissection = Dissection {
            order: self.layout.order(side),
            tables: &self.apart[side as usize],
        };
        let memory = &mut self.memory;
        let set = if self.layout.rest_bits() <= 32 {
            self.short
                .set(side, part, dissection, keys, memory, progress)
        } else {
            self.long
                .set(side, part, dissection, keys, memory, progress)
        };
        match set {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CountError::Cancelled),
        }
    }

    fn join(
        &mut self,
        top: Part,
        bottom: Part,
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError> {
        let join = ToJoin {
            parts: (top, bottom),
            layout: self.layout,
            limits: self.limits,
            row_bytes: self.row_bytes,
            short_bytes: self.short_bytes,
        };
        if self.layout.rest_bits() <= 32 {
            self.short.join(join, progress)
        } else {
            self.long.join(join, progress)
        }
    }
}
