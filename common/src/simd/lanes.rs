//! Vectors of bits: what the join needs from an instruction set.

/// A line of the caches.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct CacheLine(pub(crate) [u64; CacheLine::WORDS]);

impl CacheLine {
    /// 64-bit words in a line.
    pub(crate) const WORDS: usize = 8;

    /// The words of consecutive lines.
    pub(crate) fn words(lines: &[Self]) -> &[u64] {
        // SAFETY: a line is its words and nothing else, and aligned to more than a word.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), Self::WORDS * lines.len()) }
    }
}

/// Sixteen keys to divide by a bit, which is taken out and put on top: the bits above it move down.
#[derive(Clone, Copy)]
pub(crate) struct Sixteen {
    pub(crate) keys: *const u32,
    pub(crate) bit: u32,
    /// Where the keys without the bit go.
    pub(crate) without: *mut u32,
    /// Where the keys with the bit go.
    pub(crate) with: *mut u32,
}

/// A vector of 32-bit lanes with the bitwise operations of a bit-sliced leaf.
///
/// The methods are safe to call only where the instruction set is there: in what [`super::Work`] does on
/// the set whose vectors these are, inlined into the one function that carries its `#[target_feature]`.
pub(crate) trait Lanes: Copy {
    /// A narrower vector for the last block of a list, or the same one.
    type Half: Lanes;

    /// 32-bit lanes in a vector.
    const LANES: usize;

    /// Whether [`Self::extract`] is one instruction.
    const EXTRACTS: bool = false;

    /// All bits zero.
    fn zero() -> Self;

    /// Every lane `lane`.
    fn splat(lane: u32) -> Self;

    /// # Safety
    /// `from` is readable for the whole vector; it need not be aligned.
    unsafe fn load(from: *const u32) -> Self;

    /// # Safety
    /// `to` is writable for the whole vector; it need not be aligned.
    unsafe fn store(self, to: *mut u32);

    /// Bitwise or.
    fn or(self, other: Self) -> Self;

    /// Bitwise and.
    fn and(self, other: Self) -> Self;

    /// Bitwise exclusive or.
    fn xor(self, other: Self) -> Self;

    /// Shifts every 32-bit or every 64-bit lane left; what crosses a 32-bit lane is masked off by
    /// the caller.
    fn shl<const BY: i32>(self) -> Self;

    /// As [`Self::shl`], to the right, zeros coming in.
    fn shr<const BY: i32>(self) -> Self;

    /// Of every 2 * `BY` bits, exchanges the high half in `a` with the low half in `b`.
    #[inline(always)]
    fn exchange<const BY: i32>(a: Self, b: Self) -> (Self, Self) {
        let low = Self::splat(low_halves(BY));
        let change = a.shr::<BY>().xor(b).and(low);
        (a.xor(change.shl::<BY>()), b.xor(change))
    }

    /// `a | b | c`.
    #[inline(always)]
    fn or3(a: Self, b: Self, c: Self) -> Self {
        a.or(b).or(c)
    }

    /// Carry and sum of three vectors, added up in every bit position on its own.
    #[inline(always)]
    fn carry_save(a: Self, b: Self, c: Self) -> (Self, Self) {
        let half = a.xor(b);
        (a.and(b).or(half.and(c)), half.xor(c))
    }

    /// Whether all bits are one.
    fn is_full(self) -> bool;

    /// Adds to the 64-bit lanes of `sums` the number of one bits in those of `self`.
    fn add_ones(self, sums: Self) -> Self;

    /// Adds one to each 32-bit lane of `counts` whose lane in `self` has no bit in common with that
    /// of `other`.
    fn add_disjoint(self, other: Self, counts: Self) -> Self;

    /// Divides sixteen keys, keeping the order, and returns which of them have the bit.
    ///
    /// # Safety
    /// Sixteen keys are readable, and writable in both places. `without` may start where `keys` does
    /// or before; else the three do not overlap.
    #[inline(always)]
    unsafe fn divide(sixteen: Sixteen) -> u16 {
        let Sixteen { keys, bit, .. } = sixteen;
        // SAFETY: the caller vouches for the keys.
        let keys = unsafe { keys.cast::<[u32; 16]>().read_unaligned() };
        let low = (1 << bit) - 1;
        let (mut ones, mut clear, mut set) = (0, 0, 0);
        for (at, key) in keys.into_iter().enumerate() {
            let one = key >> bit & 1;
            let key = key & low | key >> 1 & !low;
            // SAFETY: the caller vouches for the places. The second is of use only where the key has
            // the bit, else it is written over.
            unsafe {
                sixteen.without.add(clear).write(key);
                sixteen.with.add(set).write(key | 1 << 31);
            }
            clear += 1 - one as usize;
            set += one as usize;
            ones |= one << at;
        }
        low_half(ones)
    }

    /// The bits of `word` under `mask`, moved together: below 2^ones of `mask`. Where that [is not one
    /// instruction](Self::EXTRACTS), `mask` must be a range of bits.
    #[inline(always)]
    fn extract(word: u64, mask: u64) -> u64 {
        (word & mask).unbounded_shr(mask.trailing_zeros())
    }

    /// Asks for a line of memory that is written to soon.
    #[inline(always)]
    fn prefetch<T>(_of: *const T) {}

    /// Writes a line that is not read soon.
    ///
    /// # Safety
    /// [`Self::end_streams`] comes before any other access to what is written.
    #[inline(always)]
    unsafe fn stream(line: &CacheLine, to: &mut CacheLine) {
        *to = *line;
    }

    /// Makes the written lines readable.
    #[inline(always)]
    fn end_streams() {}
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "there is nothing above")]
pub(crate) fn low_half(ones: u32) -> u16 {
    ones as u16
}

/// The low `by` of every 2 * `by` bits, `by` a power of two up to 16.
pub(crate) const fn low_halves(by: i32) -> u32 {
    u32::MAX / ((1 << by) + 1)
}
