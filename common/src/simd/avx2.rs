//! Eight lanes of 32 bits: AVX2 on x86-64.
//!
//! SAFETY, for every block below: only work on this set calls it, and its token proves the CPU's
//! features.

use std::arch::x86_64::*;

use super::lanes::{CacheLine, Lanes, PartitionBlock, States, low_half};

/// Token of 256-bit vectors; exists only on CPUs with AVX2, BMI1, BMI2 and POPCNT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

/// Flags as values: a lane is flagged if it is not zero.
///
/// The comparison is deferred, so that several flags are combined by minimum and compared once.
#[derive(Clone, Copy)]
pub(crate) struct Flags(__m256i);

impl Avx2 {
    /// # Safety
    /// The CPU has AVX2, BMI1, BMI2 and POPCNT.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Flags {
    /// Returns one bit per lane.
    ///
    /// # Safety
    /// The CPU has AVX2.
    #[inline(always)]
    unsafe fn bits(self) -> usize {
        // SAFETY: the caller vouches for AVX2.
        let zero = unsafe {
            let zero = _mm256_cmpeq_epi32(self.0, _mm256_setzero_si256());
            _mm256_movemask_ps(_mm256_castsi256_ps(zero))
        };
        (zero.cast_unsigned() ^ 0xff) as usize
    }
}

/// Lane order for every set of flagged lanes: flagged lanes first.
static ORDER: [[u8; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut set = 0;
    while set < table.len() {
        let (mut lane, mut to) = (0, 0);
        while lane < 8 {
            if set >> lane & 1 == 1 {
                table[set][to] = lane;
                to += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    table
};

// For every method: the CPU has the instructions, since an `Avx2` exists.
impl States for Avx2 {
    const WIDTH: usize = 8;
    const AHEAD: usize = 2;
    type Vector = __m256i;
    type Mask = Flags;

    instructions! {
        fn splat(self, value: u32) -> __m256i { _mm256_set1_epi32(value.cast_signed()) }
        fn xor(self, a: __m256i, b: __m256i) -> __m256i { _mm256_xor_si256(a, b) }
        fn lowest(self, a: __m256i) -> __m256i {
            _mm256_and_si256(a, _mm256_sub_epi32(_mm256_setzero_si256(), a))
        }
        fn or_shift_up(self, a: __m256i, b: __m256i, by: u32) -> __m256i {
            _mm256_sllv_epi32(_mm256_or_si256(a, b), self.splat(by))
        }
        fn or_shift_down(self, a: __m256i, b: __m256i, by: u32) -> __m256i {
            _mm256_srlv_epi32(_mm256_or_si256(a, b), self.splat(by))
        }
        fn without(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
            _mm256_andnot_si256(_mm256_or_si256(b, c), a)
        }
        fn and(self, a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
        fn both(self, a: Flags, b: Flags) -> Flags { Flags(_mm256_min_epu32(a.0, b.0)) }
        fn count(self, mask: Flags) -> usize { mask.bits().count_ones() as usize }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> __m256i {
        // SAFETY: see the module; the caller vouches for eight elements.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    fn nonzero(self, a: __m256i) -> Flags {
        Flags(a)
    }

    #[inline(always)]
    unsafe fn append(self, to: *mut u32, a: __m256i, mask: Flags) {
        // SAFETY: see the module; the table has a row of eight bytes for every set of lanes; the
        // caller vouches for eight elements.
        unsafe {
            let order = _mm_loadl_epi64(ORDER.as_ptr().add(mask.bits()).cast());
            let packed = _mm256_permutevar8x32_epi32(a, _mm256_cvtepu8_epi32(order));
            _mm256_storeu_si256(to.cast(), packed);
        }
    }
}

/// Eight 32-bit lanes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Avx2Bits(__m256i);

impl Lanes for Avx2Bits {
    const LANES: usize = 8;

    const EXTRACTS: bool = true;

    instructions! {
        fn extract(word: u64, mask: u64) -> u64 { _pext_u64(word, mask) }
        fn zero() -> Self { Self(_mm256_setzero_si256()) }
        fn splat(lane: u32) -> Self { Self(_mm256_set1_epi32(lane.cast_signed())) }
        fn or(self, other: Self) -> Self { Self(_mm256_or_si256(self.0, other.0)) }
        fn and(self, other: Self) -> Self { Self(_mm256_and_si256(self.0, other.0)) }
        fn xor(self, other: Self) -> Self { Self(_mm256_xor_si256(self.0, other.0)) }
        fn shl<const BY: i32>(self) -> Self { Self(_mm256_slli_epi32::<BY>(self.0)) }
        fn shr<const BY: i32>(self) -> Self { Self(_mm256_srli_epi32::<BY>(self.0)) }
        fn is_full(self) -> bool { _mm256_testc_si256(self.0, _mm256_set1_epi32(-1)) == 1 }
    }

    #[inline(always)]
    fn prefetch<T>(of: *const T) {
        // SAFETY: see the module; any address may be prefetched.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(of.cast()) }
    }

    #[inline(always)]
    unsafe fn stream(line: &CacheLine, to: &mut CacheLine) {
        let (from, to): (*const __m256i, *mut __m256i) =
            ((&raw const *line).cast(), (&raw mut *to).cast());
        // SAFETY: see the module; lines are aligned, and the caller vouches for the order.
        unsafe {
            _mm256_stream_si256(to, _mm256_load_si256(from));
            _mm256_stream_si256(to.add(1), _mm256_load_si256(from.add(1)));
        }
    }

    #[inline(always)]
    fn end_streams() {
        // SAFETY: see the module.
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: see the module; the caller vouches for the 32 bytes.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: see the module; the caller vouches for the 32 bytes.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn divide(block: PartitionBlock) -> u16 {
        let PartitionBlock { keys, bit, .. } = block;
        let (mut without, mut with) = (block.without, block.with);
        let mut ones = 0;
        for at in [0, 8] {
            // SAFETY: see the module; the caller vouches for the lists. Eight keys are read before any
            // of them is overwritten.
            unsafe {
                let keys = _mm256_loadu_si256(keys.add(at).cast());
                let below = _mm256_set1_epi32(((1_u32 << bit) - 1).cast_signed());
                let sign = _mm_cvtsi32_si128(31 - bit.cast_signed());
                let signs = _mm256_castsi256_ps(_mm256_sll_epi32(keys, sign));
                let set = _mm256_movemask_ps(signs).cast_unsigned();
                let above = _mm256_andnot_si256(below, _mm256_srli_epi32::<1>(keys));
                let keys = _mm256_or_si256(_mm256_and_si256(keys, below), above);
                let marked = _mm256_or_si256(keys, _mm256_set1_epi32(i32::MIN));
                let packed = |keys, lanes: u32| {
                    let order = _mm_loadl_epi64(ORDER[lanes as usize].as_ptr().cast());
                    _mm256_permutevar8x32_epi32(keys, _mm256_cvtepu8_epi32(order))
                };
                _mm256_storeu_si256(without.cast(), packed(keys, set ^ 0xff));
                _mm256_storeu_si256(with.cast(), packed(marked, set));
                without = without.add(8 - set.count_ones() as usize);
                with = with.add(set.count_ones() as usize);
                ones |= set << at;
            }
        }
        low_half(ones)
    }

    #[inline(always)]
    fn add_ones(self, sums: Self) -> Self {
        // SAFETY: see the module. A table of 16 nibble counts, looked up for both nibbles.
        unsafe {
            let counts = _mm256_broadcastsi128_si256(_mm_setr_epi8(
                0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,
            ));
            let nibble = _mm256_set1_epi8(15);
            let low = _mm256_and_si256(self.0, nibble);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), nibble);
            let ones = _mm256_add_epi8(
                _mm256_shuffle_epi8(counts, low),
                _mm256_shuffle_epi8(counts, high),
            );
            Self(_mm256_add_epi64(sums.0, _mm256_sad_epu8(ones, _mm256_setzero_si256())))
        }
    }

    #[inline(always)]
    fn add_disjoint(self, other: Self, counts: Self) -> Self {
        // SAFETY: see the module. A lane that passes the test is -1.
        unsafe {
            let meet = _mm256_and_si256(self.0, other.0);
            let none = _mm256_cmpeq_epi32(meet, _mm256_setzero_si256());
            Self(_mm256_sub_epi32(counts.0, none))
        }
    }
}
