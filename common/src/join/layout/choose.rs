//! Choice of the bits for cells and X3, for two lists of keys.
//!
//! The value of a bit is the number of pairs it rules out among those that earlier bits leave. How
//! often the bit is set does not determine this: keys have similar numbers of ones, so pairs that
//! pass some bits have their ones elsewhere. The choice therefore uses a sample of pairs.

use std::{cmp::Reverse, collections::HashMap};

use super::{BandLimits, Groups, KeyLayout, MAX_ROW_BITS, X3, max_cell_bits};
use crate::{
    compute::kernel::Kernel,
    join::{
        interface::{KeySample, Keys},
        pairs_of,
    },
    simd::{PAIRS_SLACK, Pairs, Set, Work, dispatch},
};

/// Chooser of layouts; keeps its buffers between choices.
#[derive(Debug)]
pub(crate) struct Chooser {
    kernel: Kernel,
    pairs: PairSample,
    above: Copies,
    below: Copies,
    /// [`LONG_LISTS`], or 0 to measure the gain of long residual keys.
    long_lists: usize,
    /// Layouts of short lists, by class of lengths.
    cached: HashMap<[u32; 2], CachedLayout>,
}

/// A layout, and the number of keys it may still serve.
#[derive(Clone, Copy, Debug)]
struct CachedLayout {
    layout: KeyLayout,
    keys: usize,
}

impl Chooser {
    pub(crate) fn new(kernel: Kernel) -> Self {
        Self {
            kernel,
            pairs: PairSample::default(),
            above: Copies::default(),
            below: Copies::default(),
            long_lists: LONG_LISTS,
            cached: HashMap::new(),
        }
    }

    /// Uses residual keys of four bytes for short lists too, if there are enough bits.
    pub(crate) fn avoid_long_residuals(&mut self) {
        self.long_lists = 0;
    }

    /// Returns the last layout for lists of similar lengths, or chooses a new one.
    ///
    /// A layout serves a limited number of keys, so that choosing takes a small part of the time.
    pub(crate) fn layout(
        &mut self,
        shared_bits: u64,
        top: KeySample<'_>,
        bottom: KeySample<'_>,
        limits: BandLimits,
    ) -> KeyLayout {
        let keys = top.total + bottom.total;
        let lengths = [length_class(top.total), length_class(bottom.total)];
        if let Some(cached) = self.cached.get_mut(&lengths).filter(|cached| cached.keys >= keys) {
            let layout = cached.layout.with_shared_bits(shared_bits);
            if layout.residual_bits() <= 32
                && layout.cell_bits() <= max_cell_bits(top.total, bottom.total)
            {
                cached.keys -= keys;
                return layout;
            }
        }
        let layout = self.choose(shared_bits, top, bottom, limits);
        if keys < KEYS_PER_CHOICE {
            self.cached.insert(lengths, CachedLayout { layout, keys: KEYS_PER_CHOICE - keys });
        }
        layout
    }

    /// Returns the layout with the least predicted time for lists like these samples.
    ///
    /// Bits are added to the grid in the order of the pairs they rule out. The cost model decides between
    /// X1 and X2, so that lists of different lengths get leaves of similar lengths.
    fn choose(
        &mut self,
        shared_bits: u64,
        top: KeySample<'_>,
        bottom: KeySample<'_>,
        limits: BandLimits,
    ) -> KeyLayout {
        let Self { kernel, pairs, above, below, long_lists, .. } = self;
        pairs.start(shared_bits, top, bottom);
        above.start(top);
        below.start(bottom);
        let mut layout = KeyLayout::undivided(shared_bits);
        let mut join = Estimate::undivided(top.total, bottom.total);
        let (mut best, mut least) = (layout, join.cycles(layout));
        // Residual keys of long lists have four bytes if there are enough bits.
        let most = max_cell_bits(top.total, bottom.total);
        let four_bytes = most >= *long_lists && shared_bits.count_ones() as usize <= 32 + most;
        let too_long = |layout: KeyLayout| layout.residual_bits() > 32 && four_bytes;
        for at in 0..most {
            let unchosen = too_long(best).then(|| (1 << layout.residual().trailing_zeros(), 0.0));
            let Some((bit, ruled_out)) = pairs.bit(*kernel, at).or(unchosen) else {
                break;
            };
            let by_x1 = join.split(1.0, below.growth(bit), ruled_out);
            let by_x2 = join.split(above.growth(bit), 1.0, ruled_out);
            let with_x1 = KeyLayout { x1: layout.x1 | bit, ..layout };
            let with_x2 = KeyLayout { x2: layout.x2 | bit, ..layout };
            let x1_is_better = by_x1.cycles(with_x1) <= by_x2.cycles(with_x2);
            let has_room = |bits: u32| bits < MAX_ROW_BITS;
            (layout, join) = match (has_room(layout.x1_bits()), has_room(layout.x2_bits())) {
                (true, x2_has_room) if x1_is_better || !x2_has_room => {
                    below.grow(bit);
                    (with_x1, by_x1)
                }
                (_, true) => {
                    above.grow(bit);
                    (with_x2, by_x2)
                }
                _ => break,
            };
            let cycles = join.cycles(layout);
            if cycles < least || too_long(best) {
                (best, least) = (layout, cycles);
            } else if layout.residual_bits() <= 32 && cycles > GIVE_UP_FACTOR * least {
                break;
            }
        }
        if best.residual_bits() <= 32 && pairs_of(top.total, bottom.total) >= limits.join {
            let bits = (best.cell_bits()..).map_while(|at| pairs.bit(*kernel, at));
            return KeyLayout { x3: X3::new(bits.map(|(bit, _)| bit)), ..best };
        }
        best
    }
}

/// Bits for a grid with a given number of cells, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridBits {
    pub x1: Vec<u32>,
    pub x2: Vec<u32>,
    /// The other shared bits; the first ones rule out most pairs.
    pub others: Vec<u32>,
}

impl GridBits {
    /// Maximum bits of X1 or X2.
    pub const MAX_ROW_BITS: usize = MAX_ROW_BITS as usize;

    /// Chooses `cell_bits` bits of X1 and X2 for two lists, and puts the next `first` ones first.
    ///
    /// The next bit is one of X1 or X2 so that less is gathered.
    pub fn choose(
        shared_bits: u64,
        top: Keys<'_>,
        bottom: Keys<'_>,
        (cell_bits, first): (usize, usize),
    ) -> Self {
        let (mut made, mut made_below) = (Vec::new(), Vec::new());
        let (top, bottom) =
            (KeySample::new(top, &mut made), KeySample::new(bottom, &mut made_below));
        let mut chooser = Chooser::new(Kernel::best());
        let Chooser { kernel, pairs, above, below, .. } = &mut chooser;
        pairs.start(shared_bits, top, bottom);
        above.start(top);
        below.start(bottom);
        let mut bits = Self { x1: Vec::new(), x2: Vec::new(), others: Vec::new() };
        let mut remaining = shared_bits;
        let mut gathered = (top.total as f64, bottom.total as f64);
        for at in 0..cell_bits + first {
            let Some(bit) = pairs.bit(*kernel, at).map(|(bit, _)| bit) else {
                break;
            };
            remaining &= !bit;
            let number = bit.trailing_zeros();
            let (with_x1, with_x2) =
                (gathered.1 * below.growth(bit), gathered.0 * above.growth(bit));
            let has_room = |bits: &[u32]| bits.len() < Self::MAX_ROW_BITS;
            if at >= cell_bits {
                bits.others.push(number);
            } else if has_room(&bits.x1)
                && (gathered.0 + with_x1 <= with_x2 + gathered.1 || !has_room(&bits.x2))
            {
                bits.x1.push(number);
                below.grow(bit);
                gathered.1 = with_x1;
            } else {
                bits.x2.push(number);
                above.grow(bit);
                gathered.0 = with_x2;
            }
        }
        // The sample has no pair left that one of these bits rules out.
        let mut rest = (0..64).filter(|bit| remaining >> bit & 1 == 1);
        while bits.x1.len() + bits.x2.len() < cell_bits {
            let Some(bit) = rest.next() else { break };
            if bits.x1.len() <= bits.x2.len() { bits.x1.push(bit) } else { bits.x2.push(bit) }
        }
        bits.others.extend(rest);
        bits
    }
}

/// Total keys that the layout of short lists serves.
///
/// Choosing one takes about as long as sorting a few thousand keys, and neighboring frames are
/// similar.
const KEYS_PER_CHOICE: usize = 1 << 17;

/// Returns the class of a length: two classes per power of two.
fn length_class(length: usize) -> u32 {
    let bits = length.checked_ilog2().map_or(0, |bits| bits + 1);
    2 * bits + u32::from(bits > 1 && length >> (bits - 2) & 1 == 1)
}

/// Minimum cell bits of long lists, whose residual keys are short to save memory.
///
/// Shorter lists have long residual keys if few pairs are tested, because finer grids would cost
/// more time than they save.
pub(crate) const LONG_LISTS: usize = 21;

/// Factor of the least time that ends the search, unless keys are still too long.
const GIVE_UP_FACTOR: f64 = 1.25;

/// Pairs of keys that no chosen bit rules out, from a sample of both lists.
#[derive(Debug, Default)]
struct PairSample {
    shared_bits: u64,
    top: Vec<u64>,
    /// Repeated, so that every shift against the top sample is available.
    bottom: Vec<u64>,
    /// Chosen bits, and the share each ruled out.
    bits: Vec<(u64, f64)>,
    chosen: u64,
    /// Common bits of each pair.
    common: Vec<u64>,
    /// Temporary buffer.
    spare: Vec<u64>,
    /// Number of pairs that suffices to choose a bit.
    enough: usize,
    /// Number of times the top sample was paired, with a new shift each time.
    paired: usize,
    most_paired: usize,
}

/// Approximate maximum number of keys in the sample of a list.
const MAX_SAMPLES: usize = 1024;
/// Maximum pairs used to choose a bit.
const MAX_PAIRS: usize = 4096;

impl PairSample {
    /// Removes all bits, and samples these lists.
    fn start(&mut self, shared_bits: u64, top: KeySample<'_>, bottom: KeySample<'_>) {
        let keys = top.total + bottom.total;
        sample(top, MAX_SAMPLES, &mut self.top);
        sample(bottom, MAX_SAMPLES, &mut self.bottom);
        let (above, below) = (self.top.len(), self.bottom.len());
        // Lists of a symmetric frame are equal, and a key with itself is not a typical pair.
        self.bottom.rotate_left(below / 2);
        if below > 0 {
            for at in 0..above {
                self.bottom.push(self.bottom[at]);
            }
        }
        self.shared_bits = shared_bits;
        self.bits.clear();
        self.chosen = 0;
        // Choosing takes a small part of the time to sort the lists.
        self.enough = (keys / 256).clamp(256, MAX_PAIRS);
        self.common.clear();
        self.paired = 0;
        self.most_paired = (keys / 4 / above.max(1) + 1).min(below);
    }

    /// Returns bit number `at` of those that rule out most pairs, and its share.
    ///
    /// `None` if no pair is left. Earlier bits must have been requested before.
    fn bit(&mut self, kernel: Kernel, at: usize) -> Option<(u64, f64)> {
        if at == self.bits.len() {
            self.refill(kernel);
            let some = &self.common[..self.common.len().min(self.enough)];
            let ones = ones(some);
            let most = (0..64).max_by_key(|&bit| (ones[bit], Reverse(bit)))?;
            if ones[most] == 0 {
                return None;
            }
            let bit = 1 << most;
            self.bits.push((bit, f64::from(ones[most]) / some.len() as f64));
            self.chosen |= bit;
            std::mem::swap(&mut self.common, &mut self.spare);
            self.common.clear();
            let left = KeepDisjoint { bits: bit, words: &self.spare, to: &mut self.common };
            dispatch(kernel, left);
        }
        self.bits.get(at).copied()
    }

    /// Makes more pairs if there are too few.
    fn refill(&mut self, kernel: Kernel) {
        while self.common.len() < self.enough && self.paired < self.most_paired {
            let pairs = self.top.iter().zip(&self.bottom[self.paired..]);
            let common = pairs.map(|(top, bottom)| top & bottom & self.shared_bits);
            self.spare.clear();
            self.spare.extend(common);
            let new = KeepDisjoint { bits: self.chosen, words: &self.spare, to: &mut self.common };
            dispatch(kernel, new);
            self.paired += 1;
        }
    }
}

/// Work that keeps the words without these bits.
struct KeepDisjoint<'a> {
    bits: u64,
    words: &'a [u64],
    to: &'a mut Vec<u64>,
}

impl Work for KeepDisjoint<'_> {
    type Result = ();

    #[inline(always)]
    fn run<S: Set>(self, set: S) {
        let Self { bits, words, to } = self;
        let pairs = Pairs { outer: &[bits], inner: words, mask: !bits };
        to.reserve(words.len() + PAIRS_SLACK);
        // SAFETY: the capacity was reserved above, and `left` words were written.
        unsafe {
            let left = set.fitting(pairs, to.as_mut_ptr().add(to.len()));
            to.set_len(to.len() + left);
        }
    }
}

/// Number of leaves in which each key of a sample is gathered.
#[derive(Debug, Default)]
struct Copies {
    keys: Vec<u64>,
    copies: Vec<u64>,
}

/// Approximate maximum sample size.
const MAX_COPIED: usize = 256;

impl Copies {
    fn start(&mut self, keys: KeySample<'_>) {
        sample(keys, MAX_COPIED, &mut self.keys);
        self.copies.clear();
        self.copies.resize(self.keys.len(), 1);
    }

    /// Returns the growth of gathered keys if `bit` of the other side selects leaves.
    ///
    /// Keys without the bit are gathered for both of its patterns.
    fn growth(&self, bit: u64) -> f64 {
        let (mut total, mut without) = (0, 0);
        for (&key, &copies) in self.keys.iter().zip(&self.copies) {
            total += copies;
            without += if key & bit == 0 { copies } else { 0 };
        }
        1.0 + without as f64 / total.max(1) as f64
    }

    fn grow(&mut self, bit: u64) {
        for (&key, copies) in self.keys.iter().zip(&mut self.copies) {
            *copies <<= u32::from(key & bit == 0);
        }
    }
}

/// Replaces `to` with about `most` keys from all parts of a list.
fn sample(list: KeySample<'_>, most: usize, to: &mut Vec<u64>) {
    let samples = (list.total / 32).clamp(64, most);
    let step = (list.keys.len() / samples).max(1);
    to.clear();
    to.extend(list.keys.iter().copied().step_by(step));
}

/// Counts, for each bit, the words that have it.
fn ones(words: &[u64]) -> [u32; 64] {
    let mut ones = [0_u32; 64];
    for words in words.chunks(usize::from(u8::MAX)) {
        // Counts in bytes, eight bits of the word at a time.
        let mut bytes = [0_u64; 8];
        for word in words {
            for (shift, bytes) in bytes.iter_mut().enumerate() {
                *bytes += word >> shift & 0x0101_0101_0101_0101;
            }
        }
        for (bit, ones) in ones.iter_mut().enumerate() {
            *ones += u32::from(bytes[bit % 8].to_le_bytes()[bit / 8]);
        }
    }
    ones
}

/// Predicted size of a join, from the samples.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    keys: f64,
    leaves: f64,
    /// Keys gathered for all leaves, from the top and the bottom list.
    gathered: (f64, f64),
    pairs: f64,
}

impl Estimate {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn undivided(top: usize, bottom: usize) -> Self {
        let (top, bottom) = (top as f64, bottom as f64);
        Self { keys: top + bottom, leaves: 1.0, gathered: (top, bottom), pairs: top * bottom }
    }

    /// Adds a grid bit, given the growth of gathered keys and the share ruled out.
    fn split(self, top: f64, bottom: f64, ruled_out: f64) -> Self {
        Self {
            leaves: 2.0 * self.leaves,
            gathered: (self.gathered.0 * top, self.gathered.1 * bottom),
            pairs: self.pairs * (1.0 - ruled_out),
            ..self
        }
    }

    /// Predicts the time in cycles of the machine that the constants were fitted on.
    fn cycles(self, layout: KeyLayout) -> f64 {
        let groups = Groups::of(layout.residual_bits());
        let (groups, rows) = (groups.number as f64, groups.rows() as f64);
        let wide = if layout.residual_bits() > 32 { 2.0 } else { 1.0 };
        let sort = self.keys * SORT * wide + self.leaves * CELL;
        let gather = (self.gathered.0 + self.gathered.1) * GATHER * wide + self.leaves * LEAF;
        let (few, many) = if self.gathered.0 < self.gathered.1 {
            (self.gathered.0, self.gathered.1)
        } else {
            (self.gathered.1, self.gathered.0)
        };
        // Part of a leaf's last block is empty.
        let blocks = many / 512.0 + PARTIAL * self.leaves;
        let visits = self.pairs / 512.0 + PARTIAL * few;
        let sliced = blocks * (BUILD * wide + rows * ROW) + visits * groups;
        let tested = (self.pairs / 16.0 + 0.5 * few) * TEST * wide;
        sort + gather + sliced.min(tested)
    }
}

/// Cycles to sort a key.
const SORT: f64 = 8.0;
/// Cycles per cell in both offset tables.
const CELL: f64 = 4.0;
/// Cycles to gather a key.
const GATHER: f64 = 0.6;
/// Cycles per leaf, in addition to its keys.
const LEAF: f64 = 600.0;
/// Wasted share of a block per leaf.
const PARTIAL: f64 = 0.5;
/// Cycles to transpose a block, and to make a row of its tables.
const BUILD: f64 = 200.0;
const ROW: f64 = 4.4;
/// Cycles to test 16 pairs one by one.
const TEST: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(keys: &[u64]) -> KeySample<'_> {
        KeySample { keys, total: keys.len() }
    }

    fn choose(shared_bits: u64, top: &[u64], bottom: &[u64], limits: BandLimits) -> KeyLayout {
        Chooser::new(Kernel::best()).choose(shared_bits, all(top), all(bottom), limits)
    }

    /// Returns a pseudo-random word.
    fn random(i: u64) -> u64 {
        crate::plan::mix(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn a_bit_is_valued_by_the_pairs_that_earlier_bits_leave() {
        // Bit 0 is set in half of the keys, bit 2 with it, bit 1 in a quarter of them, and bit 3 in
        // all top keys.
        let key = |i| {
            let [half, other, third] = [17, 23, 31].map(|bit| random(i) >> bit & 1);
            half | (other & third) << 1 | half << 2
        };
        let top: Vec<u64> = (0..50_000).map(|i| key(i) | 1 << 3).collect();
        let bottom: Vec<u64> = (50_000..80_000).map(key).collect();
        let (kernel, mut pairs) = (Kernel::best(), PairSample::default());
        let (top, bottom) = (all(&top), all(&bottom));
        pairs.start(0b1111, top, bottom);
        let (bit, ruled_out) = pairs.bit(kernel, 0).unwrap();
        assert_eq!(bit, 1 << 0);
        assert!((0.2..0.3).contains(&ruled_out), "{ruled_out}");
        let (bit, ruled_out) = pairs.bit(kernel, 1).unwrap();
        assert_eq!(bit, 1 << 1);
        assert!((0.03..0.1).contains(&ruled_out), "{ruled_out}");
        assert_eq!(pairs.bit(kernel, 2), None);
        assert_eq!(pairs.bit(kernel, 0).unwrap().0, 1 << 0);
        pairs.start(0b1010, top, bottom);
        assert_eq!(pairs.bit(kernel, 0).unwrap().0, 1 << 1);
        assert_eq!(pairs.bit(kernel, 1), None);
    }

    #[test]
    fn gathered_keys_grow_by_those_without_the_bit() {
        let mut copies = Copies::default();
        copies.start(all(&[0b00, 0b01, 0b11, 0b11]));
        assert_eq!(copies.growth(0b01), 1.25);
        copies.grow(0b01);
        // Five copies, three of them without the bit.
        assert_eq!(copies.growth(0b10), 1.6);
    }

    #[test]
    fn x3_are_the_bits_worth_most_after_those_of_the_cells() {
        let keys: Vec<u64> = (0..4_000).map(|i| random(i) & random(i + 9_999)).collect();
        let limits = BandLimits { join: 0, ..BandLimits::MEASURED };
        let shared_bits = (1 << 30) - 1;
        let layout = choose(shared_bits, &keys, &keys, limits);
        assert_eq!(layout.x3_places(3).number, 3);
        let without = choose(shared_bits, &keys, &keys, BandLimits::MEASURED);
        assert!(!without.has_x3());
        let cells = |layout: KeyLayout| (layout.x1_bits(), layout.x2_bits());
        assert_eq!(cells(layout), cells(without));
    }

    #[test]
    fn a_layout_serves_short_lists_of_similar_length_for_some_keys() {
        let keys: Vec<u64> = (0..10_000).map(|i| random(i) & random(i + 99_999)).collect();
        let mut chooser = Chooser::new(Kernel::best());
        let shared_bits = (1 << 34) - 1;
        let low: Vec<u64> = keys.iter().map(|key| key & shared_bits).collect();
        let high: Vec<u64> = low.iter().map(|key| key & !0xffff).collect();
        let mut of = |keys| chooser.layout(shared_bits, all(keys), all(keys), BandLimits::MEASURED);
        let first = of(&low[..10_000]);
        let high = &high[..9_000];
        let mut served = 20_000;
        while served + 18_000 <= KEYS_PER_CHOICE {
            assert_eq!(of(high), first, "{served} keys");
            served += 18_000;
        }
        assert_ne!(of(high), first);
    }

    #[test]
    fn lists_without_keys_are_not_divided() {
        let keys = [0b111; 20];
        for (top, bottom) in [(&[][..], &[][..]), (&keys[..], &[]), (&[], &keys)] {
            let layout = choose(0b111, top, bottom, BandLimits::MEASURED);
            assert_eq!(layout, KeyLayout::undivided(0b111));
        }
    }

    #[test]
    fn longer_lists_get_more_cells_and_residual_keys_that_fit() {
        let key = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 18;
        let keys: Vec<u64> = (0..200_000).map(|i| key(i) & key(i + 1_000_000)).collect();
        let mut cells = 0;
        // Long enough for tables; for shorter lists every grid bit saves tests.
        for length in [1_000, 3_000, 10_000, 50_000, 200_000] {
            let keys = &keys[..length];
            let layout = choose((1 << 46) - 1, keys, keys, BandLimits::MEASURED);
            let bits = layout.cell_bits();
            assert!(bits >= cells, "{length} keys: {layout:?}");
            assert_eq!(layout.residual_bits() as usize + bits, 46);
            cells = bits;
        }
        assert!(cells >= 14, "{cells} bits");
    }
}
