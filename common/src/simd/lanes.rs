//! Operations of an instruction set for the join and for method `rows`.

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct CacheLine(pub(crate) [u64; CacheLine::WORDS]);

impl CacheLine {
    /// 64-bit words per line.
    pub(crate) const WORDS: usize = 8;

    pub(crate) fn words(lines: &[Self]) -> &[u64] {
        // SAFETY: a line is its words and nothing else, and aligned to more than a word.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), Self::WORDS * lines.len()) }
    }
}

/// Sixteen keys to divide by a bit, which moves to the top.
#[derive(Clone, Copy)]
pub(crate) struct PartitionBlock {
    pub(crate) keys: *const u32,
    pub(crate) bit: u32,
    /// Destination of keys without the bit.
    pub(crate) without: *mut u32,
    /// Destination of keys with the bit.
    pub(crate) with: *mut u32,
}

/// A vector of 32-bit lanes with the bitwise operations of a bit-sliced leaf.
///
/// The methods are only safe to call on CPUs with the instruction set: in [`super::Work`] on its
/// set, inlined into the one function with its `#[target_feature]`.
pub(crate) trait Lanes: Copy {
    /// 32-bit lanes in a vector.
    const LANES: usize;

    /// Whether [`Self::extract`] is one instruction.
    const EXTRACTS: bool = false;

    fn zero() -> Self;

    fn splat(lane: u32) -> Self;

    /// # Safety
    /// `from` is readable for the whole vector; it need not be aligned.
    unsafe fn load(from: *const u32) -> Self;

    /// # Safety
    /// `to` is writable for the whole vector; it need not be aligned.
    unsafe fn store(self, to: *mut u32);

    fn or(self, other: Self) -> Self;

    fn and(self, other: Self) -> Self;

    fn xor(self, other: Self) -> Self;

    /// Shifts every lane left; the caller masks bits that cross a 32-bit lane.
    fn shl<const BY: i32>(self) -> Self;

    /// Shifts like [`Self::shl`], to the right.
    fn shr<const BY: i32>(self) -> Self;

    /// Exchanges the high half of every 2 * `BY` bits in `a` with the low half in `b`.
    #[inline(always)]
    fn exchange<const BY: i32>(a: Self, b: Self) -> (Self, Self) {
        let low = Self::splat(low_halves(BY));
        let change = a.shr::<BY>().xor(b).and(low);
        (a.xor(change.shl::<BY>()), b.xor(change))
    }

    #[inline(always)]
    fn or3(a: Self, b: Self, c: Self) -> Self {
        a.or(b).or(c)
    }

    /// Returns carry and sum of three vectors, bit by bit.
    #[inline(always)]
    fn carry_save(a: Self, b: Self, c: Self) -> (Self, Self) {
        let half = a.xor(b);
        (a.and(b).or(half.and(c)), half.xor(c))
    }

    fn is_full(self) -> bool;

    /// Adds the number of ones in each 64-bit lane to `sums`.
    fn add_ones(self, sums: Self) -> Self;

    /// Increments each lane of `counts` whose lanes in `self` and `other` are disjoint.
    fn add_disjoint(self, other: Self, counts: Self) -> Self;

    /// Divides sixteen keys in stable order, and returns which of them have the bit.
    ///
    /// # Safety
    /// Sixteen keys are readable, and writable at both destinations. `without` may start where
    /// `keys` does or before it; otherwise the three do not overlap.
    #[inline(always)]
    unsafe fn divide(block: PartitionBlock) -> u16 {
        let PartitionBlock { keys, bit, .. } = block;
        // SAFETY: the caller vouches for the keys.
        let keys = unsafe { keys.cast::<[u32; 16]>().read_unaligned() };
        let low = (1 << bit) - 1;
        let (mut ones, mut clear, mut set) = (0, 0, 0);
        for (at, key) in keys.into_iter().enumerate() {
            let one = key >> bit & 1;
            let key = key & low | key >> 1 & !low;
            // SAFETY: the caller vouches for the destinations. One of the two is overwritten later.
            unsafe {
                block.without.add(clear).write(key);
                block.with.add(set).write(key | 1 << 31);
            }
            clear += 1 - one as usize;
            set += one as usize;
            ones |= one << at;
        }
        low_half(ones)
    }

    /// Returns the bits of `word` under `mask`, moved together at the low end.
    ///
    /// If that [is not one instruction](Self::EXTRACTS), `mask` must be a range of bits.
    #[inline(always)]
    fn extract(word: u64, mask: u64) -> u64 {
        (word & mask).unbounded_shr(mask.trailing_zeros())
    }

    /// Prefetches a line that will be written soon.
    #[inline(always)]
    fn prefetch<T>(_of: *const T) {}

    /// Writes a line that will not be read soon, bypassing the caches.
    ///
    /// # Safety
    /// [`Self::end_streams`] comes before any other access to the line.
    #[inline(always)]
    unsafe fn stream(line: &CacheLine, to: &mut CacheLine) {
        *to = *line;
    }

    /// Makes streamed lines readable by all threads.
    #[inline(always)]
    fn end_streams() {}
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the high half is zero")]
pub(crate) fn low_half(ones: u32) -> u16 {
    ones as u16
}

/// Returns the low `by` of every 2 * `by` bits, `by` a power of two up to 16.
pub(crate) const fn low_halves(by: i32) -> u32 {
    u32::MAX / ((1 << by) + 1)
}

/// Byte order for every set of flagged lanes of four: flagged lanes first.
#[cfg(any(target_arch = "aarch64", target_arch = "wasm32"))]
pub(crate) static BYTE_ORDER: [[u8; 16]; 16] = {
    let mut table = [[0; 16]; 16];
    let mut set = 0;
    while set < table.len() {
        let (mut byte, mut to) = (0, 0);
        while byte < 16 {
            if set >> (byte / 4) & 1 == 1 {
                table[set][to] = byte;
                to += 1;
            }
            byte += 1;
        }
        set += 1;
    }
    table
};

/// Vector operations on 32-bit lanes, for the search of method `rows`.
///
/// A value exists only on CPUs with the instruction set, so the methods are safe to call; see
/// [`Lanes`] for how they are compiled.
pub(crate) trait States: Copy {
    const WIDTH: usize;
    /// Rows checked below a child (1 to 3); one without a free square drops the child.
    ///
    /// Two rows remove 10 % of the placements, three 18 %, for a few instructions each.
    const AHEAD: usize;
    type Vector: Copy;
    /// One flag per lane.
    type Mask: Copy;

    fn splat(self, value: u32) -> Self::Vector;
    /// # Safety
    /// `WIDTH` elements are readable.
    unsafe fn load(self, from: *const u32) -> Self::Vector;
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns the lowest set bit of every lane.
    fn lowest(self, a: Self::Vector) -> Self::Vector;
    /// Returns `(a | b) << by`, without the bits beyond the lane.
    fn or_shift_up(self, a: Self::Vector, b: Self::Vector, by: u32) -> Self::Vector;
    /// Returns `(a | b) >> by`.
    fn or_shift_down(self, a: Self::Vector, b: Self::Vector, by: u32) -> Self::Vector;
    /// Returns `a & !(b | c)`.
    fn without(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Flags the lanes that are not zero.
    fn nonzero(self, a: Self::Vector) -> Self::Mask;
    fn both(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    fn count(self, mask: Self::Mask) -> usize;
    /// Writes the flagged lanes of `a` contiguously, then arbitrary values.
    ///
    /// # Safety
    /// `WIDTH` elements are writable.
    unsafe fn append(self, to: *mut u32, a: Self::Vector, mask: Self::Mask);
}
