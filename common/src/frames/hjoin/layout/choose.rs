//! Choosing the bits that make up the cells of the grids, and X3, for two lists of keys.
//!
//! A bit is worth as much as it rules out of the pairs that the bits before it leave. That is not what
//! it rules out of all pairs: keys have about as many ones each, so pairs that get past some bits have
//! theirs in others. Hence the choice goes by a sample of pairs, not by how often each bit is set.
//!
//! The mathematics: `docs/method.md`, “Counting disjoint pairs without looking at all of them”.

use std::cmp::Reverse;

use super::{
    groups::Groups,
    keys::Typical,
    roles::{KeyLayout, MOST_ROW_BITS, most_cell_bits},
    x3::{Limits, X3},
};
use crate::{
    kernel::Kernel,
    simd::{PAIRS_SLACK, Pairs, Set, Work, dispatch},
};

/// Chooses layouts; keeps its buffers from one choice to the next.
#[derive(Debug)]
pub(crate) struct Chooser {
    meeting: Meeting,
    above: Copies,
    below: Copies,
    /// [`LONG_LISTS`], or 0 to tell what long rests gain.
    long_lists: usize,
}

impl Chooser {
    /// Working with this instruction set.
    pub(crate) fn new(kernel: Kernel) -> Self {
        Self {
            meeting: Meeting::new(kernel),
            above: Copies::default(),
            below: Copies::default(),
            long_lists: LONG_LISTS,
        }
    }

    /// From now on rests of short lists have four bytes as well, wherever there are bits enough for that.
    pub(crate) fn leave_no_long_rests(&mut self) {
        self.long_lists = 0;
    }

    /// The layout that is predicted to be the fastest for two lists, of which these are typical.
    ///
    /// Bits join the grid in order of how many pairs they rule out; whether to X1 or to X2 is what the
    /// cost model says, so that lists of different lengths get leaves of similar ones.
    pub(crate) fn choose(
        &mut self,
        contested: u64,
        top: Typical<'_>,
        bottom: Typical<'_>,
        limits: Limits,
    ) -> KeyLayout {
        let Self {
            meeting,
            above,
            below,
            long_lists,
        } = self;
        meeting.start(contested, top, bottom);
        above.start(top);
        below.start(bottom);
        let mut layout = KeyLayout::undivided(contested);
        let mut join = Estimate::undivided(top.of, bottom.of);
        let (mut best, mut least) = (layout, join.cycles(layout));
        // Rests of long lists have four bytes wherever there are bits enough for that.
        let most = most_cell_bits(top.of, bottom.of);
        let four_bytes = most >= *long_lists && contested.count_ones() as usize <= 32 + most;
        let too_long = |layout: KeyLayout| layout.rest_bits() > 32 && four_bytes;
        for at in 0..most {
            let unchosen = too_long(best).then(|| (1 << layout.rest().trailing_zeros(), 0.0));
            let Some((bit, ruled_out)) = meeting.bit(at).or(unchosen) else {
                break;
            };
            let by_x1 = join.split(1.0, below.growth(bit), ruled_out);
            let by_x2 = join.split(above.growth(bit), 1.0, ruled_out);
            let (with_x1, with_x2) = (layout.with_x1(bit), layout.with_x2(bit));
            let x1_is_better = by_x1.cycles(with_x1) <= by_x2.cycles(with_x2);
            let has_room = |bits: u32| bits < MOST_ROW_BITS;
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
            } else if layout.rest_bits() <= 32 && cycles > HOPELESS * least {
                break;
            }
        }
        if best.rest_bits() <= 32 && top.of.saturating_mul(bottom.of) >= limits.join {
            let cell_bits = (best.x1_bits() + best.x2_bits()) as usize;
            let bits = (cell_bits..).map_while(|at| meeting.bit(at));
            return best.with_x3(X3::new(bits.map(|(bit, _)| bit)));
        }
        best
    }
}

/// Bits for the cells of lists so long that memory decides: of shorter ones, whose rests have more bits
/// only if there are few pairs to test, finer grids would take longer than they save.
pub(crate) const LONG_LISTS: usize = 21;

/// From so many times the least cycles on more bits are not tried, unless rests are still long ones.
const HOPELESS: f64 = 1.25;

/// Pairs of keys that no bit chosen so far rules out, from a sample of both lists.
#[derive(Debug)]
struct Meeting {
    kernel: Kernel,
    contested: u64,
    top: Vec<u64>,
    /// Over and over again, so that every shift of it against the top ones is there.
    bottom: Vec<u64>,
    /// The bits chosen, and what each of them ruled out.
    bits: Vec<(u64, f64)>,
    /// All of them.
    chosen: u64,
    /// What the two keys of each pair have in common.
    common: Vec<u64>,
    /// For others for a while.
    spare: Vec<u64>,
    /// So many pairs are enough to choose a bit by.
    enough: usize,
    /// How often each key of the top sample was paired, with another one of the bottom sample each time.
    paired: usize,
    most_paired: usize,
}

/// About the most keys in the sample of a list.
const MOST_SAMPLES: usize = 1024;
/// The most pairs to choose a bit by.
const MOST_PAIRS: usize = 4096;

impl Meeting {
    fn new(kernel: Kernel) -> Self {
        Self {
            kernel,
            contested: 0,
            top: Vec::new(),
            bottom: Vec::new(),
            bits: Vec::new(),
            chosen: 0,
            common: Vec::new(),
            spare: Vec::new(),
            enough: 0,
            paired: 0,
            most_paired: 0,
        }
    }

    /// Forgets all bits, and takes samples of these lists.
    fn start(&mut self, contested: u64, top: Typical<'_>, bottom: Typical<'_>) {
        let keys = top.of + bottom.of;
        sample(top, MOST_SAMPLES, &mut self.top);
        sample(bottom, MOST_SAMPLES, &mut self.bottom);
        let (above, below) = (self.top.len(), self.bottom.len());
        // The lists of a symmetric frame are equal: a key and itself are no typical pair.
        self.bottom.rotate_left(below / 2);
        if below > 0 {
            for at in 0..above {
                self.bottom.push(self.bottom[at]);
            }
        }
        self.contested = contested;
        self.bits.clear();
        self.chosen = 0;
        // So that choosing takes a small part of the time to sort the lists.
        self.enough = (keys / 256).clamp(256, MOST_PAIRS);
        self.common.clear();
        self.paired = 0;
        self.most_paired = (keys / 4 / above.max(1) + 1).min(below);
    }

    /// Bit number `at` of those that each rule out the most of the pairs that the ones before it leave,
    /// with the share that it rules out; none if no pair is left. Those before it were asked for before.
    fn bit(&mut self, at: usize) -> Option<(u64, f64)> {
        if at == self.bits.len() {
            self.refill();
            let some = &self.common[..self.common.len().min(self.enough)];
            let ones = ones(some);
            let most = (0..64).max_by_key(|&bit| (ones[bit], Reverse(bit)))?;
            if ones[most] == 0 {
                return None;
            }
            let bit = 1 << most;
            self.bits
                .push((bit, f64::from(ones[most]) / some.len() as f64));
            self.chosen |= bit;
            std::mem::swap(&mut self.common, &mut self.spare);
            self.common.clear();
            let left = Without {
                bits: bit,
                words: &self.spare,
                to: &mut self.common,
            };
            dispatch(self.kernel, left);
        }
        self.bits.get(at).copied()
    }

    /// Makes more pairs if there are too few.
    fn refill(&mut self) {
        while self.common.len() < self.enough && self.paired < self.most_paired {
            let pairs = self.top.iter().zip(&self.bottom[self.paired..]);
            let common = pairs.map(|(top, bottom)| top & bottom & self.contested);
            self.spare.clear();
            self.spare.extend(common);
            let new = Without {
                bits: self.chosen,
                words: &self.spare,
                to: &mut self.common,
            };
            dispatch(self.kernel, new);
            self.paired += 1;
        }
    }
}

/// Adding those words that have none of these bits.
struct Without<'a> {
    bits: u64,
    words: &'a [u64],
    to: &'a mut Vec<u64>,
}

impl Work for Without<'_> {
    type Result = ();

    #[inline(always)]
    fn run<S: Set>(self, set: S) {
        let Self { bits, words, to } = self;
        let pairs = Pairs {
            outer: &[bits],
            inner: words,
            mask: !bits,
        };
        to.reserve(words.len() + PAIRS_SLACK);
        // SAFETY: the room was made above, and so many words of it were written.
        unsafe {
            let left = set.fitting(pairs, to.as_mut_ptr().add(to.len()));
            to.set_len(to.len() + left);
        }
    }
}

/// In how many leaves each key of a sample is gathered.
#[derive(Debug, Default)]
struct Copies {
    keys: Vec<u64>,
    copies: Vec<u64>,
}

/// About the most keys that copies are kept of.
const MOST_COPIED: usize = 256;

impl Copies {
    /// Takes a sample of a list, of which no copies are made yet.
    fn start(&mut self, keys: Typical<'_>) {
        sample(keys, MOST_COPIED, &mut self.keys);
        self.copies.clear();
        self.copies.resize(self.keys.len(), 1);
    }

    /// By how much more keys are gathered once a bit that they are not sorted by chooses a leaf: those
    /// without the bit for both patterns of it.
    fn growth(&self, bit: u64) -> f64 {
        let (mut all, mut without) = (0, 0);
        for (&key, &copies) in self.keys.iter().zip(&self.copies) {
            all += copies;
            without += if key & bit == 0 { copies } else { 0 };
        }
        1.0 + without as f64 / all.max(1) as f64
    }

    fn grow(&mut self, bit: u64) {
        for (&key, copies) in self.keys.iter().zip(&mut self.copies) {
            *copies <<= u32::from(key & bit == 0);
        }
    }
}

/// Replaces `to` by keys from all parts of a list, about `most` of them if it is long.
fn sample(list: Typical<'_>, most: usize, to: &mut Vec<u64>) {
    let samples = (list.of / 32).clamp(64, most);
    let step = (list.keys.len() / samples).max(1);
    to.clear();
    to.extend(list.keys.iter().copied().step_by(step));
}

/// How many of the words have each bit.
fn ones(words: &[u64]) -> [u32; 64] {
    let mut ones = [0_u32; 64];
    for words in words.chunks(usize::from(u8::MAX)) {
        // Counted in bytes, eight bits of the word side by side.
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

/// What a join would amount to, by the samples.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    keys: f64,
    leaves: f64,
    /// Keys gathered from the top list, and from the bottom one, for all leaves together.
    gathered: (f64, f64),
    pairs: f64,
}

impl Estimate {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn undivided(top: usize, bottom: usize) -> Self {
        let (top, bottom) = (top as f64, bottom as f64);
        Self {
            keys: top + bottom,
            leaves: 1.0,
            gathered: (top, bottom),
            pairs: top * bottom,
        }
    }

    /// With one more bit in the grid: the gathered keys grow by these factors, and this share of
    /// the pairs is ruled out.
    fn split(self, top: f64, bottom: f64, ruled_out: f64) -> Self {
        Self {
            leaves: 2.0 * self.leaves,
            gathered: (self.gathered.0 * top, self.gathered.1 * bottom),
            pairs: self.pairs * (1.0 - ruled_out),
            ..self
        }
    }

    /// Predicted time, in cycles of the machine that the constants were fitted on.
    fn cycles(self, layout: KeyLayout) -> f64 {
        let groups = Groups::of(layout.rest_bits());
        let (groups, rows) = (groups.number as f64, groups.rows() as f64);
        let wide = if layout.rest_bits() > 32 { 2.0 } else { 1.0 };
        let sort = self.keys * SORT * wide + self.leaves * CELL;
        let gather = (self.gathered.0 + self.gathered.1) * GATHER * wide + self.leaves * LEAF;
        let (few, many) = if self.gathered.0 < self.gathered.1 {
            (self.gathered.0, self.gathered.1)
        } else {
            (self.gathered.1, self.gathered.0)
        };
        // Part of the last block of a leaf is empty.
        let blocks = many / 512.0 + PARTIAL * self.leaves;
        let visits = self.pairs / 512.0 + PARTIAL * few;
        let sliced = blocks * (BUILD * wide + rows * ROW) + visits * groups;
        let tested = (self.pairs / 16.0 + 0.5 * few) * TEST * wide;
        sort + gather + sliced.min(tested)
    }
}

/// Cycles to sort a key.
const SORT: f64 = 8.0;
/// Cycles for one more cell in both offset tables.
const CELL: f64 = 4.0;
/// Cycles to gather a key.
const GATHER: f64 = 0.6;
/// Cycles for a leaf on top of those for its keys.
const LEAF: f64 = 600.0;
/// The share of a block by which a leaf's longer list, cut into blocks, wastes room.
const PARTIAL: f64 = 0.5;
/// Cycles to transpose a block, and to make a row of its tables.
const BUILD: f64 = 200.0;
const ROW: f64 = 4.4;
/// Cycles to test 16 pairs one by one.
const TEST: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(keys: &[u64]) -> Typical<'_> {
        Typical {
            keys,
            of: keys.len(),
        }
    }

    /// A word like any other (the finalizer of splitmix64).
    fn random(i: u64) -> u64 {
        let i = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let i = (i ^ i >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let i = (i ^ i >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        i ^ i >> 31
    }

    #[test]
    fn a_bit_is_worth_what_the_bits_before_it_leave_to_rule_out() {
        // Bit 0 is set in half of the keys, bit 2 where bit 0 is, bit 1 in a quarter of them, and bit 3
        // in the top ones alone.
        let key = |i| {
            let [half, other, third] = [17, 23, 31].map(|bit| random(i) >> bit & 1);
            half | (other & third) << 1 | half << 2
        };
        let top: Vec<u64> = (0..50_000).map(|i| key(i) | 1 << 3).collect();
        let bottom: Vec<u64> = (50_000..80_000).map(key).collect();
        let mut meeting = Meeting::new(Kernel::best());
        let (top, bottom) = (all(&top), all(&bottom));
        meeting.start(0b1111, top, bottom);
        let (bit, ruled_out) = meeting.bit(0).unwrap();
        assert_eq!(bit, 1 << 0);
        assert!((0.2..0.3).contains(&ruled_out), "{ruled_out}");
        let (bit, ruled_out) = meeting.bit(1).unwrap();
        assert_eq!(bit, 1 << 1);
        assert!((0.03..0.1).contains(&ruled_out), "{ruled_out}");
        assert_eq!(meeting.bit(2), None);
        assert_eq!(meeting.bit(0).unwrap().0, 1 << 0);
        meeting.start(0b1010, top, bottom);
        assert_eq!(meeting.bit(0).unwrap().0, 1 << 1);
        assert_eq!(meeting.bit(1), None);
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
        let limits = Limits {
            join: 0,
            ..Limits::MEASURED
        };
        let contested = (1 << 30) - 1;
        let layout = Chooser::new(Kernel::best()).choose(contested, all(&keys), all(&keys), limits);
        let places = layout.x3_places(3);
        assert_eq!(places.number, 3);
        let without = Chooser::new(Kernel::best()).choose(
            contested,
            all(&keys),
            all(&keys),
            Limits::MEASURED,
        );
        assert!(!without.has_x3());
        let cells = |layout: KeyLayout| (layout.x1_bits(), layout.x2_bits());
        assert_eq!(cells(layout), cells(without));
    }

    #[test]
    fn lists_without_keys_are_not_divided() {
        let keys = [0b111; 20];
        for (top, bottom) in [(&[][..], &[][..]), (&keys[..], &[]), (&[], &keys)] {
            let (top, bottom) = (all(top), all(bottom));
            let layout = Chooser::new(Kernel::best()).choose(0b111, top, bottom, Limits::MEASURED);
            assert_eq!(layout, KeyLayout::undivided(0b111));
        }
    }

    #[test]
    fn longer_lists_get_more_cells_and_rests_that_fit() {
        let key = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 18;
        let keys: Vec<u64> = (0..200_000).map(|i| key(i) & key(i + 1_000_000)).collect();
        let mut cells = 0;
        // Lists long enough for tables: pairs of shorter ones are tested one by one, where every bit
        // of the grid spares tests.
        for length in [1_000, 3_000, 10_000, 50_000, 200_000] {
            let contested = (1 << 46) - 1;
            let layout = Chooser::new(Kernel::best()).choose(
                contested,
                all(&keys[..length]),
                all(&keys[..length]),
                Limits::MEASURED,
            );
            let bits = layout.x1_bits() + layout.x2_bits();
            assert!(bits >= cells, "{length} keys: {layout:?}");
            assert_eq!(layout.rest_bits() + bits, 46);
            cells = bits;
        }
        assert!(cells >= 14, "{cells} bits");
    }
}
