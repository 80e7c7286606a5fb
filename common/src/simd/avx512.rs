//! Sixteen lanes of 32 bits: AVX-512 on x86-64.
//!
//! SAFETY, for every block below: only work on this set calls it, and its token proves the CPU's
//! features.

use std::arch::x86_64::*;

use super::lanes::{CacheLine, Lanes, PartitionBlock, States, low_halves};

/// Token of 512-bit vectors; exists only on CPUs with all features of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The CPU has AVX-512 F, BW, DQ and VL, AVX2, BMI1, BMI2 and POPCNT.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

// For every method: the CPU has the instructions, since an `Avx512` exists.
impl States for Avx512 {
    const WIDTH: usize = 16;
    const AHEAD: usize = 2;
    type Vector = __m512i;
    type Mask = __mmask16;

    instructions! {
        fn splat(self, value: u32) -> __m512i { _mm512_set1_epi32(value.cast_signed()) }
        fn xor(self, a: __m512i, b: __m512i) -> __m512i { _mm512_xor_si512(a, b) }
        fn lowest(self, a: __m512i) -> __m512i {
            _mm512_and_si512(a, _mm512_sub_epi32(_mm512_setzero_si512(), a))
        }
        fn or_shift_up(self, a: __m512i, b: __m512i, by: u32) -> __m512i {
            _mm512_sllv_epi32(_mm512_or_si512(a, b), self.splat(by))
        }
        fn or_shift_down(self, a: __m512i, b: __m512i, by: u32) -> __m512i {
            _mm512_srlv_epi32(_mm512_or_si512(a, b), self.splat(by))
        }
        fn without(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
            _mm512_ternarylogic_epi32::<0x10>(a, b, c)
        }
        fn and(self, a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        fn nonzero(self, a: __m512i) -> __mmask16 { _mm512_test_epi32_mask(a, a) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> __m512i {
        // SAFETY: see the module; the caller vouches for sixteen elements.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    fn both(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }

    #[inline(always)]
    fn count(self, mask: __mmask16) -> usize {
        mask.count_ones() as usize
    }

    #[inline(always)]
    unsafe fn append(self, to: *mut u32, a: __m512i, mask: __mmask16) {
        // Compresses in a register and stores it whole: AMD CPUs microcode compressing stores.
        //
        // SAFETY: see the module; the caller vouches for sixteen elements.
        unsafe { _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi32(mask, a)) }
    }
}

/// Sixteen 32-bit lanes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Avx512Bits(__m512i);

impl Lanes for Avx512Bits {
    const LANES: usize = 16;
    const EXTRACTS: bool = true;

    instructions! {
        fn extract(word: u64, mask: u64) -> u64 { _pext_u64(word, mask) }
        fn zero() -> Self { Self(_mm512_setzero_si512()) }
        fn splat(lane: u32) -> Self { Self(_mm512_set1_epi32(lane.cast_signed())) }
        fn or(self, other: Self) -> Self { Self(_mm512_or_si512(self.0, other.0)) }
        fn and(self, other: Self) -> Self { Self(_mm512_and_si512(self.0, other.0)) }
        fn xor(self, other: Self) -> Self { Self(_mm512_xor_si512(self.0, other.0)) }
        // The counts of both shifts are constants, so they become immediates.
        fn shl<const BY: i32>(self) -> Self { Self(_mm512_sll_epi32(self.0, _mm_cvtsi32_si128(BY))) }
        fn shr<const BY: i32>(self) -> Self { Self(_mm512_srl_epi32(self.0, _mm_cvtsi32_si128(BY))) }
        fn or3(a: Self, b: Self, c: Self) -> Self {
            Self(_mm512_ternarylogic_epi64::<0xfe>(a.0, b.0, c.0))
        }
        fn is_full(self) -> bool { _mm512_cmpneq_epi32_mask(self.0, Self::splat(u32::MAX).0) == 0 }
        fn exchange<const BY: i32>(a: Self, b: Self) -> (Self, Self) {
            // The first operand chooses between the others.
            let low = Self::splat(low_halves(BY)).0;
            (
                Self(_mm512_ternarylogic_epi64::<0xca>(low, a.0, b.shl::<BY>().0)),
                Self(_mm512_ternarylogic_epi64::<0xca>(low, a.shr::<BY>().0, b.0)),
            )
        }
        fn carry_save(a: Self, b: Self, c: Self) -> (Self, Self) {
            (
                Self(_mm512_ternarylogic_epi64::<0xe8>(a.0, b.0, c.0)),
                Self(_mm512_ternarylogic_epi64::<0x96>(a.0, b.0, c.0)),
            )
        }
        fn add_disjoint(self, other: Self, counts: Self) -> Self {
            let none = _mm512_testn_epi32_mask(self.0, other.0);
            Self(_mm512_mask_add_epi32(counts.0, none, counts.0, _mm512_set1_epi32(1)))
        }
    }

    #[inline(always)]
    fn prefetch<T>(of: *const T) {
        // SAFETY: see the module; any address may be prefetched.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(of.cast()) }
    }

    #[inline(always)]
    unsafe fn stream(line: &CacheLine, to: &mut CacheLine) {
        // SAFETY: see the module; lines are aligned, and the caller vouches for the order.
        unsafe {
            let words = _mm512_load_si512((&raw const *line).cast());
            _mm512_stream_si512((&raw mut *to).cast(), words);
        }
    }

    #[inline(always)]
    fn end_streams() {
        // SAFETY: see the module.
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: see the module; the caller vouches for the bytes.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: see the module; the caller vouches for the bytes.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn divide(block: PartitionBlock) -> u16 {
        // SAFETY: see the module; the caller vouches for the keys and the places.
        unsafe {
            let bit = 1_u32 << block.bit;
            let below = _mm512_set1_epi32((bit - 1).cast_signed());
            let keys = _mm512_loadu_si512(block.keys.cast());
            let ones = _mm512_test_epi32_mask(keys, _mm512_set1_epi32(bit.cast_signed()));
            // Bits in `below` stay; the others move down by one.
            let keys = _mm512_ternarylogic_epi32::<0xca>(below, keys, _mm512_srli_epi32::<1>(keys));
            let marked = _mm512_or_si512(keys, _mm512_set1_epi32(i32::MIN));
            let without = _mm512_maskz_compress_epi32(!ones, keys);
            _mm512_storeu_si512(block.without.cast(), without);
            let with = _mm512_maskz_compress_epi32(ones, marked);
            _mm512_storeu_si512(block.with.cast(), with);
            ones
        }
    }

    #[inline(always)]
    fn add_ones(self, sums: Self) -> Self {
        // SAFETY: see the module. A table of 16 nibble counts, looked up for both nibbles:
        // some CPUs with 512-bit vectors lack the instruction that counts ones (VPOPCNTDQ),
        // and after carry-save addition one vector in eight is counted.
        unsafe {
            let counts = _mm512_broadcast_i32x4(_mm_setr_epi8(
                0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,
            ));
            let nibble = _mm512_set1_epi8(15);
            let low = _mm512_and_si512(self.0, nibble);
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(self.0), nibble);
            let ones = _mm512_add_epi8(
                _mm512_shuffle_epi8(counts, low),
                _mm512_shuffle_epi8(counts, high),
            );
            Self(_mm512_add_epi64(sums.0, _mm512_sad_epu8(ones, _mm512_setzero_si512())))
        }
    }
}
