//! Join: counting the disjoint pairs of two lists of keys.
//!
//! Both lists are sorted into a grid by the shared bits that rule out most pairs, X1 and X2. For
//! every pair of patterns (g1, g2), a **leaf** matches the top keys with X1 = g1 and X2 disjoint
//! from g2 with the bottom keys with X2 = g2 and X1 disjoint from g1. So every pair disjoint in
//! X1 and X2 meets in exactly one leaf, where only the other bits are tested. The lists of large
//! leaves are also sorted by a few other bits, X3, so that whole blocks are skipped (`bands`).
//!
//! Method `frames` uses this with half boards as keys: a pair without a common bit is a solution.
//! Short lists are held; long ones are made whenever they are needed. With little memory, a list is sorted
//! in up to four rounds, each of which makes all keys and keeps some rows.
//!
//! The mathematics: `docs/method.md`, “Every disjoint pair in exactly one leaf”.

mod grid;
mod interface;
mod layout;
mod leaf;
mod parts;
mod sparse;
mod walk;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::{
    grid::{
        gather::{SLACK, TILE},
        scatter,
        sort::{self, Scratch},
        sorting::Sorting,
    },
    interface::{KeySample, Slices},
    layout::{
        BandLimits, ByteTables, JoinLimits, KeyLayout, KeySplit,
        choose::{Chooser, LONG_LISTS},
        extracts, max_cell_bits,
    },
    parts::{Buffers, SortMemory},
    walk::Gathered,
};
use crate::compute::{
    crew::Crew,
    kernel::Kernel,
    setup::{CountError, go_on},
};

#[cfg(test)]
pub(crate) use self::leaf::fault;
pub use self::{
    interface::{Accelerator, DisjointPairs, KeyMaker, Keys, OnProgress, Part, PlainJoin, Side},
    layout::choose::GridBits,
};

/// Maximum pairs that a single thread joins: a few milliseconds.
const MAX_PAIRS_ALONE: u64 = 1 << 32;

/// Returns the number of pairs of two lists, which may exceed a 32-bit `usize`.
pub(crate) const fn pairs_of(one: usize, other: usize) -> u64 {
    (one as u64).saturating_mul(other as u64)
}

/// Returns the bytes for prefiltered rows: 0 if row buffers have the minimum size.
fn prefilter_bytes(row_bytes: usize) -> usize {
    HJoin::PREFILTERED_ROWS * row_bytes.saturating_sub(HJoin::MIN_ROW_BYTES)
}

/// Join of two lists of keys; keeps its buffers between joins.
#[derive(Debug)]
pub struct HJoin {
    kernel: Kernel,
    limits: JoinLimits,
    /// [`Self::SHORT_LIST`], or 0 in tests.
    short_list: usize,
    layout: KeyLayout,
    chooser: Chooser,
    /// Lists with residual keys of up to 32 bits.
    short: Buffers<u32>,
    /// Short lists with longer residual keys.
    long: Buffers<u64>,
    /// Samples of lists that are not held.
    samples: [Vec<u64>; 2],
    memory: SortMemory,
    /// Tables of the top and the bottom list, for CPUs without an extract instruction.
    byte_tables: [ByteTables; 2],
}

/// An optimization that a benchmark can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimization {
    /// Large leaves sorted by X3.
    Bands,
    /// Residual keys of eight bytes for short lists, so that few cells suffice.
    LongResiduals,
    /// Long lists sorted directly into grids of few cells, not by rows first.
    FewCells,
    /// Lists of up to [`HJoin::SHORT_LIST`] keys held and sorted once.
    ShortLists,
    /// Long rows gathered in portions, which only bounds the memory per thread.
    Portions,
    /// Rows of many cells prefiltered for several tiles.
    Prefiltering,
}

impl Optimization {
    pub const ALL: [Self; 6] = [
        Self::Bands,
        Self::LongResiduals,
        Self::FewCells,
        Self::ShortLists,
        Self::Portions,
        Self::Prefiltering,
    ];
}

/// Maximum keys joined at a time: offsets have 32 bits.
const MAX_KEYS: usize = 1 << 31;

impl HJoin {
    /// Maximum bits of a key.
    pub const MAX_BITS: u32 = 62;

    /// Maximum length of lists that are always held; longer ones may be made on demand.
    pub const SHORT_LIST: usize = 1 << 18;

    /// Maximum length of held lists for a single thread with ample memory.
    ///
    /// Up to this length, holding a list is faster than making it repeatedly, because it stays in
    /// the third-level cache.
    pub const MAX_HELD: usize = 1 << 21;

    /// Maximum rounds for sorting a list; more would hardly save memory.
    pub const MAX_ROUNDS: usize = 4;

    /// Minimum bytes of a row that a thread filters at a time.
    ///
    /// Rows are filtered again for each part of the other side, which takes little time if leaves
    /// are this large.
    pub const MIN_ROW_BYTES: usize = 1 << 17;

    /// Maximum bytes of a row that a thread filters at a time.
    ///
    /// These stay in the second-level cache; longer parts gain nothing.
    pub const MAX_ROW_BYTES: usize = 1 << 20;

    /// Rows that are prefiltered together: all rows of a tile in one grid.
    pub const PREFILTERED_ROWS: usize = TILE;

    /// Creates a join on `threads` threads for keys of `key_bits` bits.
    ///
    /// There are at most [`Self::MAX_BITS`] bits, ordered by how often they are set in both lists,
    /// bit 0 most often; another order only costs time.
    pub fn new(kernel: Kernel, key_bits: u32, threads: usize) -> Self {
        Self::with_crew(Arc::new(Crew::new(threads)), kernel, key_bits)
    }

    /// Creates a join that uses this crew.
    pub(crate) fn with_crew(crew: Arc<Crew>, kernel: Kernel, key_bits: u32) -> Self {
        assert!(key_bits <= Self::MAX_BITS, "keys of {key_bits} bits");
        Self {
            kernel,
            limits: JoinLimits {
                bands: BandLimits::MEASURED,
                max_pairs_alone: MAX_PAIRS_ALONE,
                row_bytes: Self::MAX_ROW_BYTES,
                prefilter_bytes: prefilter_bytes(Self::MAX_ROW_BYTES),
                min_far_bits: 4,
                min_stretches: 32,
            },
            short_list: Self::SHORT_LIST,
            // Matches the empty byte tables.
            layout: KeyLayout::undivided(0),
            chooser: Chooser::new(kernel),
            short: Buffers::new(kernel, crew.clone()),
            long: Buffers::new(kernel, crew.clone()),
            samples: Default::default(),
            memory: SortMemory {
                rounds: 1,
                scratch: Scratch::default(),
                sorting: Sorting::new(crew),
            },
            byte_tables: Default::default(),
        }
    }

    /// Returns this join without an optimization, to measure its gain.
    #[must_use]
    pub fn without(mut self, optimization: Optimization) -> Self {
        match optimization {
            Optimization::Bands => self.limits.bands.join = u64::MAX,
            Optimization::LongResiduals => self.chooser.avoid_long_residuals(),
            Optimization::FewCells => self.memory.sorting.always_by_rows(),
            Optimization::ShortLists => self.short_list = 0,
            Optimization::Portions => self.limits.row_bytes = usize::MAX,
            Optimization::Prefiltering => self.limits.prefilter_bytes = 0,
        }
        self
    }

    /// Returns the number of pairs (u in `top`, v in `bottom`) with `u & v == 0`.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use common::{join::HJoin, compute::kernel::Kernel};
    ///
    /// let mut join = HJoin::new(Kernel::best(), 3, 1);
    /// let go_on = &mut |_| ControlFlow::Continue(());
    /// let pairs = join.count(&[0b001, 0b110], &[0b010, 0b100, 0b001], go_on)?;
    /// assert_eq!(pairs, 3);
    /// # Ok::<(), common::count::CountError>(())
    /// ```
    ///
    /// # Errors
    /// `Cancelled` if `progress` returns `Break`, `Overflow` if the number exceeds 64 bits.
    ///
    /// # Panics
    /// If a list has more than 2^31 keys.
    pub fn count(
        &mut self,
        top: &[u64],
        bottom: &[u64],
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError> {
        let or_all = |keys: &[u64]| keys.iter().fold(0, |or, key| or | key);
        let shared_bits = or_all(top) & or_all(bottom);
        self.start(shared_bits, Keys::List(top), Keys::List(bottom));
        for (side, keys) in [(Side::Top, top), (Side::Bottom, bottom)] {
            let slices = Slices(keys);
            let is_short = keys.len() <= self.short_list;
            let keys = if is_short { Keys::List(keys) } else { Keys::Made(&slices) };
            self.set(side, Part::Inner, keys, progress)?;
        }
        self.join(Part::Inner, Part::Inner, progress)
    }

    /// Sets the rounds that sort a list that is not held: 1 to [`Self::MAX_ROUNDS`].
    ///
    /// This divides the memory for sorting by `rounds`, and makes the list that many times.
    pub fn set_rounds(&mut self, rounds: usize) {
        assert!((1..=Self::MAX_ROUNDS).contains(&rounds), "{rounds} rounds");
        self.memory.rounds = rounds;
    }

    /// Sets the bytes of a row that each thread filters at a time.
    ///
    /// The default is [`Self::MAX_ROW_BYTES`]. A thread uses eight times as much, and in addition
    /// 16 times the excess over the minimum.
    pub fn set_row_bytes(&mut self, row_bytes: usize) {
        self.limits.row_bytes = row_bytes.clamp(Self::MIN_ROW_BYTES, Self::MAX_ROW_BYTES);
        self.limits.prefilter_bytes = prefilter_bytes(self.limits.row_bytes);
    }

    /// Treats all lists as long, so that small tests run every optimization.
    ///
    /// A crew shares the lists; it makes their keys while sorting, prefilters rows, gathers portions,
    /// uses `x3_bits` (1 to 3) bits of X3, and sorts by rows first if `x3_bits` is odd.
    pub(super) fn lower_limits(&mut self, x3_bits: usize) {
        self.short_list = 0;
        if x3_bits % 2 == 1 {
            self.memory.sorting.always_by_rows();
        }
        self.limits = JoinLimits {
            bands: BandLimits {
                join: 0,
                tile: [0, 1, 2].map(|bit| if bit < x3_bits { 0 } else { u64::MAX }),
            },
            max_pairs_alone: 0,
            row_bytes: 200 << x3_bits,
            prefilter_bytes: self.limits.prefilter_bytes,
            min_far_bits: 1,
            min_stretches: 0,
        };
    }

    /// Estimates the bytes for joining two lists of these lengths.
    ///
    /// Held lists are not included. Rows are filtered [`Self::MIN_ROW_BYTES`] at a time.
    pub fn memory_bytes(
        key_bits: u32,
        threads: usize,
        longer: usize,
        shorter: usize,
        rounds: usize,
    ) -> u64 {
        let [keys, shorter] = [longer, shorter].map(|keys| keys.min(MAX_KEYS));
        let (longer, both) = (keys as u64, keys as u64 + shorter as u64);
        let threads = threads as u64;
        let cell_bits = max_cell_bits(keys, shorter);
        let residual_bytes =
            if cell_bits < LONG_LISTS || key_bits as usize > 32 + cell_bits { 8 } else { 4 };
        let rows = 1 << cell_bits.div_ceil(2);
        // The longest row may be a few times as long as others.
        let row = 4 * longer / rows;
        let sorting = if longer > Self::SHORT_LIST as u64 {
            scatter::memory_bytes(longer, rows, threads, rounds as u64)
                + threads * (row / 4 + 8 * rows)
        } else {
            sort::memory_bytes(1 << cell_bits)
        };
        let gathered = if residual_bytes == 8 {
            Gathered::<u64>::max_bytes(keys.min(Self::MIN_ROW_BYTES / 8))
        } else {
            Gathered::<u32>::max_bytes(keys.min(Self::MIN_ROW_BYTES / 4))
        };
        let residuals = residual_bytes * (both + 4 * SLACK as u64);
        residuals + sorting + threads * gathered + (8 << cell_bits)
    }
}

impl DisjointPairs for HJoin {
    fn start(&mut self, shared_bits: u64, top: Keys<'_>, bottom: Keys<'_>) {
        self.short.clear();
        self.long.clear();
        let [above, below] = &mut self.samples;
        let (top, bottom) = (KeySample::new(top, above), KeySample::new(bottom, below));
        let layout = self.chooser.layout(shared_bits, top, bottom, self.limits.bands);
        if layout == self.layout {
            return;
        }
        self.layout = layout;
        if !extracts(self.kernel) {
            self.byte_tables[Side::Top as usize].set(self.layout.order(Side::Top));
            self.byte_tables[Side::Bottom as usize].set(self.layout.order(Side::Bottom));
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
        assert!(number <= MAX_KEYS, "{number} keys in one list");
        let tables = &self.byte_tables[side as usize];
        let key_split = KeySplit::new(self.kernel, self.layout.order(side), tables);
        let memory = &mut self.memory;
        let set = if self.layout.residual_bits() <= 32 {
            self.short.set(side, part, key_split, keys, memory, progress)
        } else {
            self.long.set(side, part, key_split, keys, memory, progress)
        };
        go_on(set)
    }

    fn join(
        &mut self,
        top: Part,
        bottom: Part,
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError> {
        let (parts, layout, limits) = ((top, bottom), self.layout, &self.limits);
        if layout.residual_bits() <= 32 {
            self.short.join(parts, layout, limits, progress)
        } else {
            self.long.join(parts, layout, limits, progress)
        }
    }
}
